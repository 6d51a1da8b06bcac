"""Steps and predictions lowered for GPUs and TPUs, where none is at hand.

Nothing in them needs a CPU or double precision, and products keep the precision that they are given.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from jax import export
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp
from numpyro_gp.rows.call import Arguments
from numpyro_gp.rows.feeds import feed_of
from numpyro_gp.training.loop import loop_of
from tests.precision import x64

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.normal(size=(12, 2)), jnp.float32)
Y, Z = jnp.sin(X[:, 0]), X[:3] + 0.1
ONE, ZERO = np.float32(1.0), np.float32(0.0)


def rbf():
    return ngp.kernels.RBF(ONE, numpyro.sample("lengthscale", dist.LogNormal(ZERO, ONE)))


def sparse(X, y=None, *, Z, batch=None):
    f = ngp.gp("f", rbf(), Z)
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as rows:
        ngp.observe("y", f(X[rows]), ngp.likelihoods.Bernoulli(), obs=None if y is None else y[rows] > 0)


def additive(X, y=None, *, Z):
    base = rbf()
    kernels = {name: base.on([at]) for at, name in enumerate("ab")}
    f = ngp.additive_gp("f", kernels, dict.fromkeys(kernels, Z))
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), ngp.likelihoods.StudentT(np.float32(4.0), ONE), obs=y)


def deep(X, y=None, *, Z):
    inner = ngp.gp("g", rbf(), Z, outputs=2)
    f = ngp.gp("f", ngp.kernels.Matern52(ONE, ONE), Z)
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(inner.draw("noise", X)), ngp.likelihoods.Gaussian(ONE), obs=y)


def exact(X, y=None, *, Z):
    ngp.gp_regression("y", rbf(), X, noise_variance=ONE, obs=y)


def collapsed(X, y=None, *, Z):
    ngp.gp_regression("y", rbf(), X, inducing=Z, noise_variance=ONE, obs=y)


def svi(model, recipe=None, loss=None, optimiser=None):
    return SVI(
        model, ngp.AutoGP(model, {"f": recipe} if recipe else None), optimiser or optax.adam(0.01), loss or Trace_ELBO()
    )


def natural(model, recipe):
    return svi(model, recipe, optimiser=ngp.optim.natural_gradient(optax.adam(0.01), 0.1))


STEPS = {
    "adam": (lambda: svi(sparse), {}),
    "minibatch": (lambda: svi(sparse), {"batch": 4}),
    "natural": (lambda: natural(sparse, ngp.guides.coupled(natural=True)), {}),
    "orthogonal": (lambda: natural(sparse, ngp.guides.orthogonal(X[:5], columns=2, natural=True)), {}),
    "additive": (lambda: svi(additive, ngp.guides.block_diagonal()), {}),
    "deep": (lambda: svi(deep), {}),
    "importance weighted": (lambda: svi(deep, loss=ngp.ImportanceWeightedELBO(3)), {}),
    "particles": (lambda: ngp.stein.SVGD(sparse, optax.adam(0.01), num_stein_particles=3, evaluation="vmap"), {}),
    "exact": (lambda: svi(exact), {}),
    "collapsed": (lambda: svi(collapsed), {}),
}


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
    build, options = STEPS[step]
    engine = build()
    feed = feed_of(engine, KEY, Arguments((X, Y), {"Z": Z, **options}))
    state = jax.eval_shape(lambda: engine.init(KEY, X, Y, Z=Z, **options))

    def loop(state, arrays):
        return loop_of(engine, feed, state, 1, True)(state, 1, arrays)

    calls = calls_of(jax.jit(loop), state, feed.arrays())
    assert any("cusolver" in name for name in calls), calls  # the factorisation, for a GPU


@pytest.mark.long
def test_predictions_need_no_cpu_and_no_double_precision():
    engine = svi(sparse)
    posterior = ngp.Posterior.from_svi(sparse, engine.guide, ngp.fit(KEY, engine, 1, X, Y, Z=Z, progress=False).params)
    calls_of(jax.jit(lambda X, Z: posterior.predict(KEY, X, Z=Z).mean), X, Z)


def test_a_host_callback_and_double_precision_would_be_seen():
    def called(x):
        return jax.pure_callback(np.sin, x, x)

    with pytest.raises(NotImplementedError, match="python_callback"):
        calls_of(jax.jit(called), X)
    with x64(True), pytest.raises(AssertionError):
        calls_of(jax.jit(lambda x: x + np.zeros((1, 2))), X)
    with pytest.raises(AssertionError):  # a product that a GPU would take in ten bits
        calls_of(jax.jit(lambda x: x @ x.T), X)
