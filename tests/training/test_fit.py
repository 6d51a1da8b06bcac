"""The training loop against NumPyro's own ``SVI.run``, what it prints, and what it refuses before its first step."""

import dataclasses
import functools
import pickle
import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.contrib.einstein import ASVGD, SVGD, RBFKernel
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoDelta

import numpyro_gp as ngp
from numpyro_gp.training.fit import fit
from tests.fits import X, Y, sparse
from tests.oracles.engines import Countdown, data, engine, key, model, same
from tests.precision import x64

KEY, DATA = key(), data()


@pytest.mark.long
def test_steps_equal_those_of_svi_run():
    expected = engine().run(KEY, 60, DATA, batch=2, progress_bar=False)
    result = fit(KEY, engine(), 60, DATA, batch=2, chunk_size=7, progress=False)
    assert isinstance(result, ngp.FitResult)
    assert result.losses.shape == (60,)
    # A step more or less, or a key used twice, moves losses by order one.
    np.testing.assert_allclose(result.losses, expected.losses, rtol=1e-12)
    for name, value in expected.params.items():
        np.testing.assert_allclose(result.params[name], value, rtol=1e-12)


@pytest.mark.long
def test_stein_engine_equals_its_own_run():
    """And an annealed one is told its horizon."""

    def svgd(kind=SVGD, **options):
        return kind(model, numpyro.optim.Adagrad(0.1), RBFKernel(), num_stein_particles=3, **options)

    expected = svgd().run(KEY, 12, DATA, progress_bar=False)
    result = fit(KEY, svgd(), 12, DATA, chunk_size=5, progress=False)
    for name, value in expected.params.items():
        np.testing.assert_allclose(result.params[name], value, rtol=1e-10)
    assert np.all(np.asarray(result.losses) > 0)  # norms of the Stein force
    state = fit(KEY, svgd(ASVGD, num_cycles=2), 6, DATA, progress=False).state
    assert (float(state.num_steps), float(state.step_count)) == (6.0, 6.0)


@pytest.mark.long
def test_arrays_are_arguments_and_the_rest_is_fixed():
    seen = {}

    def inspecting(X, options, y=None, *, batch=None, name="y", link=None):
        if isinstance(X, jax.core.Tracer):
            seen.update(X=X, y=y, shift=options["shift"], batch=batch, name=name, link=link, rate=options["rate"])
        location = numpyro.param("location", 0.0)
        with numpyro.plate("data", X.shape[0], subsample_size=batch) as rows:
            numpyro.sample(name, dist.Normal(link(location), 1.0), obs=y[rows])

    svi = SVI(inspecting, lambda *args, **kwargs: None, optax.sgd(0.1), Trace_ELBO())
    options = {"shift": np.ones(2), "rate": 0.5, "nothing": None}
    fit(KEY, svi, 3, np.ones((4, 1)), options, y=DATA, batch=2, link=jnp.tanh, progress=False)
    assert all(isinstance(seen[name], jax.core.Tracer) for name in ("X", "y", "shift"))
    assert (seen["batch"], seen["name"], seen["link"], seen["rate"]) == (2, "y", jnp.tanh, 0.5)


def test_one_bar_on_standard_error_and_silence(capfd, monkeypatch):
    """In a log by itself, too."""
    for asked in ({"progress": False}, {}):
        fit(KEY, Countdown(), 40, DATA, chunk_size=10, **asked)
        assert capfd.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    fit(KEY, Countdown(), 40, DATA, chunk_size=10)
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "40/40" in err
    assert "loss 61" in err


@pytest.mark.long
def test_a_result_has_its_posterior_and_a_model_its_engine():
    """Of the fit itself, though its guide was fitted to other inducing inputs since; in a pickle too, if it pickles."""
    guide = ngp.AutoGP(sparse)
    svi = SVI(sparse, guide, optax.adam(0.02), Trace_ELBO())
    first = ngp.fit(KEY, svi, 3, X, Y, Z=X[::3], progress=False)
    ngp.fit(KEY, svi, 3, X, Y, Z=X[1::3], progress=False)
    shortest = ngp.fit(KEY, sparse, 3, X, Y, Z=X[::3], progress=False)
    expected = ngp.Posterior.from_svi(sparse, guide, first.params).predict(KEY, X, Z=X[::3], num_samples=3).mean
    for result in (first, shortest, pickle.loads(pickle.dumps(first)), first._replace(losses=None)):
        posterior = result.posterior()
        np.testing.assert_array_equal(posterior.predict(KEY, X, Z=X[::3], num_samples=3).mean, expected)
        with pytest.raises(ValueError, match="inducing inputs of 'f' must be those of the fit"):
            posterior.predict(KEY, X, Z=X[1::3])
    svgd = ngp.stein.SVGD(sparse, optax.sgd(1e-3), num_stein_particles=2)
    particles = ngp.fit(KEY, svgd, 1, X, Y, Z=X[::3], progress=False)
    assert particles.posterior().samples["f"].shape == (2, 4)
    local = lambda X, y=None, *, Z: sparse(X, y, Z=Z)  # noqa: E731
    for lost in (jax.device_get(first), pickle.loads(pickle.dumps(ngp.fit(KEY, local, 1, X, Y, Z=X, progress=False)))):
        np.testing.assert_array_equal(lost.losses, np.asarray(lost[1]))
        with pytest.raises(ValueError, match=r"result must be .* Pass them: Posterior\.from_svi\(model, guide, result"):
            lost.posterior()


