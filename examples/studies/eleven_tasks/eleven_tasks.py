"""Eleven tasks of a new user's day, each as the guide's pages lead to it, beside a peer: lines, seconds and scores.

    python -m examples.studies.eleven_tasks.eleven_tasks           # three minutes; rows that are there stay
    python -m examples.studies.eleven_tasks.eleven_tasks --peers   # rows of scikit-learn, statsmodels, SciPy too

Lines are those of the function of a task below, without its head: imports, reading of the table and scoring are left
out, here as of the peers. Seconds are of a process of its own with one thread, compilation and predictions included
and imports not. Scores are of held-out rows: mean log density, and how many of the 90 % intervals hold them.
"""

import argparse
import ast
import inspect
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
from numpyro.infer import MCMC, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal

import numpyro_gp as ngp
from examples.studies.eleven_tasks import eleven_data, eleven_peers
from examples.tools.tables import markdown, read, save
from models import survival

ROWS = Path(__file__).parent / "eleven_tasks.csv"
NUMBERS = ("lines", "seconds", "log density", "coverage")
KEY, OURS = jax.random.key(0), "numpyro_gp"


def houses(train, new):
    """A table of numbers and a category."""
    fit = ngp.gam("price ~ s(income) + s(age) + factor(region)", train)
    return fit.predict(new)


def houses_of_my_own(train, new):
    """The same as a model of one's own, of inducing inputs."""

    def model(X, y=None, *, Z):
        lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(Z[:, :2]))
        surface = ngp.kernels.Matern52(numpyro.sample("variance", ngp.starting.variance_prior()), lengthscale)
        region = ngp.kernels.CategoryDelta(numpyro.sample("between", ngp.starting.variance_prior()))
        f = ngp.gp("f", surface.on([0, 1]) + region.on(2), inducing=Z)
        noise = numpyro.sample("noise", ngp.starting.noise_prior())
        with numpyro.plate("data", X.shape[0]):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(noise), obs=y)

    levels = sorted(set(train["region"]))
    numbers = np.column_stack([train["income"], train["age"]])

    def encoded(table):
        own = (np.column_stack([table["income"], table["age"]]) - numbers.mean(axis=0)) / numbers.std(axis=0)
        return jnp.asarray(np.column_stack([own, [levels.index(one) for one in table["region"]]]))

    X, m, s = encoded(train), train["price"].mean(), train["price"].std()
    Z = ngp.inducing.kmeans(KEY, X, 50, categorical=[2])
    guide = ngp.AutoGP(model, {"f": ngp.guides.coupled(natural=True)})
    svi = SVI(model, guide, ngp.optim.natural_gradient(optax.adam(0.01), 0.1), Trace_ELBO())
    fit = ngp.fit(KEY, svi, 2000, X, jnp.asarray((train["price"] - m) / s), Z=Z, progress=False)
    return Rescaled(ngp.Posterior.from_svi(model, guide, fit.params).predict(KEY, encoded(new), Z=Z), m, s)


def birds(train, new):
    """Counts with an exposure."""
    fit = ngp.gam("birds ~ s(elevation) + s(canopy) + offset(log(hours))", train, "negative_binomial")
    return fit.predict(new)


def blood(train, new):
    """Yes or no."""
    fit = ngp.gam("gave ~ s(recency) + s(times) + s(months)", train, "bernoulli")
    return fit.predict(new)


def co2(train, new):
    """A series, four years ahead."""
    fit = ngp.gam("co2 ~ trend(month) + season(month, period=12) + cycle(month)", train)
    return fit.predict(new)


def soil(train, new):
    """A map."""
    fit = ngp.gam("ph ~ te(lon, lat)", train)
    axes = np.linspace(5, 15, 41), np.linspace(45, 50, 31)
    grid = np.stack(np.meshgrid(*axes), -1).reshape(-1, 2)
    ngp.plots.surface(grid, fit.predict({"lon": grid[:, 0], "lat": grid[:, 1]}), label="pH", aspect=1.47)
    return fit.predict(new)


def lakes(train, new):
    """Groups with few rows."""
    fit = ngp.gam("chl ~ s(depth) + re(lake) + re(lake, by=depth)", train)
    return fit.predict(new)


