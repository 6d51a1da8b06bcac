"""Leave-one-out densities against their closed forms, and tails that are known."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import numpyro_gp as ngp
from numpyro_gp.criticism.compare import loo_per_datum
from numpyro_gp.criticism.leave_one_out import pareto_k, psis_left_out
from numpyro_gp.posterior.arviz import arviz
from numpyro_gp.posterior.draws import TrainingDraws
from tests.fits import at_start, chain, trained
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


def test_leave_one_out_of_beliefs_without_hyper_parameters():
    """Draws of a belief are independent."""
    guide = ngp.AutoGP(known, {"f": ngp.guides.orthogonal(X[::2])})
    data = at_start(known, guide, X, jnp.asarray(Y)).draws(jax.random.key(0), X, jnp.asarray(Y))
    assert data.log_likelihood["y"].shape == (1000, 20)
    assert np.isfinite(loo_per_datum(data, None)[0].value)


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


def test_leave_one_out_of_exact_regression_averages_over_hyper_parameters():
    """Draws of almost one noise: LOO is the closed form itself."""

    def exact(X, y=None):
        noise = numpyro.sample("noise", dist.LogNormal(-1.5, 0.3))
        ngp.gp_regression("y", KERNEL, X, noise, obs=y)

    posterior = ngp.Posterior.from_mcmc(exact, {"noise": jnp.linspace(0.49999, 0.50001, 50)})
    terms = posterior.draws(jax.random.key(0), X, jnp.asarray(Y)).log_likelihood["y"]
    np.testing.assert_allclose(psis_left_out(np.asarray(terms)).pointwise, closed_form(), atol=1e-4)


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
