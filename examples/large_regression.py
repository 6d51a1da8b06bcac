"""Sparse regression on tens of thousands of rows: natural gradients, minibatches, held-out density.

    python -m examples.large_regression --data ../shared/data --set kin40k --inducing 128 512

The belief takes natural-gradient steps, kernel, noise and inducing inputs take Adam steps. Data are
standardised over the whole set, as in the papers, and scores are in those units.
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

KERNELS = {"matern52": ngp.kernels.Matern52, "rbf": ngp.kernels.RBF}


def model(X, y=None, *, inducing, kernel=ngp.kernels.Matern52, batch=None):
    """Sparse Gaussian process regression with an ARD kernel; inducing inputs are learnt."""
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0).expand([X.shape[-1]]).to_event(1))
    variance = numpyro.sample("variance", dist.LogNormal(0.0, 1.0))
    noise = numpyro.sample("noise", dist.LogNormal(-1.0, 1.0))
    Z = numpyro.param("inducing", inducing)
    f = ngp.gp("f", kernel(variance, lengthscale), Z)
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as index:
        ngp.observe("y", f(X[index]), ngp.likelihoods.Gaussian(noise), obs=None if y is None else y[index])


def optimiser(steps, learning_rate, natural_step):
    """Adam with cosine decay for hyper-parameters, natural steps that ramp up and decay at the end for the belief."""
    rise = max(1, steps // 20)
    natural = optax.join_schedules(
        [ngp.optim.ramp(1e-3, natural_step, rise), optax.cosine_decay_schedule(natural_step, steps - rise, 0.05)],
        [rise],
    )
    return ngp.optim.natural_gradient(optax.adam(optax.cosine_decay_schedule(learning_rate, steps, 0.02)), natural)


def run(X, y, test, *, num_inducing, kernel, steps, batch, learning_rate, natural_step, key):
    """Fit on the rows that are not for testing; return scores and seconds."""
    train, held_out = ~test, test
    Xt, yt = jnp.asarray(X[train]), jnp.asarray(y[train])
    key_z, key_fit, key_predict = jax.random.split(key, 3)
    Z = ngp.inducing.kmeans(key_z, Xt, num_inducing, num_iterations=10)
    guide = ngp.AutoGP(model, {"f": ngp.guides.coupled(natural=True)})
    svi = SVI(model, guide, optimiser(steps, learning_rate, natural_step), Trace_ELBO())
    start = time.perf_counter()
    fit = ngp.fit(key_fit, svi, steps, Xt, yt, inducing=Z, kernel=KERNELS[kernel], batch=min(batch, len(yt)))
    seconds = time.perf_counter() - start
    posterior = fit.posterior()
    learnt = fit.params["inducing"]
    prediction = posterior.predict(key_predict, jnp.asarray(X[held_out]), inducing=learnt, kernel=KERNELS[kernel])
    target = jnp.asarray(y[held_out])
    density = ngp.metrics.mean_log_density(prediction.log_density(target))
    error = ngp.metrics.rmse(prediction.mean, target)
    return {
        "log_density": float(density.value),
        "standard_error": float(density.standard_error),
        "rmse": float(error.value),
        "noise": float(guide.rest.median(fit.params)["noise"]),
        "seconds": seconds,
        "ms_per_step": 1000 * seconds / steps,
    }


def main(argv=None):
    """Run the table that the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", default="examples/data", help="folder of the data sets (regression/NAME.csv.gz below it)"
    )
    parser.add_argument("--set", default="energy")
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--inducing", type=int, nargs="+", default=[128])
    parser.add_argument("--kernels", nargs="+", default=["matern52"], choices=sorted(KERNELS))
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--learning-rate", type=float, default=0.05, help="of Adam, at the start")
    parser.add_argument("--natural-step", type=float, default=0.1, help="largest step of the belief")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--x64", action="store_true", help="float64 instead of float32")
    parser.add_argument("--out", type=Path, default=Path("examples/output"))
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args(argv)
    if options.smoke:
        options.inducing, options.steps, options.batch = [16], 30, 128
    jax.config.update("jax_enable_x64", options.x64)
    X, y, splits = load(options.set, options.data)
    dtype = np.float64 if options.x64 else np.float32
    X, y = standardise(X).astype(dtype), standardise(y).astype(dtype)
    test = split_mask(splits, options.split)
    print(
        f"{options.set}: {np.sum(~test)} rows to train, {np.sum(test)} to test, {X.shape[1]} inputs, {dtype.__name__}"
    )
    rows = []
    for kernel in options.kernels:
        for size in options.inducing:
            scores = run(
                X,
                y,
                test,
                num_inducing=size,
                kernel=kernel,
                steps=options.steps,
                batch=options.batch,
                learning_rate=options.learning_rate,
                natural_step=options.natural_step,
                key=jax.random.key(0),
            )
            rows.append({"set": options.set, "kernel": kernel, "inducing": size, "steps": options.steps, **scores})
            print(
                "  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in rows[-1].items()),
                flush=True,
            )
    options.out.mkdir(parents=True, exist_ok=True)
    with open(options.out / "large_regression.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    last = rows[-1]
    print(
        f"Diagnosis: noise {last['noise']:.3f}, test error {last['rmse']:.3f}. What is called noise also holds what "
        "the inducing inputs cannot explain: where more of them lower it, they still help."
    )


if __name__ == "__main__":
    main()
