"""Effects: the numbers are those of the posterior's mixture."""

import jax
import numpy as np
import pytest
from numpyro import handlers

import numpyro_gp as ngp
from tests.oracles.additive import design_posterior


@pytest.mark.long
def test_effects_are_the_moments_of_the_mixture():
    """Mean of the draws' variances plus variance of their means; either alone is too small."""
    X, layout, model, stored = design_posterior()
    posterior = ngp.Posterior.from_mcmc(model, stored)
    found = ngp.effects(posterior, jax.random.key(1), X, design=layout, grid=7)
    assert set(found) == {"age", "sex", "dose", "age:dose", "age:sex"}
    assert found["age:sex"].mean.shape == (3, 2)
    at = np.repeat(X[:1], 7, axis=0)
    at[:, 2] = np.linspace(X[:, 2].min(), X[:, 2].max(), 7)
    mapped = layout.map(at)

    def moments(draw):
        with handlers.seed(rng_seed=0), handlers.substitute(data=draw):
            one = layout.process("f").components(mapped)["dose"]
        return one.loc, one.variance

    means, variances = jax.jit(jax.vmap(moments))(stored)
    np.testing.assert_allclose(found["dose"].mean, np.mean(means, 0), atol=1e-10)
    np.testing.assert_allclose(found["dose"].scale ** 2, np.mean(variances, 0) + np.var(means, 0), rtol=1e-8)


@pytest.mark.long
def test_too_few_points_for_a_curve():
    X, layout, model, stored = design_posterior()
    with pytest.raises(ValueError, match="grid must be at least 2"):
        ngp.effects(ngp.Posterior.from_mcmc(model, stored), jax.random.key(0), X, design=layout, grid=1)
