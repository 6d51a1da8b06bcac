"""Wendland's kernel against the textbook, and its positive definiteness in the dimension of its inputs.

Symmetry, jit, vmap, pickling, float32 and finite gradients at coincident points: `tests/contracts/test_kernels.py`.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.own_kernel import Wendland, wendland


def textbook(r, power):
    return np.maximum(1 - r, 0) ** (power + 1) * ((power + 1) * r + 1)


@pytest.mark.long
def test_values_are_those_of_the_textbook(rng):
    """Rasmussen and Williams 2006, eq. 4.21 with q = 1, ``j = floor(D / 2) + 2``, distances one by one."""
    for columns, power in ((1, 2), (2, 3), (3, 3), (4, 4)):
        A, B = rng.uniform(size=(6, columns)), rng.uniform(size=(4, columns))
        lengthscale = np.linspace(0.5, 1.5, columns)
        r = np.linalg.norm((A[:, None] - B[None]) / lengthscale, axis=-1)
        got = Wendland(jnp.asarray(1.7), jnp.asarray(lengthscale)).matrix(A, B)
        np.testing.assert_allclose(got, 1.7 * textbook(r, power), rtol=1e-12, atol=1e-14)
    far = Wendland(jnp.asarray(1.7), jnp.asarray(0.5)).matrix(np.zeros((1, 1)), np.array([[0.499], [0.5], [9.0]]))
    assert np.array_equal(np.asarray(far)[0] > 0, [True, False, False])


def test_positive_definite_in_eight_dimensions_and_the_power_of_one_is_not():
    """At the corners of a cube of side 0.6; the rival's least eigenvalue there is -0.089."""
    corners = 0.6 * np.array(list(itertools.product([0.0, 1.0], repeat=8)))
    gram = np.asarray(Wendland(jnp.asarray(1.0), jnp.asarray(1.0)).matrix(corners))
    assert np.linalg.eigvalsh(gram).min() > 0.1
    distances = np.linalg.norm(corners[:, None] - corners[None], axis=-1)
    assert np.linalg.eigvalsh(textbook(distances, 2)).min() < -0.05


def test_second_derivative_at_zero_distance_is_that_of_the_polynomial():
    """``k = 1 - (p + 1)(p + 2) d^2 / 2 + ...``: its curvature is that of a process with derivatives."""

    def along(d):
        return wendland(d**2, 3)

    np.testing.assert_allclose(jax.grad(along)(0.0), 0.0, atol=1e-12)
    np.testing.assert_allclose(jax.grad(jax.grad(along))(0.0), -4.0 * 5.0, rtol=1e-12)
