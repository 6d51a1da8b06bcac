"""Nodes and weights against exact moments and SciPy's adaptive rule."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import integrate, special, stats

from numpyro_gp.likelihoods import Softmax
from numpyro_gp.likelihoods.quadrature import (
    composite_rule,
    gauss_hermite,
    graded_rule,
    quasi_normal,
    tensor_hermite,
)


def test_hermite_integrates_moments_up_to_its_degree_and_rules_are_built_once_by_numpy():
    nodes, weights = gauss_hermite(10)
    for power in range(0, 20, 2):  # rejects physicists' nodes: their second moment is 1/2
        assert_allclose(weights @ nodes**power, special.factorial2(power - 1) if power else 1.0, rtol=1e-12)
        assert_allclose(weights @ nodes ** (power + 1), 0.0, atol=1e-6)
    assert gauss_hermite(20)[0] is gauss_hermite(20)[0]
    assert all(isinstance(part, np.ndarray) for part in (*gauss_hermite(3), *tensor_hermite(3, 2), *quasi_normal(2)))


def test_quasi_normal_points_of_more_dimensions_than_points():
    """They could not be told apart by a linear map: a Cholesky factor of NumPy's failed from 513 on."""
    nodes, weights = quasi_normal(600)
    covariance = nodes.T @ (weights[:, None] * nodes)
    assert_allclose(np.diagonal(covariance), 1.0, atol=1e-12)
    assert np.abs(covariance - np.eye(600)).max() < 0.25
    found = Softmax(600).predictive_log_prob(0, jnp.zeros(600), jnp.ones(600))
    assert_allclose(found, -np.log(600), atol=0.15)


def test_composite_rule_integrates_normal_moments():
    z, weights = composite_rule(jnp.array([[0.3, -50.0], [7.0, 0.0]]))
    assert z.shape == weights.shape == (2, 64)
    assert_allclose(jnp.sum(weights, -1), 1.0, atol=1e-9)  # a missing half width gives 2
    assert_allclose(jnp.sum(weights * z**2, -1), 1.0, atol=5e-9)
    assert_allclose(jnp.sum(weights * z, -1), 0.0, atol=1e-9)


@pytest.mark.parametrize("ratio", [0.1, 30.0, 1e3, 1e6])
def test_graded_rule_takes_logarithms_and_powers_over_decades(ratio):
    """Of eight nodes between 30 widths and 2 standard deviations the logarithm is off by 1e-2 at the last ratio."""
    z, weights = graded_rule(jnp.array([0.5, 30.0]), jnp.array([1 / ratio, 1 / ratio]))
    assert_allclose(jnp.sum(weights, -1), 1.0, atol=2e-6)
    assert_allclose(jnp.sum(weights * z**2, -1), 1.0, atol=2e-6)
    for fun in (lambda u: np.log1p(u**2), lambda u: (1 + u**2) ** -0.75):
        # In the logarithm of the distance, to either side.
        t = np.linspace(-25.0 - np.log(ratio), 3.0, 100_001)
        density = sum(stats.norm.pdf(0.5 + side * np.exp(t)) for side in (-1, 1))
        wanted = integrate.trapezoid(fun(np.exp(t) * ratio) * np.exp(t) * density, t)
        assert_allclose(np.sum(weights[0] * fun((z[0] - 0.5) * ratio)), wanted, rtol=2e-6)


def test_graded_rule_of_what_is_wide_is_that_of_a_normal():
    """A latent variance of zero makes every width 1e154."""
    z, weights = graded_rule(jnp.array([0.0, 0.5]), jnp.array([1e154, 1e6]))
    for power, moment in ((0, 1.0), (1, 0.0), (2, 1.0)):
        assert_allclose(jnp.sum(weights * z**power, -1), moment, atol=1e-6)
