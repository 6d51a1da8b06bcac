"""Recover the components of an eight-input function from 5000 noisy values (Adam et al. 2018, the illustration).

The paper's text does not carry its function, only its shape: eight uniform inputs, main effects plus an interaction,
no effect of the last input, 5000 points, unit noise, zero-mean kernels, 16 inducing inputs a component and a 4 x 4
grid for the pair. The function below is *ours*, of that shape. ``python -m examples.additive_illustration [--smoke]``
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
from numpyro import handlers
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp
from examples.studies.additive.additive_fits import fit, hold, show
from numpyro_gp.guides.natural import natural_to_mean
from numpyro_gp.likelihoods import Gaussian
from numpyro_gp.plots.terms import draw_effects

# Each integrates to zero over [0, 1]; x6 has a weak effect, x7 none.
TRUTH = {
    "x0": lambda x: 1.5 * np.sin(2 * np.pi * x),
    "x1": lambda x: 4 * ((x - 0.5) ** 2 - 1 / 12),
    "x2": lambda x: np.exp(2 * x) / 2 - (np.exp(2) - 1) / 4,
    "x3": lambda x: 2 * (x - 0.5),
    "x4": lambda x: np.cos(4 * np.pi * x),
    "x5": lambda x: 2 / np.pi * np.arctan(12 * (x - 0.5)),
    "x6": lambda x: 0.4 * np.cos(2 * np.pi * x),
    "x7": lambda x: 0 * x,
}


def pair(a, b):
    """The interaction of x0 and x1: zero-mean in each of them."""
    return 2 * np.cos(np.pi * a) * (2 * b - 1)


def simulate(rows, seed):
    """Uniform inputs and the sum of all effects with unit noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(rows, 8))
    f = 3.0 + sum(effect(X[:, d]) for d, effect in enumerate(TRUTH.values())) + pair(X[:, 0], X[:, 1])
    return X, f + rng.normal(size=rows)


def seen():
    """Gaussian noise with a weak prior."""
    return Gaussian(numpyro.sample("noise", dist.LogNormal(0.0, 1.0)))


def closed_forms(kernels, inducing, X, y, noise, ranks):
    """Optimal beliefs of each form, and their bounds: the full optimum, the leading part of it, and mean field."""
    best = ngp.beliefs.additive_optimum(kernels, inducing, X, y, noise, form="full")
    basis = ngp.beliefs.AdditiveBasis.build(kernels, inducing)
    features, blocks = basis.features(X), basis.blocks(X)
    vectors, values, _ = jnp.linalg.svd(features / np.sqrt(noise), full_matrices=False)
    precisions = [jnp.eye(len(A)) + A @ A.T / noise for A in blocks]
    factors = [natural_to_mean(jnp.zeros(len(P)), P)[1] for P in precisions]
    found = {"mean field": ngp.beliefs.BlockDiagonal(best.belief.mean, dict(zip(kernels, factors, strict=True)))}
    for size in ranks:
        W = vectors[:, :size] * values[None, :size]
        found[f"structured, rank {size}"] = ngp.beliefs.Structured(best.belief.mean, W)
    likelihood = Gaussian(np.sqrt(noise))
    bounds = {
        name: (one, float(likelihood.expected_log_prob(y, *one.marginals(basis, X)).sum() - one.kl(basis)))
        for name, one in found.items()
    }
    return bounds | {"full (optimum)": (best.belief, float(best.bound))}


def held_belief(model, recipe, X, y, steps, **options):
    """Train one belief at hyper-parameters that are held: its bound by step, its belief, and seconds."""
    guide = ngp.AutoGP(model, {"f": recipe})
    svi = SVI(model, guide, ngp.optim.natural_gradient(optax.adam(1e-2)), Trace_ELBO())
    start = time.perf_counter()
    result = ngp.fit(jax.random.key(0), svi, steps, jnp.asarray(X), jnp.asarray(y), progress=False, **options)
    return -np.asarray(result.losses), guide.beliefs(result.params)["f"], time.perf_counter() - start


