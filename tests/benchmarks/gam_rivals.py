"""The Python peers of `tests.benchmarks.gam_peers`, each run by the Python of its own environment.

    ENVIRONMENT/bin/python tests/benchmarks/gam_rivals.py FOLDER

FOLDER holds ``train.csv``, ``test.csv`` and ``job.json``: the peer, its smooth columns, the others, categories, and the
family. Prints one line of JSON: log density and RMSE at the test rows, seconds of the processor for the fit, terms and
the half-widths of their 90 % bands at the rows of the fit where the peer gives them, and what had to be assumed.
"""

import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from scipy import stats

warnings.simplefilter("ignore")


def read(path):
    table = np.genfromtxt(path, delimiter=",", names=True)
    return {name: table[name] for name in table.dtype.names}


def judged(family, y, mean, error=0.0, scale=1.0):
    """Log density and RMSE of plug-in means; normal data with the error of the mean added to the noise."""
    if family == "gaussian":
        density = stats.norm(mean, np.sqrt(scale**2 + error**2)).logpdf(y)
    elif family == "bernoulli":
        density = np.log(np.where(y > 0, mean, 1 - mean))
    else:
        density = (
            stats.poisson(mean).logpmf(y) if scale == 0 else stats.nbinom(1 / scale, 1 / (1 + scale * mean)).logpmf(y)
        )
    return {"log_density": float(density.mean()), "rmse": float(np.sqrt(np.mean((mean - y) ** 2)))}


def by_pygam(job, train, test):
    import pygam
    from pygam import f, l, s

    names = [*job["smooth"], *job["lines"], *job["factors"]]
    parts = [s(at) for at in range(len(job["smooth"]))]
    parts += [l(at) for at in range(len(parts), len(parts) + len(job["lines"]))]
    parts += [f(at) for at in range(len(parts), len(names))]
    terms = parts[0]
    for part in parts[1:]:
        terms = terms + part
    X, new = (np.stack([table[name] for name in names], axis=1) for table in (train, test))
    kind = {"gaussian": pygam.LinearGAM, "bernoulli": pygam.LogisticGAM}.get(job["family"], pygam.PoissonGAM)
    start = time.process_time()
    fit = kind(terms).gridsearch(X, train["y"], progress=False)
    seconds = time.process_time() - start
    mean, error, scale, note = fit.predict_mu(new), 0.0, 0.0, "plug-in mean"
    if job["family"] == "gaussian":
        ends = fit.confidence_intervals(new, width=0.6827)
        error, scale, note = (ends[:, 1] - ends[:, 0]) / 2, float(fit.statistics_["scale"]), ""
    if job["family"] == "negative_binomial":
        note = "no negative binomial: Poisson"
    bands = [fit.partial_dependence(at, X=X, width=0.9) for at in range(len(job["smooth"]))] if job["terms"] else []
    found = {"terms": [[list(mean), list((ends[:, 1] - ends[:, 0]) / 2)] for mean, ends in bands]}
    return judged(job["family"], test["y"], mean, error, scale) | {"seconds": seconds, "note": note} | found


def by_statsmodels(job, train, test):
    import pandas as pd
    import statsmodels.api as sm
    from statsmodels.gam.api import BSplines, GLMGam

    def other(table):
        columns = [np.ones(len(table["y"])), *[table[name] for name in job["lines"]]]
        for name in job["factors"]:
            columns += [(table[name] == level) * 1.0 for level in np.unique(train[name])[1:]]
        return np.stack(columns, axis=1)

    smooth = [np.stack([table[name] for name in job["smooth"]], axis=1) for table in (train, test)]
    families = {"gaussian": sm.families.Gaussian(), "bernoulli": sm.families.Binomial()}
    family = families.get(job["family"], sm.families.Poisson())
    start = time.process_time()
    df = [min(10, len(np.unique(column)) - 1) for column in smooth[0].T]
    splines = BSplines(pd.DataFrame(smooth[0], columns=job["smooth"]), df=df, degree=[3] * len(df))
    model = GLMGam(train["y"], exog=other(train), smoother=splines, alpha=np.ones(len(df)), family=family)
    model.fit()  # leaves the scale that the search reads
    model.alpha = model.select_penweight()[0]
    fit = model.fit()
    seconds = time.process_time() - start
    low, high = smooth[0].min(0), smooth[0].max(0)  # its splines refuse rows outside of those of the fit
    new = np.clip(smooth[1], low, high)
    mean = np.asarray(fit.predict(exog=other(test), exog_smooth=new))
    scale = float(np.sqrt(fit.scale)) if job["family"] == "gaussian" else 0.0
    note = "plug-in mean" if job["family"] != "negative_binomial" else "no size of a negative binomial: Poisson"
    found = [fit.partial_values(at) for at in range(len(df))] if job["terms"] else []
    terms = [[list(mean), list(1.6449 * error)] for mean, error in found]
    return judged(job["family"], test["y"], mean, 0.0, scale) | {"seconds": seconds, "note": note, "terms": terms}


