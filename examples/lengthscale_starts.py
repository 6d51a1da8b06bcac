"""What the prior of the lengthscales is worth at the start of a fit, by the number of inputs.

    python -m examples.lengthscale_starts            # a few minutes; --smoke for a few seconds

The first of D standardised columns matters, the others do not. A sparse GP starts from
`ngp.starting.lengthscale_prior`, and from LogNormal(0, 1), whose median is one whatever D is. "steps" are those until
the loss stays within 1 % of its final value. A bound that never left its start is there at once: read the test density.
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
from examples.tables import save


def model(X, y=None, *, Z, default=True):
    """One lengthscale a column."""
    ones = dist.LogNormal(0.0, 1.0).expand([Z.shape[1]]).to_event(1)
    lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(Z) if default else ones)
    noise = numpyro.sample("noise", ngp.starting.noise_prior())
    f = ngp.gp("f", ngp.kernels.RBF(1.0, lengthscale), inducing=Z)
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(noise), obs=y)


def settled(losses):
    """First step from which on the loss is within 1 % of its final value."""
    away = np.flatnonzero(np.abs(losses - losses[-1]) > 0.01 * np.abs(losses[-1]))
    return int(away[-1]) + 2 if len(away) else 1


def fit(key, columns, default, rows, steps):
    """Steps, final loss a row, test log density of one fit."""
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
    return settled(losses), float(losses[-1]) / rows, float(density.mean()), float(density.std() / np.sqrt(rows))


def main(arguments=None):
    """Fit for each number of columns and each prior, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--out", type=Path, default=Path("examples/output"), help="folder for the table")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    rows, steps, all_columns = (40, 20, (1,)) if options.smoke else (200, 500, (1, 8, 13, 30))
    table = []
    print(f"{'D':>3} {'prior':18}{'steps':>6}{'loss a row':>12}{'test log density':>20}")
    for columns in all_columns:
        for name, default in (("lengthscale_prior", True), ("LogNormal(0, 1)", False)):
            found = fit(jax.random.key(0), columns, default, rows, steps)
            table.append((columns, name, *found))
            print(f"{columns:3} {name:18}{found[0]:6}{found[1]:12.3f}{found[2]:12.3f} ± {found[3]:.3f}", flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    names = ("columns", "prior", "steps", "loss_a_row", "log_density", "log_density_se")
    save(options.out / "lengthscale_starts.csv", [dict(zip(names, row, strict=True)) for row in table])
    print(f"wrote {options.out / 'lengthscale_starts.csv'}")


if __name__ == "__main__":
    main()
