"""Parameters that are not those of the fit are refused, and the guide stays as it was."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro.infer.autoguide import AutoMultivariateNormal, AutoNormal

import numpyro_gp as ngp
from tests.fits import at_start, level
from tests.posterior.test_sources import KEY, X, Y, model, written


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


def test_natural_beliefs_of_several_outputs_are_checked_as_they_are():
    """JAX refuses NumPy's arrays in rules of derivatives that are mapped: of three outputs, at the start of a fit."""
    labels = jnp.zeros(len(X), int)
    guide = ngp.AutoGP(of_classes, {"f": ngp.guides.coupled(natural=True)})
    fit = at_start(of_classes, guide, X, labels)
    posterior = ngp.Posterior.from_svi(of_classes, fit.guide, fit.params)
    np.testing.assert_allclose(posterior.predict(KEY, X).mean, 1 / 3, atol=0.05)
