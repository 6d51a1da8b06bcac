"""A queue of fits that can be stopped at any time: cheapest first, each until its curve is flat.

A `Run` begins with few steps. Where its loss has flattened by then (`gain_of_doubling`) it is finished; where it still
falls it is put back with twice as many and continues from its checkpoint. Every round appends one row to one table.
What a queue knows lies in a folder: for each run a checkpoint, a note (steps to reach, whether it is done) and a lock,
which the system frees when a process dies: several workers can serve one queue.
"""

import csv
import fcntl
import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import numpyro_gp as ngp

__all__ = [
    "COLUMNS",
    "Problem",
    "Run",
    "append",
    "gain_of_doubling",
    "is_flat",
    "next_run",
    "row_of",
    "thinned",
    "version",
    "work",
]

# A curve is flat when twice the steps would lower its loss by less than this, in nats a row, beyond doubt.
TOLERANCE = 0.01
# For a loss a - b log(steps): its fall with twice the steps, over that of its mean from the third to the last quarter.
DOUBLING = np.log(2) / (4 * (np.log(1.0) - 2 * 0.75 * np.log(0.75) + 0.5 * np.log(0.5)))
BLOCKS = 10
COLUMNS = (
    "experiment",
    "set",
    "method",
    "split",
    "seed",
    "settings",
    "version",
    "steps",
    "flattened",
    "gain",
    "gain_se",
)
COLUMNS += ("log_density", "rmse", "bound", "seconds", "curve")


class Run(NamedTuple):
    """One fit: what it is, the steps of its first round, the most that it gets, and guessed seconds a step."""

    experiment: str
    set: str
    method: str
    split: int
    seed: int
    settings: str
    steps: int
    most: int
    cost: float

    @property
    def name(self) -> str:
        """Name of its files."""
        return "_".join(map(str, self[:6])).replace("/", "-").replace(" ", "_")


class Problem(NamedTuple):
    """What ``ngp.fit`` takes, and ``score``: parameters to a dictionary with ``log_density`` and ``rmse``."""

    svi: Any
    key: Any
    arguments: tuple
    keywords: dict
    score: Callable


# ------------------------------------------------------------------------------------------- the curve


def gain_of_doubling(losses):
    """Fall of the loss that twice the steps would bring, and its standard error.

    From the means of the third and of the fourth quarter, for a loss that falls as a logarithm does, as slowly as any
    that matters; one that settles falls by less. The error is that of the means of ten blocks in each, so
    that neighbouring steps may resemble each other. Fewer than 80 losses say nothing: infinite.
    """
    losses = np.asarray(losses, float)
    if len(losses) < 8 * BLOCKS:
        return np.inf, np.inf
    quarter = len(losses) // 4
    means = [
        [block.mean() for block in np.array_split(part, BLOCKS)]
        for part in (losses[-2 * quarter : -quarter], losses[-quarter:])
    ]
    earlier, later = np.asarray(means)
    error = np.sqrt((earlier.var(ddof=1) + later.var(ddof=1)) / BLOCKS)
    return DOUBLING * (earlier.mean() - later.mean()), DOUBLING * error


def is_flat(losses, tolerance=TOLERANCE):
    """Whether twice the steps would gain less than ``tolerance``, two standard errors included."""
    gain, error = gain_of_doubling(losses)
    return bool(max(gain, 0.0) + 2 * error < tolerance)  # noise alone must not pass by a lucky sign


def thinned(losses, points=50):
    """Means of as many blocks of equal length."""
    pieces = np.array_split(np.asarray(losses, float), min(points, len(losses))) if len(losses) else []
    return [float(piece.mean()) for piece in pieces]


# ------------------------------------------------------------------------------------------- the table


def version(root=Path(__file__).parents[2]):
    """Version of the package and the last commit that changed its code or an example's, with a + for changes since."""
    paths = ["--", "numpyro_gp", "examples/*.py"]
    commands = (["log", "-1", "--format=%h", *paths], ["status", "--porcelain", *paths])
    done = [subprocess.run(["git", "-C", str(root), *command], capture_output=True, text=True) for command in commands]
    if any(one.returncode for one in done):  # an installed copy
        return ngp.__version__
    return f"{ngp.__version__}-{done[0].stdout.strip()}{'+' if done[1].stdout.strip() else ''}"


def append(path, row):
    """Add a row to a table that several processes write, unless it has the row of this round already."""
    with open(path, "a+", newline="") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        known = list(csv.DictReader(file))
        what = COLUMNS[: COLUMNS.index("steps") + 1]
        if any(all(old[column] == str(row[column]) for column in what) for old in known):
            return
        writer = csv.DictWriter(file, COLUMNS)
        if not file.tell():
            writer.writeheader()
        writer.writerow(row)
        file.flush()
        os.fsync(file.fileno())


