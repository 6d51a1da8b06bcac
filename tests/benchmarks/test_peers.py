"""One step of a sparse regression beside GPflow's, on the same work in the same run.

    pip install gpflow tensorflow-cpu tf_keras && pytest -m benchmark tests/benchmarks/test_peers.py -s -n 0

The work: 1024 fresh rows of 8 columns, a Matern-5/2 kernel with a lengthscale for each, M inducing inputs that are learnt,
a full Gaussian over the inducing values with a natural step of 0.1, Adam for everything else, float64. GPflow takes the
natural step and then Adam's, each with a bound and its gradient of its own (its documented recipe); ours takes both from one.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.benchmarks.test_core import engine, seconds

pytestmark = pytest.mark.benchmark
ROWS, COLUMNS, BATCH, REPEATS = 8000, 8, 1024, 15


def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, COLUMNS))
    return X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=ROWS)


def ours(size):
    X, y = map(jnp.asarray, data())
    svi = engine()
    state = svi.init(jax.random.key(0), X, y, X[:size], BATCH)
    update = jax.jit(lambda state: svi.update(state, X, y, X[:size], BATCH))

    def step():
        nonlocal state
        state, loss = update(state)
        assert jnp.isfinite(loss)

    return step


def theirs(size):
    gpflow, tf = pytest.importorskip("gpflow"), pytest.importorskip("tensorflow")
    X, y = data()
    kernel = gpflow.kernels.Matern52(lengthscales=np.ones(COLUMNS))
    svgp = gpflow.models.SVGP(kernel, gpflow.likelihoods.Gaussian(0.1), X[:size].copy(), num_data=ROWS)
    gpflow.set_trainable(svgp.q_mu, False)
    gpflow.set_trainable(svgp.q_sqrt, False)
    natural, adam = gpflow.optimizers.NaturalGradient(0.1), tf.keras.optimizers.Adam(1e-2)
    batches = tf.data.Dataset.from_tensor_slices((X, y[:, None])).repeat().shuffle(ROWS).batch(BATCH)
    loss = svgp.training_loss_closure(iter(batches), compile=False)

    @tf.function
    def both():
        natural.minimize(loss, [(svgp.q_mu, svgp.q_sqrt)])
        with tf.GradientTape() as tape:
            value = loss()
        variables = svgp.trainable_variables
        adam.apply_gradients(zip(tape.gradient(value, variables), variables, strict=True))
        return value

    return lambda: float(both())


@pytest.mark.parametrize("size", [128, 512])
def test_a_step_is_no_slower_than_gpflows(size):
    pytest.importorskip("gpflow", reason="the peer is not installed; 2026-11")
    (own, first), (peer, peer_first) = (seconds(make(size), repeats=REPEATS) for make in (ours, theirs))
    print(f"\nM={size}: ours {1e3 * own:.1f} ms (first {first:.1f} s), GPflow {1e3 * peer:.1f} ms ({peer_first:.1f} s)")
    assert own < peer
