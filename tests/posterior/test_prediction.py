"""The mixture over draws: moments, quantiles and samples against dense sums."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import numpyro_gp as ngp
from numpyro_gp.posterior.mixture import is_discrete, quantiles_of_draws
from numpyro_gp.posterior.prediction import Prediction
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
def test_the_likelihood_says_whether_its_data_are_whole():
    """Amounts above 1e16 have no digits behind the point, and quantiles of them lie between two draws all the same."""
    levels = jnp.array([0.5])
    for likelihood, wanted in ((ngp.likelihoods.StudentT(5.0, 1e18), 1.5e18), (ngp.likelihoods.Poisson(), 1e18)):
        is_whole = is_discrete(prediction(likelihood)._chunks[0])
        found = quantiles_of_draws(jnp.array([1e18, 2e18]), levels, is_whole)
        np.testing.assert_allclose(found, [wanted], rtol=1e-12)


def test_other_likelihoods_give_quantiles_from_samples():
    every = prediction(ngp.likelihoods.Poisson()).quantiles(np.linspace(0.001, 0.999, 999))
    np.testing.assert_array_equal(every, np.round(every))  # some were the mean of two counts, 4.975
    assert (np.diff(every, axis=0) >= 0).all()


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
