"""Air quality at the size of Pinder et al. (2020): Stein particles and several NUTS chains on one sparse target.

    export OMP_NUM_THREADS=1 XLA_FLAGS=--xla_cpu_multi_thread_eigen=false
    python -m examples.studies.stein.stein_space_time --data DATA

Monthly NOx at 115 stations of London, 11 718 rows, 300 inducing inputs: the model, the priors and the scores of
`stein_air_quality`, with the function integrated out. Three months are held out, one at a time. A gradient
takes half a second, so both engines start where the target is: at draws of Laplace's approximation at its mode, whose
covariance is the metric of the particles and the mass of the chains. Particles make all of their steps, and "moved" is
how far their means and standard deviations went in the last half, in standard deviations of Laplace's approximation.
"Laplace, 20 draws" are the particles before their first step. Rows that are there are not made again.
"""

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
from jax.flatten_util import ravel_pytree
from numpyro.infer import MCMC, NUTS
from numpyro.infer.util import initialize_model
from scipy.optimize import minimize

import numpyro_gp as ngp
from examples.studies.stein.stein_air_quality import collapsed, days_table, load, maps, over_days, score
from examples.tools.tables import markdown, read, save

FILE = "london_nox_monthly_2000_2017.csv.gz"
NAMES = ("longitude", "latitude", "time", "noise", "variance")  # logarithms of the hyper-parameters
PAIR = ("20 particles", "NUTS, 2 chains")
STARTS = "Laplace, 20 draws"


def laplace(key, X, y, Z, count):
    """Draws ``{site: (count, ...)}`` of Laplace's approximation at the target's mode, and its mode and covariance.

    The mode is of the unconstrained values, the sites in alphabetical order.
    """
    info = initialize_model(key, collapsed, model_args=(X, y, Z))
    start, sites = ravel_pytree(info.param_info.z)
    slope = jax.jit(jax.value_and_grad(lambda z: info.potential_fn(sites(z))))
    both = lambda z: tuple(np.asarray(part) for part in slope(jnp.asarray(z)))  # noqa: E731
    mode = minimize(both, np.asarray(start), jac=True, method="L-BFGS-B", options={"ftol": 1e-12}).x
    steps = 1e-3 * np.eye(len(mode))
    curvature = np.stack([(both(mode + step)[1] - both(mode - step)[1]) / 2e-3 for step in steps])
    covariance = np.linalg.inv((curvature + curvature.T) / 2)
    free = jax.random.multivariate_normal(key, jnp.asarray(mode), jnp.asarray(covariance), (count,))
    return jax.vmap(lambda z: info.postprocess_fn(sites(z)))(free), jax.vmap(sites)(free), covariance


def logs(draws):
    """Logarithms of the hyper-parameters, ``(S, 5)`` in the order of the names."""
    table = np.column_stack([np.asarray(draws[site]) for site in ("lengthscale", "noise", "variance")])
    return np.log(table)


def without_steps(key, count, begin, data):
    """The draws at which particles begin, as they are."""
    X, y, Z = data
    draws = {site: values[:count] for site, values in begin[0].items()}
    posterior = ngp.Posterior.from_mcmc(collapsed, draws)
    return draws, lambda X_new: posterior.predict_at(key, X_new, X, y, Z), {}


