"""The target of particles: an independent statement of it, its minibatch, and how often a step evaluates it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.contrib import einstein
from numpyro.infer.util import potential_energy

from numpyro_gp.stein import RBF, SVGD
from tests.stein.models import KEY, LABELS, X, gp_model, state_of


@pytest.mark.long
def test_scores_are_gradients_of_numpyros_potential():
    """NumPyro's HMC potential holds the Jacobian: an independent statement of the same target."""
    svgd = SVGD(gp_model, optax.sgd(0.1), num_stein_particles=3)
    state = state_of(svgd, X, LABELS)
    free, scores = svgd.unconstrained(state), svgd.scores(state, X, LABELS)
    assert scores["f"].shape == (3, 4)
    assert scores["weights"].shape == (3, 2)
    for number in range(3):
        one = {name: value[number] for name, value in free.items()}
        gradient = jax.grad(lambda one: -potential_energy(gp_model, (X, LABELS), {}, one))(one)
        for name, value in gradient.items():
            np.testing.assert_allclose(scores[name][number], value, rtol=1e-9, atol=1e-10)


@pytest.mark.long
def test_the_jacobian_of_a_simplex():
    """Dirichlet(2, 3, 4) has means 2/9, 3/9, 4/9; without the Jacobian the modes differ: (1, 2, 3) / 6."""
    with jax.numpy_rank_promotion("allow"):  # NumPyro's stick breaking promotes ranks
        model = lambda: numpyro.sample("w", dist.Dirichlet(jnp.array([2.0, 3.0, 4.0])))  # noqa: E731
        svgd = SVGD(model, optax.adam(0.1), num_stein_particles=30)
        result = svgd.run(KEY, 300, progress_bar=False)
    np.testing.assert_allclose(svgd.particles(result.params)["w"].mean(0), np.array([2, 3, 4]) / 9, atol=0.015)


@pytest.mark.long
def test_minibatch_is_shared_and_scaled():
    def model(y, batch):
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        with numpyro.plate("data", y.shape[0], subsample_size=batch) as index:
            numpyro.deterministic("index", index)
            numpyro.sample("y", dist.Normal(mean, 1.0), obs=y[index])

    y = jnp.asarray(2.0 ** np.arange(6))  # any batch is known by its sum
    svgd = SVGD(model, optax.sgd(0.1), num_stein_particles=5)
    state = state_of(svgd, y, 2)
    mean, score = svgd.unconstrained(state)["mean"], svgd.scores(state, y, 2)["mean"]
    # score = -mean + (N / N_b) sum_b (y - mean), with N / N_b = 3
    batch_sum = (np.asarray(score) + np.asarray(mean)) / 3 + 2 * np.asarray(mean)
    np.testing.assert_allclose(batch_sum, batch_sum[0], rtol=1e-9)
    sums = [float(y[i] + y[j]) for i in range(6) for j in range(i)]
    assert np.min(np.abs(np.array(sums) - batch_sum[0])) < 1e-9
    following = svgd.update(state, y, 2)[0]
    assert not np.allclose(svgd.scores(following, y, 2)["mean"], score), "the next step has its own batch"


def counting_model(counter, y, batch):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", y.shape[0], subsample_size=batch) as index:
        value = numpyro.sample("y", dist.Normal(mean, 1.0), obs=y[index])
    jax.debug.callback(lambda *_: counter.append(1), mean, jnp.sum(value))


def evaluations_of_a_step(engine, batch, n):
    counter = []
    svgd = engine(functools.partial(counting_model, counter), numpyro.optim.SGD(0.1), n)
    state = jax.tree.map(jnp.asarray, svgd.init(KEY, jnp.arange(8.0), batch))
    step = jax.jit(lambda state: svgd.update(state, jnp.arange(8.0), batch)[0])
    jax.block_until_ready(step(state))
    jax.effects_barrier()
    counter.clear()
    jax.block_until_ready(step(state))
    jax.effects_barrier()
    return len(counter)


@pytest.mark.long
@pytest.mark.parametrize("batch", [None, 4])
@pytest.mark.parametrize("evaluation", ["vmap", "map"])
def test_a_step_evaluates_one_score_a_particle(batch, evaluation):

    def engine(model, optim, n):
        return SVGD(model, optim, RBF(), n, evaluation=evaluation)

    assert evaluations_of_a_step(engine, batch, 20) == 20


@pytest.mark.long
def test_numpyros_step_evaluates_a_score_a_pair_on_minibatches():
    """Why the class above exists; if this fails NumPyro has changed for the better."""

    def engine(model, optim, n):
        return einstein.SVGD(model, optim, einstein.RBFKernel(), n)

    assert evaluations_of_a_step(engine, 4, 20) >= 400
