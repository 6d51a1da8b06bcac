"""Are the hyper-parameters of a variational fit calibrated? Simulations, before and after a belief that follows them.

    # half an hour; rows that are there are not made again
    python -m examples.studies.hyperparameters.calibration_of_fits
    # the first data sets of the regression, one by one
    python -m examples.studies.hyperparameters.calibration_of_fits --beside-nuts 12

Hyper-parameters and data are drawn from the prior of a regression, a classification and a model of counts. Each data
set is fitted with ``coupled`` and with ``conditional`` beliefs, beside a full normal over the hyper-parameters, and the
true values are ranked among its draws. Rows have the mean rank (a half if calibrated), how often the central 90 % of
the draws hold the true value, the p-value of equal ranks, and of some data sets the median Pareto ``k`` of importance
weights and the part of them above 0.7. A regression has a third belief, of pseudo-data in units of the noise.

``--beside-nuts`` asks what a fit misses: standard deviations and means of the logarithms beside NUTS with the function
integrated out, for both beliefs and for the same full normal with the function integrated out, which is the most that
any belief about the function can reach beside it.
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
from numpyro.infer import MCMC, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal

import numpyro_gp as ngp
from examples.tools.tables import read, save

MODELS = {"regression": 20, "classification": 60, "counts": 20}  # and their rows
BELIEFS = {
    "coupled": ngp.guides.coupled(natural=True),
    "conditional": ngp.guides.conditional(),
    "conditional, noise": ngp.guides.conditional(noise="noise"),
}


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


def integrated(X, y=None):
    """The regression with its function integrated out."""
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 0.5))
    variance = numpyro.sample("variance", dist.LogNormal(0.0, 0.5))
    noise = numpyro.sample("noise", dist.LogNormal(-1.0, 0.5))
    ngp.gp_regression("y", ngp.kernels.Matern52(variance, lengthscale), X, noise**2, obs=y)


def beside_nuts(options):
    """Rows of each way and hyper-parameter over the first data sets of the regression: spread and means beside NUTS."""
    X, model, shape = jnp.linspace(-3.0, 3.0, MODELS["regression"])[:, None], model_of("regression"), (4000,)
    steps, found = 4 * options.steps, {}
    mcmc = MCMC(ngp.NUTS(integrated), num_warmup=steps // 10, num_samples=4 * steps // 10, progress_bar=False)

    def by_belief(key, y, recipe):
        guide, params = fitted(key, model, X, y, recipe, steps)
        return guide.rest.sample_posterior(key, params, sample_shape=shape)

    def exactly(key, y):
        guide, adam = AutoMultivariateNormal(integrated), optax.adam(optax.cosine_decay_schedule(0.03, steps))
        fit = ngp.fit(key, SVI(integrated, guide, adam, Trace_ELBO(num_particles=4)), steps, X, y, progress=False)
        return guide.sample_posterior(key, fit.params, sample_shape=shape)

    def one(key, model, X, y):  # noqa: ARG001
        mcmc.run(key, X, y)
        reference = {name: np.log(values) for name, values in mcmc.get_samples().items()}
        ways = {belief: by_belief(key, y, recipe) for belief, recipe in list(BELIEFS.items())[1:]}
        for way, draws in (ways | {"integrated out": exactly(key, y)}).items():
            for site, true in reference.items():
                own = np.log(draws[site])
                pair = np.log(own.std() / true.std()), (own.mean() - true.mean()) / true.std()
                found.setdefault((way, site), []).append(pair)
        return mcmc.get_samples()

    sizes = {"num_simulations": options.beside_nuts, "num_draws": options.draws}
    ngp.diagnose.sbc(jax.random.key(len("regression")), model, X, fit=one, **sizes)
    rows = []
    for (way, site), pairs in found.items():
        ratio, apart = np.array(pairs).T
        row = {"way": way, "site": site, "data_sets": len(pairs), "sd_over_nuts": f"{np.exp(ratio.mean()):.3f}"}
        rows.append(row | {"mean_off_in_sd": f"{np.abs(apart).mean():.3f}"})
        print(*rows[-1].values(), flush=True)
    save(options.out / "calibration_beside_nuts.csv", rows)


def main():
    """Make the rows that are not there yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulations", type=int, default=80)
    parser.add_argument("--draws", type=int, default=127, help="that a rank counts")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--beside-nuts", type=int, default=0, metavar="SETS", help="this in place of ranks")
    parser.add_argument("--weighed", type=int, default=20, help="data sets with importance weights")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    if options.smoke:
        options.simulations, options.draws, options.steps, options.weighed = 10, 7, 10, 1
    jax.config.update("jax_enable_x64", True)
    if options.beside_nuts:
        return beside_nuts(options)
    path = options.out / "calibration_of_fits.csv"
    rows = read(path)
    for name in list(MODELS)[: 1 if options.smoke else None]:
        for belief in BELIEFS:
            if belief == "conditional, noise" and name != "regression":
                continue
            if any(row["model"] == name and row["belief"] == belief for row in rows):
                continue
            rows += run(name, belief, options)
            save(path, rows)


if __name__ == "__main__":
    main()
