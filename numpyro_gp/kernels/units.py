"""Lengthscales of a kernel in the columns of its inputs: the units in which it tells near from far."""

import jax.numpy as jnp
from jaxtyping import Float

from numpyro_gp.arrays import Array
from numpyro_gp.kernels.base import Active, Kernel, Product, Scaled, Sum
from numpyro_gp.kernels.stationary import RBF, Matern12, Matern32, Matern52, RationalQuadratic
from numpyro_gp.kernels.varying import Modulated

# A column that no part reads has a lengthscale of so many of the shortest: it may hold seconds since 1970.
FAR = 1e18


def lengthscales(kernel: Kernel, columns: int) -> Float[Array, " D"] | None:
    """One lengthscale for each of ``columns``; None of a kernel that has none, in some part of it.

    Of a sum the shortest counts. Of a product the inverse squares add up, as those of a product of `RBF` kernels do.
    """
    found = _precisions(kernel, columns)
    if found is None:
        return None
    # The square of the far one is beyond single precision.
    is_read = found > 0
    return jnp.where(is_read, 1 / jnp.sqrt(jnp.where(is_read, found, 1.0)), FAR / jnp.sqrt(jnp.max(found)))


def _precisions(kernel: Kernel, columns: int) -> Array | None:
    """Inverse squares of the lengthscales, zero in columns that the kernel does not read."""
    if isinstance(kernel, (RBF, Matern12, Matern32, Matern52, RationalQuadratic)):
        return jnp.broadcast_to(kernel.lengthscale**-2, (columns,))
    if isinstance(kernel, (Scaled, Modulated)):
        return _precisions(kernel.kernel, columns)
    if isinstance(kernel, Active):
        inner = _precisions(kernel.kernel, len(kernel.dims))
        return None if inner is None else jnp.zeros(columns, inner.dtype).at[jnp.asarray(kernel.dims)].set(inner)
    if not isinstance(kernel, (Sum, Product)):
        return None
    first, second = _precisions(kernel.first, columns), _precisions(kernel.second, columns)
    if first is None or second is None:
        return None
    return jnp.maximum(first, second) if isinstance(kernel, Sum) else first + second
