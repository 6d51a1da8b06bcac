"""The papers' experiments until their curves are flat, as a queue that can be stopped and started again.

    # a worker; two may run; stop at any time
    python -m examples.studies.side_by_side.long_runs --data ../shared/data --state /tmp/queue
    python -m examples.studies.side_by_side.long_runs --tables  # tables and figure from the rows so far

Orthogonally decoupled posteriors (`decoupled`), deep models with importance weights (`deep`) and coupled beside
decoupled inducing inputs by hidden layers (`depth`), from 5000, 4000 and 5000 steps on, doubled while twice the steps
would still gain 0.01 nats a row. Schedules do not depend on the number of steps: Adam's rate is constant for
`decoupled` and `depth`, and falls by 2 % every 1000 steps for `deep`. "seconds" are processor
seconds of one process, tracing and compilation of every round included; other programs and pauses do not lengthen
them. Give it one thread (OMP_NUM_THREADS=1 XLA_FLAGS=--xla_cpu_multi_thread_eigen=false) to make them comparable.
"""

import argparse
import functools
import json
import signal
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from examples.studies.deep import decoupled_deep
from examples.studies.importance import deep_models
from examples.studies.orthogonal import decoupled_comparison
from examples.studies.tables import run_tables
from examples.tools.datasets import HERE, load, split_mask
from examples.tools.run_queue import Problem, Run, version, work

DECOUPLED = {"beta": 64, "gamma": 128, "columns": 32, "batch": 256, "learning_rate": 0.005, "natural_step": 0.05}
DEEP = {"inducing": 32, "batch": 128, "K": 5, "adam": 0.005, "draws": 500}
DEPTH = {"coupled": 100, "mean": 250, "covariance": 50, "batch": 256, "rate": 0.005, "draws": 50}
MODELS = {
    "GP VI": 0.007,
    "GP-GP VI": 0.01,
    "LV-GP VI": 0.01,
    "LV-GP IW": 0.015,
    "LV-GP-GP VI": 0.012,
    "LV-GP-GP IW": 0.02,
}
CLASSES = (("ringnorm", None), ("magic", None), ("waveform", "robustmax"), ("waveform", "softmax"))


def written(settings):
    """Settings as one word a value, the form in which the table has them."""
    return " ".join(f"{name}={json.dumps(value)}" for name, value in settings.items())


def read(text):
    """The inverse of `written`."""
    return {name: json.loads(value) for name, value in (word.split("=") for word in text.split())}


def plan():
    """All runs; the queue finds their order. Guessed seconds a step are of one slow thread."""
    runs = []
    for split in range(3):
        for name in ("bike", "kin40k", "protein"):
            for method in ("CoupledNat", "OrthNat", "Coupled", "Orth", *(("Hybrid", "Decoupled") if split < 2 else ())):
                runs.append(Run("decoupled", name, method, split, split, written(DECOUPLED), 5000, 20000, 0.01))
        for name in ("yacht", "energy", "housing"):
            for method, cost in MODELS.items():
                runs.append(Run("deep", name, method, split, split, written(DEEP), 4000, 32000, cost))
    for split in range(2):
        for name, many in CLASSES:
            settings = written(DECOUPLED | ({"many": many} if many else {}))
            for method in ("CoupledNat", "OrthNat", "Coupled", "Orth"):
                runs.append(Run("classes", name, method, split, split, settings, 5000, 20000, 0.01))
        for name in ("kin8nm", "protein_raw"):
            for depth in range(3):
                for kind, cost in {"coupled": 0.01, "decoupled": 0.015}.items():
                    settings, cost = written(DEPTH), cost * (1 + depth)
                    runs.append(Run("depth", name, f"{kind} {depth}", split, split, settings, 5000, 20000, cost))
    return runs


