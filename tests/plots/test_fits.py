"""Losses and particles: what is drawn and labelled, and what is refused."""

import numpy as np

from numpyro_gp import plots


def test_convergence_draws_a_running_median(ax):
    loss = np.linspace(9.0, 1.0, 100)
    loss[50] = 1e6
    plots.convergence({"a": loss}, window=3, ax=ax)
    strong = next(line for line in ax.lines if line.get_label() == "a")
    assert strong.get_ydata().max() < 10
    assert ax.get_xlabel() == "step"


def test_particles_are_standardised_by_the_reference(ax, rng):
    reference = rng.normal(5.0, 2.0, size=99)
    plots.particles({"noise": np.array([reference.mean()])}, {"noise": reference}, ax=ax)
    drawn = next(line for line in ax.lines if line.get_label() == "particle")
    np.testing.assert_allclose(drawn.get_xdata(), [0.0], atol=1e-12)
