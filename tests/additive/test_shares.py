"""Variances of components and their shares, against sums over rows, in NumPy and in JAX."""

import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.additive.component_kernels import Squares, shares_of


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray])
def test_variances_over_rows_are_those_of_functions_there(kind, rng):
    """``f_c = A_c^T v_c``, with rows of weights: a weighted variance of each function, and of each draw."""
    A, values, mass = rng.normal(size=(2, 3, 5)), rng.normal(size=(2, 3, 4)), rng.uniform(size=5)
    mass /= mass.sum()
    prior = 2 + np.sum(A**2, axis=1)  # two more than what the features explain
    root = rng.normal(size=(2, 3, 3))
    own = Squares.over(kind(A), kind(prior), kind(mass))
    f = np.einsum("cmn,cms->csn", A, values)
    away = f - (f @ mass)[..., None]
    np.testing.assert_allclose(own.left, 2.0, rtol=1e-12)
    np.testing.assert_allclose(own.of_values(kind(values)), away**2 @ mass, rtol=1e-12)
    np.testing.assert_allclose(own.drawn(kind(values)), away**2 @ mass + 2, rtol=1e-12)
    g = np.einsum("cmn,cmk->ckn", A, root)
    spread = ((g - (g @ mass)[..., None]) ** 2 @ mass).sum(1)
    found = own.expected(kind(values[..., 0]), kind(root @ root.transpose(0, 2, 1)))
    np.testing.assert_allclose(found, away[:, 0] ** 2 @ mass + 2 + spread, rtol=1e-12)
    assert isinstance(found, np.ndarray) == (kind is np.asarray)


def test_shares_of_nothing_are_zero():
    variances = np.array([[1.0, 0.0], [3.0, 0.0]])
    np.testing.assert_array_equal(shares_of(variances), [[0.25, 0.0], [0.75, 0.0]])
    np.testing.assert_array_equal(shares_of(jnp.asarray(variances)), [[0.25, 0.0], [0.75, 0.0]])
