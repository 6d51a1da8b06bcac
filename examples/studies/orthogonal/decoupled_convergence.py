"""How fast each basis converges: bound against iteration with kernel and inducing inputs fixed.

    python -m examples.studies.orthogonal.decoupled_convergence --data DATA  # regression and labels, three seeds
    python -m examples.studies.orthogonal.decoupled_convergence --data DATA --classification none  # regression alone

The convergence figure of the orthogonally decoupled paper. Orth, OrthNat, Hybrid and Decoupled have the
same optimum by construction (mean basis gamma and beta together, covariance basis beta), so they differ
in their coordinates alone; Coupled and CoupledNat use beta for both and have an optimum of their own. Orth takes steps
of Adam in coefficients that are divided by a diagonal; "Orth, no divisor" takes them in the coefficients themselves, as
Hybrid does. OrthNat takes Newton's steps for the extra points, "OrthNat, Adam" those of the paper, "OrthNat, exact" and
"OrthNat, diagonal" what it derives. For Gaussian data both optima are analytic; for labels they are found by full
natural and Newton steps. Rows hold when a method is near its optimum, and the figure is made of them.
"""

import argparse
import functools
import math
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import numpyro
import optax
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp
from examples.tools.datasets import load, standardise
from examples.tools.run_queue import version
from examples.tools.tables import read, save

matplotlib.use("Agg")
from matplotlib import pyplot as plt

# Natural steps of the covariance's points, and the paper's three ways for the extra ones: Adam, equations 16a and 17.
OF_PAPER = ("OrthNat, Adam", "OrthNat, exact", "OrthNat, diagonal")
METHODS = ("Coupled", "CoupledNat", "Orth", "Orth, no divisor", "OrthNat", *OF_PAPER, "Hybrid", "Decoupled")
COLOURS = dict(zip(METHODS, (
    "#999999", "#000000", "#56B4E9", "#CC79A7", "#0072B2", "#009E73", "#882255", "#DDCC77", "#E69F00", "#D55E00",
), strict=True))  # fmt: skip
NATURAL = ("CoupledNat", "OrthNat", *OF_PAPER)
REACHED = ("iterations_to_1_percent", "iterations_to_10_nats", "iterations_to_1_nat")


def model(X, y, *, kernel, inducing, likelihood):
    """A sparse GP with everything but the belief known."""
    f = ngp.gp("f", kernel, inducing)
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), likelihood, obs=y)


def without_divisor(name, prior, *, gamma, natural=False):
    """The orthogonal belief whose coefficients are parameters themselves, and so take the steps of Adam undivided."""
    own = ngp.guides.coupled(natural=natural)(name, prior)
    a = numpyro.param(f"{name}/a", jnp.zeros(len(gamma), prior.dtype))
    return ngp.beliefs.Orthogonal(gamma, a, own.mean, own.scale_tril)


def recipe(method, gamma, beta):
    """The belief of each method on the same points."""
    return {
        "Coupled": lambda: ngp.guides.coupled(),
        "CoupledNat": lambda: ngp.guides.coupled(natural=True),
        "Orth": lambda: ngp.guides.orthogonal(gamma),
        "Orth, no divisor": lambda: functools.partial(without_divisor, gamma=gamma),
        "OrthNat": lambda: ngp.guides.orthogonal(gamma, natural=True),
        "OrthNat, Adam": lambda: functools.partial(without_divisor, gamma=gamma, natural=True),
        "OrthNat, exact": lambda: ngp.guides.orthogonal(gamma, natural=True, gamma="exact"),
        "OrthNat, diagonal": lambda: ngp.guides.orthogonal(gamma, natural=True, gamma="diagonal"),
        "Hybrid": lambda: ngp.guides.hybrid(gamma),
        "Decoupled": lambda: ngp.guides.decoupled(jnp.concatenate([gamma, beta])),
    }[method]()


def trace(belief, natural, known, X, y, options, steps):
    """The bound at every iteration, and seconds."""
    fixed = functools.partial(model, **known)
    adam = optax.adam(options.learning_rate)
    optimiser = ngp.optim.natural_gradient(adam, natural) if natural else adam
    svi = SVI(fixed, ngp.AutoGP(fixed, {"f": belief}), optimiser, Trace_ELBO())
    start = time.perf_counter()
    result = ngp.fit(jax.random.key(options.seed), svi, steps, X, y, progress=False)
    return -np.asarray(result.losses), time.perf_counter() - start


