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


@functools.cache
def fitted(make, of=model):
    guide, kwargs = make(), {"Z": Z} if of is model else {}
    svi = SVI(of, guide, optax.adam(0.1), Trace_ELBO())
    return ngp.Posterior.from_svi(of, guide, ngp.fit(KEY, svi, 2, X, Y, **kwargs, progress=False).params)


def belief():
    return ngp.AutoGP(model)


@pytest.mark.long
@pytest.mark.parametrize("make", [belief, listed])
def test_a_fit_is_loaded_into_a_new_guide_without_its_data(make, tmp_path):
    whole, guide = fitted(make), make()
    whole.save(tmp_path / "fit.npz")
    again = ngp.Posterior.load(tmp_path / "fit.npz", model, guide)
    assert guide.prototype_trace is None  # it may be loaded for another fit as well
    wanted, found = (one.predict(KEY, X[:4], Z=Z, num_samples=3) for one in (whole, again))
    np.testing.assert_array_equal(found.mean, wanted.mean)
    np.testing.assert_array_equal(found.log_density(Y[:4]), wanted.log_density(Y[:4]))
    medians = (one.guide.median(one.params)["lengthscale"] for one in (whole, again))
    np.testing.assert_allclose(*medians, rtol=1e-14)  # two programs may round apart
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
    guide = ngp.AutoGP(model)
    svi, halves = SVI(model, guide, optax.adam(0.1), Trace_ELBO()), [(X[:5], Y[:5]), (X[5:], Y[5:])]
    result = ngp.fit(KEY, svi, 2, batches=halves, num_data=9, Z=Z, progress=False)
    assert ngp.Posterior.from_svi(model, guide, result.params).given["args"]["tuple"][0]["shape"] == [5, 1]


def bounded(X, y=None, *, top=None):
    """A support that the data set."""
    level = numpyro.sample("level", dist.Uniform(0.0, jnp.max(X) + 1.0 if top is None else top))
    numpyro.sample("y", dist.Normal(level, 1.0).expand(X.shape[:1]).to_event(1), obs=y)


@pytest.mark.long
@pytest.mark.parametrize("kind", [AutoNormal, AutoLaplaceApproximation])
def test_where_values_matter_they_are_asked_for(kind, tmp_path):
    whole, again = fitted(lambda: kind(bounded), bounded), tmp_path / "fit.npz"
    whole.save(again)
    with pytest.raises(ValueError, match=r"guide must be the guide that was fitted, .*Posterior\.load the arguments"):
        ngp.Posterior.load(again, bounded, kind(bounded))
    found = ngp.Posterior.load(again, bounded, kind(bounded), X, Y)
    np.testing.assert_array_equal(*(one.guide.median(one.params)["level"] for one in (whole, found)))


@pytest.mark.long
def test_files_of_older_releases_have_no_shapes(tmp_path):
    whole = fitted(belief)
    kind, groups, notes = whole.parts()
    write_arrays(tmp_path / "fit.npz", kind, groups, {"num_chains": notes["num_chains"]})
    with pytest.raises(ValueError, match="guide must be the guide that was fitted, but got one that has not been run"):
        ngp.Posterior.load(tmp_path / "fit.npz", model, ngp.AutoGP(model))
    again = ngp.Posterior.load(tmp_path / "fit.npz", model, ngp.AutoGP(model), X[:1], Y[:1], Z=Z)
    np.testing.assert_array_equal(again.predict(KEY, X, Z=Z).mean, whole.predict(KEY, X, Z=Z).mean)
