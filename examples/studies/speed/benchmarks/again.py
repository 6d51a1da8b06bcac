"""What is asked a second time: milliseconds and programs of fits and predictions of a model that is known, on one thread.

    python -m examples.studies.speed.benchmarks.again

The model has one process with 20 inducing inputs and two hyper-parameters, and 200 rows. Medians of seven calls.
"""

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
from tests.compiling import counted  # noqa: E402

X = jnp.linspace(-3.0, 3.0, 200)[:, None]
Y = jnp.sin(2 * X[:, 0]) + 0.2 * jax.random.normal(jax.random.key(0), (200,))
Z = X[::10]
KEY = jax.random.key(0)


def model(X, y=None, *, Z, batch=None):
    lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(Z, ard=False))
    noise = numpyro.sample("noise", ngp.starting.noise_prior())
    f = ngp.gp("f", ngp.kernels.Matern52(1.0, lengthscale), inducing=Z)
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
        ngp.observe("y", f(X[idx]), ngp.likelihoods.Gaussian(noise), obs=None if y is None else y[idx])


def engine():
    guide = ngp.AutoGP(model, {"f": ngp.guides.coupled(natural=True)})
    return SVI(model, guide, ngp.optim.natural_gradient(optax.adam(1e-2), 0.1), Trace_ELBO())


def fit(svi):
    return ngp.fit(KEY, svi, 2, X, Y, Z=Z, progress=False)


def calls(svi):
    """What is asked again, by name, once a first fit has compiled."""
    posterior = ngp.Posterior.from_svi(model, svi.guide, fit(svi).params)
    return {
        "fit again": lambda: fit(svi).losses,
        "fit of a new engine": lambda: fit(engine()).losses,
        "predict 5 rows": lambda: posterior.predict(KEY, X[:5], Z=Z).mean,
        "predict 200 rows": lambda: posterior.predict(KEY, X, Z=Z).mean,
        "draws at the data": lambda: posterior.draws(KEY, X, Y, Z=Z, num_samples=20).latent,
        "functions": lambda: posterior.functions(KEY, 10, X, Z=Z, num_features=64)(X),
        "function_draws": lambda: posterior.function_draws(KEY, X[:20], X, Z=Z, num_samples=10),
    }


def main():
    svi = engine()
    with counted() as programs:
        start, cpu = time.perf_counter(), time.process_time()
        fit(svi)
        seconds = time.perf_counter() - start, time.process_time() - cpu
    print(f"{'first fit':28s} {1e3 * seconds[0]:8.0f} ms, {seconds[1]:.1f} s of processor, {programs.count} programs")
    for name, call in calls(svi).items():
        jax.block_until_ready(call())
        times = []
        with counted() as programs:
            for _ in range(7):
                begin = time.perf_counter()
                jax.block_until_ready(call())
                times.append(time.perf_counter() - begin)
        print(f"{name:28s} {1e3 * np.median(times):8.1f} ms, {programs.count} programs")


if __name__ == "__main__":
    main()