def by_ebm(job, train, test):
    from interpret.glassbox import ExplainableBoostingClassifier, ExplainableBoostingRegressor

    names = [*job["smooth"], *job["lines"], *job["factors"]]
    kinds = ["continuous"] * (len(names) - len(job["factors"])) + ["nominal"] * len(job["factors"])
    X, new = (np.stack([table[name] for name in names], axis=1) for table in (train, test))
    options = dict(feature_types=kinds, n_jobs=1, random_state=0)
    if job["terms"]:
        options["interactions"] = 0
    start = time.process_time()
    if job["family"] == "bernoulli":
        fit = ExplainableBoostingClassifier(**options).fit(X, train["y"].astype(int))
    else:
        objective = "poisson_deviance" if job["family"] == "negative_binomial" else "rmse"
        fit = ExplainableBoostingRegressor(objective=objective, **options).fit(X, train["y"])
    seconds = time.process_time() - start
    mean = fit.predict_proba(new)[:, 1] if job["family"] == "bernoulli" else fit.predict(new)
    scale, note = 0.0, {"bernoulli": "", "negative_binomial": "no negative binomial: Poisson"}.get(job["family"])
    if job["family"] == "gaussian":
        scale, note = float(np.std(train["y"] - fit.predict(X))), "no density: normal, spread of its training residuals"
    terms = []
    if job["terms"]:
        own = fit.eval_terms(X)
        terms = [[list(own[:, at]), []] for at in range(len(job["smooth"]))]
    return judged(job["family"], test["y"], mean, 0.0, scale) | {"seconds": seconds, "note": note, "terms": terms}


def by_bambi(job, train, test):
    import bambi
    import pandas as pd

    frame, new = pd.DataFrame(train), pd.DataFrame(test)
    for name in job["factors"]:
        frame[name], new[name] = frame[name].astype(int).astype(str), new[name].astype(int).astype(str)
    if job["family"] != "gaussian":
        frame["y"] = frame["y"].astype(int)
    parts = [f"hsgp({name}, m=10, c=1.5)" for name in job["smooth"]] + job["lines"] + job["factors"]
    family = {"negative_binomial": "negativebinomial"}.get(job["family"], job["family"])
    start = time.process_time()
    model = bambi.Model("y ~ " + " + ".join(parts), frame, family=family)
    fit = model.fit(draws=300, tune=500, chains=1, cores=1, random_seed=0, progressbar=False)
    seconds = time.process_time() - start
    model.predict(fit, data=new, kind="response_params", inplace=True)
    y = test["y"][None]
    drawn = {name: np.asarray(fit.posterior[name])[0] for name in fit.posterior}
    mean = drawn.get("mu", drawn.get("p"))
    if family == "gaussian":
        each = stats.norm(mean, drawn["sigma"][:, None]).logpdf(y)
    elif family == "bernoulli":
        each = np.log(np.where(y > 0, mean, 1 - mean))
    else:
        size = drawn["alpha"][:, None]
        each = stats.nbinom(size, size / (size + mean)).logpmf(y)
    density = np.logaddexp.reduce(each, axis=0) - np.log(len(each))
    rmse = float(np.sqrt(np.mean((mean.mean(0) - test["y"]) ** 2)))
    return {"log_density": float(density.mean()), "rmse": rmse, "seconds": seconds, "note": "300 draws", "terms": []}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    job = json.loads((folder / "job.json").read_text())
    run = {"pygam": by_pygam, "statsmodels": by_statsmodels, "ebm": by_ebm, "bambi": by_bambi}[job["peer"]]
    print("RESULT " + json.dumps(run(job, read(folder / "train.csv"), read(folder / "test.csv"))))
