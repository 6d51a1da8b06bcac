"""``ngp.gam`` beside its peers: Gu and Wahba's four terms, data sets with their splits, and many rows, on the same rows.

    python -m tests.benchmarks.gam_peers install FOLDER
    python -m tests.benchmarks.gam_peers waves --seeds 60 --noise 1 2 4
    python -m tests.benchmarks.gam_peers waves --seeds 3 --fits pygam statsmodels ebm bambi --environments FOLDER
    python -m tests.benchmarks.gam_peers sets --splits 3 --environments FOLDER
    python -m tests.benchmarks.gam_peers many --rows 100000

Rows go to ``examples/results/gam_peers.csv`` as they come. mgcv runs by ``Rscript``, the peers in Python by
`tests/benchmarks/gam_rivals.py` in environments of their own. Seconds are those of the processor for the fit, without
the start of a process; ours with tracing, and for the first fit of a form with compiling.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
from scipy import stats

import numpyro_gp as ngp
from examples.datasets import load, split_mask

OUT = Path(__file__).parent.parent.parent / "examples" / "results" / "gam_peers.csv"
FIELDS = ["task", "seed", "noise", "fit", "rows", "rmse", "log_density", "coverage", "dead_term", "seconds", "note"]
# Formula of a set: names of its columns, its categories, its family here and in mgcv.
SETS = {
    "autompg": ("s0 f0 s1 s2 s3 s4 s5", "gaussian"),
    "concrete": ("s0 s1 s2 s3 s4 s5 s6 s7", "gaussian"),
    "energy": ("s0 s1 s2 s3 f0 f1 f2 f3", "gaussian"),
    "yacht": ("s0 s1 s2 s3 s4 s5", "gaussian"),
    "housing": ("s0 f0 s1 f1 s2 s3 s4 s5 f2 s6 s7 s8 s9", "gaussian"),
    "blood": ("s0 s1 s2 s3", "bernoulli"),
    "bikehours": ("s0 f0 f1 f2 f3 s1 s2 s3", "negative_binomial"),
}
FAMILIES = {"gaussian": "gaussian()", "bernoulli": "binomial()", "negative_binomial": "nb()"}
RIVALS = {"pygam": "light", "statsmodels": "light", "ebm": "light", "bambi": "bambi"}
PACKAGES = {
    "light": ["pygam==0.12.0", "statsmodels==0.15.0", "interpret==0.7.8", "pandas", "scipy"],
    "bambi": ["bambi==0.17.2", "pandas", "scipy"],
}
FITS = ["mgcv", "ngp.gam", *RIVALS]
CURVES = "y ~ s(x0) + s(x1) + s(x2) + s(x3)"
R_SCRIPT = """
library(mgcv); d <- read.csv("train.csv"); t <- read.csv("test.csv"); s <- proc.time()
m <- gam(FORMULA, data = d, family = FAMILY, method = "REML"); e <- proc.time() - s
p <- predict(m, t, type = "link", se.fit = TRUE); q <- predict(m, t, type = "terms", se.fit = TRUE)
own <- if (inherits(m$family, "extended.family")) m$family$getTheta(TRUE) else m$sig2
write.csv(data.frame(fit = p$fit, se = p$se.fit, seconds = sum(e[1:2]), own = own), "link.csv", row.names = FALSE)
write.csv(cbind(q$fit, q$se.fit), "terms.csv", row.names = FALSE)
"""


def waves(x):
    """The four terms of Gu and Wahba (1991), the last of which is zero."""
    third = 0.2 * x[2] ** 11 * (10 * (1 - x[2])) ** 6 + 10 * (10 * x[2]) ** 3 * (1 - x[2]) ** 10
    return np.stack([2 * np.sin(np.pi * x[0]), np.exp(2 * x[1]), third, 0 * x[3]], axis=1)


def write(folder, **tables):
    for name, table in tables.items():
        rows = np.stack(list(table.values()), axis=1)
        np.savetxt(f"{folder}/{name}.csv", rows, delimiter=",", header=",".join(table), comments="")


def mgcv(formula, family, train, test, how="gam", method="REML"):
    """Link mean and error at the test rows, terms with errors, seconds, and the noise variance or the size."""
    with tempfile.TemporaryDirectory() as folder:
        write(folder, train=train, test=test)
        script = R_SCRIPT.replace("FORMULA", formula).replace("FAMILY", family).replace("gam(", f"{how}(", 1)
        script = script.replace("REML", method)
        subprocess.run(["Rscript", "-e", script], cwd=folder, check=True, capture_output=True)
        link = np.genfromtxt(f"{folder}/link.csv", delimiter=",", skip_header=1)
        return link, np.genfromtxt(f"{folder}/terms.csv", delimiter=",", skip_header=1)


def rival(name, job, train, test, options):
    """What a peer in Python says, or why it says nothing."""
    python = options.environments / RIVALS[name] / "bin" / "python"
    with tempfile.TemporaryDirectory() as folder:
        write(folder, train=train, test=test)
        Path(folder, "job.json").write_text(json.dumps(job | {"peer": name}))
        script = Path(__file__).with_name("gam_rivals.py")
        known = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", PYTHONPATH="")
        try:
            done = subprocess.run(
                [python, script, folder], capture_output=True, text=True, env=known, timeout=options.timeout
            )
        except subprocess.TimeoutExpired:
            return {"note": f"did not end in {options.timeout} s"}
    found = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    return json.loads(found[0][7:]) if found else {"note": f"stopped: {reason:.80}"}


def covered(mean, scale, truth):
    """Share of the values of all terms but the dead one inside of their 90 % bands."""
    away = np.abs(mean[:, :3] - truth[:, :3]) / scale[:, :3]
    return float(np.mean(away < stats.norm.ppf(0.95)))


def simulated(seed, noise, rows):
    """A table of the four terms, the terms, and the common columns of its rows."""
    rng = np.random.default_rng(1000 * seed + round(10 * noise))
    x = rng.uniform(size=(4, rows))
    truth = waves(x)
    table = {f"x{d}": x[d] for d in range(4)} | {"y": truth.sum(1) + noise * rng.normal(size=rows)}
    return table, truth, {"task": "waves", "seed": seed, "noise": noise, "rows": rows}


def dead(terms):
    """Share of the fourth term in the variance of all."""
    share = terms.var(0)
    return share[3] / share.sum()


def run_waves(options):
    for seed in range(options.first, options.first + options.seeds):
        for noise in options.noise:
            table, truth, common = simulated(seed, noise, options.rows)
            centred, f = truth - truth.mean(0), truth.sum(1)
            for name in options.fits:
                if name == "mgcv":
                    link, terms = mgcv(CURVES, "gaussian()", table, table)
                    mean, own, scale, numbers = link[:, 0], terms[:, :4], terms[:, 4:], {"seconds": link[0, 2]}
                elif name == "ngp.gam":
                    start = time.process_time()
                    fit = ngp.gam(CURVES, table, key=jax.random.key(seed))
                    numbers = {"seconds": time.process_time() - start, "note": f"{fit.steps} steps"}
                    found = fit.terms(num_draws=50)
                    own, scale = found.mean[:, :4], found.scale[:, :4]
                    mean = found.mean.sum(1) + fit.model.start.constant
                else:
                    job = {"smooth": ["x0", "x1", "x2", "x3"], "lines": [], "factors": [], "family": "gaussian"}
                    numbers = rival(name, job | {"terms": True}, table, table | {"y": f}, options)
                    terms = numbers.pop("terms", [])
                    numbers.pop("log_density", None)
                    if terms:
                        own = np.array([mean for mean, _ in terms]).T
                        numbers["dead_term"] = dead(own)
                        if terms[0][1]:
                            scale = np.array([half for _, half in terms]).T / stats.norm.ppf(0.95)
                            numbers["coverage"] = covered(own - own.mean(0), scale, centred)
                    yield common | numbers | {"fit": name}
                    continue
                numbers |= {"rmse": float(np.sqrt(np.mean((mean - f) ** 2))), "dead_term": dead(own)}
                yield common | numbers | {"fit": name, "coverage": covered(own, scale, centred)}


def run_sets(options):
    for name in options.names:
        kinds, family = SETS[name]
        X, y, splits = load(name)
        names = kinds.split()
        for split in range(options.first, min(options.first + options.splits, splits.shape[1])):
            test = split_mask(splits, split)
            table = dict(zip(names, X.T, strict=True)) | {"y": y}
            train, held = ({key: value[rows] for key, value in table.items()} for rows in (~test, test))
            yield from of_split(name, split, family, train, held, options)


def of_split(task, split, family, train, held, options):
    names = [name for name in train if name != "y"]
    few = {n: len(np.unique(train[n])) for n in names if n[0] == "s"}
    smooth, lines = [n for n in few if few[n] > 4], [n for n in few if few[n] <= 4]
    factors = [n for n in names if n[0] == "f"]
    common = {"task": task, "seed": split, "rows": len(train["y"])}
    for name in options.fits:
        if name == "mgcv":
            peers = [f"s({n}, k = {min(10, few[n])})" for n in smooth] + lines + [f"factor({n})" for n in factors]
            link, _ = mgcv("y ~ " + " + ".join(peers), FAMILIES[family], train, held)
            found = {"seconds": link[0, 2]} | judged(family, held["y"], *link.T[[0, 1, 3]])
        elif name == "ngp.gam":
            own = [f"s({n})" for n in smooth] + lines + [f"factor({n})" for n in factors]
            found = ours("y ~ " + " + ".join(own), train, held, family)
        else:
            job = {"smooth": smooth, "lines": lines, "factors": factors, "family": family, "terms": False}
            found = rival(name, job, train, held, options)
            found.pop("terms", None)
        yield common | found | {"fit": name}


def ours(formula, train, held, family):
    start = time.process_time()
    fit = ngp.gam(formula, train, family)
    seconds = time.process_time() - start
    found = fit.predict(held)
    density = float(np.asarray(found.log_density(held["y"])).mean())
    rmse = float(np.sqrt(np.mean((np.asarray(found.mean) - held["y"]) ** 2)))
    return {"seconds": seconds, "rmse": rmse, "log_density": density, "note": f"{fit.steps} steps"}


def run_many(options):
    """The four terms with many rows: mgcv's `bam`, with and without discrete columns, and a second fit of ours."""
    (train, _, common), (test, _, _) = (simulated(seed, 2.0, rows) for seed, rows in ((0, options.rows), (1, 2000)))
    common["task"] = "many"
    for name, how, method in (
        ("bam", "bam", "fREML"),
        ("bam, discrete", "bam", 'fREML", discrete = TRUE, nthreads = "1'),
    ):
        link, _ = mgcv(CURVES, "gaussian()", train, test, how, method)
        yield common | {"fit": name, "seconds": link[0, 2]} | judged("gaussian", test["y"], *link.T[[0, 1, 3]])
    for name in ("ngp.gam", "ngp.gam, second fit"):
        yield common | {"fit": name} | ours(CURVES, train, test, "gaussian")


