"""Nitrogen oxides over the United Kingdom: sparse, fully Bayesian, by Stein particles on minibatches, beside NUTS.

    python -m examples.studies.stein.stein_air_quality  # 300 inducing inputs; --large for 800, --inducing 100 for less
    python -m examples.studies.stein.stein_air_quality --engines stein_metric stein_collapsed_metric NUTS
    python -m examples.studies.stein.stein_air_quality --large --engines conditional    # by SVI, ten minutes
    python -m examples.studies.stein.stein_air_quality --engines stein_auto NUTS --held-out 5 12 19  # three days

Daily means of NOx at 44 stations of the AURN network, 1-22 February 2019 (Crown copyright Defra, Open Government
Licence). The model is that of Pinder et al. 2020: a Matern-3/2 process over longitude, latitude and time, Gamma
priors on its hyper-parameters, k-means inducing inputs. The data are logarithms, standardised. One day is
held out (time 5). The paper has more stations with 88 values of each; its figures cannot be compared with these.

SVGD moves particles of (hyper-parameters, whitened values) on minibatches, towards the sparse target
(mathematics.md section 8); and particles of the hyper-parameters alone on the collapsed bound, which is the same target
with the whitened values integrated out. NUTS samples that, too. The engines whose names end in "metric" move in
coordinates of the averaged curvature, and start around the collapsed target's mode, far from which it says nothing.
"stein_auto" is `ngp.stein.auto` on the collapsed target. Rows are added to those of other engines and days in the
folder, and "NUTS" comes last: the spread of the particles is compared with that of its draws. Maps and the figure of
the spread are those of the first day.
"""

import argparse
import csv
import gzip
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal

import numpyro_gp as ngp
from examples.tools.run_queue import version
from examples.tools.tables import markdown, of_mean, read, save, with_error

matplotlib.use("Agg")
HERE = Path(__file__).parent
HYPER = ("lengthscale", "variance", "noise")


def hyper_parameters():
    """Lengthscales of longitude, latitude and time, variance, and scale of the noise."""
    lengthscale = numpyro.sample("lengthscale", dist.Gamma(2.0, 1.0).expand([3]).to_event(1))
    return lengthscale, numpyro.sample("variance", dist.Gamma(2.0, 2.0)), numpyro.sample("noise", dist.Gamma(2.0, 4.0))


def model(X, y=None, Z=None, batch=None):
    """The sparse target, for minibatches."""
    lengthscale, variance, noise = hyper_parameters()
    f = ngp.gp("f", ngp.kernels.Matern32(variance, lengthscale), Z)
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as index:
        rows = slice(None) if batch is None else index
        ngp.observe("y", f(X[rows]), ngp.likelihoods.Gaussian(noise), obs=None if y is None else y[rows])


def collapsed(X, y, Z=None):
    """The same target with the function integrated out."""
    lengthscale, variance, noise = hyper_parameters()
    kernel = ngp.kernels.Matern32(variance, lengthscale)
    return ngp.gp_regression("y", kernel, X, noise_variance=noise**2, inducing=Z, obs=y), noise


def load(path, held_out):
    """Standardised inputs and log targets, and which rows are of the day held out."""
    with gzip.open(path, "rt") as file:
        rows = [[float(row[c]) for c in ("lon", "lat", "time", "value")] for row in csv.DictReader(file)]
    table = np.array(rows)
    test = table[:, 2] == held_out
    if not test.any():
        first, last = table[:, 2].min(), table[:, 2].max()
        raise ValueError(f"--held-out must be a time of the data, {first:g} to {last:g}, but got {held_out}")
    target = np.log(table[:, 3])
    centre, scale = table[:, :3].mean(0, keepdims=True), table[:, :3].std(0, keepdims=True)
    shift, spread = target[~test].mean(), target[~test].std()
    X, y = (table[:, :3] - centre) / scale, (target - shift) / spread
    return jnp.asarray(X), jnp.asarray(y), test, (centre[0], scale[0], shift, spread)


