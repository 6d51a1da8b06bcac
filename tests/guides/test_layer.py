"""The decoupled layer's recipe: what it declares, where it starts, and that a deep model trains with it."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
import pytest
from numpyro import handlers
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp
from numpyro_gp.guides.layer import decoupled_layer
from numpyro_gp.sites import InducingPrior
from numpyro_gp.starting.deep import initial_layers

Z_MEAN = np.linspace(-1.0, 1.0, 6)[:, None]


def run(recipe, outputs=None):
    basis = ngp.beliefs.Basis.build(ngp.kernels.RBF(1.0, 0.5), jnp.linspace(-1, 1, 3)[:, None])
    shape = (3,) if outputs is None else (outputs, 3)
    with handlers.seed(rng_seed=0), handlers.trace() as trace:
        belief = recipe("f", InducingPrior("f", basis, shape))
    return belief, {name for name, site in trace.items() if site["type"] == "param"}


@pytest.mark.parametrize("covariance", ["gp", "cb"])
@pytest.mark.parametrize("mean", ["gpcent", "gp", "cb"])
def test_what_it_declares(mean, covariance):
    factor = {"gp": "f/scale_tril", "cb": "f/B_tril"}[covariance]
    belief, names = run(decoupled_layer(Z_MEAN, mean, covariance), outputs=2)
    assert names == {"f/inducing_mean", "f/mean", factor}
    assert belief.shape == (2, 3)
    assert belief.mean_parameter.shape == (2, 6)
    assert belief.mean == mean
    _, names = run(decoupled_layer(Z_MEAN, mean, covariance, train_inputs=False))
    assert names == {"f/mean", factor}


@pytest.mark.parametrize("covariance", ["gp", "cb"])
def test_start_is_as_narrow_as_asked(covariance):
    """At the inducing inputs the standard deviation is about scale; the prior's is 1."""
    belief, _ = run(decoupled_layer(Z_MEAN, covariance=covariance, scale=0.01))
    basis = ngp.beliefs.Basis.build(ngp.kernels.RBF(1.0, 0.5), jnp.linspace(-1, 1, 3)[:, None])
    sd = jnp.sqrt(belief.marginals(basis, basis.inducing).variance)
    assert jnp.all(sd < 0.02)
    assert jnp.all(sd > 0.003)


@pytest.mark.long
def test_deep_model_learns_a_step():
    """Two decoupled layers on a step function: the loss falls far below that of the start.

    Adam at a constant 0.05 is chaotic here: two runs whose gradients agree to 1e-11 part after forty steps, and one key
    in six ends on a spike of loss 60 to 110. With steps that die out all of twelve keys end between 36 and 48.
    """
    X = jnp.linspace(-1, 1, 40)[:, None]
    y = jnp.sign(X[:, 0]) + 0.01 * jnp.cos(30 * X[:, 0])
    first, last = initial_layers(X, X[::8], widths=[1])

    def model(X, y=None):
        inner = ngp.gp("inner", ngp.kernels.RBF(1.0, 0.5), first.inducing, mean=first.mean, outputs=1)
        outer = ngp.gp("outer", ngp.kernels.RBF(1.0, 0.5), last.inducing)
        with numpyro.plate("data", X.shape[0]):
            hidden = inner.draw("e", X)
            ngp.observe("y", outer(hidden), ngp.likelihoods.Gaussian(0.2), obs=y)

    layers = {"inner": decoupled_layer(X[::4], scale=first.scale), "outer": decoupled_layer(X[::4])}
    steps = optax.cosine_decay_schedule(0.05, 150)
    svi = SVI(model, ngp.AutoGP(model, layers), optax.adam(steps), Trace_ELBO())
    result = svi.run(jax.random.key(0), 150, X, y, progress_bar=False)
    assert result.losses[-20:].mean() < 0.1 * result.losses[0]
    prediction = ngp.Posterior.from_svi(model, svi.guide, result.params).predict(jax.random.key(1), X, num_samples=20)
    assert jnp.sqrt(jnp.mean((prediction.mean - y) ** 2)) < 0.5, "the sample standard deviation of y is 1"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: decoupled_layer(np.zeros(3)), r"Z_mean must be an array of shape \(N, D\)"),
        (lambda: decoupled_layer(Z_MEAN, "mean"), "mean must be one of"),
        (lambda: decoupled_layer(Z_MEAN, covariance="full"), "covariance must be one of"),
        (lambda: decoupled_layer(Z_MEAN, scale=-1.0), "scale must be positive"),
    ],
)
def test_bad_arguments(build, message):
    with pytest.raises(ValueError, match=message):
        build()
