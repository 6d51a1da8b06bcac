"""The training loop against NumPyro's own ``SVI.run``, hand-made engines with known failures, and files on disk."""

import functools
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.contrib.einstein import ASVGD, SVGD, RBFKernel
from numpyro.infer import SVI, Trace_ELBO, TraceMeanField_ELBO

import numpyro_gp as ngp
from numpyro_gp.training.fit import FitInterrupted, FitResult, NonFiniteLoss, fit
from tests.oracles.engines import Countdown, data, engine, key, model, same

# By name, because the package's attribute ``fit`` is the function.
fit_module = importlib.import_module("numpyro_gp.training.fit")
KEY, DATA = key(), data()

# --- the same steps as NumPyro


@pytest.mark.long
@pytest.mark.parametrize("chunk_size", [None, 7])
def test_steps_equal_those_of_svi_run(chunk_size):
    expected = engine().run(KEY, 60, DATA, batch=2, progress_bar=False)
    result = fit(KEY, engine(), 60, DATA, batch=2, chunk_size=chunk_size, progress=False)
    assert isinstance(result, FitResult)
    assert result.losses.shape == (60,)
    # A step more or less, or a key used twice, moves losses by order one.
    np.testing.assert_allclose(result.losses, expected.losses, rtol=1e-12)
    for name, value in expected.params.items():
        np.testing.assert_allclose(result.params[name], value, rtol=1e-12)


@pytest.mark.long
def test_stein_engine_equals_its_own_run():
    def svgd():
        return SVGD(model, numpyro.optim.Adagrad(0.1), RBFKernel(), num_stein_particles=3)

    expected = svgd().run(KEY, 12, DATA, progress_bar=False)
    result = fit(KEY, svgd(), 12, DATA, chunk_size=5, progress=False)
    for name, value in expected.params.items():
        np.testing.assert_allclose(result.params[name], value, rtol=1e-10)
    assert np.all(np.asarray(result.losses) > 0)  # norms of the Stein force


@pytest.mark.long
def test_annealed_svgd_is_told_its_horizon():
    asvgd = ASVGD(model, numpyro.optim.Adagrad(0.1), RBFKernel(), num_stein_particles=2, num_cycles=2)
    result = fit(KEY, asvgd, 6, DATA, progress=False)
    assert float(result.state.num_steps) == 6.0
    assert float(result.state.step_count) == 6.0


def test_mutable_state_advances():
    def counting(y):
        seen = numpyro.primitives.mutable("seen", {"count": jnp.zeros(())})
        seen["count"] = seen["count"] + 1.0
        numpyro.sample("y", dist.Normal(numpyro.param("location", 0.0), 1.0).expand([4]).to_event(1), obs=y)

    svi = SVI(counting, lambda y: None, optax.sgd(0.01), Trace_ELBO())
    start = svi.init(KEY, DATA).mutable_state["seen"]["count"]
    result = fit(KEY, svi, 9, DATA, chunk_size=4, progress=False)
    assert float(result.state.mutable_state["seen"]["count"] - start) == 9.0


def test_float32_stays_float32():
    def small(y):
        location = numpyro.param("location", jnp.zeros((), jnp.float32))
        numpyro.sample("y", dist.Normal(location, jnp.ones((4,), jnp.float32)).to_event(1), obs=y)

    svi = SVI(small, lambda y: None, optax.sgd(0.1), TraceMeanField_ELBO())
    result = fit(KEY, svi, 5, DATA.astype(jnp.float32), progress=False)
    assert result.params["location"].dtype == jnp.float32


def test_init_params_start_the_run():
    start = {"centre": jnp.asarray(7.0), "scale": jnp.asarray(2.0)}
    result = fit(KEY, engine(optax.sgd(1e-12)), 1, DATA, init_params=start, progress=False)
    np.testing.assert_allclose([result.params["centre"], result.params["scale"]], [7.0, 2.0], atol=1e-6)
    svgd = SVGD(model, numpyro.optim.Adagrad(0.1), RBFKernel())
    with pytest.raises(TypeError, match="init_params must be left out for this engine, but got SVGD"):
        fit(KEY, svgd, 1, DATA, init_params=start)


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


