"""Gaussian data with the function integrated out, in plates: a batch of regressions is a loop over them."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density

import numpyro_gp as ngp
from numpyro_gp.posterior.draws import normal_left_out

RNG = np.random.default_rng(0)
X, OWN = jnp.asarray(RNG.normal(size=(4, 1))), jnp.asarray(RNG.normal(size=(3, 4, 1)))
Y, NEW, Z = jnp.asarray(RNG.normal(size=(3, 4))), jnp.array([[0.1], [0.6]]), jnp.array([[-0.5], [0.5]])
LENGTHSCALE, NOISE, LEVEL = jnp.array([0.3, 0.7, 1.1]), jnp.array([0.1, 0.2, 0.3]), jnp.array([1.0, 0.0, -1.0])


def batched(X, dim, sparse, y=Y, noise=NOISE):
    def model(lengthscale):
        with numpyro.plate("group", 3, dim=dim):
            kernels, wide = (
                jax.vmap(lambda l: ngp.kernels.RBF(1.3, l))(lengthscale),
                (slice(None), *[None] * (-dim - 1)),
            )
            data = None if y is None else y[wide]
            own, options = noise[wide] if noise.ndim == 1 else noise, {"inducing": Z if sparse else None, "obs": data}
            return ngp.gp_regression("y", kernels, X, own, mean=LEVEL[wide], **options)

    return model


def alone(X, g, sparse):
    def model(lengthscale):
        kernel = ngp.kernels.RBF(1.3, lengthscale)
        return ngp.gp_regression("y", kernel, X, NOISE[g], mean=LEVEL[g], inducing=Z if sparse else None, obs=Y[g])

    return model


@pytest.mark.long
@pytest.mark.parametrize("sparse", [False, True], ids=["exact", "collapsed"])
@pytest.mark.parametrize("own", [False, True], ids=["shared rows", "own rows"])
def test_a_batch_of_regressions_is_a_loop_over_them(own, sparse):
    """Log marginal likelihood or bound, its gradient, and predictions; with the plate on either axis."""
    rows = OWN if own else X

    def said(model, lengthscale):
        @jax.jit
        def program(l):
            f = model(l)(NEW)
            return *jax.value_and_grad(lambda l: log_density(model, (l,), {}, {})[0])(l), f.mean, f.variance

        return program(lengthscale)

    parts = [said(alone(rows[g] if own else rows, g, sparse), LENGTHSCALE[g]) for g in range(3)]
    values, *wanted = (np.stack(each) for each in zip(*parts, strict=True))
    for dim in (-1, -2):
        value, *found = said(batched(rows, dim, sparse), LENGTHSCALE)
        np.testing.assert_allclose(value, values.sum(), rtol=1e-10)
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-8)


@pytest.mark.long
def test_draws_and_leave_one_out_of_members():
    with handlers.seed(rng_seed=0), handlers.trace() as trace:
        batched(OWN, -2, False, y=None)(LENGTHSCALE)
    assert trace["y"]["value"].shape == (3, 1, 4)
    marginal = trace["y"]["fn"].base_dist
    found = marginal.each(normal_left_out, Y)
    for g in range(3):
        loc, covariance = jnp.full(4, LEVEL[g]), marginal.spread[g]
        np.testing.assert_allclose(found[0][g], normal_left_out(loc, covariance, Y[g])[0], rtol=1e-10)


def test_wrong_axes_are_named():
    def as_many_members_as_rows():
        with numpyro.plate("group", 4):
            kernels = jax.vmap(lambda l: ngp.kernels.RBF(1.3, l))(jnp.ones(4))
            ngp.gp_regression("y", kernels, X, jnp.ones(4), obs=jnp.zeros((4, 4)))

    for call, message in (
        (lambda: batched(OWN[:2], -1, False)(LENGTHSCALE), "mean of 'y' must be of the same leading axes"),
        (lambda: batched(X, -1, False, y=Y[:2])(LENGTHSCALE), r"of f, \(3, 4\), with the axes of plate 'group' of 3"),
        (as_many_members_as_rows, r"\(4, 1\), one for each member, or \(1, 4\), one for each row, but got"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
