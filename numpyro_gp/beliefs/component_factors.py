"""Factors of components, as beliefs of additive sites hold them: their checks, and sums over them."""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayField, ArrayLike, Converted, Shape
from numpyro_gp.beliefs.additive_basis import AdditiveBasis
from numpyro_gp.beliefs.base import AbstractBelief
from numpyro_gp.beliefs.basis import AbstractBasis
from numpyro_gp.beliefs.members import Stacked, Stacks
from numpyro_gp.beliefs.probe import BlockProbe
from numpyro_gp.checks import check_shape, check_triangle, fail
from numpyro_gp.linalg import factorise, matmul

Blocks = tuple[Array, ...] | Stacked
BlocksField = Converted[Blocks, Mapping[str, ArrayLike] | Sequence[ArrayLike]]


def check_mean(mean: ArrayLike) -> Array:
    """Whitened means ``(M,)``, with the axes of plates on their left."""
    axes = (None,) * max(1, jnp.ndim(mean))
    return check_shape("mean", mean, axes, "whitened values of all components", "Stack them in component order.")


def check_factors(argument: str, value: object, mean: Array) -> tuple[Blocks, tuple[str, ...] | None]:
    """Factors as a tuple in component order, and the names where a dictionary gave them."""
    if isinstance(value, Stacked):
        return value, None
    if not isinstance(value, (Mapping, tuple, list)) or not value:
        cure = "Pass {name: jnp.eye(M)} with an entry for each component."
        fail(argument, "a dictionary or a tuple with one factor for each component", f"{value!r:.60}", cure, TypeError)
    names = tuple(value) if isinstance(value, Mapping) else None
    blocks = []
    for number, block in enumerate(value.values() if isinstance(value, Mapping) else value):
        label = f"{argument}[{names[number] if names else number!r}]"
        blocks.append(check_triangle(label, block, (*mean.shape[:-1], None), positive=True))
    total = sum(block.shape[-1] for block in blocks)
    if total != mean.shape[-1]:
        sizes = [block.shape[-1] for block in blocks]
        cure = "Pass one factor for each component, of the size of its inducing inputs."
        fail(argument, f"of sizes that add up to {mean.shape[-1]}, as mean has", f"{sizes}", cure)
    return tuple(blocks), names


def check_components(
    argument: str, blocks: Blocks, names: tuple[str, ...] | None, basis: AbstractBasis
) -> AdditiveBasis:
    """Refuse a site whose components are not those of the belief."""
    if not isinstance(basis, AdditiveBasis):
        fail("the site", "an additive_gp", "a single gp", "Use ngp.beliefs.Coupled or Structured there.", TypeError)
    sizes = Stacks.of(blocks).sizes
    if sizes != basis.sizes or (names is not None and names != basis.names):
        wanted = dict(zip(basis.names, basis.sizes, strict=True))
        got = sizes if names is None else dict(zip(names, sizes, strict=True))
        cure = "Build it with the names of kernels: {name: jnp.eye(len(inducing[name])) for name in kernels}."
        fail(argument, f"one for each component of the site, in its order: {wanted}", got, cure)
    return basis


def sum_of_squares(stacks: Sequence[Array]) -> Float[Array, ""]:
    """Of all numbers in stacks."""
    return jnp.sum(jnp.stack([jnp.sum(stack**2) for stack in stacks]))


def rows_of(stacks: Sequence[Array]) -> Float[Array, "R N"]:
    """Rows of stacks ``(C_s, M_s, N)`` one after the other, for what does not depend on their order."""
    return jnp.concatenate([stack.reshape(-1, stack.shape[-1]) for stack in stacks])


def check_columns(W: ArrayLike, mean: Array) -> Array:
    """The part of low rank ``W (M, r)``."""
    meaning, cure = "rows as mean, a column for each rank", "Pass W of shape (M, rank)."
    array = check_shape("W", W, (*mean.shape, None), meaning, cure)
    if array.shape[-1] < 1:
        fail("W", "of rank at least 1", f"shape {array.shape}", "Use BlockDiagonal for a belief without W.")
    return array


def half_of(W: Float[Array, "M r"]) -> tuple[Float[Array, "r r"], Float[Array, "r r"]]:
    """``L_H = chol(I + W^T W)`` and ``L_H^-1``."""
    return factorise(jnp.eye(W.shape[1], dtype=W.dtype) + matmul(W.T, W))


def probed(
    probe: BlockProbe | None, basis: AbstractBasis, features: Float[Array, "M N"], variance: Float[Array, " N"]
) -> Float[Array, " N"]:
    """Variances whose gradient a probe reads, where there is one."""
    if probe is None:
        return variance
    assert isinstance(basis, AdditiveBasis)
    return probe.seen(features, Stacks.of_sizes(basis.sizes).apart(features), variance)


class LowRank(AbstractBelief):
    """A belief whose precision is ``P P^T + W W^T``."""

    mean: ArrayField
    W: ArrayField

    def divided(self, rows: Float[Array, "M K"]) -> Float[Array, "M K"]:
        """``P^-1 X``, where ``P`` is no identity."""
        return rows

    def divided_back(self, rows: Float[Array, "M K"]) -> Float[Array, "M K"]:
        """``P^-T X``, where ``P`` is no identity."""
        return rows

    def draw_whitened(self, key: Array, sample_shape: Shape = (), basis: AbstractBasis | None = None) -> Array:
        """Draws ``m + S (P e_1 + W e_2)`` of the whitened values, ``P e_1 + W e_2`` being of covariance ``S^-1``.

        With ``B = P^-1 W`` and ``H = I + B^T B`` it is ``m + P^-T (e_1 + B H^-1 (e_2 - B^T e_1))``: precise data make
        ``W`` large, and a product of it with ``S``, which they make small, would have no right digit in float32.
        """
        if self.ndim > 1:
            return super().draw_whitened(key, sample_shape, basis)
        key_own, key_shared = jax.random.split(key)
        own = jax.random.normal(key_own, sample_shape + self.W.shape[:1], self.W.dtype)
        shared = jax.random.normal(key_shared, sample_shape + self.W.shape[1:], self.W.dtype)
        B = self.divided(self.W)
        inverse = half_of(B)[1]
        scaled = matmul(matmul(shared.reshape(-1, B.shape[1]), inverse.T), inverse)  # rows e_2^T H^-1
        columns = own.reshape(-1, B.shape[0]).T
        root = matmul(inverse, B.T)  # L_H^-1 B^T: rows of length below one
        drawn = self.divided_back(columns - matmul(root.T, matmul(root, columns)) + matmul(B, scaled.T))
        return self.mean[(None,) * len(sample_shape)] + drawn.T.reshape(own.shape)
