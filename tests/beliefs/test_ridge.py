"""The factor of a ridge in single precision: beside double precision, with first and second derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.beliefs.gaussian_data import GaussianData


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
