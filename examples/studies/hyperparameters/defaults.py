"""Do beliefs and particles arrive at their defaults? Five seeds: nats below the optimum, or the distance from NUTS.

    # eight minutes of one core; rows that are there are not made again
    python -m examples.studies.hyperparameters.defaults

The optimum of Gaussian data and a known kernel has a closed form in every family: decoupled means on 1000 rows (20 and
200 points), and additive beliefs of low rank on 1500 rows of eight correlated columns, three seeds in batches too.
`ngp.stein.auto` stands beside NUTS on 60 counts. Deep models are those of `deep_defaults`. Seconds are of the
processor, without compilation.
"""

import argparse
import re
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import MCMC, SVI, Trace_ELBO

import numpyro_gp as ngp
from examples.tools.run_queue import version
from examples.tools.tables import markdown, read, save
from models import decoupled

COLUMNS, POINTS = 8, 12


def decoupled_task(rows):
    """Model, recipe and optimum of an orthogonally decoupled belief."""
    found = decoupled.simulate(jax.random.key(0), rows, 20)
    X, y, Z = (jnp.asarray(found[name], float) for name in ("X", "y", "Z"))
    kernel, noise = ngp.kernels.Matern52(0.6, jnp.array([0.7, 0.7])), 0.2
    gamma = ngp.inducing.random_subset(jax.random.key(0), X, min(200, rows // 2))
    best = float(ngp.beliefs.orthogonal_optimum(kernel, gamma, Z, X, y, noise**2)[1])
    process = lambda: ngp.gp("f", kernel, Z)  # noqa: E731
    return {"orthogonal": (ngp.guides.orthogonal(gamma, natural=True), best)}, process, (X, y), noise


def additive_task(rows):
    """The best mean is that of ridge regression; the best columns are the leading eigenvectors of what the data say."""
    rng, noise = np.random.default_rng(1), 0.3
    X = np.clip(rng.uniform(size=(rows, 1)) + 0.15 * rng.normal(size=(rows, COLUMNS)), 0, 1)
    f = np.sin(np.arange(2, 2 * COLUMNS + 2, 2) * X).sum(1)
    X, y = jnp.asarray(X), jnp.asarray(f - f.mean() + noise * rng.normal(size=rows))
    zero_mean = ngp.kernels.ZeroMean(ngp.kernels.RBF(1.0, 0.3), ngp.kernels.Uniform(0.0, 1.0))
    kernels = {f"x{d}": zero_mean.on(d) for d in range(COLUMNS)}
    inducing = dict.fromkeys(kernels, jnp.linspace(0, 1, POINTS)[:, None] * jnp.ones((1, COLUMNS)))
    basis = ngp.beliefs.AdditiveBasis.build(kernels, inducing)
    A = np.asarray(basis.features(X))
    J = np.eye(len(A)) + A @ A.T / noise**2
    mean, (values, vectors) = np.linalg.solve(J, A @ np.asarray(y) / noise**2), np.linalg.eigh(J)
    likelihood, kinds = ngp.likelihoods.Gaussian(noise), {}
    for rank in (20, 40):
        W = vectors[:, -rank:] * np.sqrt(np.maximum(values[-rank:] - 1, 0))
        belief = ngp.beliefs.Structured(jnp.asarray(mean), jnp.asarray(W))
        best = likelihood.expected_log_prob(y, *belief.marginals(basis, X)).sum() - belief.kl(basis)
        kinds[f"structured({rank})"] = ngp.guides.structured(rank, natural=True), float(best)
    return kinds, lambda: ngp.additive_gp("f", kernels, inducing), (X, y), noise


def belief_rows(task, size, seeds, steps, batch=None):
    """A fit of each seed at the defaults; one before them is not counted: it compiles. Of batches, the whole bound."""
    kinds, process, data, noise = task(size)

    def model(X, y, batch=None):
        f = process()
        with numpyro.plate("data", len(X), subsample_size=batch) as idx:
            ngp.observe("y", f(X[idx]), ngp.likelihoods.Gaussian(noise), obs=y[idx])

    for kind, (recipe, best) in kinds.items():
        optimiser = ngp.optim.natural_gradient(optax.adam(1e-2))
        svi = SVI(model, ngp.AutoGP(model, {"f": recipe}), optimiser, Trace_ELBO())
        whole = jax.jit(lambda params, svi=svi: svi.loss.loss(jax.random.key(0), params, svi.model, svi.guide, *data))
        ngp.fit(jax.random.key(0), svi, steps, *data, batch=batch, progress=False)
        for seed in range(seeds):
            start = time.process_time()
            fit = ngp.fit(jax.random.key(seed), svi, steps, *data, batch=batch, progress=False)
            seconds, losses = time.process_time() - start, np.asarray(fit.losses)
            near = np.flatnonzero(best + losses < 1) if batch is None else np.array([])
            at = int(near[0]) if len(near) else None
            yield {
                "kind": kind if batch is None else f"batches, {steps} steps: {kind}", "seed": seed, "steps": steps,
                "finite": bool(np.isfinite(losses).all()), "nats_below": f"{best + float(whole(fit.params)):.4f}",
                "steps_to_1_nat": "" if at is None else at,
                "seconds_to_1_nat": "" if at is None else f"{at / steps * seconds:.2f}",
            }  # fmt: skip


def counts(X, y=None, *, Z):
    lengthscale = numpyro.sample("lengthscale", dist.Gamma(1.0, 0.5))
    variance = numpyro.sample("variance", dist.Gamma(1.0, 0.5))
    f = ngp.gp("f", ngp.kernels.RBF(variance, lengthscale), Z)
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), ngp.likelihoods.Poisson(), obs=y)


