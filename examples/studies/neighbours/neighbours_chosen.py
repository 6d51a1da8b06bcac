"""Neighbours that are chosen from more candidates, beside the nearest (mathematics.md section 16.1).

    export OMP_NUM_THREADS=1 XLA_FLAGS=--xla_cpu_multi_thread_eigen=false
    python -m examples.studies.neighbours.neighbours_chosen --data DATA

``lost`` is the Kullback-Leibler divergence from the exact process of 600 rows, in nats, with the hyper-parameters that
fit these best, as a mean over three orders. ``log_density`` is that of test rows of a fit to all rows of the first
split, as in `neighbours`: 500 steps with 16 neighbours, 1500 with 32, in single precision; ``seconds`` are those of
one search, of one thread. Candidates are four for each neighbour. Rows that are there are not made again.
"""

import argparse
import functools
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoDelta

import numpyro_gp as ngp
from examples.studies.neighbours import neighbours, neighbours_nuts
from examples.tools.run_queue import version
from examples.tools.tables import markdown, read, save

SETS = ("kin8nm", "power", "kin40k", "protein", "pumadyn32nm")
STEPS = {16: 500, 32: 1500}
TIMES = 4


@functools.lru_cache(maxsize=1)
def fitted_exactly(name, data, size):
    """Rows of the first split, the Matern 5/2 lengthscales that fit them best, and the covariance of the data."""
    X, y = neighbours_nuts.some_rows(name, data, size)
    guide = AutoDelta(neighbours_nuts.model)
    svi = SVI(neighbours_nuts.model, guide, optax.adam(0.05), Trace_ELBO())
    found = guide.median(ngp.fit(jax.random.key(0), svi, 500, jnp.asarray(X), jnp.asarray(y), progress=False).params)
    kernel = ngp.kernels.Matern52(found["variance"], found["lengthscale"])
    dense = np.asarray(kernel.matrix(jnp.asarray(X), jnp.asarray(X)), float)
    return X, found["lengthscale"], dense + float(found["noise"]) ** 2 * np.eye(len(X))


def lost(near, dense):
    """``sum_i log var(i | N(i)) / 2 - log |K| / 2``: all that differs, as both have the same covariance of a block."""
    total = -np.linalg.slogdet(dense)[1]
    for row, index in enumerate(np.asarray(near.index)):
        given = index[index >= 0]
        weights = np.linalg.solve(dense[np.ix_(given, given)], dense[given, row])
        total += np.log(dense[row, row] - dense[row, given] @ weights)
    return total / 2


def divergences(name, options, count):
    """Nats that are lost by the nearest, and by chosen ones."""
    X, lengthscale, dense = fitted_exactly(name, options.data, options.rows)
    orders = [np.random.default_rng(seed).permutation(len(X)) for seed in range(3)]
    for candidates in (None, TIMES * count):
        near = [ngp.neighbours(X, count, lengthscale=lengthscale, order=own, candidates=candidates) for own in orders]
        yield np.mean([lost(own, dense) for own in near])


def density(name, options, count, candidates):
    """Mean log density of test rows of a fit, and seconds of a search."""
    kernel, predicted_from = neighbours.SETS.get(name, ("Matern52", 64))
    X, y, X_test, y_test = neighbours.prepared(name, options.data, 0, np.dtype("float32"))
    start = time.process_time()
    ngp.neighbours(X, count, lengthscale=X.shape[1] ** 0.5, candidates=candidates)
    seconds = time.process_time() - start
    about = {
        "kernel": kernel,
        "num_neighbours": count,
        "steps": options.steps or STEPS[count],
        "candidates": candidates,
    }
    posterior, _, arguments = neighbours.fitted(X, y, **about, batch=min(256, len(X)), rate=0.05, seed=0)
    found = posterior.predict_at(jax.random.key(1), X_test, *arguments, kernel=kernel, neighbours=predicted_from)
    return np.asarray(found.log_density(y_test), float).mean(), seconds


def table(rows):
    """Markdown: sets against both kinds of neighbours."""
    lines = [
        [f"{row['set']}, {row['neighbours']}"]
        + [f"{float(row[f'{what}_nearest']):.{digits}f}, {float(row[f'{what}_chosen']):.{digits}f}"
           for what, digits in (("lost", 1), ("log_density", 3), ("seconds", 1))]
        for row in rows
    ]  # fmt: skip
    return markdown(["set, neighbours", "nats lost: nearest, chosen", "log density", "seconds of a search"], lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "data")
    parser.add_argument("--sets", nargs="+", default=[*SETS])
    parser.add_argument("--neighbours", nargs="+", type=int, default=[*STEPS])
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--steps", type=int, help="of each fit; 500 or 1500 without it")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    if options.smoke:
        options.sets, options.neighbours, options.rows, options.steps = ["yacht"], [4], 40, 5
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "neighbours_chosen.csv"
    rows = read(path)
    for name in options.sets:
        for count in options.neighbours:
            if any((row["set"], int(row["neighbours"])) == (name, count) for row in rows):
                continue
            with jax.enable_x64(True):
                found = dict(zip(("lost_nearest", "lost_chosen"), divergences(name, options, count), strict=True))
            for kind, candidates in (("nearest", None), ("chosen", TIMES * count)):
                scores = density(name, options, count, candidates)
                found |= {f"log_density_{kind}": scores[0], f"seconds_{kind}": scores[1]}
            row = {"set": name, "neighbours": count} | {key: f"{value:.4f}" for key, value in found.items()}
            rows.append(row | {"version": version()})
            print(*rows[-1].values(), flush=True)
            save(path, rows)
    print(table(rows))


if __name__ == "__main__":
    main()
