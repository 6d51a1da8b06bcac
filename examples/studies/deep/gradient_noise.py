"""Are gradients of Cheng and Boots' means noisy, and do those of inducing inputs vanish (Havasi et al. 2018)?

    export OMP_NUM_THREADS=1 XLA_FLAGS=--xla_cpu_multi_thread_eigen=false
    python -m examples.studies.deep.gradient_noise --data DATA

Rows of kin8nm, one hidden layer as wide as the inputs, plain Adam at the paper's rate: the models of `decoupled_means`,
with means by "gpcent", "gp" or "cb". After some steps and at the end the gradient of the loss per row is drawn many
times, each with a batch and draws of its own, for the coefficients of the means, the inducing inputs and the kernels.
Rows have the sizes of its mean and of its noise, roots of mean squares over the numbers of a group, and how far
inducing inputs went from their start. What is left of the mean by chance is taken off its square. Rows that are there
are not made again.
"""

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp
from examples.studies.deep.decoupled_means import problem
from examples.tools.datasets import load, standardise
from examples.tools.run_queue import version
from examples.tools.tables import markdown, read, save

MEANS = ("gpcent", "gp", "cb")
GROUPS = {
    "coefficients": lambda name: name.endswith("/mean"),
    "inducing inputs": lambda name: "/inducing" in name,
    "kernels": lambda name: name.endswith(("lengthscale_auto_loc", "variance_auto_loc")),
}


def root(values):
    """The root of the mean square."""
    return float(np.sqrt(np.mean(np.square(values))))


def sizes(gradients):
    """Root mean squares of the mean and of the noise of gradients ``(draws, numbers)``.

    The mean of n draws has a variance of its own, that of one draw over n, which is taken off: a hundredth of it
    is left where there is no more.
    """
    noise = root(np.std(gradients, axis=0, ddof=1))
    chance = noise**2 / len(gradients)
    return float(np.sqrt(max(np.mean(np.square(gradients.mean(0))) - chance, 0.01 * chance))), noise


def gradients(model, guide, params, X, y, options, seed):
    """Draws of the gradient of the loss per row, by group of parameters, ``{group: (draws, numbers)}``."""

    def loss(own, key):
        return Trace_ELBO().loss(key, params | own, model, guide, X, y, batch=options.batch) / len(X)

    picked = {name: value for name, value in params.items() if any(holds(name) for holds in GROUPS.values())}
    draw = jax.jit(jax.grad(loss))
    found = [draw(picked, key) for key in jax.random.split(jax.random.key(seed), options.draws)]
    flat = lambda one, holds: ravel_pytree({name: own for name, own in one.items() if holds(name)})[0]  # noqa: E731
    return {group: np.array([flat(one, holds) for one in found]) for group, holds in GROUPS.items()}


def one(mean, seed, data, options):
    """Fit with means of one way, on rows drawn by the seed: a row for each mark and group."""
    inputs, targets = data
    train = np.random.default_rng(seed).permutation(len(inputs))[: options.rows]
    X, y = jnp.asarray(inputs[train]), jnp.asarray(targets[train])
    model, guide = problem(mean, "gp", X, options.mean, options.covariance)
    svi = SVI(model, guide, optax.adam(options.rate), Trace_ELBO())
    begin = svi.get_params(svi.init(jax.random.key(seed), X, y, batch=options.batch))
    rows, result = [], False
    for mark in options.marks:
        began = time.process_time()
        result = ngp.fit(jax.random.key(seed), svi, mark, X, y, batch=options.batch, progress=False, resume=result)
        drawn = gradients(model, guide, dict(result.params), X, y, options, seed)
        moved = root(np.concatenate([
            np.ravel(result.params[name] - value) for name, value in begin.items() if GROUPS["inducing inputs"](name)
        ]))  # fmt: skip
        for group, own in drawn.items():
            size, noise = sizes(own)
            row = {"mean": mean, "seed": str(seed), "steps": str(mark), "gradient of": group}
            row |= {"size": f"{size:.3g}", "noise": f"{noise:.3g}"}
            row |= {"moved": f"{moved:.3f}" if group == "inducing inputs" else "", "rows": options.rows}
            rows.append(row | {"draws": options.draws, "seconds": f"{time.process_time() - began:.0f}"})
    return rows


def by_seed(rows, mean, steps, group, key):
    """Values of a column over seeds, in their order; ``over`` is noise over signal."""
    own = [row for row in rows if (row["mean"], row["steps"], row["gradient of"]) == (mean, steps, group)]
    own = sorted(own, key=lambda row: int(row["seed"]))
    if key == "over":
        return np.array([float(row["noise"]) / float(row["size"]) for row in own])
    return np.array([float(row[key]) for row in own])


def shares(rows, mean, steps, group="inducing inputs", other="coefficients"):
    """Size of the mean gradient of a group over that of another, over seeds."""
    return by_seed(rows, mean, steps, group, "size") / by_seed(rows, mean, steps, other, "size")


def table(rows):
    """Markdown: steps and means against sizes of noise and mean of each group's gradient: medians over seeds."""
    lines = []
    for steps in dict.fromkeys(row["steps"] for row in rows):
        for mean in dict.fromkeys(row["mean"] for row in rows):
            both = [
                [np.median(by_seed(rows, mean, steps, group, key)) for key in ("noise", "size")] for group in GROUPS
            ]
            moved = np.median(by_seed(rows, mean, steps, "inducing inputs", "moved"))
            cells = [" / ".join(f"{value:.4f}" for value in own) for own in both]
            lines.append([steps, mean, *cells, f"{moved:.2f}"])
    return markdown(["steps", "mean", *GROUPS, "inducing inputs moved"], lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "data")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--means", nargs="+", choices=MEANS, default=["gpcent", "cb"])
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=250)
    parser.add_argument("--marks", type=int, nargs="+", default=[100, 600], help="steps of the draws")
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--mean", type=int, default=100, help="points of the mean")
    parser.add_argument("--covariance", type=int, default=20, help="points of the covariance")
    parser.add_argument("--draws", type=int, default=64)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    if options.smoke:
        options.seeds, options.rows, options.batch, options.marks = 1, 40, 20, [2, 4]
        options.mean, options.covariance, options.draws, options.means = 8, 4, 3, ["cb"]
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    X, y, _ = load("yacht" if options.smoke else "kin8nm", options.data)
    data, path = (standardise(X), standardise(y[:, None])[:, 0]), options.out / "gradient_noise.csv"
    rows, code = read(path), version()
    for seed in range(options.seeds):
        for mean in options.means:
            if not any((row["mean"], row["seed"]) == (mean, str(seed)) for row in rows):
                rows += [row | {"version": code} for row in one(mean, seed, data, options)]
                save(path, rows)
                print(*(" ".join(map(str, row.values())) for row in rows[-2 * len(GROUPS) :]), sep="\n", flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
