"""What figures share."""

import colorsys
import re

import matplotlib as mpl
import numpy as np
import pytest

mpl.use("Agg")
import itertools

import matplotlib.pyplot as plt

from numpyro_gp import plots
from numpyro_gp.plots.style import line_look, names_below


def test_series_differ_in_colour_and_line_and_in_grey():
    """A step of L* that can be seen between lines that do not touch is 5 or so."""
    looks = [line_look(number) for number in range(len(plots.COLOURS))]
    assert len({one["color"] for one in looks}) == len({str(one["ls"]) for one in looks}) == len(plots.COLOURS)
    grey = [lightness(colour) for colour in plots.COLOURS]
    assert all(abs(a - b) > 5 for a, b in itertools.pairwise(grey))
    # The first three, of three engines: blue and sky blue, which SVI and SVGD had, are one hue.
    for first, second in itertools.combinations(plots.COLOURS[:3], 2):
        assert abs(lightness(first) - lightness(second)) > 10
        apart = abs(colorsys.rgb_to_hsv(*primaries(first))[0] - colorsys.rgb_to_hsv(*primaries(second))[0])
        assert 360 * min(apart, 1 - apart) > 35


def primaries(colour):
    return [int(part, 16) / 255 for part in re.findall("..", colour[1:])]


def lightness(colour):
    """CIE L* of sRGB."""
    light = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in primaries(colour)]
    return 116 * np.dot([0.2126, 0.7152, 0.0722], light) ** (1 / 3) - 16


@pytest.mark.parametrize(
    ("names", "slant"), [(list("abcdef"), 0.0), (["Alexanderplatz 1", "Hauptmarkt 3", "Am Markt 12"], 45.0)]
)
def test_long_names_of_levels_do_not_lie_on_each_other(names, slant):
    figure, axis = plt.subplots(figsize=(3.4, 2.9), layout="constrained")
    names_below(axis, names)
    assert [label.get_rotation() for label in axis.get_xticklabels()] == [slant] * len(names)
    plt.close(figure)