def around_mode(key, X, y, Z, options):
    """A start for the hyper-parameters: one particle, which the collapsed target's gradient alone moves."""
    svgd = ngp.stein.SVGD(collapsed, optax.adam(0.05), ngp.stein.RBF(), 1)
    result = ngp.fit(key, svgd, options.collapsed_steps, X, y, Z, progress=False)
    return ngp.stein.Around({name: values[0] for name, values in svgd.particles(result.params).items()})


def stein(key, X, y, Z, options, metric=None):
    """Particles of hyper-parameters and whitened values, on minibatches."""
    # One distance over hundreds of whitened values lets 20 particles collapse there, and the noise with them.
    kernel = ngp.stein.Groups([list(HYPER)], rest=ngp.stein.RBF(per_coordinate=True))
    kernel = kernel if metric is None else ngp.stein.IMQ()
    last = options.steps // 4
    optimiser = optax.adam(optax.linear_schedule(0.1, 0.0, last, transition_begin=options.steps - last))
    near = None if metric is None else around_mode(key, X, y, Z, options)
    svgd = ngp.stein.SVGD(model, optimiser, kernel, options.particles, metric=metric, init_particles=near)
    result = ngp.fit(key, svgd, options.steps, X, y, Z, batch=min(options.batch, len(y)))
    posterior = ngp.Posterior.from_stein(model, svgd, result.params)
    return svgd.particles(result.params), lambda X_new: posterior.predict(key, X_new, Z=Z)


def stein_metric(key, X, y, Z, options):
    """The same in coordinates of the curvature, one kernel over all of them."""
    return stein(key, X, y, Z, options, ngp.stein.Curvature(every=500, memory=0.8))


def stein_collapsed(key, X, y, Z, options, kernel=ngp.stein.RBF(), metric=None):  # noqa: B008
    """Particles of the hyper-parameters alone, the function integrated out; whole data."""
    near = None if metric is None else around_mode(key, X, y, Z, options)
    svgd = ngp.stein.SVGD(collapsed, optax.adam(0.05), kernel, options.particles, metric=metric, init_particles=near)
    result = ngp.fit(key, svgd, options.collapsed_steps, X, y, Z)
    posterior = ngp.Posterior.from_stein(collapsed, svgd, result.params)
    return svgd.particles(result.params), lambda X_new: posterior.predict_at(key, X_new, X, y, Z)


def stein_collapsed_metric(key, X, y, Z, options):
    """The same with kernels that hold the moments, in coordinates of the curvature."""
    return stein_collapsed(key, X, y, Z, options, ngp.stein.Moments(ngp.stein.IMQ()), ngp.stein.Curvature())


def stein_auto(key, X, y, Z, options):
    """Particles of the hyper-parameters alone, by `ngp.stein.auto`."""
    svgd, result = ngp.stein.auto(key, collapsed, X, y, Z, num_particles=options.particles)
    posterior = ngp.Posterior.from_stein(collapsed, svgd, result.params)
    return svgd.particles(result.params), lambda X_new: posterior.predict_at(key, X_new, X, y, Z)


def conditional(key, X, y, Z, options):
    """A variational fit on whole data, whose belief about the function follows all hyper-parameters, the noise too."""
    guide = ngp.AutoGP(model, {"f": ngp.guides.conditional(noise="noise")}, rest=AutoMultivariateNormal)
    adam = optax.adam(optax.cosine_decay_schedule(0.05, options.collapsed_steps))
    svi = SVI(model, guide, ngp.optim.natural_gradient(adam, 0.5), Trace_ELBO())
    params = ngp.fit(key, svi, options.collapsed_steps, X, y, Z).params
    posterior = ngp.Posterior.from_svi(model, guide, params)
    draws = guide.rest.sample_posterior(key, params, sample_shape=(options.draws,))
    return draws, lambda X_new: posterior.predict(key, X_new, Z=Z, num_samples=50)


def nuts(key, X, y, Z, options):
    """Draws of the hyper-parameters alone, the function integrated out."""
    mcmc = MCMC(NUTS(collapsed), num_warmup=options.draws, num_samples=options.draws, progress_bar=False)
    mcmc.run(key, X, y, Z)
    mcmc.print_summary()
    posterior, count = ngp.Posterior.from_mcmc(collapsed, mcmc), min(50, options.draws)
    return mcmc.get_samples(), lambda X_new: posterior.predict_at(key, X_new, X, y, Z, num_samples=count)


