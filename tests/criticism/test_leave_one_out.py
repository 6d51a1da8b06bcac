"""Leave-one-out densities against their closed forms, and tails that are known."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from scipy import stats

import numpyro_gp as ngp
from numpyro_gp.criticism.compare import loo_per_datum
from numpyro_gp.criticism.leave_one_out import pareto_k, psis_left_out, smoothed
from numpyro_gp.posterior.arviz import arviz
from numpyro_gp.posterior.draws import TrainingDraws
from tests.fits import chain, trained
from tests.oracles.problems import gram

# Evenly spaced, smooth, noisy and with bounded residuals: the posterior variance of each f_n is at most a third of
# the noise, and importance sampling can leave each datum out (the tail index of its weights is their ratio).
GRID = np.linspace(-2, 2, 20)[:, None]
KERNEL, X = ngp.kernels.Matern32(1.0, 2.5), jnp.asarray(GRID)
Y = np.sin(2 * GRID[:, 0]) + 0.6 * np.sin(37 * GRID[:, 0])


def known(X, y=None):
    """Hyper-parameters known and inducing inputs at the rows."""
    f = ngp.gp("f", KERNEL, GRID)
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(np.sqrt(0.5)), obs=y)


def closed_form():
    """``mu_n = y_n - [K^-1 y]_n / [K^-1]_nn``."""
    inverse = np.linalg.inv(gram(GRID, 1.0, 2.5) + 0.5 * np.eye(20))
    return stats.norm.logpdf(Y, Y - inverse @ Y / np.diag(inverse), np.diag(inverse) ** -0.5)


@pytest.mark.long
def test_leave_one_out_agrees_with_the_closed_form():
    """SVI and NUTS: sums within 0.6, of which the in-sample density, with no datum left out, misses by more than 2;
    pointwise within 0.35 (Monte Carlo error of 2000 draws)."""
    exact = closed_form()
    natural = ngp.guides.coupled(natural=True)
    for posterior in (trained(known, natural, X, jnp.asarray(Y)), chain(known, X, jnp.asarray(Y), draws=2000)):
        terms = np.asarray(posterior.draws(jax.random.key(2), X, jnp.asarray(Y), num_samples=2000).log_likelihood["y"])
        found = psis_left_out(terms)
        # Of 20 values of k, each estimated with an error of about 0.1, one may lie above the limit.
        assert (found.k < 0.7).sum() >= 19, found.k
        assert abs(found.pointwise.sum() - exact.sum()) < 0.6
        np.testing.assert_allclose(found.pointwise, exact, atol=0.35)
        in_sample = (np.logaddexp.reduce(terms, axis=0) - np.log(len(terms))).sum()
        assert in_sample - exact.sum() > 2


@pytest.mark.parametrize(("scale", "is_reliable"), [(0.1, True), (30.0, False)])
def test_leave_one_out_in_float32_is_that_of_float64(scale, is_reliable):
    """Smoothed in the precision that it gets log likelihoods with a spread of 30 nats were NaN in float32, unflagged."""
    terms = -scale * np.random.default_rng(0).gamma(1.0, size=(400, 5))
    single, double = psis_left_out(terms.astype(np.float32)), psis_left_out(terms)
    np.testing.assert_allclose(single.pointwise.sum(), double.pointwise.sum(), rtol=1e-5)
    assert np.all(single.k <= single.good_k) == is_reliable


@pytest.mark.skipif(arviz().__version__ >= "1", reason="its results have other names in ArviZ 1")
@pytest.mark.parametrize("is_slow", [False, True])
def test_leave_one_out_of_chains_is_that_of_arviz(is_slow):
    """It reads from the latent values how dependent the draws of several chains are: of slow ones more are smoothed."""
    rng = np.random.default_rng(1)
    steps = rng.normal(size=(4, 250))
    latent = np.stack([np.convolve(own, 0.9 ** np.arange(100))[:250] for own in steps]) if is_slow else steps
    terms = (0.7 * latent + rng.normal(size=(4, 250)))[..., None] * np.linspace(0.5, 1.5, 5)
    draws = TrainingDraws({"a": latent.ravel()}, {"y": terms.reshape(1000, 5)}, {}, {"y": np.zeros(5)}, {}, {}, ())
    data = arviz().from_dict(posterior={"a": latent}, log_likelihood={"y": terms})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = arviz().loo(data)
    found = loo_per_datum(draws, None, chains=4)[0]
    np.testing.assert_allclose(found.value, theirs.elpd_loo / 5, rtol=1e-3)
    np.testing.assert_allclose(found.error, theirs.se / 5, rtol=1e-3)


def test_leaving_out_what_is_certain_changes_nothing():
    """Log densities that differ by less than rounding of one, as of rows that are censored far below what is expected."""
    rng = np.random.default_rng(0)
    certain = -np.exp(rng.uniform(-180, -40, size=(1000, 3)))
    found = psis_left_out(np.concatenate([certain, rng.normal(size=(1000, 1))], axis=1))
    np.testing.assert_allclose(found.pointwise[:3], 0, atol=1e-14)
    assert np.isfinite(found.pointwise).all()
    np.testing.assert_array_equal(found.is_bad[:3], False)


def test_pareto_k_of_known_tails():
    """Weights ``u^-k`` have a Pareto tail of shape k; exchanged signs (ArviZ 1 takes log likelihoods) give less than 0.1."""
    u = np.random.default_rng(0).uniform(size=20000)
    for k in (0.4, 0.9):
        assert pareto_k(-k * np.log(u)) == pytest.approx(k, abs=0.12)
    assert pareto_k(0.4 * np.log(u)) < 0.1
    with pytest.raises(ValueError, match="log_weights must be at least 25 finite numbers"):
        pareto_k([0.0, np.inf])


RNG = np.random.default_rng(0)
LOGS = np.column_stack([RNG.normal(size=400), 3 * RNG.normal(size=400), RNG.standard_t(2, size=400)])


@pytest.mark.skipif(arviz().__version__ >= "1", reason="its function has another place in ArviZ 1")
def test_weights_and_shapes_are_those_of_arviz():
    ties = np.concatenate([LOGS, np.maximum(LOGS[:, :1], 1.5), np.minimum(LOGS[:, :1], 0.5)], axis=1)
    found = smoothed(ties)
    for at, own in enumerate(ties.T):
        logs, k = arviz().psislw(own.copy())
        np.testing.assert_allclose(found.log_weights[:, at], logs, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found.k[at], k, rtol=1e-9)
    assert np.isinf(found.k[4])  # the largest are all one number


def test_left_out_densities_of_a_normal_mean():
    """A mean with a flat prior and unit noise: the rest of the data says ``N(mean of the rest, 1 + 1/(n-1))``."""
    y = RNG.normal(size=20)
    draws = y.mean() + RNG.normal(size=(4000, 1)) / np.sqrt(20)
    found = psis_left_out(-0.5 * ((y - draws) ** 2 + np.log(2 * np.pi)))
    rest, variance = (y.sum() - y) / 19, 1 + 1 / 19
    wanted = -0.5 * ((y - rest) ** 2 / variance + np.log(2 * np.pi * variance))
    np.testing.assert_allclose(found.pointwise, wanted, atol=0.02)
    inside = -0.5 * ((y - y.mean()) ** 2 / (1 + 1 / 20) + np.log(2 * np.pi * (1 + 1 / 20)))
    assert np.abs(inside - wanted).max() > 0.1
    assert found.good_k == 0.7
    assert np.all(found.k < 0.5)


def test_weights_of_which_one_is_all_overflow_nothing():
    """Log weights that fall by 7000: quantiles of their tail would be beyond all numbers, and one draw has all mass."""
    with np.errstate(over="raise", invalid="raise"):
        found = smoothed(-np.linspace(0, 7000, 1000)[:, None])
    np.testing.assert_allclose(np.exp(found.log_weights).sum(), 1.0)
    assert found.k[0] > 100


@pytest.mark.parametrize("size", [0.0, 1e-15, 1e-5])
def test_weights_that_are_equal_but_for_rounding_have_no_tail(size):
    """Those of a belief that is the posterior: ``k`` of their last digits was infinite, and the belief "poor"."""
    assert pareto_k(-7.0 + size * RNG.normal(size=4000)) == 0
