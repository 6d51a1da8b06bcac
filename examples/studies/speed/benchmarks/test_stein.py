"""Cost of one SVGD step in scores, beside NumPyro's class, on whole data and on minibatches."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib import einstein

import numpyro_gp as ngp
from examples.studies.speed.benchmarks.seconds import seconds
from numpyro_gp.stein import RBF, SVGD

N, M, PARTICLES, REPEATS = 2000, 30, 20, 5


def model(X, y, Z, batch=None):
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0))
    noise = numpyro.sample("noise", dist.LogNormal(-1.0, 1.0))
    f = ngp.gp("f", ngp.kernels.Matern32(1.0, lengthscale), Z)
    with numpyro.plate("data", N, subsample_size=batch) as index:
        ngp.observe("y", f(X[index]), ngp.likelihoods.Gaussian(noise), obs=y[index])


def data():
    rng = np.random.default_rng(0)
    X = jnp.asarray(rng.normal(size=(N, 4)))
    return X, jnp.sin(X[:, 0]) + 0.1 * jnp.asarray(rng.normal(size=N)), X[:M]


def step_time(make, n, batch):
    svgd, arguments = make(n), data()
    state = jax.tree.map(jnp.asarray, svgd.init(jax.random.key(0), *arguments, batch=batch))
    return seconds(jax.jit(lambda state: svgd.update(state, *arguments, batch=batch)[0]), state, repeats=REPEATS)[0]


def ours(how):
    return lambda n: SVGD(model, numpyro.optim.Adam(0.01), RBF(), n, evaluation=how)


def theirs(n):
    return einstein.SVGD(model, numpyro.optim.Adam(0.01), einstein.RBFKernel(), n)


@pytest.mark.benchmark
@pytest.mark.parametrize("batch", [None, 256])
def test_a_step_costs_a_score_a_particle(batch):
    one = step_time(ours("vmap"), 1, batch)
    rows = {name: step_time(make, PARTICLES, batch) for name, make in
            {"ours, vmap": ours("vmap"), "ours, map": ours("map"), "numpyro": theirs}.items()}  # fmt: skip
    print(f"\nbatch {batch}: one score {1e3 * one:.1f} ms")
    for name, taken in rows.items():
        print(f"  {name:12s} {1e3 * taken:9.1f} ms a step of {PARTICLES} particles = {taken / one:6.1f} scores")
    ours_default = rows["ours, map" if jax.default_backend() == "cpu" else "ours, vmap"]
    assert ours_default < 1.5 * PARTICLES * one
    if batch is not None:
        assert rows["numpyro"] > 3 * ours_default
