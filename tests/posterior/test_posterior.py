"""Posteriors of every engine and what they predict, against closed forms."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO
from scipy import stats

import numpyro_gp as ngp
from tests.oracles.build import kernel_of
from tests.oracles.vectors import cases

CASE = cases("collapsed")[0]


def model(X, y=None, Z=None):
    f = ngp.gp("f", kernel_of(CASE), CASE["Z"] if Z is None else Z, jitter=0.0)
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(np.sqrt(CASE["noise"])), obs=y)


def noisy_model(X, y=None):
    s = numpyro.sample("noise", dist.LogNormal(-1.0, 0.3))
    f = ngp.gp("f", kernel_of(CASE), CASE["Z"])
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(s), obs=y)


def fitted(fn=model, rest=None, steps=1):
    guide = ngp.AutoGP(fn, {"f": ngp.guides.coupled(natural=True)}, **({} if rest is None else {"rest": rest}))
    svi = SVI(fn, guide, ngp.optim.natural_gradient(optax.adam(0.05), 1.0), Trace_ELBO())
    state = svi.init(jax.random.key(0), CASE["X"], CASE["y"])
    for _ in range(steps):
        state, _ = svi.update(state, CASE["X"], CASE["y"])
    return guide, svi.get_params(state)


@pytest.mark.long
def test_svi_at_the_optimum_predicts_the_collapsed_posterior():
    guide, params = fitted()
    prediction = ngp.Posterior.from_svi(model, guide, params).predict(jax.random.key(1), jnp.asarray(CASE["Xs"]))
    assert prediction.num_draws == 1, "nothing is random here: one component is the whole mixture"
    total = np.diag(CASE["cov"]) + CASE["noise"]
    np.testing.assert_allclose(prediction.mean, CASE["mean"], atol=1e-6)
    np.testing.assert_allclose(prediction.function_variance, np.diag(CASE["cov"]), atol=1e-6)
    np.testing.assert_allclose(prediction.variance, total, atol=1e-6)
    y = np.array([0.1, -0.3, 0.5, 1.2])
    np.testing.assert_allclose(prediction.log_density(y), stats.norm.logpdf(y, CASE["mean"], np.sqrt(total)), atol=1e-5)


@pytest.mark.long
def test_a_posterior_is_one_short_line_that_does_not_change():
    posterior = ngp.Posterior.from_mcmc(written_down, {"f": np.zeros((2, 3))})
    assert repr(posterior) == "Posterior(mcmc, written_down)"
    with pytest.raises(dataclasses.FrozenInstanceError):
        posterior.kind = "other"
    fit = ngp.gam("y ~ linear(dose)", {"dose": np.linspace(0.0, 1.0, 9), "y": np.linspace(0.0, 1.0, 9)})
    assert repr(fit.posterior) == "Posterior(svi, Model)"


def written_down(X, y=None):
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), jnp.arange(3.0)[:, None])
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)


def test_mcmc_draws_are_an_equal_mixture():
    """Prediction typed out in NumPy: average variance plus variance of means; forgetting the latter is off by 0.05."""
    rng = np.random.default_rng(0)
    draws = {"f": jnp.asarray(rng.normal(size=(6, 5))), "noise": jnp.asarray(rng.uniform(0.2, 0.5, 6))}
    X = jnp.asarray(CASE["Xs"])
    prediction = ngp.Posterior.from_mcmc(noisy_model, draws).predict(jax.random.key(0), X)
    kernel = kernel_of(CASE)
    K = np.asarray(kernel.matrix(jnp.asarray(CASE["Z"])))
    eps = 1e-6 * np.mean(np.diag(K))
    L = np.linalg.cholesky(K + eps * np.eye(5))
    A = np.linalg.solve(L, np.asarray(kernel.matrix(jnp.asarray(CASE["Z"]), X)))
    means = np.asarray(draws["f"]) @ A
    left = eps * (np.linalg.solve(L.T, A) ** 2).sum(0)  # by the jitter, and taken back (mathematics.md section 1.3)
    variances = (CASE["variance"] - (A**2).sum(0) - left)[None] + np.asarray(draws["noise"])[:, None] ** 2
    np.testing.assert_allclose(prediction.mean, means.mean(0), atol=1e-9)
    np.testing.assert_allclose(prediction.variance, variances.mean(0) + means.var(0), atol=1e-9)
    y = rng.normal(size=4)
    density = np.log(np.mean(stats.norm.pdf(y, means, np.sqrt(variances)), axis=0))
    np.testing.assert_allclose(prediction.log_density(y), density, atol=1e-9)
    few = ngp.Posterior.from_mcmc(noisy_model, draws).predict(jax.random.key(0), X, num_samples=2)
    np.testing.assert_allclose(few.mean, means[[0, 5]].mean(0), atol=1e-9)


@pytest.mark.long
def test_latent_inputs_of_new_data_come_from_the_prior():
    """E f(x, w) over w ~ N(0, 1) by a long sum; holding w at zero would be off by 0.2."""
    Z = jnp.array([[0.0, -1.0], [0.0, 1.0], [1.0, 0.0]])
    v = jnp.array([1.5, -0.2, 0.4])

    def latent(X, y=None):
        f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), Z)
        with numpyro.plate("data", X.shape[0]):
            ngp.observe("y", f(ngp.latent_inputs("w", X)), ngp.likelihoods.Gaussian(0.1), obs=y)

    X = jnp.zeros((2, 1))
    draws = {"f": jnp.broadcast_to(v, (4000, 3)), "w": jnp.ones((4000, 5, 1))}
    prediction = ngp.Posterior.from_mcmc(latent, draws).predict(jax.random.key(0), X)
    w = stats.norm.ppf((np.arange(4000) + 0.5) / 4000)
    K = np.asarray(ngp.kernels.RBF(1.0, 1.0).matrix(Z)) + 1e-6 * np.eye(3)
    cross = np.exp(-0.5 * ((0 - np.asarray(Z)[:, :1]) ** 2 + (w - np.asarray(Z)[:, 1:]) ** 2))
    wanted = (np.asarray(v) @ np.linalg.solve(np.linalg.cholesky(K), cross)).mean()
    np.testing.assert_allclose(prediction.mean, wanted, atol=0.05)


def test_sites_of_single_data_are_drawn_anew_even_where_the_numbers_of_rows_agree():
    """A random effect of each datum, prior sd 1, posterior draws at 5: using those for new rows would shift the mean by 5."""

    def effects(X, y=None):
        with numpyro.plate("group", 2):
            level = numpyro.sample("level", dist.Normal(0.0, 1.0))
        f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), jnp.zeros((1, 1)))
        with numpyro.plate("data", X.shape[0]):
            own = numpyro.sample("own", dist.Normal(0.0, 1.0))
            base = f(X)
            shifted = dist.Normal(base.loc + own + level.sum(), base.scale)
            ngp.observe("y", shifted, ngp.likelihoods.Gaussian(0.1), obs=y)

    draws = {"f": jnp.zeros((500, 1)), "own": jnp.full((500, 3), 5.0), "level": jnp.ones((500, 2))}
    prediction = ngp.Posterior.from_mcmc(effects, draws).predict(jax.random.key(0), jnp.zeros((3, 1)))
    np.testing.assert_allclose(prediction.mean, 2.0, atol=0.25)  # levels are global: kept; standard error 0.05
    assert (prediction.function_variance > 0.5).all()


@pytest.mark.long
def test_parameters_of_the_model_itself_are_those_of_the_fit():
    """A level that the model declares with numpyro.param: predictions at its initial value would be off by 3."""

    def levelled(X, y=None):
        level = numpyro.param("level", 0.0)
        f = ngp.gp("f", ngp.kernels.RBF(1e-6, 1.0), jnp.zeros((1, 1)), mean=level)
        with numpyro.plate("data", X.shape[0]):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.5), obs=y)

    X, y = jnp.linspace(0.0, 1.0, 5)[:, None], jnp.full(5, 3.0)
    guide = ngp.AutoGP(levelled)
    svi = SVI(levelled, guide, optax.sgd(0.05), Trace_ELBO())
    result = svi.run(jax.random.key(0), 100, X, y, progress_bar=False)
    prediction = ngp.Posterior.from_svi(levelled, guide, result.params).predict(jax.random.key(0), X)
    np.testing.assert_allclose(prediction.mean, 3.0, atol=0.01)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda p: p.predict(jax.random.key(0), jnp.zeros((2, 1)), rows=["W"]), ValueError, "rows must be names of array arguments"),
        (lambda p: ngp.Posterior.from_mcmc(model, {"a": jnp.zeros(3), "b": jnp.zeros(4)}), ValueError, "one common first axis"),
        (lambda p: ngp.Posterior.from_svi(model, ngp.AutoGP(model), {}), ValueError, "guide must be the guide that was fitted"),
        (lambda p: ngp.Posterior.from_svi(model, ngp.AutoGP(model), 3), TypeError, "params must be a dictionary"),
    ],
)  # fmt: skip
def test_bad_input(call, error, message):
    posterior = ngp.Posterior.from_mcmc(model, {"f": jnp.zeros((3, 5))})
    with pytest.raises(error, match=message):
        call(posterior)


@pytest.mark.long
def test_functions_are_drawn_jointly():
    """Moments of 4000 draws against the collapsed posterior; independent draws at each row have no correlation."""
    guide, params = fitted()
    posterior = ngp.Posterior.from_svi(model, guide, params)
    draws = np.asarray(posterior.function_draws(jax.random.key(1), jnp.asarray(CASE["Xs"]), num_samples=4000))
    scale = np.sqrt(np.diag(CASE["cov"]))
    np.testing.assert_allclose(draws.mean(0), CASE["mean"], atol=5 * scale.max() / np.sqrt(4000))
    error = 5 * np.outer(scale, scale) * np.sqrt(2 / 4000)
    assert (np.abs(np.cov(draws.T) - CASE["cov"]) < error + 1e-5).all()
    assert (np.abs(CASE["cov"] - np.diag(np.diag(CASE["cov"]))) > error).any(), "independent draws would pass"


@pytest.mark.long
def test_functions_of_exact_regression_and_of_several_outputs():
    def two(X, y=None):
        ngp.gp("g", kernel_of(CASE), CASE["Z"], outputs=2)
        f = ngp.gp_regression("y", kernel_of(CASE), CASE["X"], CASE["noise"], obs=CASE["y"])
        numpyro.deterministic("at", f(X).mean)

    posterior = ngp.Posterior.from_mcmc(two, {"g": jnp.zeros((3000, 2, 5))})
    X = jnp.asarray(CASE["Xs"])
    draws = posterior.function_draws(jax.random.key(0), X, gp="y")
    with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.trace() as trace:
        two(X)
    np.testing.assert_allclose(draws.mean(0), trace["at"]["value"], atol=0.1)
    few = posterior.function_draws(jax.random.key(0), X, gp="g", num_samples=3)
    assert few.shape == (3, 4, 2)
    named = posterior.function_draws(jax.random.key(0), X, X=X[:2], y=X[:2, 0], gp="g", num_samples=3)
    np.testing.assert_array_equal(named, few)
    with pytest.raises(ValueError, match=r"gp must be the name of one process of the model: \['g', 'y'\]"):
        posterior.function_draws(jax.random.key(0), X)


def test_keywords_of_particles_are_those_of_their_posterior():
    """``SVGD(model, ..., c=...)``: predictions without it were those of the model's default, 0."""

    def model(X, y=None, c=0.0):
        level = numpyro.sample("level", dist.Normal(0.0, 1.0))
        with numpyro.plate("data", len(X)):
            ngp.observe("y", dist.Delta(level + jnp.zeros(len(X))), ngp.likelihoods.Gaussian(0.1), obs=y, offset=c)

    X, key = jnp.zeros((2, 1)), jax.random.key(0)
    svgd = ngp.stein.SVGD(model, optax.sgd(0.1), num_stein_particles=3, c=7.0)
    params = svgd.get_params(svgd.init(key, X, X[:, 0]))
    posterior = ngp.Posterior.from_stein(model, svgd, params)
    level = posterior.samples["level"].mean()
    np.testing.assert_allclose(posterior.predict(key, X).mean, level + 7.0, rtol=1e-6)
    np.testing.assert_allclose(posterior.predict(key, X, c=1.0).mean, level + 1.0, rtol=1e-6)
