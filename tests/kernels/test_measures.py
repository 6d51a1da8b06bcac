"""Measures over the inputs: densities, single columns and quadrature."""

import jax.numpy as jnp
import numpy as np
from scipy import stats

from numpyro_gp.kernels import Empirical, Gaussian, Uniform


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


def test_a_column_of_few_values_is_its_own_measure():
    found = Empirical.of(np.array([3.0, 1.0, 3.0, 2.0]), weights=np.array([1.0, 2.0, 1.0, 4.0]))
    assert found.points.tolist() == [1.0, 2.0, 3.0]
    assert found.weights.tolist() == [0.25, 0.5, 0.25]


def test_bins_keep_the_mean_and_have_as_much_weight_each():
    """Of a skewed column; the mean of even cells over its range would be off, and most of them empty."""
    x = np.random.default_rng(0).lognormal(size=1000)
    found = Empirical.of(x, most=20)
    np.testing.assert_allclose(found.weights, 1 / 20, atol=1e-12)
    np.testing.assert_allclose(found.weights @ found.points, x.mean(), rtol=1e-12)
    np.testing.assert_allclose(found.points[0], np.sort(x)[:50].mean(), rtol=1e-12)
    two = Empirical(jnp.stack([found.points, 2 * found.points]))
    np.testing.assert_allclose(two.column(1).quadrature()[0], 2 * found.points)
