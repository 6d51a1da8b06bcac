"""Models of many terms: terms that are alike are one batch in every program, so that no program grows with them."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import handlers

import numpyro_gp as ngp
from tests.gam.known import kernel_of_term

ROWS = 37  # no number of terms: functions of equal shapes would be one


@pytest.mark.long
def test_batches_of_all_kinds_of_terms_are_their_kernels():
    """Also with priors of their own in the middle, whose values stand elsewhere in what is sampled."""
    rng = np.random.default_rng(1)
    table = {name: rng.normal(size=ROWS) for name in "xzuy"} | {"g": rng.integers(3, size=ROWS), "h": np.arange(ROWS)}
    own = ngp.gam.s("u", scale=dist.HalfNormal(3.0), lengthscale=dist.LogNormal(0.0, 1.0))
    terms = ngp.gam.s("x") + own + ngp.gam.te("x", "z") + ngp.gam.s("z") + ngp.gam.s("h", cyclic=True)
    terms = terms + ngp.gam.s("x", by="g") + ngp.gam.re("g") + ngp.gam.re("g", by="z") + ngp.gam.linear("z")
    model = ngp.gam.model(terms + ngp.gam.factor("g"), table, response="y")
    values = {
        "f_scale": jnp.arange(1.0, 10.0),
        "f_scale s(u)": jnp.array(20.0),
        "f_lengthscale": 0.5 + 0.1 * jnp.arange(6.0),
        "f_lengthscale s(u)": jnp.array([3.0]),
    }
    parts, X = model.layout.read_terms, model.arguments[0]
    scale = dict(zip([part.name for part in parts], [1, 20, *range(2, 10)], strict=True))
    lengths = {"s(x)": [0.5], "s(u)": [3.0], "te(x, z)": [0.6, 0.7], "s(z)": [0.8], "s(h)": [0.9], "s(x, by=g)": [1.0]}

    def matrices(X):
        with handlers.block(), handlers.seed(rng_seed=0), handlers.substitute(data=values):
            kernels = model.kernels(X.dtype)
        assert len(kernels.batches) == 9  # s(x), s(u) and s(z) are one
        given = {part.name: [jnp.asarray(one) for one in lengths.get(part.name, [])] for part in parts}
        each = {p.name: kernel_of_term(model, p, jnp.asarray(scale[p.name] ** 2.0), given[p.name]) for p in parts}
        return [{name: those[name].matrix(X) for name in each} for those in (kernels, each)]

    found, wanted = jax.jit(matrices)(X)
    for name, matrix in wanted.items():
        np.testing.assert_allclose(found[name], matrix, atol=1e-10, err_msg=name)
