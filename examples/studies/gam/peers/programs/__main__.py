"""Run every program of this folder on the same rows, and count its lines.

    python -m examples.studies.gam.peers.programs --environments FOLDER

Rows go to ``gam_programs.csv``: lines of code (neither empty nor a comment; Python as ruff formats it,
120 characters at most), the error of the predicted means, how many new values lie in the intervals, and seconds of the
processor from the start to the end of the process.
"""

import argparse
import csv
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from examples.studies.gam.peers.engines import write
from examples.studies.gam.peers.simulations import simulated

HERE = Path(__file__).parent
OUT = HERE.parents[1] / "gam_programs.csv"
PROGRAMS = {
    "ngp.gam": "by_ngp.py",
    "mgcv": "by_mgcv.R",
    "pygam": "by_pygam.py",
    "statsmodels": "by_statsmodels.py",
    "ebm": "by_ebm.py",
}


def lines_of(program):
    """Lines of code of a program of this folder."""
    lines = [line.strip() for line in (HERE / program).read_text().splitlines()]
    return sum(bool(line) and not line.startswith("#") for line in lines)


def run(name, environments, noise=2.0):
    """The row of one program, on the first simulation of 400 rows; the new rows are those of the second."""
    (train, _, _), (test, truth, _) = (simulated(seed, noise, 400) for seed in (0, 1))
    program = HERE / PROGRAMS[name]
    pythons = {"ngp.gam": sys.executable, "mgcv": "Rscript"}
    command = [pythons.get(name, environments / "light" / "bin" / "python"), program]
    with tempfile.TemporaryDirectory() as folder:
        write(folder, train=train, test=test)
        known = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MPLBACKEND="Agg")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, cwd=folder, check=True, capture_output=True, env=known)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if not Path(folder, "terms.png").exists():
            raise FileNotFoundError(f"{program.name} must draw terms.png")
        found = np.genfromtxt(Path(folder, "predicted.csv"), delimiter=",", names=True)
    row = {"fit": name, "lines": lines_of(program.name)}
    row["rmse"] = f"{np.sqrt(np.mean((found['mean'] - truth.sum(1)) ** 2)):.4g}"
    if "low" in found.dtype.names:
        row["in_interval"] = f"{np.mean((found['low'] < test['y']) & (test['y'] < found['high'])):.4g}"
    row["seconds"] = f"{sum(getattr(after, key) - getattr(before, key) for key in ('ru_utime', 'ru_stime')):.1f}"
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--environments", type=Path, required=True, help="folder that `gam_peers install` has filled")
    parser.add_argument("--fits", nargs="+", default=list(PROGRAMS), choices=list(PROGRAMS))
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    rows = (
        {row["fit"]: row for row in csv.DictReader(options.out.read_text().splitlines())}
        if options.out.exists()
        else {}
    )
    for name in options.fits:
        rows[name] = run(name, options.environments)
        with options.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["fit", "lines", "rmse", "in_interval", "seconds"], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows[fit] for fit in PROGRAMS if fit in rows)


if __name__ == "__main__":
    main()
