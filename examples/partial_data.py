"""Does inference cover the truth at its nominal rate where data are censored, and what if that is ignored?

    python -m examples.partial_data [--simulations 100] [--out FOLDER] [--smoke]

Each simulation draws parameters, a function and Weibull times from the prior, and a study whose end leaves some 40 % of
the times open. NUTS fits them as they are, censored, and once as if the ends were events. One row for each simulation
and way: whether central 90 % intervals hold the parameters, and the survival at three inputs and a time, and by how
much their means are off. One program serves all simulations.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.infer import MCMC

import numpyro_gp as ngp
from examples.tables import read, save

Z = jnp.linspace(-2.0, 2.0, 6)[:, None]
X = jnp.linspace(-2.0, 2.0, 40)[:, None]
PLACES, TIME = jnp.array([[-1.5], [0.0], [1.5]]), 1.5
SITES = ("level", "shape")
LEVEL = 0.9
TOGETHER = 50  # simulations in one program


def survival_model(X, y=None, censored=None):
    """`models/survival.py` with priors whose draws leave some 40 % of the times open."""
    level = numpyro.sample("level", dist.Normal(0.5, 0.3))
    shape = numpyro.sample("shape", dist.LogNormal(0.3, 0.3))
    f = ngp.gp("f", ngp.kernels.RBF(0.25, 1.0), inducing=Z, mean=level)
    numpyro.deterministic("scale", jnp.exp(f(PLACES).mean))
    times = ngp.likelihoods.Censored(lambda f: dist.Weibull(jnp.exp(f), shape), right=censored)
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), times, obs=y)


def simulate_survival(key):
    """Truth and data: times beyond a limit of their own, which knows nothing of them, are cut to it."""
    key_model, key_limit = jax.random.split(key)
    trace = handlers.trace(handlers.seed(survival_model, key_model)).get_trace(X)
    values = {name: site["value"] for name, site in trace.items()}
    limit = 2.6 * jax.random.exponential(key_limit, (X.shape[0],))
    y, censored = jnp.minimum(values["y"], limit), values["y"] > limit
    truth = {name: values[name] for name in SITES} | quantities(values["scale"], values["shape"])
    return truth, y, censored


def quantities(scale, shape):
    """The survival at three inputs."""
    return {f"survival_{n}": jnp.exp(-((TIME / scale[..., n]) ** shape)) for n in range(3)}


def judged(truth, draws):
    """Whether intervals hold the truth, and how far means are off, in posterior standard deviations too."""
    found = {}
    for name, value in truth.items():
        low, high = np.quantile(draws[name], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        found[f"{name}_covered"] = int(low <= value <= high)
        found[f"{name}_error"] = float(draws[name].mean() - value)
    return found


def chains(model, warmup, samples):
    """NUTS for many data sets at once: one program, of one shape."""

    def one(key, *data):
        mcmc = MCMC(ngp.NUTS(model), num_warmup=warmup, num_samples=samples, progress_bar=False)
        mcmc.run(key, X, *data)
        return mcmc.get_samples()

    return jax.jit(jax.vmap(one))


def survival_rows(simulations, run):
    """Two rows each: the fit of censored data, and that of the same data as events."""
    keys = jax.vmap(jax.random.split)(jax.vmap(jax.random.key)(jnp.array(simulations)))
    truth, y, censored = SIMULATE(keys[:, 0])
    rows = []
    for way, masks in (("censored", censored), ("as events", jnp.zeros_like(censored))):
        draws = run(keys[:, 1], y, masks)
        draws = draws | quantities(draws["scale"], draws["shape"])
        for n, simulation in enumerate(simulations):
            shown = {"simulation": simulation, "way": way, "share_censored": float(censored[n].mean())}
            own = [{name: np.asarray(values[n]) for name, values in part.items()} for part in (truth, draws)]
            rows.append(shown | judged(*own))
    return rows


SIMULATE = jax.jit(jax.vmap(simulate_survival))


def shown(rows):
    """Coverage and mean error of each quantity, a line each."""
    names = [key[: -len("_covered")] for key in rows[0] if key.endswith("_covered")]
    for way in dict.fromkeys(row["way"] for row in rows):
        own = [row for row in rows if row["way"] == way]
        for name in names:
            share = np.mean([float(row[f"{name}_covered"]) for row in own])
            errors = np.array([float(row[f"{name}_error"]) for row in own])
            error = errors.std(ddof=1) / np.sqrt(len(own)) if len(own) > 1 else np.nan
            yield f"{way:12} {name:12} covered {share:.2f} of {len(own)}, mean error {errors.mean():+.3f} ± {error:.3f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--simulations", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("examples/results"))
    parser.add_argument("--smoke", action="store_true", help="two simulations of short chains")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "censored_coverage.csv"
    rows = [] if arguments.smoke else read(path)
    count, together, chain = (2, 2, (20, 20)) if arguments.smoke else (arguments.simulations, TOGETHER, (150, 200))
    run, done = chains(survival_model, *chain), len(rows) // 2
    for start in range(done, count, together):
        rows += survival_rows(range(start, start + together), run)
        save(path, rows)
    print("\n".join(shown(rows)))


if __name__ == "__main__":
    main()
