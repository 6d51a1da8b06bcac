"""``gp_regression``: Gaussian data with the function integrated out, exactly or by the collapsed bound."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import constraints

from numpyro_gp.arrays import Array, ArrayLike, value_type
from numpyro_gp.beliefs.base import Basis, Joint, Marginals, positive
from numpyro_gp.checks import check_points, check_positive, fail
from numpyro_gp.kernels import Kernel, as_kernel
from numpyro_gp.kernels.base import nonnegative_scalar
from numpyro_gp.linalg import cholesky, factorise, gaussian_log_density, half_log_det, jittered, solve_lower
from numpyro_gp.means import as_mean
from numpyro_gp.primitives.gp import GaussianProcess, check_name, mean_at, open_site, record
from numpyro_gp.primitives.observe import check_data

__all__ = ["CollapsedMarginal", "Collapsed", "Exact", "ExactMarginal", "gp_regression"]


@value_type()
class Exact:
    """Process given Gaussian data: ``L_y = chol(K + noise)``, ``z = L_y^-1 (y - c)`` (mathematics.md section 3.4)."""

    kernel: Kernel
    inputs: Array
    factor: Array
    whitened: Array
    noise: Array

    def _features(self, X: Array) -> Array:
        return solve_lower(self.factor, self.kernel.matrix(self.inputs, X))

    def marginals(self, basis: object, X: Array) -> Marginals:  # noqa: ARG002
        """``B^T z`` and ``k_nn - |B_n|^2`` with ``B = L_y^-1 k(X_data, X)``."""
        features, prior = self._features(X), self.kernel.diagonal(X)
        return Marginals(self.whitened @ features, positive(prior - jnp.sum(features**2, axis=0), prior))

    def joint(self, basis: object, X: Array) -> Joint:  # noqa: ARG002
        """``B^T z`` and ``k(X, X) - B^T B``."""
        features = self._features(X)
        return Joint(self.whitened @ features, self.kernel.matrix(X) - features.T @ features)


@value_type()
class Collapsed:
    """Process at Titsias' optimal ``q(u)``: ``L_B = chol(I + A A^T / noise)``, ``b`` (mathematics.md section 3.3)."""

    factor: Array
    projected: Array
    noise: Array

    def marginals(self, basis: Basis, X: Array) -> Marginals:
        """``A^T L_B^-T b`` and ``k_nn - |A_n|^2 + |L_B^-1 A_n|^2``."""
        features, prior = basis.features(X), basis.diagonal(X)
        rooted = solve_lower(self.factor, features)
        variance = prior - jnp.sum(features**2, axis=0) + jnp.sum(rooted**2, axis=0)
        return Marginals(self.projected @ rooted, positive(variance, prior))

    def joint(self, basis: Basis, X: Array) -> Joint:
        """The same with full covariance."""
        features = basis.features(X)
        rooted = solve_lower(self.factor, features)
        return Joint(self.projected @ rooted, basis.matrix(X) - features.T @ features + rooted.T @ rooted)


class ExactMarginal(dist.Distribution):
    """``y ~ N(c, k(X, X) + noise)``, one event of N data."""

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
        return jnp.diagonal(self.covariance)


