"""Nitrogen oxides over the United Kingdom: sparse, fully Bayesian, by Stein particles on minibatches, beside NUTS.

    python -m examples.stein_air_quality              # 300 inducing inputs; --large for 800, --inducing 100 for less

Daily means of NOx at 44 stations of the AURN network, 1-22 February 2019 (Crown copyright Defra, Open Government
Licence). The model is that of Pinder et al. 2020: a Matern-3/2 process over longitude, latitude and time, Gamma
priors on its hyper-parameters, k-means inducing inputs. The data are logarithms, standardised. One day is
held out (time 5). The paper has hourly data of more stations; its figures cannot be compared with these.

SVGD moves particles of (hyper-parameters, whitened values) on minibatches, towards the target of math.md section 7.
NUTS samples the hyper-parameters of the collapsed bound: the same target with the whitened values integrated out.
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
from jax.scipy.special import logsumexp
from numpyro import handlers
from numpyro.infer import MCMC, NUTS

import numpyro_gp as ngp

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
    return ngp.gp_regression("y", kernel, X, noise**2, inducing=Z, obs=y), noise


def load(path, held_out):
    """Standardised inputs and log targets, and which rows are of the day held out."""
    with gzip.open(path, "rt") as file:
        rows = [[float(row[c]) for c in ("lon", "lat", "time", "value")] for row in csv.DictReader(file)]
    table = np.array(rows)
    test = table[:, 2] == held_out
    target = np.log(table[:, 3])
    centre, scale = table[:, :3].mean(0, keepdims=True), table[:, :3].std(0, keepdims=True)
    shift, spread = target[~test].mean(), target[~test].std()
    X, y = (table[:, :3] - centre) / scale, (target - shift) / spread
    return jnp.asarray(X), jnp.asarray(y), test, (centre[0], scale[0], shift, spread)


def stein(key, X, y, Z, options):
    kernel = ngp.stein.Groups([list(HYPER)])
    svgd = ngp.stein.SVGD(model, optax.adam(0.03), kernel, options.particles)
    result = ngp.fit(key, svgd, options.steps, X, y, Z, batch=min(options.batch, len(y)))
    posterior = ngp.Posterior.from_stein(model, svgd, result.params)

    def predict(X_new, y_new=None):
        p = posterior.predict(key, X_new, Z=Z)
        return p.mean, p.variance, None if y_new is None else p.log_density(y_new)

    return svgd.particles(result.params), predict


def nuts(key, X, y, Z, options):
    mcmc = MCMC(NUTS(collapsed), num_warmup=options.draws, num_samples=options.draws, progress_bar=False)
    mcmc.run(key, X, y, Z)
    draws = mcmc.get_samples()
    some = jax.tree.map(lambda leaf: leaf[:: max(1, options.draws // 50)], draws)

    def predict(X_new, y_new=None):
        @jax.jit
        def one(value):
            with handlers.block(), handlers.seed(rng_seed=0), handlers.substitute(data=value):
                f, noise = collapsed(X, y, Z)
            normal = f(X_new)
            variance = normal.scale**2 + noise**2
            target = normal.loc if y_new is None else y_new
            return normal.loc, variance, dist.Normal(normal.loc, jnp.sqrt(variance)).log_prob(target)

        means, variances, densities = jax.lax.map(one, some)
        return means.mean(0), variances.mean(0) + means.var(0), logsumexp(densities, 0) - np.log(len(densities))

    return draws, predict


def maps(predict, X, test, units, day, path, title):
    """The mean and its uncertainty over the country on the day held out."""
    import matplotlib.pyplot as plt

    centre, scale, shift, spread = units
    stations = np.asarray(X)[test] * scale + centre
    lon, lat = np.meshgrid(np.linspace(-6.5, 1.8, 50), np.linspace(50, 58.5, 60))
    grid = np.stack([lon.ravel(), lat.ravel(), np.full(lon.size, float(day))], 1)
    mean, variance, _ = predict(jnp.asarray((grid - centre) / scale))
    median = np.exp(np.asarray(mean) * spread + shift).reshape(lon.shape)
    sd = (np.sqrt(np.asarray(variance)) * spread).reshape(lon.shape)
    fig, axes = plt.subplots(1, 2, figsize=(10, 5.2), layout="constrained")
    for ax, values, label in zip(
        axes, (median, sd), ("median NOx (ug/m3)", "standard deviation of log NOx"), strict=True
    ):
        shown = ax.pcolormesh(lon, lat, values, cmap="cividis", shading="auto")
        fig.colorbar(shown, ax=ax, label=label)
        ax.plot(stations[:, 0], stations[:, 1], "o", color="white", markeredgecolor="black", markersize=4)
        ax.set(xlabel="longitude (degrees)", ylabel="latitude (degrees)", title=label.split(" (")[0])
    fig.suptitle(f"{title}: 2019-02-{day + 1:02d}, held out; circles are stations")
    fig.savefig(path, dpi=120)
    plt.close(fig)


def report(results, out):
    """Table, file and figure of the engines."""
    import matplotlib.pyplot as plt

    print(f"{'engine':12s} {'RMSE':>8s} {'log density':>20s} {'90% cover':>10s} {'seconds':>8s}")
    rows = []
    for name, (_, (mean, variance, density), y, seconds) in results.items():
        error = float(density.std() / np.sqrt(len(density)))
        cover = float((jnp.abs(y - mean) < 1.645 * jnp.sqrt(variance)).mean())
        row = [float(jnp.sqrt(jnp.mean((y - mean) ** 2))), float(density.mean()), error, cover, seconds]
        print(f"{name:12s} {row[0]:8.3f} {row[1]:10.3f} +- {row[2]:5.3f} {row[3]:10.2f} {row[4]:8.1f}")
        rows.append([name, *row])
    with open(out / "stein_air_quality.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["engine", "rmse", "log_density", "log_density_se", "coverage_90", "seconds"])
        writer.writerows(rows)
    flat = {
        name: {
            **{site: values[site] for site in ("variance", "noise")},
            **{f"lengthscale of {axis}": values["lengthscale"][:, i] for i, axis in enumerate(("lon", "lat", "time"))},
        }
        for name, (values, *_) in results.items()
    }
    particles, reference = flat["stein"], {"NUTS": flat["NUTS"]}
    fig, axes = plt.subplots(1, 5, figsize=(15, 2.4), layout="constrained")
    for ax, site in zip(axes, particles, strict=True):
        ngp.stein.plot_spread(particles, site, reference, ax=ax).set_title("")
        ratio = float(particles[site].std() / reference["NUTS"][site].std())
        apart = float((particles[site].mean() - reference["NUTS"][site].mean()) / reference["NUTS"][site].std())
        print(f"{site}: particles' mean {apart:+.2f} NUTS sd from NUTS' mean, their sd {ratio:.2f} of NUTS'")
    fig.suptitle("Particles and NUTS: hyper-parameters, standardised units")
    fig.savefig(out / "stein_air_quality_spread.png", dpi=120)
    plt.close(fig)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=HERE / "data" / "aurn_nox_daily_2019_02.csv.gz")
    parser.add_argument("--inducing", type=int, default=300)
    parser.add_argument("--large", action="store_true", help="800 inducing inputs")
    parser.add_argument("--particles", type=int, default=20)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--draws", type=int, default=300, help="NUTS warm-up steps, and as many draws")
    parser.add_argument("--held-out", type=int, default=5)
    parser.add_argument("--out", type=Path, default=HERE / "output")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    if options.large:
        options.inducing = 800
    if options.smoke:
        options.inducing, options.particles, options.steps, options.draws = 15, 3, 20, 10
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.data if options.data.is_file() else options.data / "spatiotemporal" / "aurn_nox_daily_2019_02.csv.gz"
    X, y, test, units = load(path, options.held_out)
    key = jax.random.key(0)
    Z = ngp.inducing.kmeans(key, X[~test], options.inducing)
    print(f"{(~test).sum()} training rows, {test.sum()} held out, {options.inducing} inducing inputs")
    results = {}
    for name, engine in (("stein", stein), ("NUTS", nuts)):
        start = time.perf_counter()
        values, predict = engine(key, X[~test], y[~test], Z, options)
        results[name] = (values, predict(X[test], y[test]), y[test], time.perf_counter() - start)
        maps(predict, X, test, units, options.held_out, options.out / f"stein_air_quality_{name}.png", name)
        print(f"{name} done in {results[name][3]:.0f} s", flush=True)
    report(results, options.out)
    print("Distrust the particles where their sd is well below that of NUTS: few particles understate the spread.")


if __name__ == "__main__":
    main()
