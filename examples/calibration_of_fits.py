"""Are the hyper-parameters of a variational fit calibrated? Simulations, before and after a belief that follows them.

    python -m examples.calibration_of_fits    # half an hour; rows that are there are not made again

Hyper-parameters and data are drawn from the prior of a regression, a classification and a model of counts. Each data
set is fitted with ``coupled`` and with ``conditional`` beliefs, beside a full normal over the hyper-parameters, and the
true values are ranked among its draws. Rows have the mean rank (a half if calibrated), how often the central 90 % of
the draws hold the true value, the p-value of equal ranks, and of some data sets the median Pareto ``k`` of importance
weights and the part of them above 0.7.
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
from numpyro.infer.autoguide import AutoMultivariateNormal

import numpyro_gp as ngp
from examples.tables import read, save

MODELS = {"regression": 20, "classification": 60, "counts": 20}  # and their rows
BELIEFS = {"coupled": ngp.guides.coupled(natural=True), "conditional": ngp.guides.conditional()}


def model_of(name):
    """One function with a lengthscale and a variance; a regression has a noise as well."""

    def model(X, y=None):
        lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 0.5))
        variance = numpyro.sample("variance", dist.LogNormal(0.0, 0.5))
        likelihoods = {"classification": ngp.likelihoods.Bernoulli, "counts": ngp.likelihoods.Poisson}
        if name == "regression":
            likelihood = ngp.likelihoods.Gaussian(numpyro.sample("noise", dist.LogNormal(-1.0, 0.5)))
        else:
            likelihood = likelihoods[name]()
        f = ngp.gp("f", ngp.kernels.Matern52(variance, lengthscale), X if len(X) < 30 else X[::4])
        with numpyro.plate("data", len(X)):
            ngp.observe("y", f(X), likelihood, obs=y)

    return model


def fitted(key, model, X, y, recipe, steps):
    """A guide and its parameters."""
    guide = ngp.AutoGP(model, {"f": recipe}, rest=AutoMultivariateNormal)
    adam = optax.adam(optax.cosine_decay_schedule(0.03, steps))
    optimiser = ngp.optim.natural_gradient(adam, ngp.optim.ramp(0.01, 0.1, max(1, steps // 10)))
    svi = SVI(model, guide, optimiser, Trace_ELBO(num_particles=4))
    return guide, ngp.fit(key, svi, steps, X, y, progress=False).params


def run(name, belief, options):
    """Rows of a model and a belief, one for each hyper-parameter."""
    start, shapes = time.perf_counter(), []

    def fit(key, model, X, y):
        guide, params = fitted(key, model, X, y, BELIEFS[belief], options.steps)
        if len(shapes) < options.weighed:
            posterior = ngp.Posterior.from_svi(model, guide, params)
            shapes.append(float(ngp.diagnose.importance_weights(posterior, key, X, y, num_samples=500).pareto_k))
        return guide.rest.sample_posterior(key, params, sample_shape=(options.draws,))

    X = jnp.linspace(-3.0, 3.0, MODELS[name])[:, None]
    sizes = {"num_simulations": options.simulations, "num_draws": options.draws}
    found = ngp.diagnose.sbc(jax.random.key(len(name)), model_of(name), X, fit=fit, **sizes)
    rows = []
    for site, ranks in sorted(found.ranks.items()):
        level = (ranks + 0.5) / (options.draws + 1)
        row = {"model": name, "belief": belief, "site": site, "data_sets": len(ranks)}
        row |= {"mean_rank": f"{level.mean():.3f}", "inside_90": f"{np.mean(np.abs(level - 0.5) <= 0.45):.3f}"}
        row |= {"p_value": f"{found.p_values[site]:.2g}", "median_k": f"{np.median(shapes):.2f}"}
        rows.append(row | {"k_above_0.7": f"{np.mean(np.array(shapes) > 0.7):.2f}", "weighed": len(shapes)})
        print(*rows[-1].values(), f"{time.perf_counter() - start:.0f} s", flush=True)
    return rows


def main():
    """Make the rows that are not there yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulations", type=int, default=80)
    parser.add_argument("--draws", type=int, default=127, help="that a rank counts")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--weighed", type=int, default=20, help="data sets with importance weights")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    if options.smoke:
        options.simulations, options.draws, options.steps, options.weighed = 10, 7, 10, 1
    jax.config.update("jax_enable_x64", True)
    path = options.out / "calibration_of_fits.csv"
    rows = read(path)
    for name in list(MODELS)[: 1 if options.smoke else None]:
        for belief in BELIEFS:
            if any(row["model"] == name and row["belief"] == belief for row in rows):
                continue
            rows += run(name, belief, options)
            save(path, rows)


if __name__ == "__main__":
    main()