def stein_rows(size, seeds, draws):
    """Spread of f and of the log lengthscale over that of NUTS, and how far the latter is off, in its deviations."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(-3, 3, size))
    y = jnp.asarray(rng.poisson(np.exp(1 + np.sin(2 * X))) * 1.0)
    X, at = jnp.asarray(X)[:, None], jnp.linspace(-3, 3, 50)[:, None]
    mcmc = MCMC(ngp.NUTS(counts), num_warmup=draws // 2, num_samples=draws, progress_bar=False)
    mcmc.run(jax.random.key(0), X, y, Z=X)
    wanted = ngp.Posterior.from_mcmc(counts, mcmc).predict(jax.random.key(1), at, Z=X).function_variance
    logs = np.log(mcmc.get_samples()["lengthscale"])
    for seed in range(seeds):
        start = time.process_time()
        svgd, fit = ngp.stein.auto(jax.random.key(seed), counts, X, y, Z=X, most_steps=min(2000, 2 * draws))
        seconds = time.process_time() - start
        found = ngp.Posterior.from_stein(counts, svgd, fit.params).predict(jax.random.key(1), at, Z=X).function_variance
        own = np.log(svgd.particles(fit.params)["lengthscale"])
        yield {
            "kind": "stein.auto", "seed": seed, "steps": len(fit.losses), "finite": bool(np.isfinite(own).all()),
            "seconds": f"{seconds:.1f}", "spread_of_f": f"{np.sqrt(found / wanted).mean():.2f}",
            "lengthscale_off": f"{(own.mean() - logs.mean()) / logs.std():.2f}",
            "spread_of_lengthscale": f"{own.std() / logs.std():.2f}",
        }  # fmt: skip


def table(rows):
    """Markdown: the least and the most of five seeds."""

    def span(own, name, digits):
        values = [float(row[name]) for row in own if row[name]]
        each = sorted({f"{round(value, digits) + 0.0:.{digits}f}" for value in values}, key=float)
        return " to ".join(dict.fromkeys([each[0], each[-1]])) if each else ""

    lines = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        own = [row for row in rows if row["kind"] == kind]
        near, seconds = span(own, "steps_to_1_nat", 0), span(own, "seconds_to_1_nat", 1)
        spreads = span(own, "spread_of_f", 2), span(own, "spread_of_lengthscale", 2)
        lines.append([
            kind, f"{sum(str(row['finite']) == 'True' for row in own)} of {len(own)}", span(own, "nats_below", 3),
            f"{near} ({seconds})" if near else "", "; ".join(filter(None, spreads)), span(own, "lengthscale_off", 2),
        ])  # fmt: skip
    head = ["kind", "finite", "nats below the optimum", "steps (seconds) to 1 nat"]
    return markdown([*head, "sd / NUTS: f; log lengthscale", "log lengthscale off, sd"], lines)


FIELDS = ("kind", "seed", "steps", "finite", "nats_below", "steps_to_1_nat", "seconds_to_1_nat", "seconds")
FIELDS += ("spread_of_f", "lengthscale_off", "spread_of_lengthscale", "version")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder of the rows")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "defaults.csv"
    rows, code = read(path), version()
    done = {re.split("[(:]", row["kind"])[0] for row in rows}
    small, seeds = options.smoke, 1 if options.smoke else options.seeds
    tasks = {
        "orthogonal": lambda: belief_rows(decoupled_task, 60 if small else 1000, seeds, 5 if small else 600),
        "structured": lambda: belief_rows(additive_task, 60 if small else 1500, seeds, 5 if small else 300),
        **{
            f"batches, {steps} steps": partial(
                belief_rows,
                additive_task,
                60 if small else 1500,
                min(seeds, 3),
                5 if small else steps,
                256 // (8 if small else 1),
            )
            for steps in (300, 1200)
        },
        "stein.auto": lambda: stein_rows(12 if small else 60, seeds, 20 if small else 1000),
    }
    for name, made in tasks.items():
        for row in made() if name not in done else ():
            rows.append(dict.fromkeys(FIELDS, "") | row | {"version": code})
            save(path, rows)
            print(*rows[-1].values(), flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
