"""Interactions chosen by a screening: ``ngp.gam`` on airfoil noise, beside pyGAM, statsmodels and EBM.

    # row by row into the table here; resumes there
    python -m examples.studies.gam.gam_interactions --data ../shared/data
    python -m examples.studies.gam.gam_interactions --tables  # the table and the figure from the rows so far

Data: UCI airfoil self-noise (1503 rows, CC BY 4.0); frequency and thickness enter by their logarithms. On each split
``ngp.gam.screen`` fits main effects to four fifths of the training rows and scores all pairs by the residuals. It tries
the best of them, one after the other, and keeps those that help on the last fifth. ``ngp.gam`` then fits what was kept
to all training rows. Test rows choose nothing. Split 0 is left out, since its scores were seen before.

pyGAM has the same pairs, as tensor splines, with smoothing by GCV. statsmodels' ``GLMGam`` smooths single columns: it
gets them as products of small splines. interpret's EBM chooses its own pairs, as many as it takes by default. It has no
predictive density and gets a normal one, with the deviation of its errors on a fifth of the training rows, left out of
a fit made for that.
"""

import argparse
import functools
import itertools
import time
import warnings
from pathlib import Path

import jax
import numpy as np
from scipy import stats

import numpyro_gp as ngp
from examples.studies.gam.gam_fits import optional, rows_of, table
from examples.studies.gam.gam_interactions_tables import CHOSEN, compare, figure, read
from examples.tools.datasets import load, split_mask, standardise
from examples.tools.run_queue import version
from examples.tools.tables import save

HERE = Path(__file__).parent
NAMES = ["frequency", "angle", "chord", "velocity", "thickness"]
# The file is centred: the least values of the UCI set, in Hz and m, bring the two columns back.
LEAST = {0: 200.0, 4: 0.000400682}
FIRST = 1  # split
MAIN = "ngp.gam, main effects"
PEERS = ["pyGAM, main effects", "pyGAM, the same pairs", "statsmodels, main effects", "statsmodels, the same pairs"]
PEERS += ["EBM, its own pairs"]
PACKAGES = {"pyGAM": "pygam", "statsmodels": "statsmodels", "EBM": "interpret"}


def data(folder, smoke):
    """Inputs, targets and masks; a few rows for a smoke test."""
    if smoke:
        rng = np.random.default_rng(0)
        X = rng.uniform(size=(120, 2))
        y = X.sum(axis=1) + 9 * (X[:, 0] - 0.5) * (X[:, 1] - 0.5) + 0.1 * rng.normal(size=120)
        return X, y, np.arange(120)[:, None] % 5 == np.arange(5)
    X, y, splits = load("airfoil", folder)
    for column, least in LEAST.items():
        X[:, column] = np.log(X[:, column] - X[:, column].min() + least)
    return X, y, splits


def ours(model, train, test, most, surface=None):
    """Row and pairs of ``ngp.gam``; ``surface`` is where the pair with the largest share goes on a grid."""
    begun = time.process_time()
    names, scores = [name for name in train if name != "y"], {}
    formula = "y ~ " + " + ".join(f"s({name})" for name in names)
    if model == CHOSEN:
        found = ngp.gam.screen(formula, train, most=most)
        print(found, flush=True)
        formula, scores = found.terms, found.scores
    fit = ngp.gam(formula, train)
    predicted = fit.predict(test)
    density = np.asarray(predicted.log_density(test["y"]))
    row = judged(test["y"], np.asarray(predicted.mean), density, *np.asarray(predicted.quantiles([0.05, 0.95])))
    pairs = [term for term in fit.model.terms.items if term.kind == "ti"]
    if surface and pairs:
        effects = fit.effects()
        best = max((effects[term.name] for term in pairs), key=lambda effect: effect.mean.std())
        grid = np.stack([*np.meshgrid(*best.axes, indexing="ij"), best.mean, best.scale]).reshape(4, -1).T
        np.savetxt(
            surface, grid, "%.5g", ",", header=",".join([c.name for c in best.columns] + ["mean,scale"]), comments=""
        )
    text = "; ".join(f"{one}:{other} {value:.2f}" for (one, other), value in scores.items())
    more = {"steps": fit.steps, "seconds": time.process_time() - begun, "scores": text}
    return row | more, [":".join(term.columns) for term in pairs]


def judged(y, mean, density, low, high):
    """Mean log density, root mean squared error and coverage of the 90 % band."""
    error = float(np.sqrt(np.mean((mean - y) ** 2)))
    return {"log_density": float(density.mean()), "rmse": error, "coverage": float(np.mean((low < y) & (y < high)))}


def peer(name, pairs, train, test):
    """Row of a peer: a normal predictive density of its own mean and deviation."""
    begun = time.process_time()
    names = [name for name in train if name != "y"]
    own = [tuple(names.index(one) for one in pair.split(":")) for pair in pairs]
    X, X_test = (np.stack([part[name] for name in names], axis=1) for part in (train, test))
    fit = {"pyGAM": spline, "statsmodels": penalised, "EBM": boosted}[name.split(",")[0]]
    mean, scale = fit(own, X, train["y"], X_test)
    half = stats.norm.ppf(0.95) * scale
    row = judged(test["y"], mean, stats.norm(mean, scale).logpdf(test["y"]), mean - half, mean + half)
    return row | {"steps": "", "seconds": time.process_time() - begun, "scores": ""}


