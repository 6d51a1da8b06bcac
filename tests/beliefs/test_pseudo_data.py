"""The algebra of pseudo-data against dense NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.beliefs.basis import Frame
from numpyro_gp.beliefs.conditional import _posterior
from numpyro_gp.beliefs.gaussian_data import pseudo_data_of

LEADS = [((), ()), ((3,), ()), ((2, 3), (2, 1)), ((1, 3), (2, 3))]  # of pseudo-data, and of factors


def problem(rng, lead, own, size=4):
    half = rng.normal(size=(*lead, size, size + 2))
    square = rng.normal(size=(*own, size, size))
    factor = np.linalg.cholesky(square @ np.swapaxes(square, -1, -2) + 0.5 * np.eye(size))
    precision = half @ np.swapaxes(half, -1, -2)
    return rng.normal(size=(*lead, size)), precision, factor, rng.normal(size=(*own, size))


def whitened_given(shift, precision, factor, level=None):
    """Mean and lower root of the covariance that `Conditional` gives the whitened values, of every member."""
    level = jnp.zeros(shift.shape[-1]) if level is None else level
    lead = np.broadcast_shapes(shift.shape[:-1], factor.shape[:-2])
    function = lambda *parts: _posterior(parts[0], parts[1], Frame(parts[2], None, None), parts[3], None)  # noqa: E731
    for _ in lead:
        function = jax.vmap(function)
    arrays = [(shift, 1), (precision, 2), (factor, 2), (level, 1)]
    found = function(*(jnp.broadcast_to(array, lead + array.shape[array.ndim - rank :]) for array, rank in arrays))
    return found.mean, found.root


@pytest.mark.parametrize(("lead", "own"), LEADS)
def test_posterior_is_that_of_the_values_themselves(rng, lead, own):
    """And its pseudo-data are those that it was made of."""
    shift, precision, factor, level = problem(rng, lead, own)
    mean, root = whitened_given(*map(jnp.asarray, (shift, precision, factor, level)))
    # In u itself: precision K^-1 + Lambda, shift K^-1 level + shift. A level that is forgotten is off by 1e-1.
    prior = np.linalg.inv(factor @ np.swapaxes(factor, -1, -2))
    covariance = np.linalg.inv(prior + precision)
    u = (covariance @ (shift[..., None] + prior @ level[..., None]))[..., 0]
    np.testing.assert_allclose(level + (factor @ np.asarray(mean)[..., None])[..., 0], u, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(root, np.tril(root), atol=0)
    found = factor @ (root @ np.swapaxes(root, -1, -2)) @ np.swapaxes(factor, -1, -2)
    np.testing.assert_allclose(found, covariance, rtol=1e-8, atol=1e-9)
    again = pseudo_data_of(mean, root, jnp.asarray(factor), jnp.asarray(level))
    for one, wanted in zip(again, (shift, precision), strict=True):
        np.testing.assert_allclose(one, np.broadcast_to(wanted, one.shape), rtol=1e-6, atol=1e-6)


def test_directions_wider_than_the_prior_are_left_to_it(rng):
    factor, mean = np.tril(rng.normal(size=(3, 3))) + 3 * np.eye(3), rng.normal(size=3)
    scale = np.diag([0.5, 2.0, 1.0])
    shift, precision = pseudo_data_of(*map(jnp.asarray, (mean, scale, factor)))
    back = factor.T @ np.asarray(precision) @ factor
    np.testing.assert_allclose(back, np.diag([3.0, 0.0, 0.0]), atol=1e-12)
    assert np.linalg.eigvalsh(precision).min() > -1e-12
    np.testing.assert_allclose(whitened_given(shift, precision, jnp.asarray(factor))[0], mean, atol=1e-12)
