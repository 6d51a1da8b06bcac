"""The pieces of a mean basis, against algebra typed in NumPy."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.beliefs import Basis, Decoupled, DecoupledLayer, Hybrid, Orthogonal
from numpyro_gp.beliefs.decoupled import check_sampled_rows, mean_norm, projected, residual_norm
from numpyro_gp.kernels import Matern32
from numpyro_gp.linalg import row_times
from tests.oracles.problems import gram


@pytest.fixture
def points(rng):
    return rng.uniform(-2, 2, (6, 1)), np.linspace(-1.5, 1.5, 3)[:, None], rng.normal(size=(2, 6))


@pytest.mark.long
def test_norms_and_projection(points):
    gamma, beta, a = points
    basis = Basis.build(Matern32(1.3, 0.8), jnp.asarray(beta), 0.0)
    both = gram(np.vstack([gamma, beta]), 1.3, 0.8)
    norm = both[:6, :6]
    cross = np.linalg.solve(np.linalg.cholesky(both[6:, 6:]), both[6:, :6])
    residual = norm - cross.T @ cross
    arrays = jnp.asarray(gamma), jnp.asarray(a)
    np.testing.assert_allclose(mean_norm(basis.kernel, *arrays), np.trace(a @ norm @ a.T), rtol=1e-10)
    t = projected(basis, *arrays)
    np.testing.assert_allclose(t, a @ cross.T, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(residual_norm(basis, *arrays, t, None), np.trace(a @ residual @ a.T), rtol=1e-9)
    J = jnp.array([4, 1])
    np.testing.assert_allclose(mean_norm(basis.kernel, *arrays, J), 3 * np.sum(a[:, J] * (a @ norm)[:, J]), rtol=1e-10)
    sampled = residual_norm(basis, *arrays, t, jnp.asarray(J))
    np.testing.assert_allclose(sampled, 3 * np.sum(a[:, J] * (a @ residual)[:, J]), rtol=1e-9)


def test_columns_may_be_absent_or_traced():
    assert check_sampled_rows(None, 3) is None
    assert check_sampled_rows(np.array([2, 0]), 3).dtype == jnp.int64


@pytest.mark.parametrize("name", ["Decoupled", "Hybrid", "Orthogonal", "DecoupledLayer"])
def test_one_row_of_coefficients_is_not_multiplied_inside_of_what_makes_the_kernel(name, rng):
    """By itself the row of 1000 points takes five times as long as the kernel, 14 times with its gradient."""
    gamma, beta, X = (jnp.asarray(rng.normal(size=(rows, 2))) for rows in (70, 64, 300))
    basis, a, m, C = Basis.build(Matern32(1.3, 0.8), beta), rng.normal(size=70), jnp.ones(64), 0.5 * jnp.eye(64)
    belief = {
        "Decoupled": lambda a: Decoupled(gamma, a, C),
        "Hybrid": lambda a: Hybrid(gamma, a, m, C),
        "Orthogonal": lambda a: Orthogonal(gamma, a, m, C),
        "DecoupledLayer": lambda a: DecoupledLayer(gamma, a, scale_tril=C),
    }[name]
    program = jax.jit(lambda a: belief(a).marginals(basis, X).mean).lower(jnp.asarray(a)).compile().as_text()
    assert re.search(r"= f64\[2,300\]\S* dot\(", program)
    assert not re.search(r"= f64\[(1,)?300(,1)?\]\S* dot\(", program)


@pytest.mark.parametrize("shape", [(7,), (1, 7), (2, 7), (2, 1, 7)])
def test_rows_times_a_matrix_and_their_gradients(shape, rng):
    rows, matrix, weights = rng.normal(size=shape), rng.normal(size=(7, 5)), rng.normal(size=(*shape[:-1], 5))
    np.testing.assert_allclose(row_times(jnp.asarray(rows), jnp.asarray(matrix)), rows @ matrix, rtol=1e-13)
    loss = lambda a, B: jnp.sum(row_times(a, B) * weights)  # noqa: E731
    slopes = jax.grad(loss, argnums=(0, 1))(jnp.asarray(rows), jnp.asarray(matrix))
    np.testing.assert_allclose(slopes[0], weights @ matrix.T, rtol=1e-12)
    np.testing.assert_allclose(slopes[1], rows.reshape(-1, 7).T @ weights.reshape(-1, 5), rtol=1e-12)
