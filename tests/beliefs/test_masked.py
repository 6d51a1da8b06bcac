"""Masks over sites and over single outputs: what is shown counts as it would alone, in value and in gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro import handlers
from numpyro.infer import SVI, Trace_ELBO, TraceMeanField_ELBO
from numpyro.infer.util import log_density

import numpyro_gp as ngp

KEY = jax.random.key(0)
X = jnp.asarray([[-0.9], [-0.3], [0.1], [0.4], [0.8], [1.1]])
Y = jnp.sin(3 * X[:, 0])
Z = jnp.linspace(-1.0, 1.0, 3)[:, None]
BELIEF = ngp.beliefs.Coupled(jnp.asarray([0.5, -1.0, 0.3]), 0.5 * jnp.eye(3))
KERNEL = ngp.kernels.RBF(1.0, 0.7)


def lone(mask, inner=True):
    with handlers.mask(mask=mask), handlers.mask(mask=inner):
        f = ngp.gp("f", KERNEL, Z)
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.5), obs=Y)


@pytest.mark.parametrize("true", [jnp.asarray(True), np.bool_(True)])
@pytest.mark.parametrize("inner", [True, jnp.asarray(True)])
def test_a_mask_that_is_an_array_keeps_the_divergence_of_a_belief(true, inner):
    """``KL = (tr S + m^T m - M - log det S) / 2``; the density of the mean as a point is -3.43 in its place."""
    prior = log_density(lone, (true, inner), {}, {"f": BELIEF})[0] - log_density(lone, (False,), {}, {"f": BELIEF})[0]
    mean = np.asarray([0.5, -1.0, 0.3])
    np.testing.assert_allclose(prior, -0.5 * (3 * 0.25 + mean @ mean - 3 - 3 * np.log(0.25)), rtol=1e-12)
    hidden = log_density(lone, (jnp.asarray(False), inner), {}, {"f": BELIEF})[0]
    np.testing.assert_allclose(hidden, log_density(lone, (False,), {}, {"f": BELIEF})[0], rtol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("objective", [Trace_ELBO(), TraceMeanField_ELBO()])
def test_a_fit_under_a_mask_has_the_gradient_of_one_without(objective):
    """Without the divergence the widths go to zero."""
    guide = ngp.AutoGP(lone)
    params = SVI(lone, guide, numpyro.optim.Adam(0.05), objective).run(KEY, 1, True, progress_bar=False).params
    slope = jax.grad(lambda params, mask: objective.loss(KEY, params, lone, guide, mask))
    found, wanted = (slope(params, mask) for mask in (jnp.asarray(True), True))
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-9), found, wanted)
    assert np.all(np.diagonal(wanted["f/scale_tril"]) != 0)


def test_hidden_members_of_a_plate_are_left_out():
    shown = jnp.asarray([True, False, True])
    several = jax.tree.map(lambda leaf: jnp.stack([(1 + g) * leaf for g in range(3)]), BELIEF)

    def grouped(mask):
        with numpyro.plate("group", 3), handlers.mask(mask=mask):
            ngp.gp("f", KERNEL, Z)

    def alone(group):
        own = jax.tree.map(lambda leaf: leaf[group], several)
        return log_density(lambda: ngp.gp("f", KERNEL, Z), (), {}, {"f": own})[0]

    found = log_density(grouped, (shown,), {}, {"f": several})[0]
    np.testing.assert_allclose(found, alone(0) + alone(2), rtol=1e-12)


@pytest.mark.long
def test_nan_in_hidden_outputs_reaches_no_gradient():
    """Under a user's own ``jit``, where NaN cannot be refused; a mask over the densities alone gives NaN."""
    data = jnp.stack([Y, 2 * Y], axis=1)

    def model(data, mask):
        f = ngp.gp("f", KERNEL, Z, outputs=2)
        with numpyro.plate("data", len(X)), handlers.mask(mask=mask):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.5), obs=data)

    shown = jnp.ones((6, 2), bool).at[1, 0].set(False)
    engine = SVI(model, ngp.AutoGP(model), numpyro.optim.Adam(0.01), Trace_ELBO())
    state = engine.init(jax.random.key(0), data, shown)
    loss = jax.jit(
        jax.value_and_grad(
            lambda params, data: engine.loss.loss(jax.random.key(1), params, model, engine.guide, data, shown)
        )
    )
    params = engine.get_params(state)
    hidden, gradient = loss(params, data.at[1, 0].set(jnp.nan))
    other, wanted = loss(params, data.at[1, 0].set(7.0))
    np.testing.assert_allclose(hidden, other, rtol=1e-12)
    jax.tree.map(lambda one, two: np.testing.assert_allclose(one, two, rtol=1e-10, atol=1e-12), gradient, wanted)
    assert any(np.any(leaf != 0) for leaf in jax.tree.leaves(wanted))
