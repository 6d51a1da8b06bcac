"""The basis of an additive process: one small factorisation for each component (mathematics.md section 6.1)."""

from collections.abc import Mapping, Sequence
from itertools import accumulate

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from numpyro_gp.arrays import Array, value_type
from numpyro_gp.beliefs.basis import AbstractBasis, Basis, batch_of_bases, spread
from numpyro_gp.beliefs.whitened import numbered
from numpyro_gp.checks import fail
from numpyro_gp.kernels import Kernel

__all__ = ["AdditiveBasis"]


def slices(sizes: Sequence[int]) -> tuple[slice, ...]:
    """Where parts of these sizes stand, one after the other."""
    ends = accumulate(sizes)
    return tuple(slice(end - size, end) for end, size in zip(ends, sizes, strict=True))


@value_type(static=("names",))
class AdditiveBasis(AbstractBasis):
    """Components with independent priors, whose whitened values are stacked in component order.

    Features are stacked, ``A = [A_1; ...; A_C]``; prior variances and covariances are summed. To a belief
    over all whitened values this basis looks like that of a single process.

    Attributes
    ----------
    names : tuple of str
        Names of the components, in order.
    parts : tuple of Basis
        The basis of each, in the same order.
    """

    names: tuple[str, ...]
    parts: tuple[Basis, ...]

    @classmethod
    def build(
        cls, kernels: Mapping[str, Kernel], inducing: Mapping[str, Array], jitter: float | None = None
    ) -> "AdditiveBasis":
        """Factorise the Gram matrix of each component: ``sum_c M_c^3``, never ``M^3``.

        Where kernels are batches, or inducing inputs several sets, all leaves have their axes on the left.
        """
        parts = [batch_of_bases(kernels[name], inducing[name], jitter) for name in kernels]
        leads = [part.factor.shape[:-2] for part in parts]
        whole = np.broadcast_shapes(*leads)
        return cls(tuple(kernels), tuple(spread(part, lead, whole) for part, lead in zip(parts, leads, strict=True)))

    @property
    def lead(self) -> tuple[int, ...]:
        """Axes of a batch on the left of all leaves."""
        return self.parts[0].factor.shape[:-2]

    @property
    def size(self) -> int:
        return sum(self.sizes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of inducing points of each component."""
        return tuple(part.size for part in self.parts)

    @property
    def slices(self) -> tuple[slice, ...]:
        """Where the whitened values of each component stand."""
        return slices(self.sizes)

    @property
    def dtype(self) -> np.dtype:
        return jnp.result_type(*[part.dtype for part in self.parts])

    def blocks(self, X: Float[Array, "N D"]) -> tuple[Array, ...]:
        """Features of each component, ``(M_c, N)``."""
        return tuple(part.features(X) for part in self.parts)

    def diagonals(self, X: Float[Array, "N D"]) -> Float[Array, "C N"]:
        """Prior variances of each component."""
        return jnp.stack([part.diagonal(X) for part in self.parts])

    def features(self, X: Float[Array, "N D"]) -> Float[Array, "M N"]:
        return jnp.concatenate(self.blocks(X))

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        return jnp.sum(self.diagonals(X), axis=0)

    def matrix(self, X: Float[Array, "N D"]) -> Float[Array, "N N"]:
        total = self.parts[0].matrix(X)
        for part in self.parts[1:]:
            total = total + part.matrix(X)
        return total

    def white(self) -> tuple["AdditiveBasis", Array]:
        labels = numbered(self.size, self.parts[0].inducing)
        parts = tuple(part.white_at(labels[at]) for part, at in zip(self.parts, self.slices, strict=True))
        return AdditiveBasis(self.names, parts), labels

    def component(self, name: str) -> int:
        """Position of a component."""
        if name not in self.names:
            fail("component", f"one of {list(self.names)}", repr(name), "Check the spelling.")
        return self.names.index(name)
