"""AutoGP under NumPyro's objectives, its answers as an autoguide, and its errors."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro import handlers
from numpyro.infer import SVI, Predictive, Trace_ELBO, TraceEnum_ELBO
from numpyro.infer.autoguide import AutoGuide, AutoNormal

import numpyro_gp as ngp

X = jnp.linspace(-1.0, 1.0, 20)[:, None]
Y = jnp.sin(3 * X[:, 0])
KEY = jax.random.key(3)


def model(X, y=None, batch=None):
    ls = numpyro.sample("lengthscale", dist.LogNormal(0.0, 0.5))
    noise = numpyro.sample("noise", dist.LogNormal(-1.0, 0.5))
    f = ngp.gp("f", ngp.kernels.Matern52(1.0, ls), jnp.linspace(-1.0, 1.0, 5)[:, None])
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
        ngp.observe("y", f(X[idx]), ngp.likelihoods.Gaussian(noise), obs=None if y is None else y[idx])


def latent_model(X, y=None, batch=None):
    Z = jnp.zeros((4, 2)) + jnp.arange(4.0)[:, None]
    h = ngp.gp("h", ngp.kernels.RBF(1.0, 1.0), Z, outputs=2)
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), Z)
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
        inner = h.draw("h_noise", ngp.latent_inputs("w", X[idx]))
        ngp.observe("y", f(inner), ngp.likelihoods.Gaussian(0.3), obs=None if y is None else y[idx])


def started(guide, objective=None, fn=model, **kwargs):
    svi = SVI(fn, guide, optax.adam(0.01), Trace_ELBO() if objective is None else objective)
    return svi, svi.init(jax.random.key(0), X, Y, **kwargs)


def site_in_a_plate(X, y=None):
    with numpyro.plate("parts", 2):
        lengthscales = numpyro.sample("lengthscale", dist.LogNormal(0.0, 0.5))
    first, second = (ngp.kernels.RBF(1.0, lengthscale) for lengthscale in lengthscales)
    f = ngp.gp("f", first + second, X[:3])
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.3), obs=y)


@pytest.mark.long
def test_a_site_in_a_plate_has_the_gradient_of_trace_elbo_under_enumeration():
    """TraceEnum_ELBO makes plates of funsor's class, which the autoguide of the rest must take."""
    guide, gradients = ngp.AutoGP(site_in_a_plate, rest=AutoNormal), []
    svi, state = started(guide, fn=site_in_a_plate)
    for objective in (Trace_ELBO(), TraceEnum_ELBO()):
        loss = lambda params, own=objective: own.loss(KEY, svi.constrain_fn(params), svi.model, guide, X, Y)  # noqa: E731
        gradients.append(jax.jit(jax.grad(loss))(svi.optim.get_params(state.optim_state)))
    assert all(jnp.all(jnp.abs(leaf) > 0) for name, leaf in gradients[0].items() if "lengthscale" in name)
    for name, leaf in gradients[0].items():
        np.testing.assert_allclose(gradients[1][name], leaf, rtol=1e-10, atol=1e-10)


@pytest.mark.long
def test_answers_of_an_autoguide():
    svi, state = started(ngp.AutoGP(model, {"f": ngp.guides.coupled(scale=0.5, mean=jnp.arange(5.0))}, rest=AutoNormal))
    params, guide = svi.get_params(state), svi.guide
    median = guide.median(params)
    assert set(median) >= {"f", "lengthscale", "noise"}
    np.testing.assert_allclose(median["f"], np.arange(5.0))
    quantiles = guide.quantiles(params, [0.05, 0.5, 0.95])
    np.testing.assert_allclose(quantiles["f"][2] - quantiles["f"][1], 0.5 * 1.6448536, rtol=1e-6)
    draws = guide.sample_posterior(jax.random.key(0), params, sample_shape=(4000,))
    np.testing.assert_allclose(draws["f"].std(0), 0.5, rtol=0.06)


@pytest.mark.long
def test_local_sites_keep_their_plates_and_minibatches():
    """And their rows: at new data noise of draws would follow, and latent inputs of the fit do not."""
    svi, state = started(ngp.AutoGP(latent_model), fn=latent_model, batch=5)
    params = svi.get_params(state)
    assert params["w/loc"].shape == (20, 1)
    new, loss = jax.jit(lambda s: svi.update(s, X, Y, batch=5))(state)
    assert jnp.isfinite(loss)
    changed = jnp.any(svi.get_params(new)["w/loc"] != params["w/loc"], axis=1)
    assert int(changed.sum()) == 5, "only the rows of the minibatch get a gradient"
    message = r"data in plate 'data' must be the 20 rows.*but got 3 rows. Predict with ngp.Posterior"
    with handlers.seed(rng_seed=0), handlers.substitute(data=params), pytest.raises(ValueError, match=message):
        svi.guide(X[:3])


@pytest.mark.long
def test_quantiles_of_a_rest_that_has_none_are_refused():
    bare = type("Bare", (AutoNormal,), {"quantiles": AutoGuide.quantiles})
    svi, state = started(ngp.AutoGP(model, rest=bare))
    with pytest.raises(ValueError, match="rest must be an autoguide with quantiles, such as AutoNormal, but got Bare"):
        svi.guide.quantiles(svi.get_params(state), 0.5)


