"""Censored data, intervals and truncation: expectations by SciPy's quadrature, gradients, predictions."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.special import gammaincc, gammaln, log_ndtr, logsumexp, ndtr
from scipy.stats import norm

import numpyro_gp as ngp
from models import survival
from numpyro_gp.likelihoods import Censored, Exponential, Gamma, Gaussian, Interval, Poisson, Truncated

LEFT, RIGHT = np.array([True, False, False]), np.array([False, True, False])
MEAN, VARIANCE = np.array([-0.8, 0.3, 1.1]), np.array([0.15, 0.6, 1.2])
Y, TIMES = np.array([-0.8, 2.0, 0.4]), np.array([0.3, 2.0, 4.0])
LOG_2PI = np.log(2 * np.pi)


def normal(scale):
    return lambda y, f: -0.5 * (((y - f) / scale) ** 2 + LOG_2PI) - np.log(scale)


def gaussian(scale):
    """``log p`` of the three rows, censored as above."""
    return (
        lambda f: log_ndtr((Y[0] - f) / scale),
        lambda f: log_ndtr((f - Y[1]) / scale),
        lambda f: normal(scale)(Y[2], f),
    )


def weibull(f, y, k=1.5):
    return np.log(k) + (k - 1) * np.log(y) - k * f - (y * np.exp(-f)) ** k


def poisson(count, f):
    return count * f - np.exp(f) - gammaln(count + 1)


LOWER, UPPER = np.array([-1.0, -np.inf, 0.4]), np.array([-0.5, 2.0, 0.4])
CASES = {
    "narrow": (Censored(Gaussian(0.02), LEFT, RIGHT), Y, gaussian(0.02), Y),
    "interval": (
        Interval(Gaussian(0.3), LOWER, UPPER),
        np.array([-0.7, 0.0, 0.4]),
        (
            lambda f: np.log(np.maximum(ndtr((-0.5 - f) / 0.3) - ndtr((-1.0 - f) / 0.3), 1e-300)),
            lambda f: log_ndtr((2.0 - f) / 0.3),
            lambda f: normal(0.3)(0.4, f),
        ),
        [-1.0, 2.0, 0.4],
    ),
    "weibull": (
        Censored(lambda f: dist.Weibull(jnp.exp(f), 1.5), right=RIGHT),
        TIMES,
        (lambda f: weibull(f, 0.3), lambda f: -((2 * np.exp(-f)) ** 1.5), lambda f: weibull(f, 4.0)),
        [0, 0, 0],
    ),
    "gamma": (
        Censored(Gamma(2.3), right=RIGHT | LEFT),
        TIMES,
        (
            lambda f: np.log(gammaincc(2.3, 0.3 * np.exp(-f))),
            lambda f: np.log(np.maximum(gammaincc(2.3, 2 * np.exp(-f)), 1e-300)),
            lambda f: 1.3 * np.log(4) - gammaln(2.3) - 2.3 * f - 4 * np.exp(-f),
        ),
        np.log(TIMES),
    ),
    "counts": (
        Censored(Poisson(), right=np.array([True, True, False])),
        np.array([1.0, 2.0, 5.0]),
        (
            lambda f: np.log(-np.expm1(-np.exp(f))),
            lambda f: np.log(-np.expm1(-np.exp(f) + np.log1p(np.exp(f)))),
            lambda f: poisson(5, f),
        ),
        [0, 0, 1.6],
    ),
    "truncated": (
        Truncated(Censored(Exponential(), right=RIGHT), low=np.array([0.1, 0.2, 0.3])),
        TIMES,
        (lambda f: -f - 0.2 * np.exp(-f), lambda f: -1.8 * np.exp(-f), lambda f: -f - 3.7 * np.exp(-f)),
        [0, 0, 0],
    ),
    "no_zeros": (
        Truncated(Poisson(), low=1.0),
        np.array([1.0, 2.0, 5.0]),
        tuple(lambda f, c=c: poisson(c, f) - np.log(-np.expm1(-np.exp(f))) for c in (1, 2, 5)),
        [0, 0, 1.6],
    ),
}


def over_normal(function, mean, variance, place):
    """``E function(f)`` by SciPy, with a break where it turns."""
    deviation = np.sqrt(variance)
    ends = (mean - 8 * deviation, mean + 8 * deviation)
    inside = [place] if ends[0] < place < ends[1] else None
    density = lambda f: function(f) * np.exp(normal(deviation)(f, mean))  # noqa: E731
    return quad(density, *ends, points=inside, limit=300, epsabs=1e-11)[0]


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_expectations_are_those_of_quadrature(name):
    likelihood, y, logs, places = CASES[name]
    rows = list(zip(logs, MEAN, VARIANCE, places, strict=True))
    expected = [over_normal(*row) for row in rows]
    found = jax.jit(lambda own: own.expected_log_prob(y, MEAN, VARIANCE))(likelihood)
    assert_allclose(found, expected, rtol=2e-7, atol=2e-7)
    density = [np.log(over_normal(lambda f, log=log: np.exp(log(f)), *rest)) for log, *rest in rows]
    found = jax.jit(lambda own: own.predictive_log_prob(y, MEAN, VARIANCE))(likelihood)
    # A callable has the 20 nodes of Gauss and Hermite, whose error the composite rule does not have.
    assert_allclose(found, density, atol=1e-3 if name == "weibull" else 2e-7)


@pytest.mark.long
@pytest.mark.parametrize("name", ["narrow", "interval", "weibull", "gamma", "truncated"])
def test_gradients_are_finite_differences_and_finite_without_variance(name):
    likelihood, y, logs, _ = CASES[name]

    def total(mean, variance):
        value = likelihood.expected_log_prob(y, mean, variance)
        return jnp.sum(value), value

    slopes_and_value = jax.jit(jax.grad(total, (0, 1), has_aux=True))
    (d_mean, d_variance), _ = slopes_and_value(MEAN, VARIANCE)
    for slope, step in ((d_mean, (1e-4, 0.0)), (d_variance, (0.0, 1e-4))):
        up, down = (slopes_and_value(MEAN + s * step[0], VARIANCE + s * step[1])[1] for s in (1, -1))
        assert_allclose(slope, (up - down) / 2e-4, rtol=1e-5, atol=1e-5)
    slopes, value = slopes_and_value(MEAN, np.zeros(3))
    # A callable stands at one step of rounding from a variance of zero.
    assert_allclose(value, [log(m) for log, m in zip(logs, MEAN)], rtol=1e-6)
    assert all(np.isfinite(slope).all() for slope in slopes)


@pytest.mark.long
def test_gradients_in_the_parameters():
    """The shape of a gamma, whose incomplete function JAX cannot differentiate twice in it."""

    def total(shape):
        return jnp.sum(Censored(Gamma(shape), right=RIGHT).expected_log_prob(TIMES, MEAN, VARIANCE))

    value = jax.jit(jax.value_and_grad(total))
    assert_allclose(value(2.3)[1], (value(2.3001)[0] - value(2.2999)[0]) / 2e-4, rtol=1e-6)


@pytest.mark.long
def test_nothing_hidden_is_the_likelihood_itself():
    plain, nobody = Gaussian(0.6), np.zeros(3, bool)
    for wrapped in (Censored(plain), Censored(plain, nobody, nobody), Interval(plain), Interval(plain, Y, Y)):
        for quantity in ("expected_log_prob", "predictive_log_prob"):
            found = jax.jit(lambda own, quantity=quantity: getattr(own, quantity)(Y, MEAN, VARIANCE))(wrapped)
            assert_allclose(found, getattr(plain, quantity)(Y, MEAN, VARIANCE), rtol=1e-14)
        assert_allclose(wrapped.predictive_mean(MEAN, VARIANCE), MEAN)
        assert_allclose(wrapped.predictive_variance(MEAN, VARIANCE), VARIANCE + 0.36)


@pytest.fixture(scope="module", autouse=True)
def allow_rank_promotion():
    """NumPyro draws several samples of a distribution with array parameters by promoting ranks."""
    with jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture(scope="module")
def fitted():
    data = survival.simulate(jax.random.key(0), num_data=40, num_inducing=6)
    guide = survival.guide()
    result = ngp.fit(jax.random.key(1), survival.engine(guide), 150, progress=False, **data)
    return data, ngp.Posterior.from_svi(survival.model, guide, result.params)


@pytest.mark.long
def test_predictions_are_of_the_times_themselves(fitted):
    """The same with the mask of the data and without; survival curves are the mixture's, by SciPy."""
    data, posterior = fitted
    X = data["X"][::13]
    prediction = posterior.predict(jax.random.key(2), X, Z=data["Z"], num_samples=3)
    times = jnp.array([0.0, 1.0, 4.0, 30.0])
    curves, draws = prediction.survival(times), prediction.survival_draws(times, 999)
    assert curves.shape == (4, 4)
    assert draws.shape == (999, 4, 4)
    assert_allclose(curves[0], 1.0)
    assert_allclose(draws.mean(0), curves, atol=0.03)  # of 999 draws of a spread of 0.2: four standard errors
    assert_allclose((np.asarray(prediction.sample(4000)) > 1.0).mean(0), curves[1], atol=0.04)
    chunk = prediction._chunks[0]
    shape = float(chunk.likelihood.uncensored.function.arrays[0][0])
    mean, variance = chunk.mean_latent, chunk.variance_latent
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    f = mean[..., None] + np.sqrt(variance)[..., None] * nodes
    exact = (np.exp(-((4.0 * np.exp(-f)) ** shape)) @ (weights / weights.sum())).mean(0)
    assert_allclose(curves[2], exact, atol=2e-3)


