"""Posteriors of every engine and what they predict, against closed forms."""

import functools
from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from scipy import stats
from scipy.special import logsumexp

import numpyro_gp as ngp
from tests.compiling import counted
from tests.fits import GAUSSIAN, KERNEL, KEY, NEW, PROBLEM, X, Y, Z, exact, fit, level, normal, sparse
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
def test_keywords_of_particles_are_those_of_their_posterior():
    """``SVGD(model, ..., c=...)``: predictions without it were those of the model's default, 0."""
    svgd = ngp.stein.SVGD(level, optax.sgd(0.1), num_stein_particles=3, c=7.0)
    posterior = ngp.Posterior.from_stein(level, svgd, svgd.get_params(svgd.init(KEY, X, Y)))
    wanted = posterior.samples["level"].mean()
    np.testing.assert_allclose(posterior.predict(KEY, X).mean, wanted + 7.0, rtol=1e-6)
    np.testing.assert_allclose(posterior.predict(KEY, X, c=1.0).mean, wanted + 1.0, rtol=1e-6)


def scoped(X, y=None, z=None):
    """Two regressions whose data have one name inside two scopes."""
    for prefix, data, variance in (("a", y, 0.1), ("b", z, 0.4)):
        with numpyro.handlers.scope(prefix=prefix):
            noise = numpyro.sample("noise", dist.Delta(1.0))
            f = ngp.gp_regression("y", KERNEL, X, variance * noise, obs=data, jitter=0.0)
        numpyro.deterministic(f"{prefix}_name", jnp.zeros(len(f.name)))
        assert f.name == f"{prefix}/y"


@pytest.mark.long
def test_processes_are_found_by_the_names_of_their_sites():
    """Both were recorded as "y", and predictions were those of the last. Unscoped models say what is right."""
    posterior = ngp.Posterior.from_mcmc(scoped, {"a/noise": jnp.ones(2), "b/noise": jnp.ones(2)})
    for name, data, variance in (("a/y", Y, 0.1), ("b/y", -Y, 0.4)):
        found = posterior.predict_at(KEY, NEW, X, Y, -Y, gp=name)
        wanted = ngp.Posterior.from_mcmc(exact, {"noise": jnp.full(2, variance)}).predict_at(KEY, NEW, X, data)
        np.testing.assert_allclose(found.mean, wanted.mean, rtol=1e-10)
        np.testing.assert_allclose(found.variance, wanted.variance, rtol=1e-10)
    with pytest.raises(ValueError, match=r"gp must be the name of one process of the model: \['a/y', 'b/y'\]"):
        posterior.predict_at(KEY, NEW, X, Y, -Y, gp="y")


def compiled_by(call):
    """Number of programs that a call compiles."""
    with counted() as programs:
        call()
    return programs.count


def test_chunks_of_an_iterator_share_programs_and_are_checked():
    X, posterior = np.asarray(NEW), fit("draws")
    list(posterior.predict(KEY, iter([X[:4], X[:4]])))
    assert compiled_by(lambda: list(posterior.predict(KEY, iter([X[:4], X[1:5], X[2:6]])))) == 0
    with pytest.raises(TypeError, match=r"chunks\[1\]\[0\] must be of float64 .* but got float32"):
        list(posterior.predict(KEY, iter([X[:4], X[:4].astype(np.float32)])))
    with pytest.raises(ValueError, match=r"chunks\[0\] must be free of arguments that are given beside it"):
        list(posterior.predict(KEY, iter([{"X": X}]), X=X))


@pytest.mark.long
def test_functions_that_are_no_number_are_refused():
    """Without a jitter the covariance at 60 inputs that are close has no Cholesky factor."""

    def model(X, y=None):
        f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), jnp.array([[0.0], [1.0]]), jitter=0.0)
        with numpyro.plate("data", len(X)):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)

    posterior, X = ngp.Posterior.from_mcmc(model, {"f": jnp.ones((3, 2))}), jnp.linspace(0.0, 0.1, 60)[:, None]
    match = r"3 of 3 draws that are no number at 60 inputs in float64. Take posterior.func"
    with pytest.raises(ValueError, match=match):
        posterior.function_draws(KEY, X)
    assert posterior.function_draws(KEY, jnp.array([[0.3], [0.6]])).shape == (3, 2)


