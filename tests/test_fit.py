"""The training loop against NumPyro's own ``SVI.run``, hand-made engines with known failures, and files on disk."""

import functools
import importlib
import os

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.contrib.einstein import ASVGD, SVGD, RBFKernel
from numpyro.distributions import constraints
from numpyro.infer import SVI, Trace_ELBO, TraceMeanField_ELBO

from numpyro_gp.fit import FitInterrupted, FitResult, NonFiniteLoss, fit

# By name, because the package's attribute ``fit`` is the function.
fit_module = importlib.import_module("numpyro_gp.fit")

KEY = jax.random.key(3)
DATA = jnp.asarray([0.5, 1.5, -0.3, 2.2])


def model(y, batch=None):
    location = numpyro.sample("location", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", y.shape[0], subsample_size=batch) as rows:
        numpyro.sample("y", dist.Normal(location, 1.0), obs=y[rows])


def guide(y, batch=None):
    scale = numpyro.param("scale", 1.0, constraint=constraints.positive)
    numpyro.sample("location", dist.Normal(numpyro.param("centre", 0.0), scale))


def engine(optimiser=None):
    return SVI(model, guide, optimiser or optax.adam(0.05), Trace_ELBO())


class Countdown:
    """An engine whose loss is ``100 - step``: no model, no guide, and a count of its traces."""

    def __init__(self, bad_step=None, bad="loss"):
        self.traces, self.bad_step, self.bad = 0, bad_step, bad

    def init(self, key, data):
        return {"step": 0, "weight": jnp.ones(2), "key": key}

    def update(self, state, data):
        self.traces += 1
        step, is_bad = state["step"], state["step"] == (-1 if self.bad_step is None else self.bad_step)
        loss = jnp.where(is_bad & (self.bad == "loss"), jnp.nan, 100.0 - step + 0.0 * jnp.sum(data))
        weight = jnp.where(is_bad & (self.bad == "weight"), jnp.nan, state["weight"] + 1.0)
        return {"step": step + 1, "weight": weight, "key": jax.random.split(state["key"])[0]}, loss

    def get_params(self, state):
        return {"weight": state["weight"]}


def same(left, right):
    """Bit for bit equality of two results, keys and dtypes included."""
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


# --- the same steps as NumPyro


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


def test_stein_engine_equals_its_own_run():
    def svgd():
        return SVGD(model, numpyro.optim.Adagrad(0.1), RBFKernel(), num_stein_particles=3)

    expected = svgd().run(KEY, 12, DATA, progress_bar=False)
    result = fit(KEY, svgd(), 12, DATA, chunk_size=5, progress=False)
    for name, value in expected.params.items():
        np.testing.assert_allclose(result.params[name], value, rtol=1e-10)
    assert np.all(np.asarray(result.losses) > 0)  # norms of the Stein force


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


# --- compilation


@pytest.mark.parametrize("chunk_size", [None, 1, 7, 1000])
def test_update_is_traced_once_for_all_chunks_and_the_short_last_one(chunk_size):
    counting = Countdown()
    result = fit(KEY, counting, 25, np.ones(3), chunk_size=chunk_size, progress=False)
    assert counting.traces == 1
    np.testing.assert_array_equal(result.losses, 100.0 - np.arange(25))
    np.testing.assert_array_equal(result.params["weight"], [26.0, 26.0])


def test_a_failure_and_its_rerun_trace_nothing_new():
    counting = Countdown(bad_step=13)
    with pytest.raises(NonFiniteLoss):
        fit(KEY, counting, 25, DATA, chunk_size=5, progress=False)
    assert counting.traces == 1


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


def failing(y):
    """A model whose second site turns NaN at step 4 of plain ascent (x grows by 1 a step), and with it the third."""
    x = numpyro.param("x", 0.5)
    numpyro.factor("push", x)
    numpyro.sample("first", dist.Normal(0.0, 1.0), obs=jnp.zeros(()))
    margin = numpyro.deterministic("margin", jnp.where(x > 4.0, jnp.nan, 1.0))
    numpyro.sample("second", dist.Normal(0.0, jax.lax.stop_gradient(margin)), obs=y[0])
    numpyro.sample("third", dist.Normal(jax.lax.stop_gradient(margin), 1.0), obs=y[1])


def test_message_names_the_sites_in_model_order():
    svi = SVI(failing, lambda y: None, optax.sgd(1.0), Trace_ELBO())
    with pytest.raises(NonFiniteLoss, match=r"were finite.*'margin' \(value\), 'second' \(nan\), 'third'") as info:
        fit(KEY, svi, 9, DATA, progress=False)
    assert info.value.step == 4
    assert info.value.sites == ("margin", "second", "third")
    np.testing.assert_allclose(info.value.result.params["x"], 4.5, rtol=1e-12)


def test_an_infinite_gradient_names_site_and_parameter():
    def kinked(y):
        x = numpyro.param("x", 0.0)
        numpyro.sample("fine", dist.Normal(x, 1.0), obs=y[0])
        numpyro.sample("kink", dist.Normal(jnp.sqrt(jnp.abs(x)), 1.0), obs=y[1])

    svi = SVI(kinked, lambda y: None, optax.sgd(1.0), Trace_ELBO())
    with pytest.raises(NonFiniteLoss, match=r"Step 0 .*gradient is not finite.*'kink' \(by 'x'\)") as info:
        fit(KEY, svi, 9, DATA, progress=False)
    assert info.value.sites == ("kink",)
    assert float(info.value.result.params["x"]) == 0.0


def test_a_parameter_that_is_not_finite_from_the_start_is_named():
    def guide(y):
        z = numpyro.param("bound", jnp.inf)
        numpyro.sample("z", dist.Delta(z))

    def simple(y):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(z, 1.0, validate_args=False), obs=y[0])

    svi = SVI(simple, guide, optax.sgd(0.1), Trace_ELBO())
    with pytest.raises(NonFiniteLoss, match=r"not finite before this step: 'bound'.*in model order: 'z' .*'y'"):
        fit(KEY, svi, 9, DATA, progress=False)


