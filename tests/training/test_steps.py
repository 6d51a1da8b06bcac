"""Stops of a fit: hand-made engines with known failures, Ctrl-C, and what is kept at each."""

import importlib
import os
import subprocess
import sys

import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest

import numpyro_gp as ngp
from numpyro_gp.training.fit import fit
from numpyro_gp.training.loop import FitInterrupted, NonFiniteLoss
from tests.oracles.engines import Countdown, data, key, same

prepare = importlib.import_module("numpyro_gp.training.fit")  # the package has the function under this name

KEY, DATA = key(), data()


@pytest.mark.parametrize("chunk_size", [1, 5, 100])
@pytest.mark.parametrize("bad_step", [0, 4, 5, 11])
def test_stops_at_the_first_bad_loss_with_the_state_before_it(chunk_size, bad_step):
    match = rf"Step {bad_step} of 20 .*the loss is nan.*larger jitter.*\.result"
    with pytest.raises(NonFiniteLoss, match=match) as info:
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
    path, build, calls = tmp_path / "run.npz", prepare.loop_of, []

    def interrupted(*args):
        advance = build(*args)

        def third_time_lucky(*inputs):
            calls.append(1)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return advance(*inputs)

        return third_time_lucky

    monkeypatch.setattr(prepare, "loop_of", interrupted)
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


@pytest.mark.parametrize("chunk_size", [None, 7])
def test_update_is_traced_once_for_all_chunks_and_the_short_last_one(chunk_size):
    """And for what is run again after a failure."""
    counting, failing = Countdown(), Countdown(bad_step=13)
    result = fit(KEY, counting, 25, np.ones(3), chunk_size=chunk_size, progress=False)
    np.testing.assert_array_equal(result.losses, 100.0 - np.arange(25))
    np.testing.assert_array_equal(result.params["weight"], [26.0, 26.0])
    with pytest.raises(NonFiniteLoss):
        fit(KEY, failing, 25, DATA, chunk_size=chunk_size, progress=False)
    assert counting.traces == failing.traces == 1


def test_a_loss_that_is_no_number_is_refused():
    class Vector(Countdown):
        def update(self, state, data):
            state, loss = super().update(state, data)
            return state, loss * data

    with pytest.raises(TypeError, match="the loss of update must be one real number"):
        fit(KEY, Vector(), 3, DATA, progress=False)


STEP_OF_A_PROCESS = """
import jax, numpy as np, numpyro, numpyro.distributions as dist, optax
import numpyro_gp as ngp
from numpyro_gp.training import loop

def keep(program, *others, kept=loop.kept):
    print(program)
    return kept(program, *others)

def model(y):
    places = [numpyro.sample(name, dist.Normal(0, 1)) for name in "abcdef"]
    numpyro.sample("y", dist.Normal(sum(places), 1).expand([3]).to_event(1), obs=y)

loop.kept = keep
svi = numpyro.infer.SVI(model, ngp.AutoGP(model), optax.adam(0.1), numpyro.infer.Trace_ELBO())
ngp.fit(jax.random.key(0), svi, 1, np.ones(3), progress=False)
"""


@pytest.mark.long
def test_processes_compile_the_same_step_whatever_their_hash_seeds():
    """JAX's cache on disk finds a program by its text, and NumPyro's bounds add sites in the order of a set of names."""
    texts = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", STEP_OF_A_PROCESS]
        texts.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(texts) == 1
    assert "add" in texts.pop()
