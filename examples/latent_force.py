"""A force that is never seen, recovered from the motion that it drives (models/latent_force.py).

    python -m examples.latent_force [--steps 2500]

The figure shows functions of the force drawn from the posterior beside the truth, and the path each of them drives.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import numpyro_gp as ngp
from examples.tools.tables import save
from models.latent_force import engine, guide, simulate, solve, true_force


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2500)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "output")
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    if args.smoke:
        args.steps, args.draws = 5, 5
    jax.config.update("jax_enable_x64", True)
    args.out.mkdir(parents=True, exist_ok=True)
    data, chosen = simulate(jax.random.key(0)), guide()
    result = ngp.fit(jax.random.key(1), engine(chosen, args.steps), args.steps, progress=False, **data)
    posterior = result.posterior()
    force = posterior.functions(jax.random.key(2), args.draws, gp="force", **data)
    times = jnp.linspace(0.05, 10.0, 200)
    values, truth = np.asarray(force(times[:, None])), np.asarray(true_force(times))
    paths = np.stack([solve(force[s], 0.8, times) for s in range(min(args.draws, 8))])

    low, high = np.quantile(values, [0.05, 0.95], axis=0)
    inside = np.mean((truth >= low) & (truth <= high))
    error = np.sqrt(np.mean((values.mean(axis=0) - truth) ** 2))
    noise = float(chosen.median(result.params)["noise"])
    print(f"noise {noise:.3f} (0.05 made the data)")
    print(f"force: RMSE {error:.3f} of scale {truth.std():.2f}; the 90 % band holds {inside:.0%} of the truth")
    print("Distrust it beyond the data, and for a decay that is not known as well as it is here.")
    save(args.out / "latent_force.csv", [{"noise": noise, "rmse": error, "inside": inside, "steps": args.steps}])

    figure, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    colour, other = ngp.plots.COLOURS[:2]
    axes[0].fill_between(times, low, high, color=colour, alpha=0.2, lw=0, label="90 % of functions")
    axes[0].plot(times, values[:5].T, color=colour, lw=0.7)
    axes[0].plot(times, truth, color=other, ls="--", label="truth")
    axes[0].set(title="force, never observed", xlabel="time")
    axes[0].legend(fontsize="small")
    axes[1].plot(times, paths.T, color=colour, lw=0.7, label=["of drawn forces", *[None] * (len(paths) - 1)])
    axes[1].plot(data["X"][:, 0], data["y"], "k.", ms=3, label="data")
    axes[1].set(title="path, of each drawn force", xlabel="time")
    axes[1].legend(fontsize="small")
    figure.savefig(args.out / "latent_force.png", dpi=150)


if __name__ == "__main__":
    main()
