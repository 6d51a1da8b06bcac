"""Fits of one model on many splits of a set, side by side in one program: what a GPU is for.

A step of a sparse GP is hundreds of small operations, and a GPU takes as long for ten copies of them as for one. Here
the programs of one step, traced for each split, are compared: where they differ in nothing but arrays (data, starting
points, initial values), the arrays are stacked and the program is mapped over them.

    python -m examples.studies.side_by_side.side_by_side --data DATA --out /tmp/rows --jobs "deep yacht GP-GP_VI" [...]

A job names an experiment, a set and a method of `long_runs`; its splits, ``splits=5`` or ``splits=3-9``, are
fitted together, scored when 5000, 10 000 ... steps are done, and each gives a row of the queue's table. Splits of a set
may differ by one training row: the last of the longer ones is left out.
"""

import argparse
import functools
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from examples.studies.side_by_side import long_runs
from examples.tools.datasets import HERE
from examples.tools.run_queue import Problem, Run, append, row_of, version
from numpyro_gp.programs.compiled import program_key, run
from numpyro_gp.programs.trace import as_function, traced


class Together(NamedTuple):
    """Fits in one program.

    Attributes
    ----------
    states : Any
        States of the engines, with an axis of fits in front.
    advance : callable
        ``(states, steps) -> (states, losses)``, ``losses`` of shape ``(steps, fits)``.
    structure : Any
        Of one state: ``states`` are its leaves.
    """

    states: Any
    advance: Callable[[Any, int], tuple[Any, jax.Array]]
    structure: Any


def together(problems: list[Problem]) -> Together:
    """Stack problems whose steps are the same program but for the arrays in it; refuse others.

    Raises
    ------
    ValueError
        Where a step of a problem is another program than that of the first: another shape, or a number that the
        model computed in Python.
    """
    states, steps = [], []
    for own in problems:
        state = run(lambda key, own=own: own.svi.init(key, *own.arguments, **own.keywords), own.key)
        leaves, structure = jax.tree.flatten(state)

        def step(*leaves, own=own, structure=structure):
            return own.svi.update(jax.tree.unflatten(structure, leaves), *own.arguments, **own.keywords)

        states.append(leaves)
        steps.append(traced(step, *leaves))
    program, _, result = steps[0]
    for place, (other, _, _) in enumerate(steps):
        if program_key(program) != program_key(other):
            raise ValueError(
                f"problems must take steps of one program, but that of problem {place} differs from the first's. Give "
                "all the same number of rows and the same settings."
            )
    stack = lambda lists: [jnp.stack(values) for values in zip(*lists, strict=True)]  # noqa: E731
    constants, step = stack([held for _, held, _ in steps]), jax.vmap(as_function(program))

    def one(states, constants):
        leaves, loss = jax.tree.unflatten(result, step(*constants, *states))
        return jax.tree.leaves(leaves), loss

    @jax.jit
    def many(states, constants, numbers):
        return jax.lax.scan(lambda states, _: one(states, constants), states, numbers)

    def advance(states, steps):
        return many(states, constants, jnp.arange(steps))

    return Together(stack(states), advance, structure)


def alone(fits: Together, problems: list[Problem], states: Any, place: int) -> dict[str, jax.Array]:
    """Parameters of one fit."""
    return problems[place].svi.get_params(jax.tree.unflatten(fits.structure, [leaf[place] for leaf in states]))


def problems_of(job: list[Run], folder: Path) -> list[Problem]:
    """What the runs of a job fit, all with as many training rows as the shortest split has."""
    masks = long_runs.raw(job[0].set, folder)[2]
    fewest = min(int(np.sum(~masks[:, run.split])) for run in job)
    return [long_runs.problem(run, folder, fewest) for run in job]


def rows_of(job: list[Run], folder: Path, marks: list[int], chunk: int, table: Path, code: str, tell=print) -> None:
    """Fit the splits of a job together and append a row for each of them at every mark.

    Seconds are on the clock, compilation included, shared equally among the fits.
    """
    started = time.perf_counter()
    problems = problems_of(job, folder)
    fits = together(problems)
    states, losses, seconds = fits.states, np.zeros((0, len(job))), 0.0
    start = time.perf_counter() - started
    for mark in marks:
        while len(losses) < mark:
            began = time.perf_counter()
            states, new = fits.advance(states, min(chunk, mark - len(losses)))
            losses = np.concatenate([losses, np.asarray(new, float) / len(problems[0].arguments[0])])
            seconds += time.perf_counter() - began
        for place, one in enumerate(job):
            failed = not np.isfinite(losses[-1, place])
            scores = {"log_density": np.nan, "rmse": np.nan}
            if not failed:
                scores = problems[place].score(alone(fits, problems, states, place))
            append(table, row_of(one, code, losses[:, place], scores, failed, seconds / len(job)))
        took = f"{1e3 * seconds / mark:.2f} ms a step of {len(job)} fits with compilation, {start:.0f} s to start"
        tell(f"{job[0].experiment} {job[0].set} {job[0].method}: {mark} steps, {took}")


# ------------------------------------------------------------------------------------------- the jobs

SETTINGS = {"deep": long_runs.DEEP, "depth": long_runs.DEPTH}


def job_of(text: str, splits: int) -> list[Run]:
    """Runs of "experiment set method [splits=5] name=value ...", underscores for spaces in the method, one a split."""
    experiment, name, method, *words = text.split()
    which = range(splits)
    if words and words[0].startswith("splits="):
        first, _, last = words.pop(0).removeprefix("splits=").rpartition("-")
        which = range(int(first), int(last) + 1) if first else range(int(last))
    settings = SETTINGS.get(experiment, long_runs.DECOUPLED) | long_runs.read(" ".join(words))
    written = long_runs.written(settings)
    return [Run(experiment, name, method.replace("_", " "), split, split, written, 0, 0, 0.0) for split in which]


def taken(folder: Path, number: int) -> bool:
    """Whether this process is the first that asks for a job."""
    try:
        (folder / f"job{number}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=HERE)
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parents[2] / "output", help="folder of rows and marks"
    )
    parser.add_argument("--jobs", nargs="+", default=["deep yacht GP_VI"], help="texts, or one file with a job a line")
    parser.add_argument("--splits", type=int, default=10, help="fits side by side")
    parser.add_argument("--marks", type=int, nargs="+", default=[5000, 10_000], help="steps at which rows are made")
    parser.add_argument("--chunk", type=int, default=500, help="steps of one call")
    parser.add_argument("--until", type=float, default=float("inf"), help="seconds after which no job is begun")
    parser.add_argument("--code", default=version(), help="version that the rows name")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    start, jobs = time.perf_counter(), options.jobs
    tell = functools.partial(print, flush=True)
    if len(jobs) == 1 and Path(jobs[0]).is_file():
        jobs = [line for line in Path(jobs[0]).read_text().splitlines() if line.strip()]
    if options.smoke:
        jobs, options.splits, options.marks, options.chunk = ["deep challenger GP_VI inducing=4 draws=5"], 3, [10], 5
    options.out.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(jobs):
        if time.perf_counter() - start > options.until or not taken(options.out, number):
            continue
        runs, table = job_of(text, options.splits), options.out / "long_runs.csv"
        tell(f"{time.perf_counter() - start:.0f} s: {text}")
        try:
            rows_of(runs, options.data, options.marks, options.chunk, table, options.code, tell)
        except (OSError, ValueError, TypeError, RuntimeError):  # the other jobs are worth having
            traceback.print_exc()


if __name__ == "__main__":
    main()
