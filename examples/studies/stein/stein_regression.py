"""Stein variational GP regression: particles over hyper-parameters, beside NUTS, natural-gradient VI and one point.

    python -m examples.studies.stein.stein_regression                                  # two small sets, some minutes
    python -m examples.studies.stein.stein_regression --data ../shared/data --sets autompg servo machine --splits 5

Rows are written one by one, and a row that the table has is not made again.

The function is integrated out exactly (`gp_regression`); particles and draws carry lengthscales, variance and noise.
"variational, 2 starts" mixes the predictions of two fits, the second from a draw of the prior. "stein" is one kernel
for all coordinates and a fixed number of steps; "stein.auto" is `ngp.stein.auto`, which stops by its own rule.
Splits are 70/30, inputs and targets standardised over the whole set as in Pinder et al. 2020. Sets of more than
``--exact`` training rows use the collapsed bound with 200 k-means inducing inputs, for every method.
"""

import argparse
import functools
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import MCMC, SVI, Trace_ELBO, init_to_median, init_to_sample, init_to_value
from numpyro.infer.autoguide import AutoDelta

import numpyro_gp as ngp
from examples.tools import datasets
from examples.tools.run_queue import version
from examples.tools.tables import (
    bold,
    direction,
    half_width,
    markdown,
    mean_and_error,
    means,
    of_mean,
    read,
    save,
    with_error,
)

matplotlib.use("Agg")
ENOUGH = 3  # splits for a verdict
PAPER_SETS = "airfoil concrete housing autompg challenger concreteslump gas machine servo skillcraft winered winewhite"
START = {"variance": 1.0, "noise": 0.3}


def hyper_parameters(columns, flat):
    """Lengthscales, variance and noise scale; ``flat`` puts improper priors in place of the log-normal ones."""

    def prior(mean, shape):
        if flat:
            return dist.ImproperUniform(dist.constraints.positive, shape, ())
        return dist.LogNormal(mean, 1.0).expand(shape)

    lengthscale = numpyro.sample("lengthscale", prior(0.5, (columns,)).to_event(1))
    return lengthscale, numpyro.sample("variance", prior(0.0, ())), numpyro.sample("noise", prior(-1.0, ()))


def regression(X, y, Z=None, flat=False):
    """Gaussian data with the function integrated out."""
    lengthscale, variance, noise = hyper_parameters(X.shape[1], flat)
    kernel = ngp.kernels.Matern32(variance, lengthscale)
    return ngp.gp_regression("y", kernel, X, noise_variance=noise**2, inducing=Z, obs=y, jitter=1e-6), noise


def sparse(X, y=None, Z=None):
    """The same with an explicit GP site, for the variational fit."""
    lengthscale, variance, noise = hyper_parameters(X.shape[1], False)
    f = ngp.gp("f", ngp.kernels.Matern32(variance, lengthscale), Z)
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(noise), obs=y)


def fit_stein(key, particles, steps, X, y, Z):
    svgd = ngp.stein.SVGD(regression, optax.adam(0.05), ngp.stein.RBF(), particles)
    return svgd.particles(ngp.fit(key, svgd, steps, X, y, Z, progress=False).params)


def fit_auto(key, particles, X, y, Z):
    svgd, result = ngp.stein.auto(key, regression, X, y, Z, num_particles=particles)
    return svgd.particles(result.params)


def fit_maximum_likelihood(key, steps, X, y, Z):
    start = {**{name: jnp.asarray(value) for name, value in START.items()}, "lengthscale": jnp.full(X.shape[1], 1.5)}
    guide = AutoDelta(regression, init_loc_fn=init_to_value(values=start))
    svi = SVI(regression, guide, optax.adam(0.05), Trace_ELBO())
    params = ngp.fit(key, svi, steps, X, y, Z, flat=True, progress=False).params
    return jax.tree.map(lambda leaf: leaf[None], guide.median(params))


def fit_nuts(key, draws, X, y, Z):
    mcmc = MCMC(ngp.NUTS(regression), num_warmup=draws, num_samples=draws, progress_bar=False)
    mcmc.run(key, X, y, Z)
    return mcmc


def fit_variational(key, steps, X, y, Z, X_test, y_test, starts=1):
    """Means and log densities of the test rows, by equal weights where there are several starts."""
    Z = X if Z is None else Z
    predictions = []
    for strategy in (init_to_median, init_to_sample)[:starts]:
        rest = functools.partial(AutoDelta, init_loc_fn=strategy)
        guide = ngp.AutoGP(sparse, {"f": ngp.guides.coupled(natural=True)}, rest)
        svi = SVI(sparse, guide, ngp.optim.natural_gradient(optax.adam(0.05), 1.0), Trace_ELBO())
        params = ngp.fit(key, svi, steps, X, y, Z=Z, progress=False).params
        predictions.append(ngp.Posterior.from_svi(sparse, guide, params).predict(key, X_test, Z=Z))
    means = [prediction.mean for prediction in predictions]
    densities = jnp.stack([prediction.log_density(y_test) for prediction in predictions])
    return sum(means) / starts, jax.nn.logsumexp(densities, axis=0) - jnp.log(starts)


