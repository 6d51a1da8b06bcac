"""Models that compute with the number of rows: in chunks, batches and a predictor, beside one piece."""

import warnings

import jax.numpy as jnp
import numpy as np
import numpyro
import pytest

import numpyro_gp as ngp
from numpyro_gp.programs.trace import traced
from numpyro_gp.rows.row_readers import counts_rows
from tests.fits import KEY

ROWS = np.linspace(0.0, 1.0, 7)[:, None]
# What a model makes of its rows, and what that is at all seven of them.
COUNTING = {
    "len(X)": (lambda X: jnp.zeros(len(X)) + len(X), np.full(7, 7.0)),
    "arange": (lambda X: 1.0 * jnp.arange(len(X)), np.arange(7.0)),
    "of NumPy": (lambda X: np.arange(len(X)) / 2, np.arange(7.0) / 2),
    "linspace": (lambda X: jnp.linspace(0.0, 6.0, len(X)), np.arange(7.0)),
    "halves": (lambda X: jnp.where(jnp.arange(len(X)) < len(X) // 2, 0.0, 1.0), np.r_[np.zeros(3), np.ones(4)]),
    "power": (lambda X: jnp.full(len(X), 2.0) ** len(X), np.full(7, 128.0)),
    "sum of ones": (lambda X: X[:, 0] * 0 + jnp.ones(len(X)).sum(), np.full(7, 7.0)),
    "cumulative": (lambda X: jnp.cumsum(jnp.ones(len(X))), np.arange(1.0, 8.0)),
}
BY_ROW = {
    "zeros": lambda X: jnp.zeros(len(X)) + X[:, 0],
    "of NumPy": lambda X: np.full(len(X), 3.0) + X[:, 0],
    "read by rows": lambda X: X[jnp.arange(len(X)), 0],
    "read by take": lambda X: jnp.take(X[:, 0], jnp.arange(len(X))),
    "a table": lambda X: jnp.array([1.0, 2.0])[(X[:, 0] > 0.5).astype(int)],
    "columns": lambda X: X.shape[1] * X[:, 0],
}


def posterior(offset):
    def model(X, y=None):
        f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.5), jnp.array([[0.0], [1.0]]))
        with numpyro.plate("data", len(X)):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y, offset=offset(X))

    return ngp.Posterior.from_mcmc(model, {"f": jnp.zeros((3, 2))})


# Told by a constant of other rows, and by operations that combine them.
IN_ONE_PIECE = ("of NumPy", "sum of ones", "cumulative")


def counts(function):
    return counts_rows(*[traced(function, jnp.asarray(rows)).program for rows in (ROWS[:6], ROWS)])


@pytest.mark.parametrize("name", COUNTING)
def test_a_model_that_computes_with_the_number_of_rows_is_told_by_its_programs(name):
    function, wanted = COUNTING[name]
    np.testing.assert_allclose(function(jnp.asarray(ROWS)), wanted)
    assert counts(function) == (name not in IN_ONE_PIECE)


@pytest.mark.parametrize("name", BY_ROW)
def test_one_that_has_each_row_by_itself_does_not(name):
    assert not counts(BY_ROW[name])


@pytest.mark.parametrize("name", [*IN_ONE_PIECE, "halves"])
def test_rows_are_predicted_in_one_piece_where_their_number_counts(name):
    function, wanted = COUNTING[name]
    with pytest.warns(UserWarning, match="the 7 rows are predicted in one piece, because .* it "):
        found = posterior(function).predict(KEY, ROWS, chunk_size=3).mean
    np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_others_are_predicted_in_chunks():
    function = BY_ROW["read by rows"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = posterior(function).predict(KEY, ROWS, chunk_size=3).mean
    np.testing.assert_allclose(found, function(jnp.asarray(ROWS)), atol=1e-12)


def test_a_predictor_refuses_another_number_of_rows_and_takes_the_same():
    function, wanted = COUNTING["len(X)"]
    predictor = posterior(function).predictor(KEY)
    for _ in range(2):
        np.testing.assert_allclose(predictor(ROWS).mean, wanted)
    with pytest.raises(ValueError, match="but got one that computes with their number"):
        predictor(ROWS[:2])
    with pytest.raises(ValueError, match="but got one that computes with their number"):
        list(posterior(function).predict(KEY, iter([ROWS, ROWS])))


def test_numbers_inside_of_a_loop_count_and_bounds_of_an_index_do_not():
    loop = lambda x: jnp.stack([x, x]).at[0].add(0.0) + jnp.asarray(x.shape[0], x.dtype)  # noqa: E731
    programs = [traced(loop, jnp.zeros(size)).program for size in (3, 4)]
    assert counts_rows(*programs)
    clipped = lambda x: jnp.take(x, jnp.array([0, 1]), mode="clip")  # noqa: E731
    assert not counts_rows(*[traced(clipped, jnp.zeros(size)).program for size in (3, 4)])
    branch = lambda x: x + 1 if len(x) > 3 else x  # noqa: E731
    assert not counts_rows(*[traced(branch, jnp.zeros(size)).program for size in (3, 4)])