@pytest.mark.parametrize("particles", [1, 3])
def test_the_diagnosis_draws_with_the_key_of_the_step(particles):
    # The site is NaN for draws above 1: only the very key of the failed step is sure to show it.
    def risky(y):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(jnp.where(z > 1.0, jnp.nan, 0.0), 1.0), obs=y[0])

    def guide(y):
        numpyro.sample("z", dist.Normal(numpyro.param("m", 0.0), 1.0))

    svi = SVI(risky, guide, optax.sgd(0.0), Trace_ELBO(num_particles=particles))
    for number in range(4):
        with pytest.raises(NonFiniteLoss) as info:
            fit(jax.random.key(number), svi, 200, DATA, chunk_size=9, progress=False)
        assert info.value.sites == ("y",), str(info.value)
        assert ("(particle" in str(info.value)) == (particles > 1)


def test_a_model_that_is_nan_where_it_starts_is_told_the_remedy():
    def broken(y):
        numpyro.sample("y", dist.Normal(0.0, jnp.log(y[0])), obs=y[1])

    svi = SVI(broken, lambda y: None, optax.sgd(0.1), Trace_ELBO())
    with pytest.raises(ValueError, match="Normal distribution got invalid scale parameter") as info:
        fit(KEY, svi, 5, -DATA, progress=False)
    assert "not finite at its initial values, before step 0. Try a larger jitter" in info.value.__notes__[0]


def test_stein_failure_names_site_and_particle():
    def broken(y):  # the data pull the particles to 50, the model ends at 3
        location = numpyro.sample("location", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(location * jnp.where(location > 3.0, jnp.nan, 1.0), 0.1), obs=y[0])

    svgd = SVGD(broken, numpyro.optim.Adagrad(0.5), RBFKernel(), num_stein_particles=2)
    with pytest.raises(NonFiniteLoss, match=r"Step \d+ of 90 .*\(particle \d\), in model order: 'y'") as info:
        fit(KEY, svgd, 90, jnp.asarray([50.0]), progress=False)
    assert info.value.step > 0
    assert info.value.sites == ("y",)


# --- checkpoints


def old_key(seed):
    return jax.random.PRNGKey(seed)


@pytest.mark.parametrize(
    ("make_key", "optimiser"),
    [(jax.random.key, optax.adam(0.05)), (old_key, numpyro.optim.Adam(0.05))],
    ids=["typed key, optax", "uint32 key, numpyro"],
)
def test_resumed_run_is_bit_identical(tmp_path, make_key, optimiser):
    def svi():
        return engine(optimiser)

    path = tmp_path / "run.npz"
    whole = fit(make_key(1), svi(), 37, DATA, batch=2, chunk_size=10, progress=False)
    fit(make_key(1), svi(), 16, DATA, batch=2, checkpoint=path, checkpoint_every=0.0, chunk_size=3, progress=False)
    resumed = fit(make_key(1), svi(), 37, DATA, batch=2, checkpoint=path, resume=True, progress=False)
    same(whole, resumed)
    same(whole, fit(make_key(1), svi(), 37, DATA, batch=2, resume=path, progress=False))  # nothing left to do
    assert os.listdir(tmp_path) == ["run.npz"]
    with np.load(path, allow_pickle=False) as file:  # leaves only
        assert all(file[name].dtype != object for name in file.files)


def test_resume_from_a_result_and_from_a_path(tmp_path):
    whole = fit(KEY, Countdown(), 20, DATA, progress=False)
    half = fit(KEY, Countdown(), 11, DATA, checkpoint=tmp_path / "half.npz", progress=False)
    same(whole, fit(KEY, Countdown(), 20, DATA, resume=half, progress=False))
    same(whole, fit(KEY, Countdown(), 20, DATA, resume=str(tmp_path / "half.npz"), progress=False))
    assert len(fit(KEY, Countdown(), 5, DATA, resume=half, progress=False).losses) == 11  # past 5 already: unchanged