def methods(options):
    """Names of the methods, and what runs them: ``(key, X, y, Z, X_test, y_test)`` to means and log densities."""

    def mixture(fit):  # of equal weights over values of the hyper-parameters (mathematics.md section 11.1)
        def run(key, X, y, Z, X_test, y_test):
            prediction = ngp.Posterior.from_mcmc(regression, fit(key, X, y, Z)).predict_at(key, X_test, X, y, Z)
            return prediction.mean, prediction.log_density(y_test)

        return run

    steps = options.steps
    found = {
        f"stein, {count} particles": mixture(lambda key, *data, count=count: fit_stein(key, count, steps, *data))
        for count in options.particles
    }
    found |= {
        f"stein.auto, {count} particles": mixture(lambda key, *data, count=count: fit_auto(key, count, *data))
        for count in options.auto
    }
    found["maximum likelihood"] = mixture(lambda key, *data: fit_maximum_likelihood(key, steps, *data))
    found["variational"] = lambda key, *data: fit_variational(key, steps, *data)
    found["variational, 2 starts"] = lambda key, *data: fit_variational(key, steps, *data, starts=2)
    found["NUTS"] = mixture(lambda key, *data: fit_nuts(key, options.draws, *data))
    return {name: run for name, run in found.items() if name not in options.without}


def rows_of(name, split, options, known):
    """Rows of one split, one for each method that has none among ``known``, as they come."""
    X, y, _ = datasets.load(name, options.data)
    X, y = datasets.standardise(X), datasets.standardise(y[:, None])[:, 0]
    X = X[:, X.std(0) > 0]
    order = np.random.default_rng(split).permutation(len(y))[: options.rows]
    size = int(0.7 * len(order))
    train, test = order[:size], order[size:]
    X, X_test, y, y_test = (jnp.asarray(part) for part in (X[train], X[test], y[train], y[test]))
    key = jax.random.key(split)
    Z = ngp.inducing.kmeans(key, X, 200) if size > options.exact else None
    for method, run in methods(options).items():
        if (name, split, method) in known:
            continue
        start = time.process_time()
        mean, density = run(key, X, y, Z, X_test, y_test)
        yield {
            "dataset": name, "rows": len(order), "split": split, "method": method,
            "steps": {"NUTS": 2 * options.draws}.get(method, "" if "auto" in method else options.steps),
            "log_density": float(density.mean()), "rmse": float(jnp.sqrt(jnp.mean((mean - y_test) ** 2))),
            "seconds": round(time.process_time() - start, 2), "version": version(),
        }  # fmt: skip


def figure(rows, path):
    """By how much the leading method is ahead of three others, on sets with enough splits, with 95 % intervals."""
    import matplotlib.pyplot as plt

    enough = with_enough(rows)
    found = within_splits(enough or rows, ENOUGH if enough else 1)
    found = {name: found[name] for name in ("maximum likelihood", "variational", "NUTS") if found.get(name)}
    sets = list(dict.fromkeys(name for own in found.values() for name in own))
    drawn, axis = plt.subplots(figsize=(7.0, 0.6 + 0.42 * max(len(sets), 2)), layout="constrained")
    for number, (method, own) in enumerate(found.items()):
        at = [len(sets) - 1 - sets.index(name) + 0.2 * (1 - number) for name in own]
        means, errors = np.array([of_mean(gaps) for gaps in own.values()]).T
        widths = [half_width(error, len(gaps)) for error, gaps in zip(errors, own.values(), strict=True)]
        look = {"fmt": "sDo"[number], "ms": 4, "capsize": 2, "color": ("#D55E00", "#E69F00", "#0072B2")[number]}
        axis.errorbar(means, at, xerr=np.nan_to_num(widths), label=method, **look)
    axis.axvline(0.0, color="0.6", lw=0.8)
    axis.set_xscale("symlog", linthresh=0.01)
    axis.set(yticks=range(len(sets)), xlabel=f"nats per test row that {leading(rows)} are ahead of another method")
    axis.set_yticklabels(reversed(sets))
    axis.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    drawn.savefig(path, dpi=110)
    plt.close(drawn)


def leading(rows, column="method"):
    """The method that others are compared with: the most particles, of `ngp.stein.auto` where there are some."""
    names = {row[column] for row in rows if row[column].startswith("stein")}
    return max(names, key=lambda name: (name.startswith("stein.auto"), int(name.split()[1])))


