"""The factor of a row: densities, their derivatives and conditionals, beside NumPy and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from numpyro_gp.beliefs.neighbours.blocks import by_parts, row_factor
from tests.precision import x64

RNG = np.random.default_rng(2)
ROOT = RNG.normal(size=(3, 5, 5))
S = ROOT @ np.swapaxes(ROOT, 1, 2) + np.eye(5)
R = RNG.normal(size=(3, 5))


def log_density(s, r):
    """Of the last residual given the others."""
    x = row_factor(s)
    return jnp.log(x[:, -1]) - 0.5 * (jnp.sum(x * r, axis=1) ** 2 + np.log(2 * np.pi))


@pytest.mark.parametrize("is_double", [True, False])
def test_density_and_conditional_are_those_of_the_normal_distribution(is_double):
    with x64(is_double):
        tolerance = 1e-11 if is_double else 2e-5
        found = log_density(jnp.asarray(S), jnp.asarray(R))
        normal = [
            multivariate_normal(cov=s).logpdf(r) - multivariate_normal(cov=s[:4, :4]).logpdf(r[:4])
            for s, r in zip(S, R)
        ]
        np.testing.assert_allclose(found, normal, rtol=tolerance)
        x = row_factor(jnp.asarray(S))
        weights, variance = -x[:, :-1] / x[:, -1:], x[:, -1] ** -2
        solved = np.linalg.solve(S[:, :4, :4], S[:, :4, 4:])[..., 0]
        np.testing.assert_allclose(weights, solved, rtol=10 * tolerance, atol=10 * tolerance)
        np.testing.assert_allclose(variance, S[:, 4, 4] - (solved * S[:, :4, 4]).sum(axis=1), rtol=10 * tolerance)


@pytest.mark.long
def test_derivatives_are_those_of_the_normal_distribution():
    """First ones by the written rule, second ones by its derivative: beside those of slogdet and solve."""

    def plainly(s, r):
        def one(s, r):
            return -0.5 * (jnp.linalg.slogdet(s)[1] + r @ jnp.linalg.solve(s, r))

        return one(s, r) - one(s[:4, :4], r[:4]) - 0.5 * np.log(2 * np.pi)

    change = RNG.normal(size=(5, 5))
    change = jnp.asarray(change + change.T)

    def along(function):
        line = lambda t: function(jnp.asarray(S[0]) + t * change, jnp.asarray(R[0]) + t * jnp.arange(5.0))  # noqa: E731
        return jax.jit(lambda t: (line(t), jax.grad(line)(t), jax.jvp(jax.grad(line), (t,), (1.0,))[1]))(0.0)

    np.testing.assert_allclose(along(lambda s, r: log_density(s[None], r[None])[0]), along(plainly), rtol=1e-9)


def test_parts_are_the_whole_and_so_are_their_derivatives():
    values = jnp.asarray(RNG.normal(size=(23, 2)))

    def total(values, **sizes):
        doubled, rows = by_parts(lambda v, n: (jnp.sin(v) * n[:, None], n), values, jnp.arange(23), **sizes)
        assert np.shape(rows) == (23,)
        return jnp.sum(doubled), rows

    whole, parts = (
        jax.value_and_grad(lambda v, s=s: total(v, **s)[0])(values) for s in ({}, dict(at_once=8, together=5))
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), whole, parts)
    assert np.array_equal(total(values, at_once=8, together=5)[1], np.arange(23))
