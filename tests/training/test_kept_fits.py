"""Programs are kept for what they are made of: the same fit compiles nothing. Of other values: ``test_changes.py``."""

import weakref

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
