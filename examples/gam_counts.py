"""A Bayesian GAM of counts: hourly bicycle rentals with a negative-binomial likelihood, by one formula.

Data: 2999 random hours of the UCI bike-sharing set (CC BY 4.0), ``examples/data/bikehours.csv.gz``. The peer is
statsmodels' ``GLMGam`` with B-splines and a negative-binomial family, the dispersion by maximum likelihood on a grid
and penalties by the AIC, given the same interaction through splines of the hour for both kinds of day.

``python -m examples.gam_counts [--smoke]``
"""

import argparse
import time
from pathlib import Path

import jax
import numpy as np
from scipy import stats

from examples.studies.gam.gam_fits import beside_peers, optional, table
from examples.tools.datasets import load, split_mask

NAMES = ["hour", "month", "year", "workingday", "weather", "temperature", "humidity", "wind"]
FORMULA = "y ~ s(hour) + s(hour, by=workingday) + s(month) + s(temperature) + s(humidity) + s(wind)"
FORMULA += " + factor(year) + factor(workingday) + factor(weather)"
LEVELS = {"year": ["2011", "2012"], "workingday": ["free", "working"], "weather": ["", "clear", "mist", "rain"]}


def design_matrix(train):
    """Linear part of the peer: dummies, of which one a category is left out."""
    dummies = [("year", "2012"), ("workingday", "working"), ("weather", "mist"), ("weather", "rain")]
    return np.stack([np.ones(len(train["y"])), *(train[name] == level for name, level in dummies)], axis=1)


def smooth_columns(train):
    """Columns that the peer smooths; the hour enters twice, the second time for working days only."""
    hour = train["hour"]
    own = np.where(train["workingday"] == "working", hour, 11.5)
    return np.stack([hour, own, *(train[name] for name in ("month", "temperature", "humidity", "wind"))], axis=1)


def peers(train, test):
    """Held-out log densities of statsmodels' negative-binomial GAM."""
    if not optional("statsmodels"):
        return []
    import statsmodels.api as sm
    from statsmodels.gam.api import BSplines, GLMGam

    start = time.process_time()
    smooth, linear, penalties = smooth_columns(train), design_matrix(train), [0.1] * 6
    splines = BSplines(smooth, df=[14, 14, 6, 6, 6, 6], degree=[3] * 6)
    at = np.clip(smooth_columns(test), smooth.min(axis=0), smooth.max(axis=0))

    def built(dispersion):
        family = sm.families.NegativeBinomial(alpha=dispersion)
        return GLMGam(train["y"], exog=linear, smoother=splines, alpha=penalties, family=family)

    for again in (True, False):  # the likeliest dispersion, penalties of the least AIC there, and once more
        best = max((0.05, 0.1, 0.15, 0.2, 0.3, 0.5), key=lambda dispersion: built(dispersion).fit().llf)
        model = built(best)
        fitted = model.fit()  # leaves the scale that the search for penalties reads
        penalties = model.select_penweight(method="minimize")[0] if again else penalties
    mean, r = fitted.predict(exog=design_matrix(test), exog_smooth=at), 1 / best
    density = stats.nbinom(r, r / (r + mean)).logpmf(test["y"])
    return [("statsmodels GLMGam", density, time.process_time() - start)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="few rows and two terms")
    parser.add_argument("--data", type=Path, default=Path(__file__).parent / "data")
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "output")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    X, y, splits = load("bikehours", options.data)
    tests = [split_mask(splits, split) for split in range(options.splits)]
    formula = FORMULA
    if options.smoke:
        X, y, tests, formula = X[:300], y[:300], [test[:300] for test in tests], "y ~ s(hour) + factor(workingday)"
    data = table(NAMES, X, y)
    data |= {name: np.array(levels)[data[name].astype(int)] for name, levels in LEVELS.items()}
    beside_peers("gam_counts", formula, "negative_binomial", data, tests, peers=peers, out=options.out)


if __name__ == "__main__":
    main()
