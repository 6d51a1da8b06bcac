"""How to add a covariance function: Wendland's, which is exactly zero beyond a finite distance.

A kernel is an immutable pytree with two hooks. Gram matrices, checks, ``+``, ``*``, ``.on(columns)`` and every
primitive follow. NUTS targets the exact posterior of the hyper-parameters here, with the function integrated out; SVI
takes the same kernel. A kernel that needs no class is a function: ``ngp.gp("f", lambda X1, X2: ..., inducing=Z)``.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpyro
import optax
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

import numpyro_gp as ngp


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def wendland(squares, power):
    """``(1 - r)_+^(p + 1) ((p + 1) r + 1)`` as a function of ``r^2``; ``power`` is p."""
    r = root(squares)
    return jnp.maximum(1 - r, 0) ** (power + 1) * ((power + 1) * r + 1)


@wendland.defjvp
def wendland_derivative(power, primals, tangents):
    """By ``r^2``: ``-(p + 1) (p + 2) (1 - r)_+^p / 2``, finite at zero, where that of the square root is not."""
    slope = -0.5 * (power + 1) * (power + 2) * jnp.maximum(1 - root(primals[0]), 0) ** power
    return wendland(primals[0], power), slope * tangents[0]


def root(squares):
    """The square root; at zero, where it has no derivative, that of a constant."""
    apart = squares > 0
    return jnp.where(apart, jnp.sqrt(jnp.where(apart, squares, 1)), 0)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Wendland(ngp.kernels.Kernel):
    """``variance (1 - r)_+^(p + 1) ((p + 1) r + 1)``, once differentiable (Rasmussen and Williams 2006, eq. 4.21).

    ``r^2 = sum_d ((x_d - y_d) / lengthscale_d)^2`` and ``p = floor(D / 2) + 2`` for inputs of D columns: with a smaller
    power it would not be positive definite there. The correlation is zero from distance ``lengthscale`` on.
    """

    variance: jax.Array  # (); by its axes a batch of kernels is known
    lengthscale: jax.Array  # () or (D,)

    def _cross(self, X1, X2):
        """Covariances ``(N1, N2)`` of two sets of points ``(N, D)``."""
        lengthscale = jnp.reshape(self.lengthscale, (1, -1))
        A, B = X1 / lengthscale, X2 / lengthscale
        # The plain form of the distance, in memory N1 N2 D; see ngp.kernels.RBF for many columns.
        squares = jnp.sum((A[:, None, :] - B[None, :, :]) ** 2, axis=-1)
        return self.variance * wendland(squares, X1.shape[1] // 2 + 2)

    def _diagonal(self, X):
        """Variances ``(N,)``: `matrix` puts them on its diagonal."""
        return jnp.broadcast_to(self.variance, (X.shape[0],))


def model(X, y=None):
    """Exact regression; the prior puts the support at three times the default lengthscale."""
    lengthscale = 3.0 * numpyro.sample("lengthscale", ngp.starting.lengthscale_prior(X))
    variance = numpyro.sample("variance", ngp.starting.variance_prior())
    noise = numpyro.sample("noise", ngp.starting.noise_prior())
    return ngp.gp_regression("y", Wendland(variance, lengthscale), X, noise_variance=noise**2, obs=y)


def simulate(key, num_data=150):
    """A wave over the first of two inputs, a line over the second."""
    at, noise = jax.random.split(key)
    X = jax.random.uniform(at, (num_data, 2), minval=-2.0, maxval=2.0)
    y = jnp.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.2 * jax.random.normal(noise, (num_data,))
    return {"X": X, "y": y}


def guide():
    """Distributions of the hyper-parameters."""
    return AutoNormal(model)


def engine(guide):
    """About 1000 steps; or ``MCMC(NUTS(model), num_warmup=500, num_samples=500)``."""
    return SVI(model, guide, optax.adam(2e-2), Trace_ELBO(num_particles=4))
