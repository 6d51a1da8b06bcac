"""Importance weights at a known optimum and away from it."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro.infer import Trace_ELBO
from scipy import stats

import numpyro_gp as ngp
from numpyro_gp.criticism.weights import importance_weights, whitened_normal
from tests.contracts.compositions import Delegating as Delegate
from tests.fits import KERNEL, KEY, X, Y, Z, fit, known


def with_belief(belief):
    return ngp.Posterior.from_svi(known, lambda X, y=None: numpyro.sample("f", ngp.Belief(belief)), {})


@pytest.mark.long
def test_weights_at_the_optimum_are_the_bound_itself():
    """Every weight is the bound, for the bound is tight (mathematics.md section 8)."""
    posterior = fit("optimum")
    bound = -Trace_ELBO().loss(KEY, dict(posterior.params), known, posterior.guide, X, Y)
    found = importance_weights(posterior, jax.random.key(1), X, Y, num_samples=200)
    np.testing.assert_allclose(found.log_weights, bound, atol=1e-6)
    assert found.verdict == "good"
    assert f"k = {found.pareto_k:.2f} from 200 draws" in str(found)


@pytest.mark.long
def test_weights_of_a_users_belief():
    """Those of the belief it equals, one by one; a belief that says more than its whitened values is refused."""

    def weights(belief):
        return importance_weights(with_belief(belief), jax.random.key(1), X, Y, num_samples=25).log_weights

    size = len(Z)
    coupled = ngp.beliefs.Coupled(jnp.linspace(0.0, 1.0, size), 0.5 * jnp.eye(size) + 0.1 * jnp.tri(size))
    np.testing.assert_allclose(weights(Delegate(coupled)), weights(coupled), rtol=1e-6)
    for belief in (own := ngp.beliefs.Orthogonal(X[1::4], jnp.ones(3), *jax.tree.leaves(coupled)), Delegate(own)):
        with pytest.raises(TypeError, match="the belief at site 'f' must be a normal distribution of the whitened"):
            weights(belief)


@pytest.mark.long
def test_density_of_whitened_values(rng):
    """Against SciPy, at the moments of `draw_whitened`."""
    v, factor = rng.normal(size=3), np.tril(rng.normal(size=(3, 3)), -1) + np.diag(rng.uniform(0.5, 1, 3))
    mean, points = jnp.asarray(rng.normal(size=3)), jnp.linspace(0.0, 2.0, 3)[:, None]
    basis = ngp.beliefs.Basis.build(KERNEL, points)
    coupled = ngp.beliefs.Coupled(mean, jnp.asarray(factor))
    expected = stats.multivariate_normal(mean, factor @ factor.T).logpdf(v)
    np.testing.assert_allclose(whitened_normal("f", coupled, basis).log_prob(v), expected)
    field = ngp.beliefs.MeanField(mean, jnp.asarray([0.5, 1.0, 2.0]))
    expected = stats.norm.logpdf(v, mean, [0.5, 1.0, 2.0]).sum()
    np.testing.assert_allclose(whitened_normal("f", field, basis).log_prob(v), expected)
    with pytest.raises(TypeError, match="the belief at site 'f' must be a normal distribution of the whitened"):
        whitened_normal("f", ngp.beliefs.Orthogonal(points + 0.3, jnp.ones(3), mean, jnp.asarray(factor)), basis)
