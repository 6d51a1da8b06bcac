"""Does a belief of low rank lose nothing in fewer numbers than a Cholesky factor (Adam et al. 2018)? Three seeds.

    OMP_NUM_THREADS=1 XLA_FLAGS=--xla_cpu_multi_thread_eigen=false python -m examples.studies.additive.additive_numbers

The paper's size: eight inputs, 5000 rows of unit noise, 16 inducing inputs for each effect and 4 x 4 for one pair, 145
values in all. Inputs are uniform as in the paper, or go together, so that effects compete. Hyper-parameters are fitted
with a full covariance and then held, so that its optimum has a closed form. Each belief is trained by natural steps:
its row has the numbers that hold its covariance, how far its bound ends below that optimum, and how far the best belief
of its kind would. Rows that are there are not made again.
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
from examples.additive_illustration import TRUTH, numbers_of, pair, seen
from examples.studies.additive.additive_fits import fit, hold
from examples.tools.run_queue import version
from examples.tools.tables import markdown, mean_and_error, read, save, with_error

INPUTS = ("uniform", "correlated")
CONSTANT = 20.0**2


def simulate(rows, inputs, seed):
    """Inputs in the unit cube, and the sum of all effects with unit noise; correlated ones share a common part."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(rows, len(TRUTH)))
    if inputs == "correlated":
        X = np.clip(rng.uniform(size=(rows, 1)) + 0.15 * rng.normal(size=X.shape), 0, 1)
    f = 3.0 + sum(effect(X[:, d]) for d, effect in enumerate(TRUTH.values())) + pair(X[:, 0], X[:, 1])
    return X, f + rng.normal(size=rows)


def beliefs(sizes, ranks):
    """Recipes, how many numbers hold their covariance over components of these ``sizes``, and their rank."""
    M, guides = sum(sizes), ngp.guides
    found = {"mean field": (guides.block_diagonal(natural=True), numbers_of(0, 0, sizes), None)}
    return found | {f"structured({r})": (guides.structured(r, natural=True), numbers_of(M, r), r) for r in ranks}


def at_best(precision, sizes, rank=None):
    """How far the best belief of a kind is below a full covariance: ``KL[q || p]`` of equal means, in nats.

    ``precision`` is that of the posterior of all whitened values, ``(M, M)``. Beliefs of a rank keep its largest
    directions: each other one, of precision ``1 + a``, costs ``(a - log(1 + a)) / 2``. Without a rank it is mean field,
    with a block of that matrix for each component: ``(sum_b log|P_bb| - log|P|) / 2``.
    """
    if rank is not None:
        rest = np.maximum(np.linalg.eigvalsh(precision)[: len(precision) - rank] - 1.0, 0.0)
        return float(np.sum(rest - np.log1p(rest)) / 2)
    ends = np.cumsum(sizes)
    blocks = [precision[end - size : end, end - size : end] for end, size in zip(ends, sizes, strict=True)]
    return float(sum(np.linalg.slogdet(block)[1] for block in blocks) - np.linalg.slogdet(precision)[1]) / 2


def hyperparameters(layout, X, y, steps):
    """Kernels of the components and the noise's standard deviation, fitted with a full covariance."""
    model = layout.model(seen, scale=2.0)
    guide, params, _ = fit(model, ngp.guides.coupled(natural=True), X, y, steps=steps, batch=500, adam=0.05)
    _, points = hold(model, guide, params)
    return layout.kernels(points["f_scale"] ** 2, points["f_lengthscale"], CONSTANT), float(points["noise"])


def trained(process, recipe, noise, X, y, steps, seed):
    """The last bound of a belief by natural steps on all rows, and seconds of the processor."""

    def model(X, y):
        f = process()
        with plate("data", len(X)):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(noise), obs=y)

    svi = SVI(model, ngp.AutoGP(model, {"f": recipe}), ngp.optim.natural_gradient(optax.adam(1e-2)), Trace_ELBO())
    began = time.process_time()
    result = ngp.fit(jax.random.key(seed), svi, steps, X, y, progress=False)
    return -float(result.losses[-1]), time.process_time() - began


def table(rows):
    """Markdown: beliefs against numbers, their share of a Cholesky factor's, and nats below the optimum by inputs.

    In brackets stands what the best belief of the kind is below it, a mean over seeds.
    """
    rows = [row | {key: float(row[key]) for key in ("below", "at_best")} for row in rows]
    found = mean_and_error(rows, ("belief", "inputs"), ["below", "at_best"])
    lines = []
    held = {(r["belief"], r["numbers"], r["cholesky"]) for r in rows}
    for belief, numbers, cholesky in sorted(held, key=lambda one: int(one[1])):
        own = [found.get((belief, i)) for i in INPUTS]
        cells = [f"{with_error(*one['below'])} ({one['at_best'][0]:.3f})" if one else "" for one in own]
        lines.append([belief, numbers, f"{int(numbers) / int(cholesky):.2f}", *cells])
    return markdown(
        ["belief", "numbers", "of a Cholesky factor's", *(f"nats below (at best), {i} inputs" for i in INPUTS)], lines
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--inducing", type=int, default=16, help="of each effect")
    parser.add_argument("--fit-steps", type=int, default=400, help="of the hyper-parameters")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--ranks", type=int, nargs="*", default=[10, 20, 40], help="of the paper's belief")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    if options.smoke:
        options.seeds, options.rows, options.inducing, options.steps = 1, 60, 4, 5
        options.fit_steps, options.ranks = 3, [3]
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "additive_numbers.csv"
    rows, code = read(path), version()
    for seed in range(options.seeds):
        for inputs in INPUTS[-1:] if options.smoke else INPUTS:
            X, y = simulate(options.rows, inputs, seed)
            layout = ngp.anova.design(X, pairs=[(0, 1)], num_inducing=options.inducing)
            sizes = [len(own) for own in layout.inducing().values()]
            full = numbers_of(0, 0, [sum(sizes)])
            known = {row["belief"] for row in rows if (row["inputs"], row["seed"]) == (inputs, str(seed))}
            wanted = beliefs(sizes, options.ranks)
            if known >= wanted.keys():
                continue
            kernels, noise = hyperparameters(layout, X, y, options.fit_steps)
            Z, X, y = layout.inducing(), layout.map(X), jnp.asarray(y)
            optimum = ngp.beliefs.additive_optimum(kernels, Z, X, y, noise**2, form="full")
            precision = np.linalg.inv(np.asarray(optimum.belief.scale_tril @ optimum.belief.scale_tril.T))
            for name in [one for one in wanted if one not in known]:
                recipe, numbers, rank = wanted[name]
                process = lambda kernels=kernels, Z=Z: ngp.additive_gp("f", kernels, Z)  # noqa: E731
                bound, seconds = trained(process, recipe, noise, X, y, options.steps, seed)
                row = {"belief": name, "inputs": inputs, "seed": str(seed), "numbers": str(numbers)}
                row |= {"cholesky": str(full), "below": f"{float(optimum.bound) - bound:.4f}", "noise": f"{noise:.4f}"}
                row |= {"at_best": f"{at_best(precision, sizes, rank):.4f}", "rows": len(X), "steps": options.steps}
                rows.append(row | {"seconds": f"{seconds:.0f}", "version": code})
                save(path, rows)
                print(*rows[-1].values(), flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
