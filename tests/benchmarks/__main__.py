"""The library beside its peers, in one command, on one thread: ratios, floors, first calls and memory.

    python -m tests.benchmarks                      every row; `--rows rows leapfrog` those whose names hold a word
    python -m tests.benchmarks --data FOLDER        also the time to a given test density of kin40k, from a fresh process

A peer that is not installed is a row that says so. The floors of a row are its program's operations over what a product
reaches in the same run, and its bytes over what a copy reaches; XLA counts every read as one from memory, so what stays
in the cache can beat the second. Times are
medians of calls taken in turn, so that a busy machine slows all alike: read the ratios.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.clock import Missing, Party, in_turn, one_thread, rates

one_thread()


class Row(NamedTuple):
    """A piece of work: our party, those of the peers, and the ratio to the fastest of them that is aimed at."""

    name: str
    dtype: str
    aim: float
    ours: Callable[[], Party]
    peers: tuple[Callable[[], Party], ...]
    repeats: int = 15


def rows() -> list[Row]:
    from tests.benchmarks import peers, work

    found = []
    for dtype, aim in (("float64", 0.7), ("float32", 0.8)):
        ours = partial(work.prediction, 512, dtype)
        others = tuple(partial(f, 512, dtype) for f in (peers.prediction_gpytorch, peers.prediction_gpflow))
        found.append(Row(f"predict 100000 rows, M=512, {dtype}", dtype, aim, ours, others, 3))
    hand, tiny = peers.leapfrog_by_hand, peers.leapfrog_tinygp
    found.append(Row("leapfrog, Z=X, n=300", "float64", 0.7, partial(work.leapfrog, work.latent), (hand, tiny), 41))
    ours = partial(work.particles, work.latent)
    found.append(Row("SVGD step, Z=X, n=300", "float64", 0.6, ours, (peers.particles_numpyro,)))
    ours = partial(work.minibatch, "ours", work.ngp.guides.keyed_rows)
    found.append(Row("rows of a minibatch", "float64", 0.2, ours, (peers.rows_of_numpyro,), 41))
    aims = {(128, False): (0.55, 0.7), (512, False): (0.6, 0.75), (1024, False): (0.65, 0.75)}
    aims |= {(128, True): (0.5, 0.55), (512, True): (0.5, 0.5)}
    for (size, natural), both in aims.items():
        for dtype, aim in zip(("float64", "float32"), both, strict=True):
            steps = (peers.step_gpytorch, peers.step_gpflow, *(() if natural else (peers.step_gpjax,)))
            others = [partial(f, size, dtype, natural) for f in steps]
            name = f"{'natural' if natural else 'Adam'} step, M={size}, {dtype}"
            found.append(Row(name, dtype, aim, partial(work.step, size, dtype, natural), tuple(others)))
    deep = partial(work.deep_step, 128, "float64")
    others = (partial(peers.deep_step_gpflux, 128, "float64"),)
    found.append(Row("two layers, width 5, M=128", "float64", 0.6, deep, others))
    hand, tiny = peers.marginal_leapfrog_by_hand, peers.marginal_leapfrog_tinygp
    found.append(
        Row("leapfrog, marginal, n=300", "float64", 0.55, partial(work.leapfrog, work.marginal), (hand, tiny), 41)
    )
    others = (partial(peers.particles_numpyro, peers.marginal_by_hand),)
    found.append(Row("SVGD step, marginal, n=300", "float64", 0.45, partial(work.particles, work.marginal), others))
    for mean_points, size, aim in ((300, 128, 0.27), (1000, 300, 0.4)):
        ours = partial(work.step, size, "float64", False, mean_points)
        others = (partial(peers.step_gpytorch, size, "float64", False, mean_points),)
        found.append(Row(f"orthogonal, {mean_points} of the mean, {size}", "float64", aim, ours, others))
    return found


def made(build: Callable[[], Party]) -> Party | Missing:
    try:
        return build()
    except ImportError as error:
        function = build.func if isinstance(build, partial) else build
        return Missing(function.__name__.split("_")[-1], str(error))


def measure(row: Row) -> None:
    import jax

    with jax.enable_x64(row.dtype == "float64"):
        ours, others = row.ours(), [made(peer) for peer in row.peers]
        present = [party for party in others if isinstance(party, Party)]
        times = in_turn([ours, *present], row.repeats)
        product, copy = rates(row.dtype)
    own = times["ours"][1]
    fastest = min((times[party.name][1] for party in present), default=None)
    ratio = "no peer" if fastest is None else f"{own / fastest:.2f}"
    print(f"\n{row.name}: ratio {ratio}, aim {row.aim}")
    for party in [ours, *others]:
        if isinstance(party, Missing):
            print(f"  {party.name:16s} not installed ({party.reason})")
            continue
        first, median = times[party.name]
        flops, moved = 1e3 * party.flops / product, 1e3 * party.bytes / copy
        known = f", floor {flops:.2f} of flops, {moved:.2f} of bytes, {party.flops / 1e9:.3f} Gflop" if flops else ""
        known += f", {party.memory:.0f} MiB" if flops else ""
        print(f"  {party.name:16s} {1e3 * median:10.2f} ms, first call {first:.2f} s{known}", flush=True)


# A fresh process fits kin40k until its test density is reached; what a user waits for, compilation included.
FRESH = """
import time; start = time.perf_counter()
import jax, jax.numpy as jnp, numpy as np, optax, numpyro_gp as ngp
jax.config.update("jax_enable_x64", True)
from numpyro.infer import SVI, Trace_ELBO
from examples.datasets import load, split_mask, standardise
from tests.benchmarks.work import sparse
X, y, splits = load("kin40k", {folder!r})
X, y, test = standardise(X), standardise(y[:, None])[:, 0], split_mask(splits, 0)
X, y, Xt, yt = jnp.asarray(X[~test]), jnp.asarray(y[~test]), X[test], jnp.asarray(y[test])
guide = ngp.AutoGP(sparse, {{"f": ngp.guides.coupled(natural=True)}})
svi = SVI(sparse, guide, ngp.optim.natural_gradient(optax.adam(0.01), 0.1), Trace_ELBO())
Z, result, goals, found = X[:{size}], False, [-0.10, 0.25], []
for turn in range(1, {turns} + 1):
    steps = 250 * turn
    result = ngp.fit(jax.random.key(0), svi, steps, X, y, Z=Z, batch=1024, progress=False, resume=result)
    posterior = ngp.Posterior.from_svi(sparse, guide, result.params)
    density = float(posterior.predict(jax.random.key(1), Xt, Z=Z).log_density(yt).mean())
    reached = [goal for goal in goals if goal not in found and density > goal]
    for goal in [*reached, *([f"({{density:.3f}})"] if turn in (8, {turns}) else [])]:
        print(f"  {{goal}} after {{time.perf_counter() - start:.1f}} s, {{steps}} steps", flush=True)
    found += reached
    if len(found) == len(goals):
        break
"""


def time_to_density(folder: Path, turns: int, size: int = 512) -> None:
    print(
        f"\nTest density of kin40k in a fresh process, M={size}, natural steps 0.1 and Adam 0.01, float64:", flush=True
    )
    program = FRESH.format(folder=str(folder), turns=turns, size=size)
    subprocess.run([sys.executable, "-c", program], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks")
    parser.add_argument("--rows", nargs="*", default=[""], help="words, one of which the name of a row holds")
    parser.add_argument("--data", type=Path, help="folder whose regression/ holds kin40k.csv.gz")
    parser.add_argument("--turns", type=int, default=40, help="at most so many times 250 steps")
    options = parser.parse_args()
    for row in rows():
        if any(word in row.name for word in options.rows):
            measure(row)
    if options.data is not None:
        time_to_density(options.data, options.turns)


if __name__ == "__main__":
    main()
