"""Nitrogen oxides at 44 stations of a country in February 2019: one curve for each, pooled or not.

    python -m examples.stations [--data PATH] [--steps 1500] [--splits 5]

Each station reports on some of 22 days, most of them on few (3 to 12 days are kept of each, at random); the other days
are held out. *Partial* pooling is a curve that all share, a level and a departure of each station, whose variances and
lengthscales come from a population; *none* gives each station a process and hyper-parameters of its own; *complete*
has one curve for all. The same model function has all three, and the processes of the stations stand in a plate.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

import numpyro_gp as ngp
from examples.tables import of_mean, save

HERE = Path(__file__).parent
POOLING, METRICS = ("none", "complete", "partial"), ("log_density", "rmse")


def model(day, station, y=None, *, Z, num_stations, pooling):
    """Logarithms of concentrations ``y`` ``(N,)`` on days ``(N, 1)``, each at the station of its row."""
    spread = numpyro.sample("spread", dist.HalfNormal(1.0)) if pooling == "partial" else 1.0
    typical = numpyro.sample("typical", dist.LogNormal(-1.0, 0.5)) if pooling == "partial" else 0.5
    if pooling != "complete":
        with numpyro.plate("stations", num_stations):
            level = spread * numpyro.sample("level", dist.Normal(0.0, 1.0))
            variance = typical * numpyro.sample("variance", dist.LogNormal(0.0, 0.5))
            lengthscale = numpyro.sample("lengthscale", dist.LogNormal(1.0, 0.5))
            noise = numpyro.sample("noise", dist.LogNormal(-1.0, 0.5))
            own = ngp.gp("own", jax.vmap(ngp.kernels.Matern32)(variance, lengthscale), Z, mean=level)
        noise = noise[station]
    else:
        noise = numpyro.sample("noise", dist.LogNormal(-1.0, 0.5))
    if pooling != "none":
        shared = ngp.gp("shared", ngp.kernels.Matern32(1.0, numpyro.sample("common", dist.LogNormal(1.0, 0.5))), Z)
    with numpyro.plate("rows", day.shape[0]):
        parts = [own.at(station, day)] if pooling != "complete" else []
        parts += [shared(day)] if pooling != "none" else []
        f = dist.Normal(sum(part.mean for part in parts), jnp.sqrt(sum(part.variance for part in parts)))
        ngp.observe("y", f, ngp.likelihoods.Gaussian(noise), obs=y)


def fitted(pooling, steps, train, shared):
    """Posterior of one kind of pooling."""
    keywords = {**shared, "pooling": pooling}
    guide = ngp.AutoGP(model, {s: ngp.guides.coupled(natural=True) for s in sites_of(pooling)}, rest=AutoNormal)
    svi = SVI(model, guide, ngp.optim.natural_gradient(optax.adam(2e-2), 0.1), Trace_ELBO())
    result = ngp.fit(jax.random.key(1), svi, steps, progress=False, **train, **keywords)
    return ngp.Posterior.from_svi(model, guide, result.params), keywords


def sites_of(pooling):
    return {"none": ["own"], "complete": ["shared"], "partial": ["own", "shared"]}[pooling]


def load(path):
    """Days, numbers of stations and logarithms of what they measured, less their mean."""
    rows = np.genfromtxt(path, delimiter=",", names=True, dtype=None, encoding="utf-8")
    names, station = np.unique(rows["station"], return_inverse=True)
    value = np.log(rows["value"].astype(float))
    return names, {"day": rows["time"].astype(float)[:, None], "station": station, "y": value - value.mean()}


def split(data, seed):
    """Rows that are kept: 3 to 12 of each station."""
    rng = np.random.default_rng(seed)
    kept = np.zeros(len(data["y"]), bool)
    for number in range(data["station"].max() + 1):
        own = np.flatnonzero(data["station"] == number)
        kept[rng.permutation(own)[: rng.integers(3, 13)]] = True
    return tuple({name: x[rows] for name, x in data.items()} for rows in (kept, ~kept))


def draw(path, fits, names, train, test):
    """Six stations with few rows: the functions of each kind of pooling, data that were kept, and held out."""
    counts = np.bincount(train["station"], minlength=len(names))
    days = np.linspace(0.0, train["day"].max(), 60)[:, None]
    figure, axes = plt.subplots(2, 3, figsize=(9, 4.5), sharex=True, sharey=True, layout="constrained")
    for axis, number in zip(axes.flat, np.argsort(counts, kind="stable")[:6], strict=True):
        for (pooling, (posterior, keywords)), colour in zip(fits.items(), ngp.plots.COLOURS, strict=False):
            rows = {"day": jnp.asarray(days), "station": jnp.full(len(days), number)}
            found = posterior.predict(jax.random.key(2), **rows, **keywords)
            mean, width = found.function_mean, 1.64 * np.sqrt(found.function_variance)
            axis.plot(days, mean, color=colour, label=pooling)
            axis.fill_between(days[:, 0], mean - width, mean + width, color=colour, alpha=0.15, lw=0)
        for part, marker in ((train, "ko"), (test, "kx")):
            own = part["station"] == number
            axis.plot(part["day"][own], part["y"][own], marker, ms=3, label="held out" if marker == "kx" else "kept")
        axis.set_title(f"{names[number]}, {counts[number]} days kept", fontsize="small")
    figure.supxlabel("day"), figure.supylabel("log NOx, less the mean of all")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=5, fontsize="small")
    figure.savefig(path, dpi=150)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=HERE / "data" / "aurn_nox_daily_2019_02.csv.gz")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--out", type=Path, default=HERE / "output")
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    if args.smoke:
        args.steps, args.splits = 5, 1
    jax.config.update("jax_enable_x64", True)
    args.out.mkdir(parents=True, exist_ok=True)
    names, data = load(args.data)
    shared = {"Z": jnp.linspace(0.0, float(data["day"].max()), 11)[:, None], "num_stations": len(names)}
    table = []
    for seed in range(args.splits):
        train, test = split(data, seed)
        fits = {pooling: fitted(pooling, args.steps, train, shared) for pooling in POOLING}
        unseen = {name: x for name, x in test.items() if name != "y"}
        for pooling, (posterior, keywords) in fits.items():
            found = posterior.predict(jax.random.key(2), **unseen, **keywords)
            density, error = found.log_density(test["y"]).mean(), np.sqrt(np.mean((found.mean - test["y"]) ** 2))
            table.append({"pooling": pooling, "split": seed, "log_density": float(density), "rmse": float(error)})
            save(args.out / "stations.csv", table)
        if seed == 0:
            draw(args.out / "stations.png", fits, names, train, test)
    for pooling in POOLING:
        own = [row for row in table if row["pooling"] == pooling]
        density, error = ("{:.3f} ± {:.3f}".format(*of_mean([row[key] for row in own])) for key in METRICS)
        print(f"{pooling:9s} held-out log density {density}, RMSE {error}")
    print("Distrust the pooling where partial is not the best of the three, or where a station is unlike all others.")


if __name__ == "__main__":
    main()
