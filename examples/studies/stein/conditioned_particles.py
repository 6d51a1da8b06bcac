"""Particles that start at the prior, in the coordinates of a fit, without a metric: do they find what NUTS finds?

    python -m examples.studies.stein.conditioned_particles    # some minutes

The data and the model of ``examples/compare_engines.py``, whose fit gives the coordinates. 100 particles start at
draws of the prior of the hyper-parameters, and of ``N(0, I)`` for the coordinates of the function. Rows have mean and
standard deviation of each hyper-parameter, over those of a long chain of NUTS on the same target.
"""

import argparse
from pathlib import Path

import jax
import numpy as np
import optax
from numpyro.infer import MCMC, SVI, Trace_ELBO

import numpyro_gp as ngp
from examples.compare_engines import PRIORS, model, simulate
from examples.tools.tables import save

KERNEL = ngp.stein.Groups([list(PRIORS)], ngp.stein.IMQ(), rest=ngp.stein.RBF(per_coordinate=True))


def coordinates(data, steps):
    """The model in the coordinates of a fit with points for the hyper-parameters."""
    guide = ngp.AutoGP(model, {"f": ngp.guides.conditional()})
    svi = SVI(model, guide, ngp.optim.natural_gradient(optax.adam(0.03), 0.3), Trace_ELBO())
    params = ngp.fit(jax.random.key(0), svi, steps, data.X, data.y, Z=data.Z, progress=False).params
    return ngp.conditioned(model, guide, params, data.X, data.y, Z=data.Z)


def main():
    """A chain, and particles from several seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--particles", type=int, default=100)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--draws", type=int, default=8000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    if options.smoke:
        options.particles, options.steps, options.draws, options.seeds = 4, 5, 10, 1
    jax.config.update("jax_enable_x64", True)
    data = simulate()
    easy = coordinates(data, 10 if options.smoke else 400)
    mcmc = MCMC(ngp.NUTS(easy), num_warmup=options.draws // 8, num_samples=options.draws, progress_bar=False)
    mcmc.run(jax.random.key(1), data.X, data.y, Z=data.Z)
    reference, rows = mcmc.get_samples(), []
    for seed in range(options.seeds):
        optimiser = optax.adam(optax.cosine_decay_schedule(0.05, options.steps))
        svgd = ngp.stein.SVGD(easy, optimiser, KERNEL, options.particles)
        fit = ngp.fit(jax.random.key(seed), svgd, options.steps, data.X, data.y, Z=data.Z, progress=False)
        found = ngp.Posterior.from_stein(easy, svgd, fit.params).samples
        for name in PRIORS:
            own, other = np.asarray(found[name]), np.asarray(reference[name])
            row = {"seed": seed, "hyperparameter": name, "mean": f"{own.mean():.4f}", "sd": f"{own.std():.4f}"}
            row |= {
                "mean_over_nuts": f"{own.mean() / other.mean():.3f}",
                "sd_over_nuts": f"{own.std() / other.std():.3f}",
            }
            rows.append(row | {"sd_of_log_over_nuts": f"{np.log(own).std() / np.log(other).std():.3f}"})
            print(*rows[-1].values(), flush=True)
        save(options.out / "conditioned_particles.csv", rows)


if __name__ == "__main__":
    main()
