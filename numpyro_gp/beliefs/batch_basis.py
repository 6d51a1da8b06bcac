"""The bases of members in plates, as one."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from numpyro_gp.arrays import Array, Shape, over_axes, value_type
from numpyro_gp.beliefs.basis import AbstractBasis, Basis, in_plates


@value_type(static=("batch", "own"))
class BatchBasis(AbstractBasis):
    """Processes side by side. A belief is written for one: here its methods are mapped over all (`over_members`).

    Attributes
    ----------
    members : AbstractBasis
        A basis whose leaves have the axes of the batch on their left where ``own``, or one that all members share.
    batch : tuple of int, or None
        Shape of the plates around the site. None: the members are the P outputs of one site, with kernels or inducing
        inputs of their own. KL divergences of outputs are summed, those of plates are not.
    own : bool
    level : Array (*batch, M) or (*batch, P, M), optional
        As of `Basis`: it is of each member, whether the rest is or not.
    """

    members: AbstractBasis
    batch: Shape | None = None
    own: bool = True
    level: Array | None = None

    @property
    def axes(self) -> int:
        """Number of axes of the batch."""
        return 1 if self.batch is None else len(self.batch)

    @property
    def size(self) -> int:
        return self.members.size

    @property
    def dtype(self) -> np.dtype:
        return self.members.dtype

    def _each(self, function: Callable[[AbstractBasis], Array]) -> Array:
        return over_axes(function, self.axes if self.own else 0)(self.members)

    def features(self, X: Float[Array, "N D"]) -> Float[Array, "*batch M N"]:
        return self._each(lambda one: one.features(X))

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, "*batch N"]:
        return self._each(lambda one: one.diagonal(X))

    def matrix(self, X: Float[Array, "N D"]) -> Float[Array, "*batch N N"]:
        return self._each(lambda one: one.matrix(X))

    def white(self) -> tuple[AbstractBasis, Float[Array, "M D"]]:
        return first_member(self).white()


def first_member(basis: AbstractBasis) -> AbstractBasis:
    """The basis of one process: of several the first. Leaves may be shapes without values."""
    if not isinstance(basis, BatchBasis):
        return basis
    if not basis.own:
        return first_member(basis.members)
    count = basis.axes

    def first(leaf: Array | jax.ShapeDtypeStruct) -> Array | jax.ShapeDtypeStruct:
        if isinstance(leaf, jax.ShapeDtypeStruct):
            return jax.ShapeDtypeStruct(leaf.shape[count:], leaf.dtype)
        return leaf[(0,) * count]

    return first_member(jax.tree.map(first, basis.members))


def marked(basis: AbstractBasis, **marks: Any) -> AbstractBasis:
    """A basis of inducing points, or those of all members, with marks such as `Basis.is_exact`."""
    if isinstance(basis, BatchBasis):
        return dataclasses.replace(basis, members=marked(basis.members, **marks))
    return dataclasses.replace(basis, **marks) if isinstance(basis, Basis) else basis


def has_own_outputs(basis: AbstractBasis) -> bool:
    """Whether the outputs of a site have kernels or inducing inputs of their own."""
    return isinstance(basis, BatchBasis) and (basis.batch is None or has_own_outputs(basis.members))


def placed(basis: AbstractBasis, batch: Shape, site: str) -> AbstractBasis:
    """The basis of a site in plates of the shape ``batch``, in which axes that no plate has are 1."""
    if not isinstance(basis, BatchBasis) or basis.batch is None:
        return BatchBasis(basis, batch, own=False) if batch else basis
    return BatchBasis(in_plates(basis.members, basis.batch, batch, site), batch)
