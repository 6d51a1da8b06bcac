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


def two_layers(X, y, kernel):
    inner = ngp.gp("inner", kernel, X[:4], outputs=2)
    outer = ngp.gp("outer", kernel, X[:3])
    with numpyro.plate("data", len(X)):
        ngp.observe("y", outer(inner.draw("e", X)), ngp.likelihoods.Gaussian(0.2), obs=y)


def factorisations(jaxpr):
    """Sizes of all matrices that a program factorises, inside of its inner programs too.

    But for the loop that raises a jitter, which a factor does not enter where the first one is enough.
    """
    found = []
    for equation in jaxpr.eqns:
        if equation.primitive.name == "while":
            continue
        if equation.primitive.name == "cholesky":
            found.append(equation.invars[0].aval.shape)
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda p: hasattr(p, "eqns")):
            inner = getattr(inner, "jaxpr", inner)
            found += factorisations(inner) if hasattr(inner, "eqns") else []
    return found


OWN_COVARIANCE = {"gp": [], "cb": [(2, 4, 4), (3, 3)]}


@pytest.mark.long
@pytest.mark.parametrize("covariance", ["gp", "cb"])
@pytest.mark.parametrize("mean", ["gpcent", "gp", "cb"])
def test_marginals_and_divergence_share_each_factorisation(mean, covariance):
    """One for each site's inducing inputs, one for each ``Z_mean`` but with ``cb``, one for each ``B``: no more."""
    X = jnp.stack([jnp.linspace(-1, 1, 6), jnp.linspace(0, 1, 6) ** 2], 1)
    recipe = decoupled_layer(X[:5], mean, covariance)
    guide = ngp.AutoGP(two_layers, {"inner": recipe, "outer": recipe})
    svi = SVI(two_layers, guide, optax.adam(0.1), Trace_ELBO())
    data = (X, X[:, 0], ngp.kernels.RBF(1.0, 0.5))
    state = svi.init(jax.random.key(0), *data)
    found = factorisations(jax.make_jaxpr(lambda state: svi.update(state, *data))(state).jaxpr)
    wanted = [(4, 4), (3, 3)] + ([] if mean == "cb" else [(5, 5)] * 2) + OWN_COVARIANCE[covariance]
    assert sorted(found) == sorted(wanted)


def test_decoupled_factorises_once():
    X = jnp.linspace(-1, 1, 6)[:, None]

    def model(X, y):
        f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.5), X[:3])
        with numpyro.plate("data", len(X)):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.2), obs=y)

    svi = SVI(model, ngp.AutoGP(model, {"f": ngp.guides.decoupled(X[:5])}), optax.adam(0.1), Trace_ELBO())
    state = svi.init(jax.random.key(0), X, X[:, 0])
    found = factorisations(jax.make_jaxpr(lambda state: svi.update(state, X, X[:, 0]))(state).jaxpr)
    assert found == [(3, 3), (3, 3)]  # of the site, and of B


def test_rows_of_the_norm_are_drawn():
    """Their mean over all sets of two of four points is ``a^T K a``; a norm of one row more or less is off by a sixth."""
    basis = ngp.beliefs.Basis.build(ngp.kernels.RBF(1.0, 0.5), jnp.linspace(-1, 1, 3)[:, None])
    Z, a = jnp.linspace(-1.0, 1.0, 4)[:, None], jnp.array([1.0, -2.0, 0.5, 3.0])
    layer = lambda columns: ngp.beliefs.DecoupledLayer(  # noqa: E731
        Z, a, "cb", scale_tril=jnp.eye(3), columns=columns
    )
    drawn = [layer(jnp.array([i, j])).kl(basis) for i in range(4) for j in range(i)]
    K = np.exp(-0.5 * (np.asarray(Z) - np.asarray(Z).T) ** 2 / 0.25)
    np.testing.assert_allclose(np.mean(drawn), 0.5 * np.asarray(a) @ K @ np.asarray(a), rtol=1e-9)
    np.testing.assert_allclose(layer(None).kl(basis), np.mean(drawn), rtol=1e-9)
    belief, _ = run(decoupled_layer(Z_MEAN, "cb", columns=2))
    assert belief.columns.shape == (2,)


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
        (lambda: decoupled_layer(Z_MEAN, columns=2), "columns must be None but for mean='cb'"),
        (lambda: decoupled_layer(Z_MEAN, "cb", columns=7), "columns must be at most 6, the rows of Z_mean"),
        (lambda: run(decoupled_layer(np.zeros((4, 3)))), "Z_mean of the recipe for 'f' must be"),
    ],
)
def test_bad_arguments(build, message):
    with pytest.raises(ValueError, match=message):
        build()
