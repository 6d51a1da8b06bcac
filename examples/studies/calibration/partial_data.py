"""Does inference cover the truth at its nominal rate where data are censored or inputs noisy, and what if not said?

    python -m examples.studies.calibration.partial_data [--simulations 100] [--out FOLDER] [--smoke]

Each simulation draws parameters, a function and data from the prior. Of Weibull times a study's end leaves some 40 %
open; of a wave the inputs are known up to an error. NUTS fits the data as they are, and once as if ends were events, or
inputs exact. One row for each simulation and way: whether central 90 % intervals hold each quantity, and by how much
their means are off. One program for each kind of data serves all simulations.
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
from examples.tools.tables import read, save

Z = jnp.linspace(-2.0, 2.0, 6)[:, None]
X = jnp.linspace(-2.0, 2.0, 40)[:, None]
PLACES, TIME = jnp.array([[-1.5], [0.0], [1.5]]), 1.5
SITES = ("level", "shape")
LEVEL, SPREAD = 0.9, 0.25
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


def noisy_model(X, y=None, scale=SPREAD):
    """A wave at inputs that were measured with an error of known spread."""
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 0.2))
    noise = numpyro.sample("noise", dist.LogNormal(jnp.log(0.1), 0.5))
    f = ngp.gp("f", ngp.kernels.RBF(1.0, lengthscale), inducing=jnp.linspace(-2.75, 2.75, 12)[:, None])
    numpyro.deterministic("values", f(PLACES).mean)
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(ngp.noisy_inputs("x", X, scale)), ngp.likelihoods.Gaussian(noise), obs=y)


def simulate_noisy(key):
    """Truth, data, and the spread of the inputs."""
    trace = handlers.trace(handlers.seed(noisy_model, key)).get_trace(X)
    values = {name: site["value"] for name, site in trace.items()}
    truth = {name: values[name] for name in ("lengthscale", "noise")}
    return truth | {f"f_{n}": values["values"][n] for n in range(3)}, values["y"], jnp.asarray(SPREAD)


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


def rows_of(simulations, run, simulate, ways, extra):
    """A row for each simulation and way of taking its data; ``extra`` makes quantities of the draws."""
    keys = jax.vmap(jax.random.split)(jax.vmap(jax.random.key)(jnp.array(simulations)))
    truth, y, given = simulate(keys[:, 0])
    rows = []
    for way, change in ways.items():
        draws = run(keys[:, 1], y, change(given))
        draws = draws | extra(draws)
        for n, simulation in enumerate(simulations):
            own = [{name: np.asarray(values[n]) for name, values in part.items()} for part in (truth, draws)]
            rows.append({"simulation": simulation, "way": way} | judged(*own))
    return rows


SURVIVAL = (
    survival_model,
    jax.jit(jax.vmap(simulate_survival)),
    {"censored": lambda mask: mask, "as events": jnp.zeros_like},
    lambda draws: quantities(draws["scale"], draws["shape"]),
)
NOISY = (
    noisy_model,
    jax.jit(jax.vmap(simulate_noisy)),
    {"noisy": lambda scale: scale, "as exact": jnp.zeros_like},
    lambda draws: {f"f_{n}": draws["values"][..., n] for n in range(3)},
)


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
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--smoke", action="store_true", help="two simulations of short chains")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    count, together, chain = (2, 2, (20, 20)) if arguments.smoke else (arguments.simulations, TOGETHER, (150, 200))
    for name, (model, *study) in {"censored_coverage": SURVIVAL, "noisy_coverage": NOISY}.items():
        path = arguments.out / f"{name}.csv"
        rows, run = [] if arguments.smoke else read(path), chains(model, *chain)
        for start in range(len(rows) // 2, count, together):
            rows += rows_of(range(start, start + together), run, *study)
            save(path, rows)
        print("\n".join(shown(rows)))


if __name__ == "__main__":
    main()
