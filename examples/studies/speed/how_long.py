"""How long a fit takes: processor seconds by engine and number of rows, compilation and predictions included.

    python -m examples.studies.speed.how_long  # five minutes of one core; rows that are there are not made again

Each number is a process of its own that fits three columns with the settings of the guide and predicts 1000 new rows.
It has one thread, and counts the processor's seconds from the first array on, in single precision, without a cache of
compiled programs; the imports before are some seconds more.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
from numpyro.infer import MCMC, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoDelta, AutoMultivariateNormal

import numpyro_gp as ngp
from examples.tools.tables import markdown, read, save

SIZES, NEW, INDUCING, NOISE = (300, 3000, 30_000, 100_000), 1000, 100, 0.3
KEY = jax.random.key(0)
# Why a cell is empty.
CUBE, CHAINS = "rows³", "take SVI"


def data(rows):
    """Three columns, a sum of two curves and an interaction; the new rows last."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows + NEW, 3)).astype(np.float32)
    f = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] ** 2 + np.cos(X[:, 1] + X[:, 2])
    f = (f - f.mean()) / f.std()
    y = (f + NOISE * rng.normal(size=len(f))).astype(np.float32)
    return X[:rows], y[:rows], X[rows:], y[rows:]


def priors(X):
    """A kernel and the variance of the noise."""
    lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(X))
    variance = numpyro.sample("variance", ngp.starting.variance_prior())
    return ngp.kernels.Matern52(variance, lengthscale), numpyro.sample("noise", ngp.starting.noise_prior())


def regression(X, y=None):
    """Exact."""
    kernel, noise = priors(X)
    return ngp.gp_regression("y", kernel, X, noise**2, obs=y)


def sparse(X, y=None, *, Z, batch=None):
    """Inducing inputs and minibatches."""
    kernel, noise = priors(Z)
    f = ngp.gp("f", kernel, inducing=Z)
    with numpyro.plate("data", len(X), subsample_size=batch) as idx:
        ngp.observe("y", f(X[idx]), ngp.likelihoods.Gaussian(noise), obs=None if y is None else y[idx])


def nearest(near, y=None, *, batch=None):
    """Neighbours and minibatches."""
    kernel, noise = priors(near.inputs)
    with numpyro.plate("data", near.size, subsample_size=batch) as idx:
        return ngp.gp_regression("y", kernel, near[idx], noise**2, obs=y)


def by_formula(X, y, X_new, steps):  # noqa: ARG001
    X, y, X_new = (np.asarray(one) for one in (X, y, X_new))
    table = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": y}
    fit = ngp.gam("y ~ s(a) + s(b) + s(c) + ti(b, c)", table)
    return fit.predict({name: X_new[:, at] for at, name in enumerate("abc")})


def by_exact(X, y, X_new, steps):
    guide = AutoMultivariateNormal(regression)
    result = ngp.fit(KEY, SVI(regression, guide, optax.adam(0.02), Trace_ELBO()), steps, X, y, progress=False)
    return ngp.Posterior.from_svi(regression, guide, result.params).predict_at(KEY, X_new, X, y)


def by_inducing(X, y, X_new, steps):
    Z = ngp.inducing.kmeans(KEY, X, min(INDUCING, len(X)))
    guide = ngp.AutoGP(sparse, {"f": ngp.guides.coupled(natural=True)})
    svi = SVI(sparse, guide, ngp.optim.natural_gradient(optax.adam(0.01), 0.1), Trace_ELBO())
    result = ngp.fit(KEY, svi, steps, X, y, Z=Z, batch=min(256, len(X)), progress=False)
    return ngp.Posterior.from_svi(sparse, guide, result.params).predict(KEY, X_new, Z=Z)


