"""A change of coordinates changes no density but by its Jacobian, whatever the fit was, and every engine takes it."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from jax.flatten_util import ravel_pytree
from numpy.testing import assert_allclose
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoDelta
from numpyro.infer.util import log_density

import numpyro_gp as ngp
from numpyro_gp.posterior.conditioned import Conditioned, _Coordinates
from tests import fits

Z = jnp.linspace(-1.0, 1.0, 4)[:, None]
X = jnp.linspace(-1.2, 1.2, 12)[:, None]
LABELS = (X[:, 0] > 0.1).astype(float)
KEY, RBF = jax.random.key(0), ngp.kernels.RBF(1.0, 0.6)


def kernel():
    return ngp.kernels.RBF(1.0, numpyro.sample("lengthscale", dist.LogNormal(-0.3, 0.3)))


def observed(f, X, y, likelihood=None):
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), likelihood or ngp.likelihoods.Bernoulli(), obs=y)


def single(X, y=None, Z=Z):
    observed(ngp.gp("f", kernel(), Z, mean=lambda X: 0.5 * X[:, 0]), X, y)


def outputs(X, y=None):
    observed(ngp.gp("f", kernel(), Z, outputs=3), X, None if y is None else y.astype(int), ngp.likelihoods.Softmax(3))


def groups(X, y=None):
    level = numpyro.sample("level", dist.Normal())
    with numpyro.plate("group", 2, dim=-2):
        observed(ngp.gp("f", RBF, Z, mean=level), X, None if y is None else jnp.stack([y, 1 - y]))


def additive(X, y=None):
    parts = {"smooth": kernel(), "linear": ngp.kernels.Linear(1.0)}
    observed(ngp.additive_gp("f", parts, dict.fromkeys(parts, Z)), X, y)


def in_scope(X, y=None):
    with numpyro.handlers.scope(prefix="a"):
        f = ngp.gp("f", RBF, Z)
    observed(f, X, y)


def fitted():
    guide = ngp.AutoGP(single, {"f": ngp.guides.conditional()})
    svi = SVI(single, guide, ngp.optim.natural_gradient(optax.adam(0.02), 0.5), Trace_ELBO())
    return guide, ngp.fit(KEY, svi, 20, X, LABELS, progress=False).params


# Shapes of the whitened values of each process.
SHAPES = {
    single: {"f": (4,)},
    outputs: {"f": (3, 4)},
    groups: {"f": (2, 1, 4)},
    additive: {"f": (8,)},
    in_scope: {"a/f": (4,)},
}


def past(shape, seed):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(*shape, shape[-1]))
    return ngp.PseudoData(Z, rng.normal(size=shape), root @ np.swapaxes(root, -1, -2))


@pytest.mark.parametrize("model", [pytest.param(m, marks=[pytest.mark.long] * (m is not single)) for m in SHAPES])
def test_the_density_is_the_plain_one_with_the_jacobian(model):
    """A forgotten or doubled Jacobian, or one at other hyper-parameters, is off by far more than rounding."""
    easy = Conditioned(model, {name: past(shape, seed) for seed, (name, shape) in enumerate(SHAPES[model].items())})
    trace = numpyro.handlers.trace(numpyro.handlers.seed(easy, KEY)).get_trace(X, LABELS)
    values = {n: s["value"] for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}
    noise, shaped = ravel_pytree({f"{name}_conditioned": values.pop(f"{name}_conditioned") for name in easy.past})

    @jax.jit
    def both(noise):
        density, trace = log_density(easy, (X, LABELS), {}, {**values, **shaped(noise)})
        whitened = {name: trace[name]["value"] for name in easy.past}
        return density, log_density(model, (X, LABELS), {}, {**values, **whitened})[0], ravel_pytree(whitened)[0]

    density, plain, _ = both(noise)
    jacobian = jax.jit(jax.jacobian(lambda noise: both(noise)[2]))(noise)
    assert_allclose(density, plain + np.linalg.slogdet(jacobian)[1], rtol=1e-10)


@pytest.mark.long
def test_the_fit_of_another_belief_serves():
    """At the medians of the hyper-parameters the coordinates have the mean of the fit."""
    fit = fits.at_start(single, ngp.AutoGP(single, {"f": ngp.guides.mean_field()}), X, LABELS)
    moved = {name: value + 0.1 * np.arange(value.size) for name, value in fit.params.items() if value.ndim == 1}
    moved["lengthscale_auto_loc"] = fit.params["lengthscale_auto_loc"] + 0.3
    guide, params = fit.guide, {**fit.params, **moved}
    easy, medians = ngp.conditioned(single, guide, params, X, LABELS), guide.median(params, X, LABELS)
    known = {"lengthscale": medians["lengthscale"], "f_conditioned": jnp.zeros(4)}
    with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.substitute(data=known):
        trace = numpyro.handlers.trace(easy).get_trace(X, LABELS)
    assert np.ptp(medians["f"]) > 0.2
    assert_allclose(trace["f"]["value"], medians["f"], atol=1e-6)


@pytest.mark.long
def test_answers_are_those_of_the_plain_model():
    """Draws in these coordinates, and what they are in the plain ones; engines: `test_chains_start_where_the_fit_is`."""
    easy = ngp.conditioned(single, *fitted(), X, LABELS)
    draws = {"lengthscale": jnp.linspace(0.4, 1.2, 30), "f_conditioned": fits.normal(30, 4)}

    def whitened(draw):
        with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.substitute(data=draw):
            return numpyro.handlers.trace(easy).get_trace(X, LABELS)["f"]["value"]

    chain = ngp.Posterior.from_mcmc(easy, draws)
    plain = ngp.Posterior.from_mcmc(single, {"lengthscale": draws["lengthscale"], "f": jax.vmap(whitened)(draws)})
    assert_allclose(plain.predict(KEY, X[:3]).mean, chain.predict(KEY, X[:3]).mean, rtol=1e-10)
    terms = [one.draws(KEY, X, LABELS).log_likelihood["y"] for one in (plain, chain)]
    assert_allclose(terms[0], terms[1], rtol=1e-8)
    assert list(chain.hyperparameters(KEY, X, LABELS)) == ["lengthscale"]
    functions = [one.functions(KEY, 5, X, num_features=32)(X) for one in (plain, chain)]
    assert_allclose(functions[0], functions[1], atol=1e-8)


def test_draws_of_the_prior_are_those_of_whitened_values():
    """``m + C e`` of 4000 draws: means of N(0, 1) to five standard errors, covariances too."""
    root = jnp.array([[0.5, 0.0], [0.3, 0.2]])
    prior = _Coordinates(jnp.array([1.0, -2.0]), root, 1)
    values = prior.mean_of_values[None] + prior.sample(KEY, (4000,)) @ root.T
    assert_allclose(values.mean(0), 0.0, atol=5 / np.sqrt(4000))
    assert_allclose(np.cov(values.T), np.eye(2), atol=5 * np.sqrt(2 / 4000))
    assert_allclose(prior.log_prob(jnp.zeros((3, 2)))[0], prior.log_prob(jnp.zeros(2)))


@pytest.mark.long
def test_chains_start_where_the_fit_is():
    guide, params = fitted()
    easy = ngp.conditioned(single, guide, params, X, LABELS)
    median = guide.median(params, X, LABELS)["lengthscale"]
    state = ngp.NUTS(easy).init(KEY, 0, model_args=(X, LABELS))
    assert_allclose(np.exp(state.z["lengthscale"]), median, rtol=1e-6)
    assert_allclose(state.z["f_conditioned"], 0.0, atol=1e-12)
    other = ngp.NUTS(easy, init_strategy=numpyro.infer.init_to_value(values={"lengthscale": 3.0}))
    assert_allclose(np.exp(other.init(KEY, 0, model_args=(X, LABELS)).z["lengthscale"]), 3.0, rtol=1e-6)


@pytest.mark.parametrize("kind", ["points", "functionals", "additive"])
def test_saved_draws_in_these_coordinates_are_loaded_with_the_plain_model(kind, tmp_path):
    """As those of `stein.auto`: another process makes the coordinates of what was saved, of inducing slopes too."""
    model = additive if kind == "additive" else single
    slopes = ngp.functionals.Derivative(Z, 0)
    points = {"points": Z, "functionals": slopes, "additive": {"smooth": Z, "linear": Z}}[kind]
    size = 8 if model is additive else 4
    past = ngp.PseudoData(points, jnp.arange(float(size)), jnp.eye(size))
    draws = {"f_conditioned": fits.normal(3, size), "lengthscale": jnp.array([0.5, 0.8, 1.2])}
    posterior = ngp.Posterior.from_mcmc(Conditioned(model, {"f": past}), draws)
    posterior.save(tmp_path / "draws.npz")
    found = ngp.Posterior.load(tmp_path / "draws.npz", model)
    if kind == "functionals":
        assert found.model.past["f"].inducing.columns == 1
        np.testing.assert_array_equal(found.model.past["f"].inducing.rows, slopes.rows)
        np.testing.assert_array_equal(found.model.past["f"].shift, past.shift)
        return
    wanted = posterior.predict(KEY, X).mean
    np.testing.assert_array_equal(found.predict(KEY, X).mean, wanted)
    assert np.ptp(wanted) > 0.1


@pytest.mark.long
def test_a_file_is_read_in_its_own_coordinates(tmp_path):
    """Of a refit the same draws mean another function."""
    own, other = past((4,), 0), past((4,), 1)
    model = Conditioned(single, {"f": own})
    posterior = fits.at_start(model, AutoDelta(model), X, LABELS, f_conditioned_auto_loc=jnp.ones(4))
    posterior.save(tmp_path / "draws.npz")
    wanted = posterior.predict(KEY, X).mean
    for given in (single, Conditioned(single, {"f": own})):
        found = ngp.Posterior.load(tmp_path / "draws.npz", given, posterior.guide)
        np.testing.assert_array_equal(found.predict(KEY, X).mean, wanted)
    match = "model must be in the coordinates of the file, but got one in those of another"
    with pytest.raises(ValueError, match=match):
        ngp.Posterior.load(tmp_path / "draws.npz", Conditioned(single, {"f": other}), posterior.guide)
