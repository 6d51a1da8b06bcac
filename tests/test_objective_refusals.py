"""What the importance-weighted bound refuses: models and guides whose weights would be wrong."""

from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.autoguide import AutoNormal

import numpyro_gp as ngp
from numpyro_gp.objectives import ImportanceWeightedELBO

KEY = jax.random.key(0)


def toy(X, y=None):
    scale = numpyro.sample("scale", dist.LogNormal(-1.0, 0.1))
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), jnp.eye(2))
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(ngp.latent_inputs("w", X)), ngp.likelihoods.Gaussian(scale), obs=y)


def evaluate(model, guide=None, **options):
    X, y = jnp.zeros((3, 1)), jnp.zeros(3)
    guide = guide or ngp.AutoGP(model)
    objective = ImportanceWeightedELBO(2, **options)
    with handlers.seed(rng_seed=0):
        guide(X, y)
    return objective.loss(KEY, {}, model, handlers.seed(guide, 0), X, y)


def placed(inputs, data):
    """A model whose latent inputs and whose data stand in plates of these names, or in none."""

    def plate(name):
        return numpyro.plate(name, 3) if name else nullcontext()

    def model(X, y=None):
        f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), jnp.eye(2))
        with plate(inputs):
            latent = ngp.latent_inputs("w", X)
        with plate(data):
            ngp.observe("y", f(latent), ngp.likelihoods.Gaussian(1.0), obs=y)

    return model


def nested_plates(X, y=None):
    with numpyro.plate("outer", 2, dim=-2), numpyro.plate("data", 3, dim=-1):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)


def nested_guide(X, y=None):
    with numpyro.plate("outer", 2, dim=-2), numpyro.plate("data", 3, dim=-1):
        numpyro.sample("z", dist.Normal(0.0, 1.0))


def discrete(X, y=None):
    with numpyro.plate("data", 3):
        z = numpyro.sample("z", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Normal(1.0 * z, 1.0), obs=y)


def discrete_guide(X, y=None):
    with numpyro.plate("data", 3):
        numpyro.sample("z", dist.Bernoulli(0.5))


def without_path(X, y=None):
    with numpyro.plate("data", 3):
        numpyro.sample("z", dist.VonMises(0.0, 1.0))


def on_a_circle(X, y=None):
    with numpyro.plate("data", 3):
        z = numpyro.sample("z", dist.VonMises(0.0, 1.0))
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)


def tempered(X, y=None):
    with numpyro.plate("data", 3):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        with handlers.scale(scale=0.5):
            numpyro.sample("y", dist.Normal(z, 1.0), obs=y)


def sampled_above(X, y=None):
    g = ngp.gp("g", ngp.kernels.RBF(1.0, 1.0), jnp.eye(2))
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), jnp.eye(2)[:, :1])
    with numpyro.plate("data", 3):
        hidden = g.draw("e", ngp.latent_inputs("w", X))
        ngp.observe("y", f(hidden[..., None]), ngp.likelihoods.Gaussian(1.0), obs=y)


def deep(X, y=None):
    g = ngp.gp("g", ngp.kernels.RBF(1.0, 1.0), jnp.eye(2)[:, :1])
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), jnp.eye(2)[:, :1])
    with numpyro.plate("data", 3):
        ngp.observe("y", f(g.draw("e", X)[..., None]), ngp.likelihoods.Gaussian(1.0), obs=y)


def own_site(X, y=None):
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), jnp.eye(2)[:, :1])
    with numpyro.plate("data", 3):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([1]).to_event(1))
        ngp.observe("y", f(X.reshape((1,) * (z.ndim - 2) + X.shape) + z), ngp.likelihoods.Gaussian(1.0), obs=y)


@pytest.mark.long
def test_renyis_bound_is_refused_where_inner_functions_are_drawn():
    """It averages ``exp(l - KL)`` over draws from beliefs, and passed an evidence of -29.8 by 16 nats."""
    X, y, renyi = jnp.zeros((3, 1)), jnp.zeros(3), numpyro.infer.RenyiELBO(num_particles=2)
    svi = numpyro.infer.SVI(deep, ngp.AutoGP(deep), numpyro.optim.Adam(0.1), renyi)
    state = svi.init(KEY, X, y)
    message = r"the objective of a model that draws inner functions, \['e'\], must be a bound, but got RenyiELBO"
    with pytest.raises(ValueError, match=message):
        svi.evaluate(state, X, y)
    with pytest.raises(ValueError, match=message):
        ngp.fit(KEY, svi, 2, X, y, progress=False)
    by_hand = numpyro.infer.SVI(deep, AutoNormal(deep), numpyro.optim.Adam(0.1), renyi)
    with pytest.raises(ValueError, match=message):
        ngp.fit(KEY, by_hand, 2, X, y, progress=False)
    shallow = numpyro.infer.SVI(own_site, ngp.AutoGP(own_site), numpyro.optim.Adam(0.1), renyi)
    assert jnp.isfinite(shallow.evaluate(shallow.init(KEY, X, y), X, y))


@pytest.mark.long
@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: evaluate(placed(None, "data")), "the latent site 'w' must be inside the data plate 'data'"),
        (lambda: evaluate(placed("data", None)), "the observed site 'y' must be inside the data plate 'data'"),
        (lambda: evaluate(placed("other", "data")), "the latent site 'w' must be inside the data plate 'data'"),
        (lambda: evaluate(nested_plates, nested_guide), "inside the data plate alone"),
        (lambda: evaluate(discrete, discrete_guide), "the local site 'z' must be continuous"),
        (lambda: evaluate(tempered, AutoNormal(tempered)), "one number that they share"),
        (lambda: evaluate(toy, lambda X, y=None: None), "one for every latent site of the model"),
        (
            lambda: evaluate(on_a_circle, without_path, doubly_reparametrised=True),
            "unless the guide samples each local site by reparametrisation, but got True with VonMises at site 'z'",
        ),
        (lambda: evaluate(sampled_above, doubly_reparametrised=True), "drawn jointly over the samples"),
        # Their weights are equal: the bound was -148.52 for every K, and -149.3 with a width for 30.
        (lambda: evaluate(own_site), "guide at the local site 'z' must be a distribution with a width, as the 2"),
    ],
)
def test_refusals(run, message):
    with pytest.raises((ValueError, TypeError), match=message):
        run()
