"""Features of kernels: their inner products are the kernel, exactly for finite ones, on average for random ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp import kernels as k
from numpyro_gp.kernels import features

X = jnp.array([[0.1, 0.4], [0.9, -0.3], [0.35, 0.2], [0.6, 0.55]])
CODES = jnp.array([[0.0, 2.0], [1.0, 2.0], [1.0, 0.0], [2.0, 1.0]])
SCALES = jnp.array([0.4, 1.3])
MIXTURE = k.SpectralMixture(
    jnp.array([1.0, 0.5]), jnp.array([[0.5, 0.2], [0.0, 1.0]]), jnp.array([[0.3, 0.1], [0.2, 0.4]])
)
EXACT = {
    "linear": k.Linear(SCALES),
    "polynomial": k.Polynomial(SCALES, 0.7, 3),
    "polynomial without offset": k.Polynomial(0.8, 0.0, 2),
    "constant": k.Constant(1.7),
    "cosine": k.Cosine(1.3, SCALES),
    "periodic": k.Periodic(1.5, 0.6, 0.7).on(1),
    "periodic, short": k.Periodic(1.5, 0.1, 2.0).on(1),
    "line around its mean": k.ZeroMeanLinear(0.8, k.Empirical(jnp.array([0.0, 0.3]))).on(1),
    "periodic around its mean": k.ZeroMean(k.Periodic(1.5, 0.6, 0.7), k.Empirical(jnp.array([0.0, 0.3]))).on(1),
    "sum": k.Linear(0.3) + 2.0 * k.Cosine(0.4, 1.1),
    "product": k.Linear(0.3).on(0) * k.Periodic(1.0, 1.0, 0.5).on(1),
}
RANDOM = {
    "rbf": k.RBF(1.4, SCALES),
    "matern12": k.Matern12(1.4, SCALES),
    "matern32": k.Matern32(0.9, 0.5),
    "matern52": k.Matern52(1.4, SCALES),
    "rational quadratic": k.RationalQuadratic(1.4, SCALES, 0.7),
    "periodic of two": k.Periodic(1.5, 0.8, SCALES),
    "mixture": MIXTURE,
    "arc cosine 0": k.ArcCosine(0.7, SCALES, 0.6, 0),
    "arc cosine 1": k.ArcCosine(0.7, SCALES, 0.6, 1),
    "arc cosine 2": k.ArcCosine(0.2, SCALES, 0.3, 2),
    "zero mean": k.ZeroMean(k.RBF(1.2, 0.3), k.Uniform(0.0, 1.0)).on(0),
    "zero mean of two": k.ZeroMean(k.Matern52(1.2, SCALES), k.Uniform(-1.0, 1.0)),
    "zero mean, normal": k.ZeroMean(k.RBF(1.2, 0.5), k.Gaussian(0.2, 0.7)),
    "zero mean, empirical": k.ZeroMean(k.Matern32(1.2, SCALES), k.Empirical(jnp.array([-0.2, 0.3, 2.0]))),
    "sum": k.RBF(0.5, 0.7) + k.Linear(0.4).on(0) + k.Matern32(0.3, 0.4).on(1),
    "product": k.RBF(1.0, 0.7).on(1) * k.Matern32(0.9, 0.4).on(0) * k.Linear(2.0),
    "product of sums": (k.RBF(1.0, 0.7) + k.Constant(0.5)) * (k.Matern12(0.5, 1.0) + k.Linear(0.4)),
}


@jax.jit
def inner(blocks):
    return sum(jnp.einsum("ngr,mgr->nm", block, block) / block.shape[1] for block in blocks)


@pytest.mark.parametrize("name", EXACT)
def test_finite_features_are_the_kernel(name):
    found = jax.jit(lambda X: features(EXACT[name], jax.random.key(0), 300, X)(X))(X)
    assert all(block.shape[1] == 1 for block in found)
    np.testing.assert_allclose(inner(found), EXACT[name].matrix(X), atol=2e-13)


@pytest.mark.parametrize(("lengthscale", "error"), [(0.5, 1e-13), (0.03, 1e-13), (0.01, 0.02), (0.002, None)])
def test_a_short_period_keeps_its_variance_whatever_number_is_asked_for(lengthscale, error):
    """Of 16 harmonics alone it would have lost 0.6 of 1.5 at 0.05; below 0.03 there are too few for the shape."""
    kernel = k.Periodic(1.5, lengthscale, 2.0)
    points = 0.3 + 0.003 * jnp.arange(6.0)[:, None]
    matrix = inner(features(kernel, jax.random.key(0), 16, points)(points))
    np.testing.assert_allclose(jnp.diagonal(matrix), 1.5, rtol=1e-12)
    if error is not None:
        np.testing.assert_allclose(matrix, kernel.matrix(points), atol=1.5 * error)


def test_harmonics_of_days_since_1970_keep_their_phase_in_single_precision():
    kernel, points = k.Periodic(1.0, 0.5, 7.3), 7e5 + jnp.arange(12, dtype=jnp.float32)[:, None]
    gaps = np.arange(12) - np.arange(12)[:, None]
    expected = np.exp(-2 * (np.sin(np.pi * gaps / 7.3) / 0.5) ** 2)
    np.testing.assert_allclose(inner(features(kernel, jax.random.key(0), 1, points)(points)), expected, atol=1e-4)


def deviation(kernel, points, wanted=None, num=20000):
    """Largest distance of the inner products from the kernel, or from another, in their standard errors."""

    @jax.jit
    def found():
        blocks = features(kernel, jax.random.key(3), num, points)(points)
        assert {block.shape[1] for block in blocks} <= {1, num}
        return sum(jnp.einsum("ngr,mgr->gnm", b, b) * jnp.ones((num, 1, 1)) for b in blocks)

    each = np.asarray(found())
    error = each.std(axis=0) / num**0.5 + 1e-12
    return np.max(np.abs(each.mean(axis=0) - (wanted or kernel).matrix(points)) / error)


@pytest.mark.long
@pytest.mark.parametrize("name", RANDOM)
def test_random_features_are_the_kernel_on_average(name):
    """Within 4.5 standard errors; the wrong scale or degrees of freedom are at least 20 away (next test)."""
    assert deviation(RANDOM[name], X) < 4.5


@pytest.mark.long
def test_levels_are_told_apart_on_average_and_another_kernel_is_found():
    assert deviation(k.CategoryDelta(1.5), CODES) < 4.5
    assert deviation(k.CategoryDelta(1.5) * k.RBF(1.0, 2.0).on(0), CODES) < 4.5
    between = features(k.CategoryDelta(1.5), jax.random.key(0), 4, CODES)(CODES + 0.5)
    assert jnp.isnan(between[0]).all()
    assert deviation(k.Matern32(1.4, SCALES), X, k.Matern12(1.4, SCALES)) > 9  # the wrong degrees of freedom


@pytest.mark.long
def test_zero_mean_functions_integrate_to_zero():
    measure = k.Uniform(0.0, 1.0)
    nodes, weights = measure.quadrature(order=60)
    kernel = k.ZeroMean(k.RBF(1.2, 0.3), measure)
    (block,) = features(kernel, jax.random.key(0), 16, nodes[:, None])(nodes[:, None])
    np.testing.assert_allclose(jnp.einsum("n,ngr->gr", weights, block), 0, atol=1e-12)
    long = k.ZeroMean(k.RBF(jnp.float32(1.0), jnp.float32(100.0)), k.Uniform(jnp.float32(0), jnp.float32(1)))
    points = X.astype(jnp.float32)[:, :1]
    (block,) = features(long, jax.random.key(0), 4000, points)(points)
    # Variances of 1e-5: the plain difference of numbers near 1 would have lost them in float32.
    np.testing.assert_allclose(jnp.mean(jnp.sum(block**2, -1), 1), long.diagonal(points), rtol=0.1)


def own_values(kernel, X):
    return (kernel.weight * X[:, None, :],)


def test_a_kernel_of_ones_own_registers_its_features():
    @k.base.value_type()
    class Own(k.Kernel):
        weight: jax.Array

        def _cross(self, X1, X2):
            return self.weight**2 * X1 @ X2.T

        def _diagonal(self, X):
            return self.weight**2 * jnp.sum(X * X, axis=1)

    kernel = Own(jnp.array(0.7)) * k.Constant(2.0)
    assert features(kernel, jax.random.key(0), 5, X) is None
    assert features(k.Constant(1.0) + k.as_kernel(lambda a, b: a @ b.T).on(0), jax.random.key(0), 5, X) is None

    @features.register
    def _(kernel: Own, key, num, points):
        return jax.tree_util.Partial(own_values, kernel)

    np.testing.assert_allclose(inner(features(kernel, jax.random.key(0), 5, X)(X)), kernel.matrix(X), atol=1e-14)


def test_categories_are_finite():
    weights = jnp.array([[1.0, 0.2], [0.5, -1.0], [0.3, 0.4]])
    for kernel in (
        k.Coregion(weights, jnp.array([0.5, 0.0, 0.2])),
        k.ZeroMeanCategory(1.5, jnp.array([0.2, 0.5, 0.3])),
    ):
        found = features(kernel.on(1), jax.random.key(0), 64, CODES)(CODES)
        np.testing.assert_allclose(inner(found), kernel.on(1).matrix(CODES), atol=1e-14)