FUNCTIONS = (stein, stein_metric, stein_collapsed, stein_collapsed_metric, stein_auto, conditional)
ENGINES = {function.__name__: function for function in FUNCTIONS} | {"NUTS": nuts}


def maps(predict, X, test, units, day, path, title, bounds=((-6.5, 1.8), (50.0, 58.5))):
    """The mean and its uncertainty between bounds of longitude and latitude, at the time held out."""
    import matplotlib.pyplot as plt

    centre, scale, shift, spread = units
    stations = np.asarray(X)[test] * scale + centre
    lon, lat = np.meshgrid(np.linspace(*bounds[0], 50), np.linspace(*bounds[1], 60))
    grid = np.stack([lon.ravel(), lat.ravel(), np.full(lon.size, float(day))], 1)
    prediction = predict(jnp.asarray((grid - centre) / scale))
    median = np.exp(np.asarray(prediction.mean) * spread + shift).reshape(lon.shape)
    sd = (np.sqrt(np.asarray(prediction.variance)) * spread).reshape(lon.shape)
    fig, axes = plt.subplots(1, 2, figsize=(10, 5.2), layout="constrained")
    for ax, values, label in zip(
        axes, (median, sd), ("median NOx (ug/m3)", "standard deviation of log NOx"), strict=True
    ):
        shown = ax.pcolormesh(lon, lat, values, cmap="cividis", shading="auto")
        fig.colorbar(shown, ax=ax, label=label)
        ax.plot(stations[:, 0], stations[:, 1], "o", color="white", markeredgecolor="black", markersize=4)
        ax.set(xlabel="longitude (degrees)", ylabel="latitude (degrees)", title=label.split(" (")[0])
    fig.suptitle(f"{title}, held out; circles are stations")
    fig.savefig(path, dpi=120)
    plt.close(fig)


def score(name, day, prediction, y, seconds):
    """One row of the table."""
    density = prediction.log_density(y)
    cover = jnp.abs(y - prediction.mean) < 1.645 * jnp.sqrt(prediction.variance)
    mean, error = of_mean(density)
    rmse = float(jnp.sqrt(jnp.mean((y - prediction.mean) ** 2)))
    print(f"{name:16s} RMSE {rmse:.3f}, log density {mean:.3f} +- {error:.3f}, 90% cover {cover.mean():.2f}", end=", ")
    print(f"{seconds:.0f} s", flush=True)
    row = {"engine": name, "day": day, "rmse": rmse, "log_density": mean, "log_density_se": error}
    return row | {"coverage_90": float(cover.mean()), "seconds": seconds, "version": version()}


def compare_spread(draws, day, path=None):
    """The particles' hyper-parameters beside those of NUTS: a row for each engine and coordinate, and a figure.

    "apart" is the distance of the means in standard deviations of NUTS, "ratio" that of the standard deviations.
    """
    import matplotlib.pyplot as plt

    flat = {
        name: {
            **{site: values[site] for site in ("variance", "noise")},
            **{f"lengthscale of {axis}": values["lengthscale"][:, i] for i, axis in enumerate(("lon", "lat", "time"))},
        }
        for name, values in draws.items()
    }
    reference, rows = flat.pop("NUTS"), []
    for name, particles in flat.items():
        for site in reference:
            apart = float((particles[site].mean() - reference[site].mean()) / reference[site].std())
            ratio = float(particles[site].std() / reference[site].std())
            rows.append({"engine": name, "day": day, "coordinate": site, "apart": apart, "ratio": ratio})
            print(f"{name}, {site}: mean {apart:+.2f} NUTS sd from NUTS' mean, sd {ratio:.2f} of NUTS'")
    if path is None:
        return rows
    size = (15, 2.2 * len(flat))
    fig, axes = plt.subplots(len(flat), len(reference), figsize=size, layout="constrained", squeeze=False)
    for (name, particles), line in zip(flat.items(), axes, strict=True):
        for site, ax in zip(reference, line, strict=True):
            ngp.stein.plot_spread(particles, site, {"NUTS": reference}, ax=ax)
            ax.set_title(name.replace("_", ", ") if site == "variance" else "", loc="left")  # in place of its own
    fig.suptitle("Particles and NUTS: hyper-parameters, standardised units")
    fig.savefig(path, dpi=120)
    plt.close(fig)
    return rows


