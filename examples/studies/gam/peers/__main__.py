"""``ngp.gam`` beside its peers: Gu and Wahba's four terms, data sets with their splits, many rows.

    python -m examples.studies.gam.peers install FOLDER
    python -m examples.studies.gam.peers waves --seeds 200 --noise 1 2 4
    python -m examples.studies.gam.peers waves --seeds 30 --fits "mgcv, select" pygam statsmodels --environments FOLDER
    python -m examples.studies.gam.peers pairs --seeds 40 --fits "mgcv, select" ngp.gam ebm --environments FOLDER
    python -m examples.studies.gam.peers sets --splits 3
    python -m examples.studies.gam.peers sets --fits "ngp.gam, screen" pygam statsmodels ebm bambi --environments FOLDER
    python -m examples.studies.gam.peers many --rows 100000

Rows go to ``examples/studies/gam/gam_peers.csv`` as they come; those that are there are not made again. mgcv runs by
``Rscript``, the peers in Python by `rivals.py` in environments of their own. Seconds are those of the processor for
the fit, without the start of a process; ours with tracing, and for the first fit of a form with
compiling.
"""

import argparse
import csv
from pathlib import Path

import jax
import numpy as np

from examples.studies.gam.peers import simulations
from examples.studies.gam.peers.engines import (
    RIVALS,
    by_mgcv,
    install,
    judged_fit,
    judged_mgcv,
    mgcv_formula,
    rival,
)
from examples.studies.gam.peers.simulations import CURVES, simulated
from examples.tools.datasets import load, split_mask

OUT = Path(__file__).parent.parent / "gam_peers.csv"
FIELDS = ["task", "seed", "noise", "fit", "rows", "rmse", "log_density", "coverage", "dead_term", "called_dead"]
FIELDS += ["live_kept", "pair_first", "pair_kept", "others_kept", "seconds", "note"]
# Formula of a set: names of its columns, its categories, its family here and in mgcv.
SETS = {
    "autompg": ("s0 s1 s2 s3 s4 s5 f0", "gaussian"),
    "concrete": ("s0 s1 s2 s3 s4 s5 s6 s7", "gaussian"),
    "energy": ("s0 s1 s2 s3 f0 f1 f2 f3", "gaussian"),
    "yacht": ("s0 s1 s2 s3 s4 s5", "gaussian"),
    "housing": ("s0 s1 s2 f0 s3 s4 s5 s6 s7 s8 s9 s10 s11", "gaussian"),
    "blood": ("s0 s1 s2 s3", "bernoulli"),
    "bikehours": ("s0 f0 f1 f2 f3 s1 s2 s3", "negative_binomial"),
}
FITS = ["mgcv", "ngp.gam", "ngp.gam, screen", "mgcv, select", *(name for name in RIVALS if name != "ebm pairs")]


def run_simulations(options, done):
    """Rows of the four terms, with bands, or of pairs."""
    run = getattr(simulations, options.task)
    for name in options.fits:
        cases = []
        for seed in range(options.first, options.first + options.seeds):
            for noise in options.noise:
                table, truth, common = simulated(seed, noise, options.rows, pair=options.task == "pairs")
                if place(common | {"fit": name}) not in done:
                    cases.append((common, (seed, table, truth)))
        runs = run(name, [case for _, case in cases], options)
        for (common, _), found in zip(cases, runs, strict=True):
            yield common | found | {"fit": name}


def run_sets(options, done):
    for name in options.names:
        kinds, family = SETS[name]
        X, y, splits = load(name)
        names = kinds.split()
        for split in range(options.first, min(options.first + options.splits, splits.shape[1])):
            test = split_mask(splits, split)
            table = dict(zip(names, X.T, strict=True)) | {"y": y}
            train, held = ({key: value[rows] for key, value in table.items()} for rows in (~test, test))
            common = {"task": name, "seed": split, "noise": "", "rows": len(train["y"])}
            for fit in options.fits:
                if place(common | {"fit": fit}) not in done:
                    yield common | of_split(fit, family, train, held, options) | {"fit": fit}


def of_split(name, family, train, held, options):
    """A curve for each column of five values and more, lines for others, levels for categories."""
    names = [name for name in train if name != "y"]
    few = {n: len(np.unique(train[n])) for n in names if n[0] == "s"}
    smooth, lines = [n for n in few if few[n] > 4], [n for n in few if few[n] <= 4]
    factors = [n for n in names if n[0] == "f"]
    others = lines + [f"factor({n})" for n in factors]
    if name == "mgcv":
        formula = "y ~ " + " + ".join([f"s({n}, k = {min(10, few[n])})" for n in smooth] + others)
        ((link, _, _),) = by_mgcv([(mgcv_formula(formula, family), train, held)])
        return judged_mgcv(family, held["y"], link)
    if name in ("ngp.gam", "ngp.gam, screen"):
        formula = "y ~ " + " + ".join([f"s({n})" for n in smooth] + others)
        return judged_fit(formula, train, held, family, screen=name == "ngp.gam, screen")
    job = {"smooth": smooth, "lines": lines, "factors": factors, "family": family}
    (found,) = rival(name, job, [(train, held)], options)
    return {key: value for key, value in found.items() if key not in ("terms", "p_values")}


def run_many(options, done):
    """The four terms with many rows: mgcv's `bam`, with and without discrete columns, and a second fit of ours."""
    (train, _, common), (test, _, _) = (simulated(seed, 2.0, rows) for seed, rows in ((0, options.rows), (1, 2000)))
    common["task"] = "many"
    for name, more in (("bam", ""), ("bam, discrete", ", discrete = TRUE, nthreads = 1")):
        if place(common | {"fit": name}) not in done:
            ((link, _, _),) = by_mgcv([(mgcv_formula(CURVES, "gaussian", "bam", more), train, test)])
            yield common | {"fit": name} | judged_mgcv("gaussian", test["y"], link)
    for name in ("ngp.gam", "ngp.gam, second fit"):
        if place(common | {"fit": name}) not in done:
            yield common | {"fit": name} | judged_fit(CURVES, train, test, "gaussian")


def place(row):
    """What one row is about, as text: numbers of a file are text."""
    noise = row["noise"]
    return row["task"], str(row["seed"]), f"{float(noise):g}" if noise != "" else "", row["fit"], str(row["rows"])


def append(path, run, options):
    """Write the rows that are not in the file yet, each when it comes."""
    text = path.read_text() if path.exists() else ""
    rows = list(csv.DictReader(text.splitlines()))
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if not text:
            writer.writeheader()
        for row in run(options, {place(row) for row in rows}):
            rounded = {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in row.items()}
            writer.writerow(rounded)
            file.flush()
            print(rounded, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=("install", "waves", "pairs", "sets", "many"))
    parser.add_argument("folder", type=Path, nargs="?", help="of the environments to install")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--noise", type=float, nargs="+", default=[2.0])
    parser.add_argument("--names", nargs="+", default=["yacht", "energy", "concrete", "bikehours", "blood"])
    parser.add_argument("--fits", nargs="+", default=FITS[:2], choices=FITS)
    parser.add_argument("--environments", type=Path, help="folder that `install` has filled")
    parser.add_argument("--timeout", type=float, default=180, help="seconds of the processor for a peer in Python")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    if options.task == "install":
        install(options.folder)
        return
    jax.config.update("jax_enable_x64", True)
    runs = {"waves": run_simulations, "pairs": run_simulations, "sets": run_sets, "many": run_many}
    append(options.out, runs[options.task], options)


if __name__ == "__main__":
    main()
