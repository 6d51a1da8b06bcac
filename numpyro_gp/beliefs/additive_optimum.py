"""The optimal belief of an additive site for Gaussian data, in closed form (mathematics.md section 6.2)."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.beliefs.additive import Structured
from numpyro_gp.beliefs.additive_basis import AdditiveBasis
from numpyro_gp.beliefs.coupled import Coupled
from numpyro_gp.checks import check_choice, check_floating, check_points, check_positive, fail
from numpyro_gp.kernels import Kernel, as_kernel
from numpyro_gp.kernels.base import KernelLike
from numpyro_gp.linalg import factorise, half_log_det

__all__ = ["AdditiveOptimum", "additive_optimum", "check_components"]


class AdditiveOptimum(NamedTuple):
    """The best belief and its bound on the log marginal likelihood."""

    belief: Structured | Coupled
    bound: Float[Array, ""]


def check_components(
    kernels: Mapping[str, KernelLike], inducing: Mapping[str, ArrayLike], columns: int | None = None
) -> tuple[dict[str, Kernel], dict[str, Array]]:
    """Kernels and inducing inputs by component, in the order of ``kernels``; refuse other keys and columns."""
    for argument, value in (("kernels", kernels), ("inducing", inducing)):
        if not isinstance(value, Mapping):
            got = f"a {type(value).__name__}"
            fail(argument, "a dictionary by component name", got, 'E.g. {"age": ...}.', TypeError)
    if not kernels:
        fail(
            "kernels", "a dictionary with at least one component", "an empty one", 'E.g. {"age": RBF(1.0, 1.0).on(0)}.'
        )
    if set(kernels) != set(inducing):
        different = sorted(set(map(str, kernels)) ^ set(map(str, inducing)))
        fail("inducing", f"about the components of kernels, {list(kernels)}", f"{list(inducing)}", f"See {different}.")
    points: dict[str, Array] = {}
    converted: dict[int, Array] = {}  # one array for one object, so that shared inputs stay recognisable
    for name in kernels:
        given = inducing[name]
        if id(given) not in converted:
            converted[id(given)] = check_points(f"inducing[{name!r}]", given, columns)
        points[name] = converted[id(given)]
        columns = points[name].shape[1]
    return {name: as_kernel(kernel) for name, kernel in kernels.items()}, points


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
    """The belief that maximises the bound of an additive model with Gaussian noise, and that bound.

    ``W = A / sigma`` and ``m = (sigma^2 I + A A^T)^-1 A y``; the bound is
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
        `Structured` of rank N, ``O(N^3)``, or `Coupled`, ``O(N M^2 + M^3)``. Both are the same posterior.
    jitter : float, optional

    Returns
    -------
    AdditiveOptimum
        ``(belief, bound)``.
    """
    check_choice("form", form, ("structured", "full"))
    inputs = check_points("X", X)
    data, noise = check_floating("y", y), check_positive("noise", noise)
    for argument, value, shapes in (("y", data, (inputs.shape[:1],)), ("noise", noise, ((), inputs.shape[:1]))):
        if value.shape not in shapes:
            fail(
                argument, f"of shape {inputs.shape[:1]}, one value for each row of X", f"shape {value.shape}", "Check."
            )
    basis = AdditiveBasis.build(*check_components(kernels, inducing, inputs.shape[1]), jitter)
    scale = jnp.sqrt(jnp.broadcast_to(noise, data.shape))
    features = basis.features(inputs) / scale[None]
    unexplained = jnp.sum(basis.diagonal(inputs) / scale**2) - jnp.sum(features**2)
    solve = _structured if form == "structured" else _full
    belief, log_density = solve(features, data / scale)
    constant = jnp.sum(jnp.log(scale)) + 0.5 * data.shape[0] * math.log(2 * math.pi)
    return AdditiveOptimum(belief, log_density - constant - 0.5 * unexplained)


def _structured(features: Float[Array, "M N"], residual: Float[Array, " N"]) -> tuple[Structured, Float[Array, ""]]:
    """``W = A`` in units of the noise: all algebra is ``N x N``."""
    factor, inverse = factorise(jnp.eye(residual.shape[0], dtype=features.dtype) + features.T @ features)
    half = inverse @ residual
    return Structured(features @ (inverse.T @ half), features), -half_log_det(factor) - 0.5 * half @ half


def _full(features: Float[Array, "M N"], residual: Float[Array, " N"]) -> tuple[Coupled, Float[Array, ""]]:
    """``C C^T = (I + A A^T)^-1`` by a Cholesky factor of the index-reversed precision: all algebra is ``M x M``."""
    precision = jnp.eye(features.shape[0], dtype=features.dtype) + features @ features.T
    factor, inverse = factorise(precision[::-1, ::-1])
    root = inverse.T[::-1, ::-1]
    half = root.T @ (features @ residual)
    return Coupled(root @ half, root), -half_log_det(factor) - 0.5 * (residual @ residual - half @ half)
