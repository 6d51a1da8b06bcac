"""Callables as likelihoods."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.integrate import quad

from numpyro_gp import likelihoods as L
from numpyro_gp.arrays import ArrayLike, value_type
from numpyro_gp.likelihoods import Gaussian, Softmax, as_likelihood
from numpyro_gp.likelihoods.base import ByDensity
from numpyro_gp.likelihoods.closures import Closure
from numpyro_gp.likelihoods.expectations import composite_cuts
from tests.likelihoods.compiled import Compiled


def test_kinked_callable_has_the_right_derivative_in_the_variance():
    """Laplace noise: ``dE/ds = -N(y; m, s)``; half the expected second derivative misses the kink and gives zero."""
    wrapped, y, mean, variance = as_likelihood(lambda f: dist.Laplace(f, 1.0)), 0.3, jnp.array(0.8), jnp.array(0.6)
    found = jax.grad(wrapped.expected_log_prob, argnums=2)(y, mean, variance)
    exact = -np.exp(-0.5 * 0.25 / 0.6) / np.sqrt(2 * np.pi * 0.6)
    assert_allclose(found, exact, atol=0.1)
    assert abs(exact) > 0.3


@pytest.mark.long
def test_separate_arguments_and_a_trailing_axis_are_the_heteroscedastic_likelihood():
    separate = as_likelihood(lambda f, g: dist.Normal(f, jnp.exp(0.5 * g)))
    trailing = as_likelihood(lambda f: dist.Normal(f[..., 0], jnp.exp(0.5 * f[..., 1])), num_latent=2)
    assert separate.num_latent == trailing.num_latent == 2
    separate, trailing = Compiled(separate), Compiled(trailing)
    y, mean, variance = jnp.array([0.3, -0.9]), jnp.array([[0.2, -0.4], [0.0, 0.3]]), jnp.full((2, 2), 0.4)
    covariance = jnp.array([[0.4, 0.25], [0.25, 0.4]])
    built_in = Compiled(L.HeteroscedasticGaussian())
    for extra in ({}, {"covariance": covariance}):
        for wrapped in (separate, trailing):
            found = wrapped.expected_log_prob(y, mean, variance, **extra)
            assert_allclose(found, built_in.expected_log_prob(y, mean, variance, **extra), atol=1e-7)
            found = wrapped.predictive_log_prob(y, mean, variance, **extra)
            assert_allclose(found, built_in.predictive_log_prob(y, mean, variance, **extra), atol=1e-4)
    found = separate.predictive_variance(mean, variance)
    assert_allclose(found, built_in.predictive_variance(mean, variance), rtol=1e-6)


def test_callable_of_five_latent_functions_uses_quasi_random_points():
    wrapped = as_likelihood(lambda f: dist.Normal(jnp.sum(f, axis=-1), 1.0), num_latent=5)
    mean, variance = jnp.linspace(0, 1, 5), jnp.full(5, 0.2)
    assert_allclose(wrapped.predictive_mean(mean, variance), 2.5, atol=1e-10)
    assert_allclose(wrapped.predictive_variance(mean, variance), 2.0, rtol=0.03)
    exact = Gaussian(1.0).expected_log_prob(1.0, 2.5, 1.0)
    assert_allclose(wrapped.expected_log_prob(1.0, mean, variance), exact, atol=0.03)


def test_callable_may_close_over_traced_parameters_one_for_each_datum():
    scale, y = jnp.array([0.5, 1.0, 2.0]), jnp.array([0.3, 0.1, -1.0])

    def bound(scale):
        own = as_likelihood(lambda f: dist.Normal(f, scale)).expected_log_prob(y, jnp.zeros(3), jnp.full(3, 0.4))
        return jnp.sum(own), own

    slope, found = jax.jit(jax.grad(bound, has_aux=True))(scale)
    squares = (y**2 + 0.4) / scale**2  # E (y - f)^2 / scale^2
    assert_allclose(found, -0.5 * np.log(2 * np.pi * scale**2) - 0.5 * squares, atol=1e-12)
    assert_allclose(slope, (squares - 1) / scale, rtol=1e-10)


def test_classes_by_a_callable_have_probabilities():
    """As the built-in `Softmax`: ``mean`` was NaN. Sums of Gauss-Hermite over its classes agree to 1e-4."""
    mean, variance = jnp.array([[0.5, -1.0], [0.0, 2.0]]), jnp.array([[0.3, 0.2], [1.0, 0.1]])
    ours, exact = as_likelihood(lambda f: dist.Categorical(logits=f), num_latent=2), Softmax(2)
    p = jax.jit(ours.predictive_mean)(mean, variance)
    assert_allclose(p, jax.jit(exact.predictive_mean)(mean, variance), atol=1e-4)
    assert_allclose(jax.jit(ours.predictive_variance)(mean, variance), p * (1 - p), atol=1e-12)
    one = as_likelihood(lambda f: dist.Categorical(probs=jnp.stack([1 - jax.nn.sigmoid(f), jax.nn.sigmoid(f)], -1)))
    labels = L.Bernoulli("logit").predictive_mean(jnp.array([0.3, -2.0]), jnp.array([0.5, 1.0]))
    assert_allclose(one.predictive_mean(jnp.array([0.3, -2.0]), jnp.array([0.5, 1.0]))[:, 1], labels, atol=1e-4)


@pytest.mark.parametrize("likelihood", [L.Ordinal(jnp.array([0.0, 1.0])), Softmax(3), L.RobustMax(3)])
def test_labels_may_be_floats(likelihood):
    f, labels = jnp.linspace(-1.0, 2.0, 9).reshape(3, 3), jnp.array([0, 2, 1])
    f = f[:, 0] if likelihood.num_latent == 1 else f
    assert_allclose(likelihood.log_prob(labels.astype(float), f), likelihood.log_prob(labels, f), rtol=1e-12)


@pytest.mark.parametrize("dtype", [jnp.uint8, jnp.int8])
def test_counts_of_one_byte_do_not_wrap(dtype):
    """``log y!`` is that of ``y + 1``, which is 0 after 255, and -128 after 127."""
    most = int(jnp.iinfo(dtype).max)
    counts = as_likelihood(lambda f: dist.NegativeBinomialLogits(2.0, f))
    found = counts.log_prob(jnp.array([most, 3], dtype), jnp.full(2, 2.0))
    assert_allclose(found, stats.nbinom(2, 1 / (1 + np.exp(2.0))).logpmf([most, 3]), rtol=1e-5)


NORMALS = [(0.1, 0.0, 0.25), (0.001, 0.3, 1.0), (0.1, 5.0, 0.25), (10.0, 3.0, 0.25), (0.1, 12.0, 0.25)]


@pytest.mark.parametrize(("scale", "y", "variance"), NORMALS)
def test_the_predictive_density_of_a_narrow_callable_is_the_closed_form(scale, y, variance):
    """``N(y; 0, variance + scale^2)``, with a peak a thousandth as wide as the latent normal, and 24 sd away."""
    likelihood = as_likelihood(lambda f: dist.Normal(f, scale))
    found, slopes = jax.value_and_grad(likelihood.predictive_log_prob, argnums=(1, 2))(y, 0.0, variance)
    whole = variance + scale**2
    assert_allclose(found, stats.norm(0, np.sqrt(whole)).logpdf(y), rtol=2e-6)
    assert_allclose(slopes[0], y / whole, rtol=1e-4, atol=1e-4)
    assert_allclose(slopes[1], 0.5 * (y**2 / whole - 1) / whole, rtol=1e-3)


@pytest.mark.parametrize(("shape", "y"), [(1.5, 1.0), (10.0, 3.0), (20.0, 1.0)])
def test_the_predictive_density_of_a_narrow_callable_is_that_of_a_dense_grid(shape, y):
    z = np.linspace(-12, 12, 200001)
    grid = stats.norm.logpdf(z) + stats.weibull_min(shape, scale=np.exp(0.5 * z)).logpdf(y)
    likelihood = as_likelihood(lambda f: dist.Weibull(jnp.exp(f), shape))
    assert_allclose(likelihood.predictive_log_prob(y, 0.0, 0.25), np.log(np.trapezoid(np.exp(grid), z)), rtol=2e-6)


@pytest.mark.parametrize(
    ("make", "y", "mean", "sd", "within"),
    [
        (lambda f: dist.Weibull(jnp.exp(f), 20.0), 2.0, 0.71547, 0.04907, 1e-5),
        (lambda f: dist.StudentT(3.0, f, 0.01), 0.7, 0.69989, 0.0126, 1e-4),
        (lambda f: dist.Logistic(f, 0.01), 0.7, 0.69979, 0.01748, 1e-5),
        (lambda f: dist.Laplace(f, 0.01), 0.7, 0.69989, 0.01253, 0.05),
    ],
)
def test_the_bound_of_a_narrow_callable_is_right_where_it_is_highest(make, y, mean, sd, within):
    """Normals that maximise the bound under a standard normal prior, by SciPy on a grid, a hundredth as wide as it."""
    z = np.linspace(-12, 12, 200001)
    exact = np.trapezoid(stats.norm.pdf(z) * np.asarray(make(mean + sd * z).log_prob(y)), z)
    assert_allclose(as_likelihood(make).expected_log_prob(y, mean, sd**2), exact, atol=within)


def lambdas(a):
    inner = lambda x: a * x  # noqa: E731
    return {
        "cell": lambda x: a * x,
        "default": lambda x, a=a: a * x,
        "nested": lambda x: inner(x),
        "partial": functools.partial(lambda a, x: a * x, a),
    }


@pytest.mark.parametrize("kind", ["cell", "default", "nested", "partial"])
def test_arrays_leave_transformations_as_leaves(kind):
    made = jax.vmap(lambda a: Closure(lambdas(a)[kind]))(jnp.arange(3.0))
    assert [leaf.shape for leaf in jax.tree.leaves(made)] == [(3,)]
    called = jax.vmap(lambda closure: closure(2.0))(made)
    np.testing.assert_array_equal(called, [0.0, 2.0, 4.0])


def test_plain_functions_have_no_leaves_and_equal_structure_and_other_contents_are_kept():
    assert jax.tree.leaves(Closure(jnp.sin)) == []
    assert jax.tree.structure(Closure(jnp.sin)) == jax.tree.structure(Closure(jnp.sin))
    assert jax.tree.structure(Closure(jnp.sin)) != jax.tree.structure(Closure(jnp.cos))
    scale, word = 3.0, "x"
    again = jax.tree.map(lambda leaf: leaf, Closure(lambda x: (scale * x, word)))
    assert again(2.0) == (6.0, "x")


@value_type()
class Skewed(ByDensity):
    """A Gumbel distribution around ``f``, which has no class of its own."""

    density = staticmethod(lambda f, y, scale: -(y - f) / scale - jnp.exp(-(y - f) / scale) - jnp.log(scale))
    parameters = ("scale",)
    scale: ArrayLike

    def conditional(self, f):
        return dist.Gumbel(f, self.scale)

    def _turns(self, y):
        return composite_cuts(y, *self.given(y), y)

    def _expected(self, y, latent):
        raise NotImplementedError

    _mean = _variance = _expected


def test_densities_at_and_under_a_function_are_those_of_scipy():
    own, y, f = Skewed(0.7), np.array([-1.0, 0.3, 4.0]), np.array([0.2, 0.1, -0.5])
    np.testing.assert_allclose(own.log_prob(y, f), stats.gumbel_r.logpdf(y, f, 0.7), rtol=1e-12)
    assert own.log_prob(jnp.asarray(2), jnp.float32(0.5)).dtype == jnp.float32

    def mixed(y, mean):
        inside = lambda f: stats.gumbel_r.pdf(y, f, 0.7) * stats.norm.pdf(f, mean, 1.2)  # noqa: E731
        return np.log(quad(inside, mean - 12, mean + 12, points=[y], limit=200)[0])

    found = own.predictive_log_prob(y, f, 1.44 * np.ones(3))
    np.testing.assert_allclose(found, [mixed(*pair) for pair in zip(y, f, strict=True)], rtol=1e-6)
