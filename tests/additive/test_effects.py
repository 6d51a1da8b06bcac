"""Effects: the numbers are those of the posterior's mixture."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro import handlers

import numpyro_gp as ngp
from tests.oracles.additive import design_posterior


@pytest.mark.long
def test_effects_are_the_moments_of_the_mixture_and_the_model_of_a_design_needs_no_design():
    """Mean of the draws' variances plus variance of their means; either alone is too small.

    Without the design raw rows were taken for mapped ones: effects were those of the prior, far outside of the range.
    """
    X, layout, model, stored = design_posterior()
    posterior = ngp.Posterior.from_mcmc(model, stored)
    given, found = (ngp.effects(posterior, jax.random.key(1), X, design=one, grid=7) for one in (layout, None))
    assert list(given) == list(found)
    for name, effect in given.items():
        assert effect.columns == found[name].columns
        np.testing.assert_array_equal(effect.mean, found[name].mean)
        np.testing.assert_array_equal(effect.scale, found[name].scale)
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
    with pytest.raises(ValueError, match="grid must be at least 2"):
        ngp.effects(posterior, jax.random.key(0), X, design=layout, grid=1)
    figure = ngp.plot_effects(posterior, jax.random.key(1), X, names=["u", "v", "w"], grid=7, indices=False)
    assert figure.axes[0].get_xlabel() == "u"


@pytest.mark.long
@pytest.mark.parametrize(
    "kernel", [ngp.kernels.CategoryDelta(1.0), ngp.kernels.Coregion(jnp.ones((3, 1)), jnp.ones(3))]
)
def test_categories_of_a_hand_written_model_are_shown_at_their_levels(kernel):
    """A line of 80 points between codes 0 and 2 showed the prior, 0 and 1, at 78 codes that do not exist."""
    X = np.stack([np.linspace(0.0, 1.0, 12), np.arange(12) % 3], axis=1)
    inducing = {"x": jnp.asarray(X[::4]), "level": jnp.asarray(X[:3]), "both": jnp.asarray(X[:3])}

    def model(X):
        smooth = ngp.kernels.RBF(1.0, 0.4).on(0)
        kernels = {"x": smooth, "level": 2.0 * kernel.on(1), "both": smooth * kernel.on(1)}
        f = ngp.additive_gp("f", kernels, inducing)
        with numpyro.plate("data", len(X)):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.3))

    values = np.random.default_rng(0).normal(size=(2, 9))
    posterior = ngp.Posterior.from_mcmc(model, {"f": values})
    found = ngp.effects(posterior, jax.random.key(0), X)
    assert found["x"].mean.shape == (80,)
    assert found["both"].mean.shape == (32, 3)
    assert found["level"].is_category == (True,)
    np.testing.assert_array_equal(found["level"].axes[0], [0.0, 1.0, 2.0])
    assert np.all(np.isfinite(found["level"].mean))
    assert np.ptp(found["level"].mean) > 0.01
    figure = ngp.plot_effects(posterior, jax.random.key(0), X, indices=False)
    assert [text.get_text() for text in figure.axes[1].get_xticklabels()] == ["0\n33 %", "1\n33 %", "2\n33 %"]
