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
from tests.oracles.problems import gram
from tests.posterior.test_arviz import (
    GRID,
    PROBLEM,
    known,
    nuts_posterior,
    svi_posterior,
)


@pytest.mark.long
def test_leave_one_out_agrees_with_the_closed_form():
    """SVI and NUTS against ``mu_n = y_n - [K^-1 y]_n / [K^-1]_nn``: sums within 0.6, of which the in-sample density,
    with no datum left out, misses by more than 2; pointwise within 0.35 (Monte Carlo error of 2000 draws)."""
    K = gram(GRID, 1.0, 2.5) + 0.5 * np.eye(20)
    inverse, y = np.linalg.inv(K), np.asarray(PROBLEM.y)
    mean, variance = y - inverse @ y / np.diag(inverse), 1 / np.diag(inverse)
    exact = stats.norm.logpdf(y, mean, np.sqrt(variance))
    for posterior in (svi_posterior(known), nuts_posterior(known, 2000)):
        data = posterior.to_arviz(jax.random.key(2), PROBLEM.X, PROBLEM.y, num_samples=2000)
        found = loo(data)
        # Of 20 values of k, each estimated with an error of about 0.1, one may lie above the limit.
        assert (found.pareto_k < 0.7).sum() >= 19, found.pareto_k
        assert abs(found.elpd - exact.sum()) < 0.6
        assert abs(found.elpd - exact.sum()) < found.standard_error
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
    guide = ngp.AutoGP(known, {"f": ngp.guides.orthogonal(PROBLEM.X[::2])})
    with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.trace() as sites:
        guide(PROBLEM.X, PROBLEM.y)
    params = {name: site["value"] for name, site in sites.items() if site["type"] == "param"}
    data = ngp.Posterior.from_svi(known, guide, params).to_arviz(jax.random.key(0), PROBLEM.X, PROBLEM.y)
    terms = np.asarray(data["log_likelihood"]["y"])
    assert terms.shape == (1, 1000, 20)
    independent = {"posterior": {"a": np.random.default_rng(0).normal(size=(1, 1000))}, "log_likelihood": {"y": terms}}
    expected = loo(from_groups(independent, coords={}, dims={}, attrs={}))  # whose efficiency ArviZ finds to be about 1
    np.testing.assert_allclose(loo(data).elpd, expected.elpd, rtol=0.01)


def test_leave_one_out_of_exact_regression_averages_over_hyper_parameters():
    """Draws of almost one noise: LOO is the closed form itself."""

    def exact(X, y=None):
        noise = numpyro.sample("noise", dist.LogNormal(-1.5, 0.3))
        ngp.gp_regression("y", PROBLEM.kernel, X, noise, obs=y)

    posterior = ngp.Posterior.from_mcmc(exact, {"noise": jnp.linspace(0.49999, 0.50001, 50)})
    found = loo(posterior.to_arviz(jax.random.key(0), PROBLEM.X, PROBLEM.y))
    K = gram(GRID, 1.0, 2.5) + 0.5 * np.eye(20)
    inverse, y = np.linalg.inv(K), np.asarray(PROBLEM.y)
    expected = stats.norm.logpdf(y, y - inverse @ y / np.diag(inverse), np.diag(inverse) ** -0.5)
    np.testing.assert_allclose(found.pointwise, expected, atol=1e-4)


def test_pareto_k_of_known_tails():
    """Weights ``u^-k`` have a Pareto tail of shape k; exchanged signs (ArviZ 1 takes log likelihoods) give less than 0.1."""
    u = np.random.default_rng(0).uniform(size=20000)
    for k in (0.4, 0.9):
        assert pareto_k(-k * np.log(u)) == pytest.approx(k, abs=0.12)
    assert pareto_k(0.4 * np.log(u)) < 0.1
    with pytest.raises(ValueError, match="log_weights must be at least 25 finite numbers"):
        pareto_k([0.0, np.inf])
