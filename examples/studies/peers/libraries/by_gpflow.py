"""GPflow 2.11.2 as of November 2026, on TensorFlow 2.21.

Steps: a block of them in one `tf.function`, which draws its batches by indexing inside of the loop; Adam is that of
tf_keras's legacy optimisers, which has the least overhead. Natural steps are `NaturalGradient` on ``(q_mu, q_sqrt)``.
Predictions: `model.posterior()` with its cache, which is updated once for each repeat, in a compiled function.
"""

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.keras import tf_keras

from examples.studies.peers.libraries import problem as given
from examples.studies.peers.libraries.timing import Report


def build(problem, job):
    kernel = gpflow.kernels.Matern52(given.VARIANCE, problem.lengthscale)
    likelihood = gpflow.likelihoods.Gaussian(given.NOISE_VARIANCE)
    Z = problem.X[problem.order[: job.size]].copy()
    return gpflow.models.SVGP(kernel, likelihood, inducing_variable=Z, num_data=len(problem.X), whiten=True)


def steps_of(model, problem, job, natural):
    X, y = tf.constant(problem.X), tf.constant(problem.y[:, None])
    adam, own = tf_keras.optimizers.legacy.Adam(given.ADAM), gpflow.optimizers.NaturalGradient(given.NATURAL)
    if natural:
        gpflow.set_trainable(model.q_mu, False)
        gpflow.set_trainable(model.q_sqrt, False)
    rest = model.trainable_variables

    @tf.function
    def loop(steps):
        for _ in tf.range(steps):
            rows = tf.random.uniform([job.batch], maxval=len(problem.X), dtype=tf.int32)
            loss = model.training_loss_closure((tf.gather(X, rows), tf.gather(y, rows)), compile=False)
            if natural:
                own.minimize(loss, var_list=[(model.q_mu, model.q_sqrt)])
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(rest)
                value = loss()
            adam.apply_gradients(zip(tape.gradient(value, rest), rest))

    def run(steps):
        loop(tf.constant(steps))
        model.q_mu.unconstrained_variable.numpy()  # wait

    return run


def prediction_of(model):
    """What conditions, and mean and variance of new data."""
    posterior = model.posterior(gpflow.posteriors.PrecomputeCacheType.VARIABLE)

    @tf.function
    def predict(X):
        return model.likelihood.predict_mean_and_var(X, *posterior.predict_f(X))

    return posterior.update_cache, lambda X: [value.numpy() for value in predict(X)]


def main():
    report = Report("GPflow", "gpflow", "tensorflow")
    job, problem = report.job, given.problem_of(report.job, report.folder)
    gpflow.config.set_default_float(getattr(np, job.dtype))
    gpflow.config.set_default_jitter(problem.jitter)
    tf.random.set_seed(0)
    model = build(problem, job)
    run = steps_of(model, problem, job, job.task != "adam")

    def density():
        condition, predict = prediction_of(model)
        condition()
        return given.log_density(*predict(problem.X_test), problem.y_test)

    if job.task in ("adam", "natural", "density"):
        return report.training(run, density)
    run(10)
    condition, predict = prediction_of(model)
    if job.task == "latency":
        condition()
        return report.one_row_at_a_time(problem.X_test, lambda row: predict(tf.constant(row)))
    new = [tf.constant(part) for part in given.parts(given.new_rows(job))]
    return report.repeated(lambda: (condition(), [predict(part) for part in new]))


if __name__ == "__main__":
    main()
