"""How uncertain are the hyper-parameters? SVI with and without a belief that follows them, beside NUTS.

    # about half an hour; rows that are there are not made again
    python -m examples.studies.hyperparameters.hyperparameters

Five models: a classification, counts, a mean and a noise that are both processes, three outputs, ten groups. Each is
fitted with ``coupled`` and with ``conditional`` beliefs, beside a full normal over the hyper-parameters, and sampled by
NUTS, which here knows nothing of the other two. Rows have the bound, and mean and standard deviation of each
hyper-parameter. NUTS ends at its limit of draws, and its least effective sample size says how far to trust it.
"""

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal

import numpyro_gp as ngp
from examples.tools.tables import read, save

Matern = ngp.kernels.Matern52


def positive(name, loc=0.0, scale=0.7):
    """A hyper-parameter with a log-normal prior."""
    return numpyro.sample(name, dist.LogNormal(loc, scale))


def data_plate(X):
    """The plate of the rows."""
    return numpyro.plate("data", X.shape[0])


def classification(rng, rows):
    """Two classes on a plane, 40 inducing inputs."""
    X = jnp.asarray(rng.uniform(-1, 1, (rows, 2)))
    f = 3 * (np.sin(4 * X[:, 0]) + np.cos(3 * X[:, 1]))
    y, Z = jnp.asarray((rng.uniform(size=rows) < 1 / (1 + np.exp(-f))).astype(float)), X[:40]

    def model(X, y):
        f = ngp.gp("f", Matern(positive("variance", 0.0, 1.0), positive("lengthscale")), Z)
        with data_plate(X):
            ngp.observe("y", f(X), ngp.likelihoods.Bernoulli(), obs=y)

    return model, (X, y), ["f"]


def counts(rng, rows):
    """Poisson counts on a plane, inducing inputs on a grid of 8 by 8."""
    X = jnp.asarray(rng.uniform(-1, 1, (rows, 2)))
    y = jnp.asarray(rng.poisson(np.exp(1 + np.sin(4 * X[:, 0]) + np.cos(3 * X[:, 1]))).astype(float))
    line = jnp.linspace(-1, 1, 8)
    Z = jnp.stack(jnp.meshgrid(line, line), -1).reshape(-1, 2)

    def model(X, y):
        f = ngp.gp("f", Matern(positive("variance", 0.0, 1.0), positive("lengthscale")), Z)
        with data_plate(X):
            ngp.observe("y", f(X), ngp.likelihoods.Poisson(), obs=y)

    return model, (X, y), ["f"]


def heteroscedastic(rng, rows):
    """A mean and the logarithm of the noise, each a process."""
    X = jnp.linspace(-2, 2, rows)[:, None]
    y = jnp.asarray(np.sin(2 * X[:, 0]) + np.exp(-1.5 + 0.8 * np.cos(2 * X[:, 0])) * rng.normal(size=rows))
    Z = jnp.linspace(-2, 2, 15)[:, None]

    def model(X, y):
        f = ngp.gp("f", Matern(1.0, positive("lengthscale")), Z)
        g = ngp.gp("g", Matern(positive("variance_g"), positive("lengthscale_g")), Z, mean=-1.0)
        with data_plate(X):
            ngp.observe("y", (f(X), g(X)), ngp.likelihoods.HeteroscedasticGaussian(), obs=y)

    return model, (X, y), ["f", "g"]


def outputs(rng, rows):
    """Three functions with one kernel, and noise."""
    X, Z = jnp.asarray(rng.uniform(-2, 2, (rows, 1))), jnp.linspace(-2, 2, 12)[:, None]
    F = np.stack([np.sin(2 * X[:, 0]), np.cos(2 * X[:, 0]), np.sin(2 * X[:, 0] + 1)], -1)
    y = jnp.asarray(F + 0.3 * rng.normal(size=F.shape))

    def model(X, y):
        noise = positive("noise", -1.0)
        f = ngp.gp("f", Matern(positive("variance"), positive("lengthscale")), Z, outputs=3)
        with data_plate(X):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(noise), obs=y)

    return model, (X, y), ["f"]


