"""Simulation-based calibration of gallery models under NUTS, and of a wrong one: does inference find the truth?

    python -m examples.studies.calibration.calibration [--models exact_regression ...] [--simulations 100] [--smoke]

Each run draws hyper-parameters and data from a model's prior, infers by NUTS, and ranks the true values among the
posterior draws. Ranks are uniform where model and inference are right. The wrong model takes counts for Poisson
that are negative binomial: the data of `models/counts.py`, whose extra variance it must put into the function.
"""

import argparse
import importlib
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpyro
import numpyro.distributions as dist

import numpyro_gp as ngp
from examples.tools.tables import save
from models import counts

MODELS = ("exact_regression", "sparse_regression", "counts", "robust")
WRONG = "counts taken for Poisson"


def poisson(X, y=None, *, Z):
    """`models/counts.py` without over-dispersion."""
    lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(Z))
    variance = numpyro.sample("variance", dist.LogNormal(-1.0, 1.0))
    level = numpyro.sample("level", dist.Normal(1.0, 1.0))
    f = ngp.gp("f", ngp.kernels.Matern32(variance, lengthscale), inducing=Z, mean=level)
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), ngp.likelihoods.Poisson(), obs=y)


def overdispersed(X, y=None, *, Z):
    """The gallery's counts with ``r = 1``, far in the tail that Poisson ignores."""
    numpyro.handlers.condition(counts.model, data={"r": jnp.ones(())})(X, y, Z=Z)


def run(name, X, simulations, draws, thinning=5):
    """Calibration of one model, with inducing inputs at all data, so that NUTS has the exact posterior."""
    inputs = {} if name == "exact_regression" else {"Z": X}
    key, sizes = jax.random.key(len(name)), {"num_simulations": simulations, "num_draws": draws, "thinning": thinning}
    if name == WRONG:
        return ngp.diagnose.sbc(key, poisson, X, truth=overdispersed, **sizes, **inputs)
    return ngp.diagnose.sbc(key, importlib.import_module(f"models.{name}").model, X, **sizes, **inputs)


def figure(found, path):
    """One row for each model, one histogram for each hyper-parameter."""
    import matplotlib.pyplot as plt

    columns = max(len(one.ranks) for one in found.values())
    size = (2.6 * columns, 2.1 * len(found) + 0.4)
    fig, axes = plt.subplots(len(found), columns, figsize=size, layout="constrained", squeeze=False)
    for row, (name, one) in zip(axes, found.items(), strict=True):
        for ax, site in zip(row, one.ranks, strict=False):
            ngp.plots.ranks(one, site, ax=ax).set(xlabel="", ylabel="")
        for ax in row[len(one.ranks) :]:
            ax.set_visible(False)
        row[0].set_ylabel(f"{name.replace('_', ' ')}\n{'passed' if one.passed() else 'FAILED'}", fontsize="small")
    fig.supxlabel("rank of the true value among posterior draws")
    fig.suptitle("Simulation-based calibration under NUTS: data sets by rank, with the band of 99% if calibrated")
    fig.savefig(path, dpi=110)
    plt.close(fig)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=[*MODELS, WRONG])
    parser.add_argument("--rows", type=int, default=15)
    parser.add_argument("--simulations", type=int, default=100)
    parser.add_argument("--draws", type=int, default=63, help="posterior draws that a rank counts")
    parser.add_argument("--thinning", type=int, default=5, help="NUTS steps for each of them")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "output")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    if options.smoke:
        options.models, options.rows, options.simulations, options.draws = ["exact_regression", WRONG], 5, 10, 7
    jax.config.update("jax_enable_x64", True)
    matplotlib.use("Agg")
    options.out.mkdir(parents=True, exist_ok=True)
    X, found, rows = jnp.linspace(-3.0, 3.0, options.rows)[:, None], {}, []
    for name in options.models:
        start = time.perf_counter()
        found[name] = run(name, X, options.simulations, options.draws, options.thinning)
        print(f"\n{name} ({time.perf_counter() - start:.0f} s)\n{found[name]}", flush=True)
        for site, ranks in found[name].ranks.items():
            mean = (ranks.mean() + 0.5) / (options.draws + 1)
            row = {"model": name, "site": site, "data_sets": len(ranks), "draws": options.draws}
            rows.append(row | {"mean_rank": f"{mean:.4f}", "p_value": f"{found[name].p_values[site]:.4g}"})
        save(options.out / "calibration.csv", rows)
        figure(found, options.out / "calibration.png")
    failed = [name for name, one in found.items() if not one.passed()]
    print(f"\nFailed: {', '.join(failed) or 'none'}. A pass says that nothing is wrong that this many data sets show.")
    print(f"Table and figure: {options.out}/calibration.*")


if __name__ == "__main__":
    main()
