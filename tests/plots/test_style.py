"""What figures share."""

import re

import matplotlib as mpl
import pytest

mpl.use("Agg")
import itertools

import matplotlib.pyplot as plt

from numpyro_gp import plots
from numpyro_gp.checks import check_level
from numpyro_gp.plots.style import axes_of, look


def test_series_differ_in_colour_and_line():
    looks = [look(number) for number in range(len(plots.COLOURS))]
    assert len({one["color"] for one in looks}) == len({str(one["ls"]) for one in looks}) == len(plots.COLOURS)


def test_neighbouring_colours_differ_in_grey():
    """Lightness (Rec. 709 weights) of neighbours at least 0.05 apart, so that a grey print can be read."""
    grey = []
    for colour in plots.COLOURS:
        red, green, blue = (int(part, 16) / 255 for part in re.findall("..", colour[1:]))
        grey.append(0.2126 * red + 0.7152 * green + 0.0722 * blue)
    assert all(abs(a - b) > 0.05 for a, b in itertools.pairwise(grey))


def test_new_axes_are_made_and_others_refused():
    ax = axes_of(None)
    assert ax.figure is not None
    plt.close(ax.figure)
    with pytest.raises(TypeError, match="ax must be a matplotlib Axes"):
        axes_of(7)
    with pytest.raises(ValueError, match="level must be less than 1"):
        check_level(1.0)
