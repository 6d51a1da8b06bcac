"""A saved variational fit is loaded without the training data: the file has the shapes of the arguments."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import (
    AutoGuideList,
    AutoLaplaceApproximation,
    AutoLowRankMultivariateNormal,
    AutoNormal,
)

import numpyro_gp as ngp
from numpyro_gp.posterior.storage import read_arrays, write_arrays

KEY = jax.random.key(0)
X = np.linspace(-1.0, 1.0, 9)[:, None]
Y, Z = np.arange(9.0), X[::3]


def model(X, y=None, *, Z, name="y"):
    """Priors are in the units of the inputs, and counts are checked: zeros in their place would be refused."""
    lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(Z, ard=False))
    share = numpyro.sample("share", dist.Uniform(0.1, 4.0))
    f = ngp.gp("f", ngp.kernels.RBF(share, lengthscale), Z)
    with numpyro.plate("data", len(X)):
        ngp.observe(name, f(X), ngp.likelihoods.Poisson(), obs=y)


def listed():
    guide = AutoGuideList(model)
    guide.append(AutoNormal(numpyro.handlers.block(model, hide=["f"]), prefix="one"))
    guide.append(AutoNormal(numpyro.handlers.block(model, expose=["f"]), prefix="two"))
    return guide


def fitted(guide, of=model, **kwargs):
    svi = SVI(of, guide, optax.adam(0.1), Trace_ELBO())
    return ngp.Posterior.from_svi(of, guide, ngp.fit(KEY, svi, 2, X, Y, **kwargs, progress=False).params)


def belief():
    return ngp.AutoGP(model)


def low_rank():
    return ngp.AutoGP(model, rest=AutoLowRankMultivariateNormal)


@functools.cache
def fitted_by(make):
    return fitted(make(), Z=Z)


@pytest.mark.long
@pytest.mark.parametrize("make", [belief, low_rank, listed])
def test_a_fit_is_loaded_into_a_new_guide_without_its_data(make, tmp_path):
    whole = fitted_by(make)
    whole.save(tmp_path / "fit.npz")
    guide = make()
    again = ngp.Posterior.load(tmp_path / "fit.npz", model, guide)
    assert guide.prototype_trace is None  # it may be loaded for another fit as well
    wanted, found = (one.predict(KEY, X[:4], Z=Z, num_samples=3) for one in (whole, again))
    np.testing.assert_array_equal(found.mean, wanted.mean)
    np.testing.assert_array_equal(found.log_density(Y[:4]), wanted.log_density(Y[:4]))
    medians = (one.guide.median(one.params)["lengthscale"] for one in (whole, again))
    np.testing.assert_array_equal(*medians)
    again.save(tmp_path / "again.npz")
    assert read_arrays(tmp_path / "again.npz")[2]["given"] == whole.given
    with pytest.raises(ValueError, match="inducing inputs of 'f' must be those of the fit"):
        again.predict(KEY, X[:4], Z=Z + 0.1)


@pytest.mark.long
def test_batches_and_a_start_by_numpyro_have_shapes_too(tmp_path):
    guide = ngp.AutoGP(model)
    svi = SVI(model, guide, optax.adam(0.1), Trace_ELBO(), Z=Z)
    params = svi.get_params(svi.init(KEY, X, Y))
    ngp.Posterior.from_svi(model, guide, params).save(tmp_path / "fit.npz")
    again = ngp.Posterior.load(tmp_path / "fit.npz", model, ngp.AutoGP(model))
    assert again.given["kwargs"]["dict"]["Z"]["shape"] == [3, 1]
    found = fitted_by_batches()
    assert found.given["args"]["tuple"][0]["shape"] == [5, 1]


def fitted_by_batches():
    guide = ngp.AutoGP(model)
    svi = SVI(model, guide, optax.adam(0.1), Trace_ELBO())
    result = ngp.fit(KEY, svi, 2, batches=[(X[:5], Y[:5]), (X[5:], Y[5:])], num_data=9, Z=Z, progress=False)
    return ngp.Posterior.from_svi(model, guide, result.params)


def bounded(X, y=None, *, top=None):
    """A support that the data set."""
    level = numpyro.sample("level", dist.Uniform(0.0, jnp.max(X) + 1.0 if top is None else top))
    numpyro.sample("y", dist.Normal(level, 1.0).expand(X.shape[:1]).to_event(1), obs=y)


@pytest.mark.parametrize("make", [lambda: AutoNormal(bounded), lambda: AutoLaplaceApproximation(bounded)])
def test_where_values_matter_they_are_asked_for(make, tmp_path):
    guide = make()
    svi = SVI(guide.model, guide, optax.adam(0.1), Trace_ELBO())
    whole = ngp.Posterior.from_svi(guide.model, guide, ngp.fit(KEY, svi, 2, X, Y, progress=False).params)
    whole.save(tmp_path / "fit.npz")
    with pytest.raises(ValueError, match=r"guide must be the guide that was fitted, .*Posterior\.load the arguments"):
        ngp.Posterior.load(tmp_path / "fit.npz", bounded, make())
    again = ngp.Posterior.load(tmp_path / "fit.npz", bounded, make(), X, Y)
    names = [one.guide.median(one.params)["level"] for one in (whole, again)]
    np.testing.assert_array_equal(*names)


def test_files_of_older_releases_have_no_shapes(tmp_path):
    whole = fitted_by(belief)
    kind, groups, notes = whole.parts()
    write_arrays(tmp_path / "fit.npz", kind, groups, {"num_chains": notes["num_chains"]})
    with pytest.raises(ValueError, match="guide must be the guide that was fitted, but got one that has not been run"):
        ngp.Posterior.load(tmp_path / "fit.npz", model, ngp.AutoGP(model))
    again = ngp.Posterior.load(tmp_path / "fit.npz", model, ngp.AutoGP(model), X[:1], Y[:1], Z=Z)
    np.testing.assert_array_equal(again.predict(KEY, X, Z=Z).mean, whole.predict(KEY, X, Z=Z).mean)
