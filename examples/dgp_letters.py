"""The letters "DGP" as a conditional density p(y | x), by shallow, deep and latent-variable models.

    python -m examples.dgp_letters [--models GP LV-GP ...] [--steps 4000] [--samples 5] [--smoke]

Only models with latent inputs can put several strokes above one x; each layer more sharpens them.
"""

import argparse
import csv
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

from examples.studies.importance import deep_models
from numpyro_gp.criticism.conditional_density import density_on_grid, latent_posterior, shapiro_wilk

MODELS = ["GP", "GP-GP", "LV-GP", "LV-GP-GP", "LV-GP-GP-GP"]
HERE = Path(__file__).parent


def load(path):
    table = np.loadtxt(path, delimiter=",")
    return (table - table.mean(axis=0)) / table.std(axis=0)


HEADING = "Conditional density p(y | x) where there are data"


def picture(file, data, results, x, y, heading=f"{HEADING}, importance-weighted variational inference"):
    """One panel for the data and one for each model, the same colour scale for all densities."""
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(12, 6), sharex=True, sharey=True, layout="constrained")
    axes[0, 0].plot(*data.T, ".", markersize=1.5, color="black")
    axes[0, 0].set_title("data")
    gap = np.abs(x[:, None] - data[None, :, 0]).min(axis=1) > 0.03  # between letters: p(y | x) says nothing there
    shown = [np.where(gap[None, :], np.nan, r["density"]) for r in results]
    top = np.nanquantile(np.concatenate([one.ravel() for one in shown]), 0.99)
    image = None
    for axis, result, density in zip(axes.ravel()[1:], results, shown, strict=False):
        image = axis.pcolormesh(x, y, density, cmap="cividis", vmin=0, vmax=top, shading="nearest")
        axis.set_title(f"{result['model']}  (test log density {result['log_density']:.2f})")
    for axis in axes.ravel()[1 + len(results) :]:
        axis.set_visible(False)
    figure.supxlabel("x (standardised)")
    figure.supylabel("y (standardised)")
    figure.suptitle(heading)
    if image is not None:
        figure.colorbar(image, ax=axes, label="density of y (per standard deviation)", shrink=0.8)
    figure.savefig(file, dpi=130)
    plt.close(figure)


def grid_of(X):
    """Values of x and of y at which densities are drawn."""
    return np.linspace(X.min(), X.max(), 160), np.linspace(-2.2, 2.2, 90)


def write(args, results):
    """Tidy table, rewritten after each model."""
    with open(args.out / "dgp_letters.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["model", "metric", "value", "steps", "samples"])
        for result in results:
            for metric in ("log_density", "bound", "seconds", "normality"):
                writer.writerow([result["model"], metric, f"{result[metric]:.5g}", args.steps, args.samples])


def fit_and_score(name, args, training, held_out, grid):
    """One model: what was fitted (model, guide, parameters), and its row with the density on a grid of x and y."""
    model, guide = deep_models.build(name, jnp.asarray(training[0]), args.inducing, carry_latent=True, mixing=None)
    samples, progress = args.samples if "LV" in name else 1, not args.quiet
    options = {"steps": args.steps, "batch": args.batch, "samples": samples, "seed": args.seed, "progress": progress}
    result, seconds = deep_models.train(model, guide, *training, **options)
    fitted = (model, guide, result.params)
    scored, density, _ = deep_models.score(*fitted, *held_out, num_samples=args.draws)
    x, y = grid
    drawn, *_ = deep_models.score(*fitted, x[:, None], np.zeros(len(x)), num_samples=args.draws)
    return fitted, {
        "model": name,
        "log_density": density,
        "seconds": seconds,
        "normality": float(np.median(shapiro_wilk(np.asarray(scored.sample(500))))),
        "density": np.asarray(density_on_grid(drawn, y)),
        "bound": -float(np.mean(result.losses[-200:])),
    }


def advice(fitted, training):
    """What the effective sample sizes of the latent inputs say."""
    drawn = latent_posterior(jax.random.key(2), *fitted, *training, num_samples=50, num_draws=2)
    size = np.asarray(drawn.effective_sample_size)
    share = np.mean(size < 5)
    found = "fine" if share < 0.2 else "q(w) misses mass: more samples or a wider encoder"
    return f"  latent inputs: median ESS {np.median(size):.0f} of 50, {share:.0%} below 5: {found}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--samples", type=int, default=5, help="importance samples K")
    parser.add_argument("--inducing", type=int, default=50)
    parser.add_argument("--draws", type=int, default=1000, help="draws of the predictive mixture")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, default=HERE / "data" / "dgp_letters.csv.gz")
    parser.add_argument("--out", type=Path, default=HERE / "output")
    parser.add_argument("--quiet", action="store_true", help="no progress bars")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    args = parser.parse_args()
    if args.smoke:
        args.models, args.steps, args.inducing, args.draws = ["GP", "LV-GP-GP"], 5, 8, 10
    jax.config.update("jax_enable_x64", True)
    args.out.mkdir(parents=True, exist_ok=True)

    data = load(args.data)
    test = np.random.default_rng(args.seed).random(len(data)) < 0.1
    X, Y = data[:, :1], data[:, 1]
    x, y = grid_of(X)
    training, held_out = (X[~test], Y[~test]), (X[test], Y[test])
    results = []
    print(f"{len(data)} points, {test.sum()} held out; {args.steps} steps of {args.batch}, K = {args.samples}")
    print(f"{'model':14s} {'log density':>12s} {'seconds':>8s} {'ms/step*':>8s} {'median W':>9s}")
    for name in args.models:
        fitted, result = fit_and_score(name, args, training, held_out, (x, y))
        results.append(result)
        density, seconds, normality = (result[key] for key in ("log_density", "seconds", "normality"))
        print(
            f"{name:14s} {density:12.3f} {seconds:8.1f} {1e3 * seconds / args.steps:8.1f} {normality:9.3f}", flush=True
        )
        picture(args.out / "dgp_letters.png", data, results, x, y)
        write(args, results)
        if "LV" in name:
            print(advice(fitted, training))
    print("* with compilation")
    best = max(results, key=lambda r: r["log_density"])
    print(f"\nBest by held-out log density: {best['model']} ({best['log_density']:.3f}).")
    print("Distrust it where bounds of the last steps still rise, or the effective sample size is near 1.")
    print(f"Figure and table in {args.out}")


if __name__ == "__main__":
    main()
