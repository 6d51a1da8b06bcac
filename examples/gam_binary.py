"""A Bayesian GAM of a yes or no: who gave blood in March 2007, with a Bernoulli (logit) likelihood.

Data: the UCI blood transfusion set (CC BY 4.0), ``examples/data/blood.csv.gz``; 215 of its 748 rows repeat another row.
The third input is 250 times the second and is left out. Counts of months and donations enter by ``log(1 + x)``. The
peer is pyGAM's ``LogisticGAM`` with its own grid search. ``python -m examples.gam_binary [--smoke]``
"""

import argparse
import time
from pathlib import Path

import jax
import numpy as np

import numpyro_gp as ngp
from examples.additive_fits import gam, optional
from examples.datasets import load, split_mask

NAMES = ["log months since last", "log donations", "log months since first"]


def seen():
    """Success probability by the logistic function."""
    return ngp.likelihoods.Bernoulli("logit")


def peers(X, y, X_test, y_test):
    """Held-out log densities of pyGAM, and of the class frequencies alone."""
    share = y.mean()
    rows = [("class frequencies", np.where(y_test == 1, np.log(share), np.log1p(-share)), 0.0)]
    if not optional("pygam"):
        return rows
    from pygam import LogisticGAM, s, te

    start = time.perf_counter()
    peer = LogisticGAM(s(0, n_splines=12) + s(1, n_splines=12) + s(2, n_splines=12) + te(1, 2, n_splines=5))
    peer = peer.gridsearch(X, y, progress=False)
    p = np.clip(peer.predict_proba(X_test), 1e-9, 1 - 1e-9)
    return [*rows, ("pyGAM LogisticGAM", np.where(y_test == 1, np.log(p), np.log1p(-p)), time.perf_counter() - start)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="tiny sizes")
    parser.add_argument("--data", type=Path, default=Path(__file__).parent / "data")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "output")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    X, y, splits = load("blood", options.data)
    X = np.log1p(X[:, [0, 1, 3]])
    size = {"num_inducing": 5 if options.smoke else 12, "pair_inducing": 3 if options.smoke else 5}
    layout = ngp.anova.design(X, names=NAMES, pairs=[(1, 2)], **size)
    model = layout.model(seen, scale=1.0)
    tests = [split_mask(splits, split) for split in range(options.splits)]
    steps = 20 if options.smoke else options.steps
    gam(
        "gam_binary", layout, lambda _: model, X, y, tests, peers=peers, steps=steps, batch=None,
        out=options.out, response="log odds",
    )  # fmt: skip


if __name__ == "__main__":
    main()
