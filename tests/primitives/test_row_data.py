"""Draws of functions from data at rows, of whatever likelihood: dense algebra, and the recursion row by row."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import numpyro_gp as ngp
from numpyro_gp.beliefs.basis import Basis
from numpyro_gp.neighbours.value import joint_rows
from numpyro_gp.primitives.neighbours.row_data import GlobalPart, RowData
from tests.precision import x64

RNG = np.random.default_rng(7)
N, B, M = 15, 6, 3
X, NEW, Z = (RNG.uniform(size=(size, 2)) for size in (N, B, M))
SCALE, NOISE, R = RNG.uniform(0.5, 2, size=N), RNG.uniform(0.1, 0.3, size=N), RNG.normal(size=N)
LENGTHSCALE, JITTER = np.array([0.4, 0.7]), 1e-4
ALL = np.concatenate([X, NEW])


def gram(rows, more):
    r = np.sqrt(5 * (((rows[:, None] - more[None]) / LENGTHSCALE) ** 2).sum(axis=-1))
    return 1.3 * (1 + r + r**2 / 3) * np.exp(-r)


def of_both():
    """Features of all rows by dense algebra."""
    points = gram(Z, Z)
    return np.linalg.solve(np.linalg.cholesky(points + 1e-6 * np.trace(points) / M * np.eye(M)), gram(Z, ALL))


def data_of(kind, near):
    kernel = ngp.kernels.Matern52(jnp.asarray(1.3), jnp.asarray(LENGTHSCALE))
    shared = None
    if kind == "both":
        basis = Basis.build(kernel, jnp.asarray(Z), 1e-6)
        shared = GlobalPart(basis, jnp.zeros(basis.size), jnp.eye(basis.size))
    scale = None if kind == "data" else jnp.asarray(SCALE)
    return RowData(kernel, near, jnp.asarray(R), jnp.asarray(NOISE), None, JITTER, scale, shared)


@pytest.mark.parametrize("is_double", [True, pytest.param(False, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", ["data", "scaled", "both"])
def test_rows_are_drawn_one_after_the_other(kind, is_double):
    """With few each by its own dense algebra; with all the mean and the covariance are those of the exact process."""
    with x64(is_double):
        near, atol = ngp.neighbours(jnp.asarray(X), 2), 1e-7 if is_double else 2e-3
        scale = np.append(np.ones(N) if kind == "data" else SCALE, np.ones(B))
        A = of_both() if kind == "both" else np.zeros((M, N + B))
        prior = scale[:, None] * (gram(ALL, ALL) - A.T @ A) * scale
        # Jitter 1e-4 of the variance for data, and 1e-6 or as much for new rows: the larger of both.
        noise = np.append(NOISE, np.zeros(B)) + JITTER * 1.3 * scale**2
        covariance = prior + np.diag(noise)
        w = RNG.normal(size=M) * (kind == "both")
        white = np.concatenate([np.zeros((1, B)), np.eye(B)])
        own, draw = data_of(kind, near), jax.jit(RowData.drawn_together)
        for count in (5, 100):
            rows = joint_rows(near, jnp.asarray(NEW), count, LENGTHSCALE)
            values = jnp.asarray(np.repeat(w[None], B + 1, 0)) if kind == "both" else None
            found = draw(own, rows, jnp.asarray(white), values, 1e-6)
            expected = np.zeros((B + 1, N + B)) + np.append(R - SCALE * (A[:, :N].T @ w), np.zeros(B))
            for i in np.asarray(rows.order):
                given = np.asarray(rows.index[i])
                given = given[given >= 0]
                a = np.linalg.solve(covariance[np.ix_(given, given)], covariance[given, N + i])
                # Of the function at new rows, which were drawn without the jitter that their factors have.
                error = covariance[np.ix_(given, given)] - np.diag(np.where(given < N, 0, noise[given]))
                sd = np.sqrt(prior[N + i, N + i] - 2 * a @ covariance[given, N + i] + a @ error @ a)
                expected[:, N + i] = expected[:, given] @ a + sd * white[:, i]
            np.testing.assert_allclose(found, expected[:, N:] + A[:, N:].T @ w, atol=atol)
        gain = np.linalg.solve(covariance[:N, :N], covariance[:N, N:])
        spread = np.asarray(found[1:] - found[:1])
        near_exact = max(atol, 4 * JITTER)  # what the jitter of factors does to weights
        np.testing.assert_allclose(found[0], expected[0, :N] @ gain + A[:, N:].T @ w, atol=10 * near_exact)
        np.testing.assert_allclose(spread.T @ spread, prior[N:, N:] - gain.T @ covariance[:N, N:], atol=near_exact)
        np.testing.assert_allclose(own.noise_at(jnp.arange(N), jnp.asarray(X)), noise[:N], rtol=1e-4)
