"""One model of a series by three engines: NUTS, SVI and the draws of ``ngp.gam``, on three short series.

    python -m examples.studies.series.series_engines            # two minutes; rows that are there are not made again
    python -m examples.studies.series.series_engines --smoke    # a few steps of the shortest

The kernels and priors are those of ``ngp.starting``, which are those of the gam; `gp_regression` integrates the
function out. NUTS has 150 draws after 150 steps of warm-up, SVI a full-rank normal guide and 1000 steps. Differences
are from NUTS, over the last tenth, which is forecast: of means, root mean square in its standard deviations, and the
ratio of standard deviations, a geometric mean. Rows were made in double precision, JAX_ENABLE_X64=1.
"""

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import MCMC, SVI, Trace_ELBO, init_to_median
from numpyro.infer.autoguide import AutoMultivariateNormal

import numpyro_gp as ngp
from examples.studies.series.series_forecasts import series
from examples.tools.tables import markdown, read, save
from numpyro_gp.starting.priors import scales_of

ROWS = Path(__file__).parent / "series_engines.csv"
NUMBERS = ("noise", "log density", "coverage of 90 %", "difference of means", "ratio of sds", "seconds")
# Parts of each series, the most of its rows, and whether it is explained on the scale of logarithms.
SERIES = {
    "nile": (("trend",), 100, False),
    "lynx": (("trend", "cycle"), 114, True),
    "airline": (("trend", "season"), 96, True),
}
ENGINES = ("NUTS", "SVI", "ngp.gam")


def data(name):
    """Period of the season, and rows to fit and to forecast."""
    period, t, y = series()[name]
    _, most, is_log = SERIES[name]
    t, y = t[:most], np.log(y[:most]) if is_log else y[:most]
    cut = len(y) - round(0.1 * len(y))
    return period, (t[:cut], y[:cut]), (t[cut:], y[cut:])


def model_of(name, period, t, y):
    """The model, with the priors that the gam has."""
    season = {"period": period} if period > 1 else {}
    step = scales_of(t, y, tuple(season.values())).step

    def model(X, y):
        parts = [getattr(ngp.starting, part)(part, X, y, **season) for part in SERIES[name][0]]
        kernel = sum(parts[1:], start=parts[0])
        noise = numpyro.sample("noise", dist.LogNormal(jnp.log(0.4 * step), 1.0))
        return ngp.gp_regression("y", kernel, X, noise_variance=noise**2, mean=y.mean(), obs=y)

    return model


def forecast(engine, name, draws=150, steps=1000):
    """The prediction of the rows that are held out, and the posterior mean of the noise."""
    period, (t, y), (new, _) = data(name)
    key, X = jax.random.key(0), jnp.asarray(t[:, None])
    if engine == "ngp.gam":
        terms = [f"season(t, period={period})" if part == "season" else f"{part}(t)" for part in SERIES[name][0]]
        return ngp.gam("y ~ " + " + ".join(terms), {"t": t, "y": y}).predict({"t": new}), np.nan
    model, targets = model_of(name, period, t, y), jnp.asarray(y)
    if engine == "NUTS":
        chain = MCMC(ngp.NUTS(model, max_tree_depth=7), num_warmup=draws, num_samples=draws, progress_bar=False)
        chain.run(key, X, targets)
        posterior = ngp.Posterior.from_mcmc(model, chain)
    else:
        guide = AutoMultivariateNormal(model, init_loc_fn=init_to_median)
        svi = SVI(model, guide, optax.adam(0.02), Trace_ELBO(num_particles=4))
        result = ngp.fit(key, svi, steps, X, targets, progress=False)
        posterior = ngp.Posterior.from_svi(model, guide, result.params)
    noise = posterior.hyperparameters(key, X, targets, num_samples=draws)["noise"]
    return posterior.predict_at(key, jnp.asarray(new[:, None]), X, targets, num_samples=draws), float(jnp.mean(noise))


def rows_of(name, **effort):
    """Scores of all engines on a series."""
    found, (_, wanted) = [], data(name)[2]
    for engine in ENGINES:
        start = time.process_time()
        prediction, noise = forecast(engine, name, **effort)
        mean, sd = np.asarray(prediction.mean), np.sqrt(np.asarray(prediction.variance))
        if engine == "NUTS":
            mean_of_nuts, sd_of_nuts = mean, sd
        low, high = (np.asarray(one) for one in prediction.quantiles([0.05, 0.95]))
        density = np.asarray(prediction.log_density(jnp.asarray(wanted, prediction.mean.dtype)))
        numbers = (
            noise,
            float(density.mean()),
            float(np.mean((low <= wanted) & (wanted <= high))),
            float(np.sqrt(np.mean(((mean - mean_of_nuts) / sd_of_nuts) ** 2))),
            float(np.exp(np.mean(np.log(sd / sd_of_nuts)))),
            round(time.process_time() - start, 1),
        )
        found.append({"series": name, "engine": engine} | dict(zip(NUMBERS, numbers, strict=True)))
        print(*found[-1].values(), flush=True)
    return found


def run(path=ROWS, names=tuple(SERIES), **effort):
    """Append the series that are not there yet."""
    rows = read(path, NUMBERS)
    for name in names:
        if name not in {row["series"] for row in rows}:
            rows += rows_of(name, **effort)
            save(path, rows)
    return rows


def table(rows):
    """One line for each series and engine."""
    lines = [
        [
            row["series"] + (" (log)" if SERIES[row["series"]][2] else ""),
            row["engine"],
            "" if np.isnan(row["noise"]) else f"{row['noise']:.3g}",
            *(f"{row[number]:.2f}" for number in NUMBERS[1:5]),
            f"{row['seconds']:.0f}",
        ]
        for row in rows
    ]
    return markdown(["series", "engine", *NUMBERS], lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROWS.parent)
    parser.add_argument("--smoke", action="store_true", help="a few draws and steps of the shortest series")
    given = parser.parse_args()
    effort = {"names": ("airline",), "draws": 3, "steps": 3} if given.smoke else {}
    print(table(run(given.out / ROWS.name, **effort)))


if __name__ == "__main__":
    main()
