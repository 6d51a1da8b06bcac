"""Bayesian optimisation by Thompson sampling and by expected improvement, beside random search.

    python -m examples.bayesian_optimisation [--evaluations 30] [--repeats 3]

Thompson sampling climbs one function of the posterior, which `Posterior.functions` makes a function like any other.
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
from jax.scipy.stats import norm
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp
from examples.tools.landscapes import LANDSCAPES
from examples.tools.tables import save


def model(X, y, noise):
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(jnp.log(0.4), 0.5).expand([X.shape[1]]).to_event(1))
    variance = numpyro.sample("variance", dist.LogNormal(0.0, 1.0))
    ngp.gp_regression("y", ngp.kernels.Matern52(variance, lengthscale), X, noise, obs=y)


def propose(kind, engine, key, X, y, count):
    """The next input, from ``count`` evaluations; rows still empty have a noise that hides them, so shapes stay."""
    seen, keys = np.arange(len(y)) < count, jax.random.split(key, 4)
    scaled = np.where(seen, (y - y[:count].mean()) / y[:count].std(), 0.0)
    data = (X, scaled, np.where(seen, 1e-4, 1e8))
    result = ngp.fit(keys[0], engine, 100, *data, progress=False)
    posterior = result.posterior()
    near = X[np.argmax(y[:count])] + 0.1 * jax.random.normal(keys[3], (1000, X.shape[1]))
    x = jnp.concatenate([jax.random.uniform(keys[1], near.shape), jnp.clip(near, 0, 1)])
    if kind == "expected improvement":
        found = posterior.predict_at(keys[2], x, *data, noise_variance=1e-12)
        scale, gain = jnp.sqrt(found.variance), found.mean - scaled[:count].max()
        return x[jnp.argmax(gain * norm.cdf(gain / scale) + scale * norm.pdf(gain / scale))]
    f = posterior.functions(keys[2], 1, *data, num_features=1024)
    x = x[jnp.argsort(-f(x)[0])[:10]]
    for _ in range(20):  # climb from the ten best, with the function's own gradient
        slope = f.gradient(x)[0]
        x = jnp.clip(x + 0.01 * slope / (1 + jnp.abs(slope)), 0, 1)
    return x[jnp.argmax(f(x)[0])]


def regrets(kind, landscape, evaluations, seed):
    """Best value there is minus the best so far, after each evaluation; the first five are random."""
    function, size, best = landscape
    X, start = np.random.default_rng(seed).uniform(size=(evaluations, size)), 5
    y = np.array([function(x) if kind == "random search" or n < start else 0.0 for n, x in enumerate(X)])
    engine = SVI(model, ngp.AutoGP(model), optax.adam(0.05), Trace_ELBO())
    for n in range(start, 0 if kind == "random search" else evaluations):
        X[n] = propose(kind, engine, jax.random.fold_in(jax.random.key(seed), n), X, y, n)
        y[n] = function(X[n])
    return best - np.maximum.accumulate(y)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evaluations", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "output")
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    evaluations, repeats = (6, 1) if args.smoke else (args.evaluations, args.repeats)
    jax.config.update("jax_enable_x64", True)
    args.out.mkdir(parents=True, exist_ok=True)
    rows, axis = [], np.arange(1, evaluations + 1)
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
    for ax, (name, landscape) in zip(axes, LANDSCAPES.items(), strict=True):
        for n, kind in enumerate(["Thompson sampling", "expected improvement", "random search"]):
            runs = np.array([regrets(kind, landscape, evaluations, seed) for seed in range(repeats)])
            last, look = runs[:, -1], {"color": ngp.plots.COLOURS[n if n < 2 else 3]}
            ax.semilogy(axis, np.median(runs, axis=0), ls=("-", "--", ":")[n], label=kind, **look)
            ax.fill_between(axis, runs.min(axis=0), runs.max(axis=0), alpha=0.15, lw=0, **look)
            rows.append({"function": name, "method": kind, "median": np.median(last), "worst": last.max()})
            print(*rows[-1].values(), flush=True)
        ax.set(title=name, xlabel="evaluations")
    axes[0].set_ylabel("best value there is, minus best so far")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, fontsize="small")
    figure.savefig(args.out / "bayesian_optimisation.png", dpi=150)
    save(args.out / "bayesian_optimisation.csv", rows)


if __name__ == "__main__":
    main()
