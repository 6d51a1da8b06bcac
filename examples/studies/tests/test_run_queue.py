"""The queue of runs: plateaus, order, what a stop costs, and rows that several processes append."""

import csv
import os
import subprocess
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import numpyro_gp as ngp
from examples.tools import run_queue
from examples.tools.run_queue import Problem, Run, append, gain_of_doubling, is_flat, next_run, note_of, thinned, work

pytestmark = pytest.mark.experiments

ROWS = 10


class Walker:
    """An engine whose loss is its parameter: a random number added to a fall at each step, NaN after some."""

    def __init__(self, fall, last=np.inf):
        self.fall, self.last = fall, last

    def init(self, key, rows):
        return key, jnp.zeros(())

    def update(self, state, rows):
        key, value = state
        key, own = jax.random.split(key)
        value = value - self.fall * ROWS + 1e-3 * jax.random.normal(own)
        return (key, value), jnp.where(value < -self.last * self.fall * ROWS, jnp.nan, value)

    def get_params(self, state):
        return {"value": state[1]}


def problem(run):
    score = lambda params: {"log_density": float(params["value"]), "rmse": 1.0}  # noqa: E731
    last = 89.5 if run.method == "breaks" else np.inf
    return Problem(Walker(run.cost, last), jax.random.key(run.seed), (jnp.zeros(ROWS),), {}, score)


def run_of(method="m", cost=0.01, most=320):
    return Run("toy", "set", method, 0, 3, "a=1", 80, most, cost)


def rows_in(path):
    return list(csv.DictReader(path.read_text().splitlines()))


@pytest.fixture
def silent():
    return {"prepare": problem, "code": "v1", "tell": lambda text: None, "wait": 0.01}


def test_gains_plateaus_and_thinned_curves():
    """A fall of 0.3 log(t) gains 0.3 log 2 = 0.2079; the plain difference of the quarters' means would be 0.102."""
    gain, _ = gain_of_doubling(5 - 0.3 * np.log(np.arange(1, 20001)))
    np.testing.assert_allclose(gain, 0.3 * np.log(2), rtol=1e-3)
    steps, noise = np.arange(1, 4001), np.random.default_rng(0).normal(size=4000)
    assert is_flat(np.exp(-steps / 100) + 3)
    assert not is_flat(-1e-5 * steps)  # 0.02 with twice the steps
    assert is_flat(3 + 0.05 * noise)
    assert not is_flat(3 - 0.02 * np.log(steps) + 0.05 * noise)
    assert not is_flat(3 + 0.5 * noise)  # too noisy to tell
    assert not is_flat(np.full(79, 3.0))  # too short to tell
    assert is_flat(np.full(80, 3.0))
    assert thinned(np.arange(100.0))[:2] == [0.5, 2.5]
    assert len(thinned(np.arange(1234.0))) == 50
    assert (thinned([4.0, 2.0]), thinned([])) == ([4.0, 2.0], [])


def test_error_of_the_gain_is_that_of_repeated_curves():
    """Quarters of 100 independent losses: error of a mean 0.1, of two sqrt(2) of it, times log 2 / 0.3398."""
    curves = np.random.default_rng(1).normal(size=(400, 400))
    gains, errors = np.array([gain_of_doubling(curve) for curve in curves]).T
    expected = np.log(2) / 0.33979 * np.sqrt(2) / 10
    np.testing.assert_allclose(gains.std(), expected, rtol=0.12)
    np.testing.assert_allclose(np.sqrt(np.mean(errors**2)), expected, rtol=0.05)


def test_flat_runs_stop_falling_ones_go_on_with_twice_the_steps_and_broken_ones_end(tmp_path, silent):
    table = tmp_path / "t.csv"
    work([run_of("flat", 0.0), run_of("breaks"), run_of("falls")], folder=tmp_path, table=table, **silent)
    found = {}
    for row in rows_in(table):
        found.setdefault(row["method"], []).append((int(row["steps"]), row["flattened"]))
    assert found["flat"] == [(80, "yes")]
    assert found["falls"] == [(80, "no"), (160, "no"), (320, "no")]
    assert found["breaks"] == [(80, "no"), (89, "failed")]
    (last,) = (row for row in rows_in(table) if row["steps"] == "320")
    assert len(last["curve"].split()) == 50
    np.testing.assert_allclose(float(last["log_density"]), -320 * 0.01 * ROWS, rtol=1e-2)  # from its checkpoint on
    np.testing.assert_allclose(float(last["gain"]), run_queue.DOUBLING * 80 * 0.01, rtol=0.01)
    work([run_of("flat", 0.0)], folder=tmp_path, table=table, **silent | {"code": "v2"})  # starts from nothing
    assert [row["version"] for row in rows_in(table) if row["method"] == "flat"] == ["v1", "v2"]


