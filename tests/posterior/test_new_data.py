"""Posteriors at new data: whose data they are, NumPy's arrays, and how many programs a prediction compiles."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import numpyro_gp as ngp
from numpyro_gp.posterior import chunks
from tests.oracles.build import kernel_of
from tests.oracles.vectors import cases
from tests.programs import counted

CASE = cases("collapsed")[0]


def noisy_model(X, y=None):
    s = numpyro.sample("noise", dist.LogNormal(-1.0, 0.3))
    f = ngp.gp("f", kernel_of(CASE), CASE["Z"])
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(s), obs=y)


def scoped(X, y=None, z=None):
    """Two regressions whose data have one name inside two scopes."""
    for prefix, data, variance in (("a", y, 0.1), ("b", z, 0.4)):
        with numpyro.handlers.scope(prefix=prefix):
            f = ngp.gp_regression(
                "y", kernel_of(CASE), X, variance * numpyro.sample("noise", dist.Delta(1.0)), obs=data
            )
        numpyro.deterministic(f"{prefix}_name", jnp.zeros(len(f.name)))
        assert f.name == f"{prefix}/y"


def test_processes_are_found_by_the_names_of_their_sites():
    """Both were recorded as "y", and predictions were those of the last. Unscoped models say what is right."""

    def alone(X, y=None, variance=0.1):
        ngp.gp_regression("y", kernel_of(CASE), X, variance * numpyro.sample("noise", dist.Delta(1.0)), obs=y)

    X, new, key = CASE["X"], jnp.asarray(CASE["Xs"]), jax.random.key(0)
    posterior = ngp.Posterior.from_mcmc(scoped, {"a/noise": jnp.ones(2), "b/noise": jnp.ones(2)})
    single = ngp.Posterior.from_mcmc(alone, {"noise": jnp.ones(2)})
    for name, data, variance in (("a/y", CASE["y"], 0.1), ("b/y", -CASE["y"], 0.4)):
        found = posterior.predict_at(key, new, X, CASE["y"], -CASE["y"], gp=name)
        wanted = single.predict_at(key, new, X, data, variance)
        np.testing.assert_allclose(found.mean, wanted.mean, rtol=1e-10)
        np.testing.assert_allclose(found.variance, wanted.variance, rtol=1e-10)
    with pytest.raises(ValueError, match=r"gp must be the name of one process of the model: \['a/y', 'b/y'\]"):
        posterior.predict_at(key, new, X, CASE["y"], -CASE["y"], gp="y")


def indexed_model(X, y=None, Z=None):
    """Indexes its data by the traced rows of the plate, which a NumPy array refuses."""
    f = ngp.gp("f", kernel_of(CASE), CASE["Z"])
    noise = numpyro.sample("noise", dist.LogNormal(-1.0, 0.3))
    with numpyro.plate("data", X.shape[0]) as rows:
        likelihood = lambda f: dist.Normal(f, noise)  # noqa: E731
        ngp.observe("y", f(X[rows]), likelihood, obs=None if y is None else y[rows])


def test_numpy_inputs_and_likelihoods_that_close_over_arrays():
    """Both raised: a TracerArrayConversionError, and "Too many leaves". The Gaussian likelihood says what is right."""
    draws = {"f": jnp.arange(15.0).reshape(3, 5) / 15, "noise": jnp.array([2.0, 3.0, 4.0])}
    X, y, key = np.asarray(CASE["Xs"]), np.linspace(-1.0, 1.0, 4), jax.random.key(0)
    posterior, wanted = (ngp.Posterior.from_mcmc(fn, draws) for fn in (indexed_model, noisy_model))
    for size in (3, 100):
        np.testing.assert_allclose(
            posterior.predict(key, X, chunk_size=size).mean, wanted.predict(key, X).mean, atol=1e-10
        )
    np.testing.assert_allclose(
        posterior.predict(key, X).log_density(y), wanted.predict(key, X).log_density(y), atol=1e-6
    )
    np.testing.assert_allclose(posterior.function_draws(key, X), wanted.function_draws(key, jnp.asarray(X)))
    one, other = (p.draws(key, X, y).log_likelihood["y"] for p in (posterior, wanted))
    np.testing.assert_allclose(one, other, atol=1e-6)
    table = ngp.compare({"a": posterior, "b": wanted}, key, X, y=y)
    np.testing.assert_allclose(table["a"]["log density"].value, table["b"]["log density"].value, atol=1e-6)


def compiled_by(call):
    """Number of programs that a call compiles."""
    with counted() as programs:
        call()
    return programs.count


def test_a_prediction_is_compiled_once():
    """Ten programs before, and three at each repetition."""

    def own(X, y=None, shift=0.25):
        f = ngp.gp("f", kernel_of(CASE), CASE["Z"])
        with numpyro.plate("data", X.shape[0]):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(SCALE["noise"] + shift), obs=y)

    SCALE = {"noise": 0.5}
    X, key = np.asarray(CASE["Xs"]) + 0.5, jax.random.key(5)
    first, second = (ngp.Posterior.from_mcmc(own, {"f": x * jnp.ones((7, 5))}) for x in (1.0, 2.0))
    assert compiled_by(lambda: first.predict(key, X)) <= 3
    for again in (
        lambda: first.predict(key, X),
        lambda: first.predict(jax.random.key(6), X),
        lambda: first.predict(key, X + 1),
        lambda: second.predict(key, X),
        lambda: second.predict(key, X, chunk_size=4),
    ):
        assert compiled_by(again) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "traced", None)  # nor is the model traced again
        before = first.predict(key, X)
        old_key = jax.random.PRNGKey(0)
        with pytest.raises(TypeError, match="not callable"):
            first.predict(old_key, X)
    np.testing.assert_allclose(first.predict(old_key, X).mean, before.mean, rtol=1e-12)
    SCALE["noise"] = 0.75
    np.testing.assert_allclose(first.predict(key, X).variance - before.variance, 1.0 - 0.75**2, rtol=1e-9)
    np.testing.assert_allclose(first.predict(key, X, shift=0.5).variance - before.variance, 1.25**2 - 0.75**2)
