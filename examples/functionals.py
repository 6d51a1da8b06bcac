"""What linear facts are worth: gradients of eight inputs, functions that never fall, and events without bins.

    python -m examples.functionals [eight] [monotone] [cox]    # rows that are there are not made again

``functionals_eight.csv``: held-out density of a function of eight inputs from 60 points, by their values and by values
and gradients, hyper-parameters at their mode (GPyTorch's rows: ``studies/peers/libraries/eight_inputs_gpytorch.py``).
``functionals_monotone.csv``: 100 draws of the gallery's model at 200 inputs, by SVI and NUTS, with the shape and not.
``functionals_cox.csv``: patterns from the prior of the model, and one row for each and way to fit it: coverage of 90 %
bands at 60 places, hyper-parameters, and events beside counts in 200 bins. Seconds are of one processor.
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
from numpyro.infer import MCMC, SVI, Trace_ELBO, init_to_median, init_to_uniform
from numpyro.infer.autoguide import AutoDelta, AutoMultivariateNormal

import numpyro_gp as ngp
from examples.tools import eight_inputs
from examples.tools.tables import read, save
from models import monotone

# ------------------------------------------------------------------------------------------------- eight inputs


def exact(rows, y=None):
    """One noise for values and slopes."""
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(jnp.full(8, 0.5), 1.0).to_event(1))
    variance = numpyro.sample("variance", dist.LogNormal(0.0, 1.0))
    noise = numpyro.sample("noise_variance", dist.LogNormal(-5.0, 2.0))
    return ngp.gp_regression("y", ngp.kernels.RBF(variance, lengthscale), rows, noise, obs=y)


def eight(seed, options):
    """A row for values alone, and one for values and gradients."""
    X, y, slopes, X_test, y_test = eight_inputs.simulate(seed, *((10, 20) if options.smoke else ()))
    both = ngp.functionals.stack([X, *(ngp.functionals.Derivative(X, column) for column in range(8))])
    for way, rows, seen in [("values", X, y), ("values and gradients", both, np.append(y, slopes.T))]:
        start, guide = time.process_time(), AutoDelta(exact, init_loc_fn=init_to_median)
        svi = SVI(exact, guide, optax.adam(0.05), Trace_ELBO())
        params = ngp.fit(jax.random.key(0), svi, options.steps or 300, rows, seen, progress=False).params
        mode = guide.median(params)
        with handlers.substitute(data=mode), handlers.seed(rng_seed=0):
            found = exact(rows, seen)(X_test)
        deviation, noise = np.sqrt(found.variance + mode["noise_variance"]), mode["noise_variance"] ** 0.5
        seconds = time.process_time() - start
        yield eight_inputs.row_of(seed, way, np.asarray(found.loc), deviation, y_test, noise, seconds)


# ----------------------------------------------------------------------------------------------------- monotone


def never_falls(seed, options):
    """A row for each engine, with and without the shape."""
    data = monotone.simulate(jax.random.key(seed))
    at = jnp.linspace(-2.0, 2.0, 200)[:, None]
    truth = np.tanh(2 * np.asarray(at[:, 0]))
    for tolerance in (0.02, None)[: 1 if options.smoke else 2]:
        for engine, run in [("SVI", by_svi), ("NUTS", by_nuts)][: 1 if options.smoke else 2]:
            start = time.process_time()
            posterior, diverged = run(data | {"tolerance": tolerance}, options)
            draws = np.asarray(
                posterior.function_draws(jax.random.key(1), at, at, Z=data["Z"], tolerance=tolerance, num_samples=100)
            )
            falls = (np.maximum.accumulate(draws, axis=1) - draws).max(axis=1)
            error = draws.mean(axis=0) - truth
            flat = np.abs(np.asarray(at[:, 0])) > 1
            scores = {
                "worst_fall": falls.max(), "median_fall": np.median(falls), "rmse": np.sqrt(np.mean(error**2)),
                "rmse_where_flat": np.sqrt(np.mean(error[flat] ** 2)),
                "rmse_where_steep": np.sqrt(np.mean(error[~flat] ** 2)),
                "spread": draws.std(axis=0).mean(),
                "covered": np.mean(np.abs(np.mean(draws < truth, axis=0) - 0.5) < 0.45),
            }  # fmt: skip
            yield {
                "seed": seed, "shape": "never falls" if tolerance else "none", "engine": engine,
                **{name: f"{score:.4f}" for name, score in scores.items()},
                "divergences": diverged, "cpu_seconds": f"{time.process_time() - start:.0f}",
            }  # fmt: skip


def by_svi(data, options):
    """As the gallery fits it."""
    guide = monotone.guide()
    fit = ngp.fit(jax.random.key(0), monotone.engine(guide), options.steps or 3000, progress=False, **data)
    return fit.posterior(), ""


def by_nuts(data, options):
    """One chain of the model itself."""
    warmup, draws = (10, 10) if options.smoke else (300, 300)
    sampler = ngp.NUTS(monotone.model, target_accept_prob=0.95)
    mcmc = MCMC(sampler, num_warmup=warmup, num_samples=draws, progress_bar=False)
    mcmc.run(jax.random.key(2), **data, extra_fields=("diverging",))
    diverged = int(mcmc.get_extra_fields()["diverging"].sum())
    return ngp.Posterior.from_mcmc(monotone.model, mcmc), diverged


# ---------------------------------------------------------------------------------------------------------- Cox

NODES, BINS, ROOM = 100, 200, 400
DRAWS = 400
CELLS = {count: (jnp.arange(count) + 0.5)[:, None] / count for count in (NODES, BINS)}
PLACES, GRID = jnp.linspace(0.01, 0.99, 60)[:, None], jnp.linspace(0.0, 1.0, 201)[:, None]
Z = jnp.linspace(0.0, 1.0, 20)[:, None]
# The prior of the log intensity: lengthscale and variance are log-normal, its level normal.
PRIOR = {"lengthscale": (np.log(0.2), 0.5), "variance": (-0.5, 0.5), "level": (np.log(80.0), 0.3)}


def log_intensity():
    """The process, at hyper-parameters of the prior."""
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(*PRIOR["lengthscale"]))
    variance = numpyro.sample("variance", dist.LogNormal(*PRIOR["variance"]))
    level = numpyro.sample("level", dist.Normal(*PRIOR["level"]))
    f = ngp.gp("f", ngp.kernels.Matern52(variance, lengthscale), Z, mean=level)
    numpyro.deterministic("log_intensity", f(PLACES).mean)
    return f


def by_nodes(pattern=None):
    """Events and 100 nodes. Patterns are filled up to one size with events that a mask hides."""
    events, mask = (None, jnp.ones(NODES, bool)) if pattern is None else pattern
    f = log_intensity()
    with handlers.mask(mask=mask):
        ngp.point_pattern("y", f, CELLS[NODES], 1 / NODES, events)


def by_bins(counts=None):
    """Poisson counts in 200 bins."""
    f = log_intensity()
    with numpyro.plate("bins", BINS):
        ngp.observe("y", f(CELLS[BINS]), ngp.likelihoods.Poisson(), obs=counts, offset=-jnp.log(1.0 * BINS))


def pattern_of(seed):
    """Log intensity at the 60 places, hyper-parameters, and the events; both are drawn from the prior.

    The process is drawn on a grid four times as fine as the inducing inputs, and thinned by lines between its points.
    """
    rng = np.random.default_rng(seed)
    truth = {name: float(rng.normal(*own)) for name, own in PRIOR.items()}
    truth |= {name: np.exp(truth[name]) for name in ("lengthscale", "variance")}
    kernel = ngp.kernels.Matern52(truth["variance"], truth["lengthscale"])
    root = np.linalg.cholesky(np.asarray(kernel.matrix(GRID), float) + 1e-6 * np.eye(len(GRID)))
    curve = jnp.asarray(truth["level"] + root @ rng.normal(size=len(GRID)))

    def at(X):
        return jnp.interp(X[:, 0], GRID[:, 0], curve)

    return truth | {"values": np.asarray(at(PLACES))}, ngp.thinned(jax.random.key(seed), at, [0.0], [1.0])


def filled(events):
    """Events up to one number, and which rows count: one program serves all patterns."""
    spare = ROOM - len(events)
    assert spare >= 0, f"a pattern of {len(events)} events"
    mask = jnp.concatenate([jnp.arange(ROOM) < len(events), jnp.ones(NODES, bool)])
    return jnp.asarray(np.concatenate([events, np.full((spare, 1), 0.5)])), mask


def by_belief(model, data, options, start, most):
    """A full normal over hyper-parameters, and a belief given them: until the bound no longer rises."""
    guide = ngp.AutoGP(
        model,
        {"f": ngp.guides.conditional()},
        rest=lambda model: AutoMultivariateNormal(model, init_loc_fn=start),
    )
    svi = SVI(model, guide, ngp.optim.natural_gradient(optax.adam(0.02), 0.3), Trace_ELBO())
    block, steps, fit, before = options.steps or 400, 0, False, np.inf
    while steps < most:
        steps += block
        fit = ngp.fit(jax.random.key(0), svi, steps, data, resume=fit, progress=False)
        last = float(np.mean(fit.losses[-block:]))
        if before - last < 0.1:
            break
        before = last
    posterior = fit.posterior()
    found = {"steps": steps, "loss": f"{np.mean(fit.losses[-50:]):.3f}", "divergences": ""}
    return posterior, posterior.hyperparameters(jax.random.key(2), data, num_samples=DRAWS), found


def by_chain(model, options):
    """NUTS for any pattern, one program."""
    warmup, draws = (5, 5) if options.smoke else (300, DRAWS)

    @jax.jit
    def chain(data):
        mcmc = MCMC(ngp.NUTS(model), num_warmup=warmup, num_samples=draws, progress_bar=False)
        mcmc.run(jax.random.key(3), data, extra_fields=("diverging",))
        return mcmc.get_samples(), mcmc.get_extra_fields()["diverging"].sum()

    def run(data):
        samples, diverged = chain(data)
        found = {"steps": "", "loss": "", "divergences": int(diverged)}
        return ngp.Posterior.from_mcmc(model, samples), samples, found

    return run


def ways(options):
    """Name, whether it counts in bins, and how it fits."""
    few = options.steps or 400
    found = [
        ("SVI, 400 steps from anywhere", lambda data: by_belief(by_nodes, data, options, init_to_uniform, few)),
        ("SVI, 1200 steps from anywhere", lambda data: by_belief(by_nodes, data, options, init_to_uniform, 3 * few)),
        ("SVI", lambda data: by_belief(by_nodes, data, options, init_to_median, 10 * few)),
        ("SVI, bins", lambda data: by_belief(by_bins, data, options, init_to_median, 10 * few)),
        ("NUTS", by_chain(by_nodes, options)),
        ("NUTS, bins", by_chain(by_bins, options)),
    ]
    return found[2:5:2] if options.smoke else found


def cox(seed, ways):
    """A row for each way."""
    truth, events = pattern_of(seed)
    counts = jnp.asarray(1.0 * np.histogram(events, BINS, (0.0, 1.0))[0])
    for way, run in ways:
        start, data = time.process_time(), counts if "bins" in way else filled(events)
        posterior, parameters, found = run(data)
        draws = np.asarray(posterior.function_draws(jax.random.key(1), PLACES, data, num_samples=DRAWS))
        low, high = np.quantile(draws, [0.05, 0.95], axis=0)
        row = {"seed": seed, "way": way, "events": len(events)}
        row["covered"] = f"{np.mean((low < truth['values']) & (truth['values'] < high)):.4f}"
        row["width"] = f"{np.mean(high - low):.4f}"
        row["rmse"] = f"{np.sqrt(np.mean((draws.mean(axis=0) - truth['values']) ** 2)):.4f}"
        for name in PRIOR:
            own = np.asarray(parameters[name])
            own = own if name == "level" else np.log(own)
            true = truth[name] if name == "level" else np.log(truth[name])
            row |= {f"{name}_mean": f"{own.mean():.4f}", f"{name}_sd": f"{own.std():.4f}"}
            row[f"{name}_covered"] = int(abs(np.mean(own < true) - 0.5) < 0.45)
        yield row | found | {"cpu_seconds": f"{time.process_time() - start:.1f}"}


# ---------------------------------------------------------------------------------------------------------- main


def main():
    """Choose parts, and make the rows that are missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=["eight", "monotone", "cox"])
    parser.add_argument("--seeds", type=int, default=None, help="simulations of each part: 5, 3 and 20")
    parser.add_argument("--out", type=Path, default=Path("examples/results"))
    parser.add_argument("--smoke", action="store_true", help="one simulation, few steps")
    options = parser.parse_args()
    options.steps = 5 if options.smoke else None
    options.out.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_enable_x64", True)  # a start from anywhere has steps that float32 does not survive
    of_cox = ways(options)
    runs = {"eight": (eight, 5), "monotone": (never_falls, 3), "cox": (lambda seed, _: cox(seed, of_cox), 20)}
    for part in options.parts:
        run, seeds = runs[part]
        path = options.out / f"functionals_{part}.csv"
        rows = [] if options.smoke else read(path)
        for seed in range(1 if options.smoke else options.seeds or seeds):
            if any(int(row["seed"]) == seed for row in rows):
                continue
            for row in run(seed, options):
                rows.append(row)
                print(*row.values(), flush=True)
            save(path, rows)


if __name__ == "__main__":
    main()
