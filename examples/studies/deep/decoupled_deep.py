"""Decoupled against coupled deep Gaussian processes (Havasi et al. 2018), test scores and seconds a step by depth.

    python -m examples.studies.deep.decoupled_deep [--sets kin8nm protein_raw] [--depths 0 1 2 3 4] [--data PATH]

Coupled: M = 200 for mean and covariance. Decoupled: 500 points for the mean, 100 for the covariance. Targets are in raw
units. ``depth`` counts hidden layers. Published: seed001_dgp_results.csv.
"""

import argparse
import csv
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp
from examples.tools.datasets import load, split_mask, standardise
from examples.tools.run_queue import Problem
from examples.tools.tables import save

HERE = Path(__file__).parent
KINDS = ("coupled", "decoupled")


def build(kind, X, depth, sizes):
    """Model and guide: every layer RBF; hidden layers as wide as the inputs or ``sizes["width"]``, identity means.

    ``kind`` is "coupled" or "decoupled", as in the paper, or "orthogonal" (Salimbeni et al. 2018).
    """
    key = jax.random.key(0)
    count = sizes["coupled"] if kind == "coupled" else sizes["covariance"]
    Z = ngp.inducing.random_subset(key, X, min(count, len(X)))
    of_mean = ngp.inducing.random_subset(jax.random.fold_in(key, 1), X, min(sizes["mean"], len(X)))
    Z_mean = None if kind == "coupled" else of_mean
    mean = "orthogonal" if kind == "orthogonal" else "gpcent"
    layers = ngp.deep.stack(X, [sizes.get("width", X.shape[1])] * depth, Z, mean_inducing=Z_mean, mean=mean)

    def model(X, y=None, batch=None):
        scale = numpyro.sample("scale", dist.LogNormal(jnp.log(0.3), 1.0))
        f = layers()
        with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
            ngp.observe("y", f(X[idx]), ngp.likelihoods.Gaussian(scale), obs=None if y is None else y[idx])

    # Both kinds of the paper train by plain Adam: of a stack, the last coupled layer has natural parameters.
    last = {f"f_{depth}": ngp.guides.coupled()} if kind == "coupled" else {}
    return model, ngp.AutoGP(model, layers.recipes | last)


def problem(kind, depth, data, split, args):
    """One fit, ready for ``ngp.fit``, and its test log density and RMSE in raw units of the target."""
    inputs, y, masks = data
    test = split_mask(masks, split)
    X, unit, center = standardise(inputs), y[~test].std(), y[~test].mean()
    target = (y - center) / unit
    sizes = {"coupled": args.coupled, "mean": args.mean, "covariance": args.covariance}
    sizes |= {"width": args.width} if getattr(args, "width", None) else {}
    model, guide = build(kind, jnp.asarray(X[~test]), depth, sizes)
    optimiser = optax.adam(args.rate)
    if kind == "orthogonal":  # the last layer has natural parameters
        optimiser = ngp.optim.natural_gradient(optimiser, ngp.optim.ramp(1e-3, 0.1, 100))
    svi = SVI(model, guide, optimiser, Trace_ELBO())
    arrays, batch = (jnp.asarray(X[~test]), jnp.asarray(target[~test])), min(args.batch, int(np.sum(~test)))

    def score(params):
        posterior = ngp.Posterior.from_svi(model, guide, params)
        draws = args.draws if depth else 1
        prediction = posterior.predict(jax.random.key(1), jnp.asarray(X[test]), num_samples=draws)
        density = float(jnp.mean(prediction.log_density(jnp.asarray(target[test])))) - np.log(unit)
        rmse = float(np.sqrt(np.mean((np.asarray(prediction.mean) - target[test]) ** 2)) * unit)
        return {"log_density": density, "rmse": rmse}

    return Problem(svi, jax.random.key(split), arrays, {"batch": batch}, score)


def run(kind, depth, data, split, args):
    """Fit, score, and time some more steps."""
    svi, key, arrays, keywords, score = problem(kind, depth, data, split, args)
    result = ngp.fit(key, svi, args.steps, *arrays, **keywords, progress=False)
    update = jax.jit(lambda state: svi.update(state, *arrays, **keywords))
    state, loss = update(result.state)
    jax.block_until_ready(loss)
    start = time.perf_counter()
    for _ in range(args.timed):
        state, loss = update(state)
    jax.block_until_ready(loss)
    seconds = (time.perf_counter() - start) / args.timed
    scores = score(result.params)
    return {"test_loglik": scores["log_density"], "test_rmse": scores["rmse"], "ms_per_step": 1e3 * seconds}


