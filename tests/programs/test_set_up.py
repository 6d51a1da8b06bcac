"""Set-up in one program: the numbers of an eager run, nothing traced left behind, and nothing let through."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro import handlers
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoDelta, AutoGuideList, AutoMultivariateNormal, AutoNormal

import numpyro_gp as ngp
from numpyro_gp.checks import when_known
from numpyro_gp.programs.set_up import UnfitStart, in_one_program, swapped
from tests.oracles.engines import INPUTS as X
from tests.oracles.engines import TARGETS as Y
from tests.oracles.engines import belief_engine, regression

KEY = jax.random.key(3)


def tracers(thing):
    found = []
    swapped(thing, lambda tracer: found.append(tracer) or tracer)
    return found


@pytest.mark.long
@pytest.mark.parametrize("rest", [AutoDelta, AutoMultivariateNormal], ids=lambda rest: rest.__name__)
def test_a_start_equals_an_eager_one(rest, monkeypatch):
    """Parameters, medians and draws of a guide; the second guide is set up by the same calls, run eagerly."""
    found = []
    for is_eager in (False, True):
        if is_eager:
            monkeypatch.setattr("numpyro_gp.guides.auto.set_up.in_one_program", lambda function, *owners: function())
        svi = belief_engine(rest)
        params = svi.get_params(svi.init(KEY, X, Y, Z=X[::2]))
        assert not tracers((svi, vars(svi), vars(svi.guide), vars(svi.guide.rest)))
        draws = svi.guide.sample_posterior(jax.random.key(1), params, X, Y, Z=X[::2])
        found.append((params, svi.guide.median(params, X, Y, Z=X[::2]), draws))
    for one, other in zip(jax.tree.leaves(found[0]), jax.tree.leaves(found[1]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.long
def test_no_tracer_is_left_in_guides_that_are_lists_or_in_handlers_around():
    guide = AutoGuideList(regression)
    guide.append(AutoNormal(handlers.block(regression, hide=["f", "noise"])))
    guide.append(AutoDelta(handlers.block(regression, expose=["f", "noise"])))
    svi = SVI(regression, guide, numpyro.optim.Adam(0.01), Trace_ELBO())
    result = ngp.fit(KEY, svi, 2, X, Y, Z=X[::2], progress=False)
    with handlers.trace() as trace, handlers.seed(rng_seed=0):
        belief_engine().guide(X, Y, Z=X[::2])
    assert {"f", "noise", "lengthscale"} < set(trace)
    assert not tracers((vars(svi), vars(guide), [vars(part) for part in guide], trace, result))


@pytest.mark.long
def test_a_value_of_the_prior_that_a_kernel_refuses_is_refused_after_the_program():
    def negative(X, y, *, Z):
        variance = numpyro.sample("variance", dist.Normal(-5.0, 0.1))
        f = ngp.gp("f", ngp.kernels.RBF(variance, 1.0), Z)
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)

    with pytest.raises(ValueError, match="variance must be positive, but got -"):
        belief_engine(model=negative).init(KEY, X, Y, Z=X[::2])


def test_code_that_needs_a_value_runs_eagerly():
    calls = []

    def model(y):
        level = numpyro.sample("level", dist.Normal(0.0, 1.0))
        calls.append(float(level) if len(calls) == 0 else 0.0)
        f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), X[::2])
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)

    with handlers.seed(rng_seed=0):
        sites = ngp.AutoGP(model)(Y)
    assert set(sites) == {"level", "f"}
    assert isinstance(calls[0], float)


def test_what_a_failed_try_changed_is_undone():
    class Owner:
        value, table = 1, {"a": 1}

    owner = Owner()
    owner.value, owner.table = 1, {"a": 1}

    def first_try_fails():
        before = owner.value, dict(owner.table)
        owner.value, owner.table["b"] = 2, 2
        when_known(refuse, jnp.zeros(()) + 1.0)
        return before

    def refuse(value):
        if is_first:
            raise UnfitStart

    is_first = True
    with pytest.raises(UnfitStart):
        in_one_program(first_try_fails, owner)
    assert (owner.value, owner.table) == (1, {"a": 1})
    is_first = False
    assert in_one_program(first_try_fails, owner) == (1, {"a": 1})
    assert (owner.value, owner.table) == (2, {"a": 1, "b": 2})


def test_tracers_are_found_wherever_they_are_held():
    class Held:
        pass

    def program(tracer):
        x, held = tracer, Held()
        held.attribute, held.tree = x, optax.EmptyState()
        places = {
            "list": [x, (x, 1)],
            "partial": functools.partial(max, x, key=x),
            "closure": lambda: x,
            "object": held,
            "method": handlers.substitute(lambda: x, data={"x": x}).process_message,
            "cycle": held,
        }
        held.cycle = places
        seen = []
        swapped(places, lambda found: seen.append(found) or 7.0)
        assert all(found is tracer for found in seen)
        assert len(seen) == 7
        assert places["list"] == [7.0, (7.0, 1)]
        assert places["partial"].args == (7.0,)
        assert places["closure"]() == 7.0
        assert held.attribute == 7.0
        return 1.0

    jax.make_jaxpr(program)(2.0)


# --- NumPyro's checks of distributions, which it leaves out where values are traced


def validated(model):
    with numpyro.validation_enabled():
        in_one_program(lambda: handlers.seed(model, jax.random.key(0))())


@pytest.mark.long
def test_parameters_and_data_that_a_distribution_refuses_and_nothing_where_validation_is_off():
    def refused():
        shift = numpyro.sample("shift", dist.Uniform(-3.0, -2.0))
        numpyro.sample("x", dist.Normal(jnp.zeros(2), shift).to_event(1))

    def outside(y):
        numpyro.sample("y", dist.Exponential(numpyro.sample("rate", dist.Gamma(2.0, 1.0))), obs=y)

    def unchecked():
        return numpyro.sample("x", dist.Normal(0.0, -jnp.ones(()) * jnp.exp(1.0), validate_args=False))

    with pytest.raises(ValueError, match="Normal distribution got invalid scale parameter"):
        validated(refused)
    validated(lambda: outside(jnp.asarray(1.0)))
    with pytest.warns(UserWarning, match="Out-of-support values"):
        validated(lambda: outside(jnp.asarray(-1.0)))
    with numpyro.validation_enabled(False):
        drawn = in_one_program(lambda: handlers.seed(unchecked, jax.random.key(0))())
    assert jnp.isfinite(drawn)
