"""Hyper-parameters side by side: what is drawn and labelled, and what is refused."""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.autoguide import AutoNormal

import numpyro_gp as ngp
from numpyro_gp import plots
from tests.fits import at_start


def test_hyperparameters_have_a_row_each(ax, rng):
    rows = {"SVI": rng.gamma(9.0, size=300), "SVGD": rng.gamma(9.0, size=20)}
    plots.hyperparameters(rows, "noise", truth=9.0, prior=dist.LogNormal(2.0, 1.0), ax=ax)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["SVI", "SVGD", "prior"]
    assert ax.get_xlabel() == "noise"
    assert [text.get_text() for text in ax.texts] == ["thin 90%, thick 50%, mark: mean"]
    thin, thick = (line for line in ax.lines if len(line.get_xdata()) == 2 and line.get_color() == plots.COLOURS[0])
    np.testing.assert_allclose(thin.get_xdata(), np.quantile(rows["SVI"], [0.05, 0.95]))
    np.testing.assert_allclose(thick.get_xdata(), np.quantile(rows["SVI"], [0.25, 0.75]))
    assert thin.get_linewidth() < thick.get_linewidth()


def test_particles_of_different_weights_are_as_many_ticks_as_particles(ax, rng):
    """Ten times as many draws stand for twenty particles, which support no density; a chain that stood still does."""
    particles = rng.gamma(9.0, size=20)
    plots.hyperparameters({"SVGD": np.repeat(particles, rng.multinomial(180, np.full(20, 0.05)) + 1)}, "noise", ax=ax)
    assert not ax.collections
    (ticks,) = (line for line in ax.lines if line.get_marker() == "|")
    np.testing.assert_array_equal(ticks.get_xdata(), np.sort(particles))
    draws = rng.normal(size=(200, 1))
    draws[50:55] = draws[49]
    plots.hyperparameters({"NUTS": draws}, "noise", ax=ax)
    assert len(ax.collections) == 1


def test_draws_of_a_guide_are_made_from_its_parameters_alone(ax):
    def model():
        numpyro.sample("noise", dist.LogNormal(0.0, 1.0))

    moved = {"noise_auto_loc": np.array(2.0), "noise_auto_scale": np.array(0.1)}
    fit = at_start(model, ngp.AutoGP(model, rest=AutoNormal), **moved)
    plots.hyperparameters({"SVI": fit}, "noise", key=jax.random.key(0), ax=ax)
    low, high = ax.get_xlim()  # 99 % of them and a margin
    assert np.exp(1.5) < low < np.exp(1.85)
    assert np.exp(2.15) < high < np.exp(2.5)


def test_errors(ax):
    with pytest.raises(ValueError, match="one number for each draw"):
        plots.hyperparameters({"SVI": np.zeros((3, 2))}, "lengthscale", ax=ax)
    with pytest.raises(ValueError, match="posteriors must be a dictionary with an entry or more"):
        plots.hyperparameters({}, "noise", ax=ax)
    with pytest.raises(ValueError, match=r"posteriors\['SVI'\] must be finite, but got 1 NaN or infinite draws of 3"):
        plots.hyperparameters({"SVI": np.array([1.0, np.nan, 2.0])}, "noise", ax=ax)
