"""Draws of a posterior, and what is refused because it would be the prior."""

import inspect
import warnings
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro import handlers
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoGuideList, AutoLaplaceApproximation, AutoMultivariateNormal, AutoNormal

import numpyro_gp as ngp
from tests.fits import at_start, level

X = np.linspace(0.0, 1.0, 5)[:, None]
Y = np.sin(X[:, 0])
KEY = jax.random.key(0)


def model(X, y=None):
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.3))
    level = numpyro.param("level", 0.0)
    f = ngp.gp("f", ngp.kernels.RBF(1.0, scale), jnp.linspace(0.0, 1.0, 3)[:, None], mean=level)
    with numpyro.plate("data", X.shape[0]):
        own = numpyro.sample("own", dist.Normal(0.0, 0.1))
        at = f(X)
        ngp.observe("y", dist.Normal(at.loc + own, at.scale), ngp.likelihoods.Gaussian(0.1), obs=y)


def written(X, y=None):
    """A guide by hand."""
    mean = numpyro.param("m", jnp.zeros(3))
    numpyro.sample("f", ngp.Belief(ngp.beliefs.Coupled(mean, 0.5 * jnp.eye(3))))
    numpyro.sample("scale", dist.Delta(numpyro.param("s", jnp.ones(()))))
    with numpyro.plate("data", X.shape[0]):
        numpyro.sample("own", dist.Normal(0.0, 0.1))


CALLS = {
    "predict": lambda p: p.predict(KEY, X),
    "hyperparameters": lambda p: p.hyperparameters(KEY, X, Y),
    "function_draws": lambda p: p.function_draws(KEY, X),
    "predict_at": lambda p: p.predict_at(KEY, X, X, Y),
}


def test_nan_is_named_where_a_posterior_is_made():
    """One draw among three, and one parameter; those without make no warning, and traced ones neither."""
    draws = {"f": np.zeros((3, 3)), "scale": np.array([1.0, np.nan, 1.0])}
    with pytest.warns(UserWarning, match=r"draws hold NaN at \['scale'\]"):
        ngp.Posterior.from_mcmc(model, draws)
    with pytest.warns(UserWarning, match=r"params hold NaN at \['m'\]"):
        ngp.Posterior.from_svi(model, written, {"m": jnp.full(3, jnp.nan), "s": jnp.ones(()), "level": jnp.zeros(())})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ngp.Posterior.from_mcmc(model, draws | {"scale": np.ones(3)})
        jax.jit(lambda scale: ngp.Posterior.from_mcmc(model, draws | {"scale": scale}).samples["scale"])(np.ones(3))


@pytest.mark.parametrize("call", CALLS)
def test_a_misspelt_site_is_refused(call):
    """It was drawn from its prior. Deterministic values may be extra."""
    draws = {"scael": jnp.ones(2), "f": jnp.zeros((2, 3)), "own": jnp.zeros((2, 5)), "area": jnp.ones(2)}
    with pytest.raises(ValueError, match=r"got none of \['scale'\], but draws of \['area', 'scael'\]"):
        CALLS[call](ngp.Posterior.from_mcmc(model, draws))


def test_sites_of_single_data_may_be_missing_in_predictions_only():
    posterior = ngp.Posterior.from_mcmc(model, {"scale": jnp.ones(2), "f": jnp.zeros((2, 3)), "area": jnp.ones(2)})
    assert posterior.predict(KEY, X).mean.shape == (5,)
    assert set(posterior.hyperparameters(KEY, X, Y)) == {"scale"}
    with pytest.raises(ValueError, match=r"draws of every latent site.*got none of \['own'\]"):
        posterior.draws(KEY, X, Y)
    other = ngp.Posterior.from_mcmc(model, {"scale": jnp.ones(2), "f": jnp.zeros((2, 4))})
    with pytest.raises(ValueError, match=r"posterior draws of site 'f' fit, of shape \(4,\), but got data for"):
        other.predict(KEY, X)


def two_locations(y):
    """Posterior of each location N(y / 2, 1 / 2); no process is needed for draws of hyper-parameters."""
    for name in ("a", "b"):
        location = numpyro.sample(name, dist.Normal(0.0, 1.0))
        numpyro.sample(f"{name}_data", dist.Normal(location, 1.0), obs=y)