def fitted_kernel(X, y, beta, steps):
    """Kernel and noise variance that maximise the collapsed bound on beta: the fixed hyper-parameters."""

    def build(free):
        kernel = ngp.kernels.Matern52(jnp.exp(free["variance"]), jnp.exp(free["lengthscale"]))
        return kernel, jnp.exp(free["noise"])

    def loss(free):
        kernel, noise = build(free)
        return -ngp.beliefs.coupled_optimum(kernel, beta, X, y, noise)[1]

    free = {
        "variance": jnp.zeros(()),
        "lengthscale": jnp.full(X.shape[1], 0.5 * math.log(X.shape[1])),
        "noise": jnp.array(-2.0),
    }
    adam = optax.adam(0.05)

    @jax.jit
    def step(free, state):
        updates, state = adam.update(jax.grad(loss)(free), state)
        return optax.apply_updates(free, updates), state

    state = adam.init(free)
    for _ in range(steps):
        free, state = step(free, state)
    return build(free)


def gaussian_task(options):
    """Regression with its two analytic optima."""
    X, y, _ = load(options.regression, options.data)
    X, y = standardise(X)[: options.rows], standardise(y[:, None])[: options.rows, 0]
    X, y, gamma, beta = points(X, y, options)
    kernel, noise = fitted_kernel(X, y, beta, 20 if options.smoke else 150)
    optima = {
        "coupled": float(ngp.beliefs.coupled_optimum(kernel, beta, X, y, noise)[1]),
        "decoupled": float(ngp.beliefs.orthogonal_optimum(kernel, gamma, beta, X, y, noise)[1]),
    }
    known = {"kernel": kernel, "inducing": beta, "likelihood": ngp.likelihoods.Gaussian(jnp.sqrt(noise))}
    return f"{options.regression}, Gaussian", X, y, gamma, beta, known, optima


def label_task(options):
    """Two classes, with optima found by long runs of natural and Newton steps."""
    X, y, _ = load(options.classification, options.data)
    X, y = standardise(X), np.unique(y, return_inverse=True)[1].astype(float)
    X, y, gamma, beta = points(X[: options.rows], y[: options.rows], options)
    width = math.sqrt(X.shape[1])
    kernel = ngp.kernels.Matern52(4.0, width) + ngp.kernels.RBF(4.0, width)
    known = {"kernel": kernel, "inducing": beta, "likelihood": ngp.likelihoods.Bernoulli("probit")}
    exact = {
        "coupled": ngp.guides.coupled(natural=True),
        "decoupled": ngp.guides.orthogonal(gamma, natural=True, gamma="newton"),
    }
    steps = 10 if options.smoke else 200
    optima = {kind: float(trace(belief, 0.5, known, X, y, options, steps)[0][-1]) for kind, belief in exact.items()}
    return f"{options.classification}, Bernoulli", X, y, gamma, beta, known, optima


def points(X, y, options):
    """Data as arrays, random rows for gamma and k-means centres for beta."""
    X, y = jnp.asarray(X), jnp.asarray(y)
    key_gamma, key_beta = jax.random.split(jax.random.key(options.seed))
    gamma = ngp.inducing.random_subset(key_gamma, X, options.gamma)
    return X, y, gamma, ngp.inducing.kmeans(key_beta, X, options.beta, num_iterations=10)


def milestones(row):
    """Iterations and nats below the optimum that a row knows: 1 % of the way, 10 nats, 1 nat; the end if none of 1."""
    end, share, found = float(row["optimum"]) - float(row["final_bound"]), float(row["gap_share"]), {}
    start = end / share if share else 0.0  # at the optimum itself the way is not known
    for name, below in zip(REACHED, (0.01 * start, 10.0, 1.0), strict=True):
        if row[name] != "" and below > 0:
            found[name] = int(row[name]) + 1, below
    return found if row[REACHED[-1]] != "" else found | {"end": (int(row["steps"]), end)}


def run(task, methods, options):
    """Train these methods: their rows."""
    title, X, y, gamma, beta, known, optima = task
    print(f"\n{title}: N {len(X)}, M_beta {len(beta)}, M_gamma {len(gamma)}, optima {optima}")
    rows = []
    for method in methods:
        natural = options.natural_step if method in NATURAL else None
        bounds, seconds = trace(recipe(method, gamma, beta), natural, known, X, y, options, options.steps)
        best = optima["coupled" if method.startswith("Coupled") else "decoupled"]
        # The share of the way from the prior that is still to go, and when 1 % of it is left.
        gap = (best - bounds) / (best - bounds[0])
        near = [np.flatnonzero(near) for near in (gap < 0.01, best - bounds < 10, best - bounds < 1)]
        first = [int(at[0]) if len(at) else "" for at in near]
        rows.append(
            {
                "task": title,
                "seed": options.seed,
                "method": method,
                "optimum": best,
                "final_bound": bounds[-1],
                "gap_share": gap[-1],
                **dict(zip(REACHED, first, strict=True)),
                "seconds": seconds,
                "steps": options.steps,
                "learning_rate": options.learning_rate,
                "natural_step": options.natural_step,
                "version": options.version,
            }
        )
        print(
            f"  {method:16s} bound {bounds[-1]:11.3f}  gap {best - bounds[-1]:9.3f}  1 % left after "
            f"{first[0]!s:>6s} iterations, 10 nats {first[1]!s:>6s}, 1 nat {first[2]!s:>6s}  {seconds:6.1f} s"
        )
    return rows


