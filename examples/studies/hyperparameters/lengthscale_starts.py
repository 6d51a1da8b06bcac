"""What the prior of the lengthscales is worth at the start of a fit, by the number of inputs.

    python -m examples.studies.hyperparameters.lengthscale_starts            # a few minutes; --smoke for a few seconds

The first of D standardised columns matters, the others do not. A sparse GP starts from
`ngp.starting.lengthscale_prior`, and from LogNormal(0, 1), whose median is one whatever D is. "steps" are those until
the loss stays within 1 % of its final value, "way" those until it has gone 99 % of its way there (the first is little
use near a value of zero). A bound that never left its start is there at once: read the test density.
"flat" is the plateau test of `examples.tools.run_queue`.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp
from examples.tools.run_queue import is_flat
from examples.tools.tables import save


def model(X, y=None, *, Z, default=True):
    """One lengthscale a column."""
    ones = dist.LogNormal(0.0, 1.0).expand([Z.shape[1]]).to_event(1)
    lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(Z) if default else ones)
    noise = numpyro.sample("noise", ngp.starting.noise_prior())
    f = ngp.gp("f", ngp.kernels.RBF(1.0, lengthscale), inducing=Z)
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(noise), obs=y)


def settled(losses, whole):
    """First step from which on the loss is within 1 % of ``whole`` of its final value."""
    away = np.flatnonzero(np.abs(losses - losses[-1]) > 0.01 * np.abs(whole))
    return int(away[-1]) + 2 if len(away) else 1


def fit(key, columns, default, rows, steps):
    """Steps by both measures, whether flat, final loss a row, test log density of one fit and its error."""
    rng = np.random.default_rng(columns)
    X = jnp.asarray(rng.normal(size=(2 * rows, columns)))
    y = jnp.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=2 * rows)
    train, test = (X[:rows], y[:rows]), (X[rows:], y[rows:])
    Z = ngp.inducing.random_subset(key, train[0], rows // 4)
    guide = ngp.AutoGP(model, {"f": ngp.guides.coupled(natural=True)})
    svi = SVI(model, guide, ngp.optim.natural_gradient(optax.adam(0.02), 0.3), Trace_ELBO())
    found = ngp.fit(key, svi, steps, *train, Z=Z, default=default, progress=False)
    posterior = ngp.Posterior.from_svi(model, guide, found.params)
    density = posterior.predict(key, test[0], Z=Z, default=default).log_density(test[1])
    losses = np.asarray(found.losses)
    steps = settled(losses, losses[-1]), settled(losses, losses[0] - losses[-1])
    scores = float(losses[-1]) / rows, float(density.mean()), float(density.std() / np.sqrt(rows))
    return (*steps, is_flat(losses / rows), *scores)


def main(arguments=None):
    """Fit for each number of columns and each prior, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--out", type=Path, default=Path("examples/output"), help="folder for the table")
    parser.add_argument("--steps", type=int, default=500)
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    rows, steps, all_columns = (40, 20, (1,)) if options.smoke else (200, options.steps, (1, 8, 13, 30))
    table = []
    print(f"{'D':>3} {'prior':18}{'steps':>6}{'way':>6}{'flat':>6}{'loss a row':>12}{'test log density':>20}")
    for columns in all_columns:
        for name, default in (("lengthscale_prior", True), ("LogNormal(0, 1)", False)):
            found = fit(jax.random.key(0), columns, default, rows, steps)
            table.append((columns, name, *found))
            text = f"{found[0]:6}{found[1]:6}{found[2]!s:>6}{found[3]:12.3f}{found[4]:12.3f} ± {found[5]:.3f}"
            print(f"{columns:3} {name:18}{text}", flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    names = ("columns", "prior", "steps", "way", "flat", "loss_a_row", "log_density", "log_density_se")
    save(options.out / "lengthscale_starts.csv", [dict(zip(names, row, strict=True)) for row in table])
    print(f"wrote {options.out / 'lengthscale_starts.csv'}")


if __name__ == "__main__":
    main()
