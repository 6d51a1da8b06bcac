"""Posterior of latent inputs, densities on a grid and the Shapiro-Wilk statistic, against quadrature and SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import numpyro_gp as ngp
from numpyro_gp.beliefs import Coupled
from numpyro_gp.criticism.conditional_density import density_on_grid, latent_posterior, log_density, shapiro_wilk
from tests.oracles.build import kernel_of
from tests.oracles.vectors import cases

KEY = jax.random.key(0)
CASE = cases("iw")[0]
BELIEF = Coupled(jnp.asarray(CASE["m"]), jnp.linalg.cholesky(jnp.asarray(CASE["S"])))


def model(X, y=None):
    X = jnp.asarray(X)
    f = ngp.gp("f", kernel_of(CASE), CASE["Z"], jitter=0.0)
    with numpyro.plate("data", X.shape[0]):
        f_w = f(ngp.latent_inputs("w", X))
        ngp.observe("y", f_w, ngp.likelihoods.Gaussian(np.sqrt(CASE["noise"])), obs=y)


def guide(X, y=None):
    numpyro.sample("f", ngp.Belief(BELIEF))
    with numpyro.plate("data", len(X)):
        numpyro.sample("w", dist.Normal(CASE["q_mu"][:, None], CASE["q_sd"][:, None]).to_event(1))


def moments(inputs):
    """Mean and variance of f at rows of inputs, typed out in NumPy."""
    kernel = kernel_of(CASE)
    K = np.asarray(kernel.matrix(jnp.asarray(CASE["Z"])))
    A = np.linalg.solve(np.linalg.cholesky(K), np.asarray(kernel.matrix(jnp.asarray(CASE["Z"]), jnp.asarray(inputs))))
    return A.T @ CASE["m"], CASE["variance"] - (A**2).sum(0) + np.einsum("mn,mk,kn->n", A, CASE["S"], A)


@pytest.mark.long
def test_densities_of_new_data_are_those_of_quadrature():
    """Against a grid over w; the bound's term and weights without the guide's density are off by more than the limit."""
    found = log_density(KEY, ngp.Posterior.from_svi(model, guide, {}), CASE["X"], CASE["y"], num_samples=20_000)
    grid, weights = np.polynomial.hermite_e.hermegauss(120)
    weights = weights / weights.sum()
    exact, of_bound = np.zeros(3), np.zeros(3)
    for n in range(3):
        mean, variance = moments(np.stack([np.full(len(grid), CASE["X"][n, 0]), grid], 1))
        exact[n] = np.log(weights @ stats.norm.pdf(CASE["y"][n], mean, np.sqrt(variance + CASE["noise"])))
        term = stats.norm.logpdf(CASE["y"][n], mean, np.sqrt(CASE["noise"])) - 0.5 * variance / CASE["noise"]
        of_bound[n] = np.log(weights @ np.exp(term))
    np.testing.assert_allclose(found, exact, atol=0.03)
    assert np.abs(of_bound - exact).min() > 0.06


def test_one_draw_of_the_exact_posterior_is_enough():
    """y = w + noise: every draw of the posterior of w gives N(y; 0, 1.01); shares of a half are off by log 2."""

    def line(X, y=None):
        f = ngp.gp("f", ngp.kernels.Linear(jnp.asarray([0.0, 1.0])), jnp.asarray([[0.0, 1.0]]), jitter=0.0)
        with numpyro.plate("data", len(X)):
            ngp.observe("y", f(ngp.latent_inputs("w", X)), ngp.likelihoods.Gaussian(0.1), obs=y)

    def follows(X, y=None):
        numpyro.sample("f", ngp.Belief(Coupled(jnp.ones(1), 1e-6 * jnp.eye(1))))
        with numpyro.plate("data", len(X)):
            numpyro.sample("w", dist.Normal(y[:, None] / 1.01, 0.1 / np.sqrt(1.01)).to_event(1))

    X, y = jnp.zeros((5, 1)), jnp.linspace(-1.5, 1.5, 5)
    found = log_density(KEY, ngp.Posterior.from_svi(line, follows, {}), X, y, num_samples=1)
    np.testing.assert_allclose(found, stats.norm.logpdf(y, 0.0, np.sqrt(1.01)), atol=1e-6)


def test_densities_need_latent_inputs_and_a_guide():
    X, y, posterior = CASE["X"], CASE["y"], ngp.Posterior.from_svi(model, guide, {})
    chain = ngp.Posterior.from_mcmc(model, {"f": jnp.ones((3, len(CASE["Z"])))})
    without = ngp.Posterior.from_svi(plain, plain_guide, {})
    empty = "X of the model must be non-empty data"
    for call, message in (
        (lambda: log_density(KEY, without, X[:, :1], y), "the model must be one with latent inputs in plate 'data'"),
        (lambda: log_density(KEY, chain, X, y), r"posterior must be of a fit by SVI .* Build it by Posterior\.from_svi"),
        (lambda: log_density(KEY, posterior, X[:2], y[:2]), r"guide must be one that maps rows .*guides\.amortised\(\)"),
        (lambda: log_density(KEY, posterior, X, np.append(y[:2], np.nan)), "obs of site 'y' must be free of NaN, but got 1 NaN"),
        (lambda: log_density(KEY, posterior, X), "must be observed"),
        (lambda: log_density(KEY, posterior, X[:0], y[:0]), empty),
        (lambda: latent_posterior(KEY, model, guide, {}, X[:0], y[:0]), empty),
        (lambda: latent_posterior(0, model, guide, {}, X, y), "key must be one JAX random key"),
        (lambda: latent_posterior(KEY, plain, plain_guide, {}, X[:, :1], y), "one with latent inputs"),
        (lambda: shapiro_wilk(np.zeros((5, 2))), "samples must be not all equal, but got 2 constant columns"),
        (lambda: density_on_grid(predictive(2), np.zeros((2, 2))), r"grid must be of shape \(G,\)"),
    ):  # fmt: skip
        with pytest.raises((ValueError, TypeError), match=message):
            call()


@pytest.mark.long
def test_resampled_latent_inputs_have_the_posterior_moments():
    """Against a grid over w; q(w) itself is off by more than 6 standard errors for some datum."""
    found = latent_posterior(jax.random.key(0), model, guide, {}, CASE["X"], CASE["y"], num_samples=200, num_draws=2000)
    assert found.values["w"].shape == (2000, 3, 1)
    assert found.effective_sample_size.shape == (2000, 3)
    assert jnp.all((found.effective_sample_size >= 1) & (found.effective_sample_size <= 200))
    grid = np.linspace(-6, 6, 2001)
    worst = 0.0
    for n in range(3):
        mean, variance = moments(np.stack([np.full(2001, CASE["X"][n, 0]), grid], 1))
        log_p = -0.5 * ((CASE["y"][n] - mean) ** 2 + variance) / CASE["noise"] - 0.5 * grid**2
        p = np.exp(log_p - log_p.max())
        p /= p.sum()
        exact = p @ grid
        error = np.sqrt((p @ (grid - exact) ** 2) / 2000)
        assert abs(found.values["w"][:, n, 0].mean() - exact) < 4.5 * error + 0.02 * error * 2000**0.5 / 10
        worst = max(worst, abs(CASE["q_mu"][n] - exact) / error)
    assert worst > 6


def predictive(num_samples, chunk_size=8192):
    posterior = ngp.Posterior.from_svi(model, lambda X: numpyro.sample("f", ngp.Belief(BELIEF)), {})
    X = jnp.broadcast_to(jnp.asarray(CASE["xs"])[None], (2, 1))
    return posterior.predict(jax.random.key(1), X, num_samples=num_samples, chunk_size=chunk_size)


@pytest.mark.long
def test_prediction_is_the_mixture_over_prior_draws():
    """Against quadrature over w ~ N(0, 1): 4000 draws leave less than 0.03; using q(w) or one draw is off by more."""
    grid = np.linspace(-2.0, 2.0, 7)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    mean, variance = moments(np.stack([np.full(60, CASE["xs"][0]), nodes], 1))
    weights = weights / weights.sum()
    exact = stats.norm.pdf(grid[:, None], mean, np.sqrt(variance + CASE["noise"])) @ weights
    for chunk_size in (1, 8192):
        prediction = predictive(4000, chunk_size)
        np.testing.assert_allclose(density_on_grid(prediction, grid), np.stack([exact, exact], 1), atol=0.015)
        np.testing.assert_allclose(prediction.mean, weights @ mean, atol=0.06)


def test_shapiro_wilk_is_that_of_scipy(rng):
    samples = np.stack([rng.normal(size=50), rng.gamma(1.0, size=50)], 1)
    wanted = [stats.shapiro(column).statistic for column in samples.T]
    np.testing.assert_allclose(shapiro_wilk(samples), wanted, atol=1e-6)
    np.testing.assert_allclose(shapiro_wilk(samples[:, None]), [wanted], atol=1e-6)  # other axes stay


def plain(X, y=None):
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), jnp.zeros((1, 1)))
    with numpyro.plate("data", 3):
        ngp.observe("y", f(jnp.asarray(X)), ngp.likelihoods.Gaussian(1.0), obs=y)


def plain_guide(X, y=None):
    numpyro.sample("f", ngp.Belief(Coupled(jnp.zeros(1), jnp.eye(1))))
