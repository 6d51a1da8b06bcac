"""Nitrogen oxides at 44 stations in February 2019: one curve for each station, with partial, no or complete pooling.

    python -m examples.stations [--data FILE] [--steps 600] [--splits 5]

Daily means of the AURN network (Crown copyright Defra, Open Government Licence v3.0) on 22 days. Of each station 3 to
12 days are kept, at random; the others are held out. *Partial* pooling is a curve that all share (the weather) and for
each station a level and a departure, whose spread and size are those of a population; *none* gives each station a
process and hyper-parameters of its own, under fixed priors; *complete* has one curve for all.
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
from examples.tools.tables import of_mean, save

HERE = Path(__file__).parent
COLOURS = ngp.plots.COLOURS
LOOKS = ({"color": COLOURS[1], "ls": "--"}, {"color": COLOURS[3], "ls": ":"}, {"color": COLOURS[0], "ls": "-"})
SITES = {"none": ["own"], "complete": ["shared"], "partial": ["own", "shared"]}


def model(day, station, y=None, *, Z, num_stations, pooling):
    """Logarithms of concentrations ``y`` ``(N,)`` on days ``(N, 1)``, each at the station of its row."""
    is_partial, parts = pooling == "partial", []
    if pooling == "complete":
        noise = numpyro.sample("noise", dist.LogNormal(-1.0, 0.5))
    else:
        spread = numpyro.sample("spread", dist.HalfNormal(1.0)) if is_partial else 1.0
        typical = numpyro.sample("typical", dist.LogNormal(-1.0, 0.5)) if is_partial else 0.5
        with numpyro.plate("stations", num_stations):
            level = spread * numpyro.sample("level", dist.Normal(0.0, 1.0))
            variance = typical * numpyro.sample("variance", dist.LogNormal(0.0, 0.5))
            lengthscale = numpyro.sample("lengthscale", dist.LogNormal(1.0, 0.5))
            noise = numpyro.sample("noise", dist.LogNormal(-1.0, 0.5))[station]
            own = ngp.gp("own", jax.vmap(ngp.kernels.Matern32)(variance, lengthscale), Z, mean=level)
        parts.append(own.at(station, day))
    if pooling != "none":
        common = numpyro.sample("common", dist.LogNormal(1.0, 0.5))
        parts.append(ngp.gp("shared", ngp.kernels.Matern32(1.0, common), Z)(day))
    with numpyro.plate("rows", day.shape[0]):
        f = dist.Normal(sum(part.mean for part in parts), jnp.sqrt(sum(part.variance for part in parts)))
        ngp.observe("y", f, ngp.likelihoods.Gaussian(noise), obs=y)


def fitted(pooling, steps, train, shared):
    """Posterior of one kind of pooling, and the keywords of its model."""
    keywords = {**shared, "pooling": pooling}
    guide = ngp.AutoGP(model, {site: ngp.guides.coupled(natural=True) for site in SITES[pooling]}, rest=AutoNormal)
    svi = SVI(model, guide, ngp.optim.natural_gradient(optax.adam(2e-2), 0.1), Trace_ELBO())
    result = ngp.fit(jax.random.key(1), svi, steps, progress=False, **train, **keywords)
    return result.posterior(), keywords


def load(path):
    """Names of stations; days, numbers of stations and logarithms of what they measured, less their mean."""
    rows = np.genfromtxt(path, delimiter=",", names=True, dtype=None, encoding="utf-8")
    names, station = np.unique(rows["station"], return_inverse=True)
    value = np.log(rows["value"].astype(float))
    return names, {"day": rows["time"].astype(float)[:, None], "station": station, "y": value - value.mean()}


def split(data, seed):
    """Rows that are kept, 3 to 12 of each station, and the others; as many rows in every split."""
    rng, kept = np.random.default_rng(seed), np.zeros(len(data["y"]), bool)
    numbers = np.unique(data["station"])
    for number, size in zip(numbers, rng.permutation(np.resize(np.arange(3, 13), len(numbers))), strict=True):
        kept[rng.permutation(np.flatnonzero(data["station"] == number))[:size]] = True
    return tuple({name: x[rows] for name, x in data.items()} for rows in (kept, ~kept))


def scored(fits, test):
    """Log density and squared error of held-out rows, mean of each station: ``{pooling: (2, stations)}``."""
    found, counts = {}, np.bincount(test["station"])
    for pooling, (posterior, keywords) in fits.items():
        at = posterior.predict(jax.random.key(2), test["day"], test["station"], **keywords)
        scores = np.asarray(at.log_density(test["y"])), np.asarray(at.mean - test["y"]) ** 2
        found[pooling] = np.stack([np.bincount(test["station"], score) / counts for score in scores])
    return found


def draw(path, fits, names, train, test):
    """Six stations with few rows: the function of each kind of pooling, data that were kept, and held out."""
    counts, days = np.bincount(train["station"]), np.linspace(0.0, 21.0, 64)[:, None]
    figure, axes = plt.subplots(2, 3, figsize=(9, 5), sharex=True, sharey=True, layout="constrained")
    for axis, number in zip(axes.flat, np.argsort(counts, kind="stable")[:6], strict=True):
        for (pooling, (posterior, keywords)), look in zip(fits.items(), LOOKS, strict=True):
            found = posterior.predict(jax.random.key(2), days, np.full(len(days), number), **keywords)
            mean, width = found.function_mean, 1.64 * np.sqrt(found.function_variance)
            axis.plot(days, mean, label=f"{pooling.replace('none', 'no')} pooling", **look)
            axis.fill_between(days[:, 0], mean - width, mean + width, color=look["color"], alpha=0.12, lw=0)
        for part, marker, label in ((train, "ko", "kept"), (test, "kx", "held out")):
            own = part["station"] == number
            axis.plot(part["day"][own], part["y"][own], marker, ms=4, label=label)
        axis.set_title(f"{names[number]}, {counts[number]} days kept", fontsize="small")
    figure.supxlabel("day of February 2019, from 0"), figure.supylabel("log NOx, less the mean of all; 90 % bands")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=5, fontsize="small")
    figure.savefig(path, dpi=150)


def report(scores, path):
    """Table of mean scores, of each station over splits, and what partial pooling gains, paired by station."""
    means = {pooling: np.mean([split[pooling] for split in scores], axis=0) for pooling in SITES}
    for number, metric in enumerate(("log density", "squared error")):
        for pooling in SITES:
            print(f"{metric:14s}{pooling:10s}{'{:.3f} ± {:.3f}'.format(*of_mean(means[pooling][number]))}")
        for other in ("none", "complete"):
            gain = means["partial"][number] - means[other][number]
            better = f"{np.mean(gain > 0 if number == 0 else gain < 0):.0%}"
            print(f"  partial - {other}: {'{:.3f} ± {:.3f}'.format(*of_mean(gain))}; better at {better} of stations")
    print("Distrust the pooling where partial is not the best of the three, or where a station is unlike all others.")
    save(path, [{"pooling": p, "station": s, "log_density": d, "squared_error": e}
                for p in SITES for s, (d, e) in enumerate(means[p].T)])  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=HERE / "data" / "aurn_nox_daily_2019_02.csv.gz")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--out", type=Path, default=HERE / "output")
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    if args.smoke:
        args.steps, args.splits = 5, 1
    jax.config.update("jax_enable_x64", True)
    args.out.mkdir(parents=True, exist_ok=True)
    names, data = load(args.data)
    shared, scores = {"Z": jnp.linspace(0.0, 21.0, 11)[:, None], "num_stations": len(names)}, []
    for seed in range(args.splits):
        train, test = split(data, seed)
        fits = {pooling: fitted(pooling, args.steps, train, shared) for pooling in SITES}
        scores.append(scored(fits, test))
        if seed == 0:
            draw(args.out / "stations.png", fits, names, train, test)
        report(scores, args.out / "stations.csv")


if __name__ == "__main__":
    main()