# --- failures


@pytest.mark.parametrize("chunk_size", [1, 4, 5, 6, 100])
@pytest.mark.parametrize("bad_step", [0, 4, 5, 11])
def test_stops_at_the_first_bad_loss_with_the_state_before_it(chunk_size, bad_step):
    with pytest.raises(
        NonFiniteLoss, match=rf"Step {bad_step} of 20 .*the loss is nan.*larger jitter.*\.result"
    ) as info:
        fit(KEY, Countdown(bad_step=bad_step), 20, DATA, chunk_size=chunk_size, progress=False)
    error = info.value
    assert isinstance(error, ArithmeticError)
    assert (error.step, error.sites) == (bad_step, ())
    assert error.result.losses.shape == (bad_step,)
    assert int(error.result.state["step"]) == bad_step
    if bad_step:
        same(error.result, fit(KEY, Countdown(), bad_step, DATA, progress=False))


def test_a_parameter_that_turns_nan_stops_at_its_own_step():
    match = r"Step 6 of 20 .*the loss is 94, but its gradient is not finite.*'weight'"
    with pytest.raises(NonFiniteLoss, match=match) as info:
        fit(KEY, Countdown(bad_step=6, bad="weight"), 20, DATA, chunk_size=5, progress=False)
    np.testing.assert_array_equal(info.value.result.params["weight"], [7.0, 7.0])


@pytest.mark.parametrize("with_path", [True, False])
def test_interrupt_keeps_everything(tmp_path, monkeypatch, with_path):
    path, build, calls = tmp_path / "run.npz", fit_module.loop_of, []

    def interrupted(*args):
        advance = build(*args)

        def third_time_lucky(*inputs):
            calls.append(1)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return advance(*inputs)

        return third_time_lucky

    monkeypatch.setattr(fit_module, "loop_of", interrupted)
    match = r"The fit was interrupted after 10 of 20 steps\. They are in \.result" + (
        r" and in .*run\.npz" if with_path else r"\.$"
    )
    with pytest.raises(FitInterrupted, match=match) as info:
        fit(KEY, Countdown(), 20, DATA, checkpoint=path if with_path else None, chunk_size=5, progress=False)
    assert isinstance(info.value, KeyboardInterrupt)
    assert info.value.result.losses.shape == (10,)
    resume = path if with_path else info.value.result
    same(
        fit(KEY, Countdown(), 20, DATA, progress=False), fit(KEY, Countdown(), 20, DATA, resume=resume, progress=False)
    )


# --- progress


def test_one_bar_on_standard_error_and_silence(capfd):
    fit(KEY, Countdown(), 40, DATA, chunk_size=10, progress=False)
    assert capfd.readouterr() == ("", "")
    fit(KEY, Countdown(), 40, DATA, chunk_size=10)
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "40/40" in err
    assert "loss 61" in err


# --- what is refused


def test_wrong_arguments_are_named(tmp_path):
    with pytest.raises(ValueError, match="num_steps must be at least 1, but got 0"):
        fit(KEY, engine(), 0, DATA)
    with pytest.raises(TypeError, match=r"num_steps must be a whole number, but got 10\.0"):
        fit(KEY, engine(), 10.0, DATA)
    with pytest.raises(TypeError, match="key must be one JAX random key, but got 0"):
        fit(0, engine(), 10, DATA)
    for wrong in (model, SVI, None):
        with pytest.raises(TypeError, match="svi_or_stein must be an SVI, a SteinVI or another object with init"):
            fit(KEY, wrong, 10, DATA)
    with pytest.raises(ValueError, match=r"y of the model must be non-empty data, but got shape \(0, 2\)"):
        fit(KEY, engine(), 10, jnp.zeros((0, 2)))
    with pytest.raises(ValueError, match="y of the model must be non-empty data"):
        fit(KEY, engine(), 10, y=np.zeros(0))
    with pytest.raises(ValueError, match="chunk_size must be at least 1"):
        fit(KEY, engine(), 10, DATA, chunk_size=0)


