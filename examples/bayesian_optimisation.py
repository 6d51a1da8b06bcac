"""Bayesian optimisation of two test functions: Thompson sampling and expected improvement beside random search.

    python -m examples.bayesian_optimisation [--evaluations 40] [--repeats 5]

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
from numpyro.infer.util import log_density

import numpyro_gp as ngp
from examples.tables import save

A = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
P = [[1312, 1696, 5569, 124, 8283, 5886], [2329, 4135, 8307, 3736, 1004, 9991]]
P = 1e-4 * np.array([*P, [2348, 1451, 3522, 2883, 3047, 6650], [4047, 8828, 8732, 5743, 1091, 381]])


def branin(x):
    a, b = 15 * x[0] - 5, 15 * x[1]
    return -((b - 5.1 / (4 * np.pi**2) * a**2 + 5 / np.pi * a - 6) ** 2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(a) + 10)


def hartmann(x):
    return np.array([1.0, 1.2, 3.0, 3.2]) @ np.exp(-np.sum(A * (x - P) ** 2, axis=1))


FUNCTIONS = {"Branin": (branin, 2, -0.397887), "Hartmann-6": (hartmann, 6, 3.32237)}


def model(X, y, noise):
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(jnp.log(0.4), 0.5).expand([X.shape[1]]).to_event(1))
    variance = numpyro.sample("variance", dist.LogNormal(0.0, 1.0))
    ngp.gp_regression("y", ngp.kernels.Matern52(variance, lengthscale), X, noise, obs=y)


@jax.jit
def most_probable(*data):
    """Hyper-parameters of largest posterior density, by 100 steps of Adam on their logarithms."""
    optimiser, start = optax.adam(0.05), {"lengthscale": jnp.log(0.4) * jnp.ones(data[0].shape[1]), "variance": 0.0}
    loss = lambda logs: -log_density(model, data, {}, jax.tree.map(jnp.exp, logs))[0]  # noqa: E731

    def step(carry, _):
        change, state = optimiser.update(jax.grad(loss)(carry[0]), carry[1])
        return (optax.apply_updates(carry[0], change), state), None

    start = jax.tree.map(jnp.asarray, start)
    (logs, _), _ = jax.lax.scan(step, (start, optimiser.init(start)), None, length=100)
    return jax.tree.map(jnp.exp, logs)


def propose(kind, key, X, y, count):
    """The next input, from ``count`` evaluations; rows still empty have a noise that hides them, so shapes stay."""
    keys, seen = jax.random.split(key), np.arange(len(y)) < count
    scaled = np.where(seen, (y - y[:count].mean()) / y[:count].std(), 0.0)
    data = tuple(map(jnp.asarray, (X, scaled, np.where(seen, 1e-4, 1e8))))
    posterior = ngp.Posterior.from_mcmc(model, jax.tree.map(lambda value: value[None], most_probable(*data)))
    candidates = jax.random.uniform(keys[0], (2000, X.shape[1]))
    if kind == "expected improvement":
        found = posterior.predict_at(keys[1], candidates, *data, noise=1e-12)
        scale, gain = jnp.sqrt(found.variance), found.mean - scaled[:count].max()
        return candidates[jnp.argmax(gain * norm.cdf(gain / scale) + scale * norm.pdf(gain / scale))]
    f = posterior.functions(keys[1], 1, *data, num_features=1024)
    x = candidates[jnp.argsort(-f(candidates)[0])[:10]]
    for _ in range(20):  # climb from the ten best, with the function's own gradient
        slope = f.gradient(x)[0]
        x = jnp.clip(x + 0.01 * slope / (1 + jnp.abs(slope)), 0, 1)
    return x[jnp.argmax(f(x)[0])]


def regrets(kind, function, size, best, evaluations, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(evaluations, size))  # the first five are the start; random search keeps them all
    y = np.array([function(x) if kind == "random search" or n < 5 else 0.0 for n, x in enumerate(X)])
    for n in range(5, evaluations if kind != "random search" else 5):
        X[n] = propose(kind, jax.random.fold_in(jax.random.key(seed), n), X, y, n)
        y[n] = function(X[n])
    return best - np.maximum.accumulate(y)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evaluations", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "output")
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    evaluations, repeats = (7, 1) if args.smoke else (args.evaluations, args.repeats)
    jax.config.update("jax_enable_x64", True)
    args.out.mkdir(parents=True, exist_ok=True)
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    rows = []
    for ax, (name, (function, size, best)) in zip(axes, FUNCTIONS.items(), strict=True):
        for number, kind in enumerate(["Thompson sampling", "expected improvement", "random search"]):
            runs = np.array([regrets(kind, function, size, best, evaluations, seed) for seed in range(repeats)])
            ax.semilogy(
                np.arange(1, evaluations + 1), np.median(runs, axis=0), label=kind, color=ngp.plots.COLOURS[number]
            )
            low, high = runs.min(axis=0), runs.max(axis=0)
            ax.fill_between(np.arange(1, evaluations + 1), low, high, color=ngp.plots.COLOURS[number], alpha=0.15, lw=0)
            rows.append({"function": name, "method": kind, "median": np.median(runs[:, -1]), "worst": high[-1]})
            print(f"{name:12s}{kind:22s} regret after {evaluations}: {rows[-1]['median']:.4f}, worst {high[-1]:.4f}")
        ax.set(title=name, xlabel="evaluations", ylabel="best optimum minus best value" if ax is axes[0] else "")
    axes[0].legend(fontsize="small", loc="upper right")
    figure.savefig(args.out / "bayesian_optimisation.png", dpi=150)
    save(args.out / "bayesian_optimisation.csv", rows)


if __name__ == "__main__":
    main()