def parts(second):
    """A list of two guides, with parameters of widths 0.3."""
    guide = AutoGuideList(two_locations)
    for name, kind in (("a", AutoNormal), ("b", second)):
        guide.append(kind(handlers.block(two_locations, expose=[name, f"{name}_data"]), prefix=name))
    fit = at_start(two_locations, guide, 1.0)
    return guide, {name: 0.3 if name.endswith("scale") else x for name, x in fit.params.items()}


@pytest.mark.statistical
def test_draws_of_the_guides_of_numpyro_are_those_of_the_guide():
    """Those of Laplace were its mode, with a deviation of 1e-15; those of two parts of a list went together."""
    laplace = at_start(two_locations, AutoLaplaceApproximation(two_locations), 1.0, auto_loc=jnp.full(2, 0.5))
    count, call = 4000, inspect.signature(two_locations).bind(1.0)
    listed = ngp.Posterior.from_svi(two_locations, *parts(AutoNormal))
    for posterior, mean, deviation in ((laplace, 0.5, 0.5**0.5), (listed, None, 0.3)):
        drawn = posterior.hyperparameters(KEY, 1.0, num_samples=count)
        values = np.stack([drawn["a"], drawn["b"]])
        np.testing.assert_allclose(values.std(1), deviation, rtol=4 / (2 * count) ** 0.5)
        assert abs(np.corrcoef(values)[0, 1]) < 4 / count**0.5
        if mean is not None:
            np.testing.assert_allclose(values.mean(1), mean, atol=4 * deviation / count**0.5)
        keys = jax.random.split(KEY, count)
        again = jax.vmap(lambda key, own=posterior.source: own.values(key, 0, call))(keys)
        assert abs(np.corrcoef(again["a"], again["b"])[0, 1]) < 4 / count**0.5


@pytest.mark.long
def test_laplace_in_a_list_is_refused():
    """It reads the density of its part of the model, which mostly has no data: a deviation like the prior's."""
    with pytest.raises(ValueError, match="guide must be a list of guides that their parameters alone describe"):
        ngp.Posterior.from_svi(two_locations, *parts(AutoLaplaceApproximation))


@pytest.mark.long
def test_what_has_predicted_is_freed(collect):
    """A guide, its model and a likelihood of the user's hold data; JAX and this library remember programs, not them."""

    class Held:
        """What a function closes over."""

    def predicts():
        held, key = Held(), jax.random.key(0)

        def model(X, y=None):
            f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.5), jnp.zeros((1, 1)), mean=lambda X: 0.0 * X[:, 0])
            with numpyro.plate("data", len(X)):
                ngp.observe("y", f(X), lambda f: dist.Normal(f, (held, 0.1)[1]), obs=y)

        def guide(X, y=None):
            mean = numpyro.param("mean", (held, jnp.zeros(1))[1])
            numpyro.sample("f", ngp.Belief(ngp.beliefs.MeanField(mean, jnp.ones(1))))

        X = jnp.zeros((2, 1))
        for made in (guide, ngp.AutoGP(model)):
            posterior = at_start(model, made, X, X[:, 0])
            posterior.predict(key, X, num_samples=1)
            posterior.functions(key, 1, X, num_features=2)
        return weakref.ref(held)

    first, second = predicts(), predicts()
    collect()
    assert first() is None
    assert second() is None


def running(X, y=None):
    """An offset that the model keeps beside its parameters, as a network does its running averages."""
    kept = numpyro.primitives.mutable("kept", {"level": jnp.zeros(())})
    if y is not None:
        kept["level"] = 0.5 * kept["level"] + 0.5 * jnp.mean(y)
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.5), jnp.zeros((1, 1)))
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y, offset=kept["level"])


@pytest.mark.long
def test_mutable_state_is_of_the_fit(tmp_path):
    """The process stays at 0: predictions are the average, ``10 (1 - 2^-n)`` after n steps; it started at 0."""
    guide, data = ngp.AutoGP(running), (X, np.full(5, 10.0))
    svi = SVI(running, guide, optax.sgd(1e-9), Trace_ELBO())
    result = ngp.fit(KEY, svi, 20, *data, progress=False, checkpoint=tmp_path / "run.npz")
    ended = float(result.state.mutable_state["kept"]["level"])
    assert ended == pytest.approx(10.0, abs=1e-4)
    posterior = ngp.Posterior.from_svi(running, guide, result.params)
    np.testing.assert_allclose(posterior.predict(KEY, X).mean, ended, atol=1e-6)
    posterior.save(tmp_path / "posterior.npz")
    loaded = ngp.Posterior.load(tmp_path / "posterior.npz", running, guide)
    np.testing.assert_array_equal(loaded.predict(KEY, X).mean, posterior.predict(KEY, X).mean)
    again = ngp.fit(KEY, svi, 20, *data, progress=False, resume=tmp_path / "run.npz")
    assert float(again.params["kept"]["level"]) == ended
    bare = svi.get_params(result.state)
    message = r"params must be with the mutable state \['kept'\], .* after svi.run, \{\*\*result.params, "
    with pytest.raises(ValueError, match=message):
        ngp.Posterior.from_svi(running, guide, bare).predict(KEY, X)
    cured = ngp.Posterior.from_svi(running, guide, {**bare, **result.state.mutable_state})
    np.testing.assert_allclose(cured.predict(KEY, X).mean, ended, atol=1e-6)


