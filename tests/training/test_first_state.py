"""Where fits start: few programs for the first, none for the next, which starts as a new engine would."""

import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoDelta

import numpyro_gp as ngp
from tests.compiling import counted
from tests.oracles.engines import INPUTS as X
from tests.oracles.engines import TARGETS as Y
from tests.oracles.engines import belief_engine, regression

KEY = jax.random.key(3)


@pytest.mark.long
def test_few_programs_before_the_first_step_and_none_for_the_second_fit():
    """With the README's model: 277 and 285 before."""
    svi = belief_engine()
    with counted() as programs:
        svi.init(KEY, X, Y, Z=X[::2])
    assert programs.count <= 40
    svi, keys = belief_engine(), [jax.random.key(n) for n in range(2)]
    with counted() as programs:
        ngp.fit(keys[0], svi, 1, X, Y, Z=X[::2], progress=False)
    assert programs.count <= 6 + 1  # the last is the loop
    other = Y + 1.0
    with counted() as programs:
        for key, data in ((keys[0], Y), (keys[1], Y), (keys[1], other)):
            ngp.fit(key, svi, 1, X, data, Z=X[::2], progress=False)
    assert programs.count == 0


@pytest.mark.long
def test_particles_start_in_few_programs():
    svgd = ngp.stein.SVGD(regression, optax.adam(0.01), ngp.stein.RBF(), 3)
    with counted() as programs:
        first = ngp.fit(KEY, svgd, 2, X, Y, Z=X[::2], progress=False)
    assert programs.count <= 8
    with counted() as programs:
        second = ngp.fit(KEY, svgd, 2, X, Y, Z=X[::2], progress=False)
    assert programs.count == 0
    np.testing.assert_array_equal(first.losses, second.losses)


@pytest.mark.long
def test_a_second_fit_starts_from_its_own_key_and_data():
    """As a new engine would: `init_to_uniform` draws with the key; the start of ``level`` is the mean of the data."""

    def simple(y):
        numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
        level = numpyro.param("level", lambda key: jnp.mean(y))
        numpyro.sample("y", dist.Normal(level, 1.0).expand(y.shape).to_event(1), obs=y)

    def engine():
        guide = AutoDelta(simple, init_loc_fn=numpyro.infer.init_to_uniform)
        return SVI(simple, guide, optax.sgd(0.0), Trace_ELBO())

    used = engine()
    for seed, data in ((0, Y), (1, Y), (1, Y + 2.0)):
        key = jax.random.key(seed)
        start = ngp.fit(key, used, 1, data, progress=False).params
        fresh = ngp.fit(key, engine(), 1, data, progress=False).params
        np.testing.assert_allclose(start["scale_auto_loc"], fresh["scale_auto_loc"], rtol=1e-12)
        np.testing.assert_allclose(start["level"], jnp.mean(data), rtol=1e-12)


@pytest.mark.long
def test_data_that_a_second_fit_must_refuse_are_refused():
    svi = belief_engine()
    ngp.fit(KEY, svi, 1, X, Y, Z=X[::2], progress=False)
    with pytest.raises(ValueError, match="free of NaN"):
        ngp.fit(KEY, svi, 1, X, Y.at[2].set(jnp.nan), Z=X[::2], progress=False)
    with pytest.raises(ValueError, match="X must be finite"):
        ngp.fit(KEY, svi, 1, X.at[2].set(jnp.inf), Y, Z=X[::2], progress=False)
    ngp.fit(KEY, svi, 1, X, Y, Z=X[::2], progress=False)  # the guide is as it was


def test_an_engine_may_be_a_named_tuple():
    """As other libraries write theirs. It has no attributes to look through, so no program of another is used for it."""

    class Steps(NamedTuple):
        size: float

        def init(self, key, rows):
            return jnp.zeros(())

        def update(self, state, rows):
            return state + self.size, -state

        def get_params(self, state):
            return {"value": state}

    for size in (0.5, 2.0):
        result = ngp.fit(jax.random.key(0), Steps(size), 3, jnp.ones(2), progress=False)
        np.testing.assert_array_equal(result.losses, [0.0, -size, -2 * size])
        assert result.params["value"] == 3 * size