def test_wrong_paths_are_named(tmp_path):
    exists = tmp_path / "there.npz"
    exists.write_bytes(b"a week of work")
    for path in (tmp_path / "no" / "run.npz", tmp_path):
        with pytest.raises(ValueError, match="checkpoint must be a file in a folder that exists and can be written"):
            fit(KEY, engine(), 10, DATA, checkpoint=path)
    with pytest.raises(ValueError, match=r"checkpoint must be a new file, but got the existing .*resume=True"):
        fit(KEY, engine(), 10, DATA, checkpoint=exists)
    done = fit(KEY, Countdown(), 2, DATA, checkpoint=tmp_path / "done.npz", progress=False)
    for resume in (done, tmp_path / "done.npz"):  # another file than the one that would be replaced
        with pytest.raises(ValueError, match="checkpoint must be a new file, but got the existing"):
            fit(KEY, Countdown(), 4, DATA, checkpoint=exists, resume=resume)
    assert exists.read_bytes() == b"a week of work"
    same_file = {"checkpoint": tmp_path / "done.npz", "resume": str(tmp_path / "done.npz")}
    assert len(fit(KEY, Countdown(), 4, DATA, **same_file, progress=False).losses) == 4
    with pytest.raises(ValueError, match=r"resume must be an existing checkpoint file, but got '.*none\.npz'"):
        fit(KEY, engine(), 10, DATA, resume=tmp_path / "none.npz")
    with pytest.raises(ValueError, match="checkpoint must be a path when resume=True, but got None"):
        fit(KEY, engine(), 10, DATA, resume=True)
    with pytest.raises(TypeError, match="resume must be True, False, a path or a FitResult, but got 3"):
        fit(KEY, engine(), 10, DATA, resume=3)
    with pytest.raises(TypeError, match="checkpoint must be a path, but got 3"):
        fit(KEY, engine(), 10, DATA, checkpoint=3)


def test_model_arguments_cannot_collide_silently():
    def shadowed(y, progress=1.0):
        numpyro.sample("y", dist.Normal(numpyro.param("m", 0.0), progress).expand([4]).to_event(1), obs=y)

    def build(model, **options):
        return SVI(model, lambda *args, **kwargs: None, optax.sgd(0.1), Trace_ELBO(), **options)

    with pytest.raises(
        TypeError, match=r"the model must be free of arguments .* but got an argument 'progress'.*partial"
    ):
        fit(KEY, build(shadowed), 3, DATA, progress=False)
    bound = fit(KEY, build(functools.partial(shadowed, progress=2.0)), 3, DATA, progress=False)
    same(bound.losses, fit(KEY, build(shadowed, progress=2.0), 3, DATA, progress=False).losses)


def test_model_arguments_named_key_and_num_steps_reach_the_model():
    def odd(key, num_steps):
        numpyro.sample("y", dist.Normal(numpyro.param("m", 0.0), num_steps).expand([4]).to_event(1), obs=key)

    svi = SVI(odd, lambda **kwargs: None, optax.sgd(0.1), Trace_ELBO())
    assert fit(KEY, svi, 3, key=DATA, num_steps=2.0, progress=False).losses.shape == (3,)


@pytest.mark.parametrize(("error", "raised"), [(KeyboardInterrupt, FitInterrupted), (RuntimeError, RuntimeError)])
def test_particles_are_kept_where_judging_them_fails(error, raised, monkeypatch):
    """After the last step the density is evaluated at every particle: that may take long, or memory."""

    def model():
        numpyro.sample("a", dist.Normal(0.0, 1.0))

    svgd = ngp.stein.SVGD(model, optax.adam(0.1), num_stein_particles=3)

    def judge(*_, **__):
        raise error("device")

    monkeypatch.setattr(svgd, "judge", judge)
    with pytest.raises(raised) as caught:
        fit(KEY, svgd, 5, progress=False)
    assert caught.value.result.losses.shape == (5,)