def test_mutable_state_of_a_guide_is_of_the_fit():
    def guide(X, y=None):
        kept = numpyro.primitives.mutable("kept", {"level": jnp.zeros(())})
        numpyro.sample("level", dist.Delta(kept["level"]))

    with pytest.raises(ValueError, match=r"params must be with the mutable state \['kept'\]"):
        ngp.Posterior.from_svi(level, guide, {"other": jnp.zeros(())}).predict(KEY, X)
    posterior = ngp.Posterior.from_svi(level, guide, {"kept": {"level": jnp.asarray(3.0)}})
    np.testing.assert_allclose(posterior.predict(KEY, X, num_samples=1).mean, 3.0)


def test_a_guide_by_hand_with_a_parameter_for_each_row_is_bound_to_its_data():
    """New rows have none of them; bound, the guide says what it said, and its rows are drawn from the prior."""

    def local(X, y=None):
        with numpyro.plate("data", len(X)):
            own = numpyro.sample("own", dist.Normal(0.0, 1.0))
        level(X, y, 1e-9 * own)

    def guide(X, y=None):
        numpyro.sample("level", dist.Delta(numpyro.param("at", 0.0)))
        mean = numpyro.param("mean", jnp.zeros(5))
        with numpyro.plate("data", len(X)):
            numpyro.sample("own", dist.Normal(mean, 0.5))

    params = {"at": jnp.asarray(3.0), "mean": jnp.ones(5)}
    message = r"guide must be one that runs at new data, .*\(5,\).* lambda \*args, \*\*kwargs: guide\(X, y\), params"
    with pytest.raises(ValueError, match=message):
        ngp.Posterior.from_svi(local, guide, params).predict(KEY, X[:2])
    bound = ngp.Posterior.from_svi(local, lambda *args, **kwargs: guide(X, Y), params)
    np.testing.assert_allclose(bound.predict(KEY, X[:2], num_samples=2).mean, 3.0, atol=1e-6)


