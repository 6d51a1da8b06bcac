"""The spectral mixture kernel against its formula and as the transform of its spectral density."""

import numpy as np

from numpyro_gp.kernels import SpectralMixture

WEIGHTS = np.array([0.5, 0.9])
MEANS = np.array([[0.3, 0.1], [0.8, 0.2]])
SCALES = np.array([[0.2, 0.3], [0.1, 0.5]])


def test_formula_in_two_inputs(rng):
    X1, X2 = rng.normal(size=(5, 2)), rng.normal(size=(4, 2))
    gaps = X1[:, None, None, :] - X2[None, :, None, :]
    terms = np.exp(-2 * np.pi**2 * gaps**2 * SCALES**2) * np.cos(2 * np.pi * gaps * MEANS)
    expected = np.sum(WEIGHTS * np.prod(terms, axis=-1), axis=-1)
    kernel = SpectralMixture(WEIGHTS, MEANS, SCALES)
    np.testing.assert_allclose(kernel.matrix(X1, X2), expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(kernel.diagonal(X1), np.full(5, 1.4), rtol=1e-14)
