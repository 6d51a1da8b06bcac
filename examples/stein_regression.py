"""Stein variational GP regression: particles over hyper-parameters, beside natural-gradient VI and maximum likelihood.

    python -m examples.stein_regression                                  # two small sets, some minutes
    python -m examples.stein_regression --data ../shared/data --sets airfoil autompg servo machine --splits 5

The function is integrated out exactly (`gp_regression`); the particles carry lengthscales, variance and noise.
Splits are 70/30, inputs and targets standardised over the whole set as in Pinder et al. 2020. Sets of more than
``--exact`` training rows use the collapsed bound with 200 k-means inducing inputs, for every method.
"""

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO, init_to_value
from numpyro.infer.autoguide import AutoDelta

import numpyro_gp as ngp
from examples import datasets
from examples.tables import mean_and_error, of_mean, save

matplotlib.use("Agg")
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
    return ngp.gp_regression("y", kernel, X, noise**2, inducing=Z, obs=y, jitter=1e-6), noise


def sparse(X, y=None, Z=None):
    """The same with an explicit GP site, for the variational fit."""
    lengthscale, variance, noise = hyper_parameters(X.shape[1], False)
    f = ngp.gp("f", ngp.kernels.Matern32(variance, lengthscale), Z)
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(noise), obs=y)


def fit_stein(key, particles, steps, X, y, Z):
    svgd = ngp.stein.SVGD(regression, optax.adam(0.05), ngp.stein.RBF(), particles)
    return svgd.particles(ngp.fit(key, svgd, steps, X, y, Z, progress=False).params)


def fit_maximum_likelihood(key, steps, X, y, Z):
    start = {**{name: jnp.asarray(value) for name, value in START.items()}, "lengthscale": jnp.full(X.shape[1], 1.5)}
    guide = AutoDelta(regression, init_loc_fn=init_to_value(values=start))
    svi = SVI(regression, guide, optax.adam(0.05), Trace_ELBO())
    params = ngp.fit(key, svi, steps, X, y, Z, flat=True, progress=False).params
    return jax.tree.map(lambda leaf: leaf[None], guide.median(params))


def fit_variational(key, steps, X, y, Z, X_test, y_test):
    guide = ngp.AutoGP(sparse, {"f": ngp.guides.coupled(natural=True)})
    svi = SVI(sparse, guide, ngp.optim.natural_gradient(optax.adam(0.05), 1.0), Trace_ELBO())
    params = ngp.fit(key, svi, steps, X, y, Z=X if Z is None else Z, progress=False).params
    posterior = ngp.Posterior.from_svi(sparse, guide, params)
    prediction = posterior.predict(key, X_test, Z=X if Z is None else Z)
    return prediction.mean, prediction.log_density(y_test)


def one_split(name, split, options):
    """Rows of results: one for each method."""
    X, y, _ = datasets.load(name, options.data)
    X, y = datasets.standardise(X), datasets.standardise(y[:, None])[:, 0]
    X = X[:, X.std(0) > 0]
    order = np.random.default_rng(split).permutation(len(y))[: options.rows]
    size = int(0.7 * len(order))
    train, test = order[:size], order[size:]
    X, X_test, y, y_test = (jnp.asarray(part) for part in (X[train], X[test], y[train], y[test]))
    key = jax.random.key(split)
    Z = ngp.inducing.kmeans(key, X, 200) if size > options.exact else None
    methods = {
        f"stein, {n} particles": (lambda n=n: fit_stein(key, n, options.steps, X, y, Z)) for n in options.particles
    }
    methods["maximum likelihood"] = lambda: fit_maximum_likelihood(key, options.steps, X, y, Z)
    rows = []
    for method, run in methods.items():
        start = time.perf_counter()
        # The equal mixture over the values of the hyper-parameters (mathematics.md section 11.1).
        prediction = ngp.Posterior.from_mcmc(regression, run()).predict_at(key, X_test, X, y, Z)
        mean, density = prediction.mean, prediction.log_density(y_test)
        rows.append((method, mean, density, time.perf_counter() - start))
    start = time.perf_counter()
    mean, density = fit_variational(key, options.steps, X, y, Z, X_test, y_test)
    rows.append(("variational", mean, density, time.perf_counter() - start))
    return [
        {
            "dataset": name, "rows": len(order), "split": split, "method": method, "steps": options.steps,
            "log_density": float(density.mean()), "rmse": float(jnp.sqrt(jnp.mean((mean - y_test) ** 2))),
            "seconds": round(seconds, 2),
        }
        for method, mean, density, seconds in rows
    ]  # fmt: skip


