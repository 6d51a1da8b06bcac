"""GPJax 1.0.0 as of November 2026, on JAX 0.10.2.

Steps: a block of them in one compiled `lax.scan` over GPJax's own objective, parameters and natural-gradient step,
where `gpx.fit` and `gpx.fit_natgrads` compile anew in every call. Predictions: `condition` once for each repeat and
the conditioned posterior, both compiled.
"""

from functools import partial

import equinox as eqx
import gpjax as gpx
import jax
import jax.numpy as jnp
import optax
from gpjax.natural_gradients import natural_gradient_step, partition_variational

from examples.studies.peers.libraries import problem as given
from examples.studies.peers.libraries.timing import Report


def build(problem, job):
    kernel = gpx.kernels.Matern52(lengthscale=jnp.asarray(problem.lengthscale), variance=given.VARIANCE)
    prior = gpx.gps.Prior(kernel, gpx.mean_functions.Zero(), jitter=problem.jitter)
    likelihood = gpx.likelihoods.Gaussian(obs_stddev=given.NOISE_VARIANCE**0.5)
    Z = jnp.asarray(problem.X[problem.order[: job.size]])
    return gpx.variational_families.WhitenedVariationalGaussian(model=prior * likelihood, inducing_inputs=Z)


def step_of(static, data, job, natural):
    """One step of the arrays of a belief and of their optimiser's state, for `lax.scan` over keys."""
    rows, adam = len(data.X), optax.adam(given.ADAM)
    loss = lambda q, batch: -gpx.objectives.elbo(q, batch) / rows  # noqa: E731
    whole = lambda q, batch: -gpx.objectives.elbo(q, batch)  # noqa: E731  # what a natural step asks for

    def batch_at(key):
        index = jax.random.randint(key, (job.batch,), 0, rows)
        return gpx.Dataset(X=data.X[index], y=data.y[index], n_total=rows)

    def adam_step(carry, key):
        arrays, slots = carry
        slope = jax.grad(lambda p: loss(eqx.combine(p, static), batch_at(key)))(arrays)
        updates, slots = adam.update(slope, slots, arrays)
        return (optax.apply_updates(arrays, updates), slots), None

    def natural_step(carry, key):
        arrays, slots = carry
        belief, rest = partition_variational(eqx.combine(arrays, static))
        batch, options = batch_at(key), dict(map_jitter=0.0, backoff=0.5, max_backoff=5, beta_floor=1e-8)
        belief, _ = natural_gradient_step(belief, rest, batch, whole, jnp.asarray(given.NATURAL), **options)
        own, fixed = eqx.partition(rest, eqx.is_array)
        slope = jax.grad(lambda p: loss(eqx.combine(belief, p, fixed), batch))(own)
        updates, slots = adam.update(slope, slots, own)
        arrays, _ = eqx.partition(eqx.combine(belief, optax.apply_updates(own, updates), fixed), eqx.is_array)
        return (arrays, slots), None

    return adam, natural_step if natural else adam_step


def training_of(belief, problem, job, natural):
    """``run(steps)``, and what reads the arrays of the belief."""
    data = gpx.Dataset(X=jnp.asarray(problem.X), y=jnp.asarray(problem.y[:, None]))
    arrays, static = eqx.partition(belief, eqx.is_array)
    adam, step = step_of(static, data, job, natural)
    slots = adam.init(eqx.filter(partition_variational(belief)[1] if natural else belief, eqx.is_array))
    # Strong types throughout, or the second block compiles again.
    held = [jax.tree.map(lambda value: jnp.array(value, value.dtype), (arrays, slots)), jax.random.key(0)]

    @partial(jax.jit, static_argnums=2, donate_argnums=0)
    def scan(state, key, steps):
        return jax.lax.scan(step, state, jax.random.split(key, steps))[0]

    def run(steps):
        held[1], own = jax.random.split(held[1])
        held[0] = jax.block_until_ready(scan(held[0], own, steps))

    return run, lambda: held[0][0]


def prediction_of(belief):
    """``condition(arrays)``, and mean and variance of new data under what it returns."""
    arrays, static = eqx.partition(belief, eqx.is_array)
    conditioned = lambda arrays: eqx.combine(arrays, static).condition(None)  # noqa: E731
    fixed = eqx.filter(jax.eval_shape(conditioned, arrays), lambda leaf: not isinstance(leaf, jax.ShapeDtypeStruct))

    @jax.jit
    def predict(posterior, X):
        posterior = eqx.combine(posterior, fixed)
        f = posterior(X, covariance="diagonal")
        return f.mean, f.variance + gpx.parameters.val(posterior.model.likelihood.obs_stddev) ** 2

    return jax.jit(lambda arrays: eqx.filter(conditioned(arrays), eqx.is_array)), predict


def main():
    report = Report("GPJax", "gpjax", "jax")
    job = report.job
    jax.config.update("jax_enable_x64", job.dtype == "float64")
    problem = given.problem_of(job, report.folder)
    belief = build(problem, job)
    run, arrays = training_of(belief, problem, job, job.task != "adam")
    condition, predict = prediction_of(belief)
    if job.task in ("adam", "natural", "density"):
        test = jnp.asarray(problem.X_test)
        density = lambda: given.log_density(*predict(condition(arrays()), test), problem.y_test)  # noqa: E731
        return report.training(run, density)
    run(10)
    if job.task == "latency":
        posterior = condition(arrays())
        return report.one_row_at_a_time(problem.X_test, lambda row: jax.device_get(predict(posterior, row)))
    new = [jnp.asarray(part) for part in given.parts(given.new_rows(job))]

    def once():
        posterior = condition(arrays())
        jax.block_until_ready([predict(posterior, part) for part in new])

    return report.repeated(once)


if __name__ == "__main__":
    main()