def test_a_fit_of_autogp_predicts_from_its_parameters():
    """And not from what the guide starts at: the mean of its belief by algebra, ``K(X, Z) L^-T m``."""

    def plain(X, y=None):
        f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.5), Z, jitter=1e-6)
        with numpyro.plate("data", X.shape[0]):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)

    Z, m = np.array([[0.0], [0.4], [1.0]]), np.array([0.5, -1.0, 2.0])
    gram, cross = (np.exp(-0.5 * (A - Z.T) ** 2 / 0.5**2) for A in (Z, X))
    wanted = cross @ np.linalg.solve(np.linalg.cholesky(gram + 1e-6 * np.eye(3)).T, m)
    found = at_start(plain, None, X, Y, **{"f/mean": jnp.asarray(m)})
    np.testing.assert_allclose(found.predict(KEY, X).function_mean, wanted, rtol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("name", ["AutoGP", "NumPyro", "by hand"])
def test_parameters_that_are_not_those_of_the_fit_are_refused(name):
    """All of these predicted mean 0 and variance 1, the prior."""
    guide, params = fit_of(name)
    assert ngp.Posterior.from_svi(model, guide, params).predict(KEY, X + 1, num_samples=2).mean.shape == (5,)
    first = {"AutoGP": "f/mean", "NumPyro": "auto_loc", "by hand": "m"}[name]
    rejected(guide, {}, "params must be the parameters of the guide: .*but got none named")
    others = {f"{key}_": value for key, value in params.items()}
    rejected(guide, others, f"got none named .*'{first}'.*; others are .*'{first}_'")
    own = {key: value for key, value in params.items() if key != "level"}
    rejected(guide, own, r"params must be with the model's own parameters \['level'\]")
    wrong = {**params, first: jnp.zeros(7)}
    rejected(guide, wrong, "7" if name != "by hand" else "draws of site 'f' fit, of shape|whitened values|shape")


@pytest.mark.long
def test_parameters_of_another_belief_are_refused(tmp_path):
    """Those of the model and of other guides are not the belief's, and stay; the guide is as it was."""
    guide, params = fit_of("AutoGP")
    before = dict(guide.rest.__dict__)
    message = r"others as well: \['f/Z_gamma', 'f/ngp:natural_gamma'\]. Build the guide with the recipes of the fit"
    rejected(guide, params | {"f/ngp:natural_gamma": jnp.zeros(2), "f/Z_gamma": jnp.zeros(2)}, message)
    others = {"level": jnp.ones(()), "network$params": jnp.zeros(2)}
    assert ngp.Posterior.from_svi(model, guide, params | others).params.keys() == (params | others).keys()
    assert guide.rest.__dict__ == before
    ngp.Posterior.from_svi(model, guide, params).save(tmp_path / "fit.npz")
    other = ngp.AutoGP(lambda X, y=None: ngp.gp("g", ngp.kernels.RBF(1.0, 1.0), X))
    with pytest.raises(ValueError, match=r"got none named .*'g/mean'"):
        ngp.Posterior.load(tmp_path / "fit.npz", model, other, X, Y)


def test_draws_in_another_precision_than_that_of_now_are_refused():
    posterior = ngp.Posterior.from_mcmc(level, {"level": jnp.ones(2, jnp.float64)})
    match = r"got one of float64, while jax_enable_x64 is off\. Swi"
    with jax.enable_x64(False), pytest.raises(TypeError, match=match):
        posterior.predict(KEY, X)
    np.testing.assert_allclose(posterior.predict(KEY, X).mean, 1.0)


@pytest.mark.long
@pytest.mark.parametrize("name", ["AutoGP", "NumPyro"])
def test_a_scale_below_zero_is_refused(name):
    """By NumPyro's own check of a distribution, of numbers that are looked at in NumPy."""
    guide, params = AutoNormal(model) if name == "NumPyro" else ngp.AutoGP(model, rest=AutoNormal), {}
    fit = at_start(model, guide, X, Y)
    (width,) = [name for name in fit.params if name.endswith("scale_auto_scale")]
    params = {**fit.params, width: -jnp.asarray(fit.params[width])}
    rejected(fit.guide, params, "Normal distribution got invalid scale parameter")


def fit_of(name):
    """Guide and parameters of three kinds of guide."""
    guides = {
        "AutoGP": lambda: ngp.AutoGP(model, rest=AutoNormal),
        "NumPyro": lambda: AutoMultivariateNormal(model),
        "by hand": lambda: written,
    }
    fit = at_start(model, guides[name](), X, Y)
    return fit.guide, dict(fit.params)


def rejected(guide, params, message):
    with pytest.raises(ValueError, match=message):
        ngp.Posterior.from_svi(model, guide, params).predict(KEY, X + 1)


def of_classes(X, y=None):
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), X[:4], outputs=3)
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), ngp.likelihoods.Softmax(3), obs=y)


@pytest.mark.long
def test_natural_beliefs_of_several_outputs_are_checked_as_they_are():
    """JAX refuses NumPy's arrays in rules of derivatives that are mapped: of three outputs, at the start of a fit."""
    labels = jnp.zeros(len(X), int)
    guide = ngp.AutoGP(of_classes, {"f": ngp.guides.coupled(natural=True)})
    fit = at_start(of_classes, guide, X, labels)
    posterior = ngp.Posterior.from_svi(of_classes, fit.guide, fit.params)
    np.testing.assert_allclose(posterior.predict(KEY, X).mean, 1 / 3, atol=0.05)


@pytest.mark.long
def test_parameters_are_numpy_arrays_too():
    """As files have them: those of natural steps of several outputs ended in a bare error of JAX."""

    def two(X, y=None):
        f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), X[::2], outputs=2)
        with numpyro.plate("data", X.shape[0]):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.3), obs=y)

    guide = ngp.AutoGP(two, {"f": ngp.guides.coupled(natural=True)})
    svi = SVI(two, guide, ngp.optim.natural_gradient(optax.adam(0.01)), Trace_ELBO())
    params = svi.get_params(svi.init(KEY, X, np.stack([Y, -Y], axis=1)))
    means = [ngp.Posterior.from_svi(two, guide, own).predict(KEY, X).mean for own in (params, jax.device_get(params))]
    np.testing.assert_array_equal(*means)