def test_a_number_for_all_data_is_one_for_each():
    """A model of a level alone, with or without replicates: `predict` ended in an `IndexError`."""
    levels, y, key = np.array([0.1, -0.2, 0.5]), np.linspace(-1.0, 1.0, 7), KEY

    def model(X, y=None, *, replicates=1, plate=True):
        level = dist.Delta(numpyro.sample("level", dist.Normal(0.0, 1.0)))
        rows = numpyro.plate("data", len(X)) if plate else nullcontext()
        with numpyro.plate("replicates", replicates, dim=-2) if replicates > 1 else nullcontext(), rows:
            ngp.observe("y", level, ngp.likelihoods.Gaussian(0.5), obs=y)

    posterior, X = ngp.Posterior.from_mcmc(model, {"level": jnp.asarray(levels)}), jnp.zeros((7, 1))
    expected = logsumexp(stats.norm.logpdf(y, levels[:, None], 0.5), axis=0) - np.log(3)
    for options in ({}, {"replicates": 2}, {"chunk_size": 4}):
        found = posterior.predict(key, X, **options)
        np.testing.assert_allclose(found.mean, np.full(7, levels.mean()), rtol=1e-6)
        np.testing.assert_allclose(found.log_density(y), expected, rtol=1e-6)
    with pytest.raises(ValueError, match=r"the data of site 'y' must be of rows, in a plate, but got one number"):
        posterior.predict(key, X, plate=False)


def observed_twice(X, y=None):
    f = ngp.gp("f", KERNEL, Z)(X)
    with numpyro.plate("data", X.shape[0]):
        for name in "ab":
            ngp.observe(name, f, ngp.likelihoods.Gaussian(0.1), obs=y)


@pytest.mark.long
def test_two_data_sites_under_one_key_have_noise_of_their_own():
    """New data of a model's sites are drawn from one prediction for each; under one key their noise was one."""
    known = ngp.Posterior.from_mcmc(observed_twice, {"f": jnp.zeros((1, len(Z)))})
    regressions = ngp.Posterior.from_mcmc(scoped, {"a/noise": jnp.ones(1), "b/noise": jnp.ones(1)})
    predictions = (
        [known.predict(KEY, NEW, site=name) for name in "ab"],
        [regressions.predict_at(KEY, NEW, X, Y, -Y, gp=f"{name}/y") for name in "ab"],
    )
    for pair in predictions:
        one, other = (np.asarray(prediction.sample(400)) for prediction in pair)
        correlation = [np.corrcoef(one[:, n], other[:, n])[0, 1] for n in range(one.shape[1])]
        assert np.abs(correlation).max() < 5 / np.sqrt(400)


def test_functions_of_two_processes_under_one_key_are_independent_given_the_posterior():
    """Each had the same standard normal numbers: draws of ``f`` and ``g`` of one prior were the same functions."""
    Z = jnp.linspace(0.0, 1.0, 3)[:, None]

    def model(X, y=None):
        f, g = (ngp.gp(name, ngp.kernels.RBF(1.0, 0.1), Z) for name in "fg")
        with numpyro.plate("data", len(X)):
            ngp.observe("y", (f(X), g(X)), lambda f, g: dist.Normal(f + g, 1.0), obs=y)

    zeros = {name: jnp.zeros((400, 3)) for name in "fg"}
    posterior, far = ngp.Posterior.from_mcmc(model, zeros), jnp.array([[5.0]])
    f, g = (np.asarray(posterior.function_draws(jax.random.key(0), far, gp=name))[:, 0] for name in "fg")
    np.testing.assert_allclose([f.std(), g.std()], 1.0, rtol=0.15)
    assert abs(np.corrcoef(f, g)[0, 1]) < 0.2


def test_arguments_of_the_model_that_a_method_would_take_are_refused():
    """``predict(num_samples=3)`` gave the model its default, 1."""
    X, key = jnp.zeros((2, 1)), jax.random.key(0)
    posterior = ngp.Posterior.from_mcmc(taken, {"f": jnp.zeros((4, 1))})
    calls = {
        "predict": lambda **own: posterior.predict(key, X, **own),
        "predictor": lambda **own: posterior.predictor(key, **own),
        "draws": lambda **own: posterior.draws(key, X, X[:, 0], **own),
        "hyperparameters": lambda **own: posterior.hyperparameters(key, X, X[:, 0], **own),
        "function_draws": lambda **own: posterior.function_draws(key, X, **own),
    }
    for method, call in calls.items():
        message = (
            f"the model must be free of an argument named like one of {method} .*, but got an argument 'num_samples'"
        )
        with pytest.raises(TypeError, match=message):
            call(num_samples=3)
    with pytest.raises(TypeError, match=r"like one of predict .* 'num_samples'"):
        posterior.predict(key, iter([X]), num_samples=3)
    with pytest.raises(TypeError, match=r"like one of functions .* 'gp'"):
        posterior.functions(key, None, X, gp="f")
    np.testing.assert_allclose(posterior.predict(key, X).mean, 1.0)
    by_place = posterior.predict(key, X, None, 3.0, num_samples=2)
    np.testing.assert_allclose(by_place.mean, 3.0)
    assert by_place.num_draws == 2
    bound = ngp.Posterior.from_mcmc(functools.partial(taken, num_samples=5.0), {"f": jnp.zeros((4, 1))})
    np.testing.assert_allclose(bound.predict(key, X, num_samples=2).mean, 5.0)


def taken(X, y=None, num_samples=1.0, gp=0.0):
    """A model with arguments named like keywords of `predict` and `functions`."""
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.5), jnp.zeros((1, 1)))
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y, offset=jnp.full(len(X), num_samples + gp))