@pytest.mark.long
def test_two_latent_functions():
    """A censored row of a Gaussian whose log variance is a function too: by the product rule, here beside SciPy's."""
    likelihood = Censored(ngp.likelihoods.HeteroscedasticGaussian(), right=np.array([True]))
    y, mean, variance = np.array([0.7]), np.array([[0.2, -1.0]]), np.array([[0.5, 0.3]])
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    f, g = (m + np.sqrt(v) * nodes for m, v in zip(mean[0], variance[0]))
    table = log_ndtr((f[:, None] - 0.7) / np.exp(0.5 * g[None]))
    weights = weights / weights.sum()
    found = jax.jit(lambda own: (own.expected_log_prob(y, mean, variance), own.predictive_log_prob(y, mean, variance)))
    expected, predictive = found(likelihood)
    assert_allclose(expected[0], weights @ table @ weights, rtol=1e-5)
    both = logsumexp(table, b=np.outer(weights, weights))
    assert_allclose(predictive[0], both, rtol=1e-4)


@pytest.mark.long
def test_a_bound_at_the_centre_has_a_slope():
    """Of ``log P(T > y)`` in ``f`` at ``f = y``: ``2 pdf(0) / scale``, 0.75 with four degrees of freedom and scale 1."""

    @jax.jit
    @jax.grad
    def slope(f, scale):
        return Censored(ngp.likelihoods.StudentT(4.0, scale), right=np.array([True])).log_prob(jnp.zeros(1), f)[0]

    for scale in (1.0, 0.5):
        assert_allclose(slope(jnp.zeros(1), scale), [0.75 / scale], rtol=1e-6)


