"""Which columns a kernel reads, and integrals of its features against sums."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers

import numpyro_gp as ngp
from numpyro_gp.additive.component_kernels import check_same_measure, squares_over_measure
from numpyro_gp.kernels import RBF, Empirical, Uniform, ZeroMean


def test_integrals_under_an_empirical_measure_are_sums():
    """``sum_q w_q k(Z, x_q) k(x_q, Z)`` and ``sum_q w_q k(x_q, x_q)``."""
    points, weights = jnp.array([0.0, 0.3, 2.0]), jnp.array([0.2, 0.5, 0.3])
    kernel, Z = ZeroMean(RBF(1.5, 0.7), Empirical(points, weights)), jnp.array([[0.1], [1.0]])
    basis = handlers.seed(ngp.additive_gp, rng_seed=0)("f", {"a": kernel.on(0)}, {"a": Z}).basis
    integrals = squares_over_measure(basis)["a"]
    features = np.asarray(basis.parts[0].inverse @ kernel.matrix(Z, points[:, None]))
    np.testing.assert_allclose(integrals.gram, (features * np.asarray(weights)) @ features.T, rtol=1e-12)
    np.testing.assert_allclose(integrals.prior, weights @ kernel.diagonal(points[:, None]), rtol=1e-12)


def test_measures_that_differ_by_their_own_scale_are_two():
    """A thousandth of the number is no rounding of a day since 1970, and 1e-8 none of lengths in metres."""
    for low, high, other in [(20000.0, 20001.0, 20000.1), (0.0, 2e-9, 1e-9)]:
        one = "a", Uniform(jnp.float32(low), jnp.float32(high))
        check_same_measure(0, one, ("b", Uniform(np.nextafter(np.float32(low), np.float32(1)), jnp.float32(high))))
        with pytest.raises(ValueError, match="the measure of column 0 must be the same in all components"):
            check_same_measure(0, one, ("b", Uniform(jnp.float32(other), jnp.float32(high))))
