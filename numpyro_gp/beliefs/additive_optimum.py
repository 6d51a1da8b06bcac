"""The optimal belief of an additive site for Gaussian data, in closed form (mathematics.md section 6.2)."""

from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.beliefs.additive import Structured
from numpyro_gp.beliefs.additive_basis import AdditiveBasis
from numpyro_gp.beliefs.coupled import Coupled
from numpyro_gp.beliefs.optimum import GaussianData, check_gaussian
from numpyro_gp.checks import check_choice, check_points, fail
from numpyro_gp.kernels import Kernel, as_kernel
from numpyro_gp.kernels.base import KernelLike
from numpyro_gp.linalg import factorise, half_log_det, matmul


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
) -> tuple[dict[str, Kernel], dict[str, Array]]:
    """Kernels and inducing inputs by component, in the order of ``kernels``; refuse other keys and columns.

    ``leading``: whether inducing inputs may have axes of plates on their left.
    """
    for argument, value in (("kernels", kernels), ("inducing", inducing)):
        if not isinstance(value, Mapping):
            got = f"a {type(value).__name__}"
            fail(argument, "a dictionary by component name", got, 'Pass {"age": ...}.', TypeError)
    if not kernels:
        fail("kernels", "a dictionary with at least one component", "an empty one", 'Pass {"age": RBF(1.0, 1.0)}.')
    if set(kernels) != set(inducing):
        different = sorted(set(map(str, kernels)) ^ set(map(str, inducing)))
        fail(
            "inducing",
            f"about the components of kernels, {list(kernels)}",
            f"{list(inducing)}",
            f"Give both the same names: {different} are in one alone.",
        )
    points: dict[str, Array] = {}
    converted: dict[int, Array] = {}  # one array for one object, so that shared inputs stay recognisable
    for name in kernels:
        given = inducing[name]
        if id(given) not in converted:
            converted[id(given)] = check_points(f"inducing[{name!r}]", given, columns, leading)
        points[name] = converted[id(given)]
        columns = points[name].shape[-1]
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
        `Structured` of rank N, ``O(N^3)``, or `Coupled`, ``O(N M^2 + M^3)``. Both are the same posterior.
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
        return AdditiveOptimum(Coupled(mean, scale_tril), bound)
    # W = A in units of the noise: all algebra is N x N.
    factor, inverse = factorise(jnp.eye(residuals.shape[0], dtype=basis.dtype) + matmul(data.features.T, data.features))
    half = matmul(inverse, residuals)
    belief = Structured(matmul(data.features, matmul(inverse.T, half)), data.features)
    return AdditiveOptimum(belief, data.bound(matmul(half, half), half_log_det(factor)))
