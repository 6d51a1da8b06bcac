"""The loop of a user who gains a row at a time: fit, predict, thirty times; programs compiled and seconds.

    python -m examples.studies.speed.benchmarks.loop

Rows grow, so that every round has shapes of its own and compiles, or stand in a table of thirty whose empty rows have a
noise that hides them (`examples.bayesian_optimisation` does it): the second round and all after it compile nothing. A
guide that sees other shapes starts where its first fit did, other keys of the same shapes where they say: the two forms
end a little apart.
"""

import time

from examples.tools.clock import one_thread

one_thread()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import numpyro  # noqa: E402
import numpyro.distributions as dist  # noqa: E402
import optax  # noqa: E402
from numpyro.infer import SVI, Trace_ELBO  # noqa: E402

import numpyro_gp as ngp  # noqa: E402
from tests.compiling import counted  # noqa: E402

ROUNDS, START, HIDDEN = 30, 10, 1e8


def model(X, y, noise):
    lengthscale, variance = (numpyro.sample(name, dist.LogNormal(0.0, 1.0)) for name in ("lengthscale", "variance"))
    ngp.gp_regression("y", ngp.kernels.Matern52(variance, lengthscale), X, noise, obs=y)


def rounds(padded):
    """Seconds of the first round, median seconds of the others, and the programs of all after the first."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(START + ROUNDS, 2))
    y, new = np.sin(6 * X[:, 0]) + X[:, 1], jnp.asarray(rng.uniform(size=(1000, 2)))
    engine = SVI(model, ngp.AutoGP(model), optax.adam(0.05), Trace_ELBO())
    times, programs = [], 0
    for n in range(ROUNDS):
        seen = START + n
        held = np.arange(len(X)) < seen
        data = (X, np.where(held, y, 0.0), np.where(held, 1e-2, HIDDEN))
        data = data if padded else tuple(part[:seen] for part in data)
        begin = time.perf_counter()
        with counted() as found:
            result = ngp.fit(jax.random.key(n), engine, 100, *data, progress=False)
            posterior = ngp.Posterior.from_svi(model, engine.guide, result.params)
            predicted = posterior.predict_at(jax.random.key(n), new, *data, noise_variance=1e-2)
            jax.block_until_ready((predicted.mean, predicted.variance))
        times.append(time.perf_counter() - begin)
        programs += found.count if n else 0
    return times[0], float(np.median(times[1:])), programs, predicted


def main():
    jax.config.update("jax_enable_x64", True)
    both = {}
    for name, padded in (("growing", False), ("padded", True)):
        first, rest, programs, both[name] = rounds(padded)
        print(
            f"{name:8s} first round {first:.2f} s, later rounds {rest:.3f} s each, {programs} programs after the first"
        )
    gap = jnp.max(jnp.abs(both["growing"].mean - both["padded"].mean))
    print(f"means of the last round differ by at most {gap:.1e}")


if __name__ == "__main__":
    main()