def rate(kind, depth, data, args):
    """Milliseconds a step, the fastest of five times as many steps as are asked for, in one compiled loop."""
    svi, key, arrays, keywords, _ = problem(kind, depth, data, 0, args)
    state = jax.jit(lambda key: svi.init(key, *arrays, **keywords))(key)

    @jax.jit
    def steps(state, arrays):
        step = lambda state, _: svi.update(state, *arrays, **keywords)  # noqa: E731
        return jax.lax.scan(step, state, None, length=args.timed)

    jax.block_until_ready(steps(state, arrays))
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        jax.block_until_ready(steps(state, arrays))
        seconds.append(time.perf_counter() - start)
    return 1e3 * min(seconds) / args.timed


def rates(args):
    """A row for each set, depth and kind, appended as it is measured, so that several processes may share a table."""
    device, dtype = jax.devices()[0].device_kind, "float32" if args.single else "float64"
    for name in args.sets:
        data = load(name, args.data)
        for depth in args.depths:
            for kind in args.kinds:
                row = {"set": name, "depth": depth, "method": kind, "dtype": dtype, "device": device}
                row |= {"batch": args.batch, "ms_per_step": rate(kind, depth, data, args)}
                append(args.out / "decoupled_rates.csv", row)
                print(
                    f"{name} depth {depth} {kind} {dtype}: {row['ms_per_step']:.3f} ms a step on {device}", flush=True
                )


def append(path, row):
    is_new = not path.exists()
    with open(path, "a", newline="") as file:
        writer = csv.DictWriter(file, row)
        if is_new:
            writer.writeheader()
        writer.writerow(row)


def published(folder):
    file = Path(folder) / "published" / "seed001_dgp_results.csv"
    if not file.exists():
        return {}
    with open(file) as lines:
        return {(r["dataset"], r["method"], r["metric"]): r["value"] for r in csv.DictReader(lines)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["kin8nm", "protein_raw"])
    parser.add_argument("--depths", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--splits", nargs="+", type=int, default=[0])
    parser.add_argument("--steps", type=int, default=10000)
    parser.add_argument("--timed", type=int, default=20, help="steps that are timed after the fit")
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--coupled", type=int, default=200)
    parser.add_argument("--mean", type=int, default=500)
    parser.add_argument("--covariance", type=int, default=100)
    parser.add_argument("--draws", type=int, default=50)
    parser.add_argument("--data", type=Path, default=HERE.parents[3] / "shared" / "data")
    parser.add_argument("--out", type=Path, default=HERE.parents[1] / "output")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--rates", action="store_true", help="time steps alone: no fits, no scores")
    parser.add_argument("--single", action="store_true", help="float32")
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    if args.smoke:
        args.sets, args.depths, args.steps, args.timed, args.draws = ["yacht"], [0, 1], 3, 2, 3
        args.coupled, args.mean, args.covariance = 8, 12, 6
    jax.config.update("jax_enable_x64", not args.single)
    args.out.mkdir(parents=True, exist_ok=True)
    if args.rates:
        rates(args)
        return
    printed, rows = published(args.data), []
    print(f"{args.steps} steps of {args.batch}; printed values of the paper in brackets")
    for name in args.sets:
        data = load(name, args.data)
        for depth in args.depths:
            for split in args.splits:
                for kind in args.kinds:
                    row = {"set": name, "depth": depth, "split": split, "method": kind, "steps": args.steps}
                    rows.append(row | run(kind, depth, data, split, args))
                    label = "full M=200" if kind == "coupled" else "decoupled Ma=500 Mb=100"
                    old = printed.get((name.removesuffix("_raw"), f"DGP L={depth} {label}", "test_loglik"), "-")
                    last = rows[-1]
                    print(
                        f"{name:12s} depth {depth} {kind:10s} log density {last['test_loglik']:7.3f} ({old}), "
                        f"rmse {last['test_rmse']:.4f}, {last['ms_per_step']:.1f} ms a step",
                        flush=True,
                    )
                    save(args.out / "decoupled_deep.csv", rows)
    verdict(rows)
    print(f"Table in {args.out / 'decoupled_deep.csv'}")


def verdict(rows):
    """Whether decoupled layers are faster and better, among models with a hidden layer."""
    if len({row["method"] for row in rows}) < 2:
        return
    pairs = [(a, b) for a, b in zip(rows[::2], rows[1::2], strict=True) if a["depth"] > 0]
    faster = sum(b["ms_per_step"] < a["ms_per_step"] for a, b in pairs)
    better = sum(b["test_loglik"] > a["test_loglik"] for a, b in pairs)
    print(f"With a hidden layer decoupled is faster in {faster} and better in {better} of {len(pairs)} runs.")
    print("Distrust a difference that is smaller than that between splits, or that more steps turn round.")


if __name__ == "__main__":
    main()
