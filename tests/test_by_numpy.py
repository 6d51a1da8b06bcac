"""NumPy in the place of JAX's small programs: the same numbers, types and counts, and JAX where NumPy differs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests import by_numpy
from tests.compiling import counted

A = np.random.default_rng(0).uniform(0.3, 2.0, size=(4, 3))
S = A.T @ A + np.eye(3)
OPERATIONS = {
    "arithmetic": lambda a: -a * 2.0 / (1 + a) ** 3 - a**0.5 + jnp.maximum(a, 1.0),
    "functions": lambda a: jnp.exp(a) + jnp.log1p(a) + jnp.tanh(a) + jax.scipy.special.gammaln(a) + jax.nn.softplus(a),
    "sums": lambda a: a.sum(0) + a.mean(0) + a.max(0) + jnp.prod(a, 0) + jnp.var(a, 0) + jnp.cumsum(a, 0)[2],
    "shapes": lambda a: jnp.concatenate([a.T.reshape(4, 3), jnp.tile(a, 2)[:, ::2], a[::-1]], 1)[..., None],
    "rows": lambda a: a[jnp.array([[2, 0], [-1, 1]])][..., jnp.array([1, 1])] + a[3, 2],
    "products": lambda a: jnp.einsum("ij,kj->ki", a, 2 * a) + a @ a.T,
    "factors": lambda a: jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(S.astype(a.dtype)), a.T, lower=True),
    "choices": lambda a: jnp.where((a > 1) & ~(a > 1.5), a, jnp.sort(a, 0)),
    "slopes": jax.grad(lambda a: jnp.sum(jnp.sin(a) * jax.nn.sigmoid(a))),
    "no number": lambda a: jnp.linalg.cholesky(-S.astype(a.dtype)) + jnp.log(-a[:3]),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_operations_are_those_of_a_compiled_function(name, dtype):
    given, tolerance = jnp.asarray(A, dtype), 1e-5 if dtype == np.float32 else 1e-12
    found, wanted = OPERATIONS[name](given), jax.jit(OPERATIONS[name])(given)
    assert (found.dtype, found.weak_type, found.shape) == (wanted.dtype, wanted.weak_type, wanted.shape)
    assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def test_types_stay_weak_and_integers_go_round():
    assert (jnp.asarray(2) * 1.5).weak_type == jax.jit(lambda: jnp.asarray(2) * 1.5)().weak_type
    assert (2.0 * jnp.ones(3, jnp.float32)).dtype == jnp.float32
    assert int(jnp.asarray(2**31 - 1, jnp.int32) + jnp.asarray(1, jnp.int32)) == -(2**31)
    assert int(jnp.asarray(-7) // 2) == -4


def test_a_new_operation_counts_once_as_the_program_that_it_would_be():
    x = jnp.ones((7, 3, 2, 5))
    for wanted in (1, *[0] * (by_numpy.MOST_USES + 3)):  # the last ones are compiled
        with counted() as programs:
            x * 3.25
        assert programs.count == wanted


def test_functions_of_this_repository_are_compiled():
    with counted() as programs:
        found = jax.jit(lambda x: x + 1.0)(1.0)
    assert (float(found), programs.count) == (2.0, 1)