def named(y, batch=None):
    """A parameter of the model beside those of the guide, and a mutable state."""
    seen = numpyro.primitives.mutable("seen", {"count": jnp.zeros(())})
    seen["count"] = seen["count"] + 1.0
    location = numpyro.sample("location", dist.Normal(0.0, 1.0))
    level = numpyro.param("level", 0.0)
    with numpyro.plate("data", len(y), subsample_size=batch) as rows:
        numpyro.sample("y", dist.Normal(location + level, 1.0), obs=y[rows])


@pytest.mark.long
def test_starting_values_of_nothing_are_refused():
    """NumPyro leaves them out without a word; parameters of model and guide and mutable state are something."""

    def start(**values):
        svi = SVI(named, AutoDelta(named), optax.sgd(0.0), Trace_ELBO())
        return ngp.fit(KEY, svi, 1, Y, init_params=values, progress=False)

    result = start(location_auto_loc=jnp.asarray(3.0), level=jnp.asarray(-1.0), seen={"count": jnp.asarray(5.0)})
    assert (result.params["location_auto_loc"], result.params["level"]) == (3.0, -1.0)
    assert result.state.mutable_state["seen"]["count"] > 5.0
    with pytest.raises(ValueError, match=r"init_params must be values of .*'level'.*, but got \['lavel'\]"):
        start(lavel=jnp.asarray(3.0))
    with pytest.raises(ValueError, match=r"but got \['location'\]\. Latent sites have no parameter of their own"):
        start(location=jnp.asarray(3.0))
    svi = SVI(named, AutoDelta(named), optax.sgd(0.0), Trace_ELBO())
    with pytest.raises(TypeError, match="init_params must be a dictionary of values by name, but got a list"):
        ngp.fit(KEY, svi, 1, Y, init_params=[1.0], progress=False)


@pytest.mark.parametrize("batch", [0, -1])
def test_a_minibatch_without_rows_is_named(batch):
    svi = SVI(named, AutoDelta(named), optax.sgd(0.0), Trace_ELBO())
    match = f"subsample_size of plate 'data' must be at least 1, or None for all rows, but got {batch}"
    with pytest.raises(ValueError, match=match):
        ngp.fit(KEY, svi, 1, Y, batch=batch, progress=False)


def test_a_minibatch_of_more_rows_than_there_are_is_refused():
    """NumPyro would weigh the data by rows / batch, with a warning about model and guide."""
    match = f"of plate 'data' must be at most its {len(Y)} rows, but got 1000"
    for guide in (ngp.AutoGP(named), AutoDelta(named)):
        with warnings.catch_warnings(), pytest.raises(ValueError, match=match):
            warnings.simplefilter("ignore")
            ngp.fit(KEY, SVI(named, guide, optax.sgd(0.0), Trace_ELBO()), 1, Y, batch=1000, progress=False)


def test_an_error_names_arguments_that_are_no_arrays_and_keywords_of_the_fit():
    """A list or a table reaches the model as it is; `SVI.run` calls the bar `progress_bar`."""

    def by_rows(y):
        with numpyro.plate("data", 3) as rows:
            numpyro.sample("y", dist.Normal(0.0, numpyro.param("scale", 1.0)), obs=y[rows])

    svi = SVI(by_rows, lambda y: None, optax.sgd(0.0), Trace_ELBO())
    with pytest.raises(TypeError) as caught:
        ngp.fit(KEY, svi, 1, [1.0, 2.0, 3.0], progress=False)
    assert any("'y' came as list" in note for note in caught.value.__notes__)
    with pytest.raises(TypeError, match="'progress_bar'") as caught:
        ngp.fit(KEY, svi, 1, jnp.ones(3), progress_bar=False)
    assert "progress," in caught.value.__notes__[0]


def test_errors_of_the_model_itself_stay_as_they_are():
    def broken(y):
        raise TypeError("its own")

    svi = SVI(broken, lambda y: None, optax.sgd(0.0), Trace_ELBO())
    with pytest.raises(TypeError, match="its own"):
        ngp.fit(KEY, svi, 1, Y, progress=False)