def figure(table, path):
    """One panel for each data set: mean and standard error of every method."""
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(name for name, _ in table))
    methods = list(dict.fromkeys(method for _, method in table))
    columns = min(4, len(names))
    rows = -(-len(names) // columns)
    size = (2.6 * columns + 1.4, 2.3 * rows)
    fig, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False, sharey=True)
    for ax, name in zip(axes.flat, names, strict=False):
        for height, method in enumerate(methods):
            if (name, method) not in table:  # sets may have other numbers of particles
                continue
            value, error = table[name, method]["log_density"]
            ours = method.startswith("stein")
            look = {"fmt": "o" if ours else "s", "color": "#0072B2" if ours else "#D55E00"}
            ax.errorbar(value, height, xerr=0 if np.isnan(error) else error, **look)
        ax.set(yticks=range(len(methods)), yticklabels=methods, title=name)
        ax.locator_params(axis="x", nbins=4)
    for ax in axes.flat[len(names) :]:
        ax.set_visible(False)
    fig.supxlabel("test log density (nats for each datum), standard error over splits")
    fig.savefig(path, dpi=120)
    plt.close(fig)


def diagnose(rows):
    """State, by data set, whether the claims of the paper hold here, from differences within each split."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    most = [method for method in methods if method.startswith("stein")][-1]
    score = {(row["dataset"], row["split"], row["method"]): row["log_density"] for row in rows}
    print(f"\n{most} minus others, test log density, paired by split (mean, standard error; * above two errors)")
    for name in dict.fromkeys(row["dataset"] for row in rows):
        splits, cells = sorted({row["split"] for row in rows if row["dataset"] == name}), []
        for other in (method for method in methods if method != most):
            gap, error = of_mean([score[name, split, most] - score[name, split, other] for split in splits])
            mark = "*" if abs(gap) > 2 * error else ""
            cells.append(f"{other} {gap:+.3f} +- {error:.3f}{mark}")
        print(f"{name:14s} " + ", ".join(cells))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=str(datasets.HERE), help="folder of data sets (../shared/data has all)")
    parser.add_argument("--sets", nargs="+", default=["challenger", "autompg"], help=f"any of {PAPER_SETS}")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--particles", type=int, nargs="+", default=[2, 5, 10, 20])
    parser.add_argument("--exact", type=int, default=600, help="most training rows without inducing inputs")
    parser.add_argument("--rows", type=int, default=None, help="use at most so many rows of each set")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "output")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    if options.smoke:
        options.sets, options.splits, options.steps, options.particles = ["challenger"], 1, 20, [2, 5]
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in options.sets:
        for split in range(options.splits):
            rows += one_split(name, split, options)
            save(options.out / "stein_regression.csv", rows)
            print(f"{name}, split {split + 1} of {options.splits} done", flush=True)
    table = mean_and_error(rows, ("dataset", "method"), ("log_density", "rmse", "seconds"))
    print(f"{'data set':14s} {'method':22s} {'log density':>18s} {'RMSE':>18s} {'seconds':>9s}")
    for (name, method), cells in table.items():
        (d, de), (r, re), (t, _) = (cells[metric] for metric in ("log_density", "rmse", "seconds"))
        print(f"{name:14s} {method:22s} {d:9.3f} +- {de:5.3f} {r:9.3f} +- {re:5.3f} {t:9.1f}")
    figure(table, options.out / "stein_regression.png")
    diagnose(rows)


if __name__ == "__main__":
    main()
