"""Do deep models arrive at their defaults? Five seeds, how far below the best bound known, and steps to within a nat.

    python -m examples.studies.deep.deep_defaults  # ten minutes of one core; rows that are there are not made again

Two kinds on small data: decoupled layers (a hidden one) on yacht by plain Adam, as `decoupled_deep` trains
them, and LV-GP on two branches by the importance-weighted bound and natural gradients, as `deep_models` does.
Adam's rate is constant, or falls to zero by a cosine from the example's own or another one. "Best of starts" takes a
fifth of the steps from each of the stack's `starts` of the latent input, and goes on with the best. The "long" runs
take four times as many steps; the best bound of all rows stands for the optimum. Bounds are means of 400 draws, and
seconds those of the processor.
"""

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpyro.infer import SVI, Trace_ELBO

from examples.studies.deep import decoupled_deep
from examples.studies.importance import deep_models
from examples.tools.datasets import load, split_mask, standardise
from examples.tools.run_queue import version
from examples.tools.tables import markdown, read, save
from models.latent_variable_deep import simulate

DRAWS, BLOCKS = 400, 20


def decoupled(rate, data, _):
    """One hidden layer, 40 points for means and 15 for covariances, on the training rows of yacht."""
    X, y, masks = load("yacht", data)
    rows = ~split_mask(masks, 0)
    X, y = jnp.asarray(standardise(X)[rows]), jnp.asarray(standardise(y[:, None])[rows, 0])
    model, guide = decoupled_deep.build("decoupled", X, 1, {"mean": 40, "covariance": 15})
    return SVI(model, guide, optax.adam(rate(0.01)), Trace_ELBO()), (X, y)


def latent(rate, data, start):
    """LV-GP with 20 points, an encoder and five importance samples, on 200 simulated rows."""
    data = simulate(jax.random.key(0), 200)
    model, guide = deep_models.build("LV-GP", data["X"], 20, start=start)
    return deep_models.engine(model, guide, samples=5, adam=rate(0.005)), (data["X"], data["y"])


KINDS = {"decoupled layers": decoupled, "latent inputs": latent}


# Adam's rate at first, by that of the example; None stays there.
RATES = {
    "constant rate": None,
    "falling rate": 1,
    "falling rate from 0.03": 3,
    "best of starts, falling rate from 0.01": 2,
    "long, best of starts": 2,
}
FROM_STARTS = ("best of starts, falling rate from 0.01", "long, best of starts")
# Runs of one of the kinds alone.
OF_KIND = {"falling rate from 0.03": "decoupled layers"} | dict.fromkeys(FROM_STARTS, "latent inputs")


def engine(kind, run, steps, folder):
    """Starts of a state, a block of steps, losses of parameters, and the seconds of the processor to compile them."""
    times = RATES.get(run, 1)
    rate = lambda start: optax.cosine_decay_schedule(times * start, steps) if times else start  # noqa: E731
    # One column of inputs has two starts; their steps are the same program.
    made = [KINDS[kind](rate, folder, start) for start in ((0, 1) if run in FROM_STARTS else (None,))]
    svi, data = made[0]
    step = lambda state, _: svi.update(state, *data)  # noqa: E731
    block = jax.jit(lambda state: jax.lax.scan(step, state, None, length=steps // BLOCKS)[0])
    loss = lambda key, state: svi.loss.loss(key, svi.get_params(state), svi.model, svi.guide, *data)  # noqa: E731
    losses = jax.jit(lambda key, state: jax.vmap(loss, (0, None))(jax.random.split(key, DRAWS), state))
    start = time.process_time()
    inits = [lambda seed, svi=svi: svi.init(jax.random.key(seed), *data) for svi, _ in made]
    compiled = block.lower(inits[0](0)).compile()
    return inits, compiled, losses, time.process_time() - start


def one(seed, inits, block, losses):
    """The bound after every block of steps, the error of the last, and seconds of the processor for each."""
    runs = [(init(seed), [], []) for init in inits]
    if len(runs) > 1:
        runs = sorted([blocks(run, BLOCKS // 5, block, losses) for run in runs], key=lambda run: -run[1][-1])[:1]
    state, bounds, seconds = blocks(runs[0], BLOCKS, block, losses)
    drawn = np.asarray(losses(jax.random.key(BLOCKS), state))
    return bounds, drawn.std() / np.sqrt(DRAWS), min(seconds)


def blocks(run, most, block, losses):
    """State, bounds and seconds of a run after so many blocks."""
    state, bounds, seconds = run
    while len(bounds) < most:
        start = time.process_time()
        state = jax.block_until_ready(block(state))
        seconds.append(time.process_time() - start)
        bounds.append(-np.asarray(losses(jax.random.key(len(bounds)), state)).mean())
    return state, bounds, seconds


def table(rows):
    """Markdown: how far the seeds of each kind, rate and version end below the best bound of all, and the way there."""
    lines = []
    for place in dict.fromkeys((row["kind"], row["run"], row["version"]) for row in rows if "long" not in row["run"]):
        best = max(float(value) for row in rows if row["kind"] == place[0] for value in row["curve"].split())
        own = [row for row in rows if (row["kind"], row["run"], row["version"]) == place]
        curves, steps = np.array([row["curve"].split() for row in own], float), int(own[0]["steps"])
        gaps = best - curves[:, -1]
        cells = [f"{np.median(gaps):.1f} ({gaps.min():.1f} to {gaps.max():.1f})"]
        for nats in (1, 10):
            near = [np.flatnonzero(curve >= best - nats) for curve in curves]
            at = np.array([(blocks[0] + 1) * steps // BLOCKS for blocks in near if len(blocks)])
            each = np.median([float(row["ms_a_step"]) for row in own]) / 1e3
            way = f": {np.median(at):.0f} steps, {np.median(at) * each:.1f} s" if len(at) else ""
            cells.append(f"{len(at)} of {len(own)}{way}")
        finite = f"{np.isfinite(curves).all(axis=1).sum()} of {len(own)}"
        lines.append([f"{place[0]}, {place[1]}", place[2], finite, *cells])
    return markdown(["kind", "code", "finite", "nats below the best at the end", "within 1 nat", "within 10"], lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "data")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder of the rows")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    if options.smoke:
        options.seeds, options.steps = 1, BLOCKS
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "deep_defaults.csv"
    rows = read(path)
    code = version()
    runs = [(run, options.seeds, options.steps) for run in RATES if "long" not in run]
    runs += [(run, 1, 4 * options.steps) for run in ("long", "long, best of starts")]
    for kind in list(KINDS)[1:] if options.smoke else KINDS:
        for run, seeds, steps in runs[:1] if options.smoke else runs:
            if OF_KIND.get(run, kind) != kind:
                continue
            done = [r["seed"] for r in rows if (r["kind"], r["run"], r["version"]) == (kind, run, code)]
            left = [seed for seed in range(seeds) if str(seed) not in done]
            *parts, compiling = engine(kind, run, steps, options.data) if left else (0,)
            for seed in left:
                bounds, error, seconds = one(seed, *parts)
                rows.append({
                    "kind": kind, "run": run, "seed": seed, "steps": steps, "bound": f"{bounds[-1]:.2f}",
                    "bound_se": f"{error:.2f}", "ms_a_step": f"{1e3 * seconds * BLOCKS / steps:.2f}",
                    "seconds_to_compile": f"{compiling:.1f}", "curve": " ".join(f"{bound:.2f}" for bound in bounds),
                    "version": code,
                })  # fmt: skip
                save(path, rows)
                print(*rows[-1].values(), flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
