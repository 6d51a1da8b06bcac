"""``gp_regression``: Gaussian data with the function integrated out, exactly or by the collapsed bound."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import constraints

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.beliefs.base import Basis, Point, Process, positive
from numpyro_gp.beliefs.coupled import Coupled
from numpyro_gp.beliefs.optimum import GaussianData, check_noise
from numpyro_gp.checks import check_points
from numpyro_gp.kernels.base import Kernel, KernelLike, as_kernel
from numpyro_gp.linalg import cholesky, factorise, gaussian_log_density, jittered
from numpyro_gp.means import MeanLike, as_mean
from numpyro_gp.primitives.functions import mean_at
from numpyro_gp.primitives.gp import GaussianProcess, open_site, record
from numpyro_gp.primitives.observe import check_data

__all__ = ["CollapsedMarginal", "ExactMarginal", "gp_regression"]


class ExactMarginal(dist.Distribution):
    """``y ~ N(c, k(X, X) + noise)``, one event of N data (mathematics.md section 3.4)."""

    pytree_data_fields = ("loc", "covariance")
    has_rsample = True
    support = constraints.real_vector

    def __init__(self, loc: Array, covariance: Array, *, validate_args: bool | None = None) -> None:
        self.loc, self.covariance = loc, covariance
        super().__init__((), loc.shape, validate_args=validate_args)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        noise = jax.random.normal(key, sample_shape + self.loc.shape, self.loc.dtype)
        return jnp.broadcast_to(self.loc, noise.shape) + noise @ cholesky(self.covariance).T

    def log_prob(self, value: Array, intermediates: object = None) -> Array:  # noqa: ARG002
        """Log marginal likelihood."""
        return gaussian_log_density(value - self.loc, self.covariance)

    @property
    def mean(self) -> Array:
        return self.loc

    @property
    def variance(self) -> Array:
        variance: Array = jnp.diagonal(self.covariance)
        return variance


class CollapsedMarginal(dist.Distribution):
    """Titsias' collapsed bound as the log probability of ``y``; draws come from its low-rank plus diagonal prior.

    ``log_prob`` never exceeds the exact log marginal likelihood; with ``inducing = X`` it equals it.
    """

    pytree_data_fields = ("loc", "data")
    has_rsample = True
    support = constraints.real_vector

    def __init__(self, loc: Array, data: GaussianData, *, validate_args: bool | None = None) -> None:
        self.loc, self.data = loc, data
        super().__init__((), loc.shape, validate_args=validate_args)

    def log_prob(self, value: Array, intermediates: object = None) -> Array:  # noqa: ARG002
        """The collapsed bound (mathematics.md section 3.3, per-datum noise)."""
        return self.data.optimum((value - self.loc) / self.data.scale)[2]

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        key_v, key_e = jax.random.split(key)
        features, prior, scale = self.data
        v = jax.random.normal(key_v, sample_shape + features.shape[:1], self.loc.dtype)
        noise = jax.random.normal(key_e, sample_shape + self.loc.shape, self.loc.dtype)
        spread = jnp.sqrt(positive(1 + prior - jnp.sum(features**2, axis=0), jnp.ones((), prior.dtype)))
        loc, scale, spread = (jnp.broadcast_to(part, noise.shape) for part in (self.loc, scale, spread))
        return loc + scale * (v @ features + spread * noise)

    @property
    def mean(self) -> Array:
        return self.loc

    @property
    def variance(self) -> Array:
        return self.data.scale**2 * (self.data.prior + 1)


def gp_regression(
    name: str,
    kernel: KernelLike,
    X: ArrayLike,
    noise: ArrayLike,
    *,
    mean: MeanLike = None,
    inducing: ArrayLike | None = None,
    obs: ArrayLike | None = None,
    jitter: float | None = None,
) -> GaussianProcess:
    """Observe Gaussian data with the function integrated out, and return the process given them.

    The site ``name`` is the data: its log probability is the log marginal likelihood
    (``inducing=None``, ``O(N^3)``) or the collapsed bound (``O(N M^2)``). NUTS, SVGD and MAP then work on
    the hyper-parameters alone. The data are one event: give minibatches to `gp` and `observe` instead.

    Parameters
    ----------
    name : str
        Name of the observed site.
    kernel : Kernel or callable
    X : array (N, D)
        Inputs of the data.
    noise : array () or (N,)
        Noise *variance*.
    mean : callable, number or None
        Mean function.
    inducing : array (M, D), optional
        Inducing inputs of the collapsed bound.
    obs : array (N,), optional
        Data; None draws them from the prior.
    jitter : float, optional
        Relative jitter of ``k(Z, Z)``. The exact path has none unless it is given: the noise does its work.

    Returns
    -------
    GaussianProcess
        The conditioned process: ``f(X_new)``, ``f.joint(X_new)``, ``f.draw(site, X_new)``.
    """
    inputs = check_points("X", X)
    variance = check_noise(noise, inputs)
    mean_function = as_mean(mean)
    loc = mean_at(mean_function, inputs, None, inputs.dtype)
    if inducing is None:
        marginal, condition = _exact(as_kernel(kernel), inputs, variance, loc, jitter)
    else:
        basis = Basis.build(as_kernel(kernel), check_points("inducing", inducing, inputs.shape[1]), jitter)
        marginal, condition = _collapsed(basis, inputs, variance, loc)
    if obs is not None:
        obs = check_data(name, obs, marginal)
    site, y = open_site(name, marginal, obs=obs)
    conditioned, process = condition(y - loc)
    columns = inputs.shape[1]
    return record(GaussianProcess(site, process, conditioned, mean_function, None, columns, jitter, variance))


# A distribution of data, and the process given them (less the mean function) with the basis that it stands on.
Regression = tuple[dist.Distribution, Callable[[Array], tuple[Basis, Process]]]


def _exact(kernel: Kernel, inputs: Array, noise: Array, loc: Array, jitter: float | None) -> Regression:
    """The exact path: one Gram matrix of the data. Given them, the process is a point on a basis at the data."""
    covariance, added = jittered(kernel.matrix(inputs), 0.0 if jitter is None else jitter)
    covariance = covariance + jnp.diag(jnp.broadcast_to(noise, inputs.shape[:1]))

    def condition(residuals: Array) -> tuple[Basis, Point]:
        # L_y L_y^T = k(X, X) + noise: features are L_y^-1 k(X, X*), whitened values are L_y^-1 (y - c).
        jitter = jnp.asarray(added + noise, covariance.dtype)
        basis = Basis(kernel, inputs, *factorise(covariance), jitter, covariance)
        return basis, Point(basis.inverse @ residuals)

    return ExactMarginal(loc, covariance), condition


def _collapsed(basis: Basis, inputs: Array, noise: Array, loc: Array) -> Regression:
    """The collapsed bound; given the data, the process is the belief that attains it."""
    data = GaussianData.build(basis, inputs, noise)

    def condition(residuals: Array) -> tuple[Basis, Coupled]:
        mean, scale_tril, _ = data.optimum(residuals / data.scale)
        return basis, Coupled(mean, scale_tril)

    return CollapsedMarginal(loc, data), condition
