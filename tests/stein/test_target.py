"""The target of particles: an independent statement of it, its minibatch, and how often a step evaluates it."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer.util import potential_energy

from numpyro_gp.stein import SVGD
from tests.stein.models import KEY, LABELS, X, gp_model, state_of


@pytest.mark.long
def test_scores_are_gradients_of_numpyros_potential():
    """NumPyro's HMC potential holds the Jacobian: an independent statement of the same target, and of its value."""
    svgd = SVGD(gp_model, optax.sgd(0.1), num_stein_particles=3)
    state = state_of(svgd, X, LABELS)
    free, scores = svgd.unconstrained(state), svgd.scores(state, X, LABELS)
    assert scores["f"].shape == (3, 4)
    assert scores["weights"].shape == (3, 2)
    both = jax.jit(jax.value_and_grad(lambda one: -potential_energy(gp_model, (X, LABELS), {}, one)))
    expected, gradients = zip(*[both(jax.tree.map(lambda leaf, n=n: leaf[n], free)) for n in range(3)])
    for number, gradient in enumerate(gradients):
        for name, value in gradient.items():
            np.testing.assert_allclose(scores[name][number], value, rtol=1e-9, atol=1e-10)
    for given in (state, svgd.get_params(state)):
        np.testing.assert_allclose(svgd.log_density(given, X, LABELS), expected, rtol=1e-9)
    assert svgd.judge(state, X, LABELS).coordinates == sum(v[0].size for v in free.values())
    assert svgd.judge(state, X, LABELS, batch=6) is None


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


SHOWN = jnp.array([True, False, True])


def masked_sites(y, batch=None):
    """Constrained sites of which a mask hides some: a row each, within an event, and a vector each."""
    with numpyro.plate("data", 3, subsample_size=batch) as index, numpyro.handlers.mask(mask=SHOWN[index]):
        rate = numpyro.sample("rate", dist.Weibull(3.0, 2.0))
        numpyro.sample("y", dist.Normal(rate, 1.0), obs=y[index])
    numpyro.sample("within", dist.Weibull(jnp.array([2.0, 3.0, 4.0]), 2.0).mask(SHOWN).to_event(1))
    with numpyro.plate("vectors", 2), numpyro.handlers.mask(mask=jnp.array([False, True])):
        numpyro.sample("share", dist.Dirichlet(jnp.array([2.0, 3.0])))


@pytest.mark.long
def test_what_a_mask_hides_has_no_jacobian():
    """With it the score of a hidden positive entry was one, for ever: particles went to infinity there."""
    y = jnp.array([1.0, 2.0, 3.0])
    svgd = SVGD(masked_sites, optax.sgd(0.1), num_stein_particles=2)
    with jax.numpy_rank_promotion("allow"):
        state = state_of(svgd, y)
        found = svgd.scores(state, y)
        slope = jax.jit(jax.grad(lambda one: -potential_energy(masked_sites, (y,), {}, one)))
        for number in range(2):
            one = {name: value[number] for name, value in svgd.unconstrained(state).items()}
            # The mask within the event hides no Jacobian from NumPyro: its potential falls for ever. Written out below.
            gradient = slope(one)
            for name in ("rate", "share"):
                np.testing.assert_allclose(found[name][number], gradient[name], rtol=1e-9, atol=1e-12)
            # Weibull(a, 2) of exp(u): the score in u is 2 - 2 (exp(u) / a)^2
            score = 2 - 2 * (jnp.exp(one["within"]) / jnp.array([2.0, 3.0, 4.0])) ** 2
            wanted = jnp.where(SHOWN, score, 0.0)
            np.testing.assert_allclose(found["within"][number], wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.long
def test_masked_sites_of_a_minibatch_have_the_scores_of_all_on_average():
    y = jnp.array([1.0, 2.0, 3.0])
    svgd = SVGD(masked_sites, optax.sgd(0.1), num_stein_particles=1)
    with jax.numpy_rank_promotion("allow"):
        with pytest.warns(
            UserWarning, match="handlers.mask hides rows of rate in a plate of which a step sees only some"
        ):
            batched = state_of(svgd, y, 1)
        u = svgd.unconstrained(batched)["rate"][0]
        step = jax.jit(lambda key: svgd.scores(batched._replace(rng_key=key), y, 1)["rate"][0])
        rows = np.unique(np.round(np.asarray(jax.vmap(step)(jax.random.split(KEY, 40))), 12), axis=0)
    assert len(rows) == 3, "a batch is one of three rows, of which one is hidden"
    rate = jnp.exp(u)
    wanted = jnp.where(SHOWN, 2 - 2 * (rate / 3) ** 2 + (y - rate) * rate, 0.0)
    np.testing.assert_allclose(rows.mean(axis=0), wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("scale", [0.2, jnp.array([1.0, 2.0, 1.0])])
def test_a_mask_that_hides_nothing_changes_nothing(scale):
    """A user's scale is of densities, and not of Jacobians."""

    def model(mask):
        with numpyro.handlers.scale(scale=scale), numpyro.plate("p", 3), numpyro.handlers.mask(mask=mask):
            numpyro.sample("r", dist.Weibull(2.0, 2.0))
            numpyro.sample("w", dist.Beta(2.0, 3.0))

    found = []
    for mask in (True, jnp.ones(3, bool)):
        svgd = SVGD(model, optax.sgd(0.1), num_stein_particles=2)
        # A logit of 37: the inverse of what the transform made of it is infinite, or has no slope.
        svgd.init_particles = {"w": jnp.full((2, 3), 1 - 1e-16), "r": jnp.full((2, 3), 2.0)}
        with jax.numpy_rank_promotion("allow"):  # NumPyro's Beta promotes ranks
            state = state_of(svgd, mask)
            found.append(svgd.scores(state, mask))
    for name, wanted in found[0].items():
        np.testing.assert_allclose(found[1][name], wanted, rtol=1e-12)


@pytest.mark.long
def test_particles_of_minibatches_do_not_take_all_rows_for_granted():
    """Their guide goes on to draw four rows: a score on "all" data was that of a minibatch, without a word."""

    def local(y, batch=None):
        scale = numpyro.sample("scale", dist.Weibull(3.0, 2.0))
        with numpyro.plate("data", len(y), subsample_size=batch) as index:
            z = numpyro.sample("z", dist.Normal(0.0, 1.0))
            numpyro.sample("y", dist.Normal(z, scale), obs=y[index])

    y = jnp.arange(12.0)
    svgd = SVGD(local, optax.sgd(0.1), num_stein_particles=2)
    state = state_of(svgd, y, 4)
    assert svgd.scores(state, y, 4)["z"].shape == (2, 12)
    with pytest.raises(ValueError, match=r"plate 'data' must be of 4 of 12 rows, as at the start .* got 12 of 12"):
        svgd.scores(state, y)
    with pytest.raises(ValueError, match=r"plate 'data' must be of 4 of 12 rows, as at the start .* got 4 of 6"):
        svgd.scores(state, y[:6], 4)
