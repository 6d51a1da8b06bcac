"""Steps and predictions lowered for GPUs and TPUs, where none is at hand.

Nothing in them needs a CPU or double precision, and products keep the precision that they are given.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import export

import numpyro_gp as ngp
from numpyro_gp.rows.call import Arguments
from numpyro_gp.rows.feeds import feed_of
from numpyro_gp.training.loop import loop_of
from tests import gpu
from tests.precision import x64

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.normal(size=(12, gpu.COLUMNS)), jnp.float32)
Y, Z = jnp.sin(X[:, 0]), X[:8] + 0.1
STEPS = ("minibatch", "orthogonal", "additive", "importance weighted", "collapsed", "particles")


@pytest.fixture(autouse=True)
def single_precision():
    """As on a TPU, which has no float64: with it allowed, NumPyro starts sites of float32 in float64."""
    with x64(False):
        yield


def calls_of(function, *arguments):
    """Custom calls of the program for both; JAX itself refuses calls of the host."""
    text = export.export(function, platforms=("cuda", "tpu"))(*arguments).mlir_module()
    assert "f64" not in text
    calls = set(re.findall(r"custom_call @([\w.$]+)", text))
    assert not [name for name in calls if re.search("lapack|cpu|callback|host", name)], calls
    products = re.findall(r"stablehlo.dot_general.*", text)
    assert not [line for line in products if "precision = [HIGHEST, HIGHEST]" not in line], products
    return calls


@pytest.mark.long
@pytest.mark.parametrize("step", STEPS)
def test_a_step_needs_no_cpu_and_no_double_precision(step):
    engine, options = gpu.engines(Z)[step]
    options = dict.fromkeys(options, 4)
    if step == "particles":  # as they are on a GPU
        engine = ngp.stein.SVGD(gpu.labels, optax.adam(0.01), num_stein_particles=3, evaluation="vmap")
    feed = feed_of(engine, KEY, Arguments((X, Y), {"Z": Z, **options}))
    state = jax.eval_shape(lambda: engine.init(KEY, X, Y, Z=Z, **options))

    def loop(state, arrays):
        return loop_of(engine, feed, state, 1, True, 1)(state, 1, arrays)

    calls = calls_of(jax.jit(loop), state, feed.arrays())
    assert any("cusolver" in name for name in calls), calls  # the factorisation, for a GPU


@pytest.mark.long
def test_predictions_need_no_cpu_and_no_double_precision():
    engine = gpu.svi(gpu.sparse)
    posterior = ngp.Posterior.from_svi(
        gpu.sparse, engine.guide, ngp.fit(KEY, engine, 1, X, Y, Z=Z, progress=False).params
    )
    calls_of(jax.jit(lambda X, Z: posterior.predict(KEY, X, Z=Z).mean), X, Z)


def test_a_host_callback_and_double_precision_would_be_seen():
    def called(x):
        return jax.pure_callback(np.sin, x, x)

    with pytest.raises(NotImplementedError, match="python_callback"):
        calls_of(jax.jit(called), X)
    with x64(True), pytest.raises(AssertionError):
        calls_of(jax.jit(lambda x: x + np.zeros((1, gpu.COLUMNS))), X)
    with pytest.raises(AssertionError):  # a product that a GPU would take in ten bits
        calls_of(jax.jit(lambda x: x @ x.T), X)
