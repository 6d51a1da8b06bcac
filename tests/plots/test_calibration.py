"""Reliability curves and rank histograms: what is drawn and labelled, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from numpyro_gp import plots
from numpyro_gp.criticism.diagnose import Calibration
from numpyro_gp.likelihoods import Poisson
from numpyro_gp.posterior.prediction import Prediction
from numpyro_gp.sites import Observation


def line_a(ax):
    return next(line for line in ax.lines if line.get_label() == "a")


def test_calibration_draws_the_share_below(ax):
    plots.calibration({"a": np.array([0.1, 0.2, 0.9, 0.95])}, ax=ax)
    assert line_a(ax).get_ydata()[100] == 0.5


@pytest.mark.long
def test_a_right_prediction_of_counts_is_on_the_diagonal(ax, rng):
    """Mid-ranks of a Poisson at 0.4 leave a third of the curve 0.4 away from it."""
    normal = dist.Normal(jnp.full((1, 600), np.log(0.4)), jnp.full((1, 600), 1e-6))
    prediction = Prediction([Observation(normal, Poisson())], [600], jax.random.key(0))
    plots.calibration({"a": prediction}, rng.poisson(0.4, size=600).astype(float), ax=ax)
    assert np.max(np.abs(line_a(ax).get_ydata() - line_a(ax).get_xdata())) < 0.06


def test_ranks_are_counted_in_bins_of_equal_chance(ax):
    """Eight ranks 0, ..., 7 in four bins: two in each, and the band is centred on two."""
    found = Calibration({"noise": np.arange(8)}, {"noise": 0.5}, num_draws=7)
    plots.ranks(found, bins=4, ax=ax)
    band, bars = ax.patches
    assert bars.get_data().values.tolist() == [2, 2, 2, 2]
    assert np.all(band.get_data().values > 2)
    assert ax.get_title(loc="left") == "noise: p = 0.500"


def test_errors(ax):
    found = Calibration({"a": np.arange(8), "b": np.arange(8)}, {"a": 0.5, "b": 0.5}, num_draws=7)
    with pytest.raises(ValueError, match=r"site must be one of \['a', 'b'\], but got None"):
        plots.ranks(found, ax=ax)