ORIGIN = 2.0**24  # single precision has steps of 2 there
STARTS = ORIGIN + np.array([0.0, 3.0, 8.0])
ENDS = STARTS + np.array([8.0, 0.5, 0.0])


def test_a_width_that_rounding_takes_is_refused_and_less_the_origin_it_is_a_probability():
    """The second interval had the density of its two ends, which were the same number in single precision."""
    with jax.enable_x64(False):
        for likelihood in (Interval, Truncated):
            with pytest.raises(ValueError, match=r"by as much in float32 as they are, but got 16777219.0 and .*\(1,\)"):
                likelihood(Gaussian(1.0), STARTS, ENDS)
        with pytest.raises(ValueError, match=r"lower must be apart from upper .* off data and bounds"):
            Interval(Gaussian(1.0), 100.0 * ORIGIN, 100.0 * ORIGIN + 1.0)
        Interval(Gaussian(1.0), STARTS[[0, 2]], ENDS[[0, 2]])  # a wide one, and a value that is seen
        Interval(Gaussian(1.0), np.append(-np.inf, STARTS[:1]), np.append(ENDS[0], np.inf))
        moved = Interval(Gaussian(1.0), STARTS - ORIGIN, ENDS - ORIGIN)
        found = moved.log_prob(jnp.asarray(STARTS - ORIGIN), jnp.full(3, 3.0))
    low, high = STARTS - ORIGIN - 3, ENDS - ORIGIN - 3
    mass = np.log(norm.cdf(high[:2]) - norm.cdf(low[:2]))
    np.testing.assert_allclose(found, [*mass, norm.logpdf(low[2])], rtol=1e-5, atol=1e-6)


def test_ends_that_differ_in_double_precision_are_no_density_of_data_in_single():
    ends = jnp.asarray(ORIGIN), jnp.asarray(ORIGIN + 0.5)
    found = Interval(Gaussian(1.0), *ends).log_prob(jnp.float32(ORIGIN), jnp.float32(ORIGIN))
    assert ends[0].dtype == np.float64
    assert not found > np.log(0.5)
