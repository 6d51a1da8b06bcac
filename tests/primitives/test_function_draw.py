"""A function drawn from a process, and what `GaussianProcess.function` opens in a model."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density

import numpyro_gp as ngp
from numpyro_gp.primitives.function_draw import function_draw
from tests.oracles.vectors import cases

CASE = cases("collapsed")[0]
DATA, Y, NEW = jnp.asarray(CASE["X"]), jnp.asarray(CASE["y"]), jnp.asarray(CASE["Xs"])
Z = DATA[:4]
WAVES = ngp.kernels.Periodic(1.3, 0.8, 3.0).on(0) + ngp.kernels.Linear(0.4)


def moments(process, X):
    """Mean and covariance of functions over their noise, by derivatives: everything is linear in it."""
    shapes = {}

    def value(noise):
        def normal(name, shape):
            shapes[name] = shape
            return jnp.zeros(shape) if noise is None else noise[name]

        return function_draw(process, jax.random.key(0), 40, normal)(X)

    jax.eval_shape(lambda: value(None))
    zeros = {name: jnp.zeros(shape) for name, shape in shapes.items()}
    slopes = jax.tree.leaves(jax.jacrev(value)(zeros))
    flat = jnp.concatenate([leaf.reshape(X.shape[0], -1) for leaf in slopes], axis=1)
    return value(zeros), flat @ flat.T


@pytest.mark.long
@pytest.mark.parametrize("kind", ["exact", "exact with jitter", "noises", "collapsed"])
def test_functions_of_conditioned_processes(kind):
    """Their mean and covariance are those of the process; the mean function is in them."""
    noise = jnp.linspace(0.05, 0.3, len(Y)) if kind == "noises" else 0.1
    jitter = 1e-2 if kind == "exact with jitter" else None
    f = ngp.gp_regression(
        "y", WAVES, DATA, noise, mean=1.5, obs=Y, inducing=Z if kind == "collapsed" else None, jitter=jitter
    )
    mean, covariance = jax.jit(lambda: moments(f, NEW))()
    np.testing.assert_allclose(mean, f(NEW).loc, atol=1e-9)
    np.testing.assert_allclose(covariance, f.process.joint(f.basis, NEW).covariance, atol=1e-9)


@pytest.mark.long
def test_at_a_point_the_noise_of_a_belief_says_nothing():
    """The other noise has a slope; in a scan under SVI it is in ``contracts/compositions.py``."""

    def model(y):
        g = ngp.gp("f", ngp.kernels.RBF(1.0, 0.7), Z).function("g", num_features=8)
        numpyro.sample("y", dist.Normal(g(NEW), 0.05).to_event(1), obs=y)

    y = jnp.ones(len(NEW))
    trace = handlers.trace(handlers.seed(model, 0)).get_trace(y)
    values = {name: site["value"] for name, site in trace.items() if name != "y"}
    slopes = jax.jit(jax.grad(lambda v: log_density(model, (y,), {}, v)[0]))(values)
    assert all(np.isfinite(leaf).all() and np.abs(leaf).max() > 0 for leaf in slopes.values())
    np.testing.assert_allclose(slopes["g/value"], -values["g/value"], rtol=1e-12)
    assert np.abs(slopes["g/weights"] + values["g/weights"]).max() > 1e-3


@pytest.mark.long
def test_members_of_plates_have_functions_of_their_own():
    """Those of single processes at the same features and noise; at shared rows and at rows of each; derivatives too."""
    kernels = ngp.kernels.stack([ngp.kernels.Periodic(1.0, 0.7, 2.0), ngp.kernels.Periodic(2.0, 0.5, 3.0)])
    values, levels = jnp.linspace(-1.0, 1.0, 2 * len(Z)).reshape(2, -1), jnp.array([3.0, -3.0])
    normal = lambda name, shape: jnp.broadcast_to(jnp.linspace(-1.0, 1.0, shape[-1]), shape)  # noqa: E731
    with handlers.substitute(data={"f": values}), numpyro.plate("group", 2):
        f = ngp.gp("f", kernels, Z, mean=levels)
    both = function_draw(f, jax.random.key(0), 40, normal)
    rows = jnp.stack([NEW, NEW + 0.3])
    for g in range(2):
        kernel = jax.tree.map(lambda leaf, g=g: leaf[g], kernels)
        with handlers.substitute(data={"f": values[g]}):
            one = function_draw(ngp.gp("f", kernel, Z, mean=levels[g]), jax.random.key(0), 40, normal)
        np.testing.assert_allclose(both(NEW)[g], one(NEW), rtol=1e-9)
        np.testing.assert_allclose(both(rows)[g], one(rows[g]), rtol=1e-9)
        np.testing.assert_allclose(both.gradient(NEW)[g], one.gradient(NEW), rtol=1e-6)
    with handlers.seed(rng_seed=0), handlers.trace() as trace:
        assert f.function("g", num_features=8)(NEW).shape == (2, len(NEW))
    assert trace["g/value"]["value"].shape == (2, len(Z))
