"""What the importance-weighted bound refuses: models and guides whose weights would be wrong."""

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


def without_plate(X, y=None):
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), jnp.eye(2))
    inputs = ngp.latent_inputs("w", X)
    with numpyro.plate("data", 3):
        ngp.observe("y", f(inputs), ngp.likelihoods.Gaussian(1.0), obs=y)


def observed_outside(X, y=None):
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), jnp.eye(2))
    with numpyro.plate("data", 3):
        inputs = ngp.latent_inputs("w", X)
    ngp.observe("y", f(inputs), ngp.likelihoods.Gaussian(1.0), obs=y)


def two_plates(X, y=None):
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), jnp.eye(2))
    with numpyro.plate("other", 3):
        inputs = ngp.latent_inputs("w", X)
    with numpyro.plate("data", 3):
        ngp.observe("y", f(inputs), ngp.likelihoods.Gaussian(1.0), obs=y)


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


@pytest.mark.long
@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: ImportanceWeightedELBO(0), "num_samples must be at least 1"),
        (lambda: ImportanceWeightedELBO(5, num_particles=0), "num_particles must be at least 1"),
        (lambda: evaluate(toy, plate="rows"), r"plate must be a plate of the model: \['data'\], but got 'rows'"),
        (lambda: evaluate(without_plate), "the latent site 'w' must be inside the data plate 'data'"),
        (lambda: evaluate(observed_outside), "the observed site 'y' must be inside the data plate 'data'"),
        (lambda: evaluate(two_plates), "the latent site 'w' must be inside the data plate 'data'"),
        (lambda: evaluate(nested_plates, nested_guide), "inside the data plate alone"),
        (lambda: evaluate(discrete, discrete_guide), "the local site 'z' must be continuous"),
        (lambda: evaluate(tempered, AutoNormal(tempered)), "one number that they share"),
        (lambda: evaluate(toy, lambda X, y=None: None), "one for every latent site of the model"),
        (lambda: evaluate(sampled_above, doubly_reparametrised=True), "drawn jointly over the samples"),
        (lambda: evaluate(tempered, ngp.AutoGP(tempered), doubly_reparametrised=True), "False unless the guide"),
    ],
)
def test_refusals(run, message):
    with pytest.raises((ValueError, TypeError), match=message):
        run()
