"""tinygp 0.3.1 as of November 2026, NumPyro by hand, and this library: in turn, with the JAX of tinygp's environment.

A leapfrog is a potential and its gradient, compiled, which is what a step of NUTS computes; SVGD is NumPyro's class
with its kernel, ten particles. The latent models have inducing inputs at the data, 300 labels of two columns. A
prediction by hand is the formula in one compiled program, whose Gram matrix is factorised in each call, as
`Posterior.predict` does. The floors are what the two need at least, each operation alone.
"""

from contextlib import nullcontext
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib import einstein
from numpyro.infer.util import initialize_model

import numpyro_gp as ngp
from examples.studies.peers.libraries.ours import fit_of, steps_of
from examples.studies.peers.libraries.problem import ROWS, new_rows, problem_of
from examples.studies.peers.libraries.timing import Report, Stopwatch

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
    from tinygp import GaussianProcess, kernels  # where tests run it is not installed
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
        return result

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


def belief(job):
    """Our posterior of a belief that has made ten steps, its parameters by name, and the inducing inputs."""
    problem = problem_of(job, "")
    svi, keywords = fit_of(problem, job._replace(task="adam"), "")
    run, params = steps_of(svi, problem, job, keywords)
    run(10)
    return ngp.Posterior.from_svi(svi.model, svi.guide, params()), params(), keywords


def prediction(job):
    posterior, _, keywords = belief(job)
    new, key = jnp.asarray(new_rows(job)), jax.random.key(1)

    def call():
        found = posterior.predict(key, new, **keywords)
        return jax.block_until_ready((found.mean, found.variance))

    return call


def cross(A, B, lengthscale, variance):
    A, B = A / lengthscale, B / lengthscale
    squares = jnp.sum(A**2, axis=1)[:, None] + jnp.sum(B**2, axis=1)[None, :] - 2 * A @ B.T
    z = jnp.sqrt(5 * jnp.maximum(squares, 1e-12))
    return variance * (1 + z + z**2 / 3) * jnp.exp(-z)


def prediction_by_hand(job):
    params = belief(job)[1]
    mean, root = (next(value for name, value in params.items() if name.endswith(end)) for end in ("mean", "scale_tril"))

    def predict(new, Z, lengthscale, variance, noise, mean, root):
        factor = jnp.linalg.cholesky(gram(Z, lengthscale, variance, 1e-6 * variance))
        A = jax.scipy.linalg.solve_triangular(factor, cross(Z, new, lengthscale, variance), lower=True)
        spread = jnp.sum((root.T @ A) ** 2, axis=0) - jnp.sum(A**2, axis=0)
        return mean @ A, variance + spread + noise**2

    names = ("Z", "f_lengthscale", "f_variance", "noise")
    return compiled(predict, jnp.asarray(new_rows(job)), *(params[name] for name in names), mean, root)


def floors(job):
    """Each operation alone: of M rows of a square matrix, or of M rows and ``job.rows`` of data, if any."""
    size, rng = job.size, np.random.default_rng(0)
    square, X = rng.normal(size=(size, size)), jnp.asarray(rng.normal(size=(size, 8)))
    positive = jnp.asarray(square @ square.T / size + np.eye(size))
    if job.rows:
        new, many = jnp.asarray(rng.normal(size=(job.rows, 8))), jnp.asarray(rng.normal(size=(size, job.rows)))
        found = {
            "product M x M x N": compiled(jnp.matmul, positive, many),
            "kernel M x N": compiled(lambda X, new: cross(X, new, 1.0, 1.0), X, new),
        }
    else:
        solve = lambda a: jax.scipy.linalg.solve_triangular(a, jnp.ones_like(a), lower=True)  # noqa: E731
        found = {
            "Gram matrix": compiled(lambda X: gram(X, 1.0, 1.0, 1e-6), X),
            "Cholesky": compiled(jnp.linalg.cholesky, positive),
            "solve of M columns": compiled(solve, jnp.linalg.cholesky(positive)),
            "product M x M x M": compiled(jnp.matmul, positive, positive),
        }
    return {name: partial(lambda call: call, call) for name, call in found.items()}


def parties(job):
    """What each of them is built by."""
    if job.task == "rows of a batch":
        both = {"ours": ngp.guides.keyed_rows, "NumPyro": nullcontext}
        return {name: partial(rows_of_a_batch, job.batch, handler) for name, handler in both.items()}
    if job.task == "predict by hand":
        return {"ours": partial(prediction, job), "NumPyro by hand": partial(prediction_by_hand, job)}
    if job.task == "floor":
        return floors(job)
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
    reports = Report("ours", "jax", "numpyro", "tinygp")
    jax.config.update("jax_enable_x64", reports.job.dtype == "float64")
    built = {name: build() for name, build in parties(reports.job).items()}
    clocks = {name: Stopwatch() for name in built}
    for _ in range(reports.job.repeats + 1):
        for name, call in built.items():
            clocks[name](call)
    for reports.peer, clock in clocks.items():
        reports.line(**clock.summary())


if __name__ == "__main__":
    main()
