"""A process beside an intercept, an effect and groups: a fit, and its draws by importance weights, beside NUTS.

    # ten minutes
    python -m examples.studies.hyperparameters.added_effects

Five simulated data sets of six schools with 40 rows each, two of them with counts. The model is fitted by
``conditional(joint=True)`` beside a full normal, 20 000 draws of the fit are weighed, and the model is sampled by NUTS,
two chains of 2000 draws. Rows have the means of a fit less those of NUTS in standard deviations of NUTS, the largest of
a site, and the least and the largest ratio of standard deviations.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.diagnostics import split_gelman_rubin
from numpyro.infer import MCMC, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal

import numpyro_gp as ngp
from examples.tools.tables import save

SCHOOLS, ROWS = 6, 40
DATA = ("normal", "normal", "counts", "counts", "normal")  # the seed of each is its place
Z = jnp.linspace(-2.2, 2.2, 12)[:, None]


def data_of(seed):
    """Inputs, the school and the treatment of each row, and its data."""
    rng = np.random.default_rng(seed)
    school = np.repeat(np.arange(SCHOOLS), ROWS)
    x, treated = rng.uniform(-2, 2, len(school)), rng.integers(0, 2, len(school))
    level = 0.7 + 0.6 * np.sin(1.5 * x) - 0.5 * treated + rng.normal(0, 0.4, SCHOOLS)[school]
    y = rng.poisson(np.exp(level)) if DATA[seed] == "counts" else level + 0.4 * rng.normal(size=len(school))
    return jnp.asarray(x)[:, None], jnp.asarray(school), jnp.asarray(treated, float), jnp.asarray(y, float)


def model_of(kind):
    """The model of the page, with a variance and a noise of its own."""

    def model(X, school, treated, y=None):
        intercept = numpyro.sample("intercept", dist.Normal(0.0, 1.0))
        effect = numpyro.sample("effect", dist.Normal(0.0, 1.0))
        spread = numpyro.sample("spread", dist.HalfNormal(1.0))
        with numpyro.plate("schools", SCHOOLS):
            of_school = numpyro.sample("of_school", dist.Normal(0.0, spread))
        lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(Z, ard=False))
        variance = numpyro.sample("variance", dist.LogNormal(-0.5, 0.7))
        if kind == "counts":
            likelihood = ngp.likelihoods.Poisson()
        else:
            likelihood = ngp.likelihoods.Gaussian(numpyro.sample("noise", ngp.starting.noise_prior()))
        f = ngp.gp("f", ngp.kernels.Matern52(variance, lengthscale), inducing=Z)
        with numpyro.plate("data", X.shape[0]):
            ngp.observe("y", f(X), likelihood, obs=y, offset=intercept + effect * treated + of_school[school])

    return model


def rows_of_set(seed, steps, draws):
    """Rows of one data set: for each site the fit, and its draws by weights."""
    kind, data, key = DATA[seed], data_of(seed), jax.random.key(seed)
    model = model_of(kind)
    mcmc = MCMC(
        ngp.NUTS(model, target_accept_prob=0.9),
        num_warmup=draws // 2,
        num_samples=draws,
        num_chains=2,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(key, *data)
    chains = {name: np.asarray(x) for name, x in mcmc.get_samples(group_by_chain=True).items() if name != "f"}
    recipe = ngp.guides.conditional(joint=True, noise=None if kind == "counts" else "noise")
    guide = ngp.AutoGP(model, {"f": recipe}, rest=AutoMultivariateNormal)
    adam = optax.adam(optax.cosine_decay_schedule(0.03, steps))
    natural = ngp.optim.natural_gradient(adam, ngp.optim.ramp(0.01, 0.1, 200))
    fit = ngp.fit(key, SVI(model, guide, natural, Trace_ELBO(num_particles=16)), steps, *data).posterior()
    weighed = ngp.diagnose.importance_resample(fit, key, *data, num_samples=2 * draws, num_weighed=10 * draws)
    found = {"fit": fit.draws(key, *data, num_samples=2 * draws).latent, "weighed": weighed.samples}
    for engine, latent in found.items():
        for name, chain in chains.items():
            beside = chain.reshape(-1, *chain.shape[2:])
            own, mean, sd = np.asarray(latent[name]), beside.mean(axis=0), beside.std(axis=0)
            ratio = own.std(axis=0) / sd
            yield {
                "data": f"{seed} {kind}",
                "engine": engine,
                "site": name,
                "mean apart": round(float(np.max(np.abs(own.mean(axis=0) - mean) / sd)), 3),
                "least sd": round(float(np.min(ratio)), 3),
                "largest sd": round(float(np.max(ratio)), 3),
                "R-hat": round(float(np.max(split_gelman_rubin(chain))), 4),
                "Pareto k": round(float(weighed.extra_fields["pareto_k"][0]), 2) if engine == "weighed" else "",
            }


def main(arguments=None):
    """Make all rows, and print the extremes of each engine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("examples/output"), help="folder for the table")
    parser.add_argument("--smoke", action="store_true", help="one set and few steps, to see that it runs")
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for seed in range(1 if given.smoke else len(DATA)):
        rows += rows_of_set(seed, *((50, 50) if given.smoke else (2000, 2000)))
        save(given.out / "added_effects.csv", rows)
    for engine in ("fit", "weighed"):
        own = [row for row in rows if row["engine"] == engine]
        worst = {
            name: pick(row[name] for row in own)
            for name, pick in (("mean apart", max), ("least sd", min), ("largest sd", max), ("R-hat", max))
        }
        print(engine, worst)


if __name__ == "__main__":
    main()