# ------------------------------------------------------------------------------------------- the queue


def note_of(run, folder):
    """What is known of a run: steps of its next round, whether it is done, seconds and on how many steps measured."""
    path = Path(folder) / f"{run.name}.json"
    new = {"steps": run.steps, "done": False, "seconds": 0.0, "timed": 0}
    return json.loads(path.read_text()) if path.exists() else new


def write_note(run, folder, note):
    """Replace the note of a run as a whole."""
    path = Path(folder) / f"{run.name}.json"
    part = path.with_suffix(".part")
    part.write_text(json.dumps(note))
    os.replace(part, path)


def steps_done(path):
    """Steps in a checkpoint."""
    if not path.exists():
        return 0
    with np.load(path) as stored:
        return len(stored["losses"])


def cost_of(run, folder, note):
    """Seconds that its next round will take: as measured, or else as guessed."""
    rate = note["seconds"] / note["timed"] if note["timed"] else run.cost
    return rate * (note["steps"] - steps_done(Path(folder) / f"{run.name}.npz"))


def next_run(runs, folder):
    """The open run whose next round is the cheapest and its held lock; None when all are done, () when all are held."""
    notes = [(run, note_of(run, folder)) for run in runs]
    waiting = [(cost_of(run, folder, note), place, run) for place, (run, note) in enumerate(notes) if not note["done"]]
    for _, _, run in sorted(waiting):
        lock = open(Path(folder) / f"{run.name}.lock", "w")  # noqa: SIM115
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        if note_of(run, folder) == dict(notes)[run]:
            return run, lock
        lock.close()  # another worker had it since the notes were read
        return next_run(runs, folder)
    return () if waiting else None


def work(runs, prepare, folder, table, code, tell=print, wait=1.0):
    """Do rounds until every run is done; ``prepare`` makes the `Problem` of a run, ``code`` is the version."""
    folder = Path(folder) / code
    folder.mkdir(parents=True, exist_ok=True)
    while (taken := next_run(runs, folder)) is not None:
        if not taken:
            time.sleep(wait)
            continue
        run, lock = taken
        with lock:
            row = one_round(run, prepare(run), folder, table, code)
        tell(f"{run.name}: {row['steps']} steps, flattened {row['flattened']}, log density {row['log_density']:.4f}")


def one_round(run, problem, folder, table, code):
    """Fit up to the steps of the note, score, append the row; finish the run or put it back with twice the steps."""
    result, failed, note = continued(run, problem, folder)
    losses = np.asarray(result.losses, float) / len(problem.arguments[0])
    scores = {"log_density": np.nan, "rmse": np.nan} if failed else problem.score(result.params)
    seconds = note["seconds"] / max(note["timed"], 1) * len(losses)
    row = row_of(run, code, losses, scores, failed, seconds)
    append(table, row)
    note["done"] = row["flattened"] != "no" or note["steps"] >= run.most
    note["steps"] = min(2 * note["steps"], run.most)
    write_note(run, folder, note)
    return row


def row_of(run, code, losses, scores, failed, seconds):
    """The row of a round: what ran, its ``losses`` a datum so far, and how it did."""
    gain, error = gain_of_doubling(losses)
    return dict(zip(COLUMNS[:6], run[:6], strict=True)) | {
        "version": code,
        "steps": len(losses),
        "flattened": "failed" if failed else "yes" if is_flat(losses) else "no",
        "gain": f"{gain:.5f}",
        "gain_se": f"{error:.5f}",
        "log_density": scores["log_density"],
        "rmse": scores["rmse"],
        "bound": -float(losses[-max(1, len(losses) // 4) :].mean()) if len(losses) else np.nan,
        "seconds": round(seconds, 2),
        "curve": " ".join(f"{value:.4f}" for value in thinned(losses)),
    }


def continued(run, problem, folder):
    """The fit from its checkpoint on, whether it failed, and the note with its seconds, kept at an interrupt too."""
    note, path = note_of(run, folder), folder / f"{run.name}.npz"
    before, started = steps_done(path), time.process_time()
    keywords = {"checkpoint": path, "resume": True, "progress": False, **problem.keywords}
    try:
        result = ngp.fit(problem.key, problem.svi, note["steps"], *problem.arguments, **keywords)
        failed = False
    except ngp.NonFiniteLoss as error:
        result, failed = error.result, True
    finally:
        note["timed"] += steps_done(path) - before
        note["seconds"] += time.process_time() - started
        write_note(run, folder, note)
    return result, failed, note
