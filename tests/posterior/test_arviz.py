"""ArviZ's functions on results of the three engines, and leave-one-out against its closed form."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import numpyro
import pytest

import numpyro_gp as ngp
from numpyro_gp.posterior.arviz import arviz_container, sample_stats
from numpyro_gp.posterior.draws import TrainingDraws
from tests.fits import KEY, X, Y, Z, fit, sparse
from tests.precision import x64

mpl.use("Agg")


@functools.cache
def container(engine):
    """Of each engine one."""
    name = {"svi": "coupled", "mcmc": "NUTS", "stein": "Stein"}[engine]
    return fit(name).to_arviz(jax.random.key(5), X, Y, num_samples=120)


@pytest.mark.long
def test_groups_dimensions_and_attributes():
    """Named dimensions, coordinates of the plate, and what the draws are."""
    sizes = {"svi": (1, 120), "mcmc": (2, 60), "stein": (1, 30)}
    for engine, size in sizes.items():
        data = container(engine)
        assert data["posterior"]["f"].dims == ("chain", "draw", "f_inducing"), engine
        assert data["posterior"]["f"].shape == (*size, 4)
        assert data["log_likelihood"]["y"].dims == data["posterior_predictive"]["y"].dims == ("chain", "draw", "data")
        assert data["observed_data"]["y"].dims == ("data",)
        assert data["constant_data"]["X"].dims == ("data", "X_dim_1")
        assert "y" not in data["constant_data"]
        np.testing.assert_array_equal(data["observed_data"]["y"], Y)
        assert data["posterior"].attrs["inference_engine"] == engine
    assert "no chain" in container("stein")["posterior"].attrs["sampling"]
    assert "independent draws" in container("svi")["posterior"].attrs["sampling"]
    stats_of = container("mcmc")["sample_stats"]
    assert {"energy", "diverging", "lp", "n_steps", "tree_depth"} <= set(stats_of)
    assert stats_of["energy"].shape == (2, 60)


@pytest.mark.long
def test_chains_stay_in_their_order():
    """Draws of two chains must not be mixed: chain 1 is the first half of NumPyro's flat draws."""
    draws = {"f": jnp.zeros((20, len(Z))), "noise": jnp.linspace(0.3, 0.6, 20)}
    chains = {"num_chains": 2, "extra_fields": {"energy": jnp.arange(20.0)}}
    posterior = dataclasses.replace(ngp.Posterior.from_mcmc(sparse, draws), **chains)
    data, fewer = (posterior.to_arviz(KEY, X, Y, **some) for some in ({}, {"num_samples": 4}))
    np.testing.assert_array_equal(data["posterior"]["noise"][0], draws["noise"][:10])
    np.testing.assert_array_equal(fewer["posterior"]["noise"][1], draws["noise"][jnp.array([10, 19])])
    np.testing.assert_array_equal(fewer["sample_stats"]["energy"][1], [10.0, 19.0])


@pytest.mark.long
def test_several_outputs_and_names_of_dimensions():
    posterior, y = fit("outputs"), jnp.stack([Y, -Y], axis=-1)
    data = posterior.to_arviz(KEY, X, y, dims={"y": ["data", "channel"]}, coords={"channel": ["left", "right"]})
    assert data["posterior"]["f"].dims == ("chain", "draw", "f_output", "f_inducing")
    assert data["log_likelihood"]["y"].dims == ("chain", "draw", "data")
    assert data["observed_data"]["y"].coords["channel"].values.tolist() == ["left", "right"]
    with pytest.raises(ValueError, match=r"dims must be names of sites or arguments.*\['z'\]"):
        posterior.to_arviz(KEY, X, y, dims={"z": ["data"]})


def test_either_generation_is_called_with_its_own_arguments(monkeypatch):
    """The call for ArviZ 1 (nested groups) and for 0.23 (one keyword for each group)."""
    calls = {}

    class Package:
        def __init__(self, version):
            self.__version__ = version

        def from_dict(self, *args, **kwargs):
            calls[self.__version__] = (args, kwargs)

    for version in ("0.23.4", "1.3.0"):
        monkeypatch.setattr("numpyro_gp.posterior.arviz.arviz", lambda version=version: Package(version))
        arviz_container("mcmc", TrainingDraws({"a": jnp.zeros(2)}, {}, {}, {}, {"a": []}, {}, ()), {}, {}, 1)
    args, kwargs = calls["1.3.0"]
    assert set(args[0]) == {"posterior"}
    assert args[0]["posterior"]["a"].shape == (1, 2)
    assert set(kwargs["attrs"]) == {"posterior", "/"}
    args, kwargs = calls["0.23.4"]
    assert not args
    assert set(kwargs) == {"posterior", "coords", "dims", "posterior_attrs", "attrs"}


def test_statistics_take_the_names_of_arviz():
    extra = {"potential_energy": np.arange(6.0), "num_steps": np.array([1, 3, 7, 7, 1, 3]), "adapt_state": object()}
    found = sample_stats(extra, np.array([0, 2, 3, 5]), 2)
    assert set(found) == {"lp", "n_steps", "tree_depth"}
    np.testing.assert_array_equal(found["lp"], [[0, -2], [-3, -5]])
    np.testing.assert_array_equal(found["tree_depth"], [[1, 3], [3, 2]])


@pytest.mark.long
@pytest.mark.parametrize("is_other", [False, True])
def test_data_of_numpy_are_observed_and_no_constants_in_single_precision(is_other):
    """Rounded, they were no longer the argument, whose dimensions took the place of those of the site.

    So do those of an argument of the same name that the model changes.
    """
    rng = np.random.default_rng(0)
    x, y, seen = np.linspace(0.0, 1.0, 8)[:, None], rng.normal(size=(3, 8)), rng.uniform(size=(3, 8)) < 0.6

    def model(X, y=None, seen=True):
        f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.5), jnp.array([[0.0], [1.0]]))
        plates = numpyro.plate("replicates", 3, dim=-2), numpyro.plate("rows", X.shape[0])
        with plates[0], plates[1], numpyro.handlers.mask(mask=seen):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.3), obs=y + 1 if is_other else y)

    with x64(False):
        posterior = ngp.Posterior.from_mcmc(model, {"f": jnp.asarray(rng.normal(size=(2, 2)))})
        whole, some = posterior.to_arviz(KEY, x, y), posterior.to_arviz(KEY, x, y, jnp.asarray(seen))
    for group in ("log_likelihood", "posterior_predictive"):
        assert whole[group]["y"].dims == ("chain", "draw", "replicates", "rows")
        assert some[group]["y"].dims == ("chain", "draw", "y_seen")
    assert whole["observed_data"]["y"].dims == ("replicates", "rows")
    assert ("y" in whole["constant_data"]) == is_other
    assert "y" not in some["constant_data"]
    np.testing.assert_array_equal(some["observed_data"]["y"].coords["y_seen"], np.flatnonzero(seen))
