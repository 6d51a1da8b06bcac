"""Predictors on a line that go on with later data, beside dense processes of all rows and the filter's fixed point."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.linalg import solve_discrete_are

import numpyro_gp as ngp
from numpyro_gp import kernels as K
from tests.precision import x64

KEY = jax.random.key(0)
SAMPLES = {"lengthscale": jnp.array([0.7, 1.4]), "noise": jnp.array([0.2, 0.3]), "level": jnp.array([0.4, -0.2])}


def model(X, y=None):
    lengthscale, noise, level = (numpyro.sample(name, dist.LogNormal()) for name in SAMPLES)
    kernel = K.Matern52(1.0, lengthscale) + K.Linear(0.1)
    return ngp.gp_regression("y", kernel, X, noise**2, mean=level, obs=y)


def rows(count):
    rng = np.random.default_rng(0)
    t = np.cumsum(rng.exponential(0.3, count))
    t[count // 2] = t[count // 2 - 1]
    return t, np.sin(t) + 0.2 * rng.normal(size=count)


@pytest.mark.parametrize("is_double", [True, pytest.param(False, marks=pytest.mark.long)])
def test_later_data_count_as_those_of_the_fit(is_double):
    with x64(is_double):
        (t, y), dtype = rows(40), jnp.result_type(float)
        posterior = ngp.Posterior.from_mcmc(model, {name: value.astype(dtype) for name, value in SAMPLES.items()})
        predictor = posterior.predictor(KEY, ngp.line(t[:25]), jnp.asarray(y[:25], dtype))
        stream = first = predictor.observe(t[25], y[25])
        for at in range(26, 30):
            stream = stream.observe(t[at], y[at])
        stream = stream.observe(t[30:][::-1], y[30:][::-1])
        new = t[-1] + np.array([0.5, 0.0, 3.0])
        for found, count in ((stream, 40), (first, 26)):  # what is observed later leaves no mark on what was there
            X, seen = jnp.asarray(t[:count, None], dtype), jnp.asarray(y[:count], dtype)
            wanted = posterior.predict_at(KEY, jnp.asarray(new[:, None], dtype), X, seen)
            tolerance = 1e-9 if is_double else 2e-4
            for name in ("mean", "variance", "function_variance"):
                np.testing.assert_allclose(getattr(found(new), name), getattr(wanted, name), rtol=0, atol=tolerance)
            data = jnp.zeros(3, dtype)
            np.testing.assert_allclose(found(new).log_density(data), wanted.log_density(data), atol=10 * tolerance)


@pytest.mark.long
def test_several_series_and_a_noise_for_each_row():
    t, y = rows(30)
    codes = np.random.default_rng(1).integers(0, 2, 30)
    weights, scales = jnp.array([[1.0], [0.6]]), np.array([0.1, 0.3])

    def bands(X, noise, y=None):
        kernel = K.Matern32(1.0, 0.9).on(0) * K.Coregion(weights, 0.1).on(1)
        return ngp.gp_regression("y", kernel, X, noise**2, obs=y)

    table, noise = np.column_stack([t, codes]), jnp.asarray(scales[codes], jnp.float32)
    posterior = ngp.Posterior.from_mcmc(bands, {"unused": jnp.zeros(1)})
    stream = posterior.predictor(KEY, ngp.line(table[:20]), noise[:20], jnp.asarray(y[:20], jnp.float32))
    stream = stream.observe(table[20:], y[20:], noise[20:] ** 2)
    new = np.array([[t[-1] + 0.4, 1.0], [t[-1] + 0.4, 0.0]])
    wanted = posterior.predict_at(
        KEY, jnp.asarray(new, jnp.float32), jnp.asarray(table, jnp.float32), noise, jnp.asarray(y, jnp.float32),
        noise_variance=jnp.float32(0.04),
    )  # fmt: skip
    found = stream(new, noise_variance=0.04)
    np.testing.assert_allclose(found.mean, wanted.mean, atol=2e-4)
    np.testing.assert_allclose(found.variance, wanted.variance, atol=2e-4)
    with pytest.raises(ValueError, match="given for the new data"):
        stream(new)
    with pytest.raises(ValueError, match="of series that the kernel has"):
        stream([[t[-1] + 1, 2]], noise_variance=0.04)


@pytest.mark.long
def test_many_data_in_single_precision_end_at_the_fixed_point_of_the_filter():
    """The variance a step ahead of a regular series solves a Riccati equation, which SciPy does in double precision."""
    gap, lengthscale, noise, count = 0.05, 1.3, 0.1, 20_000
    rate = np.sqrt(3) / lengthscale
    A = np.exp(-rate * gap) * np.array([[1 + rate * gap, gap], [-(rate**2) * gap, 1 - rate * gap]])
    prior = np.diag([1.0, rate**2])
    Q = prior - A @ prior @ A.T
    wanted = solve_discrete_are(A.T, np.eye(2, 1), Q, np.array([[noise**2]]))[0, 0]

    def series(line, y=None):
        return ngp.gp_regression("y", K.Matern32(1.0, lengthscale), line, noise**2, obs=y)

    posterior = ngp.Posterior.from_mcmc(series, {"unused": jnp.zeros(1)})
    t, y = 1e6 + gap * np.arange(count), np.random.default_rng(0).normal(size=count)
    stream = posterior.predictor(KEY, ngp.line(t[:2]), jnp.asarray(y[:2], jnp.float32)).observe(t[2:], y[2:])
    np.testing.assert_allclose(stream(t[-1] + gap).function_variance[0], wanted, rtol=2e-3)


@pytest.mark.long
def test_later_data_have_the_jitter_of_the_fit():
    t, y = rows(12)

    def series(line, y=None):
        return ngp.gp_regression("y", K.Matern32(1.0, 0.8), line, 0.01, obs=y, jitter=0.1)

    posterior, y = ngp.Posterior.from_mcmc(series, {"unused": jnp.zeros(1)}), jnp.asarray(y, jnp.float32)
    stream = posterior.predictor(KEY, ngp.line(t[:8]), y[:8]).observe(t[8:], y[8:])
    wanted = posterior.predict_at(KEY, t[-1:] + 0.3, ngp.line(t), y)
    np.testing.assert_allclose(stream(t[-1] + 0.3).mean, wanted.mean, atol=1e-5)


@pytest.mark.long
def test_what_it_cannot_do_is_refused():
    t, y = rows(12)
    posterior = ngp.Posterior.from_mcmc(model, SAMPLES)
    stream = posterior.predictor(KEY, ngp.line(t), jnp.asarray(y, jnp.float32)).observe(t[-1] + 1, 0.1)
    for act in (
        lambda: stream(t[-1]),
        lambda: stream.observe(t[-1], 0.0),
    ):
        with pytest.raises(ValueError, match="behind the last datum"):
            act()
    with pytest.raises(ValueError, match=r"t must be of shape \(N,\) or"):
        stream.observe([[t[-1] + 2, 1]], 0.0)
    with pytest.raises(ValueError, match="finite"):
        stream.observe(np.ma.masked_array([t[-1] + 2], [True]), [0.1])
    with pytest.raises(ValueError, match="finite"):
        stream.observe(t[-1] + 2, np.nan)
    with pytest.raises(ValueError, match="one datum for each time"):
        stream.observe([t[-1] + 2, t[-1] + 3], 0.0)
    near = ngp.neighbours(t[:, None], 4)
    with pytest.raises(TypeError, match="a gp_regression on a line"):
        posterior.predictor(KEY, near, jnp.asarray(y, jnp.float32)).observe(t[-1] + 1, 0.1)

    def counts(line, y=None):
        f = ngp.gp("f", K.Matern32(1.0, 1.0), inducing=line)
        return ngp.observe("y", f.at_inducing(), ngp.likelihoods.Poisson(), obs=y)

    latent = ngp.Posterior.from_mcmc(counts, {"f": jnp.zeros((1, 12))})
    with pytest.raises(TypeError, match="Gaussian data"):
        latent.predictor(KEY, ngp.line(t), jnp.ones(12, int)).observe(t[-1] + 1, 1)


@pytest.mark.long
def test_a_stream_is_pickled_and_goes_on():
    t, y = rows(30)
    posterior = ngp.Posterior.from_mcmc(model, SAMPLES)
    stream = posterior.predictor(KEY, ngp.line(t[:20]), jnp.asarray(y[:20], jnp.float32)).observe(t[20:25], y[20:25])
    again = pickle.loads(pickle.dumps(stream)).observe(t[25:], y[25:])
    np.testing.assert_array_equal(again(t[-1] + 1).mean, stream.observe(t[25:], y[25:])(t[-1] + 1).mean)


@pytest.mark.long
def test_a_predictor_takes_a_time_or_a_list_as_a_stream_does():
    t, y = rows(12)
    posterior, line = ngp.Posterior.from_mcmc(model, SAMPLES), ngp.line(t)
    given, new = (line, jnp.asarray(y, jnp.float32)), float(t[-1] + 0.5)
    wanted = posterior.predict_at(KEY, np.array([new]), *given).mean
    for one in (new, [new], np.float64(new)):
        np.testing.assert_array_equal(posterior.predictor(KEY, *given)(one).mean, wanted)
        np.testing.assert_array_equal(posterior.predict_at(KEY, one, *given).mean, wanted)


def test_a_code_of_no_series_is_refused_before_it_is_in_the_state():
    """It made the state NaN for good, and the next call blamed the codes of its own rows."""
    t, y = rows(12)

    def bands(X, y=None):
        kernel = K.Matern32(1.0, 0.9).on(0) * K.Coregion(jnp.array([[1.0], [0.6]]), 0.1).on(1)
        return ngp.gp_regression("y", kernel, X, 0.01, obs=y)

    line = ngp.line(np.column_stack([t, np.arange(12) % 2]))
    predictor = ngp.Posterior.from_mcmc(bands, {"unused": jnp.zeros(1)}).predictor(KEY, line, jnp.asarray(y))
    stream = predictor.observe([t[-1] + 1, 0], 0.1)
    with pytest.raises(ValueError, match="t must be of series that the kernel has"):
        stream.observe([t[-1] + 2, 2], 0.1)
    with pytest.raises(ValueError, match=r"t must be of shape \(N, 2\)"):
        stream.observe(t[-1] + 2, 0.1)


@pytest.mark.parametrize(
    ("ask", "error", "words"),
    [
        (
            lambda s: s.observe([9.0, 10.0], [0.0, 0.0], np.ones(3)),
            ValueError,
            r"noise_variance must be a number or of",
        ),
        (
            lambda s: s([9.0, 10.0], noise_variance=np.ones((2, 1))),
            ValueError,
            r"noise_variance must be a number or of",
        ),
        (lambda s: s.observe([9.0, 10.0], np.zeros((2, 1))), ValueError, r"y\.ravel\(\)"),
        (lambda s: jax.jit(lambda t: s(t).mean)(9.0), TypeError, "t_new must be known, but got a traced array"),
        (lambda s: jax.jit(lambda t: s.observe(t, 0.0)(10.0).mean)(9.0), TypeError, "t must be known"),
        (lambda s: s(ngp.line([9.0, 10.0]).find([9.5], slope=True)), TypeError, "t_new must be times.*slope=True"),
        (lambda s: s(1700000000.25), ValueError, "the last datum, at 1700000000.5, but got 1700000000.25"),
    ],
)
def test_what_a_stream_refuses_has_a_cure(ask, error, words):
    t = np.array([0.0, 1.0, 2.0])

    def series(line, y=None):
        return ngp.gp_regression("y", K.Matern32(1.0, 1.0), line, 0.1, obs=y)

    posterior = ngp.Posterior.from_mcmc(series, {"unused": jnp.zeros(1)})
    start = 1.7e9 - 2 if "1700000000" in words else 0.0
    stream = posterior.predictor(KEY, ngp.line(start + t), jnp.zeros(3)).observe(start + 2.5, 0.0)
    with pytest.raises(error, match=words):
        ask(stream)
