"""What neighbours cannot be asked for."""

import jax
import numpy as np
import pytest

import numpyro_gp as ngp

X = np.random.default_rng(1).normal(size=(40, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ngp.neighbours(X, 40), "num_neighbours must be less than the number of rows, 40, but got 40. Pass 39"),
        (
            lambda: ngp.neighbours(X[:1], 1),
            "X must be of two rows or more, but got one. Pass X itself in place of near",
        ),
        (lambda: ngp.neighbours(X, 3, order="maxmin"), "order must be 'random', 'given' or the numbers of the rows"),
        (lambda: ngp.neighbours(X, 3, order=np.arange(5)), "order must be the numbers from 0 to 39"),
        (lambda: ngp.neighbours(X, 3, lengthscale=[1.0] * 3), r"lengthscale must be a number or of shape \(2,\)"),
        (lambda: ngp.neighbours(X, 3, rows=[0, 0]), "rows must be different whole numbers from 0 to 39"),
        (
            lambda: ngp.neighbours(X, 3, rows=X[:, 0] > 0),
            r"from 0 to 39, .* Pass their numbers, np.flatnonzero\(rows\)",
        ),
        (
            lambda: ngp.neighbours(X, 3.0),
            r"num_neighbours must be a whole number, but got 3.0 \(float\). Pass an int: 3",
        ),
        (lambda: ngp.neighbours(X, 3, replicates="no"), "replicates must be True or False"),
        (lambda: ngp.neighbours(X, 3).find(X[:, :1]), "X_new must be an array with 2 columns"),
        (lambda: ngp.neighbours(X, 3).find(X)[0], "idx must be a slice or numbers of rows, but got 0. Pass rows"),
        (
            lambda: list(ngp.neighbours(X, 3).find(X)),
            "idx must be a slice or numbers of rows, but got 0",
        ),  # never ended
        (lambda: ngp.neighbours(X, 3)[0.5], "idx must be whole numbers of rows"),
        (
            lambda: ngp.neighbours(X, 3)[np.array([2, 40])],
            "idx must be numbers from 0 to 39, but got numbers from 2 to 40",
        ),
        (lambda: jax.jit(lambda X: ngp.neighbours(X, 3).index)(X), "X must be known, but got a traced array"),
        (lambda: jax.jit(lambda n: n.rescaled(2.0).index)(ngp.neighbours(X, 3)), "near of near.rescaled must be known"),
        (lambda: jax.jit(lambda n: n.find(X).index)(ngp.neighbours(X, 3)), "near of near.find must be known"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()
