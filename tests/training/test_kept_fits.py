"""Programs are kept for what they are made of: the same fit compiles nothing. Of other values: ``test_changes.py``."""

import subprocess
import sys
import weakref
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro import handlers
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoDelta

import numpyro_gp as ngp
from tests.compiling import counted
from tests.precision import x64

X, Y = jnp.linspace(-1.0, 1.0, 8)[:, None], jnp.ones(8)


def engine_of(model, **options):
    return SVI(model, AutoDelta(model), optax.sgd(0.1), Trace_ELBO(), **options)


def plain(X, y, scale=1.0):
    level = numpyro.sample("level", dist.Normal(0.0, scale))
    numpyro.sample("y", dist.Normal(level, 1.0).expand(y.shape).to_event(1), obs=y)


def level(svi, key=0, y=Y, **arguments):
    return float(ngp.fit(jax.random.key(key), svi, 60, X, y, progress=False, **arguments).params["level_auto_loc"])


def test_the_same_fit_compiles_nothing():
    svi = engine_of(plain)
    result = ngp.fit(jax.random.key(0), svi, 6, X, Y, progress=False)
    keys, other = [jax.random.key(n) for n in range(2)], Y + 1.0
    with counted() as programs:
        again = ngp.fit(keys[0], svi, 6, X, Y, progress=False)
        ngp.fit(keys[1], svi, 20, X, other, progress=False)
        resumed = ngp.fit(keys[0], svi, 9, X, Y, progress=False, resume=again)
    assert programs.count == 0
    np.testing.assert_array_equal(again.losses, result.losses)
    assert resumed.losses.shape == (9,)
    with counted() as programs:
        jax.jit(lambda x: x + 17.0)(1.0)
    assert programs.count == 1, "the counter sees nothing"


@pytest.mark.long
def test_arguments_that_are_no_arrays_and_handlers_are_part_of_the_program():
    svi = engine_of(plain)
    np.testing.assert_allclose(level(svi, scale=1.0), 8 / 9, rtol=1e-6)
    np.testing.assert_allclose(level(svi, scale=0.5), 8 / 12, rtol=1e-6)
    with handlers.condition(data={"y": Y + 1}):
        np.testing.assert_allclose(level(svi, scale=1.0), 16 / 9, rtol=1e-6)


def test_precision_switched_between_fits():
    def guide(X, y):
        numpyro.sample("level", dist.Delta(numpyro.param("level_auto_loc", lambda key: jnp.zeros(()))))

    svi = SVI(plain, guide, optax.sgd(0.1), Trace_ELBO())
    for is_double, dtype in ((True, np.float64), (False, np.float32)):
        with x64(is_double):
            found = ngp.fit(jax.random.key(0), svi, 3, np.asarray(X), np.ones(8, dtype), progress=False)
        assert found.losses.dtype == dtype


@pytest.mark.long
def test_an_engine_that_is_gone_leaves_no_program(collect):
    svi = engine_of(plain)
    ngp.fit(jax.random.key(0), svi, 3, X, Y, progress=False)
    reference = weakref.ref(svi)
    del svi
    collect()
    assert reference() is None


PROGRAMS = """
import jax, jax.numpy as jnp, numpyro, optax, numpyro_gp as ngp
from numpyro.infer import SVI, Trace_ELBO
from tests.compiling import counted

def model(X, y=None):
    lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(X))
    noise = numpyro.sample("noise", ngp.starting.noise_prior())
    f = ngp.gp("f", ngp.kernels.RBF(1.0, lengthscale), Z)
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(noise), obs=y)

X = jnp.linspace(0, 1, 20)[:, None]
Z = X[::4]
y, new, keys, guide = jnp.sin(X[:, 0]), X[:5], list(jax.random.split(jax.random.key(0))), ngp.AutoGP(model)
svi = SVI(model, guide, optax.adam(0.01), Trace_ELBO())
with counted() as fit:
    result = ngp.fit(keys[0], svi, 10, X, y, progress=False)
posterior = ngp.Posterior.from_svi(model, guide, result.params)
with counted() as predict:
    posterior.predict(keys[1], new).mean.block_until_ready()
print(fit.count, predict.count)
"""


@pytest.mark.long
def test_a_first_fit_is_at_most_four_programs_and_a_prediction_three():
    """A process as users have it, where each operation outside of a program would be one more."""
    folder = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", PROGRAMS], cwd=folder, capture_output=True, text=True, check=True)
    fit, predict = map(int, done.stdout.split())
    assert fit <= 4
    assert predict <= 3
