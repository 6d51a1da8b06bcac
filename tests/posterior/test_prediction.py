"""The mixture over draws: moments, quantiles and samples against dense sums."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import optimize, stats

import numpyro_gp as ngp
from numpyro_gp.posterior.prediction import Prediction
from numpyro_gp.posterior.tracing import key_of
from numpyro_gp.sites import Observation

MEANS = np.array([[0.0, 1.0, -1.0], [3.0, 1.5, -1.0]])
SCALES = np.array([[0.5, 0.4, 1.0], [0.3, 0.8, 1.0]])


def prediction(likelihood=None, split=True):
    likelihood = ngp.likelihoods.Gaussian(0.2) if likelihood is None else likelihood
    stacked = jax.vmap(lambda m, s: Observation(dist.Normal(m, s), likelihood))
    whole = stacked(jnp.asarray(MEANS), jnp.asarray(SCALES))
    parts = [stacked(jnp.asarray(MEANS[:, a:b]), jnp.asarray(SCALES[:, a:b])) for a, b in ((0, 2), (2, 3))]
    return Prediction(parts, [2, 1], jax.random.key(0)) if split else Prediction([whole], [3], jax.random.key(0))


def test_moments_and_density():
    for split in (True, False):
        mixture = prediction(split=split)
        total = SCALES**2 + 0.04
        np.testing.assert_allclose(mixture.mean, MEANS.mean(0), rtol=1e-12)
        np.testing.assert_allclose(mixture.variance, total.mean(0) + MEANS.var(0), rtol=1e-12)
        np.testing.assert_allclose(mixture.function_variance, (SCALES**2).mean(0) + MEANS.var(0), rtol=1e-12)
        y = np.array([0.3, 1.0, 0.0])
        expected = np.log(stats.norm.pdf(y, MEANS, np.sqrt(total)).mean(0))
        np.testing.assert_allclose(mixture.log_density(y), expected, rtol=1e-10)
        each = stats.norm.pdf(y, MEANS, np.sqrt(total))
        error = each.std(0, ddof=1) / np.sqrt(2) / each.mean(0)  # of the average, in units of the average
        np.testing.assert_allclose(mixture.log_density_error(y), error, rtol=1e-10, atol=1e-12)
    assert "draws=2" in repr(mixture)


@pytest.mark.long
def test_samples_have_the_moments_of_the_mixture_and_quantiles_of_counts_are_counts():
    mixture, counts = prediction(), prediction(ngp.likelihoods.Poisson())
    draws = mixture.sample(30000)
    np.testing.assert_allclose(draws.mean(0), mixture.mean, atol=0.04)
    np.testing.assert_allclose(draws.var(0), mixture.variance, rtol=0.05)
    np.testing.assert_allclose(counts.sample(20000).mean(0), counts.mean, rtol=0.1)
    wanted = mixture.quantiles([0.1, 0.8])
    np.testing.assert_allclose(jax.jit(mixture.quantiles)(jnp.array([0.1, 0.8])), wanted, rtol=1e-12)
    np.testing.assert_allclose(jax.jit(lambda: mixture.quantiles([0.1, 0.8]))(), wanted, rtol=1e-12)
    with pytest.raises(ValueError, match="levels must be one or more numbers between 0 and 1"):
        jax.jit(lambda: mixture.quantiles([1.0]))()


@pytest.mark.long
def test_other_likelihoods_give_quantiles_from_samples():
    every = prediction(ngp.likelihoods.Poisson()).quantiles(np.linspace(0.001, 0.999, 999))
    np.testing.assert_array_equal(every, np.round(every))  # some were the mean of two counts, 4.975
    assert (np.diff(every, axis=0) >= 0).all()
    # Amounts above 1e16 have no digits behind the point, and yet lie between two draws: the likelihood says so.
    large = prediction(ngp.likelihoods.StudentT(5.0, 1e18))
    keys = jax.random.split(jax.random.fold_in(key_of(large._key, "quantiles"), 0), large.num_draws)
    drawn = np.sort(large._draws(large._chunks[0], keys, jnp.arange(2000))[:, 0])
    np.testing.assert_allclose(large.quantiles([0.5])[0, 0], drawn[999:1001].mean(), rtol=1e-12)


def test_a_pickle_keeps_the_moments_where_a_likelihood_does_not_pickle():
    """And a copy keeps everything."""
    own = ngp.likelihoods.CallableLikelihood
    mixture = prediction(ngp.likelihoods.as_likelihood(lambda f: dist.Normal(f, 0.2)))
    with pytest.warns(UserWarning, match=r"likelihood CallableLikelihood does not pickle.*Means and variances are in"):
        again = pickle.loads(pickle.dumps(mixture))
    for name in ("mean", "variance", "function_mean", "function_variance"):
        np.testing.assert_array_equal(getattr(again, name), getattr(mixture, name))
    assert repr(again) == repr(mixture)
    for call in (
        lambda: again.log_density(np.zeros(3)),
        again.sample,
        lambda: again.quantiles([0.5]),
        lambda: again.survival([1.0]),
        lambda: again.likelihood,
    ):
        with pytest.raises(ValueError, match=r"likelihood must be that of the fit.*Predict again"):
            call()
    for copied in (copy.copy(mixture), copy.deepcopy(mixture)):
        assert isinstance(copied.likelihood, own)
        np.testing.assert_array_equal(copied.mean, mixture.mean)


@pytest.mark.long
def test_the_noise_of_new_data_is_none_of_the_numbers_that_draws_of_the_posterior_are_made_of():
    """Under one key, whose parts by number are those of the draws; of one site the noise was that of a second site."""

    def model(X, y=None):
        numpyro.sample("a", dist.Normal(0.0, 1.0))
        level = numpyro.sample("level", dist.Normal(0.0, 1.0))
        f = ngp.gp("f", ngp.kernels.RBF(1e-16, 1.0), jnp.zeros((1, 1)), mean=level)
        with numpyro.plate("data", len(X)):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(1.0), obs=y)

    def guide(X, y=None):
        for name in ("a", "level"):
            numpyro.sample(name, dist.Normal(0.0, 1.0))
        numpyro.sample("f", dist.Delta(jnp.zeros(1), event_dim=1))

    posterior = ngp.Posterior.from_svi(model, guide, {})
    for key in (jax.random.key(0), jax.random.key(1)):
        found = posterior.predict(key, jnp.zeros((1, 1)), num_samples=8)
        levels, drawn = np.asarray(found._chunks[0].mean_latent)[:, 0], np.asarray(found.sample(8))[:, 0]
        noise = drawn[:, None] - levels  # that of a row is one of these, whichever draw it took
        assert np.abs(noise[:, :, None] - levels).min() > 1e-6


def test_moments_of_large_numbers_in_single_precision(rng):
    """A sum of draws at 1e6 would round by a unit and more; each draw is exact to 0.03."""
    away = rng.normal(size=(64, 5)).astype(np.float32)
    draws = np.float32(1e6) + away
    gaussian = ngp.likelihoods.Gaussian(jnp.float32(0.1))
    whole = jax.vmap(lambda m: Observation(dist.Normal(m, jnp.float32(0.1)), gaussian))(jnp.asarray(draws))
    found = Prediction([whole], [5], jax.random.key(0))
    exact = draws.astype(float)
    np.testing.assert_allclose(np.asarray(found.mean, float), exact.mean(0), atol=0.07)
    np.testing.assert_allclose(found.variance, 0.02 + exact.var(0), rtol=1e-3)
    np.testing.assert_allclose(found.function_variance, 0.01 + exact.var(0), rtol=1e-3)


def test_gaussian_quantiles_invert_the_distribution_function():
    """A Gaussian of the same two moments would be off by more than 0.1 at the first, bimodal, point."""
    levels = [0.05, 0.5, 0.9]
    got = prediction().quantiles(levels)
    scales = np.sqrt(SCALES**2 + 0.04)
    for i, level in enumerate(levels):
        for n in range(3):
            cdf = lambda q, n=n: stats.norm.cdf(q, MEANS[:, n], scales[:, n]).mean() - level  # noqa: B023, E731
            np.testing.assert_allclose(got[i, n], optimize.brentq(cdf, -20, 20), atol=1e-8)


@pytest.mark.long
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_derivatives_of_gaussian_quantiles_are_those_of_the_equation(dtype):
    """Of means ``x`` and ``-2 x``, of the scale of the noise, and of the level; in the gap between two draws too."""

    def of(x, noise, level):
        likelihood = ngp.likelihoods.Gaussian(jnp.stack([noise, noise]))
        latent = dist.Normal(jnp.stack([x, -2 * x])[:, None], jnp.full((2, 1), 1e-3, dtype))
        return Prediction([Observation(latent, likelihood)], [1], jax.random.key(0)).quantiles(level[None])[0, 0]

    def solved(x, noise, level):
        scale = np.hypot(noise, 1e-3)
        below = lambda q: stats.norm.cdf(q, [x, -2 * x], scale).mean() - level  # noqa: E731
        return optimize.brentq(below, -10 * abs(x) - 9, 10 * abs(x) + 9, xtol=1e-14, rtol=1e-15)

    at, h = np.array([1.0, 0.7, 0.9]), 1e-5
    wanted = [(solved(*(at + h * e)) - solved(*(at - h * e))) / (2 * h) for e in np.eye(3)]
    own = jnp.asarray(at, dtype)
    slopes = jax.jit(jax.grad(of, argnums=(0, 1, 2)))
    np.testing.assert_allclose(slopes(*own), wanted, rtol=2e-4 if dtype == np.float32 else 1e-7)
    apart = np.asarray(slopes(*jnp.asarray([50.0, 0.1, 0.5], dtype)))  # above the lower draw there is no density
    np.testing.assert_allclose(apart[0], -2.0, rtol=1e-3)
    assert np.isfinite(apart).all()
