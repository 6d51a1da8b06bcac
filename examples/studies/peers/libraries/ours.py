"""Our library, as a user writes it: NumPyro's primitives, `AutoGP`, `SVI`; parameters in place of priors, as peers.

Steps: a block of `SVI.update` in one compiled scan, which is what `fit` runs. A density comes from `fit` and its
resumption, in two ways: the belief of the peers, and ``conditional``, the guide of this library that follows the
hyper-parameters. Predictions: `Posterior.predict`, which conditions in each call; one row at a time by
`Posterior.predictor`.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
from numpyro.distributions import constraints
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp
from examples.studies.peers.libraries import problem as given
from examples.studies.peers.libraries.timing import Report

positive = partial(numpyro.param, constraint=constraints.positive)


def kernel(name, columns, dtype):
    variance = positive(f"{name}_variance", jnp.full((), given.VARIANCE, dtype))
    return ngp.kernels.Matern52(variance, positive(f"{name}_lengthscale", jnp.full(columns, columns**0.5, dtype)))


def observed(f, inputs, y, rows):
    scale = positive("noise", jnp.full((), given.NOISE_VARIANCE**0.5, inputs.dtype))
    ngp.observe("y", f(inputs), ngp.likelihoods.Gaussian(scale), obs=None if y is None else y[rows])


def sparse(X, y=None, *, Z, batch=None):
    f = ngp.gp("f", kernel("f", X.shape[1], X.dtype), numpyro.param("Z", Z))
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as rows:
        observed(f, X[rows], y, rows)


def deep(X, y=None, *, Z, projection, batch=None):
    """Two layers; the units of the first share its kernel and its inducing inputs, and its mean is linear."""
    weights, width = numpyro.param("weights", projection), projection.shape[1]
    inner = kernel("inner", X.shape[1], X.dtype)
    f = ngp.gp("f", inner, numpyro.param("Z", Z), outputs=width, mean=lambda x: x @ weights)
    g = ngp.gp("g", kernel("outer", width, X.dtype), numpyro.param("Z_outer", Z @ projection))
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as rows:
        observed(g, f.draw("h", X[rows]), y, rows)


def fit_of(problem, job, way):
    """The model's engine, and the keywords of its calls."""
    points = jnp.asarray(problem.X[problem.order])
    keywords = dict(Z=points[: job.size])
    adam = optax.adam(given.ADAM)
    if job.task == "deep":
        axes = np.linalg.svd(problem.X[:2000] - problem.X[:2000].mean(0), full_matrices=False)[2][: job.width]
        keywords["projection"] = jnp.asarray(axes.T)
        guide = ngp.AutoGP(deep, {"f": ngp.guides.coupled(scale=1e-2), "g": ngp.guides.coupled()})
        return SVI(deep, guide, adam, Trace_ELBO()), keywords
    natural = job.task not in ("adam", "orthogonal")
    recipe = ngp.guides.conditional() if way == "conditional" else ngp.guides.coupled(natural=natural)
    if job.task == "orthogonal":
        others = points[job.size : job.size + job.mean_points]
        recipe = ngp.guides.orthogonal(others, natural=False, train_inputs=True)
    optimiser = ngp.optim.natural_gradient(adam, given.NATURAL) if natural else adam
    return SVI(sparse, ngp.AutoGP(sparse, {"f": recipe}), optimiser, Trace_ELBO()), keywords


def steps_of(svi, problem, job, keywords):
    """``run(steps)``, and the parameters that it has reached."""
    X, y = jnp.asarray(problem.X), jnp.asarray(problem.y)
    start = jax.jit(lambda key: svi.init(key, X, y, batch=job.batch, **keywords))
    held = [start(jax.random.key(0))]

    @partial(jax.jit, static_argnums=3)
    def scan(state, X, y, steps):
        return jax.lax.scan(lambda s, _: svi.update(s, X, y, batch=job.batch, **keywords), state, None, steps)

    def run(steps):
        held[0], losses = jax.block_until_ready(scan(held[0], X, y, steps))
        assert np.isfinite(losses[-1])

    return run, lambda: svi.get_params(held[0])


def fitting(svi, problem, job, keywords):
    X, y, key = jnp.asarray(problem.X), jnp.asarray(problem.y), jax.random.key(0)
    start = svi.get_params(svi.init(key, X[: job.batch], y[: job.batch], **keywords))
    held = [False, 0]

    def run(steps):
        held[1] += steps
        options = dict(batch=job.batch, progress=False, resume=held[0], **keywords)
        held[0] = ngp.fit(key, svi, held[1], X, y, **options)

    return run, lambda: held[0].params if held[1] else start


def main():
    report = Report("ours", "numpyro-gp", "jax", "numpyro")
    job = report.job
    jax.config.update("jax_enable_x64", job.dtype == "float64")
    problem = given.problem_of(job, report.folder)
    svi, keywords = fit_of(problem, job, report.way)
    run, params = (fitting if job.task == "density" else steps_of)(svi, problem, job, keywords)
    posterior = lambda: ngp.Posterior.from_svi(svi.model, svi.guide, params())  # noqa: E731
    key = jax.random.key(1)
    if job.task not in ("predict", "latency"):
        test, truth = jnp.asarray(problem.X_test), jnp.asarray(problem.y_test)
        density = lambda: float(posterior().predict(key, test, **keywords).log_density(truth).mean())  # noqa: E731
        return report.training(run, density)
    run(10)
    fitted = posterior()
    if job.task == "latency":
        predictor = fitted.predictor(key, **keywords)
        return report.one_row_at_a_time(
            problem.X_test, lambda row: ((found := predictor(row)), np.asarray(found.mean), np.asarray(found.variance))
        )
    new = jnp.asarray(given.new_rows(job))

    def once():
        found = fitted.predict(key, new, **keywords)
        jax.block_until_ready((found.mean, found.variance))

    return report.repeated(once)


if __name__ == "__main__":
    main()
