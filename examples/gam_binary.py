"""A Bayesian GAM of a yes or no: who gave blood in March 2007, by one formula.

Data: the UCI blood transfusion set (CC BY 4.0), ``examples/data/blood.csv.gz``; 215 of its 748 rows repeat another row.
The third input is 250 times the second and is left out. Months and donations enter by ``log(1 + x)``. The peer is
pyGAM's ``LogisticGAM`` with its own grid search. ``python -m examples.gam_binary [--smoke]``
"""

import argparse
import time
from pathlib import Path

import jax
import numpy as np

from examples.studies.gam.gam_fits import beside_peers, optional, table
from examples.tools.datasets import load, split_mask

NAMES = ["recency", "donations", "since_first"]
FORMULA = (
    "y ~ s(log1p(recency)) + s(log1p(donations)) + s(log1p(since_first)) + ti(log1p(donations), log1p(since_first))"
)


def peers(train, test):
    """Held-out log densities of pyGAM, and of the class frequencies alone."""
    y, y_test, share = train["y"], test["y"], train["y"].mean()
    rows = [("class frequencies", np.where(y_test == 1, np.log(share), np.log1p(-share)), 0.0)]
    if not optional("pygam"):
        return rows
    from pygam import LogisticGAM, s, te

    X, X_test = (np.log1p(np.stack([part[name] for name in NAMES], axis=1)) for part in (train, test))
    start = time.process_time()
    peer = LogisticGAM(s(0, n_splines=12) + s(1, n_splines=12) + s(2, n_splines=12) + te(1, 2, n_splines=5))
    p = np.clip(peer.gridsearch(X, y, progress=False).predict_proba(X_test), 1e-9, 1 - 1e-9)
    return [*rows, ("pyGAM LogisticGAM", np.where(y_test == 1, np.log(p), np.log1p(-p)), time.process_time() - start)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="few rows and one curve")
    parser.add_argument("--data", type=Path, default=Path(__file__).parent / "data")
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "output")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    X, y, splits = load("blood", options.data)
    tests = [split_mask(splits, split) for split in range(options.splits)]
    formula = FORMULA
    if options.smoke:
        X, y, tests, formula = X[:200], y[:200], [test[:200] for test in tests], "y ~ s(log1p(recency))"
    data = table(NAMES, X[:, [0, 1, 3]], y)
    beside_peers("gam_binary", formula, "bernoulli", data, tests, peers=peers, out=options.out)


if __name__ == "__main__":
    main()
