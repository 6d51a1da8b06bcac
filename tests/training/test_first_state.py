"""Where fits start: few programs for the first, none for the next, which starts as a new engine would."""

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
from tests.oracles.engines import belief_engine

KEY = jax.random.key(3)


@pytest.mark.long
def test_few_programs_before_the_first_step():
    """With the README's model: 277 and 285 before. Of a second fit none: ``contracts/test_nothing_compiles.py``.

    Of the first ten are NumPyro's and Optax's own, and three are the start, the basis and the marginals. Of the fit
    they are the start, the loop, and the exponential of parameters at the end.
    """
    for run, most in (
        (lambda svi: svi.init(KEY, X, Y, Z=X[::2]), 15),
        (lambda svi: ngp.fit(KEY, svi, 1, X, Y, Z=X[::2], progress=False), 3),
    ):
        svi = belief_engine()
        with counted() as programs:
            run(svi)
        assert programs.count <= most


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
    for data, message in (((X, Y.at[2].set(jnp.nan)), "free of NaN"), ((X.at[2].set(jnp.inf), Y), "X must be finite")):
        with pytest.raises(ValueError, match=message):
            ngp.fit(KEY, svi, 1, *data, Z=X[::2], progress=False)
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


def start(guide=None, batch=None, y=Y, **options):
    svi = SVI(named, guide or AutoDelta(named), optax.sgd(0.0), Trace_ELBO())
    return ngp.fit(KEY, svi, 1, y, **({} if batch is None else {"batch": batch}), **options, progress=False)


@pytest.mark.long
def test_starting_values_of_nothing_are_refused():
    """NumPyro leaves them out without a word; parameters of model and guide and mutable state are something."""
    values = {"location_auto_loc": jnp.asarray(3.0), "level": jnp.asarray(-1.0), "seen": {"count": jnp.asarray(5.0)}}
    result = start(init_params=values)
    assert (result.params["location_auto_loc"], result.params["level"]) == (3.0, -1.0)
    assert result.state.mutable_state["seen"]["count"] > 5.0
    for wrong, message in (
        ({"lavel": jnp.asarray(3.0)}, r"init_params must be values of .*'level'.*, but got \['lavel'\]"),
        ({"location": jnp.asarray(3.0)}, r"but got \['location'\]\. Latent sites have no parameter of their own"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            start(init_params=wrong)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_minibatch_without_rows_or_of_more_than_there_are_is_refused():
    """NumPyro would weigh the data by rows / batch, with a warning about model and guide."""
    for batch in (0, -1):
        match = f"subsample_size of plate 'data' must be at least 1, or None for all rows, but got {batch}"
        with pytest.raises(ValueError, match=match):
            start(batch=batch)
    for batch, got in ((2.5, r"2\.5 \(float\)"), ("2", r"'2' \(str\)"), (True, r"True \(bool\)")):
        with pytest.raises(TypeError, match="of plate 'data' must be a whole number of Python.*, but got " + got):
            start(batch=batch)
    for guide, batch in ((ngp.AutoGP(named), 1000), (AutoDelta(named), 1000), (ngp.AutoGP(named), np.int64(1000))):
        with pytest.raises(ValueError, match=f"of plate 'data' must be at most its {len(Y)} rows, but got 1000"):
            start(guide, batch=batch)


def test_an_error_names_arguments_that_are_no_arrays_and_keywords_of_the_fit():
    """A list or a table reaches the model as it is; `SVI.run` calls the bar `progress_bar`; its own errors stay."""

    def by_rows(y):
        if len(y) == 2:
            raise TypeError("its own")
        with numpyro.plate("data", 3) as rows:
            numpyro.sample("y", dist.Normal(0.0, numpyro.param("scale", 1.0)), obs=y[rows])

    svi = SVI(by_rows, lambda y: None, optax.sgd(0.0), Trace_ELBO())
    with pytest.raises(TypeError) as caught:
        ngp.fit(KEY, svi, 1, [1.0, 2.0, 3.0], progress=False)
    assert any("'y' came as list" in note for note in caught.value.__notes__)
    with pytest.raises(TypeError, match="'progress_bar'") as caught:
        ngp.fit(KEY, svi, 1, jnp.ones(3), progress_bar=False)
    assert "progress," in caught.value.__notes__[0]
    with pytest.raises(TypeError, match="its own"):
        ngp.fit(KEY, svi, 1, jnp.ones(2), progress=False)