def install(folder):
    for name, packages in PACKAGES.items():
        subprocess.run([sys.executable, "-m", "venv", folder / name], check=True)
        subprocess.run([folder / name / "bin" / "pip", "install", "-q", *packages], check=True)


def judged(family, y, mean, error, own):
    """Error of the mean, and log density with the uncertainty of the link by 20 nodes."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    f = mean[:, None] + error[:, None] * nodes
    at = y[:, None]
    if family == "gaussian":
        density, means = stats.norm(f, np.sqrt(own[0])).pdf(at), f
    elif family == "bernoulli":
        means = 1 / (1 + np.exp(-f))
        density = np.where(at > 0, means, 1 - means)
    else:
        means = np.exp(f)
        density = stats.nbinom(own[0], own[0] / (own[0] + means)).pmf(at)
    share = weights / weights.sum()
    return {
        "rmse": float(np.sqrt(np.mean((means @ share - y) ** 2))),
        "log_density": float(np.log(density @ share).mean()),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=("install", "waves", "sets", "many"))
    parser.add_argument("folder", type=Path, nargs="?", help="of the environments to install")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--noise", type=float, nargs="+", default=[2.0])
    parser.add_argument("--names", nargs="+", default=["yacht", "energy", "concrete", "bikehours", "blood"])
    parser.add_argument("--fits", nargs="+", default=FITS[:2], choices=FITS)
    parser.add_argument("--environments", type=Path, help="folder that `install` has filled")
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    if options.task == "install":
        install(options.folder)
        return
    jax.config.update("jax_enable_x64", True)
    is_new = not options.out.exists()
    with options.out.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if is_new:
            writer.writeheader()
        for row in {"waves": run_waves, "sets": run_sets, "many": run_many}[options.task](options):
            rounded = {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in row.items()}
            writer.writerow(rounded)
            file.flush()
            print(rounded, flush=True)


if __name__ == "__main__":
    main()
