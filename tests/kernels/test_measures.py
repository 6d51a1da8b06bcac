"""Measures over the inputs: densities, single columns and quadrature."""

import numpy as np
from scipy import stats

from numpyro_gp.kernels import Gaussian, Uniform


def test_measures_densities_and_columns():
    x = np.array([-0.5, 0.3, 4.0])
    np.testing.assert_allclose(Gaussian(0.2, 1.5).density(x), stats.norm(0.2, 1.5).pdf(x), rtol=1e-12)
    np.testing.assert_allclose(Uniform(-1.0, 3.0).density(x), stats.uniform(-1, 4).pdf(x), rtol=1e-12)
    assert float(Uniform(np.array([0.0, 1.0]), 3.0).column(1).low) == 1.0
    assert float(Gaussian(0.0, np.array([0.5, 2.0])).column(1).sd) == 2.0
    nodes, weights = Gaussian(0.2, 1.5).quadrature(breaks=[0.3])
    np.testing.assert_allclose(
        weights @ (np.abs(nodes - 0.3)), stats.norm(0.2, 1.5).expect(lambda s: abs(s - 0.3)), rtol=1e-7
    )
