"""Regression by Stein particles: a handful of hyper-parameter settings that repel each other.

SVGD targets the posterior of the hyper-parameters under the collapsed bound (the exact evidence with ``Z=None``) by a
finite set of particles: few particles in many dimensions understate the spread, so compare with NUTS, which runs on the
same function. There is no guide. After the fit: ``ngp.Posterior.from_stein``.
"""

import jax
import jax.numpy as jnp
import numpyro
import optax

import numpyro_gp as ngp


def model(X, y=None, *, Z=None):
    """Regression on standardised data, with the function integrated out."""
    lengthscale = numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(X))
    variance = numpyro.sample("variance", ngp.starting.variance_prior())
    noise = numpyro.sample("noise", ngp.starting.noise_prior())
    kernel = ngp.kernels.Matern52(variance, lengthscale)
    # gp_regression takes the noise variance. With the jitter data without noise do not stop a fit in float32.
    return ngp.gp_regression("y", kernel, X, noise_variance=noise**2, inducing=Z, obs=y, jitter=1e-5)


def simulate(key, num_data=300, num_inducing=30):
    """A surface over two inputs, of which the second hardly matters."""
    at, noise, centres = jax.random.split(key, 3)
    X = jax.random.normal(at, (num_data, 2))
    y = jnp.sin(2 * X[:, 0]) + 0.1 * X[:, 1] + 0.2 * jax.random.normal(noise, (num_data,))
    return {"X": X, "y": y, "Z": ngp.inducing.kmeans(centres, X, num_inducing)}


def engine(num_particles=10):
    """About 500 steps."""
    return ngp.stein.SVGD(model, optax.adam(0.05), ngp.stein.RBF(), num_stein_particles=num_particles)
