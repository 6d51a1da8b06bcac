"""GPflux 0.4.5 as of November 2026, on TensorFlow 2.21: two layers, one kernel and set of inducing inputs for all.

That is what GPflux's own architecture builds (``share_variables=True``). A block of steps is one `tf.function`, with
batches drawn by indexing inside of the loop, in place of Keras's `fit`; one sample for each row.
"""

import gpflow
import gpflux
import numpy as np
import tensorflow as tf
from gpflow.keras import tf_keras
from gpflux.helpers import construct_basic_inducing_variables, construct_basic_kernel, construct_mean_function

from examples.studies.peers.libraries import problem as given
from examples.studies.peers.libraries.timing import Report


def layer(Z, outputs, rows, mean, name):
    kernel = gpflow.kernels.Matern52(given.VARIANCE, np.full(Z.shape[1], Z.shape[1] ** 0.5, Z.dtype))
    kernel = construct_basic_kernel(kernel, outputs, share_hyperparams=True)
    inducing = construct_basic_inducing_variables(len(Z), Z.shape[1], outputs, share_variables=True, z_init=Z)
    return gpflux.layers.GPLayer(kernel, inducing, rows, mean, name=name, verbose=False)


def build(problem, job):
    rows, columns = problem.X.shape
    linear = construct_mean_function(problem.X, columns, job.width)
    gpflow.set_trainable(linear, True)
    hidden = layer(problem.X[problem.order[: job.size]], job.width, rows, linear, "hidden")
    hidden.q_sqrt.assign(hidden.q_sqrt * 1e-5)  # as in GPflux's own architecture
    Z = np.random.default_rng(0).normal(size=(job.size, job.width)).astype(job.dtype)
    zero = gpflow.mean_functions.Constant(np.zeros(1, job.dtype))
    last = layer(Z, 1, rows, zero, "last")
    likelihood = gpflux.layers.LikelihoodLayer(gpflow.likelihoods.Gaussian(given.NOISE_VARIANCE))
    return gpflux.models.DeepGP([hidden, last], likelihood, input_dim=columns, target_dim=1), (hidden, last, likelihood)


def main():
    report = Report("GPflux", "gpflux", "gpflow", "tensorflow")
    job, problem = report.job, given.problem_of(report.job, report.folder)
    gpflow.config.set_default_float(getattr(np, job.dtype))
    gpflow.config.set_default_jitter(problem.jitter)
    tf_keras.backend.set_floatx(job.dtype)
    tf.random.set_seed(0)
    X, y = tf.constant(problem.X), tf.constant(problem.y[:, None])
    model, layers = build(problem, job)
    model.call(X[:4], y[:4], training=True)  # builds it
    adam = tf_keras.optimizers.legacy.Adam(given.ADAM)
    weights = [variable for layer in layers for variable in layer.trainable_variables]

    @tf.function
    def loop(steps):
        for _ in tf.range(steps):
            rows = tf.random.uniform([job.batch], maxval=len(problem.X), dtype=tf.int32)
            with tf.GradientTape() as tape:
                loss = -model.elbo((tf.gather(X, rows), tf.gather(y, rows))) / len(problem.X)
            adam.apply_gradients(zip(tape.gradient(loss, weights), weights))

    def run(steps):
        loop(tf.constant(steps))
        layers[1].q_mu.numpy()  # wait

    report.training(run, lambda: float("nan"))


if __name__ == "__main__":
    main()
