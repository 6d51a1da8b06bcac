"""Labels, counts and a million rows by neighbours: densities beside inducing inputs, and a step by rows (section 16).

    export OMP_NUM_THREADS=1 XLA_FLAGS=--xla_cpu_multi_thread_eigen=false
    python -m examples.studies.neighbours.neighbours_more --data DATA

``labels``: 10 000 rows of magic; ``counts``: as many of a Matern 5/2 process in three columns. By 16 neighbours, 900
steps of 256 rows, and predictions from 128; beside 512 inducing inputs, a coupled belief with natural steps, for 60
seconds. ``step``: milliseconds of a step of 256 rows with 16 neighbours in three columns, of 100 000 rows and of a
million. Seconds are of the processor in one thread, with all that is compiled. Rows that are there are not made again.
"""

import argparse
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoDelta

import numpyro_gp as ngp
from examples.studies.neighbours import neighbours
from examples.tools.datasets import load, split_mask
from examples.tools.run_queue import version
from examples.tools.tables import markdown, read, save

LIKELIHOODS = {"labels": ngp.likelihoods.Bernoulli, "counts": ngp.likelihoods.Poisson}
BATCH = 256


def task(name, data, rows):
    """Rows to fit and to test."""
    rng = np.random.default_rng(0)
    if name == "labels":
        X, y, splits = load("magic", data)
        test = split_mask(splits, 0)
        X = (X - X[~test].mean(axis=0)) / X[~test].std(axis=0)
        keep = rng.permutation(np.flatnonzero(~test))[:rows]
        parts = X[keep], y[keep], X[test], y[test]
    else:
        X = rng.uniform(size=(rows + 3000, 3))
        waves = X @ (rng.standard_normal((2000, 3)) / 0.15 * np.sqrt(5 / rng.chisquare(5, (2000, 1)))).T
        f = (np.cos(waves) @ rng.standard_normal(2000) + np.sin(waves) @ rng.standard_normal(2000)) / np.sqrt(2000)
        y, X = rng.poisson(np.exp(0.5 + f)), (X - 0.5) / X.std(axis=0)
        parts = X[:rows], y[:rows], X[rows:], y[rows:]
    return [jnp.asarray(part, jnp.float32) for part in parts]


def priors(inputs):
    lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(inputs))
    return ngp.kernels.Matern52(numpyro.sample("variance", ngp.starting.variance_prior()), lengthscale)


def by_neighbours(near, y=None, *, likelihood, batch=None):
    kernel = priors(near.inputs)
    with numpyro.plate("data", near.size, subsample_size=batch) as idx:
        f = ngp.gp("f", kernel, inducing=near[idx])
        ngp.observe("y", f.at_inducing(), likelihood, obs=None if y is None else y[idx])


def by_inducing(X, y=None, *, Z, likelihood, batch=None):
    f = ngp.gp("f", priors(Z), inducing=Z)
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
        ngp.observe("y", f(X[idx]), likelihood, obs=None if y is None else y[idx])


def local(parts, likelihood, options):
    X, y, X_test, y_test = parts
    near = ngp.neighbours(X, options.neighbours, lengthscale=X.shape[1] ** 0.5, others=True)
    guide = ngp.AutoGP(by_neighbours)
    svi = SVI(by_neighbours, guide, ngp.optim.natural_gradient(optax.adam(0.03)), Trace_ELBO())
    keep = {"likelihood": likelihood}
    fit = ngp.fit(jax.random.key(0), svi, options.steps, near, y, batch=BATCH, progress=False, **keep)
    posterior = ngp.Posterior.from_svi(by_neighbours, guide, fit.params)
    found = posterior.predict_at(jax.random.key(1), X_test, near, y, neighbours=options.predicted_from, **keep)
    return float(found.log_density(y_test).mean())


