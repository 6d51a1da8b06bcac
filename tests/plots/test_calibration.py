"""Reliability curves and rank histograms: what is drawn and labelled, and what is refused."""

import numpy as np
import pytest

from numpyro_gp import plots
from numpyro_gp.criticism.diagnose import Calibration


def test_calibration_draws_the_share_below(ax):
    plots.calibration({"a": np.array([0.1, 0.2, 0.9, 0.95])}, ax=ax)
    line = next(line for line in ax.lines if line.get_label() == "a")
    assert line.get_ydata()[100] == 0.5


def test_ranks_are_counted_in_bins_of_equal_chance(ax):
    """Eight ranks 0, ..., 7 in four bins: two in each, and the band is centred on two."""
    found = Calibration({"noise": np.arange(8)}, {"noise": 0.5}, num_draws=7)
    plots.ranks(found, bins=4, ax=ax)
    band, bars = ax.patches
    assert bars.get_data().values.tolist() == [2, 2, 2, 2]
    assert np.all(band.get_data().values > 2)
    assert ax.get_title(loc="left") == "noise: p = 0.500"


def test_errors(ax):
    with pytest.raises(ValueError, match="PIT values between 0 and 1"):
        plots.calibration(np.array([0.5, 1.5]), ax=ax)
    with pytest.raises(TypeError, match="calibration must be the result of sbc, but got a dict"):
        plots.ranks({"noise": np.arange(3)}, ax=ax)
    found = Calibration({"a": np.arange(8), "b": np.arange(8)}, {"a": 0.5, "b": 0.5}, num_draws=7)
    with pytest.raises(ValueError, match=r"site must be one of \['a', 'b'\], but got None"):
        plots.ranks(found, ax=ax)
