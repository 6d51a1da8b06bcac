"""Seconds of one natural-gradient step of a sparse regression, beside the linear algebra that it cannot avoid.

    pytest -m benchmark examples/studies/speed/benchmarks/test_core.py -s -n 0

With M inducing points and a batch of B rows a step multiplies six times ``M x M`` by ``M x B`` (features, root and
their derivatives) and about nine times ``M x M`` by ``M x M`` (derivatives of two factorisations and the natural
map), and makes two Cholesky factors with their inverses. That, timed alone in the same run, is the floor.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp
from examples.studies.speed.benchmarks.seconds import seconds
from numpyro_gp.linalg import factorise
from tests.precision import x64


def model(X, y, Z, batch):
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0).expand([X.shape[1]]).to_event(1))
    noise = numpyro.sample("noise", dist.LogNormal(-1.0, 1.0))
    f = ngp.gp("f", ngp.kernels.Matern52(jnp.ones((), X.dtype), lengthscale), numpyro.param("Z", Z))
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as rows:
        ngp.observe("y", f(X[rows]), ngp.likelihoods.Gaussian(noise), obs=y[rows])


def engine():
    """Natural steps of 0.1 on the belief, Adam elsewhere."""
    optimiser = ngp.optim.natural_gradient(optax.adam(1e-2), 0.1)
    return SVI(model, ngp.AutoGP(model, {"f": ngp.guides.coupled(natural=True)}), optimiser, Trace_ELBO())


@pytest.mark.benchmark
@pytest.mark.parametrize("size", [128, 512])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_step_costs_little_more_than_its_matrix_products(size, dtype):
    rng, batch = np.random.default_rng(0), 1024
    with x64(dtype == "float64"):
        X = jnp.asarray(rng.normal(size=(8000, 8)), dtype)
        y = jnp.sin(X[:, 0])
        svi = engine()
        state = svi.init(jax.random.key(0), X, y, X[:size], batch)
        step = jax.jit(lambda state: svi.update(state, X, y, X[:size], batch))
        assert jnp.isfinite(step(state)[1])
        own, first = seconds(step, state)
        square = jnp.asarray(rng.normal(size=(size, size)) / size, dtype)
        wide = jnp.asarray(rng.normal(size=(size, batch)), dtype)
        definite = square @ square.T + jnp.eye(size, dtype=dtype)
        product, _ = seconds(jax.jit(lambda a, b: a @ b), square, wide)
        cube, _ = seconds(jax.jit(lambda a, b: a @ b), square, square)
        factor, _ = seconds(jax.jit(factorise), definite)
    floor = 6 * product + 9 * cube + 2 * factor
    print(
        f"\n{dtype} M={size} B={batch}: step {1e3 * own:.1f} ms, floor {1e3 * floor:.1f} ms, first call {first:.1f} s"
    )
    assert own < 8 * floor, "the step does much more work than it must"
