"""A stream in ten parts, none of which is seen twice: what was learnt is recalled at the price of its inducing inputs.

    python -m examples.studies.peers.going_on            # two minutes

Each part is fitted with what was learnt before, and compared on test data with the fit of all parts so far at once, and
with that of the part alone. The parts go from left to right, so that each has a place of its own, and hyper-parameters
are learnt on the way. Two likelihoods: Gaussian noise, and counts, which no closed form knows how to continue.
"""

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp
from examples.tools.tables import save

PARTS = 10
Z = np.linspace(0.0, 10.0, 40)[:, None]


def model(X, y=None, past=None, *, is_counts=False):
    """One process with a level, and the past where there is one."""
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 0.7))
    variance = numpyro.sample("variance", dist.LogNormal(0.0, 0.7))
    f = ngp.gp("f", ngp.kernels.Matern52(variance, lengthscale), jnp.asarray(Z), mean=0.5)
    likelihood = ngp.likelihoods.Poisson()
    if not is_counts:
        likelihood = ngp.likelihoods.Gaussian(numpyro.sample("noise", dist.LogNormal(-1.0, 0.7)))
    if past is not None:
        ngp.recall("past", f, past)
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), likelihood, obs=y)


def simulate(rows, is_counts, seed=0):
    """Inputs in order, and what is seen there."""
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(0, 10, rows))
    f = 0.5 + np.sin(1.5 * X) + 0.4 * np.cos(4 * X)
    y = rng.poisson(np.exp(f)).astype(float) if is_counts else f + 0.3 * rng.normal(size=rows)
    return jnp.asarray(X[:, None]), jnp.asarray(y)


def fitted(X, y, past, is_counts, steps):
    """Guide, parameters and seconds of a fit."""
    guide = ngp.AutoGP(model, {"f": ngp.guides.conditional()})
    svi = SVI(model, guide, ngp.optim.natural_gradient(optax.adam(0.03), 0.3), Trace_ELBO())
    start = time.perf_counter()
    params = ngp.fit(jax.random.key(0), svi, steps, X, y, past, is_counts=is_counts, progress=False).params
    return guide, params, time.perf_counter() - start


def density(guide, params, X, y, is_counts):
    """Mean test log density."""
    posterior = ngp.Posterior.from_svi(model, guide, params)
    return float(posterior.predict(jax.random.key(1), X, is_counts=is_counts).log_density(y).mean())


def stream(is_counts, rows, steps, parts):
    """A row for each part and way."""
    X, y = simulate(rows, is_counts)
    held = np.arange(rows) % 4 == 3
    X_test, y_test = X[held], y[held]
    pieces = np.array_split(np.flatnonzero(~held), PARTS)[:parts]
    past, found = None, []
    for number, piece in enumerate(pieces, 1):
        so_far = np.concatenate(pieces[:number])
        seen = X_test[:, 0] <= float(X[so_far].max())
        ways = {"recalled": (piece, past), "at once": (so_far, None), "part alone": (piece, None)}
        for way, (chosen, known) in ways.items():
            guide, params, seconds = fitted(X[chosen], y[chosen], known, is_counts, steps)
            if way == "recalled":
                now = ngp.pseudo_data(guide, params)["f"]
            medians = guide.rest.median(params)
            row = {"data": "counts" if is_counts else "Gaussian", "part": number, "way": way, "rows": len(chosen)}
            row |= {"log_density": round(density(guide, params, X_test[seen], y_test[seen], is_counts), 4)}
            row |= {name: round(float(medians[name]), 4) for name in ("lengthscale", "variance")}
            found.append(row | {"seconds": round(seconds, 1)})
            print(*found[-1].values(), flush=True)
        past = now
    return found


def draw(rows, path):
    """Test log density by part: circles around squares, so that two ways that agree are both seen."""
    figure, axes = plt.subplots(1, 2, figsize=(8.5, 3.1), layout="constrained")
    looks = {"at once": ("o", 8, "none", "all rows at once"), "recalled": ("s", 4, None, "part and what is recalled")}
    looks["part alone"] = ("^", 5, None, "part alone")
    for ax, (data, title) in zip(axes, {"Gaussian": "Gaussian noise", "counts": "counts"}.items(), strict=True):
        for colour, (way, (marker, size, face, label)) in zip(ngp.plots.COLOURS, looks.items(), strict=False):
            own = [row for row in rows if row["data"] == data and row["way"] == way]
            values = [int(row["part"]) for row in own], [float(row["log_density"]) for row in own]
            ax.plot(*values, color=colour, marker=marker, ms=size, mfc=face or colour, lw=1.2, label=label)
        ax.set_title(title, fontsize="medium", loc="left")
        ax.set(xlabel="parts seen", xticks=range(1, 1 + max(int(row["part"]) for row in rows)))
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("test log density so far")
    axes[0].legend(frameon=False, fontsize="small", loc="center right")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(arguments=None):
    """Both streams, their rows and a figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--out", type=Path, default=Path("examples/output"), help="folder for table and figure")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    size, steps, parts = (120, 20, 2) if options.smoke else (1000, 400, PARTS)
    rows = stream(False, size, steps, parts) + stream(True, size, steps, parts)
    options.out.mkdir(parents=True, exist_ok=True)
    save(options.out / "going_on.csv", rows)
    draw(rows, options.out / "going_on.png")
    last = {(row["data"], row["way"]): row["log_density"] for row in rows}
    for data in ("Gaussian", "counts"):
        gap = last[data, "recalled"] - last[data, "at once"]
        print(f"{data}: after the last part, recalled less all at once: {gap:+.4f} of log density")


if __name__ == "__main__":
    main()
