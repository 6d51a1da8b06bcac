"""A posterior with two modes: their masses by a grid, by particles and their weights, and by chains of NUTS.

    python -m examples.two_modes            # two minutes; --smoke for a few seconds

Data of a wave and a ripple, 25 rows without noise: either the ripple is signal and lengthscales are short, or it is
noise and they are long. A row for each seed of each method has the mass of long lengthscales, and what it rests on:
draws that count of the weights, and of NUTS the mass of each of four chains.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import MCMC, init_to_sample
from scipy import stats

import numpyro_gp as ngp
from examples.tools.tables import markdown, save

X = np.linspace(-4, 4, 25)
Y = 1.39 * np.sin(0.55 * X + 3.0) + 0.164 * np.sin(5.35 * X + 0.8)
BETWEEN = 0.3  # log lengthscale between the modes


def model(X, y):
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0))
    noise = numpyro.sample("noise", dist.LogNormal(-2.0, 1.5))
    ngp.gp_regression("y", ngp.kernels.RBF(1.0, lengthscale), X, noise**2, obs=y)


def by_grid(lengthscales=241, noises=161):
    """The mass by a grid over both logarithms, in NumPy. At 61 by 81 the short mode falls between its points: 0.545."""
    logs, log_noises = np.linspace(-3, 3, lengthscales), np.linspace(-10, 1.5, noises)
    table = np.zeros((lengthscales, noises))
    for row, log_lengthscale in enumerate(logs):
        values, vectors = np.linalg.eigh(np.exp(-((X[:, None] - X) ** 2) / (2 * np.exp(2 * log_lengthscale))))
        spectrum = np.maximum(values, 0)[None, :] + np.exp(2 * log_noises)[:, None]
        table[row] = -0.5 * (np.log(spectrum) + (vectors.T @ Y) ** 2 / spectrum).sum(1)
    table += stats.norm.logpdf(logs, 0, 1)[:, None] + stats.norm.logpdf(log_noises, -2, 1.5)
    weights = np.exp(table - table.max())
    return weights[logs > BETWEEN].sum() / weights.sum()


def is_long(samples):
    return np.log(np.asarray(samples["lengthscale"])) > BETWEEN


def by_particles(seed, data, steps):
    """Share of the particles, their weight, and how many draws it rests on."""
    svgd = ngp.stein.SVGD(model, optax.adam(0.05), ngp.stein.RBF(), 20)
    params = ngp.fit(jax.random.key(seed), svgd, steps, *data, progress=False).params
    long, found = is_long(svgd.particles(params)), ngp.stein.weights(jax.random.key(seed + 50), svgd, params, *data)
    return long.mean(), np.asarray(found.weights)[long].sum(), float(found.effective_sample_size)


def by_chains(seed, data, draws):
    """The mass in each of four chains that start at draws of the prior."""
    kernel = ngp.NUTS(model, init_strategy=init_to_sample)
    options = {"num_warmup": draws, "num_samples": draws, "num_chains": 4, "chain_method": "vectorized"}
    mcmc = MCMC(kernel, **options, progress_bar=False)
    mcmc.run(jax.random.key(seed), *data)
    return is_long(mcmc.get_samples(group_by_chain=True)).mean(axis=1)


def table(rows):
    """Markdown: the mass of long lengthscales by method and seed, and of NUTS that of each chain."""
    seeds = sorted({row["seed"] for row in rows})
    lines = []
    for method in dict.fromkeys(row["method"] for row in rows):
        own = {row["seed"]: row for row in rows if row["method"] == method}
        column = "rests_on" if method.startswith("NUTS") else "mass"
        lines.append([method, *(own[seed][column] if seed in own else "" for seed in seeds)])
    return markdown(["mass of long lengthscales", *(f"seed {seed}" for seed in seeds)], lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("examples/results"), help="folder of the rows")
    parser.add_argument("--smoke", action="store_true", help="one seed and few draws, to see that it runs")
    options = parser.parse_args()
    seeds, steps, draws = (1, 100, 5) if options.smoke else (options.seeds, 500, 500)
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    data, rows = (jnp.asarray(X)[:, None], jnp.asarray(Y)), []

    def add(method, seed, mass, rests_on):
        rows.append({"method": method, "seed": seed, "mass": f"{mass:.3f}", "rests_on": rests_on})
        save(options.out / "two_modes.csv", rows)
        print(*rows[-1].values(), flush=True)

    add("grid", 0, by_grid(), "")
    for seed in range(seeds):
        share, weight, count = by_particles(seed, data, steps)
        add("share of particles", seed, share, "20")
        add("weights of particles", seed, weight, f"{count:.0f}")
        chains = by_chains(seed, data, draws)
        add("NUTS, four chains", seed, chains.mean(), " ".join(f"{mass:.2f}" for mass in chains))


if __name__ == "__main__":
    main()
