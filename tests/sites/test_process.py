"""The prior and the belief of a GP site: densities, draws, gradients, plates, and bad values."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions.kl import kl_divergence
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