def test_a_result_unpacks_into_three():
    params, losses, state = result = ngp.FitResult({"a": 1.0}, jnp.zeros(3), None, np.arange(3))
    assert (len(result), result[0], result[-1]) == (3, params, state)
    assert result[1] is losses
    again = jax.tree.map(lambda leaf: leaf + 1, result)
    np.testing.assert_array_equal(again.rows, np.arange(3) + 1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.params = {}


def test_wrong_paths_are_named(tmp_path):
    """No file that exists is lost; what else is wrong of arguments: ``contracts/misuses_after.py``."""
    exists, done = tmp_path / "there.npz", tmp_path / "done.npz"
    exists.write_bytes(b"a week of work")
    first = fit(KEY, Countdown(), 2, DATA, checkpoint=done, progress=False)
    for options, message in (
        ({"checkpoint": tmp_path}, "checkpoint must be a file in a folder that exists and can be written"),
        ({"checkpoint": exists}, r"checkpoint must be a new file, but got the existing .*resume=True"),
        ({"checkpoint": exists, "resume": first}, "checkpoint must be a new file, but got the existing"),
        ({"checkpoint": exists, "resume": done}, "checkpoint must be a new file, but got the existing"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            fit(KEY, Countdown(), 4, DATA, **options)
    assert exists.read_bytes() == b"a week of work"
    assert len(fit(KEY, Countdown(), 4, DATA, checkpoint=done, resume=str(done), progress=False).losses) == 4


def test_model_arguments_cannot_collide_silently():
    def shadowed(y, progress=1.0):
        numpyro.sample("y", dist.Normal(numpyro.param("m", 0.0), progress).expand([4]).to_event(1), obs=y)

    def build(model, **options):
        return SVI(model, lambda *args, **kwargs: None, optax.sgd(0.1), Trace_ELBO(), **options)

    match = r"the model must be free of arguments .* but got an argument 'progress'.*partial"
    with pytest.raises(TypeError, match=match):
        fit(KEY, build(shadowed), 3, DATA, progress=False)
    bound = fit(KEY, build(functools.partial(shadowed, progress=2.0)), 3, DATA, progress=False)
    same(bound.losses, fit(KEY, build(shadowed, progress=2.0), 3, DATA, progress=False).losses)
    odd = lambda key, num_steps: shadowed(key, num_steps)  # noqa: E731  (names of arguments of fit that come by place)
    found = fit(KEY, build(odd), 3, key=DATA, num_steps=2.0, progress=False)
    same(bound.losses, found.losses)


@pytest.mark.long
def test_arguments_that_are_no_arrays_and_handlers_are_part_of_the_program():
    """Programs are kept for what they are made of. Of other values: ``contracts/test_changes.py``."""

    def plain(y, scale=1.0):
        level = numpyro.sample("level", dist.Normal(0.0, scale))
        numpyro.sample("y", dist.Normal(level, 1.0).expand(y.shape).to_event(1), obs=y)

    def level(scale):
        found = fit(KEY, svi, 60, jnp.ones(8), scale=scale, progress=False)
        return float(found.params["level_auto_loc"])

    svi = SVI(plain, AutoDelta(plain), optax.sgd(0.1), Trace_ELBO())
    np.testing.assert_allclose([level(1.0), level(0.5)], [8 / 9, 8 / 12], rtol=1e-6)
    with numpyro.handlers.condition(data={"y": jnp.full(8, 2.0)}):
        np.testing.assert_allclose(level(1.0), 16 / 9, rtol=1e-6)


def test_precision_switched_between_fits():
    """A kept program is of one precision."""

    def plain(y):
        level = numpyro.sample("level", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(level, 1.0).expand(y.shape).to_event(1), obs=y)

    def guide(y):
        numpyro.sample("level", dist.Delta(numpyro.param("level_auto_loc", lambda key: jnp.zeros(()))))

    svi = SVI(plain, guide, optax.sgd(0.1), Trace_ELBO())
    for is_double, dtype in ((True, np.float64), (False, np.float32)):
        with x64(is_double):
            found = fit(jax.random.key(0), svi, 3, np.ones(8, dtype), progress=False)
        assert found.losses.dtype == dtype
