"""Stein variational GP regression with the kernel and priors of the paper (Pinder et al. 2020, section 5.1).

    export OMP_NUM_THREADS=1 XLA_FLAGS=--xla_cpu_multi_thread_eigen=false
    python -m examples.studies.stein.stein_paper_model --data DATA

`stein_regression` has a Matern-3/2 kernel and log-normal priors. Here the kernel is an RBF with a lengthscale for each
column, and particles and chains have priors Gamma of shape 1 and scale 2 for lengthscales, variance and noise variance.
Maximum likelihood and variational inference have none, start at lengthscales of the root of the number of columns, and
take Adam steps of 0.01, the latter beside natural steps of 0.1. "stein" is the paper's recipe, one kernel for all
coordinates by the median rule from draws of the prior, and "stein.auto" ours. Splits are those of `stein_regression`,
and no set has inducing inputs. Rows that are there are not made again.
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
from numpyro.infer import MCMC, SVI, Trace_ELBO, init_to_value
from numpyro.infer.autoguide import AutoDelta

import numpyro_gp as ngp
from examples.studies.stein.stein_regression import paired_table
from examples.tools import datasets
from examples.tools.run_queue import version
from examples.tools.tables import read, save

SETS = ("servo", "machine", "concreteslump", "challenger", "autompg", "housing")


def hyper_parameters(columns, flat):
    """Kernel and noise variance; ``flat`` puts improper priors in place of the Gamma ones."""

    def prior(shape=()):
        if flat:
            return dist.ImproperUniform(dist.constraints.positive, shape, ())
        return dist.Gamma(1.0, 0.5).expand(shape)

    lengthscale = numpyro.sample("lengthscale", prior((columns,)).to_event(1))
    return ngp.kernels.RBF(numpyro.sample("variance", prior()), lengthscale), numpyro.sample("noise", prior())


def regression(X, y, flat=False):
    """Gaussian data with the function integrated out."""
    kernel, noise = hyper_parameters(X.shape[1], flat)
    return ngp.gp_regression("y", kernel, X, noise_variance=noise, obs=y, jitter=1e-6), jnp.sqrt(noise)


def explicit(X, y=None, Z=None):
    """The same with a GP site at the training inputs ``Z``, for the variational fit."""
    kernel, noise = hyper_parameters(X.shape[1], True)
    f = ngp.gp("f", kernel, Z)
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(jnp.sqrt(noise)), obs=y)


def start(columns):
    """Where one point begins."""
    values = {"lengthscale": jnp.full(columns, columns**0.5), "variance": 1.0, "noise": 1.0}
    return init_to_value(values={name: jnp.asarray(value) for name, value in values.items()})


def maximum_likelihood(key, X, y, options):
    guide = AutoDelta(regression, init_loc_fn=start(X.shape[1]))
    svi = SVI(regression, guide, optax.adam(0.01), Trace_ELBO())
    params = ngp.fit(key, svi, options.steps, X, y, flat=True, progress=False).params
    return jax.tree.map(lambda leaf: leaf[None], guide.median(params))


def one_kernel(key, X, y, options):
    svgd = ngp.stein.SVGD(regression, optax.adam(0.05), ngp.stein.RBF(), options.particles)
    return svgd.particles(ngp.fit(key, svgd, options.particle_steps, X, y, progress=False).params)


def auto(key, X, y, options):
    svgd, result = ngp.stein.auto(key, regression, X, y, num_particles=options.particles)
    return svgd.particles(result.params)


def nuts(key, X, y, options):
    mcmc = MCMC(ngp.NUTS(regression), num_warmup=options.draws, num_samples=options.draws, progress_bar=False)
    mcmc.run(key, X, y)
    return mcmc


def variational(key, X, y, X_test, options):
    """The prediction of a fit with natural gradients."""
    guide = ngp.AutoGP(
        explicit, {"f": ngp.guides.coupled(natural=True)}, lambda model: AutoDelta(model, init_loc_fn=start(X.shape[1]))
    )
    svi = SVI(explicit, guide, ngp.optim.natural_gradient(optax.adam(0.01), 0.1), Trace_ELBO())
    params = ngp.fit(key, svi, options.steps, X, y, Z=X, progress=False).params
    return ngp.Posterior.from_svi(explicit, guide, params).predict(key, X_test, Z=X)


SAMPLED = {
    "stein.auto, 20 particles": auto,
    "stein, 20 particles": one_kernel,
    "maximum likelihood": maximum_likelihood,
    "NUTS": nuts,
}
METHODS = (*SAMPLED, "variational")


def steps_of(method, options):
    if method.startswith("stein.auto"):
        return ""  # as many as its rule takes
    return {"NUTS": 2 * options.draws, "stein, 20 particles": options.particle_steps}.get(method, options.steps)


def rows_of(name, split, options, known):
    """Rows of one split, one for each method that has none among ``known``, as they come."""
    X, y, _ = datasets.load(name, options.data)
    X, y = datasets.standardise(X), datasets.standardise(y[:, None])[:, 0]
    X, order = X[:, X.std(0) > 0], np.random.default_rng(split).permutation(len(y))
    train, test = np.split(order, [int(0.7 * len(order))])
    (X, y), (X_test, y_test) = ((jnp.asarray(X[rows]), jnp.asarray(y[rows])) for rows in (train, test))
    key = jax.random.key(split)
    for method in options.methods:
        if (name, split, method) in known:
            continue
        began = time.process_time()
        if method in SAMPLED:
            posterior = ngp.Posterior.from_mcmc(regression, SAMPLED[method](key, X, y, options))
            prediction = posterior.predict_at(key, X_test, X, y)
        else:
            prediction = variational(key, X, y, X_test, options)
        yield {
            "dataset": name, "rows": len(order), "split": split, "method": method,
            "steps": steps_of(method, options),
            "log_density": f"{float(prediction.log_density(y_test).mean()):.4f}",
            "rmse": f"{float(jnp.sqrt(jnp.mean((prediction.mean - y_test) ** 2))):.4f}",
            "seconds": f"{time.process_time() - began:.0f}", "version": version(),
        }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=str(datasets.HERE), help="folder of data sets")
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1000, help="of one point and of the variational fit")
    parser.add_argument("--particle-steps", type=int, default=500)
    parser.add_argument("--draws", type=int, default=200, help="of NUTS, after as many of warm-up")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    options.particles = 20
    if options.smoke:
        options.sets, options.splits, options.steps, options.particle_steps = ["challenger"], 1, 5, 3
        options.methods, options.draws, options.particles = [METHODS[place] for place in (1, 2, 4)], 3, 2
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "stein_paper_model.csv"
    rows = read(path)
    known = {(row["dataset"], row["split"], row["method"]) for row in rows}
    for name in options.sets:
        for split in range(options.splits):
            for row in rows_of(name, split, options, known):
                rows.append(row)
                save(path, rows)
                print(*row.values(), flush=True)
    print(paired_table(rows))


if __name__ == "__main__":
    main()