class CollapsedMarginal(dist.Distribution):
    """Titsias' collapsed bound as the log probability of ``y``; draws come from its low-rank plus diagonal prior.

    ``log_prob`` never exceeds the exact log marginal likelihood; with ``inducing = X`` it equals it.
    """

    pytree_data_fields = ("loc", "features", "prior", "noise")
    has_rsample = True
    support = constraints.real_vector

    def __init__(
        self, loc: Array, features: Array, prior: Array, noise: Array, *, validate_args: bool | None = None
    ) -> None:
        self.loc, self.features, self.prior, self.noise = loc, features, prior, noise
        super().__init__((), loc.shape, validate_args=validate_args)

    def solve(self, value: Array) -> tuple[Array, Array]:
        """``L_B`` and ``b = L_B^-1 A (y - c) / noise``."""
        scaled = self.features / jnp.sqrt(self.noise)[None]
        inner = jnp.eye(scaled.shape[0], dtype=scaled.dtype) + scaled @ scaled.T
        factor, inverse = factorise(inner)
        return factor, inverse @ (scaled @ ((value - self.loc) / jnp.sqrt(self.noise)))

    def log_prob(self, value: Array, intermediates: object = None) -> Array:  # noqa: ARG002
        """The collapsed bound (mathematics.md section 3.3, per-datum noise)."""
        factor, projected = self.solve(value)
        residual = (value - self.loc) / jnp.sqrt(self.noise)
        unexplained = jnp.sum((self.prior - jnp.sum(self.features**2, axis=0)) / self.noise)
        log_noise = jnp.sum(jnp.log(self.noise)) + residual.shape[0] * math.log(2 * math.pi)
        quadratic = residual @ residual - projected @ projected
        return -0.5 * (log_noise + quadratic + unexplained) - half_log_det(factor)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        key_v, key_e = jax.random.split(key)
        v = jax.random.normal(key_v, sample_shape + self.features.shape[:1], self.loc.dtype)
        noise = jax.random.normal(key_e, sample_shape + self.loc.shape, self.loc.dtype)
        scale = jnp.sqrt(positive(self.variance - jnp.sum(self.features**2, axis=0), self.noise))
        return (
            v @ self.features + jnp.broadcast_to(scale, noise.shape) * noise + jnp.broadcast_to(self.loc, noise.shape)
        )

    @property
    def mean(self) -> Array:
        return self.loc

    @property
    def variance(self) -> Array:
        return self.prior + self.noise


def gp_regression(
    name: str,
    kernel: Kernel,
    X: ArrayLike,
    noise: ArrayLike,
    *,
    mean: object = None,
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
    noise = check_positive("noise", noise)
    if noise.shape not in ((), (inputs.shape[0],)):
        fail("noise", f"a number or of shape ({inputs.shape[0]},)", f"shape {noise.shape}", "It is a variance.")
    if jitter is not None:
        nonnegative_scalar("jitter", jitter)
    kernel, mean_function = as_kernel(kernel), as_mean(mean)
    loc = mean_at(mean_function, inputs, None, inputs.dtype)
    if inducing is None:
        return _exact(check_name("name", name), kernel, inputs, noise, loc, mean_function, obs, jitter)
    points = check_points("inducing", inducing, inputs.shape[1])
    basis = Basis.build(kernel, points, jitter)
    variances = jnp.broadcast_to(noise, inputs.shape[:1])
    marginal = CollapsedMarginal(loc, basis.features(inputs), basis.diagonal(inputs), variances)
    if obs is not None:
        obs = check_data(name, obs, marginal)
    site, y = open_site(name, marginal, obs=obs)
    process = Collapsed(*marginal.solve(y), noise)
    return record(GaussianProcess(site, process, basis, mean_function, None, points.shape[1], jitter))


def _exact(
    name: str,
    kernel: Kernel,
    inputs: Array,
    noise: Array,
    loc: Array,
    mean: object,
    obs: ArrayLike | None,
    jitter: float | None,
) -> GaussianProcess:
    """The exact path: one Gram matrix of the data."""
    covariance, _ = jittered(kernel.matrix(inputs), 0.0 if jitter is None else jitter)
    covariance = covariance + jnp.diag(jnp.broadcast_to(noise, inputs.shape[:1]))
    marginal = ExactMarginal(loc, covariance)
    if obs is not None:
        obs = check_data(name, obs, marginal)
    site, y = open_site(name, marginal, obs=obs)
    factor = cholesky(covariance)
    process = Exact(kernel, inputs, factor, solve_lower(factor, y - loc), noise)
    basis = _PriorOnly(kernel, loc.dtype)
    return record(GaussianProcess(site, process, basis, mean, None, inputs.shape[1], jitter))


@value_type(static=("dtype",))
class _PriorOnly:
    """The part of a basis that an exact process needs: prior variances, for scale."""

    kernel: Kernel
    dtype: Any

    def diagonal(self, X: Array) -> Array:
        return self.kernel.diagonal(X)
