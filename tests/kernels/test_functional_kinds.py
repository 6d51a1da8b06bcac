"""Slopes and averages as functionals, of a function that is known."""

import numpy as np
from numpyro_gp.functionals import Average, Derivative

X = np.array([[[0.0, 1.0], [2.0, 3.0]], [[1.0, -1.0], [1.0, 2.0]]])


def function(X):
    return X[..., 0] ** 2 * X[..., 1]


def test_slopes_and_averages_of_a_known_function():
    np.testing.assert_allclose(Derivative(X[0], 0).of(function), 2 * X[0, :, 0] * X[0, :, 1], rtol=1e-6)
    np.testing.assert_allclose(Average(X).of(function), function(X).mean(axis=-1), rtol=1e-6)
    weights = np.array([0.5, 2.0])
    np.testing.assert_allclose(Average(X, weights).of(function), function(X) @ weights, rtol=1e-6)