def figure(rows, path):
    """Nats below the optimum of each method over iterations, at the milestones that all seeds have: geometric means.

    Tasks without all milestones are left out.
    """
    tasks = dict.fromkeys(row["task"] for row in rows)
    tasks = [task for task in tasks if all("not recorded" not in row.values() for row in rows if row["task"] == task)]
    drawn, axes = plt.subplots(
        1, len(tasks), figsize=(1.8 + 4.4 * len(tasks), 3.4), squeeze=False, layout="constrained"
    )
    for axis, task in zip(axes[0], tasks, strict=True):
        for method in METHODS:
            own = [milestones(row) for row in rows if (row["task"], row["method"]) == (task, method)]
            names = [name for name in (own[0] if own else ()) if all(name in one for one in own)]
            points = [np.exp(np.mean(np.log([one[name] for one in own]), axis=0)) for name in names]
            style = "-" if method in NATURAL else "--" if method.startswith(("Coupled", "Orth")) else "-."
            if points:
                line = np.transpose(sorted(points, key=lambda one: one[0]))
                axis.plot(*line, style, marker="o", ms=3, color=COLOURS[method], label=method, lw=1.4)
        seeds = len({row["seed"] for row in rows if row["task"] == task})
        title = f"{task}, {seeds} seed{'s' if seeds > 1 else ''}"
        axis.axhline(10.0, color="0.6", lw=0.8)
        axis.set(title=title, xlabel="iteration", xscale="log", yscale="log", xlim=(1, None))
    axes[0][0].set_ylabel("nats below its optimum")
    axes[0][-1].legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    drawn.savefig(path, dpi=110)
    plt.close(drawn)


def diagnose(rows):
    """Say whether the paper's ordering holds: natural before adaptive, orthogonal before hybrid before decoupled."""
    late = 10**9
    for task in dict.fromkeys(row["task"] for row in rows):
        part = {row["method"]: row for row in rows if row["task"] == task}

        def rank(method, part=part):
            reached = part[method]["iterations_to_1_percent"]
            return (late if reached == "" else int(reached), float(part[method]["gap_share"]))

        pairs = [("OrthNat", "Orth"), ("CoupledNat", "Coupled"), ("Orth", "Hybrid"), ("Hybrid", "Decoupled")]
        verdicts = [
            f"{first} before {second}: {'yes' if rank(first) < rank(second) else 'NO'}" for first, second in pairs
        ]
        print(f"{task}: {'; '.join(verdicts)}")
    above = [row["method"] for row in rows if float(row["gap_share"]) < -1e-3]
    print("No bound exceeds its optimum." if not above else f"Distrust this run: {above} exceed their optimum.")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="../shared/data", help="folder with more data sets than examples/data")
    parser.add_argument("--regression", default="concrete")
    parser.add_argument("--classification", default="ringnorm", help="'none' leaves it out")
    parser.add_argument("--rows", type=int, default=3000, help="at most so many rows of each set")
    parser.add_argument("--beta", type=int, default=50)
    parser.add_argument("--gamma", type=int, default=150)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--natural-step", type=float, default=0.1)
    parser.add_argument("--seeds", type=int, default=3, help="of points and fits; rows that are there are kept")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--out", default="examples/output")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if options.smoke:
        options.steps, options.rows, options.beta, options.gamma, options.seeds = 30, 150, 8, 12, 1
        options.regression, options.classification = "energy", "blood"
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    tasks = [gaussian_task] + ([] if options.classification == "none" else [label_task])
    path, options.version = out / "decoupled_convergence.csv", version()
    rows = read(path)
    for make in tasks:
        for seed in range(options.seeds):
            options.seed = seed
            task = make(options)
            made = {row["method"] for row in rows if (row["task"], str(row["seed"])) == (task[0], str(seed))}
            rows += run(task, [method for method in METHODS if method not in made], options)
            rows.sort(key=lambda row: (row["task"], int(row["seed"]), METHODS.index(row["method"])))
            save(path, rows)
    figure(rows, out / "decoupled_convergence.png")
    print(f"\nWritten to {out}/decoupled_convergence.csv and .png")
    diagnose([row for row in rows if str(row["seed"]) == "0"])


if __name__ == "__main__":
    main()