@pytest.mark.long
def test_missing_parameters_are_refused():
    """Beliefs stood at what their recipes start at, without a word; those of the rest were bare KeyErrors."""
    svi, state = started(ngp.AutoGP(model, rest=AutoNormal))
    guide, params = svi.guide, svi.get_params(state)
    for call, needed in (
        (guide.beliefs, ["f/mean"]),
        (guide.median, ["f/mean", "noise_auto_loc"]),
        (lambda params: guide.quantiles(params, 0.5), ["f/mean", "noise_auto_loc"]),
        (lambda params: guide.sample_posterior(KEY, params), ["f/mean", "noise_auto_loc"]),
        (lambda params: guide.global_values(KEY, params), ["f/mean", "noise_auto_loc"]),
    ):
        call(params)
        for missing in needed:
            left = {name: value for name, value in params.items() if name != missing}
            with pytest.raises(ValueError, match=f"params must be the parameters of the guide, '{missing}' among them"):
                call(left)


def process_alone(X):
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.5), X[:3])
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=Y)


@pytest.mark.long
def test_deterministic_sites_do_not_ask_for_the_arguments_of_the_model():
    """NumPyro's guides run the model once more for them, without its arguments: the posterior could not predict."""

    def noisy(X, y=None):
        noise = numpyro.sample("noise", dist.LogNormal(-1.0, 1.0))
        f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), jnp.zeros((1, 1)))
        numpyro.deterministic("location", f(X).mean)
        with numpyro.plate("data", X.shape[0]):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(noise), obs=y)

    guide, X = ngp.AutoGP(noisy), jnp.ones((2, 1))
    trace = handlers.trace(handlers.seed(guide, rng_seed=0)).get_trace(X, jnp.ones(2))
    params = {name: site["value"] for name, site in trace.items() if site["type"] == "param"}
    values = guide.global_values(jax.random.key(0), {**params, "noise_auto_loc": jnp.asarray(0.7)})
    assert set(values) == {"f", "noise"}
    assert values["noise"] == 0.7


@pytest.mark.long
def test_a_mask_over_latent_inputs_is_refused():
    """The model hid their prior and the guide kept their entropy: scales of hidden rows grew without end."""

    def masked(X, y=None, seen=True):
        f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), jnp.ones((2, 2)) * jnp.arange(2.0)[:, None])
        with numpyro.plate("data", X.shape[0]), handlers.mask(mask=seen):
            w = ngp.latent_inputs("w", X)
            ngp.observe("y", f(w), ngp.likelihoods.Gaussian(0.3), obs=y)

    guide, seen = ngp.AutoGP(masked), jnp.arange(20) < 9
    with handlers.seed(rng_seed=0):
        guide(X, Y)  # nothing is masked
        for one in (guide, ngp.AutoGP(masked)):
            with pytest.raises(ValueError, match=r"site 'w' must be outside of handlers\.mask"):
                one(X, Y, seen)


@pytest.mark.long
def test_a_compiled_first_call_leaves_no_tracer_behind():
    """The start of `orthogonal` reads values of the prior: those of an earlier trace may not be used."""
    guide = ngp.AutoGP(process_alone, {"f": ngp.guides.orthogonal(X[3:5])})
    svi = SVI(process_alone, guide, optax.adam(0.01), Trace_ELBO())
    init = lambda key, X: svi.get_params(svi.init(key, X))  # noqa: E731
    with jax.checking_leaks():
        first = jax.jit(init)(jax.random.key(0), X)
    again = jax.jit(init)(jax.random.key(0), X)
    eager = init(jax.random.key(0), X)
    for name, value in first.items():
        np.testing.assert_array_equal(again[name], value)
        np.testing.assert_allclose(eager[name], value, rtol=1e-12)
    assert guide.median(first)["f"].shape == (3,)
    own = ngp.AutoGP(process_alone, {"f": ngp.guides.orthogonal(X[3:5])})
    alone = SVI(process_alone, own, optax.adam(0.01), Trace_ELBO())
    jax.jit(lambda key, X: alone.get_params(alone.init(key, X)))(jax.random.key(0), X)
    ngp.Posterior.from_svi(process_alone, own, first)  # whose check of the parameters has nothing but shapes


@pytest.mark.long
def test_predictive_of_numpyro_reads_the_guide():
    """Its draws have the moments of predictions, after steps that move them away from the prior."""
    guide = ngp.AutoGP(model, {"f": ngp.guides.coupled(natural=True)})
    svi = SVI(model, guide, ngp.optim.natural_gradient(optax.adam(0.01), 0.5), Trace_ELBO())
    params = ngp.fit(KEY, svi, 20, X, Y, progress=False).params
    drawn = Predictive(model, guide=guide, params=params, num_samples=1000)(KEY, X)["y"]
    prediction = ngp.Posterior.from_svi(model, guide, params).predict(KEY, X)
    assert float(jnp.corrcoef(prediction.mean, Y)[0, 1]) > 0.9
    assert float(jnp.max(jnp.abs(drawn.mean(0) - prediction.mean) / jnp.sqrt(prediction.variance / 1000))) < 5
    np.testing.assert_allclose(drawn.var(0), prediction.variance, rtol=0.3)