def test_the_cheapest_round_is_next(tmp_path):
    """Guesses at first; then seconds as measured, times the steps that its next round still lacks."""

    def taken():
        run, lock = next_run(runs, tmp_path)
        lock.close()
        return run.method

    runs = [run_of("slow", 3.0), run_of("fast", 1.0), run_of("middle", 2.0)]
    run, lock = next_run(runs, tmp_path)
    assert run.method == "fast"
    assert taken() == "middle"  # the other is held
    assert next_run(runs[1:2], tmp_path) == ()  # a held queue is not an empty one
    lock.close()
    run_queue.write_note(runs[1], tmp_path, {"steps": 160, "done": False, "seconds": 160.0, "timed": 80})
    assert taken() == "middle"  # 80 steps of 2 against 160 of 2
    for run in runs:
        run_queue.write_note(run, tmp_path, note_of(run, tmp_path) | {"done": True})
    assert next_run(runs, tmp_path) is None


def test_a_stopped_queue_gives_the_rows_of_one_without_a_stop(tmp_path, silent, monkeypatch):
    """Stopped in the middle of a round, after 120 of 160 steps: the checkpoint has them, and no step is done twice."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    work([run_of()], folder=whole, table=whole / "t.csv", **silent)
    fit, asked = ngp.fit, []

    def stopped(key, svi, steps, *arguments, **keywords):
        asked.append(steps)
        if asked == [80, 160]:
            fit(key, svi, 120, *arguments, **keywords)
            raise KeyboardInterrupt
        return fit(key, svi, steps, *arguments, **keywords)

    monkeypatch.setattr(ngp, "fit", stopped)
    with pytest.raises(KeyboardInterrupt):
        work([run_of()], folder=parts, table=parts / "t.csv", **silent)
    assert run_queue.steps_done(parts / "v1" / f"{run_of().name}.npz") == 120
    assert note_of(run_of(), parts / "v1")["timed"] == 120
    work([run_of()], folder=parts, table=parts / "t.csv", **silent)
    without = [[row | {"seconds": ""} for row in rows_in(folder / "t.csv")] for folder in (parts, whole)]
    assert without[0] == without[1]
    assert asked == [80, 160, 160, 320]


def test_a_stop_between_a_row_and_its_note_leaves_one_row(tmp_path, silent, monkeypatch):
    def stop(path, row):
        append(path, row)
        raise KeyboardInterrupt

    table, write = tmp_path / "t.csv", run_queue.write_note
    monkeypatch.setattr(run_queue, "write_note", lambda run, folder, note: write(run, folder, note | {"steps": 80}))
    monkeypatch.setattr(run_queue, "append", stop)
    with pytest.raises(KeyboardInterrupt):
        work([run_of("flat", 0.0)], folder=tmp_path, table=table, **silent)
    monkeypatch.undo()
    work([run_of("flat", 0.0)], folder=tmp_path, table=table, **silent)
    assert [row["steps"] for row in rows_in(table)] == ["80"]


def test_two_workers_share_one_queue(tmp_path, silent):
    runs, table = [run_of(f"m{number}", most=160) for number in range(4)], tmp_path / "t.csv"
    options = {"folder": tmp_path, "table": table, **silent}
    workers = [threading.Thread(target=work, args=(runs,), kwargs=options) for _ in "ab"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    found = sorted((row["method"], int(row["steps"])) for row in rows_in(table))
    assert found == [(f"m{number}", steps) for number in range(4) for steps in (80, 160)]


def test_the_version_names_the_commit_that_changed_code(tmp_path):
    def git(*command):
        who = {f"GIT_{role}_{what}": "a@b" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        command = ["git", "-C", str(tmp_path), *command]
        return subprocess.run(command, capture_output=True, text=True, env=os.environ | who, check=True).stdout.strip()

    assert run_queue.version(tmp_path) == ngp.__version__  # not a repository
    git("init", "-q")
    (tmp_path / "numpyro_gp").mkdir()
    for name in ("numpyro_gp/a.py", "rows.csv"):
        (tmp_path / name).write_text("1")
        git("add", ".")
        git("commit", "-qm", name)
    first = f"{ngp.__version__}-{git('log', '-1', '--format=%h', 'HEAD~1')}"
    assert run_queue.version(tmp_path) == first
    (tmp_path / "numpyro_gp" / "a.py").write_text("2")
    assert run_queue.version(tmp_path) == first + "+"
