"""Optimal beliefs for Gaussian data with fixed hyper-parameters, and the collapsed bounds they attain.

Both cost one factorisation and no iteration: to start training from, or to measure it against.
"""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.beliefs.additive_basis import AdditiveBasis
from numpyro_gp.beliefs.basis import Basis
from numpyro_gp.beliefs.coupled import Coupled
from numpyro_gp.beliefs.decoupled import Orthogonal
from numpyro_gp.beliefs.gaussian_data import GaussianData, ridge_factor, ridge_square
from numpyro_gp.beliefs.structured import Structured
from numpyro_gp.checks import (
    are_integers,
    check_choice,
    check_factorised,
    check_points,
    check_positive,
    check_shape,
    check_type,
    fail,
    when_known,
)
from numpyro_gp.kernels import Kernel, as_kernel
from numpyro_gp.kernels.base import KernelLike
from numpyro_gp.kernels.jitter import least_factor, unit_of
from numpyro_gp.kernels.members import KernelBatches
from numpyro_gp.linalg import add_to_diagonal, factorise, half_log_det, matmul


def check_gaussian(X: ArrayLike, y: ArrayLike, noise: ArrayLike) -> tuple[Array, Array, Array]:
    """Return inputs, targets, and noise variances, one or one for each row."""
    inputs = check_points("X", X)
    cure = "Pass y less the mean function, without a column axis."
    targets = check_shape("y", y, inputs.shape[:1], "one value for each row of X", cure)
    variance = check_positive("noise", noise)
    if variance.shape not in ((), targets.shape):
        cure = "Pass one noise variance for all rows, or one for each row."
        fail("noise", f"a number or of shape {targets.shape}", f"shape {variance.shape}", cure)
    return inputs, targets, variance


def coupled_optimum(
    kernel: Kernel, Z: ArrayLike, X: ArrayLike, y: ArrayLike, noise: ArrayLike, *, jitter: float | None = None
) -> tuple[Coupled, Array]:
    """The best coupled belief for Gaussian data, and the collapsed bound: to start from, or to measure against.

    Both are those of Titsias (2009), in mathematics.md section 3.3.

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
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> from numpyro_gp.kernels import RBF
    >>> X = jnp.linspace(0.0, 1.0, 8)[:, None]
    >>> belief, bound = ngp.beliefs.coupled_optimum(RBF(1.0, 0.5), X[::2], X, jnp.sin(3 * X[:, 0]), 0.1)
    >>> belief.shape, bound.shape
    ((4,), ())
    """
    inputs, targets, variance = check_gaussian(X, y, noise)
    basis = Basis.build(as_kernel(kernel), check_points("Z", Z, inputs.shape[1]), jitter)
    data = GaussianData.build(basis, inputs, variance)
    mean, scale_tril, bound = data.optimum(targets / data.scale)
    when_known(partial(check_factorised, ""), mean, scale_tril)
    return Coupled(mean, scale_tril), bound


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
    """The best orthogonally decoupled belief for Gaussian data and its bound, to start from or to measure against.

    The mean is ridge regression on the features of both bases (mathematics.md section 4.7); the covariance is that of
    `coupled_optimum` on ``Z_beta``. ``O(N (M + M_gamma)^2 + (M + M_gamma)^3)``: for moderate ``M_gamma``.

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

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> X = jnp.linspace(0.0, 1.0, 8)[:, None]
    >>> belief, bound = ngp.beliefs.orthogonal_optimum(
    ...     ngp.kernels.RBF(1.0, 0.5), X[1::4], X[::4], X, jnp.sin(3 * X[:, 0]), 0.1
    ... )
    >>> type(belief).__name__, bound.shape
    ('Orthogonal', ())
    """
    inputs, targets, variance = check_gaussian(X, y, noise)
    beta, gamma = (check_points(*named, inputs.shape[1]) for named in (("Z_beta", Z_beta), ("Z_gamma", Z_gamma)))
    basis = Basis.build(as_kernel(kernel), beta, jitter)
    data = GaussianData.build(basis, inputs, variance)
    cross = basis.features(gamma)
    prior = basis.matrix(gamma)
    rest, unit = prior - matmul(cross.T, cross), unit_of(prior, own=False)
    relative = least_factor(rest, unit)[0] if jitter is None else jnp.asarray(jitter)
    amount = (relative * unit)[0]
    _, inverse = factorise(add_to_diagonal(rest, amount[None]))
    scaled = basis.kernel.matrix(gamma, inputs) / data.scale[None]
    features = jnp.concatenate([data.features, matmul(inverse, scaled - matmul(cross.T, data.features))])
    residuals = targets / data.scale
    weights = data._replace(features=features).weights(ridge_factor(features), residuals)
    factor = ridge_factor(data.features)
    bound = data.bound(ridge_square(features, residuals, weights), -half_log_det(factor))
    a = matmul(inverse.T, weights[basis.size :])
    when_known(partial(check_factorised, " and points of the mean"), a, weights, factor)
    # The jitter was charged |a|^2 / 2 in the ridge but is no part of the KL divergence.
    return Orthogonal(gamma, a, weights[: basis.size], factor), bound + 0.5 * amount * matmul(a, a)


