"""What inducing points hold of rows with neighbours (mathematics.md section 16.5).

``f = A^T w + g``: ``w (M,)``, standard normal before the data, is global; the rest ``g`` of covariance ``k - A^T A``
is given neighbours. With ``x`` and ``z`` of a block of the rest, all that a row says of ``w`` is ``b = A_B x``:
``log p(y_i | y_N(i), w) = log x_last - (z - b . w)^2 / 2 - log(2 pi) / 2``.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Float

from numpyro_gp.arrays import Array, value_type
from numpyro_gp.beliefs.base import Point
from numpyro_gp.beliefs.basis import Basis
from numpyro_gp.beliefs.coupled import Coupled
from numpyro_gp.beliefs.neighbours.blocks import HALF_LOG_2PI, NUMBERS, Blocks, row_factor
from numpyro_gp.linalg import einsum, matmul


class SharedRows(NamedTuple):
    """What blocks of the rest say of their own rows, and of the global part: ``x_last``, ``z`` and ``b``."""

    last: Float[Array, " B"]
    z: Float[Array, " B"]
    b: Float[Array, "B M"]


@value_type()
class Shared:
    """The global part of a process, as it is known: ``w ~ N(m, C C^T)``.

    Attributes
    ----------
    basis : Basis
        That of the inducing points, whose features are ``A``.
    mean : Array (M,)
    factor : Array (M, M) or None
        ``C``; None where ``w`` is known.
    covariance : Array (M, M) or None
        ``C C^T`` where it is at hand: derivatives then pass its factor by.
    """

    basis: Basis
    mean: Array
    factor: Array | None
    covariance: Array | None = None

    @classmethod
    def prior(cls, basis: Basis) -> "Shared":
        """Standard normal, before any data."""
        return cls(basis, jnp.zeros(basis.size, basis.dtype), jnp.eye(basis.size, dtype=basis.dtype))

    @classmethod
    def of(cls, process: Any, basis: Basis) -> "Shared":
        """That of a point, or of a belief about whitened values."""
        if isinstance(process, Point):
            return cls(basis, process.v, None)
        found = process.whitened(basis)
        moments = process.moments if isinstance(process, Coupled) else None
        return cls(basis, found.mean, found.scale_tril, None if moments is None else moments.covariance)

    def rest(self, covariance: Array, at: Blocks, scale: Array | None = None) -> tuple[Array, Array]:
        """The covariance of blocks less what is global, and features ``(M, B, K + 1)``; ``scale`` as of `Blocks`."""
        count, length, columns = at.inputs.shape
        features = self.basis.features(at.inputs.reshape(-1, columns)).reshape(-1, count, length)
        taken = at.behind(jnp.ones(at.taken.shape, features.dtype), 1.0) if scale is None else scale
        features = features * taken[None]
        return covariance - einsum("mbi,mbj->bij", features, features), features

    def rows(self, covariance: Array, at: Blocks, residual: Array, scale: Array | None = None) -> SharedRows:
        """What blocks of these covariances say, whose residuals are ``(B, K + 1)``."""
        return self.factored(covariance, at, residual, scale)[1]

    def factored(
        self, covariance: Array, at: Blocks, residual: Array, scale: Array | None = None
    ) -> tuple[Array, SharedRows]:
        """The last rows ``x (B, K + 1)`` of inverse factors of the rest, and what the blocks say by them."""
        rest, features = self.rest(covariance, at, scale)
        x = row_factor(rest)
        return x, SharedRows(x[:, -1], jnp.sum(x * residual, axis=1), einsum("mbi,bi->bm", features, x))

    def spread(self, b: Float[Array, "B M"]) -> Float[Array, " B"]:
        """Variances of ``b . w``."""
        if self.factor is None:
            return jnp.zeros(b.shape[:1], b.dtype)
        if self.covariance is not None:
            return jnp.sum(matmul(b, self.covariance) * b, axis=1)
        return jnp.sum(jnp.square(matmul(b, self.factor)), axis=1)

    def expected(self, rows: SharedRows) -> Float[Array, " B"]:
        """``E log p(y_i | y_N(i), w)``."""
        squares = jnp.square(rows.z - matmul(rows.b, self.mean)) + self.spread(rows.b)
        return jnp.log(rows.last) - 0.5 * squares - HALF_LOG_2PI

    def predicted(self, rows: SharedRows) -> tuple[Array, Array, Array]:
        """Mean of ``f`` at rows whose own residual is 0, its variance given ``w``, and what ``w`` adds to that."""
        scale = 1 / rows.last
        return scale * (matmul(rows.b, self.mean) - rows.z), jnp.square(scale), jnp.square(scale) * self.spread(rows.b)

    def together(self, count: int) -> int:
        """How many blocks with ``count`` neighbours are looked at together."""
        return max(1, NUMBERS // (count + 1) // (count + 1 + self.basis.size))