def particles(key, count, steps, begin, data):
    """Particles of the hyper-parameters, and how far they moved in the last half of the steps."""
    X, y, Z = data
    constrained, _, covariance = begin
    start = {site: values[:count] for site, values in constrained.items()}
    metric = ngp.stein.Spread(constrained)
    svgd = ngp.stein.SVGD(collapsed, optax.adam(0.05), ngp.stein.IMQ(), count, metric=metric, init_particles=start)
    half = ngp.fit(key, svgd, steps // 2, X, y, Z, progress=False)
    result = ngp.fit(key, svgd, steps, X, y, Z, progress=False, resume=half)
    before, after = (logs(svgd.particles(one.params)) for one in (half, result))
    width = np.sqrt(np.diag(covariance))
    moved = max(np.abs((f(after, 0) - f(before, 0)) / width).max() for f in (np.mean, np.std))
    posterior = ngp.Posterior.from_stein(collapsed, svgd, result.params)
    predict = lambda X_new: posterior.predict_at(key, X_new, X, y, Z)  # noqa: E731
    return svgd.particles(result.params), predict, {"moved": f"{moved:.3f}"}


def chains(key, count, draws, begin, data):
    """Several chains with the curvature as their mass; the largest split R-hat and the least effective sample size."""
    X, y, Z = data
    _, free, covariance = begin
    sites = tuple(sorted(free))
    mass = {sites: jnp.asarray(covariance)}
    kernel = NUTS(collapsed, dense_mass=True, inverse_mass_matrix=mass, adapt_mass_matrix=False)
    sizes = {"num_warmup": draws // 4, "num_samples": draws, "num_chains": count, "chain_method": "sequential"}
    mcmc = MCMC(kernel, **sizes, progress_bar=False)
    mcmc.run(key, X, y, Z, init_params={site: values[-count:] for site, values in free.items()})
    grouped = mcmc.get_samples(group_by_chain=True).values()
    worst = max(float(np.max(numpyro.diagnostics.split_gelman_rubin(np.asarray(own)))) for own in grouped)
    least = min(float(np.min(numpyro.diagnostics.effective_sample_size(np.asarray(own)))) for own in grouped)
    posterior = ngp.Posterior.from_mcmc(collapsed, mcmc)
    predict = lambda X_new: posterior.predict_at(key, X_new, X, y, Z, num_samples=100)  # noqa: E731
    return mcmc.get_samples(), predict, {"r_hat": f"{worst:.3f}", "effective": f"{least:.0f}"}


def engines(options):
    """Function of start and data, by the name of its rows."""
    every = {f"Laplace, {count} draws": (without_steps, count) for count in options.particles}
    every |= {f"{count} particles": (particles, count, options.steps) for count in options.particles}
    return every | {f"NUTS, {options.chains} chains": (chains, options.chains, options.draws)}


def one_day(day, options, rows, path):
    """Rows of a month, for the engines that have none, as they come."""
    X, y, test, units = load(options.file, day)
    key = jax.random.key(0)
    data = X[~test], y[~test], ngp.inducing.kmeans(key, X[~test], options.inducing)
    place = {"day": day, "inducing": options.inducing}
    missing = {name: run for name, run in engines(options).items() if not known(rows, name, place)}
    if not missing:
        return
    print(f"{(~test).sum()} training rows, {test.sum()} held out", flush=True)
    begin = laplace(key, *data, 1000)
    for name, (run, *sizes) in missing.items():
        since = time.process_time()
        draws, predict, how = run(key, *sizes, begin, data)
        found = score(name, day, predict(X[test]), y[test], time.process_time() - since)
        table = logs(draws)
        found |= {f"mean of {one}": f"{value:.4f}" for one, value in zip(NAMES, table.mean(0), strict=True)}
        found |= {f"sd of {one}": f"{value:.4f}" for one, value in zip(NAMES, table.std(0), strict=True)}
        rows.append(found | place | {"rows": len(y), "moved": "", "r_hat": "", "effective": ""} | how)
        save(path, rows)
        if (name, day) == (options.map, options.held_out[0]):
            ends = (np.asarray(X) * units[1] + units[0])[:, :2]
            bounds = [*zip(ends.min(0), ends.max(0), strict=True)]
            maps(predict, X, test, units, day, path.with_suffix(".png"), f"{name}: month {day}", bounds)


def table(rows):
    """Markdown: particles and chains on each month, and the mean over months with its error."""
    return days_table(rows, {name: name for name in PAIR}, "month")


def start_table(rows):
    """Markdown: particles and the draws at which they begin."""
    return days_table(rows, {name: name for name in (PAIR[0], STARTS)}, "month")


def apart(rows):
    """By hyper-parameter, over months: means less those of the chains, in their sd, and ratios of the sd."""
    months, found = over_days(rows, dict.fromkeys(PAIR)), {(row["day"], row["engine"]): row for row in rows}

    def values(name, month):
        (m, s), (mean, sd) = (
            [float(found[month, one][f"{what} of {name}"]) for what in ("mean", "sd")] for one in PAIR
        )
        return (m - mean) / sd, s / sd

    return {name: np.array([values(name, month) for month in months]).T for name in NAMES}


def beside_chains(rows):
    """Markdown: means and standard deviations of particles beside those of the chains, a number for each month."""
    lines = [[name, *(", ".join(f"{one:.2f}" for one in own) for own in both)] for name, both in apart(rows).items()]
    return markdown(["logarithm of", "mean less that of NUTS, in its sd", "sd over that of NUTS"], lines)


def known(rows, name, place):
    """Whether there is a row of an engine and a month."""
    place = {key: str(value) for key, value in place.items()} | {"engine": name}
    return any(all(str(row[key]) == value for key, value in place.items()) for row in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "data", help="folder of data sets")
    parser.add_argument("--inducing", type=int, default=300)
    parser.add_argument("--particles", type=int, nargs="+", default=[20])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--chains", type=int, default=2)
    parser.add_argument("--draws", type=int, default=200, help="of each chain, after a quarter as many to warm up")
    parser.add_argument("--held-out", type=int, nargs="+", default=[54, 108, 162], help="months, each alone")
    parser.add_argument("--map", default=PAIR[0], help="the engine whose map of the first month is drawn")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    options.file = options.data / "spatiotemporal" / FILE
    if options.smoke:
        options.file = Path(__file__).parents[2] / "data" / "aurn_nox_daily_2019_02.csv.gz"
        options.held_out, options.inducing, options.particles, options.steps, options.draws = [5], 10, [4], 4, 8
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "stein_space_time.csv"
    rows = read(path)
    for day in options.held_out:
        one_day(day, options, rows, path)
    if not options.smoke:
        print(table(rows), beside_chains(rows), sep="\n")


if __name__ == "__main__":
    main()
