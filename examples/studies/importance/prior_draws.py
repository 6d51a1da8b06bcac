"""What deep models say before data: draws of four priors, as a picture (Salimbeni, Dutordoir et al. 2019, figure 7).

    python -m examples.studies.importance.prior_draws

Every process has one output and an RBF kernel with variance and lengthscales of one. An inner process adds to its
input, and a latent input is a column of normal numbers, one for each point. A process above the latent input makes the
density of a target at one place other than normal. One below another lets functions change fast in places, and slowly
in others.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import numpyro_gp as ngp

MODELS = ("GP", "GP-GP", "LV-GP", "LV-GP-GP")
HALF = 4.0


def function_values(key, Z):
    """One draw of a Gaussian process at inputs ``Z`` ``(N, D)``: ``(N,)``."""
    kernel = ngp.kernels.RBF(1.0, jnp.ones(Z.shape[1]))
    covariance = kernel.matrix(Z) + 1e-6 * jnp.eye(len(Z))  # positive definite in double precision
    return jnp.linalg.cholesky(covariance) @ jax.random.normal(key, (len(Z),))


def draw(key, model, X):
    """Targets without noise at inputs ``X`` ``(N, 1)`` by one draw of a model: ``(N,)``."""
    keys = jax.random.split(key, 3)
    Z = jnp.column_stack([X, jax.random.normal(keys[0], X.shape)]) if model.startswith("LV") else X
    for own in keys[1 : model.count("GP")]:
        Z = X + function_values(own, Z)[:, None]
    return function_values(keys[-1], Z)


def figure(path, *, points=1500, draws=3, seed=0):
    """Draws of a model in each column: lines where a target is a function of its input, points where it is not."""
    import matplotlib.pyplot as plt

    drawn, axes = plt.subplots(
        draws, len(MODELS), figsize=(11, 1.9 * draws), sharex=True, squeeze=False, layout="constrained"
    )
    for number, line in enumerate(axes):
        for model, axis in zip(MODELS, line, strict=True):
            X = jnp.linspace(-HALF, HALF, points if model.startswith("LV") else min(points, 400))[:, None]
            y = np.asarray(draw(jax.random.key(seed + number), model, X))
            style = {"s": 2, "alpha": 0.5} if model.startswith("LV") else {"s": 1.5}
            axis.scatter(X[:, 0], y, color="#0072B2", lw=0, **style)
            axis.set(yticks=[], xlabel="x" if number == draws - 1 else "", title=model if number == 0 else "")
    drawn.savefig(path, dpi=110)
    plt.close(drawn)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1500, help="of a model with a latent input")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    sizes = {"points": 20, "draws": 1} if options.smoke else {"points": options.points, "draws": options.draws}
    figure(options.out / "prior_draws.png", seed=options.seed, **sizes)
    print(f"Written to {options.out}/prior_draws.png")


if __name__ == "__main__":
    main()