class AdditiveOptimum(NamedTuple):
    """What `additive_optimum` found: the best belief and its bound on the log marginal likelihood.

    Attributes
    ----------
    belief : Structured or Coupled
    bound : Array ()

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> X = jnp.linspace(0.0, 1.0, 4)[:, None]
    >>> found = ngp.beliefs.additive_optimum({"a": ngp.kernels.RBF(1.0, 0.5)}, {"a": X}, X, X[:, 0], 0.1)
    >>> found.bound.shape
    ()
    """

    belief: Structured | Coupled
    bound: Float[Array, ""]


def check_components(
    kernels: Mapping[str, KernelLike],
    inducing: Mapping[str, ArrayLike],
    columns: int | None = None,
    leading: bool = False,
) -> tuple[Mapping[str, Kernel], dict[str, Array]]:
    """Kernels and inducing inputs by component, in the order of ``kernels``; refuse other keys and columns.

    ``leading``: whether inducing inputs may have axes of plates on their left.
    """
    for argument, value in (("kernels", kernels), ("inducing", inducing)):
        check_type(argument, value, Mapping, "a dictionary by component name", 'Pass {"age": ...}.')
    if not kernels:
        fail("kernels", "a dictionary with at least one component", "an empty one", 'Pass {"age": RBF(1.0, 1.0)}.')
    if set(kernels) != set(inducing):
        different = sorted(set(map(str, kernels)) ^ set(map(str, inducing)))
        cure = f"Give both the same names: {different} are in one alone."
        fail("inducing", f"about the components of kernels, {list(kernels)}", f"{list(inducing)}", cure)
    points: dict[str, Array] = {}
    converted: dict[int, Array] = {}  # one array for one object, so that shared inputs stay recognisable
    for name in kernels:
        array = inducing[name]
        if id(array) not in converted:
            converted[id(array)] = check_points(f"inducing[{name!r}]", array, columns, leading)
        points[name] = converted[id(array)]
        columns = points[name].shape[-1]
    if isinstance(kernels, KernelBatches):
        return kernels, points
    values = {name: as_kernel(kernel) for name, kernel in kernels.items()}
    return {name: k.of_integers() if are_integers(inducing[name]) else k for name, k in values.items()}, points


def additive_optimum(
    kernels: Mapping[str, KernelLike],
    inducing: Mapping[str, ArrayLike],
    X: ArrayLike,
    y: ArrayLike,
    noise: ArrayLike,
    *,
    form: str = "structured",
    jitter: float | None = None,
) -> AdditiveOptimum:
    """The exact answer for an additive model with Gaussian noise, to start from or to measure against.

    It is the belief that maximises the bound, and that bound: ``W = A / sigma`` and
    ``m = (sigma^2 I + A A^T)^-1 A y``; the bound is
    ``log N(y; 0, A^T A + sigma^2 I) - sum_n (k_n - |A_n|^2) / (2 sigma^2)``.

    Parameters
    ----------
    kernels, inducing : dict
        As for `additive_gp`.
    X : array (N, D)
    y : array (N,)
        Data, less the mean function.
    noise : array () or (N,)
        Noise *variance*.
    form : "structured" or "full"
        `Structured` of rank N, ``O(N M min(N, M))``, or `Coupled`, ``O(N M^2 + M^3)``. Both are the same posterior.
    jitter : float, optional

    Returns
    -------
    AdditiveOptimum
        ``(belief, bound)``.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> X = jnp.linspace(0.0, 1.0, 6)[:, None] * jnp.ones((1, 2))
    >>> kernels = {"a": ngp.kernels.RBF(1.0, 0.5).on(0), "b": ngp.kernels.RBF(1.0, 0.5).on(1)}
    >>> belief, bound = ngp.beliefs.additive_optimum(kernels, {"a": X[::2], "b": X[::2]}, X, X.sum(1), 0.1, form="full")
    >>> belief.shape, bound.shape
    ((6,), ())
    """
    check_choice("form", form, ("structured", "full"))
    inputs, targets, variance = check_gaussian(X, y, noise)
    basis = AdditiveBasis.build(*check_components(kernels, inducing, inputs.shape[1]), jitter)
    data = GaussianData.build(basis, inputs, variance)
    residuals = targets / data.scale
    if form == "full":
        mean, scale_tril, bound = data.optimum(residuals)
        when_known(partial(check_factorised, ""), mean, scale_tril)
        return AdditiveOptimum(Coupled(mean, scale_tril), bound)
    # W = A in units of the noise: all algebra is that of rows or of inducing points, whichever are fewer.
    if data.features.shape[0] <= residuals.shape[0]:
        mean, _, bound = data.optimum(residuals)
    else:
        root = ridge_factor(data.features.T)
        half = matmul(residuals, root)
        mean, bound = matmul(data.features, matmul(root, half)), data.bound(matmul(half, half), -half_log_det(root))
    when_known(partial(check_factorised, ""), data.features, mean)
    return AdditiveOptimum(Structured(mean, data.features), bound)