def sparse(parts, likelihood, options):
    X, y, X_test, y_test = parts
    start = time.process_time()
    Z = ngp.inducing.kmeans(jax.random.key(0), X, options.inducing)
    guide = ngp.AutoGP(by_inducing, {"f": ngp.guides.coupled(natural=True)})
    svi = SVI(by_inducing, guide, ngp.optim.natural_gradient(optax.adam(0.02), 0.1), Trace_ELBO())
    given = {"Z": Z, "likelihood": likelihood, "batch": BATCH}
    state = jax.jit(lambda key: svi.init(key, X, y, **given))(jax.random.key(1))
    update = lambda _, state: svi.update(state, X, y, **given)[0]  # noqa: E731
    some = jax.jit(lambda state: jax.lax.fori_loop(0, 20, update, state))
    state = jax.block_until_ready(some(state))
    while time.process_time() - start < options.seconds:
        state = jax.block_until_ready(some(state))
    posterior = ngp.Posterior.from_svi(by_inducing, guide, svi.get_params(state))
    return float(posterior.predict(jax.random.key(2), X_test, Z=Z, likelihood=likelihood).log_density(y_test).mean())


def step(rows, options):
    """Milliseconds of a step, from fits of two lengths."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 3)).astype(np.float32)
    y = (np.sin(X[:, 0]) + 0.1 * rng.normal(size=rows)).astype(np.float32)
    near = ngp.neighbours(X, 16, rows=rng.permutation(rows)[: min(20_000, rows)])
    guide, arguments = AutoDelta(neighbours.model), (near, jnp.asarray(y))
    svi = SVI(neighbours.model, guide, optax.adam(0.01), Trace_ELBO())
    seconds = []
    for count in (options.steps, 3 * options.steps):
        run = partial(ngp.fit, jax.random.key(0), svi, count, *arguments, batch=BATCH, progress=False, search=False)
        run()  # compiles
        start = time.process_time()
        run()
        seconds.append(time.process_time() - start)
    # What both do once, the search for neighbours at two shares of the steps too, cancels.
    return 1e3 * (seconds[1] - seconds[0]) / (2 * options.steps)


def table(rows):
    """Markdown: what is measured, by which way, and seconds in all."""
    names = {"labels": "labels, log density", "counts": "counts, log density", "step": "a step, milliseconds"}
    ways = {"neighbours": "16 neighbours", "inducing": "512 inducing inputs"}
    lines = [[names[r["what"]], ways.get(r["way"], r["way"]), f"{float(r['value']):.3f}", r["seconds"]] for r in rows]
    return markdown(["what", "by", "value", "seconds"], lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "data")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    options.rows, options.steps, options.neighbours, options.predicted_from = 10_000, 900, 16, 128
    options.inducing, options.seconds, sizes, tasks = 512, 60, (100_000, 1_000_000), ("labels", "counts")
    if options.smoke:
        options.rows, options.steps, options.neighbours, options.predicted_from = 300, 10, 4, 8
        options.inducing, options.seconds, sizes, tasks = 10, 1, (400,), ("counts",)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "neighbours_more.csv"
    rows, code = read(path), version()

    def add(what, way, make):
        if any((row["what"], row["way"]) == (what, way) for row in rows):
            return
        start = time.process_time()
        value = make()
        seconds = time.process_time() - start
        rows.append({"what": what, "way": way, "value": f"{value:.4f}", "seconds": f"{seconds:.1f}", "version": code})
        print(*rows[-1].values(), flush=True)
        save(path, rows)
        jax.clear_caches()

    for name in tasks:
        parts, likelihood = task(name, options.data, options.rows), LIKELIHOODS[name]()
        add(name, "neighbours", lambda parts=parts, one=likelihood: local(parts, one, options))
        add(name, "inducing", lambda parts=parts, one=likelihood: sparse(parts, one, options))
    for size in sizes:
        add("step", f"{size} rows", lambda size=size: step(size, options))
    print(table(rows))


if __name__ == "__main__":
    main()
