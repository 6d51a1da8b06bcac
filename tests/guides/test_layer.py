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
from numpyro_gp.guides.decoupled import decoupled_layer
from numpyro_gp.sites import InducingPrior

Z_MEAN = np.linspace(-1.0, 1.0, 6)[:, None]


BASIS = ngp.beliefs.Basis.build(ngp.kernels.RBF(1.0, 0.5), jnp.linspace(-1, 1, 3)[:, None])


def run(recipe, outputs=None):
    with handlers.seed(rng_seed=0), handlers.trace() as trace:
        belief = recipe("f", InducingPrior("f", BASIS, (3,) if outputs is None else (outputs, 3)))
    return belief, {name for name, site in trace.items() if site["type"] == "param"}


@pytest.mark.parametrize("covariance", ["gp", "cb"])
def test_what_it_declares_and_where_it_starts(covariance):
    """At the inducing inputs the standard deviation is about scale; the prior's is 1."""
    factor = {"gp": "f/scale_tril", "cb": "f/B_tril"}[covariance]
    for mean in ("gpcent", "gp", "cb"):
        belief, names = run(decoupled_layer(Z_MEAN, mean, covariance), outputs=2)
        assert names == {"f/inducing_mean", "f/mean", factor}
        assert (belief.shape, belief.mean_parameter.shape, belief.mean) == ((2, 3), (2, 6), mean)
        assert run(decoupled_layer(Z_MEAN, mean, covariance, train_inputs=False))[1] == {"f/mean", factor}
    belief, _ = run(decoupled_layer(Z_MEAN, covariance=covariance, scale=0.01))
    sd = jnp.sqrt(belief.marginals(BASIS, BASIS.inducing).variance)
    assert jnp.all((sd > 0.003) & (sd < 0.02))


def two_layers(X, y, kernel):
    inner = ngp.gp("inner", kernel, X[:4], outputs=2)
    outer = ngp.gp("outer", kernel, X[:3])
    with numpyro.plate("data", len(X)):
        ngp.observe("y", outer(inner.draw("e", X)), ngp.likelihoods.Gaussian(0.2), obs=y)


def factorisations(jaxpr):
    """Sizes of all matrices that a program factorises, inside of its inner programs too.

    The loop that looks for the least jitter takes one turn where the first is enough.
    """
    found = []
    for equation in jaxpr.eqns:
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
    recipes = dict.fromkeys(("inner", "outer"), decoupled_layer(X[:5], mean, covariance))
    found = factorised_by(two_layers, recipes, X, X[:, 0], ngp.kernels.RBF(1.0, 0.5))
    wanted = [(4, 4), (3, 3)] + ([] if mean == "cb" else [(5, 5)] * 2) + OWN_COVARIANCE[covariance]
    assert found == sorted(wanted)


def factorised_by(model, recipes, *data):
    svi = SVI(model, ngp.AutoGP(model, recipes), optax.adam(0.1), Trace_ELBO())
    state = svi.init(jax.random.key(0), *data)
    return sorted(factorisations(jax.make_jaxpr(lambda state: svi.update(state, *data))(state).jaxpr))


def test_decoupled_factorises_once():
    X = jnp.linspace(-1, 1, 6)[:, None]

    def model(X, y):
        f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.5), X[:3])
        with numpyro.plate("data", len(X)):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.2), obs=y)

    found = factorised_by(model, {"f": ngp.guides.decoupled(X[:5])}, X, X[:, 0])
    assert found == [(3, 3), (3, 3)]  # of the site, and of B


def test_rows_of_the_norm_are_drawn():
    """Their mean over all sets of two of four points is ``a^T K a``; a norm of one row more or less is off by a sixth."""
    Z, a = jnp.linspace(-1.0, 1.0, 4)[:, None], jnp.array([1.0, -2.0, 0.5, 3.0])
    layer = lambda columns: ngp.beliefs.DecoupledLayer(Z, a, "cb", scale_tril=jnp.eye(3), columns=columns)  # noqa: E731
    drawn = [layer(jnp.array([i, j])).kl(BASIS) for i in range(4) for j in range(i)]
    K = np.exp(-0.5 * (np.asarray(Z) - np.asarray(Z).T) ** 2 / 0.25)
    np.testing.assert_allclose(np.mean(drawn), 0.5 * np.asarray(a) @ K @ np.asarray(a), rtol=1e-9)
    np.testing.assert_allclose(layer(None).kl(BASIS), np.mean(drawn), rtol=1e-9)
    assert run(decoupled_layer(Z_MEAN, "cb", columns=2))[0].columns.shape == (2,)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: decoupled_layer(np.zeros(3)), r"Z_mean must be an array of shape \(N, D\)"),
        (lambda: decoupled_layer(Z_MEAN, scale=-1.0), "scale must be positive"),
        (lambda: decoupled_layer(Z_MEAN, columns=2), "columns must be None but for mean='cb'"),
        (lambda: run(decoupled_layer(np.zeros((4, 3)))), "Z_mean of the recipe for 'f' must be"),
    ],
)
def test_bad_arguments(build, message):
    with pytest.raises(ValueError, match=message):
        build()
