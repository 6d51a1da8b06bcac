"""The prior and the belief of a GP site: densities, draws, gradients, plates, and bad values."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro.distributions.kl import kl_divergence
from numpyro.infer import TraceGraph_ELBO
from scipy import stats

import numpyro_gp as ngp
from numpyro_gp.beliefs import Basis
from numpyro_gp.sites import InducingPrior
from tests.oracles.build import basis_of
from tests.oracles.vectors import cases


def site(size=3, outputs=None):
    basis = Basis.build(ngp.kernels.RBF(1.0, 1.0), jnp.linspace(0.0, 2.0, size)[:, None])
    return InducingPrior("f", basis, (size,) if outputs is None else (outputs, size))


@pytest.mark.parametrize("outputs", [None, 2])
def test_a_point_is_scored_by_its_standard_normal_density(rng, outputs):
    prior = site(outputs=outputs)
    v = rng.normal(size=prior.event_shape)
    np.testing.assert_allclose(prior.log_prob(jnp.asarray(v)), stats.norm.logpdf(v).sum(), rtol=1e-13)
    batch = rng.normal(size=(5, *prior.event_shape))
    assert prior.log_prob(jnp.asarray(batch)).shape == (5,)


@pytest.mark.parametrize("case", cases("svgp"))
def test_a_belief_is_scored_by_minus_its_kl(case):
    prior = InducingPrior("f", basis_of(case), (5,))
    belief = ngp.beliefs.Coupled(jnp.asarray(case["m"]), jnp.asarray(case["S_chol"]))
    np.testing.assert_allclose(prior.log_prob(belief), -case["kl"], atol=1e-9)
    np.testing.assert_allclose(kl_divergence(ngp.Belief(belief), prior), case["kl"], atol=1e-9)
    assert ngp.Belief(belief).log_prob(belief) == 0.0


def test_sites_in_plates_expand_flatten_and_pickle_and_a_belief_is_a_point_mass():
    assert site().expand((4,)).sample(jax.random.key(0)).shape == (4, 3)
    leaves, structure = jax.tree.flatten(site())
    for again in (jax.tree.unflatten(structure, leaves), pickle.loads(pickle.dumps(site()))):
        assert again.event_shape == (3,)
    belief = ngp.beliefs.Coupled(jnp.arange(3.0), 2 * jnp.eye(3))
    fn = ngp.Belief(belief)
    assert fn.sample(jax.random.key(0)) is belief
    assert fn.event_shape == pickle.loads(pickle.dumps(fn)).value.shape == (3,)
    np.testing.assert_array_equal(fn.mean, np.arange(3.0))
    np.testing.assert_allclose(fn.variance, 4.0)


def test_prior_draws_are_standard_normal():
    draws = site(outputs=2).sample(jax.random.key(1), (15000,))
    assert draws.shape == (15000, 2, 3)
    np.testing.assert_allclose(draws.mean(0), 0.0, atol=0.04)
    np.testing.assert_allclose(draws.std(0), 1.0, atol=0.03)


def test_gradients_reach_a_belief_also_where_numpyro_asks_whether_a_site_is_reparametrised():
    """Of ``KL = |m|^2 / 2``; stopped at the site they are zero."""

    def model(mean):
        numpyro.sample("f", site())

    def guide(mean):
        numpyro.sample("f", ngp.Belief(ngp.beliefs.Coupled(mean, jnp.eye(3))))

    mean = jnp.array([0.5, -1.0, 2.0])
    loss = lambda mean: TraceGraph_ELBO().loss(jax.random.key(0), {}, model, guide, mean)  # noqa: E731
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(mean), mean, rtol=1e-12)
