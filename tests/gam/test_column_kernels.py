"""Kernels of one column in NumPy: against those of the library, integrals by SciPy, and differences."""

import jax.numpy as jnp
import numpy as np
import pytest

import numpyro_gp as ngp
from numpyro_gp.gam.model import column_kernels as own
from numpyro_gp.kernels import RBF, Empirical, Gaussian, Matern12, Matern32, Matern52, Uniform
from numpyro_gp.programs.compiled import run_quickly

RNG = np.random.default_rng(7)
Z, X = RNG.uniform(-1, 2, 4), np.append(RNG.uniform(-1, 2, 6), 0.5)
KINDS = [RBF, Matern12, Matern32, Matern52]
COUNTED = Empirical(jnp.asarray(RNG.uniform(-1, 2, 9)), jnp.asarray(np.full(9, 1 / 9)))
CASES = [(kind, measure) for kind in KINDS for measure in (COUNTED, Uniform(-1.0, 2.0))] + [(RBF, Gaussian(0.5, 0.8))]


@pytest.mark.parametrize(("kind", "measure"), CASES)
def test_kernels_are_those_of_the_library_and_slopes_are_differences(kind, measure):
    """On both sides of the lengthscale where integrals change their form, 0.2 of the interval."""
    curve, step = own.Curve(kind, measure, Z, X), 1e-5
    rows, points = jnp.asarray(X)[:, None], jnp.asarray(Z)[:, None]

    def dense(length):
        kernel = ngp.kernels.ZeroMean(kind(1.0, length), measure)
        return kernel.matrix(points), kernel.matrix(points, rows), kernel.diagonal(rows)

    for length in (0.1, 0.58, 0.62, 40.0):
        found, more, less = (own.split_kernel(curve(length + move)) for move in (0, step, -step))
        for one, wanted, high, low in zip(found, run_quickly(dense, jnp.asarray(length)), more, less, strict=True):
            np.testing.assert_allclose(one.value, wanted, rtol=1e-8, atol=1e-12)
            np.testing.assert_allclose(one.slopes[0], (high.value - low.value) / (2 * step), rtol=1e-5, atol=1e-8)
        for one, alone in zip(
            found, own.split_kernel(own.Curve(kind, measure, Z, X, is_sloped=False)(length)), strict=True
        ):
            np.testing.assert_array_equal(alone.value, one.value)
            assert alone.slopes.shape == (0, *one.value.shape)


def test_a_period_is_that_of_the_library():
    found = own.Curve(Matern52, (COUNTED, 3.0), Z, X)(0.7)
    wanted = ngp.kernels.ZeroMean(ngp.kernels.Periodic(1.0, 0.7, 3.0), COUNTED).matrix(Z[:, None], X[:, None])
    np.testing.assert_allclose(own.split_kernel(found)[1].value, wanted, atol=1e-12)