def trial(train, new):
    """Times that are cut short, by a file of the gallery."""
    columns = [np.column_stack([one["age"], one["dose"], one["arm"]]) for one in (train, new)]
    X, X_new = (jnp.asarray((one - columns[0].mean(axis=0)) / columns[0].std(axis=0)) for one in columns)
    Z, guide = ngp.inducing.kmeans(KEY, X, 40), survival.guide()
    data = jnp.asarray(train["months"]), jnp.asarray(train["open"])
    fit = ngp.fit(KEY, survival.engine(guide), 1500, X, *data, Z=Z, progress=False)
    return ngp.Posterior.from_svi(survival.model, guide, fit.params).predict(KEY, X_new, Z=Z)


def concrete(train, new):
    """Eight columns, and the pairs of them that matter."""
    terms = [f"s({name})" for name in train if name != "strength"]
    found = ngp.gam.screen("strength ~ " + " + ".join(terms), train)
    return ngp.gam(found.terms, train, response="strength").predict(new)


def service(train, new):
    """The first fit saved, loaded, and asked for a row at a time."""
    with tempfile.TemporaryDirectory() as folder:
        ngp.gam("price ~ s(income) + s(age) + factor(region)", train).save(f"{folder}/fit.npz")
        predictor = ngp.gam.load(f"{folder}/fit.npz").predictor()
    start = time.process_time()
    answers = [predictor({name: column[at] for name, column in new.items()}) for at in range(len(new["age"]))]
    print(f"{1000 * (time.process_time() - start) / len(answers):.2f} ms a row", file=sys.stderr)
    return Rows(answers)


def big(train, new):
    """200 000 rows."""
    fit = ngp.gam("y ~ s(a) + s(b) + s(c) + s(f) + te(d, e)", train)
    return fit.predict(new)


def sunspots(train, new):
    """A model of one's own by three engines."""

    def model(X, y=None):
        lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(X))
        variance = numpyro.sample("variance", ngp.starting.variance_prior())
        noise = numpyro.sample("noise", ngp.starting.noise_prior())
        return ngp.gp_regression("y", ngp.kernels.Matern52(variance, lengthscale), X, noise_variance=noise**2, obs=y)

    m, s = train["spots"].mean(), train["spots"].std()
    X, X_new = (
        (jnp.asarray(one["year"])[:, None] - train["year"].mean()) / train["year"].std() for one in (train, new)
    )
    y, guide = jnp.asarray((train["spots"] - m) / s), AutoMultivariateNormal(model)
    fit = ngp.fit(KEY, SVI(model, guide, optax.adam(0.02), Trace_ELBO()), 600, X, y, progress=False)
    posteriors = {"SVI": ngp.Posterior.from_svi(model, guide, fit.params)}
    mcmc = MCMC(ngp.NUTS(model), num_warmup=300, num_samples=300, progress_bar=False)
    mcmc.run(KEY, X, y)
    posteriors["NUTS"] = ngp.Posterior.from_mcmc(model, mcmc)
    svgd, particles = ngp.stein.auto(KEY, model, X, y)
    posteriors["SVGD"] = ngp.Posterior.from_stein(model, svgd, particles.params)
    print(ngp.compare(posteriors, KEY, y=jnp.asarray((new["spots"] - m) / s), at=X_new, train=(X, y)), file=sys.stderr)
    return {name: Rescaled(one.predict_at(KEY, X_new, X, y), m, s) for name, one in posteriors.items()}


class Rescaled:
    """A prediction of ``(y - m) / s`` in the units of ``y``, as `choose.md` says."""

    def __init__(self, prediction, m, s):
        self.prediction, self.m, self.s = prediction, m, s

    def quantiles(self, levels):
        return self.m + self.s * np.asarray(self.prediction.quantiles(levels))

    def log_density(self, y):
        return np.asarray(self.prediction.log_density(jnp.asarray((y - self.m) / self.s))) - np.log(self.s)


class Rows:
    """Intervals of one row each."""

    def __init__(self, answers):
        self.answers = answers

    def quantiles(self, levels):
        return np.concatenate([one.quantiles(levels) for one in self.answers], axis=1)


