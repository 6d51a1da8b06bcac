"""Steps of a guide where a mask hides members of a plate: these stay where they are, and no NaN of theirs goes on."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
from numpyro import handlers
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp

X = jnp.asarray(np.random.default_rng(0).uniform(0.0, 2.0, size=(8, 2)))


def check_hidden_members_stay(opened, recipe, seen, rate, passed_over=()):
    """Two steps, natural and all: hidden members stay, seen ones and the kernel that all share move."""
    seen, y = jnp.asarray(seen), jnp.sin(3 * X[:, 0])[None] + jnp.arange(float(len(seen)))[:, None]

    def model():
        lengthscale = numpyro.param("lengthscale", 0.7)
        with numpyro.plate("group", len(seen), dim=-2), handlers.mask(mask=seen[:, None]):
            f = opened(ngp.kernels.RBF(1.0, lengthscale))
            with numpyro.plate("data", 8):
                ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.3), obs=y)

    svi = SVI(model, ngp.AutoGP(model, {"f": recipe}), ngp.optim.natural_gradient(optax.sgd(rate), 0.1), Trace_ELBO())
    state = svi.init(jax.random.key(0))
    update, before = jax.jit(lambda state: svi.update(state)[0]), svi.get_params(state)
    after = svi.get_params(update(update(state)))
    assert after.pop("lengthscale") != before["lengthscale"]
    hidden = np.flatnonzero(~np.asarray(seen))
    for name, value in after.items():
        assert np.isfinite(value).all(), name
        np.testing.assert_allclose(value[hidden], before[name][hidden], atol=1e-12, err_msg=name)
        assert np.abs(value[0] - before[name][0]).max() > 1e-5 or name in passed_over, name
