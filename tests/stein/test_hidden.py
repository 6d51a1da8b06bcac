"""Latent values that a mask hides, or that stand outside of a minibatch: the others move as though they were not there."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro import handlers

from numpyro_gp.stein import IMQ, RBF, SVGD, Curvature, Moments
from tests.stein.models import state_of

Y = jnp.array([[1.0, 1.2, 0.8], [-0.5, -0.3, -0.6], [2.0, 1.8, 2.1], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
SHOWN = jnp.array([True, True, True, False, False])
RNG = np.random.default_rng(4)
START = {"scale": RNG.gamma(4.0, size=4), "level": RNG.normal(size=(4, 5, 1)), "noise": RNG.gamma(4.0, size=(4, 5, 1))}


def groups(count, mask):
    """Three groups, and as many more that a mask hides as ``count`` has: padding of ragged data."""
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
    with numpyro.plate("group", count, dim=-2), handlers.mask(mask=mask):
        level = numpyro.sample("level", dist.Normal(0.0, 1.0))
        noise = numpyro.sample("noise", dist.Gamma(2.0, 2.0))
        with numpyro.plate("data", 3, dim=-1):
            numpyro.sample("y", dist.Normal(scale * level, 0.1 + noise), obs=Y[:count])


def after(kernel, metric, count, mask):
    """Engine and particles after three steps, of which two measure."""
    start = {name: value if value.ndim == 1 else value[:, :count] for name, value in START.items()}
    svgd = SVGD(groups, optax.adam(0.05), kernel, 4, metric=metric, init_particles=start)
    state = state_of(svgd, count, mask)
    step = jax.jit(lambda state: svgd.update(state, count, mask)[0])
    for _ in range(3):
        state = step(state)
    return svgd.particles(state)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kernel", "metric"),
    [(RBF(), None), (Moments(IMQ(per_coordinate=True)), None), (Moments(), Curvature(every=2))],
    ids=["RBF", "moments", "curvature"],
)
def test_groups_that_a_mask_hides_are_as_if_they_were_not_there(kernel, metric):
    """In distances they took the others' repulsion away; they ran to infinity, at the first step with a metric."""
    padded, alone = after(kernel, metric, 5, SHOWN[:, None]), after(kernel, metric, 3, True)
    np.testing.assert_allclose(padded["scale"], alone["scale"], rtol=1e-9)
    assert np.abs(alone["scale"] / START["scale"] - 1).max() > 0.05, "the particles have moved"
    for name in ("level", "noise"):
        np.testing.assert_allclose(padded[name][:, :3], alone[name], rtol=1e-8)
        # A step is 0.05; Adam makes 1e-7 of rounding in the coordinates of a metric.
        np.testing.assert_allclose(padded[name][:, 3:], START[name][:, 3:], rtol=0, atol=1e-6)


@pytest.mark.long
def test_a_prior_that_is_masked_away_hides_no_value_that_data_read():
    def flat(y):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0).mask(False))
        numpyro.sample("y", dist.Normal(x, 1.0), obs=y)

    svgd = SVGD(flat, optax.sgd(0.5), RBF(), 2, init_particles={"x": jnp.array([-1.0, 1.0])})
    state = state_of(svgd, jnp.array(0.0))
    x = svgd.particles(svgd.update(state, jnp.array(0.0))[0])["x"]
    # Squared distance 4, h = 4 / log 3: the kernel is 1/3, its slope in the other's place 2 * 2 / h / 3 = log(3) / 3.
    np.testing.assert_allclose(x[1], 1 + 0.5 * 0.5 * (-1 + 1 / 3 + np.log(3) / 3), rtol=1e-12)


@pytest.mark.long
def test_entries_outside_of_the_minibatch_of_a_measurement_do_not_run_away():
    def local(y, batch):
        with numpyro.plate("rows", 4, subsample_size=batch) as index:
            w = numpyro.sample("w", dist.Normal(0.0, 1.0))
            numpyro.sample("y", dist.Normal(w, 0.5), obs=y[index])

    svgd = SVGD(local, optax.adam(0.1), IMQ(), 3, metric=Curvature())
    state = state_of(svgd, jnp.arange(4.0), 1)
    moved = svgd.update(state, jnp.arange(4.0), 1)[0]
    # One row of four, four times: 4 (1 + 1 / 0.25); of the others nothing is known yet.
    np.testing.assert_allclose(sorted(np.diag(moved.optim_state.curvature)), [1.0, 1.0, 1.0, 20.0], rtol=1e-9)
    assert np.abs(svgd.unconstrained(moved)["w"] - svgd.unconstrained(state)["w"]).max() <= 0.1 * (1 + 1e-6)
