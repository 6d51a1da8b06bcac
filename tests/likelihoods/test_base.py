"""Callables as likelihoods, in whatever unit."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpy.testing import assert_allclose
from scipy import stats

import numpyro_gp as ngp
from numpyro_gp import likelihoods as L
from numpyro_gp.likelihoods import Gaussian, Softmax, as_likelihood
from numpyro_gp.likelihoods.closures import Closure
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


@pytest.mark.long
@pytest.mark.parametrize(("scale", "y", "variance"), NORMALS)
def test_the_predictive_density_of_a_narrow_callable_is_the_closed_form(scale, y, variance):
    """``N(y; 0, variance + scale^2)``, with a peak a thousandth as wide as the latent normal, and 24 sd away."""
    likelihood = as_likelihood(lambda f: dist.Normal(f, scale))
    found, slopes = jax.value_and_grad(likelihood.predictive_log_prob, argnums=(1, 2))(y, 0.0, variance)
    whole = variance + scale**2
    assert_allclose(found, stats.norm(0, np.sqrt(whole)).logpdf(y), rtol=2e-6)
    assert_allclose(slopes[0], y / whole, rtol=1e-4, atol=1e-4)
    assert_allclose(slopes[1], 0.5 * (y**2 / whole - 1) / whole, rtol=1e-3)


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


L = ngp.likelihoods


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_callables_in_any_unit_have_the_closed_form(dtype):
    """A floor of 1e-7 stood below every variance, whatever its unit: 6 nats for a noise of 1e-4."""
    unit = np.array([1.0, 1e-4, 1e-8, 1e6], dtype)
    noise, variance, y = 0.5 * unit, (0.7 * unit) ** 2, 0.3 * unit

    @jax.jit
    def slopes(mean, variance, noise):
        own = L.as_likelihood(lambda f: dist.Normal(f, noise))
        answers = (own.expected_log_prob, own.predictive_log_prob)
        each = [jax.vjp(lambda m, s, a=answer: a(y, m, s), mean, variance) for answer in answers]
        return [(found, *back(jnp.ones_like(found))) for found, back in each]

    limit = 1e-5 if dtype == np.float32 else 1e-12
    for own in (variance, 0 * variance):
        mean = 0 * y
        square, total = (y - mean) ** 2, own + noise**2
        log = -0.5 * np.log(2 * np.pi * noise**2) - 0.5 * (square + own) / noise**2
        density = -0.5 * np.log(2 * np.pi * total) - 0.5 * square / total
        wanted = [
            (log, (y - mean) / noise**2, -0.5 / noise**2),
            (density, (y - mean) / total, 0.5 * (square / total - 1) / total),
        ]
        # By 20 nodes of Gauss and Hermite a density is right to 1e-3 where the variance is wide.
        limits = 10 * limit, 2e-3 if own is variance else 10 * limit
        for found, want, rtol in zip(slopes(mean, own, noise), wanted, limits, strict=True):
            for part, closed in zip(found, want, strict=True):
                assert_allclose(part, closed, rtol=rtol)


def test_two_correlated_functions_of_unlike_units():
    """The floor of their covariance was that of the larger unit: 0.5 nat at a noise of 1e-3 beside a log scale."""
    unit, noise = np.float32(1e-6), np.float32(0.5)
    covariance = np.array([[0.3, 0.1], [0.1, 0.2]], np.float32) * np.array([[unit**2, unit], [unit, 1.0]])
    mean = np.array([0.1 * unit, 0.2], np.float32)

    @jax.jit
    def answer(mean, covariance):
        own = L.as_likelihood(lambda f, g: dist.Normal(f, noise * unit * jnp.exp(0.5 * g)))
        value = lambda s: own.expected_log_prob(0.2 * unit, mean, jnp.diagonal(s), covariance=s)  # noqa: E731
        return jax.value_and_grad(value)(covariance)

    closed = L.HeteroscedasticGaussian()
    scaled = covariance / np.array([[unit**2, unit], [unit, 1.0]])
    at = np.array([0.1, 0.2 + 2 * np.log(noise)])
    value = lambda s: closed.expected_log_prob(0.2, at, jnp.diagonal(s), covariance=s) - np.log(unit)  # noqa: E731
    want, slope = jax.value_and_grad(value)(jnp.asarray(scaled, float))
    for own in (covariance, 0 * covariance):
        found, change = answer(mean, own.astype(np.float32))
        if own is not covariance:
            want, slope = jax.value_and_grad(value)(jnp.zeros((2, 2)))
        assert_allclose(found, want, rtol=1e-5)
        change = change * np.array([[unit**2, unit], [unit, 1.0]])
        assert_allclose(change + change.T, slope + slope.T, rtol=1e-3, atol=1e-3)


def test_the_largest_function_asks_for_no_unit():
    """RobustMax compares functions: 1e-8 of them in float32 were all as large."""
    robust, mean, variance = L.RobustMax(3), np.array([1.0, 0.2, -0.3]), np.array([0.3, 0.5, 0.2])
    want = robust.predictive_mean(mean, variance)
    unit = np.float32(1e-8)
    found = jax.jit(robust.predictive_mean)(np.float32(mean) * unit, np.float32(variance) * unit**2)
    assert_allclose(found, want, rtol=1e-5)
