"""Programs are kept for what they are made of. Of other values: ``test_changes.py``."""

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
from tests.precision import x64

X, Y = jnp.linspace(-1.0, 1.0, 8)[:, None], jnp.ones(8)


def engine_of(model, **options):
    return SVI(model, AutoDelta(model), optax.sgd(0.1), Trace_ELBO(), **options)


def plain(X, y, scale=1.0):
    level = numpyro.sample("level", dist.Normal(0.0, scale))
    numpyro.sample("y", dist.Normal(level, 1.0).expand(y.shape).to_event(1), obs=y)


def level(svi, key=0, y=Y, **arguments):
    return float(ngp.fit(jax.random.key(key), svi, 60, X, y, progress=False, **arguments).params["level_auto_loc"])


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
