"""Posteriors of every engine and what they predict, against closed forms."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from scipy import stats

import numpyro_gp as ngp
from tests.fits import GAUSSIAN, KERNEL, KEY, NEW, PROBLEM, X, Y, Z, level, normal, sparse
from tests.oracles.problems import gram


def test_mcmc_draws_are_an_equal_mixture():
    """Prediction typed out in NumPy: average variance plus variance of means; forgetting the latter is off by 0.05."""
    draws = {"f": normal(6, len(Z)), "noise": jnp.linspace(0.2, 0.5, 6)}
    posterior, rows, eps = ngp.Posterior.from_mcmc(sparse, draws), NEW[:4], 1.3e-6
    prediction = posterior.predict(KEY, rows)
    L = np.linalg.cholesky(gram(np.asarray(Z), 1.3, 0.8) + eps * np.eye(len(Z)))
    A = np.linalg.solve(L, np.asarray(KERNEL.matrix(Z, rows)))
    means = np.asarray(draws["f"]) @ A
    left = eps * (np.linalg.solve(L.T, A) ** 2).sum(0)  # by the jitter, and taken back (mathematics.md section 1.3)
    variances = (1.3 - (A**2).sum(0) - left)[None] + np.asarray(draws["noise"])[:, None] ** 2
    np.testing.assert_allclose(prediction.mean, means.mean(0), atol=1e-9)
    np.testing.assert_allclose(prediction.variance, variances.mean(0) + means.var(0), atol=1e-9)
    y = np.array([0.1, -0.3, 0.5, 1.2])
    density = np.log(np.mean(stats.norm.pdf(y, means, np.sqrt(variances)), axis=0))
    np.testing.assert_allclose(prediction.log_density(y), density, atol=1e-9)
    few = posterior.predict(KEY, rows, num_samples=2)
    np.testing.assert_allclose(few.mean, means[[0, 5]].mean(0), atol=1e-9)


def test_sites_of_single_data_are_drawn_anew_even_where_the_numbers_of_rows_agree():
    """A random effect of each datum, prior sd 1, posterior draws at 5: using those for new rows would shift the mean by 5."""

    def effects(X, y=None):
        with numpyro.plate("group", 2):
            level = numpyro.sample("level", dist.Normal(0.0, 1.0))
        f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), jnp.zeros((1, 1)))
        with numpyro.plate("data", X.shape[0]):
            own = numpyro.sample("own", dist.Normal(0.0, 1.0))
            base = f(X)
            ngp.observe("y", dist.Normal(base.loc + own + level.sum(), base.scale), GAUSSIAN(0.1), obs=y)

    draws = {"f": jnp.zeros((500, 1)), "own": jnp.full((500, 3), 5.0), "level": jnp.ones((500, 2))}
    prediction = ngp.Posterior.from_mcmc(effects, draws).predict(KEY, jnp.zeros((3, 1)))
    np.testing.assert_allclose(prediction.mean, 2.0, atol=0.25)  # levels are global: kept; standard error 0.05
    assert (prediction.function_variance > 0.5).all()


@pytest.mark.long
def test_functions_are_drawn_jointly():
    """Moments of 4000 draws of a belief that is exact; independent draws at each row have no correlation."""

    def whole(X, y=None):
        f = ngp.gp("f", KERNEL, PROBLEM.X, jitter=0.0)
        with numpyro.plate("data", len(X)):
            ngp.observe("y", f(X), GAUSSIAN(np.sqrt(PROBLEM.noise)), obs=y)

    belief, _ = ngp.beliefs.coupled_optimum(KERNEL, X, X, Y, PROBLEM.noise, jitter=0.0)
    posterior = ngp.Posterior.from_svi(whole, lambda *args: numpyro.sample("f", ngp.Belief(belief)), {})
    draws, mean, covariance = (
        np.asarray(posterior.function_draws(KEY, X, num_samples=4000)),
        PROBLEM.mean,
        PROBLEM.covariance,
    )
    scale = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(draws.mean(0), mean, atol=5 * scale.max() / np.sqrt(4000))
    error = 5 * np.outer(scale, scale) * np.sqrt(2 / 4000)
    assert (np.abs(np.cov(draws.T) - covariance) < error + 1e-5).all()
    assert (np.abs(covariance - np.diag(np.diag(covariance))) > error).any(), "independent draws would pass"


@pytest.mark.long
def test_functions_of_exact_regression_and_of_several_outputs():
    def two(X, y=None):
        ngp.gp("g", KERNEL, Z, outputs=2)
        ngp.gp_regression("y", KERNEL, PROBLEM.X, PROBLEM.noise, obs=PROBLEM.y)

    posterior = ngp.Posterior.from_mcmc(two, {"g": jnp.zeros((3000, 2, len(Z)))})
    draws = posterior.function_draws(KEY, X, gp="y")
    np.testing.assert_allclose(draws.mean(0), PROBLEM.mean, atol=0.1)
    few = posterior.function_draws(KEY, X, gp="g", num_samples=3)
    assert few.shape == (3, 12, 2)
    named = posterior.function_draws(KEY, X, X=X[:2], y=X[:2, 0], gp="g", num_samples=3)
    np.testing.assert_array_equal(named, few)
    with pytest.raises(ValueError, match=r"gp must be the name of one process of the model: \['g', 'y'\]"):
        posterior.function_draws(KEY, X)


def test_keywords_of_particles_are_those_of_their_posterior():
    """``SVGD(model, ..., c=...)``: predictions without it were those of the model's default, 0."""
    svgd = ngp.stein.SVGD(level, optax.sgd(0.1), num_stein_particles=3, c=7.0)
    posterior = ngp.Posterior.from_stein(level, svgd, svgd.get_params(svgd.init(KEY, X, Y)))
    wanted = posterior.samples["level"].mean()
    np.testing.assert_allclose(posterior.predict(KEY, X).mean, wanted + 7.0, rtol=1e-6)
    np.testing.assert_allclose(posterior.predict(KEY, X, c=1.0).mean, wanted + 1.0, rtol=1e-6)
