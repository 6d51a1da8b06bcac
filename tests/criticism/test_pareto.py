"""Smoothed weights and shapes against ArviZ's, which goes through the sets one by one."""

import numpy as np
import pytest

from numpyro_gp.criticism.leave_one_out import fitted, pareto_k, pareto_quantiles, psis_left_out, smoothed
from numpyro_gp.posterior.arviz import arviz

RNG = np.random.default_rng(0)
LOGS = np.column_stack([RNG.normal(size=400), 3 * RNG.normal(size=400), RNG.standard_t(2, size=400)])


@pytest.mark.skipif(arviz().__version__ >= "1", reason="its function has another place in ArviZ 1")
def test_weights_and_shapes_are_those_of_arviz():
    ties = np.concatenate([LOGS, np.maximum(LOGS[:, :1], 1.5), np.minimum(LOGS[:, :1], 0.5)], axis=1)
    found = smoothed(ties)
    for at, own in enumerate(ties.T):
        logs, k = arviz().psislw(own.copy())
        np.testing.assert_allclose(found.log_weights[:, at], logs, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found.k[at], k, rtol=1e-9)
    assert np.isinf(found.k[4])  # the largest are all one number


def test_a_pareto_tail_is_found_and_its_quantiles_inverted():
    """Of 20 000 values of shape 0.4 and scale 2; the prior moves the shape by less than its error."""
    levels = RNG.uniform(size=(20_000, 1))
    values = pareto_quantiles(levels, np.array([0.4]), np.array([2.0]))
    np.testing.assert_allclose(1 - (1 + 0.4 * values / 2) ** (-1 / 0.4), levels, rtol=1e-9)
    k, scale = fitted(np.sort(values, axis=0))
    np.testing.assert_allclose([k[0], scale[0]], [0.4, 2.0], atol=0.08)
    np.testing.assert_allclose(pareto_quantiles(levels, np.zeros(1), np.ones(1)), -np.log1p(-levels))


def test_left_out_densities_of_a_normal_mean():
    """A mean with a flat prior and unit noise: the rest of the data says ``N(mean of the rest, 1 + 1/(n-1))``."""
    y = RNG.normal(size=20)
    draws = y.mean() + RNG.normal(size=(4000, 1)) / np.sqrt(20)
    found = psis_left_out(-0.5 * ((y - draws) ** 2 + np.log(2 * np.pi)))
    rest, variance = (y.sum() - y) / 19, 1 + 1 / 19
    wanted = -0.5 * ((y - rest) ** 2 / variance + np.log(2 * np.pi * variance))
    np.testing.assert_allclose(found.pointwise, wanted, atol=0.02)
    inside = -0.5 * ((y - y.mean()) ** 2 / (1 + 1 / 20) + np.log(2 * np.pi * (1 + 1 / 20)))
    assert np.abs(inside - wanted).max() > 0.1
    assert found.good_k == 0.7
    assert np.all(found.k < 0.5)


def test_weights_of_which_one_is_all_overflow_nothing():
    """Log weights that fall by 7000: quantiles of their tail would be beyond all numbers, and one draw has all mass."""
    with np.errstate(over="raise", invalid="raise"):
        found = smoothed(-np.linspace(0, 7000, 1000)[:, None])
    np.testing.assert_allclose(np.exp(found.log_weights).sum(), 1.0)
    assert found.k[0] > 100


@pytest.mark.parametrize("size", [0.0, 1e-15, 1e-5])
def test_weights_that_are_equal_but_for_rounding_have_no_tail(size):
    """Those of a belief that is the posterior: ``k`` of their last digits was infinite, and the belief "poor"."""
    assert pareto_k(-7.0 + size * RNG.normal(size=4000)) == 0
