"""Which kernel, in which coordinates, gives particles the mean, spread and correlations of what they stand for.

    python -m examples.studies.stein.stein_geometry  # an hour; goes on where its table ends; --smoke for a few seconds

Targets: normals with correlations, whose standard deviations along their axes span a factor of ten, in 5, 20 and 100
dimensions (their moments are known), and a classifier with a latent GP (against 5000 draws of NUTS). Every recipe has
the same number of particles, starts, steps and rates. Compared are unconstrained coordinates:

bias            mean over coordinates of the error of the mean, in standard deviations of the target
sd              particles' standard deviations over the target's: geometric mean over coordinates
correlations    mean absolute error over pairs

"draws" are as many independent draws of the target: no set of particles need do better. Kernels of single coordinates
take by far the longest in 100 dimensions, and come last.
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
from numpyro.infer import MCMC, NUTS

import numpyro_gp as ngp
from examples.tools.tables import read, save
from numpyro_gp.stein import IMQ, RBF, SVGD, Around, Curvature, Moments

RECIPES = {
    "RBF": (RBF(), None),
    "RBF per coordinate": (RBF(per_coordinate=True), None),
    "IMQ": (IMQ(), None),
    "IMQ, curvature": (IMQ(), Curvature()),
    "IMQ per coordinate, curvature": (IMQ(per_coordinate=True), Curvature()),
    "Moments, curvature": (Moments(IMQ()), Curvature()),
}


# ------------------------------------------------------------------------------------------ the targets


def normal(size, rng):
    """Model, arguments, constrained draws ``{site: (S, ...)}`` of the target, and a start."""
    axes = np.linalg.qr(rng.standard_normal((size, size)))[0]
    covariance = (axes * np.geomspace(0.1, 1.0, size) ** 2) @ axes.T
    draws = {"x": jnp.asarray(rng.multivariate_normal(np.zeros(size), covariance, 100_000))}

    def model(covariance):
        numpyro.sample("x", dist.MultivariateNormal(jnp.zeros(size), covariance))

    return model, (jnp.asarray(covariance),), draws, {"x": jnp.full(size, 0.5)}


def classifier(rng, small):
    """The same for labels of a smooth function: two hyper-parameters and the whitened values."""
    rows, points, samples = (30, 5, 100) if small else (150, 15, 5000)
    X = jnp.asarray(np.sort(rng.uniform(-3, 3, rows))[:, None])
    labels = jnp.asarray(rng.uniform(size=rows) < 1 / (1 + np.exp(-3 * np.sin(2 * X[:, 0]))), float)
    Z = jnp.linspace(-3, 3, points)[:, None]

    def model(X, labels, Z):
        lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 0.7))
        variance = numpyro.sample("variance", dist.LogNormal(1.0, 0.7))
        f = ngp.gp("f", ngp.kernels.Matern52(variance, lengthscale), Z)
        with numpyro.plate("data", len(X)):
            ngp.observe("y", f(X), ngp.likelihoods.Bernoulli(), obs=labels)

    mcmc = MCMC(NUTS(model), num_warmup=100 if small else 1000, num_samples=samples, progress_bar=False)
    mcmc.run(jax.random.key(1), X, labels, Z)
    start = {"lengthscale": jnp.array(1.0), "variance": jnp.array(2.0), "f": jnp.zeros(points)}
    return model, (X, labels, Z), mcmc.get_samples(), start


# ------------------------------------------------------------------------------------------ the measures


def table_of(values):
    """Unconstrained values of all sites, ``(S, d)``; what has a name other than x or f is positive."""
    free = [values[name] if name in ("x", "f") else jnp.log(values[name]) for name in sorted(values)]
    return np.concatenate([np.asarray(one).reshape(len(one), -1) for one in free], axis=1)


def compare(found, reference):
    """Bias, ratio of standard deviations and error of correlations."""
    sd, own = reference.std(axis=0), found.std(axis=0)
    pairs = np.triu_indices(reference.shape[1], 1)
    errors = np.abs(np.corrcoef(found.T) - np.corrcoef(reference.T))[pairs]
    bias = np.abs(found.mean(axis=0) - reference.mean(axis=0)) / sd
    ratio = float(np.exp(np.mean(np.log(own / sd))))
    return {"bias": float(bias.mean()), "sd": ratio, "correlations": float(errors.mean())}


def run(target, recipe, particles, steps):
    """The measures of one recipe on one target, and seconds."""
    model, arguments, draws, start = target
    kernel, metric = RECIPES[recipe]
    svgd = SVGD(
        model,
        optax.adam(optax.cosine_decay_schedule(0.05, steps)),
        kernel,
        num_stein_particles=particles,
        metric=metric,
        init_particles=Around(start, 0.1),
    )
    begun = time.perf_counter()
    fit = ngp.fit(jax.random.key(2), svgd, steps, *arguments, progress=False)
    found = table_of(svgd.particles(fit.params))
    return {**compare(found, table_of(draws)), "seconds": time.perf_counter() - begun}


def of_draws(target, count):
    """The measures of ``count`` draws of the target itself."""
    draws = table_of(target[2])
    some = draws[np.random.default_rng(1).choice(len(draws), count, replace=False)]
    return {**compare(some, draws), "seconds": 0.0}


def is_slow(target, recipe):
    """Whether a row takes most of an hour: kernels of single coordinates in many dimensions."""
    return target == "normal, 100" and "per coordinate" in recipe


def main(arguments=None):
    """Every recipe on every target: print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--particles", type=int, default=100)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=Path("examples/output"), help="folder for the table")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    small, rng = options.smoke, np.random.default_rng(0)
    particles, steps = (8, 20) if small else (options.particles, options.steps)
    targets = {f"normal, {size}": normal(size, rng) for size in ((3,) if small else (5, 20, 100))}
    targets["classifier"] = classifier(rng, small)
    names = ["draws", *(["RBF", "Moments, curvature"] if small else RECIPES)]
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "stein_geometry.csv"
    rows = read(path)
    done = {
        (row["target"], row["recipe"])
        for row in rows
        if (row["particles"], row["steps"]) == (f"{particles}", f"{steps}")
    }
    places = [(target, recipe) for target in targets for recipe in names]
    print(f"{particles} particles, {steps} steps")
    print(f"{'target':14}{'recipe':32}{'bias':>7}{'sd':>7}{'correlations':>14}{'s':>8}")
    for name, recipe in sorted(set(places) - done, key=lambda place: (is_slow(*place), places.index(place))):
        row = of_draws(targets[name], particles) if recipe == "draws" else run(targets[name], recipe, particles, steps)
        rows.append({"target": name, "recipe": recipe, "particles": particles, "steps": steps, **row})
        cells = f"{row['bias']:7.2f}{row['sd']:7.2f}{row['correlations']:14.3f}{row['seconds']:8.0f}"
        print(f"{name:14}{recipe:32}{cells}", flush=True)
        rows.sort(key=lambda row: places.index((row["target"], row["recipe"])))
        save(path, rows)


if __name__ == "__main__":
    main()