def with_enough(rows):
    """Rows of the sets on which the leading method has enough splits: fewer have no verdict."""
    splits, most = {}, leading(rows)
    for row in rows:
        if row["method"] == most:
            splits.setdefault(row["dataset"], set()).add(row["split"])
    return [row for row in rows if len(splits.get(row["dataset"], ())) >= ENOUGH]


def within_splits(rows, least=1):
    """Log densities of the leading method less those of every other one, ``{other: {set: [difference of a split]}}``.

    Sets of which both have fewer than ``least`` splits in common are left out.
    """
    names = list(dict.fromkeys(row["method"] for row in rows))
    most, found = leading(rows), {}
    score = {(row["dataset"], row["split"], row["method"]): row["log_density"] for row in rows}
    for name, split, method in sorted(score, key=lambda place: names.index(place[2])):
        if method != most and (name, split, most) in score:
            gap = float(score[name, split, most]) - float(score[name, split, method])
            found.setdefault(method, {}).setdefault(name, []).append(gap)
    return {method: {name: gaps for name, gaps in own.items() if len(gaps) >= least} for method, own in found.items()}


def paired(rows):
    """`within_splits` as means and their errors."""
    found = within_splits(rows)
    return {method: {name: of_mean(gaps) for name, gaps in own.items()} for method, own in found.items()}


def paired_table(rows):
    """`paired` in markdown, with the mean over sets and its error; bold by a t test at 5 %, of enough splits."""
    found = within_splits(rows)
    has = {name for own in found.values() for name in own}
    sets, lines = [name for name in dict.fromkeys(row["dataset"] for row in rows) if name in has], []
    for name in sets:
        lines.append([name, *(marked(own[name], ENOUGH) if name in own else "" for own in found.values())])
    lines.append(["over sets", *(marked([of_mean(gaps)[0] for gaps in own.values()]) for own in found.values())])
    return markdown(["dataset", *found], lines)


def seconds_table(rows):
    """Markdown: seconds of each fit, compilation included, means over splits; the least of a set is bold."""
    found = means(rows, "dataset", "method", "seconds")
    lines = []
    for name in dict.fromkeys(row["dataset"] for row in rows):
        own = {method: found[method][name] for method in found if name in found[method]}
        texts = {method: bold(f"{value:#.2g}".rstrip("."), value == min(own.values())) for method, value in own.items()}
        lines.append([name, *(texts.get(method, "") for method in found)])
    return markdown(["seconds", *found], lines)


def one_kernel(rows):
    """Rows without `ngp.stein.auto`."""
    return [row for row in rows if not row["method"].startswith("stein.auto")]


def marked(values, least=2):
    """``mean ± error``, bold where there are ``least`` values and a t test at 5 % sees a difference."""
    return bold(with_error(*of_mean(values)), len(values) >= least and direction(values))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=str(datasets.HERE), help="folder of data sets (../shared/data has all)")
    parser.add_argument("--sets", nargs="+", default=["challenger", "autompg"], help=f"any of {PAPER_SETS}")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--particles", type=int, nargs="+", default=[2, 5, 10, 20])
    parser.add_argument("--auto", type=int, nargs="*", default=[2, 20], help="numbers of particles of stein.auto")
    parser.add_argument("--draws", type=int, default=200, help="of NUTS, after as many of warm-up")
    parser.add_argument("--without", nargs="+", default=[], help="methods to leave out")
    parser.add_argument("--exact", type=int, default=600, help="most training rows without inducing inputs")
    parser.add_argument("--rows", type=int, default=None, help="use at most so many rows of each set")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "output")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    if options.smoke:
        options.sets, options.splits, options.steps, options.particles = ["challenger"], 1, 20, [3]
        options.draws, options.auto = 10, [2]
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "stein_regression.csv"
    rows = read(path, ("log_density", "rmse", "seconds"))
    known = {(row["dataset"], row["split"], row["method"]) for row in rows}
    for name in options.sets:
        for split in range(options.splits):
            for row in rows_of(name, split, options, known):
                rows.append(row)
                save(path, rows)
                print(
                    f"{name}, split {split}, {row['method']}: {row['log_density']:.4f}, {row['seconds']} s", flush=True
                )
    table = mean_and_error(rows, ("dataset", "method"), ("log_density", "rmse", "seconds"))
    print(f"{'data set':14s} {'method':22s} {'log density':>18s} {'RMSE':>18s} {'seconds':>9s}")
    for (name, method), cells in table.items():
        (d, de), (r, re), (t, _) = (cells[metric] for metric in ("log_density", "rmse", "seconds"))
        print(f"{name:14s} {method:22s} {d:9.3f} +- {de:5.3f} {r:9.3f} +- {re:5.3f} {t:9.1f}")
    figure(rows, options.out / "stein_regression.png")
    print(f"\nLog density of {leading(rows)} less that of others, paired by split\n\n{paired_table(rows)}")


if __name__ == "__main__":
    main()
