"""How `examples.studies.gam.peers` runs what it compares: R's mgcv, peers in Python, and ours.

mgcv runs many jobs in one process of ``Rscript``, each from files of its own. A peer in Python runs in an environment
of its own, and is ended after so many seconds of the processor.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import numpyro_gp as ngp
from examples.studies.gam.peers.rivals import judged

__all__ = ["RIVALS", "by_mgcv", "fitted", "install", "judged_fit", "judged_mgcv", "mgcv_formula", "rival"]

FAMILIES = {"gaussian": "gaussian()", "bernoulli": "binomial()", "negative_binomial": "nb()"}
RIVALS = {"pygam": "light", "statsmodels": "light", "ebm": "light", "ebm pairs": "light", "bambi": "bambi"}
PACKAGES = {
    "light": ["pygam==0.12.0", "statsmodels==0.15.0", "interpret==0.7.8", "pandas", "scipy"],
    "bambi": ["bambi==0.17.2", "matplotlib<3.11", "pandas", "scipy"],
}
ALL = """
suppressMessages(library(mgcv))
for (folder in list.dirs(recursive = FALSE)) { setwd(folder); source("job.R", local = new.env()); setwd("..") }
"""
# What a fit says of new rows and of its terms; `summary` has edf and p-values.
JOB = """
d <- read.csv("train.csv"); t <- read.csv("test.csv"); s <- proc.time()
m <- FIT; e <- proc.time() - s
p <- predict(m, t, type = "link", se.fit = TRUE); q <- predict(m, t, type = "terms", se.fit = TRUE)
own <- if (inherits(m$family, "extended.family")) m$family$getTheta(TRUE) else m$sig2
write.csv(data.frame(fit = p$fit, se = p$se.fit, seconds = sum(e[1:2]), own = own), "link.csv", row.names = FALSE)
write.csv(cbind(q$fit, q$se.fit), "terms.csv", row.names = FALSE)
write.csv(summary(m)$s.table[, c(1, 4), drop = FALSE], "summary.csv", row.names = FALSE)
"""


def write(folder, **tables):
    for name, table in tables.items():
        rows = np.stack(list(table.values()), axis=1)
        np.savetxt(f"{folder}/{name}.csv", rows, delimiter=",", header=",".join(table), comments="")


def by_mgcv(jobs):
    """Of each ``(call, train, test)``: rows ``[link, its error, seconds, own]``, terms with errors, edf and p-values.

    ``call`` is the R expression of the fit to the table ``d``; ``own`` is the noise variance or the size of the counts.
    """
    with tempfile.TemporaryDirectory() as folder:
        places = [Path(folder, f"{at:05d}") for at in range(len(jobs))]
        for place, (call, train, test) in zip(places, jobs, strict=True):
            place.mkdir()
            write(place, train=train, test=test)
            (place / "job.R").write_text(JOB.replace("FIT", call))
        known = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
        subprocess.run(["Rscript", "-e", ALL], cwd=folder, check=True, capture_output=True, env=known)
        names = ("link", "terms", "summary")
        return [
            tuple(np.genfromtxt(p / f"{n}.csv", delimiter=",", skip_header=1, ndmin=2) for n in names) for p in places
        ]


def mgcv_formula(formula, family, how="gam", more=""):
    """The R expression of a fit; ``bam`` does the same as ``gam``, in less time where there are many penalties."""
    method = {"gam": "REML", "bam": "fREML"}[how]
    return f'{how}({formula}, data = d, family = {FAMILIES[family]}, method = "{method}"{more})'


def rival(name, job, tables, options):
    """What a peer in Python says of each ``(train, test)``, or why it says nothing; one process for all of them."""
    python = options.environments / RIVALS[name] / "bin" / "python"
    most = int(options.timeout) * len(tables)
    with tempfile.TemporaryDirectory() as folder:
        places = [Path(folder, str(at)) for at in range(len(tables))]
        for place, (train, test) in zip(places, tables, strict=True):
            place.mkdir()
            write(place, train=train, test=test)
            whole = {"lines": [], "factors": [], "terms": False} | job | {"peer": name}
            (place / "job.json").write_text(json.dumps(whole))
        done = subprocess.run(
            [python, Path(__file__).with_name("rivals.py"), *places],
            capture_output=True,
            text=True,
            env=dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", PYTHONPATH=""),
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (most, most + 10)),
        )
    found = [json.loads(line[7:]) for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    is_late = done.returncode == -signal.SIGXCPU
    reason = f"stopped: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]:.80}"
    missing = {"note": f"did not end in {options.timeout:.0f} s" if is_late else reason}
    return found + [missing] * (len(tables) - len(found))


def fitted(terms, train, family="gaussian", **options):
    """Our fit, and its seconds of the processor."""
    start = time.process_time()
    fit = ngp.gam(terms, train, family, **options)
    return fit, time.process_time() - start


def judged_fit(formula, train, held, family, screen=False):
    """Log density and RMSE of our fit at rows held out; with the pairs that ``screen`` keeps, if wanted."""
    start = time.process_time()
    found = ngp.gam.screen(formula, train, family) if screen else None
    spent = time.process_time() - start
    kept = [str(one.term) for one in found.tried if one.kept] if screen else []
    fit, seconds = fitted(found.terms if screen else formula, train, family)
    new = fit.predict(held)
    density = float(np.asarray(new.log_density(held["y"])).mean())
    rmse = float(np.sqrt(np.mean((np.asarray(new.mean) - held["y"]) ** 2)))
    note = f"{fit.steps} steps" + "".join(f", {term}" for term in kept)
    return {"seconds": seconds + spent, "rmse": rmse, "log_density": density, "note": note}


def judged_mgcv(family, y, link):
    """The same of mgcv, from the first of the tables of `by_mgcv`."""
    mean, error, seconds, own = link.T
    return {"seconds": float(seconds[0])} | judged(family, y, mean, error, own[0])


def install(folder):
    for name, packages in PACKAGES.items():
        subprocess.run([sys.executable, "-m", "venv", folder / name], check=True)
        subprocess.run([folder / name / "bin" / "pip", "install", "-q", *packages], check=True)