PAIR = {"stein_auto": "ngp.stein.auto, 20 particles", "NUTS": "NUTS"}


def over_days(rows, pair=PAIR):
    """Test log densities ``{day: (particles, chain)}`` of two engines, for the days that both have."""
    found = {}
    for row in rows:
        found.setdefault(row["day"], {})[row["engine"]] = float(row["log_density"])
    return {day: tuple(own[name] for name in pair) for day, own in found.items() if own.keys() >= set(pair)}


def days_table(rows, pair=PAIR, unit="day"):
    """Markdown: particles and chain on each day, and the mean over days with its error."""
    found = over_days(rows, pair)
    values = np.array(list(found.values())).T
    lines = [*zip(pair.values(), values, strict=True), ("difference", values[0] - values[1])]
    lines = [[name, *(f"{value:.3f}" for value in own), with_error(*of_mean(own))] for name, own in lines]
    return markdown(["test log density", *(f"{unit} {day}" for day in found), f"mean over {unit}s"], lines)


def other_rows(table, day, options):
    """Rows of a table that this day's engines do not replace."""
    return [row for row in read(table) if row["engine"] not in options.engines or row["day"] != str(day)]


def one_day(path, day, options):
    """Fit each engine without a day and score it there."""
    X, y, test, units = load(path, day)
    key = jax.random.key(0)
    Z = ngp.inducing.kmeans(key, X[~test], options.inducing)
    print(f"{(~test).sum()} training rows, {test.sum()} held out, {options.inducing} inducing inputs")
    table, draws, first = options.out / "stein_air_quality.csv", {}, day == options.held_out[0]
    rows = other_rows(table, day, options)
    for name in (name for name in ENGINES if name in options.engines):
        start = time.perf_counter()
        draws[name], predict = ENGINES[name](key, X[~test], y[~test], Z, options)
        rows.append(score(name, day, predict(X[test]), y[test], time.perf_counter() - start))
        save(table, rows)
        if first:
            title, picture = f"{name}: 2019-02-{day + 1:02d}", options.out / f"stein_air_quality_{name}.png"
            maps(predict, X, test, units, day, picture, title)
    if "NUTS" in draws and len(draws) > 1:
        table = options.out / "stein_air_quality_spread.csv"
        figure = options.out / "stein_air_quality_spread.png" if first else None
        save(table, other_rows(table, day, options) + compare_spread(draws, day, figure))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=HERE.parents[1] / "data" / "aurn_nox_daily_2019_02.csv.gz")
    parser.add_argument("--inducing", type=int, default=300)
    parser.add_argument("--large", action="store_true", help="800 inducing inputs")
    parser.add_argument("--particles", type=int, default=20)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--collapsed-steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--draws", type=int, default=300, help="NUTS warm-up steps, and as many draws")
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), default=["stein", "stein_collapsed", "NUTS"])
    parser.add_argument("--held-out", type=int, nargs="+", default=[5], help="days, each of a fit of its own")
    parser.add_argument("--out", type=Path, default=HERE.parents[1] / "output")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    if options.large:
        options.inducing = 800
    if options.smoke:
        options.inducing, options.particles, options.draws = 15, 3, 10
        options.steps = options.collapsed_steps = 20
        options.engines = ["stein_metric", "stein_collapsed_metric", "conditional", "NUTS"]
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.data if options.data.is_file() else options.data / "spatiotemporal" / "aurn_nox_daily_2019_02.csv.gz"
    for day in options.held_out:
        one_day(path, day, options)
    print("Distrust the particles where their sd is well below that of NUTS: few particles understate the spread.")


if __name__ == "__main__":
    main()
