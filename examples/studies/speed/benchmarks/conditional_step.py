"""The time of a step with a conditional belief over that with a coupled one, both with natural steps.

    python -m examples.studies.speed.benchmarks.conditional_step    # a minute and more

128 inducing inputs in eight dimensions, batches of 1024 of 40 000 rows, points for the hyper-parameters. Blocks of steps
alternate in one process and are timed by the processor, in one thread: a ratio is that of the least blocks, and, in
brackets, the median over the rounds.
"""

import argparse
import time

from examples.tools.clock import one_thread

one_thread()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import numpyro  # noqa: E402
import optax  # noqa: E402
from numpyro.infer import SVI, Trace_ELBO  # noqa: E402

import numpyro_gp as ngp  # noqa: E402

RECIPES = {
    "coupled": ngp.guides.coupled(natural=True),
    "conditional": ngp.guides.conditional(),
    "conditional, noise": ngp.guides.conditional(noise="noise"),
}


def model(X, y=None, *, Z, batch=None):
    """A regression whose hyper-parameters the guide holds at points."""
    kernel = ngp.kernels.RBF(
        numpyro.sample("variance", ngp.starting.variance_prior()),
        numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(Z)),
    )
    f, noise = ngp.gp("f", kernel, Z), numpyro.sample("noise", ngp.starting.noise_prior())
    with numpyro.plate("data", len(X), subsample_size=batch) as rows:
        ngp.observe("y", f(X[rows]), ngp.likelihoods.Gaussian(noise), obs=None if y is None else y[rows])


def blocks_of(recipe, X, y, Z, batch, steps):
    """A function that runs a block of steps and returns its seconds of the processor for one."""
    svi = SVI(model, ngp.AutoGP(model, {"f": recipe}), ngp.optim.natural_gradient(optax.adam(0.01), 0.1), Trace_ELBO())
    held = [svi.init(jax.random.key(0), X, y, Z=Z, batch=batch)]
    many = jax.jit(
        lambda s, X, y, Z: jax.lax.fori_loop(0, steps, lambda _, s: svi.update(s, X, y, Z=Z, batch=batch)[0], s)
    )

    def run():
        start = time.process_time()
        held[0] = jax.block_until_ready(many(held[0], X, y, Z))
        return (time.process_time() - start) / steps

    run()
    return run


def main():
    """Ratios in both precisions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--steps", type=int, default=10, help="in a block")
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--inducing", type=int, default=128)
    options = parser.parse_args()
    for precision in (64, 32):
        jax.config.update("jax_enable_x64", precision == 64)
        rng = np.random.default_rng(0)
        X = jnp.asarray(rng.normal(size=(options.rows, 8)))
        y = jnp.sin(X[:, 0]) + 0.1 * jnp.asarray(rng.normal(size=options.rows))
        arguments = X, y, X[: options.inducing], min(1024, options.rows), options.steps
        runs = {name: blocks_of(recipe, *arguments) for name, recipe in RECIPES.items()}
        rounds = np.array([[run() for run in runs.values()] for _ in range(options.rounds)])
        base = rounds[:, 0]
        for name, own in zip(runs, rounds.T, strict=True):
            ratios = f"{own.min() / base.min():.3f} ({np.median(own / base):.3f})"
            print(f"float{precision} {name:18} {1e3 * own.min():6.2f} ms, {ratios}", flush=True)


if __name__ == "__main__":
    main()
