"""Does a belief of low rank lose nothing in fewer numbers than a Cholesky factor (Adam et al. 2018)? Three seeds.

    OMP_NUM_THREADS=1 XLA_FLAGS=--xla_cpu_multi_thread_eigen=false python -m examples.additive_numbers

The paper's size: eight inputs, 5000 rows of unit noise, 16 inducing inputs for each effect and 4 x 4 for one pair, 145
values in all. Inputs are uniform as in the paper, or go together, so that effects compete. Hyper-parameters are held,
so the optimum of a full covariance has a closed form. Each belief is trained by natural steps; its row has the numbers
that hold its covariance and how far its bound ends below that optimum. Rows that are there are not made again.
"""

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpyro import plate
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp
from examples.additive_illustration import TRUTH, numbers_of, pair
from examples.run_queue import version
from examples.tables import markdown, mean_and_error, read, save, with_error

INPUTS = ("uniform", "correlated")
RANKS, BLOCK_RANKS = (10, 20, 40), (10,)
VARIANCE, LENGTHSCALE, CONSTANT = 1.0, 0.3, 20.0**2


def simulate(rows, inputs, seed):
    """Inputs in the unit cube, and the sum of all effects with unit noise; correlated ones share a common part."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(rows, len(TRUTH)))
    if inputs == "correlated":
        X = np.clip(rng.uniform(size=(rows, 1)) + 0.15 * rng.normal(size=X.shape), 0, 1)
    f = 3.0 + sum(effect(X[:, d]) for d, effect in enumerate(TRUTH.values())) + pair(X[:, 0], X[:, 1])
    return X, f + rng.normal(size=rows)


def beliefs(sizes, ranks=RANKS, block_ranks=BLOCK_RANKS):
    """Recipes, and how many numbers hold their covariance over components of these ``sizes``."""
    M, guides = sum(sizes), ngp.guides
    found = {"mean field": (guides.block_diagonal(natural=True), numbers_of(0, 0, sizes))}
    found |= {f"structured({r})": (guides.structured(r, natural=True), numbers_of(M, r)) for r in ranks}
    return found | {
        f"block_low_rank({r})": (guides.block_low_rank(r, natural=True), numbers_of(M, r, sizes)) for r in block_ranks
    }


def trained(process, recipe, X, y, steps, seed):
    """The last bound of a belief by natural steps on all rows, and seconds of the processor."""

    def model(X, y):
        f = process()
        with plate("data", len(X)):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(1.0), obs=y)

    svi = SVI(model, ngp.AutoGP(model, {"f": recipe}), ngp.optim.natural_gradient(optax.adam(1e-2)), Trace_ELBO())
    began = time.process_time()
    result = ngp.fit(jax.random.key(seed), svi, steps, X, y, progress=False)
    return -float(result.losses[-1]), time.process_time() - began


def table(rows):
    """Markdown: beliefs against numbers, their share of a Cholesky factor's, and nats below the optimum by inputs."""
    rows = [row | {"below": float(row["below"])} for row in rows]
    found = mean_and_error(rows, ("belief", "inputs"), ["below"])
    lines = []
    for belief, numbers, cholesky in dict.fromkeys((r["belief"], r["numbers"], r["cholesky"]) for r in rows):
        cells = [with_error(*found[belief, i]["below"], 2) if (belief, i) in found else "" for i in INPUTS]
        lines.append([belief, numbers, f"{int(numbers) / int(cholesky):.2f}", *cells])
    return markdown(
        ["belief", "numbers", "of a Cholesky factor's", *(f"nats below, {i} inputs" for i in INPUTS)], lines
    )


def figure(rows, path):
    """Nats below the optimum against the numbers of a belief, one panel for each kind of inputs."""
    import matplotlib.pyplot as plt

    rows = [row | {"below": float(row["below"])} for row in rows]
    found = mean_and_error(rows, ("inputs", "belief", "numbers", "cholesky"), ["below"])
    drawn, axes = plt.subplots(1, 2, figsize=(8.4, 3.2), layout="constrained", sharey=True)
    for axis, inputs in zip(axes, INPUTS, strict=True):
        for number, kind in enumerate(("mean field", "structured", "block_low_rank")):
            own = [(int(n), *at["below"]) for (i, b, n, _), at in found.items() if i == inputs and b.startswith(kind)]
            if own:
                numbers, means, errors = np.array(sorted(own)).T
                axis.errorbar(numbers, means, 2 * errors, fmt="Dos"[number] + "-", ms=4, capsize=3, label=kind)
        axis.axvline(int(rows[0]["cholesky"]), color="0.5", lw=0.8)
        axis.set(title=f"{inputs} inputs", xlabel="numbers that hold the covariance", yscale="symlog")
    axes[0].set_ylabel("nats below the optimum")
    axes[0].legend(fontsize=8)
    axes[0].annotate("Cholesky", (int(rows[0]["cholesky"]), 0.5), fontsize=8, rotation=90, ha="right", color="0.4")
    drawn.savefig(path, dpi=110)
    plt.close(drawn)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--inducing", type=int, default=16, help="of each effect")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    if options.smoke:
        options.seeds, options.rows, options.inducing, options.steps = 1, 60, 4, 5
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "additive_numbers.csv"
    rows, code = read(path), version()
    for seed in range(options.seeds):
        for inputs in INPUTS[-1:] if options.smoke else INPUTS:
            X, y = simulate(options.rows, inputs, seed)
            layout = ngp.anova.design(X, pairs=[(0, 1)], num_inducing=options.inducing)
            lengthscales = jnp.full(len(layout.slots), LENGTHSCALE)
            kernels = layout.kernels(jnp.full(len(layout.components) - 1, VARIANCE), lengthscales, CONSTANT)
            Z, X, y = layout.inducing(), layout.map(X), jnp.asarray(y)
            best = float(ngp.beliefs.additive_optimum(kernels, Z, X, y, 1.0, form="full").bound)
            sizes = [len(own) for own in Z.values()]
            full = numbers_of(0, 0, [sum(sizes)])
            for name, (recipe, numbers) in beliefs(sizes, *(((3,), ()) if options.smoke else ())).items():
                if any((row["belief"], row["inputs"], row["seed"]) == (name, inputs, str(seed)) for row in rows):
                    continue
                process = lambda kernels=kernels, Z=Z: ngp.additive_gp("f", kernels, Z)  # noqa: E731
                bound, seconds = trained(process, recipe, X, y, options.steps, seed)
                row = {"belief": name, "inputs": inputs, "seed": str(seed), "numbers": str(numbers)}
                row |= {"cholesky": str(full), "below": f"{best - bound:.4f}", "rows": len(X), "steps": options.steps}
                rows.append(row | {"seconds": f"{seconds:.0f}", "version": code})
                save(path, rows)
                print(*rows[-1].values(), flush=True)
    print(table(rows))
    if not options.smoke:
        figure(rows, options.out / "additive_numbers.png")


if __name__ == "__main__":
    main()