def by_neighbours(X, y, X_new, steps):
    near, guide = ngp.neighbours(X, 16), AutoDelta(nearest)
    svi = SVI(nearest, guide, optax.adam(0.03), Trace_ELBO())
    result = ngp.fit(KEY, svi, steps, near, y, batch=min(256, len(X)), progress=False)
    posterior = ngp.Posterior.from_svi(nearest, guide, result.params)
    return posterior.predict_at(KEY, X_new, near, y, neighbours=min(256, len(X)))


def by_chains(X, y, X_new, steps):
    mcmc = MCMC(ngp.NUTS(regression), num_warmup=steps, num_samples=steps, progress_bar=False)
    mcmc.run(KEY, X, y)
    return ngp.Posterior.from_mcmc(regression, mcmc).predict_at(KEY, X_new, X, y)


def by_particles(X, y, X_new, steps):
    svgd = ngp.stein.SVGD(regression, optax.adam(0.05), ngp.stein.RBF(), num_stein_particles=20)
    result = ngp.fit(KEY, svgd, steps, X, y, progress=False)
    return ngp.Posterior.from_stein(regression, svgd, result.params).predict_at(KEY, X_new, X, y)


# By name: the fit, its steps, and why sizes are left out.
ENGINES = {
    "`ngp.gam`, three curves and a surface": (by_formula, 0, {}),
    "SVI, exact `gp_regression`, 300 steps": (by_exact, 300, dict.fromkeys(SIZES[1:], CUBE)),
    "SVI, `gp` with 100 inducing inputs, 1000 steps": (by_inducing, 1000, {}),
    "SVI, 16 neighbours, 300 steps": (by_neighbours, 300, {}),
    "NUTS, `gp_regression`, 300 and 300 draws": (by_chains, 300, dict.fromkeys(SIZES[1:], CHAINS)),
    "SVGD, `gp_regression`, 20 particles, 300 steps": (by_particles, 300, dict.fromkeys(SIZES[1:], CHAINS)),
}


def measured(name, size, steps=None):
    """A fit and its predictions: processor seconds, and the log density of the new rows."""
    own, usual, _ = ENGINES[name]
    start = time.process_time()
    X, y, X_new, y_new = data(size)
    prediction = own(jnp.asarray(X), jnp.asarray(y), jnp.asarray(X_new), usual if steps is None else steps)
    jax.block_until_ready((prediction.mean, prediction.variance))
    seconds = time.process_time() - start
    density = float(np.mean(np.asarray(prediction.log_density(jnp.asarray(y_new)))))
    return {"engine": name, "rows": size, "seconds": round(seconds, 2), "log_density": round(density, 4)}


def table(rows):
    """A line for each engine; where a fit was not made stands why."""
    found = {(row["engine"], int(row["rows"])): float(row["seconds"]) for row in rows}

    def cell(name, size):
        if (name, size) in found:
            seconds = found[name, size]
            return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.1f}"
        return f"- ({ENGINES[name][2].get(size, 'not run')})"

    head = ["processor seconds", *(f"{size:,} rows".replace(",", " ").replace("3 000", "3000") for size in SIZES)]
    return markdown(head, [[name, *(cell(name, size) for size in SIZES)] for name in ENGINES])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--smoke", action="store_true", help="forty rows and two steps, in this process")
    parser.add_argument("--one", nargs=2, metavar=("ENGINE", "ROWS"), help="a line of JSON of one fit in this process")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(options.one[0], int(options.one[1]))))
        return
    path = options.out / "how_long.csv"
    rows = read(path)
    for name, (_, _, left_out) in ENGINES.items():
        for size in SIZES[:1] if options.smoke else SIZES:
            if size in left_out or any((row["engine"], int(row["rows"])) == (name, size) for row in rows):
                continue
            if options.smoke:
                rows.append(measured(name, 40, steps=2) | {"rows": size})
            else:
                command = [sys.executable, "-m", "examples.studies.speed.how_long", "--one", name, str(size)]
                alone = os.environ | dict.fromkeys(("NPROC", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
                said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=alone).stdout
                rows.append(json.loads(said.splitlines()[-1]))
            save(path, rows)
            print(rows[-1], flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
