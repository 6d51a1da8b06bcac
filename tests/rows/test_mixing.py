"""Whether a program combines rows: the rule of each operation, against changing one row and looking at the others."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.kernels.stationary import _centre
from numpyro_gp.programs.trace import traced
from numpyro_gp.rows.row_readers import mixing_of

X = np.array([[0.3, -1.2], [0.9, 0.4], [-0.7, 0.1], [1.1, 0.8], [0.2, -0.5]])
W = np.array([[1.0, 0.5], [0.2, -0.3]])
ROWS = np.arange(5)


def lagged(X):
    return jnp.concatenate([jnp.zeros((1, 2)), X[1:] - X[:-1]])


def pairs(X):
    return jnp.sum((X[:, None] - X[None]) ** 2, axis=(1, 2))


def walk(X):
    return jax.lax.scan(lambda state, row: (0.9 * state + row, state), jnp.zeros(2), X)[1]


def counted(X):
    """The state counts the steps, and knows nothing of their rows."""
    return jax.lax.scan(lambda step, row: (step + 1, row * step), 1.0, X)[1]


def sum_inside(X):
    return jax.lax.scan(lambda state, _: (state + X.sum(), state * X[:, 0]), 0.0, None, length=2)[1].T


def unused(X):
    X.mean()
    return 2 * X


BY_ROW = {
    "a sum over columns": lambda X: jnp.sum(jnp.sin(X), axis=1),
    "a product": lambda X: (X @ W) @ W.T,
    "features": lambda X: jnp.linalg.solve(W, X.T).T,
    "a triangular solve": lambda X: jax.scipy.linalg.solve_triangular(W, X.T, lower=True).T,
    "a table": lambda X: jnp.asarray(W)[(X[:, 0] > 0).astype(int)],
    "all rows of a plate": lambda X: X[jnp.arange(5)] * jnp.take(X, jnp.arange(5), axis=0),
    "a map over rows": lambda X: jax.lax.map(lambda row: row * row.sum(), X),
    "a covariance of each row": lambda X: jax.vmap(lambda x: jnp.linalg.cholesky(jnp.outer(x, x) + jnp.eye(2)))(X)[
        :, 1
    ],
    "columns beside each other": lambda X: jnp.concatenate([X, X**2], axis=1)[:, ::-1].cumsum(axis=1),
    "another shape": lambda X: X.reshape(1, 5, 2).swapaxes(0, 1).squeeze(1),
    "a branch": lambda X: jax.lax.cond(W[0, 0] > 0, jnp.sin, jnp.cos, X),
    "a loop that counts": counted,
    "a mean that is not used": unused,
}
COMBINED = {
    "centred": lambda X: X - X.mean(axis=0, keepdims=True),
    "standardised": lambda X: X / X.std(axis=0, keepdims=True),
    "the largest": lambda X: X / jnp.max(jnp.abs(X)),
    "a running sum": lambda X: jnp.cumsum(X, axis=0),
    "ordered": lambda X: jnp.sort(X, axis=0),
    "differences": lambda X: X - X[:1],
    "lags": lagged,
    "a Gram matrix": lambda X: (X @ X.T).sum(axis=1),
    "all pairs": pairs,
    "a state that runs through": walk,
    "in a loop": sum_inside,
    "in a branch": lambda X: jax.lax.cond(W[0, 0] > 0, lambda X: X - X.mean(0, keepdims=True), jnp.cos, X),
    "turned round": lambda X: X[::-1],
    "one row": lambda X: X * X[0][None],
}


def is_combined(function):
    """Whether another row at either end changes what the others give."""
    first, last = (function(jnp.asarray(X).at[row].set(3.0)) for row in (0, -1))
    found = function(jnp.asarray(X))
    return not (np.allclose(found[1:], first[1:]) and np.allclose(found[:-1], last[:-1]))


def mixing(function, axis=0):
    program = traced(function, jnp.asarray(X)).program
    return mixing_of(program, {program.invars[-1]: axis})


@pytest.mark.parametrize("name", BY_ROW)
def test_operations_on_each_row(name):
    assert not is_combined(BY_ROW[name])
    assert mixing(BY_ROW[name]) is None


@pytest.mark.parametrize("name", COMBINED)
def test_operations_that_combine_rows(name):
    assert is_combined(COMBINED[name])
    assert mixing(COMBINED[name]) is not None


def test_rows_on_another_axis_and_a_point_that_may_be_any():
    """Distances of centred inputs are those of the inputs, whatever the centre."""
    transposed = jnp.asarray(X.T)
    program = traced(lambda A: (A - A.mean(axis=0, keepdims=True), A.sum(axis=0)), transposed).program
    assert mixing_of(program, {program.invars[-1]: 1}) is None
    assert mixing_of(program, {program.invars[-1]: 0}) == "reduce_sum"
    assert mixing(lambda X: X - _centre(X)) is None
    np.testing.assert_allclose(_centre(jnp.asarray(X)), X.mean(0)[None], rtol=1e-14)
