"""Bands of additive components with fitted hyper-parameters: which beliefs are calibrated (Adam et al. 2018)?

    OMP_NUM_THREADS=1 XLA_FLAGS=--xla_cpu_multi_thread_eigen=false python -m examples.studies.additive.additive_coverage

Three effects of inputs that go together (correlations near 0.9), drawn from the prior at known lengthscales, variances
and noise. Every data set is fitted with a structured belief of the full rank, the paper's, with mean field and with a
full covariance: belief by natural steps, hyper-parameters as points by Adam. Rows have the
share of the truth in 90 % bands, the mean width of the bands, and the bound. Rows that are there are not made again.
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
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp
from examples.tools.run_queue import version
from examples.tools.tables import markdown, mean_and_error, read, save, with_error
from numpyro_gp.beliefs.additive_basis import AdditiveBasis
from numpyro_gp.beliefs.components import component_marginals

NAMES, TESTS, NOISE, SPREAD, LENGTH = "abc", 15, 0.45, 1.0, 0.3
Z90 = 1.6448536269514722


def kernels(variances, lengthscales):
    """One effect for each input, of integral zero over [0, 1]."""
    uniform = ngp.kernels.Uniform(0.0, 1.0)
    one = lambda d: ngp.kernels.ZeroMean(ngp.kernels.RBF(variances[d], lengthscales[d]), uniform)  # noqa: E731
    return {name: one(d).on(d) for d, name in enumerate(NAMES)}


def model(X, y=None, *, Z):
    variances = numpyro.sample("variances", dist.LogNormal(0.0, 1.0).expand([3]).to_event(1))
    lengthscales = numpyro.sample("lengthscales", dist.LogNormal(jnp.log(0.4), 0.7).expand([3]).to_event(1))
    noise = numpyro.sample("noise", dist.LogNormal(-1.0, 1.0))
    f = ngp.additive_gp("f", kernels(variances, lengthscales), dict.fromkeys(NAMES, Z))
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(noise), obs=y)


def simulate(rng, rows):
    """Inputs, a grid for the effects, targets, and the effects on the grid ``(3, TESTS)``."""
    common = rng.uniform(size=(rows, 1))
    X = np.clip(common + 0.12 * rng.normal(size=(rows, 3)), 0, 1)
    grid = np.linspace(0.05, 0.95, TESTS)[:, None] * np.ones((1, 3))
    at, values = jnp.asarray(np.concatenate([X, grid])), []
    for kernel in kernels([SPREAD**2] * 3, [LENGTH] * 3).values():
        prior = np.asarray(kernel.matrix(at)) + 1e-10 * np.eye(len(at))
        values.append(np.linalg.cholesky(prior) @ rng.normal(size=len(at)))
    values = np.stack(values)
    y = values[:, :rows].sum(0) + NOISE * rng.normal(size=rows)
    return jnp.asarray(X), jnp.asarray(grid), jnp.asarray(y), values[:, rows:]


def beliefs(size):
    """The beliefs that are compared, over ``size`` inducing values in all."""
    return {
        f"structured, rank {size}": ngp.guides.structured(size, natural=True),
        "mean field": ngp.guides.block_diagonal(natural=True),
        "full": ngp.guides.coupled(natural=True),
    }


class Fits:
    """One engine for each belief, whose programs serve all data sets."""

    def __init__(self, Z, steps):
        self.Z, self.steps, self.engines = Z, steps, {}
        for name, recipe in beliefs(3 * len(Z)).items():
            guide = ngp.AutoGP(model, {"f": recipe})
            adam = optax.adam(optax.cosine_decay_schedule(0.03, steps))
            step = ngp.optim.natural_gradient(adam, ngp.optim.ramp(0.01, 0.1, max(1, steps // 10)))
            self.engines[name] = guide, SVI(model, guide, step, Trace_ELBO())
        self.bands = jax.jit(self._bands)

    def _bands(self, belief, values, grid):
        basis = AdditiveBasis.build(kernels(values["variances"], values["lengthscales"]), dict.fromkeys(NAMES, self.Z))
        return component_marginals(belief, basis, grid)

    def row(self, name, X, grid, y, truth):
        """Coverage, width and bound of one belief on one data set."""
        guide, svi = self.engines[name]
        start = time.process_time()
        result = ngp.fit(jax.random.key(0), svi, self.steps, X, y, Z=self.Z, progress=False)
        values = guide.global_values(jax.random.key(0), result.params)
        found = self.bands(values["f"], {k: v for k, v in values.items() if k != "f"}, grid)
        mean, scale = np.asarray(found.mean), np.sqrt(np.asarray(found.variance))
        return {
            "belief": name,
            "coverage": f"{np.mean(np.abs(truth - mean) < Z90 * scale):.4f}",
            "width": f"{scale.mean():.4f}",
            "error": f"{np.sqrt(np.mean((truth - mean) ** 2)):.4f}",
            "bound": f"{-float(result.losses[-1]):.3f}",
            "noise": f"{float(values['noise']):.4f}",
            "seconds": f"{time.process_time() - start:.1f}",
        }


def table(rows):
    """Markdown: beliefs against coverage, width, error, and the bound beside that of the full covariance."""
    full = {row["simulation"]: float(row["bound"]) for row in rows if row["belief"] == "full"}
    metrics = ("coverage", "width", "error", "below")
    rows = [row | {"below": full[row["simulation"]] - float(row["bound"])} for row in rows if row["simulation"] in full]
    rows = [row | {name: float(row[name]) for name in metrics} for row in rows]
    found = mean_and_error(rows, ("belief",), metrics)
    count = {name: sum(row["belief"] == name for row in rows) for (name,) in found}
    lines = [
        [name, str(count[name]), *(with_error(*own[metric]) for metric in metrics)] for (name,), own in found.items()
    ]
    return markdown(["belief", "data sets", "in 90 % bands", "band's sd", "error of effects", "nats below full"], lines)


def figure(rows, path):
    """Coverage of each data set by belief, and their means."""
    import matplotlib.pyplot as plt

    drawn, axis = plt.subplots(figsize=(6.4, 2.6), layout="constrained")
    names = list(dict.fromkeys(row["belief"] for row in rows))
    rng = np.random.default_rng(0)
    for line, name in enumerate(reversed(names)):
        values = np.array([float(row["coverage"]) for row in rows if row["belief"] == name])
        axis.plot(values, line + rng.uniform(-0.15, 0.15, len(values)), "o", ms=3, alpha=0.4, color="C0")
        error = values.std(ddof=1) / np.sqrt(len(values))
        axis.errorbar(values.mean(), line, xerr=2 * error, fmt="|", color="black", ms=16, capsize=3)
    axis.axvline(0.9, color="0.5", lw=0.8)
    axis.set(yticks=range(len(names)), xlabel="share of the true effects in 90 % bands, one dot for each data set")
    axis.set_yticklabels(reversed(names))
    drawn.savefig(path, dpi=110)
    plt.close(drawn)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulations", type=int, default=30)
    parser.add_argument("--rows", type=int, default=80)
    parser.add_argument("--inducing", type=int, default=8, help="points of each effect")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    if options.smoke:
        options.simulations, options.rows, options.inducing, options.steps = 1, 20, 4, 5
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "additive_coverage.csv"
    rows, code = read(path), version()
    fits = Fits(jnp.linspace(0.0, 1.0, options.inducing)[:, None] * jnp.ones((1, 3)), options.steps)
    for number in range(options.simulations):
        data = simulate(np.random.default_rng(number), options.rows)
        for name in list(fits.engines)[:1] if options.smoke else fits.engines:
            if any((row["simulation"], row["belief"]) == (str(number), name) for row in rows):
                continue
            rows.append({"simulation": str(number)} | fits.row(name, *data) | {"version": code})
            save(path, rows)
            print(*rows[-1].values(), flush=True)
    if not options.smoke:
        print(table(rows))
        figure(rows, options.out / "additive_coverage.png")


if __name__ == "__main__":
    main()
