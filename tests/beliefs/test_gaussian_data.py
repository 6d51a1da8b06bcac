"""Precise Gaussian data, in single precision too, against NumPy in double precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.beliefs.gaussian_data import GaussianData


@pytest.mark.parametrize(("dtype", "atol"), [(jnp.float32, 1e-3), (jnp.float64, 1e-7)])
def test_bounds_and_the_best_belief_of_precise_data(dtype, atol):
    """Noise of 1/300 of the function: by differences of squares the bounds are off by 2 and 5 in float32, the mean by 6e-3."""
    rng = np.random.default_rng(0)
    turn, x = np.linalg.qr(rng.normal(size=(12, 12)))[0], np.linspace(0.0, 1.0, 300)
    waves = np.cos(np.pi * np.arange(12)[:, None] * x) * np.logspace(0, -3, 12)[:, None]
    B = np.asarray(jnp.asarray(300 * turn @ waves, dtype), float)
    r = np.asarray(jnp.asarray(300 * np.cos(np.pi * x) + rng.normal(size=300), dtype), float)
    prior = np.asarray(jnp.asarray((B**2).sum(0) + 0.17, dtype), float)
    S, open_at = B.T @ B + np.eye(300), prior - (B**2).sum(0)
    log_det, constant, t = 0.5 * np.linalg.slogdet(S)[1], 150 * np.log(2 * np.pi), open_at.sum()
    below = -log_det - constant - 0.5 * r @ np.linalg.solve(S, r)
    above = -log_det - constant - 0.5 * r @ np.linalg.solve(S + t * np.eye(300), r)
    data = GaussianData(*(jnp.asarray(own, dtype) for own in (B, prior, np.ones(300))))

    def asked(data, r):
        return (*data.optimum(r)[::2], data.optimum(r, True)[2], data.upper_bound(r))

    mean, bound, tight, upper = jax.jit(asked)(data, jnp.asarray(r, dtype))
    np.testing.assert_allclose(
        np.asarray(mean, float) @ B, B.T @ np.linalg.solve(np.eye(12) + B @ B.T, B @ r), atol=atol
    )
    np.testing.assert_allclose(bound, below - 0.5 * t, atol=100 * atol)
    np.testing.assert_allclose(tight, below - 0.5 * np.log1p(open_at).sum(), atol=100 * atol)
    np.testing.assert_allclose(upper, above, atol=100 * atol)


@pytest.mark.parametrize(("dtype", "rtol"), [(jnp.float32, 2e-3), (jnp.float64, 1e-7)])
def test_left_out_moments_of_precise_data(dtype, rtol):
    """Noise of 1e-4 of the function: the square of the features has a condition number of 1e8."""
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(8, 8)))[0]
    features = 1e4 * turn @ (rng.normal(size=(8, 40)) * np.logspace(0, -4, 8)[:, None])
    B = np.asarray(jnp.asarray(features, dtype), float)
    residuals = np.asarray(jnp.asarray(rng.normal(size=8) @ B + rng.normal(size=40), dtype), float)
    _, s, rows = np.linalg.svd(B, full_matrices=False)
    inverse = np.eye(40) - (rows.T * (s**2 / (1 + s**2))) @ rows
    data = GaussianData(*(jnp.asarray(own, dtype) for own in (B, np.zeros(40), np.ones(40))))
    mean, variance = jax.jit(GaussianData.leave_one_out)(data, jnp.asarray(residuals, dtype))
    away = np.asarray(residuals - mean, float)
    np.testing.assert_allclose(away, inverse @ residuals / np.diag(inverse), atol=3 * rtol)
    np.testing.assert_allclose(variance, 1 / np.diag(inverse), rtol=rtol)


@pytest.mark.parametrize("noise", [1e-2, 1e-3, 1e-4])
def test_in_single_precision_the_bound_and_its_slopes_hold_at_any_noise(noise):
    """From the square of the features rounded, the bound was no number, or off by hundreds of thousands."""
    rng = np.random.default_rng(0)
    turn, x = np.linalg.qr(rng.normal(size=(30, 30)))[0], np.linspace(0.0, 1.0, 2000)
    waves = np.cos(np.pi * np.arange(30)[:, None] * x) * np.logspace(0, -4, 30)[:, None]
    B = np.asarray(turn @ waves / noise, np.float32).astype(float)
    r = np.asarray(np.cos(np.pi * x) / noise + rng.normal(size=2000), np.float32).astype(float)
    S = np.eye(30) + B @ B.T
    w = np.linalg.solve(S, B @ r)
    rest = r - w @ B
    bound = -0.5 * np.linalg.slogdet(S)[1] - 1000 * np.log(2 * np.pi) - 0.5 * (rest @ rest + w @ w)
    slope = np.outer(w, rest) - np.linalg.solve(S, B)
    with jax.enable_x64(False):
        data = GaussianData(*(jnp.asarray(own, jnp.float32) for own in (B, np.zeros(2000), np.ones(2000))))
        both = jax.jit(jax.value_and_grad(lambda B: data._replace(features=B).optimum(jnp.asarray(r))[2]))
        found, by_features = both(data.features)
    np.testing.assert_allclose(found, bound, atol=0.5)
    np.testing.assert_allclose(by_features, slope, atol=0.01 * np.abs(slope).max())
