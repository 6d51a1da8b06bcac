"""Work that NumPyro does itself, by hand, and tinygp 0.3.1 where this environment has it: in turn, with one JAX.

A leapfrog is a potential and its gradient, compiled, which is what a step of NUTS computes; SVGD is NumPyro's class with
its kernel, ten particles. The latent models have inducing inputs at the data, 300 labels of two columns.
"""

from contextlib import nullcontext
from functools import partial
from importlib.util import find_spec

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib import einstein
from numpyro.infer.util import initialize_model

import numpyro_gp as ngp
from tests.benchmarks.peers.problem import ROWS
from tests.benchmarks.peers.timing import Report, Stopwatch

LABELLED = 300


def labels():
    X = np.random.default_rng(0).normal(size=(LABELLED, 2))
    return X, (np.sin(2 * X[:, 0]) + X[:, 1] > 0).astype(int)


def hypers(*names):
    return (numpyro.sample(name, dist.LogNormal(0.0, 1.0)) for name in ("lengthscale", "variance", *names))


def our_latent(X, y):
    lengthscale, variance = hypers()
    f = ngp.gp("f", ngp.kernels.Matern52(variance, lengthscale), X)
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f.at_inducing(with_jitter=True), ngp.likelihoods.Bernoulli(), obs=y)


def our_marginal(X, y):
    lengthscale, variance, noise = hypers("noise")
    ngp.gp_regression("y", ngp.kernels.Matern52(variance, lengthscale), X, noise, obs=y)


def gram(X, lengthscale, variance, diagonal):
    scaled = X / lengthscale
    norms = jnp.sum(scaled**2, axis=1)
    z = jnp.sqrt(5 * jnp.maximum(norms[:, None] + norms[None, :] - 2 * scaled @ scaled.T, 1e-12))
    return variance * (1 + z + z**2 / 3) * jnp.exp(-z) + diagonal * jnp.eye(len(X), dtype=X.dtype)


def latent_by_hand(X, y):
    lengthscale, variance = hypers()
    v = numpyro.sample("f", dist.Normal(0.0, 1.0).expand([X.shape[0]]).to_event(1))
    f = jnp.linalg.cholesky(gram(X, lengthscale, variance, 1e-6 * variance)) @ v
    with numpyro.plate("data", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=f), obs=y)


def marginal_by_hand(X, y):
    covariance = gram(X, *hypers("noise"))
    numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(X.shape[0], X.dtype), covariance), obs=y)


def tiny(X, lengthscale, variance, diagonal):
    from tinygp import GaussianProcess, kernels
    from tinygp.kernels.distance import L2Distance

    return GaussianProcess(variance * kernels.Matern52(lengthscale, distance=L2Distance()), X, diag=diagonal)


def latent_tinygp(X, y):
    lengthscale, variance = hypers()
    v = numpyro.sample("f", dist.Normal(0.0, 1.0).expand([X.shape[0]]).to_event(1))
    f = tiny(X, lengthscale, variance, 1e-6 * variance).solver.dot_triangular(v)
    with numpyro.plate("data", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=f), obs=y)


def marginal_tinygp(X, y):
    numpyro.sample("y", tiny(X, *hypers("noise")).numpyro_dist(), obs=y)


def compiled(function, *arguments, carry=False):
    """A call of one program; with ``carry`` its first result is its first argument in the next call."""
    program, held = jax.jit(function).lower(*arguments).compile(), list(arguments)

    def call():
        result = jax.block_until_ready(program(*held))
        if carry:
            held[0] = result[0]

    return call


def leapfrog(model):
    X, y = map(jnp.asarray, labels())
    potential = initialize_model(jax.random.key(0), model, model_args=(X, y))
    return compiled(jax.value_and_grad(potential.potential_fn), potential.param_info.z)


def particles(model, make=einstein.SVGD, kernel=einstein.RBFKernel):
    X, y = map(jnp.asarray, labels())
    svgd = make(model, numpyro.optim.Adam(0.01), kernel(), 10)
    state = jax.tree.map(jnp.asarray, svgd.init(jax.random.key(0), X, y))
    return compiled(lambda state: svgd.update(state, X, y), state, carry=True)


def rows_of_a_batch(batch, handler):
    def drawn(key):
        with numpyro.handlers.seed(rng_seed=key), handler(), numpyro.plate("data", ROWS, subsample_size=batch) as rows:
            return rows

    return compiled(drawn, jax.random.key(0))


def parties(job):
    """What each of them is built by; it raises ImportError where it is not installed."""
    if job.task == "rows of a batch":
        both = {"ours": ngp.guides.keyed_rows, "NumPyro": nullcontext}
        return {name: partial(rows_of_a_batch, job.batch, handler) for name, handler in both.items()}
    ours, by_hand, tinygp = {
        "latent": (our_latent, latent_by_hand, latent_tinygp),
        "marginal": (our_marginal, marginal_by_hand, marginal_tinygp),
    }[job.task.split(", ")[1]]
    if job.task.startswith("SVGD"):
        own = partial(particles, ours, ngp.stein.SVGD, ngp.stein.RBF)
        return {"ours": own, "NumPyro": partial(particles, by_hand)}
    models = {"ours": ours, "NumPyro by hand": by_hand, "tinygp": tinygp}
    return {name: partial(leapfrog, model) for name, model in models.items()}


def main():
    jax.config.update("jax_enable_x64", True)
    tinygp = ["tinygp"] if find_spec("tinygp") else []
    reports = Report("ours", "numpyro-gp", "jax", "numpyro", *tinygp)
    built = {}
    for name, build in parties(reports.job).items():
        try:
            built[name] = build()
        except ImportError as error:
            reports.peer = name
            reports.line(failed=f"not installed ({error})")
    clocks = {name: Stopwatch() for name in built}
    for _ in range(reports.job.repeats + 1):
        for name, call in built.items():
            clocks[name](call)
    for reports.peer, clock in clocks.items():
        reports.line(**clock.summary())


if __name__ == "__main__":
    main()
