"""Optimal beliefs for Gaussian data with fixed hyper-parameters, and the collapsed bounds they attain.

Both cost one factorisation and no iteration: to start training from, or to measure it against.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.beliefs.base import Basis
from numpyro_gp.beliefs.coupled import Coupled
from numpyro_gp.beliefs.decoupled import Orthogonal
from numpyro_gp.checks import check_nonnegative, check_points, check_positive, check_shape, fail
from numpyro_gp.kernels import Kernel, as_kernel
from numpyro_gp.linalg import default_jitter, factorise, half_log_det, inverse_factor, solve_lower

__all__ = ["coupled_optimum", "orthogonal_optimum"]


class Problem(NamedTuple):
    """Gaussian data divided by their noise scale: residuals, features of the inducing points, prior variances."""

    basis: Basis
    scale: Array
    targets: Array
    features: Array
    prior: Array

    @property
    def unexplained(self) -> Array:
        """``sum_n (k_nn - |A_n|^2) / noise_n``."""
        return jnp.sum(self.prior) - jnp.sum(self.features**2)

    def bound(self, mean_features: Array, ridge: Array) -> tuple[Array, Array]:
        """The collapsed bound with a mean on ``mean_features`` (those of ``basis`` first), and the optimal weights.

        See mathematics.md section 4.7; with ``mean_features = features`` it is Titsias' bound. ``ridge`` is
        ``chol(I + A_alpha A_alpha^T)``, whose leading block is ``chol(I + A_beta A_beta^T)``.
        """
        size, count = self.basis.size, self.targets.shape[0]
        half = solve_lower(ridge, mean_features @ self.targets)
        quadratic = self.targets @ self.targets - half @ half
        logs = half_log_det(ridge[:size, :size]) + jnp.sum(jnp.log(self.scale)) + 0.5 * count * math.log(2 * math.pi)
        return -logs - 0.5 * (quadratic + self.unexplained), solve_lower(ridge, half, transpose=True)


def problem(
    kernel: Kernel, inducing: ArrayLike, name: str, X: ArrayLike, y: ArrayLike, noise: ArrayLike, jitter: float | None
) -> tuple[Problem, Array]:
    """Check the arguments and scale the data by the noise."""
    inputs = check_points("X", X)
    points = check_points(name, inducing, inputs.shape[1])
    targets = check_shape("y", y, inputs.shape[:1], "one value for each row of X", "Subtract the mean function first.")
    variance = check_positive("noise", noise)
    if variance.shape not in ((), inputs.shape[:1]):
        fail("noise", f"a number or of shape {inputs.shape[:1]}", f"shape {variance.shape}", "It is a variance.")
    if jitter is not None:
        check_nonnegative("jitter", jitter)
    basis = Basis.build(as_kernel(kernel), points, jitter)
    scale = jnp.broadcast_to(jnp.sqrt(variance), targets.shape).astype(basis.dtype)
    features = basis.features(inputs) / scale[None]
    return Problem(basis, scale, targets / scale, features, basis.diagonal(inputs) / scale**2), inputs


def coupled_optimum(
    kernel: Kernel, Z: ArrayLike, X: ArrayLike, y: ArrayLike, noise: ArrayLike, *, jitter: float | None = None
) -> tuple[Coupled, Array]:
    """Titsias' optimal belief for Gaussian data, and the collapsed bound (mathematics.md section 3.3).

    Parameters
    ----------
    kernel : Kernel or callable
    Z : array (M, D)
        Inducing inputs.
    X, y : arrays (N, D), (N,)
        Data; subtract the mean function from ``y``.
    noise : array () or (N,)
        Noise *variance*.
    jitter : float, optional
        Relative jitter of ``k(Z, Z)``; use that of the site.

    Returns
    -------
    belief : Coupled
    bound : Array ()
        The largest value of the objective over all coupled beliefs; at most the log evidence.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from numpyro_gp.kernels import RBF
    >>> X = jnp.linspace(0.0, 1.0, 8)[:, None]
    >>> belief, bound = coupled_optimum(RBF(1.0, 0.5), X[::2], X, jnp.sin(3 * X[:, 0]), 0.1)
    >>> belief.shape, bound.shape
    ((4,), ())
    """
    data, _ = problem(kernel, Z, "Z", X, y, noise, jitter)
    precision = jnp.eye(data.basis.size, dtype=data.basis.dtype) + data.features @ data.features.T
    bound, mean = data.bound(data.features, factorise(precision)[0])
    return Coupled(mean, inverse_factor(precision)), bound


def orthogonal_optimum(
    kernel: Kernel,
    Z_gamma: ArrayLike,
    Z_beta: ArrayLike,
    X: ArrayLike,
    y: ArrayLike,
    noise: ArrayLike,
    *,
    jitter: float | None = None,
) -> tuple[Orthogonal, Array]:
    """The optimal orthogonally decoupled belief for Gaussian data, and its bound (mathematics.md section 4.7).

    The mean is ridge regression on the features of both bases; the covariance is that of `coupled_optimum`
    on ``Z_beta``. ``O(N (M + M_gamma)^2 + (M + M_gamma)^3)``: for moderate ``M_gamma``.

    Parameters
    ----------
    kernel : Kernel or callable
    Z_gamma : array (M_gamma, D)
        Points of the mean alone.
    Z_beta : array (M, D)
        The site's inducing inputs.
    X, y, noise, jitter
        As in `coupled_optimum`. The jitter also stabilises ``H``, relative to the mean prior variance at
        ``Z_gamma``, when a point of ``Z_gamma`` repeats another or lies on ``Z_beta``.

    Returns
    -------
    belief : Orthogonal
    bound : Array ()
        The objective at ``belief``, which without jitter is the largest one:
        ``coupled_optimum(Z_beta) <= bound <= coupled_optimum(Z_beta and Z_gamma) <= log evidence``.
    """
    data, inputs = problem(kernel, Z_beta, "Z_beta", X, y, noise, jitter)
    basis, columns = data.basis, inputs.shape[1]
    gamma = check_points("Z_gamma", Z_gamma, columns)
    cross = basis.features(gamma)
    prior = basis.matrix(gamma)
    relative = default_jitter(basis.dtype) if jitter is None else jitter
    amount = relative * jnp.mean(jnp.diagonal(prior))
    residual = prior - cross.T @ cross + amount * jnp.eye(gamma.shape[0], dtype=basis.dtype)
    _, inverse = factorise(residual)
    scaled = basis.kernel.matrix(gamma, inputs) / data.scale[None]
    features = jnp.concatenate([data.features, inverse @ (scaled - cross.T @ data.features)])
    precision = jnp.eye(features.shape[0], dtype=basis.dtype) + features @ features.T
    bound, weights = data.bound(features, factorise(precision)[0])
    a = inverse.T @ weights[basis.size :]
    factor = inverse_factor(precision[: basis.size, : basis.size])
    # The jitter was charged |a|^2 / 2 in the ridge but is no part of the KL divergence.
    return Orthogonal(gamma, a, weights[: basis.size], factor), bound + 0.5 * amount * (a @ a)
