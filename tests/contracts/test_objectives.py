"""Every NumPyro ELBO trains every kind of recipe: its gradient is that of `Trace_ELBO`."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from jax.scipy.special import logsumexp
from numpyro import handlers
from numpyro.infer import SVI, RenyiELBO, Trace_ELBO, TraceEnum_ELBO, TraceGraph_ELBO, TraceMeanField_ELBO

import numpyro_gp as ngp
from numpyro_gp import guides
from numpyro_gp.sites import Observation

X = jnp.linspace(-1.0, 1.0, 4)[:, None]
Y = jnp.array([0.3, -0.2, 0.8, 0.5])
Z, GAMMA = jnp.array([[-0.8], [0.1], [0.7]]), jnp.array([[-0.4], [0.5]])
COUNTS = jnp.array([1.0, 0.0, 2.0, 1.0])


def single(X, y=None):
    variance = numpyro.sample("variance", dist.LogNormal(0.0, 0.5))
    f = ngp.gp("f", ngp.kernels.RBF(variance, 0.6), Z)
    with numpyro.plate("data", 4):
        ngp.observe("y", f(X), ngp.likelihoods.Poisson(), obs=y)


def additive(X, y=None):
    variance = numpyro.sample("variance", dist.LogNormal(0.0, 0.5))
    kernels = {"a": ngp.kernels.RBF(variance, 0.6), "b": ngp.kernels.Matern32(0.5, 0.9)}
    f = ngp.additive_gp("f", kernels, {"a": Z[:2], "b": Z[1:]})
    with numpyro.plate("data", 4):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.4), obs=y)


def latent(X, y=None):
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.6), jnp.concatenate([Z, Z[::-1]], 1))
    with numpyro.plate("data", 4):
        ngp.observe("y", f(ngp.latent_inputs("w", X)), ngp.likelihoods.Gaussian(0.4), obs=y)


RECIPES = {
    "coupled": (single, {"f": guides.coupled()}),
    "coupled natural": (single, {"f": guides.coupled(natural=True)}),
    "orthogonal newton": (single, {"f": guides.orthogonal(GAMMA, natural=True, gamma="newton")}),
    "structured": (additive, {"f": guides.structured(2, natural=True)}),
    "free_latent": (latent, {"w": guides.free_latent()}),
    "amortised": (latent, {"w": guides.amortised(guides.encoder((3,)))}),
}
# RenyiELBO splits its key twice before it comes to its particles: with these keys all draw the same noise.
OUTER = jax.random.key(3)
INNER = jax.random.split(jax.random.split(OUTER)[1], 1)[0]
OBJECTIVES = {
    "trace": (Trace_ELBO(), INNER),
    "mean field": (TraceMeanField_ELBO(), INNER),
    "graph": (TraceGraph_ELBO(), INNER),
    "renyi": (RenyiELBO(alpha=0.3, num_particles=1), OUTER),
    "enum": (TraceEnum_ELBO(max_plate_nesting=1), INNER),
}


def away_from_start(model, recipes, y):
    """Parameters of the guide, moved from where they start; precisions stay symmetric and diagonally dominant."""
    svi = SVI(model, ngp.AutoGP(model, recipes), optax.sgd(0.1), Trace_ELBO())
    params = jax.jit(lambda key: svi.get_params(svi.init(key, X, y)))(jax.random.key(0))
    square = lambda value: value.ndim > 1 and value.shape[-1] == value.shape[-2]  # noqa: E731
    wave = lambda value: 0.1 * np.sin(1.0 + np.arange(value.size)).reshape(value.shape)  # noqa: E731
    return {name: 1.2 * value if square(value) else value + wave(value) for name, value in params.items()}


def gradients(names, params, model, recipes, y):
    """Gradients of objectives in one program."""
    guide = ngp.AutoGP(model, recipes)
    # Its first call runs the model, which uses up a key: here, so that every objective draws the same noise.
    jax.eval_shape(lambda key: handlers.seed(guide, key)(X, y), OUTER)

    def gradient(name, params):
        objective, key = OBJECTIVES[name]
        return jax.grad(lambda p: objective.loss(key, p, model, guide, X, y))(params)

    return jax.jit(lambda params: {name: gradient(name, params) for name in names})(params)


@pytest.mark.long
@pytest.mark.parametrize("name", RECIPES)
def test_every_objective_has_the_gradient_of_trace_elbo(name):
    """A gradient that is stopped at the belief is zero in its parameters, and those here are above 1e-3."""
    model, recipes = RECIPES[name]
    y = COUNTS if model is single else Y
    found = gradients(OBJECTIVES, away_from_start(model, recipes, y), model, recipes, y)
    expected = found.pop("trace")
    for key in expected:
        assert jnp.max(jnp.abs(expected[key])) > 1e-3, key
        for objective, gradient in found.items():
            # The exact KL of latent inputs has another gradient than its estimate by one draw.
            if objective != "mean field" or not key.startswith("w/"):
                np.testing.assert_allclose(
                    gradient[key], expected[key], rtol=1e-10, atol=1e-10, err_msg=f"{objective} {key}"
                )


def mixture(X, y=None, by_hand=False):
    """One outlier in three: with a discrete site for each datum, or with that site summed out on paper."""
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.6), Z)
    likelihood = ngp.likelihoods.Gaussian(0.4)
    with numpyro.plate("data", 4):
        marginal = f(X)
        if by_hand:
            parts = [
                jnp.log(p) + Observation(dist.Normal(marginal.loc + shift, marginal.scale), likelihood).log_prob(y)
                for p, shift in ((0.7, 0.0), (0.3, 0.9))
            ]
            numpyro.factor("y", logsumexp(jnp.stack(parts), axis=0))
        else:
            shift = 0.9 * numpyro.sample("shifted", dist.Bernoulli(0.3), infer={"enumerate": "parallel"})
            moved = jnp.broadcast_to(shift, (*shift.shape[:-1], 4))  # enumerated: (2, 1)
            loc = jnp.broadcast_to(marginal.loc, moved.shape) + moved
            ngp.observe("y", dist.Normal(loc, jnp.broadcast_to(marginal.scale, loc.shape)), likelihood, obs=y)


@pytest.mark.long
def test_a_discrete_site_is_summed_out():
    recipes, by_hand = {"f": guides.coupled()}, partial(mixture, by_hand=True)
    params = away_from_start(by_hand, recipes, Y)
    expected = gradients(["trace"], params, by_hand, recipes, Y)["trace"]
    guide = ngp.AutoGP(by_hand, recipes)
    loss = lambda p: TraceEnum_ELBO(max_plate_nesting=1).loss(INNER, p, mixture, guide, X, Y)  # noqa: E731
    found = jax.jit(jax.grad(loss))(params)
    for key, value in expected.items():
        assert jnp.max(jnp.abs(value)) > 1e-3
        np.testing.assert_allclose(found[key], value, rtol=1e-10, atol=1e-10)
