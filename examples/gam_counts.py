"""A Bayesian GAM of counts: hourly bicycle rentals with a negative-binomial likelihood.

Data: 2999 random hours of the UCI bike-sharing set (CC BY 4.0), ``examples/data/bikehours.csv.gz``. The peer is
statsmodels' ``GLMGam`` with B-splines and a negative-binomial family (dispersion by maximum likelihood on a grid),
given the same interaction through splines of the hour for both kinds of day.

``python -m examples.gam_counts [--smoke]``
"""

import argparse
import time
from pathlib import Path

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy import stats

import numpyro_gp as ngp
from examples.additive_fits import gam, optional
from examples.datasets import load, split_mask

NAMES = ["hour", "month", "year", "workingday", "weather", "temperature", "humidity", "wind"]
CATEGORIES = ["year", "workingday", "weather"]


def seen():
    """Counts with over-dispersion ``1 + mean / r``."""
    return ngp.likelihoods.NegativeBinomial(numpyro.sample("r", dist.LogNormal(1.0, 1.0)))


def design_matrix(X):
    """Linear part of the peer: dummies, of which one a category is left out."""
    parts = [np.ones((len(X), 1)), X[:, [2, 3]], X[:, [4]] == 2, X[:, [4]] == 3]
    return np.concatenate(parts, axis=1).astype(float)


def smooth_columns(X):
    """Columns that the peer smooths; the hour enters twice, the second time for working days only."""
    hour, work = X[:, 0], X[:, 3] > 0
    return np.stack([hour, np.where(work, hour, 11.5), X[:, 1], X[:, 5], X[:, 6], X[:, 7]], 1)


def peers(X, y, X_test, y_test):
    """Held-out log densities of statsmodels' negative-binomial GAM."""
    if not optional("statsmodels"):
        return []
    import statsmodels.api as sm
    from statsmodels.gam.api import BSplines, GLMGam

    start = time.perf_counter()
    smooth = smooth_columns(X)
    splines = BSplines(smooth, df=[14, 14, 6, 6, 6, 6], degree=[3] * 6)
    linear, best = design_matrix(X), None
    low, high = smooth.min(axis=0), smooth.max(axis=0)
    at = np.clip(smooth_columns(X_test), low, high)
    for alpha in (0.05, 0.1, 0.15, 0.2, 0.3, 0.5):
        family = sm.families.NegativeBinomial(alpha=alpha)
        fitted = GLMGam(y, exog=linear, smoother=splines, alpha=[0.1] * 6, family=family).fit()
        if best is None or fitted.llf > best[0]:
            mean = fitted.predict(exog=design_matrix(X_test), exog_smooth=at)
            best = fitted.llf, 1 / alpha, mean
    _, r, mean = best
    density = stats.nbinom(r, r / (r + mean)).logpmf(y_test)
    return [("statsmodels GLMGam", density, time.perf_counter() - start)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="tiny sizes")
    parser.add_argument("--data", type=Path, default=Path(__file__).parent / "data")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "output")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    X, y, splits = load("bikehours", options.data)
    if options.smoke:
        X, y, splits = X[:300], y[:300], splits[:300]
    size = {"num_inducing": 6 if options.smoke else 16, "pair_inducing": 6 if options.smoke else 16}
    layout = ngp.anova.design(X, names=NAMES, categorical=CATEGORIES, pairs=[("hour", "workingday")], **size)

    def model(y_train):
        """A log link starts at the data's level."""
        return layout.model(seen, scale=2.0, mean=float(np.log(y_train.mean())))

    tests = [split_mask(splits, split) for split in range(options.splits)]
    steps = 20 if options.smoke else options.steps
    gam(
        "gam_counts", layout, model, X, y, tests, peers=peers, steps=steps, batch=500,
        out=options.out, response="log rentals",
    )  # fmt: skip


if __name__ == "__main__":
    main()
