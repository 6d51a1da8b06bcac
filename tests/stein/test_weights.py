"""Weights of particles: masses of modes in closed form, evidences, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from jax.scipy.special import logsumexp
from scipy import stats

import numpyro_gp as ngp
from numpyro_gp.stein import RBF, SVGD, weights
from numpyro_gp.stein.weights import DEGREES, Centres, _draws_of_each, _log_weights

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


@pytest.mark.long
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
def test_a_tail_that_is_longer_than_the_curvature_says_is_found():
    """0.6 of the mass is the logarithm of a Gamma(0.1) variable, sqrt(10) wide at its mode and 10 wide to the left.

    Draws around the particles alone give 0.564 and a log evidence of -0.09.
    """

    def model():
        u, wide = numpyro.sample("u", dist.Normal(0.0, 100.0)), dist.Normal(0.0, 100.0)
        log_gamma = 0.1 * (u + 4) - jnp.exp(u + 4) - jax.scipy.special.gammaln(0.1)
        both = jnp.logaddexp(jnp.log(0.6) + log_gamma, jnp.log(0.4) + dist.Normal(6.0, 0.3).log_prob(u))
        numpyro.factor("density", both - wide.log_prob(u))

    start = {"u": jnp.array([-6.3, -6.3, -6.29, -6.28, 6.04, 6.15])}
    svgd = SVGD(model, optax.adam(0.05), RBF(), 6, init_particles=start)
    found = weights(jax.random.key(2), svgd, svgd.init(KEY))
    np.testing.assert_allclose(found.weights[:4].sum(), 0.6, atol=0.025)
    np.testing.assert_allclose(found.log_evidence, 0.0, atol=0.04)


@pytest.mark.long
def test_weights_are_refused_where_too_few_draws_count_or_rows_are_missing():
    svgd, state = engine([-2.0, 2.0])
    with pytest.raises(ValueError, match="the number of draws that count must be at least 100, but got"):
        weights(KEY, svgd, state, 0.0, num_draws=60)
    with pytest.raises(ValueError, match="num_draws must be at least two for each of the 2 particles, but got 3"):
        weights(KEY, svgd, state, 0.0, num_draws=3)

    def model(y, batch=None):
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        with numpyro.plate("data", 6, subsample_size=batch) as rows:
            numpyro.sample("y", dist.Normal(a, 1.0), obs=y[rows])

    svgd = SVGD(model, optax.adam(0.1), num_stein_particles=3)
    state = svgd.init(KEY, jnp.zeros(6), batch=2)
    with pytest.raises(ValueError, match="args must be whole data, but got a minibatch"):
        weights(KEY, svgd, state, jnp.zeros(6), batch=2)


@pytest.mark.long
def test_particles_of_one_mode_weigh_the_same_and_a_stranded_one_nothing():
    """An eighth each, and quantiles of the normal posterior keep its standard deviation, 2; one is 50 sd away."""
    start = 2.0 * stats.norm.ppf((np.arange(8) + 0.5) / 8)

    def model():
        numpyro.sample("a", dist.Normal(0.0, 2.0))

    svgd = SVGD(model, optax.adam(0.01), num_stein_particles=8, init_particles={"a": jnp.asarray(start)})
    found = weights(KEY, svgd, svgd.init(KEY)).weights
    np.testing.assert_allclose(found, 1 / 8, rtol=1e-6)
    start = np.append(start, 100.0)
    svgd = SVGD(model, optax.adam(0.01), num_stein_particles=9, init_particles={"a": jnp.asarray(start)})
    np.testing.assert_allclose(weights(KEY, svgd, svgd.init(KEY)).weights, [1 / 8] * 8 + [0], atol=1e-4)


def test_parts_that_have_more_draws_weigh_no_more():
    """Three parts far apart, 3, 2 and 2 draws of them: by equal weights the first would have 3/7 of the mass."""
    around = Centres(jnp.array([[-100.0], [0.0], [100.0]]), jnp.ones((3, 1, 1)), jnp.ones((3, 1, 1)))
    draws = around.draw(KEY, 7)
    parts = around.log_densities(draws)
    log_weight = _log_weights(logsumexp(parts, axis=1) - jnp.log(3.0), parts, _draws_of_each(3, (7,)))
    own = np.bincount(np.arange(7) % 3, np.exp(log_weight))
    np.testing.assert_allclose(own, 1 / 3, rtol=1e-6)
    np.testing.assert_array_equal(_draws_of_each(3, (7, 5)), [3, 2, 2, 2, 2, 1])


@pytest.mark.long
def test_draws_have_the_law_of_their_density():
    """Student's t of five degrees around 2, 0.5 wide: its quartiles by SciPy, and its density."""
    around = Centres(jnp.array([[2.0]]), jnp.full((1, 1, 1), 0.5), jnp.full((1, 1, 1), 2.0))
    draws, law = around.draw(KEY, 4000), stats.t(DEGREES, 2.0, 0.5)
    assert stats.kstest(np.asarray(draws[:, 0]), law.cdf).pvalue > 1e-3
    np.testing.assert_allclose(around.log_densities(draws)[:, 0], law.logpdf(draws[:, 0]), rtol=1e-6)