def groups(rng, rows):
    """Ten groups, each with a function of its own and a kernel that all share."""
    X, Z = jnp.asarray(rng.uniform(-2, 2, (10, rows // 10, 1))), jnp.linspace(-2, 2, 8)[:, None]
    phase = rng.uniform(0, 6, (10, 1))
    y = jnp.asarray(np.sin(1.5 * X[..., 0] + phase) + 0.3 * rng.normal(size=X.shape[:2]))

    def model(X, y):
        kernel, noise = Matern(positive("variance"), positive("lengthscale")), positive("noise", -1.0)
        with numpyro.plate("groups", 10, dim=-2):
            f = ngp.gp("f", kernel, Z)
            with numpyro.plate("data", X.shape[1], dim=-1):
                ngp.observe("y", f(X), ngp.likelihoods.Gaussian(noise), obs=y)

    return model, (X, y), ["f"]


CASES = {classification: 300, counts: 1000, heteroscedastic: 120, outputs: 60, groups: 150}


def by_svi(case, recipe, steps):
    """Bound, draws of hyper-parameters, seconds, and no effective sample size."""
    model, data, sites = case
    guide = ngp.AutoGP(model, dict.fromkeys(sites, recipe), rest=AutoMultivariateNormal)
    adam = optax.adam(optax.cosine_decay_schedule(0.03, steps))
    optimiser = ngp.optim.natural_gradient(adam, ngp.optim.ramp(0.01, 0.1, steps // 10))
    svi, start = SVI(model, guide, optimiser, Trace_ELBO(num_particles=4)), time.perf_counter()
    params = ngp.fit(jax.random.key(0), svi, steps, *data, progress=False).params
    seconds = time.perf_counter() - start
    bound = -Trace_ELBO(num_particles=500).loss(jax.random.key(1), params, model, guide, *data)
    draws = guide.rest.sample_posterior(jax.random.key(2), params, sample_shape=(20000,))
    return float(bound), {n: draws[n] for n in draws if draws[n].ndim == 1}, seconds, float("nan")


def by_nuts(case, draws):
    """One chain of the plain model with a dense mass matrix of the hyper-parameters."""
    model, data, sites = case
    with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.trace() as trace:
        model(*data)
    sampled = (name for name, site in trace.items() if site["type"] == "sample" and not site["is_observed"])
    names = tuple(name for name in sampled if name not in sites)
    kernel = ngp.NUTS(model, dense_mass=[names], max_tree_depth=8)
    mcmc, start = MCMC(kernel, num_warmup=draws, num_samples=draws, progress_bar=False), time.perf_counter()
    mcmc.run(jax.random.key(0), *data)
    found = {name: np.asarray(mcmc.get_samples()[name]) for name in names}
    ess = min(float(effective_sample_size(values[None])) for values in found.values())
    return float("nan"), found, time.perf_counter() - start, ess


def main(arguments=None):
    """Fit and sample each model, a row for each hyper-parameter; rows that the file has are not made again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--only", nargs="+", default=None, help="names of models")
    parser.add_argument("--methods", nargs="+", default=["coupled", "conditional", "NUTS"])
    parser.add_argument("--draws", type=int, default=1000, help="of NUTS, after as many to warm up")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder of the rows")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "hyperparameters.csv"
    done = {(row["model"], row["method"]) for row in read(path)}
    steps, draws = (30, 5) if options.smoke else (2000, options.draws)
    for make, rows in list(CASES.items())[: 1 if options.smoke else None]:
        name = make.__name__
        if options.only and name not in options.only:
            continue
        case = make(np.random.default_rng(0), 60 if options.smoke else rows)
        for method in options.methods:
            if (name, method) in done:
                continue
            recipe = {"coupled": ngp.guides.coupled(natural=True), "conditional": ngp.guides.conditional()}.get(method)
            bound, found, seconds, ess = by_nuts(case, draws) if recipe is None else by_svi(case, recipe, steps)
            table = [
                {
                    "model": name,
                    "method": method,
                    "hyperparameter": one,
                    "mean": round(float(values.mean()), 4),
                    "sd": round(float(values.std()), 4),
                    "bound": round(bound, 2),
                    "least_ess": round(ess, 1),
                    "seconds": round(seconds, 1),
                }
                for one, values in sorted(found.items())
            ]
            save(path, read(path) + table)
            for row in table:
                print(*row.values(), flush=True)


if __name__ == "__main__":
    main()
