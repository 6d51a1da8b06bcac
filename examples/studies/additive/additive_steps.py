"""What a step costs by the number of components: mean field, the structured belief and a full covariance, in turn.

    export OMP_NUM_THREADS=1 XLA_FLAGS=--xla_cpu_multi_thread_eigen=false
    python -m examples.studies.additive.additive_steps

A sum of C effects with 16 inducing inputs each, natural steps on 1000 rows, hyper-parameters learnt as points (Adam,
Durrande and John 2018 compare costs by orders alone). Steps of the beliefs alternate in one process, and rows have the
milliseconds of the processor of each. Rows that are there are not made again.
"""

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp
from examples.additive_illustration import seen
from examples.tools.run_queue import version
from examples.tools.tables import markdown, of_mean, read, save, with_error

BELIEFS = ("mean field", "structured", "full")


def compiled(recipe, model, X, y):
    """A step, compiled, and its first state."""
    optimiser = ngp.optim.natural_gradient(optax.adam(1e-3), 0.1)
    svi = SVI(model, ngp.AutoGP(model, {"f": recipe}), optimiser, Trace_ELBO())
    state = svi.init(jax.random.key(0), X, y)
    return jax.jit(lambda state: svi.update(state, X, y)).lower(state).compile(), state


def measured(components, options):
    """Milliseconds of steps that alternate, ``{belief: [of each round]}``; a round is a few steps of each."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(options.rows, components))
    layout = ngp.anova.design(X, pairs=[], num_inducing=options.inducing)
    data = layout.map(X), jnp.asarray(np.sin(6 * X).sum(1) + rng.normal(size=options.rows))
    model = layout.model(seen, scale=2.0)
    structured = ngp.guides.structured(options.rank, natural=True)
    recipes = ngp.guides.block_diagonal(natural=True), structured, ngp.guides.coupled(natural=True)
    steps = {name: compiled(own, model, *data) for name, own in zip(BELIEFS, recipes, strict=True)}
    spent = {name: [] for name in steps}
    for _ in range(options.rounds + 1):
        for name, (step, state) in steps.items():
            began = time.process_time()
            for _ in range(options.each):
                state, loss = step(state)
            assert np.isfinite(jax.block_until_ready(loss)), f"the loss of {name} must be finite"
            spent[name].append(1e3 * (time.process_time() - began) / options.each)
            steps[name] = step, state
    return {name: own[1:] for name, own in spent.items()}  # the first round is not counted


def times(rows, components, belief):
    row = next(row for row in rows if (row["components"], row["belief"]) == (components, belief))
    return np.array([float(value) for value in row["ms"].split()])


def ratio(rows, components, other, digits=2):
    """Least time of a structured step over that of another, ± over neighbouring rounds."""
    own, theirs = (times(rows, components, name) for name in ("structured", other))
    return with_error(own.min() / theirs.min(), of_mean(own / theirs)[1], digits)


def table(rows):
    """Markdown: components against the least milliseconds of each belief, and ratios of the structured one."""
    lines = []
    for components in sorted({row["components"] for row in rows}, key=int):
        least = [f"{times(rows, components, name).min():.1f}" for name in BELIEFS]
        lines.append([components, *least, *(ratio(rows, components, name) for name in ("mean field", "full"))])
    return markdown(["components", *(f"{name}, ms" for name in BELIEFS), "over mean field", "over full"], lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--components", type=int, nargs="+", default=[9, 16])
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--inducing", type=int, default=16, help="of each effect")
    parser.add_argument("--rank", type=int, default=40, help="of the structured belief")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--each", type=int, default=2, help="steps of a belief in a round")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    if options.smoke:
        options.components, options.rows, options.inducing, options.rank = [2], 30, 4, 3
        options.rounds, options.each = 2, 1
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "additive_steps.csv"
    rows, code = read(path), version()
    for components in options.components:
        if any(row["components"] == str(components) for row in rows):
            continue
        for belief, spent in measured(components, options).items():
            row = {"components": str(components), "belief": belief, "ms": " ".join(f"{one:.2f}" for one in spent)}
            row |= {"inducing": options.inducing, "rank": options.rank, "rows": options.rows}
            rows.append(row | {"version": code})
            print(*rows[-1].values(), flush=True)
        save(path, rows)
    print(table(rows))


if __name__ == "__main__":
    main()
