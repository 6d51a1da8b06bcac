"""The model function: its sites, weights as repeated rows, offsets, and priors of one's own."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density

import numpyro_gp as ngp

RNG = np.random.default_rng(0)
DATA = {
    "x": RNG.uniform(size=20),
    "g": np.array(list("ab") * 10),
    "e": RNG.uniform(1, 2, 20),
    "y": RNG.normal(size=20),
    "n": RNG.poisson(3.0, 20),
}


def trace(model, *args):
    return jax.eval_shape(lambda: _values(model, args))


def _values(model, args):
    found = handlers.trace(handlers.seed(model, 0)).get_trace(*args)
    return {name: site["value"] for name, site in found.items() if site["type"] == "sample"}


@pytest.mark.long
def test_sites_and_their_shapes():
    """Of single precision too; priors of one's own have sites of their own."""
    model = ngp.gam.model("y ~ s(x) + factor(g) + re(g)", DATA)
    found = trace(model, model.arguments[0])
    assert {name: value.shape for name, value in found.items()} == {
        "f_scale": (3,),
        "f_lengthscale": (1,),
        "f": (24 + 1 + 2 + 1,),
        "noise": (),
        "y": (20,),
    }
    assert list(trace(ngp.gam.model("y ~ 1", DATA), jnp.zeros((3, 1)))) == ["f", "noise", "y"]
    assert trace(model, model.arguments[0].astype(jnp.float32))["f"].dtype == jnp.float32
    terms = ngp.gam.s("x", scale=dist.HalfNormal(3.0), lengthscale=dist.Gamma(2.0, 1.0)) + ngp.gam.factor("g")
    model = ngp.gam.model(terms, DATA, response="y")
    found = trace(model, model.arguments[0])
    assert found["f_scale s(x)"].shape == ()
    assert found["f_lengthscale s(x)"].shape == (1,)
    assert found["f_scale"].shape == (1,)
    assert "f_lengthscale" not in found


def test_a_batch_has_the_numbers_of_its_rows():
    scale = np.linspace(0.5, 2.0, 20)
    model = ngp.gam.model("y ~ linear(x)", DATA, ngp.likelihoods.Gaussian(jnp.asarray(scale)))
    found = handlers.trace(handlers.seed(model, 0)).get_trace(*model.arguments, batch=5)
    np.testing.assert_allclose(found["y"]["fn"].likelihood.scale, scale[np.asarray(found["data"]["value"])])


@pytest.mark.long
def test_weights_are_repeated_rows():
    weights = np.where(np.arange(20) % 3 == 0, 3.0, 1.0)
    model = ngp.gam.model("n ~ linear(x)", DATA, "poisson", weights=weights)
    X, y, w = model.arguments
    at = np.repeat(np.arange(20), weights.astype(int))
    values = {"f_scale": jnp.ones(1), "f": jnp.array([0.3, -0.2])}
    density = lambda *args: float(jax.jit(lambda v: log_density(model, args, {}, v)[0])(values))  # noqa: E731
    weighted, repeated = density(X, y, w), density(X[at], y[at])
    np.testing.assert_allclose(weighted, repeated, rtol=1e-10)
    assert abs(weighted - density(X, y)) > 1.0
