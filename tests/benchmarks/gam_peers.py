"""``ngp.gam`` beside mgcv: Gu and Wahba's four terms, and data sets with their first split, on the same rows.

    python -m tests.benchmarks.gam_peers waves --seeds 8 --noise 1 2 4
    python -m tests.benchmarks.gam_peers sets --names autompg concrete blood bikehours

Rows go to ``examples/results/gam_peers.csv`` as they come. mgcv runs by ``Rscript``; seconds are of the processor, those
of mgcv without the start of R, ours with tracing and, for the first of a kind, compiling.
"""

import argparse
import csv
import subprocess
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


def mgcv(formula, family, train, test):
    """Link mean and error at the test rows, terms with errors, seconds, and the noise variance or the size."""
    with tempfile.TemporaryDirectory() as folder:
        for name, table in (("train", train), ("test", test)):
            rows = np.stack(list(table.values()), axis=1)
            np.savetxt(f"{folder}/{name}.csv", rows, delimiter=",", header=",".join(table), comments="")
        script = R_SCRIPT.replace("FORMULA", formula).replace("FAMILY", family)
        subprocess.run(["Rscript", "-e", script], cwd=folder, check=True, capture_output=True)
        link = np.genfromtxt(f"{folder}/link.csv", delimiter=",", skip_header=1)
        return link, np.genfromtxt(f"{folder}/terms.csv", delimiter=",", skip_header=1)


def covered(mean, scale, truth):
    """Share of the values of all terms but the dead one inside of their 90 % bands."""
    away = np.abs(mean[:, :3] - truth[:, :3]) / scale[:, :3]
    return float(np.mean(away < stats.norm.ppf(0.95)))


def run_waves(options):
    for noise in options.noise:
        for seed in range(options.first, options.first + options.seeds):
            rng = np.random.default_rng(1000 * seed + round(10 * noise))
            x = rng.uniform(size=(4, options.rows))
            truth = waves(x)
            table = {f"x{d}": x[d] for d in range(4)} | {"y": truth.sum(1) + noise * rng.normal(size=options.rows)}
            centred, f = truth - truth.mean(0), truth.sum(1)
            common = {"task": "waves", "seed": seed, "noise": noise, "rows": options.rows}
            link, terms = mgcv("y ~ s(x0) + s(x1) + s(x2) + s(x3)", "gaussian()", table, table)
            rmse = float(np.sqrt(np.mean((link[:, 0] - f) ** 2)))
            numbers = {"rmse": rmse, "coverage": covered(terms[:, :4], terms[:, 4:], centred), "seconds": link[0, 2]}
            yield common | numbers | {"fit": "mgcv"}
            if options.peers_only:
                continue
            start = time.process_time()
            fit = ngp.gam("y ~ s(x0) + s(x1) + s(x2) + s(x3)", table, key=jax.random.key(seed))
            seconds = time.process_time() - start
            found = fit.terms(num_draws=50)
            rmse = float(np.sqrt(np.mean((found.mean.sum(1) + fit.model.start.constant - f) ** 2)))
            share = found.mean[:, :4].var(0)
            numbers = {"rmse": rmse, "coverage": covered(found.mean, found.scale, centred), "seconds": seconds}
            yield common | numbers | {"fit": "ngp.gam", "dead_term": share[3] / share.sum(), "note": fit.steps}


def run_sets(options):
    families = {"gaussian": "gaussian()", "bernoulli": "binomial()", "negative_binomial": "nb()"}
    for name in options.names:
        kinds, family = SETS[name]
        X, y, splits = load(name)
        names = kinds.split()
        test = split_mask(splits, 0)
        table = dict(zip(names, X.T, strict=True)) | {"y": y}
        train, held = ({key: value[rows] for key, value in table.items()} for rows in (~test, test))
        smooth = [n for n in names if n[0] == "s"]
        few = {n: len(np.unique(train[n])) for n in smooth}
        peers = [f"s({n}, k = {min(10, few[n])})" if few[n] > 4 else n for n in smooth]
        peers += [f"factor({n})" for n in names if n[0] == "f"]
        own = [f"s({n})" if few.get(n, 0) > 4 else (n if n[0] == "s" else f"factor({n})") for n in names]
        common = {"task": name, "seed": 0, "rows": len(train["y"])}
        link, _ = mgcv("y ~ " + " + ".join(peers), families[family], train, held)
        yield common | {"fit": "mgcv", "seconds": link[0, 2]} | judged(family, held["y"], *link.T[[0, 1, 3]])
        start = time.process_time()
        fit = ngp.gam("y ~ " + " + ".join(own), train, family)
        seconds = time.process_time() - start
        found = fit.predict(held)
        density = np.asarray(found.log_density(held["y"]))
        rmse = float(np.sqrt(np.mean((np.asarray(found.mean) - held["y"]) ** 2)))
        yield common | {
            "fit": "ngp.gam",
            "seconds": seconds,
            "rmse": rmse,
            "log_density": density.mean(),
            "note": fit.steps,
        }


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
    parser.add_argument("task", choices=("waves", "sets"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--noise", type=float, nargs="+", default=[2.0])
    parser.add_argument("--names", nargs="+", default=list(SETS))
    parser.add_argument("--peers-only", action="store_true")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    is_new = not options.out.exists()
    with options.out.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if is_new:
            writer.writeheader()
        for row in run_waves(options) if options.task == "waves" else run_sets(options):
            rounded = {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in row.items()}
            writer.writerow(rounded)
            file.flush()
            print(rounded, flush=True)


if __name__ == "__main__":
    main()
