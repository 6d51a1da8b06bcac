"""Parameters that are not those of the fit are refused, and the guide stays as it was."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal, AutoNormal

import numpyro_gp as ngp
from tests.posterior.test_sources import KEY, X, Y, model, written


@pytest.mark.long
@pytest.mark.parametrize("name", ["AutoGP", "NumPyro", "by hand"])
def test_parameters_that_are_not_those_of_the_fit_are_refused(fits, name):
    """All of these predicted mean 0 and variance 1, the prior."""
    guide, params = fits[name]
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
def test_parameters_of_another_belief_are_refused(fits):
    """Those of the model and of other guides are not the belief's, and stay."""
    guide, params = fits["AutoGP"]
    message = r"others as well: \['f/Z_gamma', 'f/ngp:natural_gamma'\]. Build the guide with the recipes of the fit"
    rejected(guide, params | {"f/ngp:natural_gamma": jnp.zeros(2), "f/Z_gamma": jnp.zeros(2)}, message)
    others = {"level": jnp.ones(()), "network$params": jnp.zeros(2)}
    assert ngp.Posterior.from_svi(model, guide, params | others).params.keys() == (params | others).keys()


@pytest.mark.long
def test_the_check_leaves_the_guide_as_it_was(fits):
    guide, params = fits["AutoGP"]
    before = dict(guide.rest.__dict__)
    ngp.Posterior.from_svi(model, guide, params)
    assert guide.rest.__dict__ == before


@pytest.mark.long
def test_loaded_parameters_are_checked(fits, tmp_path):
    guide, params = fits["AutoGP"]
    ngp.Posterior.from_svi(model, guide, params).save(tmp_path / "fit.npz")
    other = ngp.AutoGP(lambda X, y=None: ngp.gp("g", ngp.kernels.RBF(1.0, 1.0), X))
    with pytest.raises(ValueError, match=r"got none named .*'g/mean'"):
        ngp.Posterior.load(tmp_path / "fit.npz", model, other, X, Y)


def test_draws_in_another_precision_than_that_of_now_are_refused():
    def plain(X, y=None):
        level = numpyro.sample("level", dist.Normal(0.0, 10.0))
        with numpyro.plate("data", len(X)):
            ngp.observe("y", dist.Delta(level + jnp.zeros(len(X))), ngp.likelihoods.Gaussian(0.1), obs=y)

    posterior = ngp.Posterior.from_mcmc(plain, {"level": jnp.ones(2, jnp.float64)})
    with (
        jax.enable_x64(False),
        pytest.raises(TypeError, match=r"got one of float64, while jax_enable_x64 is off\. Swi"),
    ):
        posterior.predict(KEY, X)
    np.testing.assert_allclose(posterior.predict(KEY, X).mean, 1.0)


@pytest.fixture(scope="module")
def fits():
    """Guide and parameters of three kinds of guide."""
    found = {}
    guides = (
        ("AutoGP", ngp.AutoGP(model, rest=AutoNormal)),
        ("NumPyro", AutoMultivariateNormal(model)),
        ("by hand", written),
    )
    for name, guide in guides:
        svi = SVI(model, guide, optax.adam(0.01), Trace_ELBO())
        found[name] = guide, svi.get_params(svi.init(jax.random.key(1), X, Y))
    return found


def rejected(guide, params, message):
    with pytest.raises(ValueError, match=message):
        ngp.Posterior.from_svi(model, guide, params).predict(KEY, X + 1)