# By number and name: the task, its data, and its peers.
TASKS = {
    "1 houses": (houses, eleven_data.houses, eleven_peers.houses),
    "1 houses, a model of my own": (houses_of_my_own, eleven_data.houses, {}),
    "2 birds": (birds, eleven_data.birds, eleven_peers.birds),
    "3 blood": (blood, eleven_data.blood, eleven_peers.blood),
    "4 CO2": (co2, eleven_data.co2, eleven_peers.co2),
    "5 soil": (soil, eleven_data.soil, eleven_peers.soil),
    "6 lakes": (lakes, eleven_data.lakes, eleven_peers.lakes),
    "7 trial": (trial, eleven_data.trial, eleven_peers.trial),
    "8 concrete": (concrete, eleven_data.concrete, eleven_peers.concrete),
    "9 a service": (service, eleven_data.houses, {}),
    "10 many rows": (big, eleven_data.big, eleven_peers.big),
    "11 sunspots": (sunspots, eleven_data.sunspots, eleven_peers.sunspots),
}


def lines(function):
    """Lines of a function's body, of those beside it that it calls too: without docstrings and empty lines."""
    source = inspect.getsource(function)
    (tree,) = ast.parse(source).body
    spans = [range(one.lineno - 1, one.end_lineno) for one in tree.body[1:]]
    own = [source.splitlines()[at] for span in spans for at in span]
    called = [function.__globals__[name] for name in function.__code__.co_names if name in function.__globals__]
    called = [one for one in called if inspect.isfunction(one) and one.__module__ == function.__module__]
    return sum(bool(line.strip()) for line in own) + sum(lines(one) for one in called)


def measured(task, by, rows=None):
    """A row for each prediction that a program makes; ``rows`` at most to fit and to predict."""
    own, data, peers = TASKS[task]
    program = own if by == OURS else peers[by]
    train, new, target = data()
    if rows:
        train, new = eleven_data.cut(train, slice(rows)), eleven_data.cut(new, slice(rows))
    start = time.process_time()
    found = program(train, new)
    found = found if isinstance(found, dict) else {"": found}
    scores = {way: scored(prediction, new[target]) for way, prediction in found.items()}
    head = {"task": task, "lines": lines(program), "seconds": round(time.process_time() - start, 1)}
    return [{"by": f"{by}, {way}" if way else by} | head | score for way, score in scores.items()]


def scored(prediction, y):
    """Mean log density of held-out rows, and how many their 90 % intervals hold."""
    low, high = np.asarray(prediction.quantiles([0.05, 0.95]))
    density = np.mean(prediction.log_density(y)) if hasattr(prediction, "log_density") else np.nan
    return {"log density": float(density), "coverage": float(np.mean((low <= y) & (y <= high)))}


def table(rows):
    """A line for each program."""

    def shown(row):
        density = "" if np.isnan(row["log density"]) else f"{row['log density']:.3f}"
        return [
            row["task"],
            row["by"],
            f"{row['lines']:.0f}",
            f"{row['seconds']:.1f}",
            density,
            f"{row['coverage']:.2f}",
        ]

    order = list(TASKS)
    rows = sorted(rows, key=lambda row: (order.index(row["task"]), not row["by"].startswith(OURS)))
    return markdown(["task", "by", *NUMBERS], [shown(row) for row in rows])


def in_a_process(task, by):
    """The rows of a program, from a process of its own with one thread."""
    command = [sys.executable, "-m", "examples.studies.eleven_tasks.eleven_tasks", "--one", task, by]
    alone = os.environ | dict.fromkeys(("NPROC", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=alone).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROWS.parent)
    parser.add_argument("--peers", action="store_true", help="those of other libraries too, which must be installed")
    parser.add_argument("--smoke", action="store_true", help="thirty rows of two tasks, in this process")
    parser.add_argument("--one", nargs=2, metavar=("TASK", "BY"), help="lines of JSON of one program in this process")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measured(*given.one)))
        return
    path = given.out / ROWS.name
    rows = read(path, NUMBERS)
    for task, (_, _, peers) in TASKS.items():
        for by in (OURS, *peers) if given.peers else (OURS,):
            if (given.smoke and task not in ("2 birds", "4 CO2")) or any(
                row["task"] == task and row["by"].startswith(by) for row in rows
            ):
                continue
            made = measured(task, by, rows=30) if given.smoke else in_a_process(task, by)
            rows += made
            save(path, rows)
            print(*made, sep="\n", flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
