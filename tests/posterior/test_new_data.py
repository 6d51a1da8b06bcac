"""Posteriors at new data: whose data they are, NumPy's arrays, and how many programs a prediction compiles."""

from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.special import logsumexp

import numpyro_gp as ngp
from tests.compiling import counted
from tests.fits import KERNEL, KEY, NEW, X, Y, Z, exact, fit


def scoped(X, y=None, z=None):
    """Two regressions whose data have one name inside two scopes."""
    for prefix, data, variance in (("a", y, 0.1), ("b", z, 0.4)):
        with numpyro.handlers.scope(prefix=prefix):
            noise = numpyro.sample("noise", dist.Delta(1.0))
            f = ngp.gp_regression("y", KERNEL, X, variance * noise, obs=data, jitter=0.0)
        numpyro.deterministic(f"{prefix}_name", jnp.zeros(len(f.name)))
        assert f.name == f"{prefix}/y"


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
