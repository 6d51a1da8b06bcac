"""Zeros by which a guide sees curvature: their gradients are what it divides steps in mean coefficients by."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Float

from numpyro_gp.arrays import Array, over_axes, value_type
from numpyro_gp.beliefs.basis import Basis
from numpyro_gp.kernels.jitter import ample_jitter, jittered
from numpyro_gp.linalg import add_to_diagonal, factorise, flipped, matmul

# Power iterations for a largest eigenvalue: they find it to a tenth, where a step diverges at twice the limit.
ITERATIONS = 16


@value_type(static=("of_data", "eps"))
class Probe:
    """Zeros that change no value of a belief; the gradients of the loss in them are about its curvature in ``a``.

    ``covariance`` stands where a covariance ``Omega`` of ``a`` would: ``tr(Omega H) / 2`` in the KL, and with
    ``of_data`` also ``F^T Omega F`` in the variances, so that the gradient of the loss at ``Omega = 0`` is
    ``H / 2`` or ``(H + F Lambda F^T) / 2``. ``weight`` is added to the KL: its gradient is the factor by which
    the loss was scaled. The gradient in ``top`` is the sum over the terms of the loss of the largest eigenvalues of
    ``Q^-1 H`` and ``Q^-1 F Lambda F^T``, a limit from above for their sum (mathematics.md section 4.5).

    Attributes
    ----------
    weight : Array ()
    covariance : Array (..., M_gamma), (..., M_gamma, M_gamma)
        The diagonal of ``Omega``, or all of it: ``Q`` is ``diag(H) + eps``, or ``H`` with ``eps`` on its diagonal.
    of_data : bool
    top : Array (...,), optional
    eps : float, optional
        None is an ample jitter.
    """

    weight: Float[Array, ""]
    covariance: Array
    of_data: bool = False
    top: Array | None = None
    eps: float | None = None


class BlockRoot(NamedTuple):
    """``V = blockdiag(R_c) (I - F diag(w) F^T)``, rows in stacks of components of one size.

    Attributes
    ----------
    own : tuple of Array (C_s, M_s, M_s)
        ``R_c``, symmetric.
    shared : Array (M, r)
        ``F``, its rows in the order of the stacks.
    weights : Array (r,)
    """

    own: tuple[Array, ...]
    shared: Array
    weights: Array

    def _inner(self, rows: Float[Array, "M K"]) -> Float[Array, "M K"]:
        return rows - matmul(self.shared, self.weights[:, None] * matmul(self.shared.T, rows))

    def whitened(self, stacks: Sequence[Array]) -> Float[Array, "M K"]:
        """``V^T X`` of stacks ``(C_s, M_s, K)``."""
        white = [matmul(*pair) for pair in zip(self.own, stacks, strict=True)]
        return self._inner(jnp.concatenate([stack.reshape(-1, stack.shape[-1]) for stack in white]))

    def twice(self, stacks: Sequence[Array]) -> list[Array]:
        """``V V^T x`` of stacks ``(C_s, M_s)``, in stacks."""
        rows = self._inner(self.whitened([stack[..., None] for stack in stacks]))[:, 0]
        cuts = np.cumsum([stack.size for stack in stacks])[:-1]
        parts = [part.reshape(stack.shape) for part, stack in zip(jnp.split(rows, cuts), stacks, strict=True)]
        return [matmul(root, part[..., None])[..., 0] for root, part in zip(self.own, parts, strict=True)]


class SpareColumns(NamedTuple):
    """Zeros ``O`` that ask what the data say of columns ``E`` which a belief holds beside its own.

    The gradient of the loss in ``O`` is ``J F - E``, times the factor by which the loss was scaled.

    Attributes
    ----------
    zeros, held, divided : Array (M, e)
        ``O``, ``E`` and ``F = E (I + E^T E)^-1``.
    """

    zeros: Array
    held: Array
    divided: Array


@value_type()
class BlockProbe:
    """A `Probe` of the means of an additive site, component by component: ``Q_c`` is near ``I + A_c Lambda A_c^T``.

    Attributes
    ----------
    weight, top : Array ()
    blocks : tuple of Array (C_s, M_s, M_s)
        Zeros where covariances of the means would stand, in stacks of components of one size.
    root : BlockRoot
        ``V`` with ``V V^T`` what a step of the means is multiplied by.
    spare : SpareColumns, optional
    """

    weight: Float[Array, ""]
    top: Float[Array, ""]
    blocks: tuple[Array, ...]
    root: BlockRoot
    spare: SpareColumns | None = None

    def seen(
        self, features: Float[Array, "M N"], stacks: Sequence[Array], variance: Float[Array, " N"]
    ) -> Float[Array, " N"]:
        """Variances as they are, given the features of the components, also in stacks ``(C_s, M_s, N)``."""
        apart = [lax.stop_gradient(stack) for stack in stacks]
        for rows, block in zip(apart, self.blocks, strict=True):
            variance = variance + jnp.sum(rows * matmul(block, rows), axis=(0, 1))
        if self.spare is not None:  # 2 a_n^T O F^T a_n
            fixed, (zeros, _, divided) = lax.stop_gradient(features), self.spare
            variance = variance + 2 * jnp.sum(matmul(zeros.T, fixed) * matmul(divided.T, fixed), axis=0)
        return watched(self.top, variance, lax.stop_gradient(self.root.whitened(apart)), 1)

    def kl(self) -> Float[Array, ""]:
        """Zero, with the gradients of the KL: ``I / 2`` in the blocks."""
        traces = [0.5 * jnp.sum(jnp.trace(block, axis1=-2, axis2=-1)) for block in self.blocks]
        if self.spare is not None:
            traces.append(jnp.sum(self.spare.zeros * (self.spare.divided - self.spare.held)))
        return self.weight + self.top + sum(traces[1:], traces[0])


def per_weight(values: Array, weight: Array) -> Array:
    """``values / weight``, the weight over the first axes; zero for hidden members, whose gradients all are zero."""
    weight = weight.reshape(weight.shape + (1,) * (values.ndim - weight.ndim))
    return jnp.where(weight == 0, 0, values / jnp.where(weight == 0, 1, weight))


def whiten(
    site: Basis, points: Float[Array, "G D"], values: Float[Array, "G N"], eps: float | None, diagonal: bool
) -> Float[Array, "G N"]:
    """``V^T B`` with ``V V^T = Q^-1``, as a constant."""
    if diagonal:
        assert eps is not None
        return lax.stop_gradient(jnp.sqrt(gamma_scale(site, points, eps))[:, None] * values)
    return lax.stop_gradient(matmul(factorise(steadied(prior_curvature(site, points), eps))[1], values))


def residual_variance(basis: Basis, points: Float[Array, "G D"]) -> Float[Array, " G"]:
    """``diag(H)_i = k_ii - |R_i|^2``, at least zero."""
    return jnp.maximum(basis.diagonal(points) - jnp.sum(basis.features(points) ** 2, axis=0), 0)


def gamma_scale(basis: Basis, points: Float[Array, "G D"], eps: float) -> Float[Array, " G"]:
    """``1 / (diag(H) + eps)`` (mathematics.md section 4.5)."""
    return 1 / (residual_variance(basis, points) + eps)


def prior_curvature(site: Basis, points: Float[Array, "G D"]) -> Float[Array, "G G"]:
    """``H = K_gamma,gamma - R^T R``, as a constant."""
    cross = site.features(points)
    return lax.stop_gradient(site.kernel.matrix(points) - matmul(flipped(cross), cross))


def steadied(matrix: Float[Array, "*batch G G"], eps: float | None) -> Float[Array, "*batch G G"]:
    """The matrix with ``eps`` on its diagonal, or with an ample jitter."""
    if eps is None:
        return jittered(matrix, ample_jitter(matrix.dtype))[0]
    return add_to_diagonal(matrix, jnp.full(matrix.shape[:-1], eps, matrix.dtype))


def largest_eigenvalue(times: Callable[[Array], Array], size: int, dtype: jnp.dtype) -> Float[Array, ""]:
    """Size of the largest eigenvalue of a symmetric operator, by power iterations."""
    start = jax.random.normal(jax.random.key(0), (size,), dtype)

    def once(x: Array, _: None) -> tuple[Array, Array]:
        y = times(x)
        norm = jnp.sqrt(jnp.sum(y**2))
        return y / jnp.maximum(norm, jnp.finfo(dtype).tiny), norm

    return lax.scan(once, start / jnp.sqrt(jnp.sum(start**2)), None, ITERATIONS)[1][-1]


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def watched(top: Array, spread: Array, features: Float[Array, "G N"], axes: int) -> Array:  # noqa: ARG001
    """Variances, or with ``axes=2`` covariances, whose curvature tells ``top`` about its largest eigenvalue.

    ``features`` are ``V^T F``; the gradient of the loss in the variances is ``Lambda / 2``.
    """
    return spread


def _watched_backward(axes: int, kept: tuple[Array, Array], slope: Array) -> tuple[Array, Array, Array]:
    top, features = kept

    def largest(half: Array) -> Array:
        def times(x: Array) -> Array:
            seen = matmul(x, features)
            return 2 * matmul(features, half * seen if axes == 1 else matmul(half, seen))

        return largest_eigenvalue(times, features.shape[0], features.dtype)

    largest_of_each = over_axes(largest, slope.ndim - axes)(slope)
    return jnp.broadcast_to(largest_of_each, top.shape), slope, jnp.zeros_like(features)


watched.defvjp(lambda *given: (watched(*given), (given[0], given[2])), _watched_backward)
