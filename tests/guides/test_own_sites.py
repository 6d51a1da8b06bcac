"""Sites of a guide when it is called: their plates, masks and tracers."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
import pytest
from numpyro import handlers
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp
from tests.guides.test_auto import X, Y, process_alone


def test_a_mask_over_latent_inputs_is_refused():
    """The model hid their prior and the guide kept their entropy: scales of hidden rows grew without end."""

    def masked(X, y=None, seen=True):
        f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), jnp.ones((2, 2)) * jnp.arange(2.0)[:, None])
        with numpyro.plate("data", X.shape[0]), handlers.mask(mask=seen):
            w = ngp.latent_inputs("w", X)
            ngp.observe("y", f(w), ngp.likelihoods.Gaussian(0.3), obs=y)

    guide, seen = ngp.AutoGP(masked), jnp.arange(20) < 9
    with handlers.seed(rng_seed=0):
        guide(X, Y)  # nothing is masked
        for one in (guide, ngp.AutoGP(masked)):
            with pytest.raises(ValueError, match=r"site 'w' must be outside of handlers\.mask"):
                one(X, Y, seen)


def test_a_compiled_first_call_leaves_no_tracer_behind():
    """The start of `orthogonal` reads values of the prior: those of an earlier trace may not be used."""
    guide = ngp.AutoGP(process_alone, {"f": ngp.guides.orthogonal(X[3:5])})
    svi = SVI(process_alone, guide, optax.adam(0.01), Trace_ELBO())
    init = lambda key, X: svi.get_params(svi.init(key, X))  # noqa: E731
    with jax.checking_leaks():
        first = jax.jit(init)(jax.random.key(0), X)
    again = jax.jit(init)(jax.random.key(0), X)
    eager = init(jax.random.key(0), X)
    for name, value in first.items():
        np.testing.assert_array_equal(again[name], value)
        np.testing.assert_allclose(eager[name], value, rtol=1e-12)
    assert guide.median(first)["f"].shape == (3,)
    own = ngp.AutoGP(process_alone, {"f": ngp.guides.orthogonal(X[3:5])})
    alone = SVI(process_alone, own, optax.adam(0.01), Trace_ELBO())
    jax.jit(lambda key, X: alone.get_params(alone.init(key, X)))(jax.random.key(0), X)
    ngp.Posterior.from_svi(process_alone, own, first)  # whose check of the parameters has nothing but shapes