def tiny_plan():
    """A run of two rounds of each experiment, to see that it works."""
    decoupled = written(DECOUPLED | {"beta": 6, "gamma": 8, "columns": 4, "batch": 32})
    deep = written(DEEP | {"inducing": 4, "draws": 5})
    depth = written(DEPTH | {"coupled": 4, "mean": 6, "covariance": 3, "batch": 16, "draws": 5})
    return [
        Run("decoupled", "energy", "OrthNat", 0, 0, decoupled, 10, 20, 0.01),
        Run("deep", "challenger", "GP VI", 0, 0, deep, 10, 20, 0.01),
        Run("classes", "blood", "CoupledNat", 0, 0, decoupled, 10, 20, 0.01),
        Run("depth", "energy", "coupled 1", 0, 0, depth, 10, 20, 0.01),
    ]


# Every set is read once in a process.
raw, prepared = functools.lru_cache(load), functools.lru_cache(decoupled_comparison.prepare)


def fewer(X, y, masks, split, rows):
    """Data without the last training rows of a split, so that ``rows`` are left (None: all)."""
    training = np.flatnonzero(~split_mask(masks, split))
    left_out = training[len(training) if rows is None else rows :]
    return tuple(np.delete(array, left_out, axis=0) for array in (X, y, masks))


def problem(run, folder, rows=None):
    """What a run fits: decoupled and classes in single precision, deep and depth in double; ``rows`` to train on."""
    jax.config.update("jax_enable_x64", run.experiment in ("deep", "depth"))
    settings = read(run.settings)
    if run.experiment in ("decoupled", "classes"):
        *data, classes = prepared(run.set, folder)
        X, y, masks = fewer(*data, run.split, rows)
        options = argparse.Namespace(single=True, **{"many": "robustmax"} | settings)
        return decoupled_comparison.problem(
            run.method, (X, y, split_mask(masks, run.split), classes), options, run.seed
        )
    name, kind = run.method.split()
    if run.experiment == "depth":
        data = fewer(*raw(run.set, folder), run.split, rows)
        return decoupled_deep.problem(name, int(kind), data, run.split, argparse.Namespace(**settings))
    X, y, masks = fewer(*prepared(run.set, folder)[:3], run.split, rows)
    test = split_mask(masks, run.split)
    Xt, yt = jnp.asarray(X[~test]), jnp.asarray(y[~test])
    model, guide = deep_models.build(name, Xt, settings["inducing"], seed=run.seed)
    rate = optax.exponential_decay(settings["adam"], 1000, 0.98)
    svi = deep_models.engine(model, guide, samples=settings["K"] if kind == "IW" else 1, adam=rate)

    def score(params):
        _, density, rmse = deep_models.score(model, guide, params, X[test], y[test], num_samples=settings["draws"])
        return {"log_density": density, "rmse": rmse}

    batch = settings["batch"] if settings["batch"] < len(Xt) else None
    return Problem(svi, jax.random.key(run.seed), (Xt, yt), {"batch": batch}, score)


def rebuild(out):
    """Write the tables beside the rows; `examples.studies.tables.rebuild` draws the figures."""
    rows = run_tables.read(out / "long_runs.csv")
    (out / "long_runs.md").write_text(run_tables.markdown(rows) + "\n")
    print(f"{len(rows)} rows; wrote {out / 'long_runs.md'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=HERE)
    parser.add_argument("--state", type=Path, help="folder of checkpoints (examples/output/queue)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder of the rows")
    parser.add_argument("--experiments", nargs="+", default=["decoupled", "deep", "classes", "depth"])
    parser.add_argument("--sets", nargs="+", help="only these sets (all)")
    parser.add_argument("--methods", nargs="+", help="only these methods (all)")
    parser.add_argument("--tables", action="store_true", help="no runs: tables and figure from the rows")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.tables:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # fit keeps its last step at a Ctrl-C
        runs = [run for run in (tiny_plan() if options.smoke else plan()) if run.experiment in options.experiments]
        runs = [run for run in runs if run.set in (options.sets or [run.set])]
        runs = [run for run in runs if run.method in (options.methods or [run.method])]
        state, table = options.state or Path(__file__).parents[2] / "output" / "queue", options.out / "long_runs.csv"
        prepare = functools.partial(problem, folder=options.data)
        work(runs, prepare, state, table, version(), tell=functools.partial(print, flush=True))
    if options.tables or options.smoke:
        rebuild(options.out)


if __name__ == "__main__":
    main()
