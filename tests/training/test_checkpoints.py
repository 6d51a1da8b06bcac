"""Runs on disk: resumed bit for bit, refused when they belong elsewhere, never half written."""

import os
import re
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO

from numpyro_gp.programs.files import read_whole, write_whole
from numpyro_gp.training.fit import fit
from numpyro_gp.training.loop import NonFiniteLoss
from tests import processes
from tests.oracles.engines import Countdown, data, engine, key, model, same

KEY, DATA = key(), data()


def old_key(seed):
    return jax.random.PRNGKey(seed)


@pytest.mark.long
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
    """Without a file it starts anew."""
    whole = fit(KEY, Countdown(), 20, DATA, progress=False)
    half = fit(KEY, Countdown(), 11, DATA, checkpoint=tmp_path / "half.npz", progress=False)
    for resume in (half, str(tmp_path / "half.npz")):
        same(whole, fit(KEY, Countdown(), 20, DATA, resume=resume, progress=False))
    with pytest.warns(UserWarning, match="resumed has 11 steps already, more than num_steps=5. Its result is returned"):
        assert len(fit(KEY, Countdown(), 5, DATA, resume=half, progress=False).losses) == 11
    same(whole, fit(KEY, Countdown(), 20, DATA, checkpoint=tmp_path / "later.npz", resume=True, progress=False))
    assert (tmp_path / "later.npz").is_file()


def test_bfloat16_state_survives_the_file(tmp_path):
    path = tmp_path / "h.npz"

    class Half(Countdown):
        def init(self, key, data):
            return {**super().init(key, data), "weight": jnp.ones(2, jnp.bfloat16)}

        def update(self, state, data):
            state, loss = super().update(state, data)
            return {**state, "weight": state["weight"].astype(jnp.bfloat16)}, loss

    fit(KEY, Half(), 3, DATA, checkpoint=path, progress=False)
    same(fit(KEY, Half(), 6, DATA, progress=False), fit(KEY, Half(), 6, DATA, resume=path, progress=False))


@pytest.mark.long
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


@pytest.mark.long
def test_a_file_that_is_no_checkpoint_is_named(tmp_path):
    (tmp_path / "text.npz").write_text("not a zip file")
    np.savez(tmp_path / "other.npz", a=np.ones(2))
    np.save(tmp_path / "one.npy", np.ones(2))
    fit(KEY, engine(), 3, DATA, checkpoint=tmp_path / "whole.npz", progress=False)
    with np.load(tmp_path / "whole.npz") as file:
        np.savez(tmp_path / "damaged.npz", **{name: file[name] for name in file.files if name != "leaf_1"})
    np.savez(tmp_path / "list.npz", description=np.asarray("[]"), losses=np.ones(2))
    for name in ("text.npz", "other.npz", "one.npy", "damaged.npz", "list.npz"):
        with pytest.raises(ValueError, match=rf"resume must be a checkpoint written by fit, but got '.*{name}', which"):
            fit(KEY, engine(), 5, DATA, resume=tmp_path / name, progress=False)


def test_a_result_of_another_engine_is_named():
    half = fit(KEY, engine(), 3, DATA, progress=False)
    with pytest.raises(TypeError, match="resume must be a result with a state of this engine, a SVIState, but got one"):
        fit(KEY, engine(), 5, DATA, resume=half._replace(state=None), progress=False)
    with pytest.raises(TypeError, match=r"resume must be .* a dict, but got one with a SVIState"):
        fit(KEY, Countdown(), 5, DATA, resume=half, progress=False)


def test_failure_writes_the_last_good_state(tmp_path, monkeypatch):
    """And a failed write leaves the old file."""
    path, whole = tmp_path / "bad.npz", fit(KEY, Countdown(), 20, DATA, progress=False)
    with pytest.raises(NonFiniteLoss, match=r"The last good state is in \.result and in .*bad\.npz"):
        fit(KEY, Countdown(bad_step=7), 20, DATA, checkpoint=path, chunk_size=5, progress=False)
    before = path.read_bytes()

    def full_disk(file, **entries):
        file.write(b"half of it")
        raise OSError("No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left") as info:
        patch.setattr(np, "savez", full_disk)
        fit(KEY, Countdown(), 9, DATA, checkpoint=path, resume=True, progress=False)
    assert info.value.result.losses.shape == (9,)  # the work is not lost with the disk
    assert "in .result" in info.value.__notes__[0]
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["bad.npz"]
    same(fit(KEY, Countdown(), 20, DATA, checkpoint=path, resume=True, progress=False), whole)


def started(port, process, steps, path):
    command = [sys.executable, "-m", "tests.processes", *map(str, (port, process, steps, path))]
    root = Path(__file__).parent.parent.parent
    return subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@contextmanager
def pair(steps, path):
    """Two processes, gone when the block ends."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    both = [started(port, process, steps, path) for process in (0, 1)]
    try:
        yield both
    finally:
        for process in both:
            process.kill()
            process.communicate()


def said_by(process):
    """What a process prints."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err[-2000:]
    return words_of(out)


def words_of(out):
    """What is said by the first word of a line, and losses as numbers."""
    said = dict(line.split(" ", 1) for line in out.splitlines() if " " in line)
    return {**said, **{name: np.array(said[name].split(), float) for name in ("losses", "stream")}}


@pytest.mark.long
def test_two_processes_fit_as_one_and_one_says_that_the_other_is_lost(tmp_path, capsys):
    """One is killed: the other stops with what it has, and both go on from the checkpoint to the numbers of one process."""
    path = tmp_path / "two.npz"
    with pair(100_000, path) as (first, second):
        limit = time.monotonic() + 120
        while not path.exists():
            assert first.poll() is None, first.communicate()[1][-2000:]
            assert time.monotonic() < limit
            time.sleep(0.1)
        second.kill()
        _, error = first.communicate(timeout=60)  # heartbeats end after 10 s
    assert first.returncode != 0
    assert re.search(r"This happened after \d+ of 100000 steps\. They are in \.result and in .*two\.npz\.", error), (
        error[-2000:]
    )
    with np.load(path) as file:
        done = file["losses"].size
    with pair(done + 3, path) as both:
        both = [said_by(process) for process in both]
    processes.main(0, 0, done + 3, tmp_path / "one.npz")  # alone, in this process
    alone = words_of(capsys.readouterr().out)
    refused = f"resume must be from the same step in every process, but got steps from 0 to {done}. Put the checkpoint"
    for said in both:
        assert said["refused"].startswith(refused)
        np.testing.assert_allclose(said["losses"], alone["losses"], rtol=1e-8)
        np.testing.assert_allclose(said["stream"], alone["stream"], rtol=1e-8)  # the other half of a batch is 0.1 off
        assert said["unequal"].startswith("the first of the batches must be of as many rows in every process, but got")
        assert said["shorter"].startswith("batches[1] must be of 8 rows, as the first part of this process, but got 7")


def test_damage_and_objects_are_refused(tmp_path):
    path = tmp_path / "arrays.npz"
    np.savez(path, numbers=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match=r"path must be a file, but got .* cannot be read .*Write it anew\."):
        read_whole(path, "path", "a file", "Write it anew.", dict)


def test_a_file_has_the_rights_of_a_new_file(tmp_path):
    """A service that is another user may read it, where files of this user can be read."""
    (tmp_path / "new").touch()
    write_whole(tmp_path / "fit.npz", a=np.ones(2))
    assert (tmp_path / "fit.npz").stat().st_mode == (tmp_path / "new").stat().st_mode
    assert sorted(one.name for one in tmp_path.iterdir()) == ["fit.npz", "new"]
