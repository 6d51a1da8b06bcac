"""Leave-one-out densities against their closed forms, and tails that are known."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import numpyro_gp as ngp
from numpyro_gp.criticism.leave_one_out import loo, pareto_k
from numpyro_gp.posterior.arviz import arviz_container, from_groups
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
        data = posterior.to_arviz(jax.random.key(2), X, jnp.asarray(Y), num_samples=2000)
        found = loo(data)
        # Of 20 values of k, each estimated with an error of about 0.1, one may lie above the limit.
        assert (found.pareto_k < 0.7).sum() >= 19, found.pareto_k
        assert abs(found.elpd - exact.sum()) < min(0.6, found.standard_error)
        np.testing.assert_allclose(found.pointwise, exact, atol=0.35)
        terms = np.asarray(data["log_likelihood"]["y"])[0]
        in_sample = (np.logaddexp.reduce(terms, axis=0) - np.log(len(terms))).sum()
        assert in_sample - exact.sum() > 2
        assert found.effective_parameters == pytest.approx(in_sample - found.elpd, abs=1e-6)


@pytest.mark.parametrize(("scale", "is_reliable"), [(0.1, True), (30.0, False)])
def test_leave_one_out_in_float32_is_that_of_float64(scale, is_reliable):
    """ArviZ smooths in the precision it gets: log likelihoods with a spread of 30 nats were NaN in float32, unflagged."""
    rng = np.random.default_rng(0)
    terms, latent = -scale * rng.gamma(1.0, size=(400, 5)), rng.normal(size=400)

    def found(dtype):
        observed, dims = {"y": np.zeros(5, dtype)}, {"y": ["data"], "a": []}
        draws = TrainingDraws({"a": latent.astype(dtype)}, {"y": terms.astype(dtype)}, {}, observed, dims, {}, ())
        return loo(arviz_container("mcmc", draws, {}, {}, 1))

    np.testing.assert_allclose(found(np.float32).elpd, found(np.float64).elpd, rtol=1e-5)
    assert found(np.float32).is_reliable == is_reliable
    assert not found(np.float64)._replace(elpd=np.nan).is_reliable


def test_leave_one_out_of_beliefs_without_hyper_parameters():
    """Draws of a belief are independent: the container has no posterior from which ArviZ could read otherwise."""
    guide = ngp.AutoGP(known, {"f": ngp.guides.orthogonal(X[::2])})
    data = at_start(known, guide, X, jnp.asarray(Y)).to_arviz(jax.random.key(0), X, jnp.asarray(Y))
    terms = np.asarray(data["log_likelihood"]["y"])
    assert terms.shape == (1, 1000, 20)
    independent = {"posterior": {"a": np.random.default_rng(0).normal(size=(1, 1000))}, "log_likelihood": {"y": terms}}
    expected = loo(from_groups(independent, coords={}, dims={}, attrs={}))  # whose efficiency ArviZ finds to be about 1
    np.testing.assert_allclose(loo(data).elpd, expected.elpd, rtol=0.01)


def test_leave_one_out_of_exact_regression_averages_over_hyper_parameters():
    """Draws of almost one noise: LOO is the closed form itself."""

    def exact(X, y=None):
        noise = numpyro.sample("noise", dist.LogNormal(-1.5, 0.3))
        ngp.gp_regression("y", KERNEL, X, noise, obs=y)

    posterior = ngp.Posterior.from_mcmc(exact, {"noise": jnp.linspace(0.49999, 0.50001, 50)})
    found = loo(posterior.to_arviz(jax.random.key(0), X, jnp.asarray(Y)))
    np.testing.assert_allclose(found.pointwise, closed_form(), atol=1e-4)


def test_pareto_k_of_known_tails():
    """Weights ``u^-k`` have a Pareto tail of shape k; exchanged signs (ArviZ 1 takes log likelihoods) give less than 0.1."""
    u = np.random.default_rng(0).uniform(size=20000)
    for k in (0.4, 0.9):
        assert pareto_k(-k * np.log(u)) == pytest.approx(k, abs=0.12)
    assert pareto_k(0.4 * np.log(u)) < 0.1
    with pytest.raises(ValueError, match="log_weights must be at least 25 finite numbers"):
        pareto_k([0.0, np.inf])