def test_resume_without_a_file_starts_anew(tmp_path):
    path = tmp_path / "later.npz"
    same(
        fit(KEY, Countdown(), 8, DATA, checkpoint=path, resume=True, progress=False),
        fit(KEY, Countdown(), 8, DATA, progress=False),
    )
    assert path.is_file()


def test_stein_run_resumes(tmp_path):
    def svgd():
        return SVGD(model, numpyro.optim.Adagrad(0.1), RBFKernel(), num_stein_particles=2)

    half = fit(KEY, svgd(), 3, DATA, checkpoint=tmp_path / "s.npz", progress=False)
    assert half.losses.shape == (3,)
    same(
        fit(KEY, svgd(), 6, DATA, progress=False), fit(KEY, svgd(), 6, DATA, resume=tmp_path / "s.npz", progress=False)
    )


def test_bfloat16_state_survives_the_file(tmp_path):
    class Half(Countdown):
        def init(self, key, data):
            return {**super().init(key, data), "weight": jnp.ones(2, jnp.bfloat16)}

        def update(self, state, data):
            state, loss = super().update(state, data)
            return {**state, "weight": state["weight"].astype(jnp.bfloat16)}, loss

    fit(KEY, Half(), 3, DATA, checkpoint=tmp_path / "h.npz", progress=False)
    same(
        fit(KEY, Half(), 6, DATA, progress=False), fit(KEY, Half(), 6, DATA, resume=tmp_path / "h.npz", progress=False)
    )


def test_resume_with_another_problem_names_the_difference(tmp_path):
    path = tmp_path / "run.npz"
    fit(KEY, engine(), 3, DATA, checkpoint=path, progress=False)

    def other(y):
        numpyro.sample("location", dist.Delta(numpyro.param("place", jnp.zeros(3)).sum()))

    match = r"same problem, but got parameter \['place'\] is absent there and float64\(3,\) here; .*'centre'"
    with pytest.raises(ValueError, match=match):
        fit(KEY, SVI(model, other, optax.adam(0.05), Trace_ELBO()), 5, DATA, resume=path, progress=False)
    sgd = engine(optax.sgd(0.05))
    with pytest.raises(ValueError, match=r"got state .* there and absent here.*same model, guide, optimiser"):
        fit(KEY, sgd, 5, DATA, resume=path, progress=False)
    with pytest.raises(ValueError, match=r"rng_key is key<fry>\(\) there and uint32\(2,\) here"):
        fit(old_key(0), engine(), 5, DATA, resume=path, progress=False)


def test_a_file_that_is_no_checkpoint_is_named(tmp_path):
    (tmp_path / "text.npz").write_text("not a zip file")
    np.savez(tmp_path / "other.npz", a=np.ones(2))
    for name in ("text.npz", "other.npz"):
        with pytest.raises(ValueError, match=rf"resume must be a checkpoint written by fit, but got '.*{name}', which"):
            fit(KEY, engine(), 5, DATA, resume=tmp_path / name, progress=False)


def test_failure_writes_the_last_good_state(tmp_path):
    path = tmp_path / "bad.npz"
    with pytest.raises(NonFiniteLoss, match=r"The last good state is in \.result and in .*bad\.npz"):
        fit(KEY, Countdown(bad_step=7), 20, DATA, checkpoint=path, chunk_size=5, progress=False)
    repaired = fit(KEY, Countdown(), 20, DATA, checkpoint=path, resume=True, progress=False)
    same(repaired, fit(KEY, Countdown(), 20, DATA, progress=False))


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "run.npz"
    fit(KEY, Countdown(), 4, DATA, checkpoint=path, progress=False)
    before = path.read_bytes()

    def full_disk(file, **entries):
        file.write(b"half of it")
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez", full_disk)
    with pytest.raises(OSError, match="No space left") as info:
        fit(KEY, Countdown(), 9, DATA, checkpoint=path, resume=True, progress=False)
    assert info.value.result.losses.shape == (9,)  # the work is not lost with the disk
    assert "in .result" in info.value.__notes__[0]
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["run.npz"]


@pytest.mark.parametrize("with_path", [True, False])
def test_interrupt_keeps_everything(tmp_path, monkeypatch, with_path):
    path, build, calls = tmp_path / "run.npz", fit_module.compiled_loop, []

    def interrupted(*args):
        advance = build(*args)

        def third_time_lucky(*inputs):
            calls.append(1)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return advance(*inputs)

        return third_time_lucky

    monkeypatch.setattr(fit_module, "compiled_loop", interrupted)
    match = r"Interrupted after 10 of 20 steps, kept in \.result" + (r" and in .*run\.npz" if with_path else r"\.$")
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
    with pytest.raises(ValueError, match=r"argument 0 of the model must be non-empty data, but got shape \(0, 2\)"):
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


def test_a_loss_that_is_no_number_is_refused():
    class Vector(Countdown):
        def update(self, state, data):
            state, loss = super().update(state, data)
            return state, loss * data

    with pytest.raises(TypeError, match="the loss of update must be one real number"):
        fit(KEY, Vector(), 3, DATA, progress=False)
