"""Programs are kept for what they are made of: the same fit compiles nothing, a changed value is never missed."""

import functools
import gc
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
from numpyro.infer.autoguide import AutoDelta

import numpyro_gp as ngp
from numpyro_gp.training.programs import PROGRAMS_KEPT, fingerprint, keep_program
from tests.compiling import counted

LEVEL = 1.0


def closed_over(value):
    def function():
        return value

    return function


def with_default(value):
    def function(x=value):
        return x

    return function


class Holder:
    def __init__(self, value):
        self.value = value

    def method(self):
        return self.value


VALUES = [1, 1.0, True, "a", None, (1, 2), [1, 2], {"a": 1}, {"a": 2}, np.ones(2), np.zeros(2), np.ones(2, np.float32)]


@pytest.mark.parametrize(
    "wrap", [closed_over, with_default, functools.partial(functools.partial, print), Holder, lambda v: [v]]
)
def test_equal_values_have_equal_fingerprints_and_others_have_not(wrap):
    prints = [fingerprint(wrap(value)) for value in VALUES]
    assert len(set(prints)) == len(VALUES)
    if wrap is not Holder:  # two objects are two objects
        assert prints == [fingerprint(wrap(value)) for value in VALUES]


def test_what_changes_in_place_is_seen():
    array, holder = np.ones(3), Holder(1.0)
    seen = closed_over(array), holder.method, closed_over(holder.method)
    before = fingerprint(*seen)
    assert fingerprint(*seen) == before
    array[1] = 2.0
    assert fingerprint(*seen) != before
    array[1], holder.value = 1.0, 2.0
    assert fingerprint(*seen) != before


def test_globals_are_seen_also_those_of_inner_functions(monkeypatch):
    def outer():
        return [LEVEL for _ in range(2)]

    before = fingerprint(outer)
    monkeypatch.setitem(globals(), "LEVEL", 2.0)
    assert fingerprint(outer) != before


def test_arrays_of_jax_count_by_identity_and_functions_may_refer_to_themselves():
    array = jnp.ones(3)
    assert fingerprint(closed_over(array)) == fingerprint(closed_over(array)) != fingerprint(closed_over(jnp.ones(3)))

    def recursive(n):
        return recursive(n - 1) if n else 0

    assert fingerprint(recursive) == fingerprint(recursive)


def test_the_programs_used_last_are_kept_and_go_with_their_owner():
    owner, built = Holder(0), []
    for key in (*range(PROGRAMS_KEPT), 0, PROGRAMS_KEPT):
        keep_program(owner, key, lambda _, key=key: built.append(key))
    assert built == list(range(PROGRAMS_KEPT + 1))
    keep_program(owner, 0, lambda _: built.append("used lately, and so still there"))
    keep_program(owner, 1, lambda _: built.append("gone"))
    assert built[-1] == "gone"
    assert "used lately, and so still there" not in built


# ------------------------------------------------------------------------------------- fits of a model

X, Y = jnp.linspace(-1.0, 1.0, 8)[:, None], jnp.ones(8)


def engine_of(model, **options):
    return SVI(model, AutoDelta(model), optax.sgd(0.1), Trace_ELBO(), **options)


def plain(X, y, scale=1.0):
    level = numpyro.sample("level", dist.Normal(0.0, scale))
    numpyro.sample("y", dist.Normal(level, 1.0).expand(y.shape).to_event(1), obs=y)


def level(svi, key=0, y=Y, **arguments):
    return float(ngp.fit(jax.random.key(key), svi, 60, X, y, progress=False, **arguments).params["level_auto_loc"])


def test_the_same_fit_compiles_nothing():
    svi = engine_of(plain)
    result = ngp.fit(jax.random.key(0), svi, 6, X, Y, progress=False)
    keys, other = [jax.random.key(n) for n in range(2)], Y + 1.0
    with counted() as programs:
        again = ngp.fit(keys[0], svi, 6, X, Y, progress=False)
        ngp.fit(keys[1], svi, 20, X, other, progress=False)
        resumed = ngp.fit(keys[0], svi, 9, X, Y, progress=False, resume=again)
    assert programs.count == 0
    np.testing.assert_array_equal(again.losses, result.losses)
    assert resumed.losses.shape == (9,)
    with counted() as programs:
        jax.jit(lambda x: x + 17.0)(1.0)
    assert programs.count == 1, "the counter sees nothing"


@pytest.mark.long
def test_a_value_that_changed_is_not_stale(monkeypatch):
    """Posterior mode 8 y / (8 + 1 / scale^2) of a level with prior N(0, scale^2) and eight data."""
    cell = Holder(1.0)

    def by_attribute(X, y):
        plain(X, y, cell.value)

    def by_global(X, y):
        plain(X, y, LEVEL)

    for model, change in [
        (by_attribute, lambda: setattr(cell, "value", 0.5)),
        (by_global, lambda: monkeypatch.setitem(globals(), "LEVEL", 0.5)),
    ]:
        svi = engine_of(model)
        np.testing.assert_allclose(level(svi), 8 / 9, rtol=1e-6)
        change()
        np.testing.assert_allclose(level(svi), 8 / 12, rtol=1e-6)


def test_arguments_that_are_no_arrays_and_handlers_are_part_of_the_program():
    svi = engine_of(plain)
    np.testing.assert_allclose(level(svi, scale=1.0), 8 / 9, rtol=1e-6)
    np.testing.assert_allclose(level(svi, scale=0.5), 8 / 12, rtol=1e-6)
    with handlers.condition(data={"y": Y + 1}):
        np.testing.assert_allclose(level(svi, scale=1.0), 16 / 9, rtol=1e-6)


def test_precision_switched_between_fits():
    def guide(X, y):
        numpyro.sample("level", dist.Delta(numpyro.param("level_auto_loc", lambda key: jnp.zeros(()))))

    svi, y = SVI(plain, guide, optax.sgd(0.1), Trace_ELBO()), np.ones(8)
    assert ngp.fit(jax.random.key(0), svi, 3, X, y, progress=False).losses.dtype == jnp.float64
    with jax.enable_x64(False):
        assert (
            ngp.fit(jax.random.key(0), svi, 3, np.asarray(X), y.astype(np.float32), progress=False).losses.dtype
            == jnp.float32
        )


def test_an_engine_that_is_gone_leaves_no_program():
    svi = engine_of(plain)
    ngp.fit(jax.random.key(0), svi, 3, X, Y, progress=False)
    reference = weakref.ref(svi)
    del svi
    gc.collect()
    assert reference() is None