def numbers_of(size, rank, blocks=()):
    """How many numbers hold the covariance of a belief over ``size`` values: ``W``, and factors of blocks."""
    return size * rank + sum(M * (M + 1) // 2 for M in blocks)


def many_components(columns, rows, rank, steps, batch):
    """A sum over so many columns that a full covariance does not fit: error of the trained mean, and numbers held."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(rows, columns))
    truth = sum(np.sin(2 * np.pi * X[:, d]) / (1 + d) for d in range(10))
    y = truth + 0.3 * rng.normal(size=rows)
    layout = ngp.anova.design(X, num_inducing=12, constant=False)
    free = layout.model(lambda: Gaussian(0.3))
    scales = jnp.concatenate([jnp.full(10, 0.5), jnp.full(columns - 10, 0.05)])
    model = handlers.condition(free, data={"f_scale": scales, "f_lengthscale": jnp.full(columns, 0.3)})
    recipe = ngp.guides.structured(rank, natural=True)
    _, belief, seconds = held_belief(model, recipe, X, y, steps, batch=batch)
    basis = ngp.beliefs.AdditiveBasis.build(layout.kernels(scales**2, jnp.full(columns, 0.3)), layout.inducing())
    error = float(np.sqrt(np.mean((belief.marginals(basis, layout.map(X)).mean - truth) ** 2)))
    size = belief.size
    return [columns, size, numbers_of(size, rank), numbers_of(0, 0, [size]), error, float(truth.std()), seconds]


def posterior_at(model, values):
    """A posterior whose sites hold given values: a belief for the process, points for the rest."""

    def held(*_, **__):  # a guide with nothing left to fit
        for name, value in values.items():
            fn = ngp.Belief(value) if name == "f" else dist.Delta(value, event_dim=jnp.ndim(value))
            numpyro.sample(name, fn)

    return ngp.Posterior.from_svi(model, held, {})


def errors_of(found):
    """For each component the size of the truth, the error of its mean, and how much of it the 90 % band holds."""
    truth, rows = TRUTH | {"x0:x1": pair}, []
    for name, effect in found.items():
        target = truth[name](*np.meshgrid(*effect.axes, indexing="ij"))
        error = float(np.sqrt(np.mean((effect.mean - target) ** 2)))
        inside = float(np.mean(np.abs(effect.mean - target) < 1.645 * effect.scale))
        rows.append([name, float(np.sqrt(np.mean(target**2))), error, inside])
    return rows


def shares_of(found, errors, drawn):
    """For each component its share of the true variance beside its Sobol index."""
    limits = ngp.sobol.intervals(drawn)
    true_parts = {name: float(np.mean(row[1] ** 2)) for name, row in zip(found, errors, strict=True)}
    total = sum(true_parts.values())
    return [
        [name, true_parts[name] / total, float(jnp.median(drawn.index[name])), *map(float, limits[name])]
        for name in true_parts
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="tiny sizes")
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--rank", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "output")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    import matplotlib as mpl

    mpl.use("Agg")
    smoke = options.smoke
    rows, steps = (300, 30) if smoke else (options.rows, options.steps)
    X, y = simulate(rows, options.seed)
    layout = ngp.anova.design(X, pairs=[(0, 1)], num_inducing=6 if options.smoke else 16)
    model = layout.model(seen, scale=2.0)
    guide, params, seconds = fit(
        model, ngp.guides.coupled(natural=True), X, y, steps=steps, batch=500, adam=0.05, progress=True
    )
    _, points = hold(model, guide, params)
    noise = float(points["noise"]) ** 2
    print(f"full belief: {steps} steps, {seconds:.0f} s, noise variance {noise:.3f} (truth 1)")

    # At these hyper-parameters every belief has a closed form: compare their bounds on all data.
    variances, lengthscales = points["f_scale"] ** 2, points["f_lengthscale"]
    kernels, inputs = layout.kernels(variances, lengthscales, 20.0**2), layout.map(X)
    rank = options.rank
    ranks = (rank,) if options.smoke else (rank // 2, rank, 2 * rank, 3 * rank)
    beliefs = closed_forms(kernels, layout.inducing(), inputs, jnp.asarray(y), noise, ranks)
    text = show([[name, value] for name, (_, value) in beliefs.items()], ["belief", "bound"])
    case = (12, 100, 3, 5, 50) if smoke else (200, 2000, 20, 300, 500)
    columns = ["components", "values", "numbers", "of a Cholesky factor", "error", "size of truth", "seconds"]
    text += show([many_components(*case)], columns)
    chosen = points | {"f": beliefs[f"structured, rank {rank}"][0]}

    kept = posterior_at(model, chosen)
    found = ngp.effects(kept, jax.random.key(1), X, design=layout, grid=61, num_draws=1)
    errors = errors_of(found)
    text += show(errors, ["component", "size of truth", "error", "share in 90 % band"])
    drawn = ngp.sobol.sample(kept, jax.random.key(2), X, num_samples=500, num_draws=1)
    shares = shares_of(found, errors, drawn)
    text += show(shares, ["component", "true share", "Sobol index", "5 %", "95 %"])
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "additive_illustration.csv").write_text(text)
    figure = draw_effects(
        found, drawn, X, [one.name for one in layout.inputs], truth=TRUTH, columns=5, response="effect on y",
        title=f"Eight inputs, {rows} points, unit noise: posterior with 90 % bands",
    )  # fmt: skip
    figure.savefig(options.out / "additive_illustration.png", dpi=130)
    dead = next(row for row in shares if row[0] == "x7")
    print(f"\nDiagnosis: the dead input x7 has a Sobol index of {dead[2]:.5f} (90 %: {dead[3]:.5f} to {dead[4]:.5f}).")
    print("Distrust the fit if a band leaves its truth over a wide range, or if 'full' is far above 'structured'.")
    print(f"Figure and table: {options.out}/additive_illustration.*")


if __name__ == "__main__":
    main()
