"""The Python peers of `examples.studies.gam.peers`, each run by the Python of its own environment.

    ENVIRONMENT/bin/python examples/studies/gam/peers/rivals.py FOLDER [FOLDER ...]

Each FOLDER holds ``train.csv``, ``test.csv`` and ``job.json``: the peer, its smooth columns, the others, categories,
and the family. Prints one line of JSON for each: log density and RMSE at the test rows, seconds of the processor for
the fit, what had to be assumed; and where the job asks for them the terms, the half-widths of their 90 % bands at the
rows of the fit, their p-values, and the order of pairs of columns, as far as the peer gives these.
"""

import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from scipy import optimize, stats

warnings.simplefilter("ignore")


def read(path):
    table = np.genfromtxt(path, delimiter=",", names=True)
    return {name: table[name] for name in table.dtype.names}


def judged(family, y, mean, error, own):
    """Error of the mean, and log density with the uncertainty of the link by 20 nodes.

    ``mean`` and ``error`` are of the link, ``own`` is the variance of the noise or the size of the counts.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    f = mean[:, None] + np.broadcast_to(error, mean.shape)[:, None] * nodes
    at = y[:, None]
    if family == "gaussian":
        density, means = stats.norm(f, np.sqrt(own)).logpdf(at), f
    elif family == "bernoulli":
        density, means = -np.logaddexp(0, np.where(at > 0, -f, f)), 1 / (1 + np.exp(-f))
    else:
        means = np.exp(f)
        density = stats.nbinom(own, own / (own + means)).logpmf(at)
    share = weights / weights.sum()
    return {
        "rmse": float(np.sqrt(np.mean((means @ share - y) ** 2))),
        "log_density": float(np.mean(np.logaddexp.reduce(density + np.log(share), axis=1))),
    }


def size_of(y, mean):
    """The size of a negative binomial at which counts with these means are likeliest."""
    loss = lambda log_size: -stats.nbinom(np.exp(log_size), 1 / (1 + mean / np.exp(log_size))).logpmf(y).sum()  # noqa: E731
    return float(np.exp(optimize.minimize_scalar(loss, bounds=(-5, 10), method="bounded").x))


def counted(test, fitted, y, mean, error):
    """Means of a Poisson fit, judged by a negative binomial; what Poisson itself would say is in the note."""
    poisson = stats.poisson(np.exp(mean)).logpmf(test["y"]).mean()
    found = judged("negative_binomial", test["y"], mean, error, size_of(y, fitted))
    return found | {"note": f"fitted as Poisson ({poisson:.4g}), with the likeliest size"}


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
    link = {"gaussian": lambda mean: mean, "bernoulli": lambda mean: np.log(mean / (1 - mean))}.get(
        job["family"], np.log
    )
    low, high = link(fit.confidence_intervals(new, width=0.6827)).T
    mean, error = link(fit.predict_mu(new)), (high - low) / 2
    if job["family"] == "negative_binomial":
        found = counted(test, fit.predict_mu(X), train["y"], mean, error)
    else:
        found = judged(job["family"], test["y"], mean, error, float(fit.statistics_["scale"]) ** 2)
    bands = [fit.partial_dependence(at, X=X, width=0.9) for at in range(len(job["smooth"]))] if job["terms"] else []
    terms = [[list(mean), list((ends[:, 1] - ends[:, 0]) / 2)] for mean, ends in bands]
    values = [float(value) for value in fit.statistics_["p_values"][: len(job["smooth"])]] if job["terms"] else []
    return found | {"seconds": seconds, "terms": terms, "p_values": values}


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
    model.alpha = model.select_penweight(method="minimize")[0]  # its default, `basinhopping`, takes many times as long
    fit = model.fit()
    seconds = time.process_time() - start
    low, high = smooth[0].min(0), smooth[0].max(0)  # its splines refuse rows outside of those of the fit
    at = fit.get_prediction(exog=other(test), exog_smooth=np.clip(smooth[1], low, high)).linpred
    mean, error = np.asarray(at.predicted), np.asarray(at.se)
    if job["family"] == "negative_binomial":
        found = counted(test, np.asarray(fit.fittedvalues), train["y"], mean, error)
    else:
        found = judged(job["family"], test["y"], mean, error, float(fit.scale))
    terms, values = [], []
    ends = other(train).shape[1] + np.cumsum([0, *(one.basis.shape[1] for one in splines.smoothers)])
    for at, one in enumerate(splines.smoothers if job["terms"] else []):
        # Its own `partial_values` has the error of a curve that is zero at the left end, not on average.
        own, centred = slice(ends[at], ends[at + 1]), one.basis - one.basis.mean(0)
        covariance = np.asarray(fit.cov_params())[own, own]
        half = 1.6449 * np.sqrt(np.einsum("nb,bc,nc->n", centred, covariance, centred))
        terms.append([list(centred @ np.asarray(fit.params)[own]), list(half)])
        values.append(float(fit.test_significance(at).pvalue))
    return found | {"seconds": seconds, "terms": terms, "p_values": values}


def by_ebm(job, train, test):
    """It has no density of numbers or counts: a fifth of the rows, left out of a first fit, says how far off it is."""
    from interpret.glassbox import ExplainableBoostingClassifier, ExplainableBoostingRegressor

    names = [*job["smooth"], *job["lines"], *job["factors"]]
    kinds = ["continuous"] * (len(names) - len(job["factors"])) + ["nominal"] * len(job["factors"])
    X, new = (np.stack([table[name] for name in names], axis=1) for table in (train, test))
    options = dict(feature_types=kinds, n_jobs=1, random_state=0)
    if job["terms"]:
        options["interactions"] = 0
    objective = "poisson_deviance" if job["family"] == "negative_binomial" else "rmse"

    def fitted(rows):
        if job["family"] == "bernoulli":
            return ExplainableBoostingClassifier(**options).fit(X[rows], train["y"][rows].astype(int))
        return ExplainableBoostingRegressor(objective=objective, **options).fit(X[rows], train["y"][rows])

    start = time.process_time()
    fit = fitted(np.arange(len(X)))
    seconds = time.process_time() - start
    own, note = 1.0, ""
    if job["family"] != "bernoulli" and not job["terms"]:
        left = np.random.default_rng(0).permutation(len(X)) < len(X) // 5
        y, away = train["y"][left], fitted(~left).predict(X[left])
        is_normal = job["family"] == "gaussian"
        own = float(np.mean((y - away) ** 2)) if is_normal else size_of(y, away)
        note = "no density: normal" if is_normal else "fitted as Poisson: negative binomial"
        note += ", spread by a fifth of the rows"
    mean = fit.predict_proba(new)[:, 1] if job["family"] == "bernoulli" else fit.predict(new)
    link = {"gaussian": lambda mean: mean, "bernoulli": lambda mean: np.log(mean / (1 - mean))}.get(
        job["family"], np.log
    )
    terms = [[list(column), []] for column in fit.eval_terms(X).T[: len(job["smooth"])]] if job["terms"] else []
    found = judged(job["family"], test["y"], link(mean), 0.0, own)
    return found | {"seconds": seconds, "note": note, "terms": terms}


def pairs_by_ebm(job, train, _):
    """Pairs of columns in the order of FAST, by which EBM takes them, on what its curves leave."""
    from interpret.glassbox import ExplainableBoostingRegressor
    from interpret.utils import measure_interactions

    names = job["smooth"]
    X = np.stack([train[name] for name in names], axis=1)
    start = time.process_time()
    curves = ExplainableBoostingRegressor(n_jobs=1, random_state=0, interactions=0).fit(X, train["y"])
    strengths = measure_interactions(X, train["y"], init_score=curves)
    order = sorted(strengths, key=lambda one: -one[1])
    return {"pairs": [[names[at] for at in pair] for pair, _ in order], "seconds": time.process_time() - start}


def by_bambi(job, train, test):
    """Its priors of curves are for responses of order one: numbers are standardised first."""
    import bambi
    import pandas as pd

    family = {"negative_binomial": "negativebinomial"}.get(job["family"], job["family"])
    shift, unit = (train["y"].mean(), train["y"].std()) if family == "gaussian" else (0.0, 1.0)
    frame, new = pd.DataFrame(train), pd.DataFrame(test)
    for name in job["factors"]:
        frame[name], new[name] = frame[name].astype(int).astype(str), new[name].astype(int).astype(str)
    frame["y"] = (frame["y"] - shift) / unit if family == "gaussian" else frame["y"].astype(int)
    parts = [f"hsgp({name}, m=10, c=1.5)" for name in job["smooth"]] + job["lines"] + job["factors"]
    start = time.process_time()
    model = bambi.Model("y ~ " + " + ".join(parts), frame, family=family)
    fit = model.fit(draws=300, tune=500, chains=1, cores=1, random_seed=0, progressbar=False)
    seconds = time.process_time() - start
    model.predict(fit, data=new, kind="response_params", inplace=True)
    y = (test["y"][None] - shift) / unit
    drawn = {name: np.asarray(fit.posterior[name])[0] for name in fit.posterior}
    mean = drawn.get("mu", drawn.get("p"))
    if family == "gaussian":
        each = stats.norm(mean, drawn["sigma"][:, None]).logpdf(y) - np.log(unit)
    elif family == "bernoulli":
        each = np.log(np.where(y > 0, mean, 1 - mean))
    else:
        size = drawn["alpha"][:, None]
        each = stats.nbinom(size, size / (size + mean)).logpmf(y)
    density = np.logaddexp.reduce(each, axis=0) - np.log(len(each))
    rmse = float(unit * np.sqrt(np.mean((mean.mean(0) - y) ** 2)))
    note = f"300 draws, {int(np.asarray(fit.sample_stats['diverging']).sum())} divergent"
    return {"log_density": float(density.mean()), "rmse": rmse, "seconds": seconds, "note": note}


RUNS = {"pygam": by_pygam, "statsmodels": by_statsmodels, "ebm": by_ebm, "ebm pairs": pairs_by_ebm, "bambi": by_bambi}


def main():
    for folder in map(Path, sys.argv[1:]):
        job = json.loads((folder / "job.json").read_text())
        try:
            found = RUNS[job["peer"]](job, read(folder / "train.csv"), read(folder / "test.csv"))
        except Exception as error:  # one fit that fails is a row that says so
            found = {"note": f"stopped: {type(error).__name__}, {error!s:.60}"}
        print("RESULT " + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
