"""Whatever is asked a second time compiles nothing: every public entry, over likelihoods and models that close over data."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp
from numpyro_gp.programs import compiled as keep
from tests.compiling import counted

N = 12
X = np.linspace(-1.0, 1.0, N)[:, None]
Z = X[::3]
TABLE = np.linspace(0.5, 1.5, N)  # a NumPy table, and an array that models close over
SHIFT = jnp.asarray(TABLE[:4])
KEY = jax.random.key(0)
LIKELIHOODS = {
    "Poisson": lambda s: ngp.likelihoods.Poisson(),
    "callable": lambda s: lambda f: dist.Normal(f * TABLE.sum() / N, s),
}


def case(likelihood, closes_over=False):
    """A model of one process, and one of a sum of two where Sobol indices are asked for."""
    y = jnp.asarray((np.sin(3 * X[:, 0]) > 0).astype(float))

    def mean(X):
        return jnp.asarray(TABLE[:4] @ SHIFT) * X[..., 0]

    def model(X, y=None):
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.3))
        kernels = {"a": ngp.kernels.RBF(1.0, scale), "b": ngp.kernels.RBF(0.5, 2.0)}
        f = ngp.gp("f", kernels["a"] + kernels["b"], Z, mean=jax.jit(mean) if closes_over else None)
        with numpyro.plate("data", len(X)):
            ngp.observe("y", f(X), LIKELIHOODS[likelihood](scale), obs=y)

    return model, y


def engine(model):
    return SVI(model, ngp.AutoGP(model), optax.adam(0.01), Trace_ELBO())


def entries(model, y):
    svi = engine(model)
    fitted = ngp.fit(KEY, svi, 2, X, y, progress=False)
    posterior = ngp.Posterior.from_svi(model, svi.guide, fitted.params)
    quiet = {"progress": False}
    return {
        "fit": lambda: ngp.fit(KEY, svi, 2, X, y, **quiet),
        "fit of a new engine": lambda: ngp.fit(KEY, engine(model), 2, X, y, **quiet),
        "predict": lambda: posterior.predict(KEY, X, num_samples=3).log_density(y),
        "draws": lambda: posterior.draws(KEY, X, y, num_samples=4),
        "functions": lambda: posterior.functions(KEY, 3, X, num_features=8)(X),
        "function_draws": lambda: posterior.function_draws(KEY, X, num_samples=3),
        "compare": lambda: ngp.compare({"svi": posterior}, KEY, X, y=y, num_samples=3),
        "to_arviz": lambda: posterior.to_arviz(KEY, X, y, num_samples=4),
    }


def check(calls):
    del keep.without_key[:]
    for name, call in calls.items():
        call()
        with counted() as programs:
            call()
        assert programs.count == 0, f"{name} compiled {programs.count} programs the second time"
    assert not keep.without_key


@pytest.mark.long
def test_every_entry_compiles_nothing_the_second_time():
    check(entries(*case("callable")))


@pytest.mark.long
def test_a_model_that_closes_over_an_array_and_a_table():
    """`function_draws` compiled a program at every call: the array stands inside of a jitted helper."""
    check(entries(*case("Poisson", closes_over=True)))


@pytest.mark.long
def test_indices_of_an_additive_model():
    def model(X, y=None):
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.3))
        measure = ngp.kernels.Uniform(-1.0, 1.0)
        kernels = {"a": ngp.kernels.ZeroMean(ngp.kernels.RBF(scale, 1.0), measure).on(0)}
        kernels["b"] = ngp.kernels.ZeroMean(ngp.kernels.RBF(1.0, 1.0), measure).on(1)
        f = ngp.additive_gp("f", kernels, {"a": both[::4], "b": both[::4]})
        with numpyro.plate("data", len(X)):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.3), obs=y)

    both, y = np.concatenate([X, X[::-1] ** 2], axis=1), jnp.sin(3 * X[:, 0])
    svi = engine(model)
    fitted = ngp.fit(KEY, svi, 2, both, y, progress=False)
    posterior = ngp.Posterior.from_svi(model, svi.guide, fitted.params)
    check({"sobol": lambda: ngp.sobol.sample(posterior, KEY, both, num_samples=20)})
