"""Weights of particles: masses of modes in closed form, evidences, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest

import numpyro_gp as ngp
from numpyro_gp.stein import RBF, SVGD, weights

KEY = jax.random.key(0)
MASS = 0.3


def two_modes(shift=0.0):
    """0.3 of the mass near e^-2, the rest near e^2; the integral of the target is e^shift."""
    u = jnp.log(numpyro.sample("rate", dist.LogNormal(0.0, 3.0)))
    modes = [jnp.log(mass) + dist.Normal(at, 0.3).log_prob(u) for mass, at in ((MASS, -2.0), (1 - MASS, 2.0))]
    numpyro.sample("b", dist.Normal(0.0, 2.0))
    numpyro.factor("shift", shift + jnp.logaddexp(*modes) - dist.Normal(0.0, 3.0).log_prob(u))


def engine(rates):
    start = {"rate": jnp.exp(jnp.asarray(rates)), "b": jnp.linspace(-3.0, 3.0, len(rates))}
    svgd = SVGD(two_modes, optax.adam(0.05), RBF(), len(rates), init_particles=start)
    return svgd, svgd.init(KEY, 0.0)


def test_masses_are_those_of_the_modes_and_not_of_the_numbers_of_particles():
    svgd, state = engine([-2.2, -2.0, -1.9, -2.1, -1.7, 2.1])
    found = weights(jax.random.key(1), svgd, state, 0.7)
    np.testing.assert_allclose(found.weights.sum(), 1.0, rtol=1e-9)
    assert abs(float(found.weights[:5].sum()) - MASS) < 0.05  # the numbers say 0.83
    assert 100 < found.effective_sample_size <= 2000
    np.testing.assert_allclose(found.log_evidence, 0.7, atol=0.1)
    posterior = ngp.Posterior.from_stein(two_modes, svgd, state, weights=found.weights)
    share = float((posterior.samples["rate"] < 1).mean())
    assert abs(share - MASS) < 0.06
    assert posterior.num_draws == 60


@pytest.mark.long
def test_weights_are_refused_where_too_few_draws_count_or_rows_are_missing():
    svgd, state = engine([-2.0, 2.0])
    with pytest.raises(ValueError, match="the number of draws that count must be at least 100, but got"):
        weights(KEY, svgd, state, 0.0, num_draws=60)

    def model(y, batch=None):
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        with numpyro.plate("data", 6, subsample_size=batch) as rows:
            numpyro.sample("y", dist.Normal(a, 1.0), obs=y[rows])

    svgd = SVGD(model, optax.adam(0.1), num_stein_particles=3)
    state = svgd.init(KEY, jnp.zeros(6), batch=2)
    with pytest.raises(ValueError, match="args must be whole data, but got a minibatch"):
        weights(KEY, svgd, state, jnp.zeros(6), batch=2)
