"""Effect plots: the numbers that they draw are the posterior's, and every panel is there."""

import jax
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import numpyro
import pytest
from numpyro import handlers

mpl.use("Agg")

import numpyro_gp as ngp
from numpyro_gp import anova
from numpyro_gp.likelihoods import Gaussian


def setup(draws=3):
    """Points as posterior draws of a design with a category and an interaction."""
    rng = np.random.default_rng(0)
    X = np.stack([rng.uniform(10, 30, 40), rng.choice([2.0, 5.0], 40), rng.normal(size=40)], 1)
    layout = anova.design(
        X, names=["age", "sex", "dose"], categorical=["sex"], pairs=[("age", "dose"), ("age", "sex")],
        num_inducing=4, pair_inducing=3,
    )  # fmt: skip
    model = layout.model(lambda: Gaussian(0.1))
    keys = jax.random.split(jax.random.key(0), draws)
    trace = jax.vmap(lambda key: _latents(model, X, key))(keys)
    return X, layout, model, trace


def _latents(model, X, key):
    with handlers.seed(rng_seed=key):
        trace = handlers.trace(model).get_trace(X)
    return {n: s["value"] for n, s in trace.items() if s["type"] == "sample" and n != "y"}


def test_effects_are_the_moments_of_the_mixture():
    """Mean of the draws' variances plus variance of their means; either alone is too small."""
    X, layout, model, stored = setup()
    posterior = ngp.Posterior.from_mcmc(model, stored)
    found = ngp.effects(posterior, jax.random.key(1), X, design=layout, grid=7)
    assert set(found) == {"age", "sex", "dose", "age:dose", "age:sex"}
    assert found["age:sex"].mean.shape == (3, 2)
    at = np.repeat(X[:1], 7, axis=0)
    at[:, 2] = np.linspace(X[:, 2].min(), X[:, 2].max(), 7)
    means, variances = [], []
    for s in range(3):
        with handlers.seed(rng_seed=0), handlers.substitute(data={k: v[s] for k, v in stored.items()}):
            one = layout.process("f").components(layout.map(at))["dose"]
        means.append(np.asarray(one.loc))
        variances.append(np.asarray(one.variance))
    np.testing.assert_allclose(found["dose"].mean, np.mean(means, 0), atol=1e-10)
    np.testing.assert_allclose(found["dose"].scale ** 2, np.mean(variances, 0) + np.var(means, 0), rtol=1e-8)


def test_one_call_draws_every_panel():
    import matplotlib.pyplot as plt

    X, layout, model, stored = setup()
    posterior = ngp.Posterior.from_mcmc(model, stored)
    figure = ngp.plot_effects(
        posterior, jax.random.key(1), X, design=layout, grid=6, num_samples=6, truth={"age": np.sin}, response="y"
    )
    titles = [axis.get_title() for axis in figure.axes]
    assert {"age", "sex", "dose", "age:dose", "age:sex", "Sobol indices"} <= set(titles)
    age = figure.axes[titles.index("age")]
    assert (age.get_xlabel(), age.get_ylabel()) == ("age", "y")
    assert "90 %" in figure.get_suptitle()
    figure.canvas.draw()
    plt.close(figure)


def test_without_a_design():
    import matplotlib.pyplot as plt

    X = np.random.default_rng(0).uniform(size=(20, 2))

    def model(X, y=None):
        line = jnp.linspace(0, 1, 3)[:, None] * jnp.ones((1, 2))
        kernels = {name: ngp.kernels.RBF(1.0, 0.4).on(d) for d, name in enumerate("ab")}
        f = ngp.additive_gp("f", kernels, {"a": line, "b": line})
        with numpyro.plate("data", len(X)):
            ngp.observe("y", f(X), Gaussian(0.1), obs=y)

    posterior = ngp.Posterior.from_mcmc(model, {"f": jnp.ones((2, 6))})
    figure = ngp.plot_effects(posterior, jax.random.key(0), X, names=["u", "v"], indices=False, grid=5)
    assert [axis.get_xlabel() for axis in figure.axes] == ["u", "v"]
    plt.close(figure)
    with pytest.raises(ValueError, match="names must be 2 names, one for each column of X"):
        ngp.plot_effects(posterior, jax.random.key(0), X, names=["u"], indices=False)
    with pytest.raises(ValueError, match="level must be less than 1"):
        ngp.plot_effects(posterior, jax.random.key(0), X, level=90)
    with pytest.raises(ValueError, match="grid must be at least 2"):
        ngp.effects(posterior, jax.random.key(0), X, grid=1)
