"""Many processes at once: 64 groups of 100 rows in one program, against 64 fits one after the other."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp

GROUPS, ROWS, STEPS = 64, 100, 300
Z = jnp.linspace(-1.0, 1.0, 12)[:, None]


def many(X, y):
    with numpyro.plate("group", GROUPS, dim=-2):
        lengthscale = numpyro.sample("lengthscale", dist.LogNormal(-1.0, 1.0))[:, 0]
        f = ngp.gp("f", jax.vmap(lambda l: ngp.kernels.Matern52(1.0, l))(lengthscale), Z)
        with numpyro.plate("data", ROWS):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.2), obs=y)


def one(X, y):
    f = ngp.gp("f", ngp.kernels.Matern52(1.0, numpyro.sample("lengthscale", dist.LogNormal(-1.0, 1.0))), Z)
    with numpyro.plate("data", ROWS):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.2), obs=y)


def fitted(model, X, y):
    """Losses of a fit, and its seconds, compilation included."""
    start = time.perf_counter()
    guide = ngp.AutoGP(model, {"f": ngp.guides.coupled(natural=True)})
    svi = SVI(model, guide, ngp.optim.natural_gradient(optax.sgd(1e-3), 0.5), Trace_ELBO())
    losses = np.asarray(ngp.fit(jax.random.key(0), svi, STEPS, X, y, progress=False).losses)
    return losses, time.perf_counter() - start


@pytest.mark.benchmark
def test_groups_in_one_program_take_a_quarter_of_the_time_of_single_fits():
    """The same losses, step by step: the same work."""
    rng = np.random.default_rng(0)
    X = jnp.asarray(rng.uniform(-1.0, 1.0, (GROUPS, ROWS, 1)))
    y = jnp.sin(4 * X[..., 0]) + 0.2 * jnp.asarray(rng.normal(size=(GROUPS, ROWS)))
    with jax.numpy_rank_promotion("allow"):
        losses, together = fitted(many, X, y)
        found = [fitted(one, X[g], y[g]) for g in range(GROUPS)]
    np.testing.assert_allclose(losses, sum(own for own, _ in found), rtol=1e-6)
    alone = sum(seconds for _, seconds in found)
    print(f"64 groups of 100 rows, {STEPS} steps: {together:.1f} s in one program, {alone:.1f} s one after the other")
    assert together < alone / 4