def spline(pairs, X, y, X_test):
    """pyGAM: splines and tensor splines, a penalty for each of the two kinds by generalised cross-validation."""
    from pygam import LinearGAM, s, te

    fitted = []
    for main, pair in itertools.product([0.01, 0.1, 1.0, 10.0], [0.001, 0.01, 0.1, 1.0] if pairs else [1.0]):
        levels = [len(np.unique(X[:, d])) for d in range(X.shape[1])]
        terms = [s(d, n_splines=min(12, max(4, levels[d])), lam=main) for d in range(X.shape[1])]
        terms += [te(*own, n_splines=[min(7, max(4, levels[d])) for d in own], lam=pair) for own in pairs]
        fitted.append(LinearGAM(functools.reduce(lambda a, b: a + b, terms)).fit(X, y))
    best = min(fitted, key=lambda one: one.statistics_["GCV"])
    low, high = best.prediction_intervals(X_test, width=0.9).T
    return best.predict(X_test), (high - low) / (2 * stats.norm.ppf(0.95))


def penalised(pairs, X, y, X_test):
    """statsmodels: penalised splines, one weight by generalised cross-validation; pairs by least squares."""
    from statsmodels.gam.api import BSplines, GLMGam

    inside = np.clip(X_test, X.min(axis=0), X.max(axis=0))  # splines end with the data
    levels = [len(np.unique(column)) for column in X.T]
    smooth = BSplines(X, df=[min(12, max(4, count)) for count in levels], degree=[3 if n > 4 else 2 for n in levels])
    small = BSplines(X, df=[4 if n > 4 else 3 for n in levels], degree=[3 if n > 4 else 2 for n in levels])

    def linear(inputs):
        parts = [part.transform(column) for part, column in zip(small.smoothers, inputs.T, strict=True)]
        products = [(parts[a][:, :, None] * parts[b][:, None, :]).reshape(len(inputs), -1) for a, b in pairs]
        return np.hstack([np.ones((len(inputs), 1)), *products])

    with warnings.catch_warnings():  # products hold the main effects once more: the shortest solution is taken
        warnings.filterwarnings("ignore", message="The design matrix is rank-deficient")
        fitted = [
            GLMGam(y, exog=linear(X), smoother=smooth, alpha=weight * np.ones(len(levels))).fit()
            for weight in (0.001, 0.01, 0.1, 1.0, 10.0)
        ]
    best = min(fitted, key=lambda one: one.gcv)
    found = best.get_prediction(exog=linear(inside), exog_smooth=inside)
    return found.predicted_mean, np.sqrt(best.scale + found.se_mean**2)


def boosted(_, X, y, X_test):
    """EBM in fewer, longer steps than by default; the deviation of its errors on rows that a fit has not seen."""
    from interpret.glassbox import ExplainableBoostingRegressor

    settings = {"random_state": 0, "n_jobs": 1, "learning_rate": 0.1, "outer_bags": 4}
    hidden = np.arange(len(y)) % 5 == 0
    part = ExplainableBoostingRegressor(**settings).fit(X[~hidden], y[~hidden])
    scale = np.sqrt(np.mean((part.predict(X[hidden]) - y[hidden]) ** 2))
    return ExplainableBoostingRegressor(**settings).fit(X, y).predict(X_test), np.full(len(X_test), scale)


def one(model, split, rows, every, masks, most, surface):
    """The row of a model on a split; a peer's pairs are those of the row of ours."""
    test = split_mask(masks, split)
    every = every | {"y": standardise(every["y"][:, None], ~test)[:, 0]}
    parts = rows_of(every, ~test), rows_of(every, test)
    if model not in PEERS:
        return ours(model, *parts, most, surface if (model, split) == (CHOSEN, FIRST) else None)
    # EBM takes three pairs a column by default: all of five columns.
    pairs = [":".join(pair) for pair in itertools.combinations(NAMES, 2)] if model == "EBM, its own pairs" else []
    if not pairs and not model.endswith("main effects"):
        pairs = next(row for row in rows if (row["model"], row["split"]) == (CHOSEN, split))["pairs"].split()
    return peer(model, pairs, *parts), pairs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=HERE.parents[1] / "data")
    parser.add_argument("--most", type=int, default=7, help="pairs that a screening tries")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--tables", action="store_true", help="no fits: table and figure from the rows so far")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    path, surface = options.out / "gam_interactions.csv", options.out / "gam_interactions_surface.csv"
    X, y, masks = data(options.data, options.smoke)
    every, rows = table(NAMES[: X.shape[1]], X, y), read(path)
    peers = [] if options.tables or options.smoke else [n for n in PEERS if optional(PACKAGES[n.split(",")[0]])]
    models = [] if options.tables else [CHOSEN] if options.smoke else [MAIN, CHOSEN, *peers]
    tasks = list(itertools.product(range(FIRST, FIRST + (1 if options.smoke else options.splits)), models))
    for split, model in sorted(tasks, key=lambda task: task[1].startswith("EBM")):  # the slowest peer comes last
        if (model, split) not in {(row["model"], row["split"]) for row in rows}:
            found, pairs = one(model, split, rows, every, masks, options.most, surface)
            rows.append({"split": split, "model": model, "pairs": " ".join(pairs)} | found | {"version": version()})
            save(path, rows)
            print(*(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    print(compare(rows))
    figure(rows, surface, options.out / "gam_interactions.png")


if __name__ == "__main__":
    main()
