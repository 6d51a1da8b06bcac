"""How a process opens its site: its place in NumPyro's handlers, its name and its plates."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density

import numpyro_gp as ngp
from tests.primitives.test_process import process


def simple(X, y=None):
    s = numpyro.sample("noise", dist.LogNormal(-1.0, 0.5))
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), X[:3])
    with numpyro.plate("data", len(X)):
        return ngp.observe("y", f(X), ngp.likelihoods.Gaussian(s), obs=y)


@pytest.mark.long
@pytest.mark.parametrize("value", ["point", "belief"])
def test_handlers(rng, value):
    """scope, block, mask, scale, condition, substitute, replay and jit leave the site what it is."""
    X, y = jnp.asarray(rng.normal(size=(5, 1))), jnp.asarray(rng.normal(size=5))
    held = jnp.asarray(rng.normal(size=3))
    held = held if value == "point" else ngp.beliefs.Coupled(held, 0.5 * jnp.eye(3))
    params = {"noise": jnp.asarray(0.3), "f": held}
    base, _ = log_density(simple, (X, y), {}, params)
    jitted = jax.jit(lambda p: log_density(simple, (X, y), {}, p)[0])(params)
    np.testing.assert_allclose(jitted, base, rtol=1e-12)
    scoped, trace = log_density(handlers.scope(simple, "a"), (X, y), {}, {f"a/{k}": v for k, v in params.items()})
    np.testing.assert_allclose(scoped, base, rtol=1e-12)
    assert "a/f" in trace
    doubled, _ = log_density(handlers.scale(simple, 2.0), (X, y), {}, params)
    np.testing.assert_allclose(doubled, 2 * base, rtol=1e-12)
    masked, _ = log_density(handlers.mask(simple, mask=False), (X, y), {}, params)
    assert masked == 0.0
    traced = handlers.trace(handlers.seed(handlers.substitute(simple, data=params), 0)).get_trace(X, y)
    replayed = handlers.trace(handlers.seed(handlers.replay(simple, traced), 1)).get_trace(X, y)
    np.testing.assert_allclose(replayed["y"]["fn"].mean_latent, traced["y"]["fn"].mean_latent)
    if value == "point":
        conditioned = handlers.condition(simple, data={"f": held})
        np.testing.assert_allclose(
            log_density(conditioned, (X, y), {}, {"noise": params["noise"]})[0], base, rtol=1e-12
        )


def test_values_of_other_plates_are_named():
    kernel, Z = ngp.kernels.RBF(1.0, 1.0), jnp.linspace(0.0, 1.0, 4)[:, None]
    with numpyro.plate("group", 3):
        with pytest.raises(
            ValueError,
            match=r"the belief at site 'f' must be over whitened values of shape \(3, 4\), those of plate 'group' of 3 on "
            r"the left, but got shape \(4,\)",
        ):
            process(ngp.beliefs.Coupled(jnp.zeros(4), jnp.eye(4)), kernel, Z)
        with pytest.raises(ValueError, match=r"the value at site 'f' must be .* \(3, 4\), .* but got shape \(2, 4\)"):
            process(jnp.zeros((2, 4)), kernel, Z)
