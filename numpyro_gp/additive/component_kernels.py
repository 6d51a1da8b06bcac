"""Kernels of the components of an additive model: of each column one that averages to zero; those alike as one batch.

Designs of `ngp.anova` (mathematics.md section 2.4) and formulas of `ngp.gam` (mathematics.md section 6.5) are made of
them.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from numpyro_gp import kernels
from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.beliefs.additive_basis import AdditiveBasis
from numpyro_gp.beliefs.members import alike, picked
from numpyro_gp.checks import fail, when_known
from numpyro_gp.kernels import Periodic, ZeroMean, ZeroMeanCategory
from numpyro_gp.kernels.base import Active, Kernel, Product, Scaled, Sum
from numpyro_gp.kernels.measures import Measure
from numpyro_gp.kernels.members import KernelBatch, kernel_batch_of, stacked
from numpyro_gp.linalg import matmul


class Component(NamedTuple):
    """What the kernel of a component is made of.

    Attributes
    ----------
    name : str
    columns : tuple of int
        Those of the inputs that it reads.
    given : sequence
        Of each column its measure, its measure and period, or the frequencies ``(C,)`` of its levels.
    lengthscales : int
        How many it has.
    kind : hashable
        Equal for components whose kernels are one batch.
    make : callable
        ``(variance, lengthscales, given) -> Kernel`` on columns 0, 1, ....
    """

    name: str
    columns: tuple[int, ...]
    given: Sequence[object]
    lengthscales: int
    kind: Hashable
    make: Callable[..., Kernel]


def batches_of(components: Sequence[Component], variances: Array, lengthscales: Array) -> list[KernelBatch]:
    """Kernels of components by their variances ``(C,)`` and lengthscales ``(L,)``, which stand one after the other."""
    dtype, ends = jnp.result_type(variances), np.cumsum([0, *(component.lengthscales for component in components)])
    batches = []
    for members in alike(component.kind for component in components):
        some, size = [components[at] for at in members], components[members[0]].lengthscales
        lengths = jnp.zeros((len(members), 0), dtype)
        if size:
            lengths = picked(lengthscales, ends[list(members), None] + np.arange(size))
        names, columns, given = zip(*(component[:3] for component in some), strict=True)
        variance = picked(variances, np.asarray(members))
        batches.append(kernel_batch_of(names, columns, some[0].make, variance, lengths, stacked(given, dtype)))
    return batches


def column_kernel(
    unit: Array, given: Any, family: Callable[..., Any] | None = None, lengthscale: Array | None = None
) -> Kernel:
    """The kernel of variance ``unit`` of one column: a curve, one that repeats, or levels; see `Component.given`."""
    if isinstance(given, tuple):
        measure, period = given
        assert lengthscale is not None
        return ZeroMean(Periodic(unit, lengthscale, period), measure)
    if isinstance(given, Measure):
        assert family is not None
        return ZeroMean(family(unit, lengthscale), given)
    return ZeroMeanCategory(unit, given)


# --------------------------------------------------------------------------------------
# How much variance each component has, in NumPy as in JAX: its square integrated (mathematics.md section 6.4).


# Both kinds of arrays have the operators and methods that stand here.
AnyArray = jax.Array | np.ndarray


class Squares(NamedTuple):
    """What ``D_c = int f_c^2 dnu`` is made of, for one component or for a stack ``(..., M, M)``, ``(...,)``.

    Attributes
    ----------
    gram : array (..., M, M)
        ``G_c = int A_c A_c^T dnu`` of whitened features ``A_c``.
    prior : array (...)
        ``int k_c(x, x) dnu``.
    """

    gram: AnyArray
    prior: AnyArray

    @classmethod
    def over(cls, A: AnyArray, prior: AnyArray, mass: AnyArray) -> "Squares":
        """Over rows of mass ``(N,)`` that sums to one, around the average of each function there.

        From features ``A (..., M, N)`` and prior variances ``(..., N)``: ``prior`` is the average of
        ``k_c(x_n, x_n) - |mean_n a_c(x_n)|^2``.
        """
        middle = _matrix_product(A, mass)
        away = (A - middle[..., None]) * (mass**0.5).reshape((1,) * (A.ndim - 1) + (-1,))
        return cls(_matrix_product(away, away.swapaxes(-1, -2)), _matrix_product(prior, mass) - (middle**2).sum(-1))

    @property
    def left(self) -> Any:
        """``int k_c dnu - tr G_c``: what the inducing inputs leave open."""
        return self.prior - self.gram.trace(axis1=-2, axis2=-1)

    def of_values(self, values: AnyArray) -> Any:
        """``v^T G_c v`` of values ``(..., M, S)``: ``(..., S)``."""
        return (values * _matrix_product(self.gram, values)).sum(-2)

    def expected(self, mean: AnyArray, covariance: AnyArray) -> Any:
        """``E D_c = m^T G_c m + int k_c dnu - tr G_c + tr(S_cc G_c)``."""
        return self.of_values(mean[..., None])[..., 0] + self.left + (covariance * self.gram).sum((-2, -1))

    def drawn(self, values: AnyArray) -> Any:
        """``D_c`` of draws ``(..., M, S)``: what is left open enters by its expectation."""
        return self.of_values(values) + self.left.clip(0)[..., None]


def shares_of(variances: Any) -> Any:
    """Shares of variances ``(C, ...)`` in their sum, zero where there is nothing to share."""
    total = variances.sum(0, keepdims=True)
    return variances / (total + (total <= 0))  # then every D is zero, but for rounding


def _matrix_product(left: Any, right: Any) -> Any:
    """``A B``, in JAX in the precision of its operands."""
    return left @ right if isinstance(left, np.ndarray) else matmul(left, right)


# --------------------------------------------------------------------------------------
# What Sobol indices are made of: integrals of products of features (mathematics.md section 6.4).


# Kernels of one column whose functions average to zero.
OneColumn = kernels.ZeroMean | kernels.ZeroMeanCategory | kernels.ZeroMeanLinear

WORDS_OF_MEASURES: dict[type, str] = {
    kernels.Uniform: "over an interval",
    kernels.Gaussian: "over a normal",
    kernels.Empirical: "over the data",
}


def one_dimensional(kernel: Kernel, columns: tuple[int, ...]) -> tuple[ArrayLike, list[tuple[int, OneColumn]]]:
    """A kernel as a factor times a product of zero-mean kernels of one column each."""
    if isinstance(kernel, Active):
        return one_dimensional(kernel.kernel, kernel.of_columns(columns))
    if isinstance(kernel, Scaled):
        scale, factors = one_dimensional(kernel.kernel, columns)
        return kernel.factor * scale, factors
    if isinstance(kernel, Product):
        (one, first), (other, second) = (one_dimensional(part, columns) for part in (kernel.first, kernel.second))
        return one * other, first + second
    if isinstance(kernel, kernels.Constant):
        return kernel.variance, []
    if isinstance(kernel, kernels.ZeroMean):
        return kernel.kernel.variance, list(zip(columns, kernel.factors(len(columns)), strict=True))
    if isinstance(kernel, (kernels.ZeroMeanCategory, kernels.ZeroMeanLinear)) and len(columns) == 1:
        return 1.0, [(columns[0], kernel)]
    required = "built from ZeroMean or ZeroMeanCategory kernels, for an orthogonal decomposition"
    cure = "Use ZeroMean(RBF(1.0, 0.3), Uniform(0.0, 1.0)).on(0), or ngp.anova.design."
    fail("the kernel of a component", required, f"a {type(kernel).__name__} of {len(columns)} columns", cure, TypeError)


def kernel_columns(kernel: object, columns: tuple[int, ...]) -> tuple[int, ...]:
    """Columns of the inputs that a kernel reads, in order; none for a constant.

    Parameters
    ----------
    kernel : Kernel
    columns : tuple of int
        All columns there are.

    Returns
    -------
    tuple of int

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> kernel = ngp.kernels.RBF(1.0, 1.0).on(2) * ngp.kernels.RBF(1.0, 1.0).on(0)
    >>> ngp.sobol.kernel_columns(kernel, (0, 1, 2))
    (0, 2)
    """
    if isinstance(kernel, Active):
        return kernel_columns(kernel.kernel, kernel.of_columns(columns))
    if isinstance(kernel, kernels.Constant):
        return ()
    if isinstance(kernel, (Sum, Product)):
        return tuple(sorted({dim for part in inner_kernels(kernel) for dim in kernel_columns(part, columns)}))
    return kernel_columns(kernel.kernel, columns) if isinstance(kernel, Scaled) else columns


def inner_kernels(kernel: object) -> list[object]:
    """Return the kernels that a kernel is made of."""
    return [part for name in ("first", "second", "kernel") if (part := getattr(kernel, name, None)) is not None]


def kernel_parts(kernel: object, columns: tuple[int, ...]) -> Iterator[tuple[object, tuple[int, ...]]]:
    """Yield a kernel and all that it is made of, each with the columns that it reads."""
    yield kernel, columns
    inner = kernel.of_columns(columns) if isinstance(kernel, Active) else columns
    for part in inner_kernels(kernel):
        yield from kernel_parts(part, inner)


def measure_words(kernel: object) -> str:
    """Return over what functions of a kernel average to zero, in words for a label; empty where they do not."""
    if isinstance(kernel, (kernels.ZeroMean, kernels.ZeroMeanLinear, kernels.Centred)):
        return WORDS_OF_MEASURES[type(kernel.measure)]
    if isinstance(kernel, kernels.ZeroMeanCategory):
        return "over the levels"
    return " and ".join(sorted({words for part in inner_kernels(kernel) if (words := measure_words(part))}))


def squares_over_measure(basis: AdditiveBasis) -> dict[str, Squares]:
    """Return the integrals that every index needs, whitened: ``L_c^-1 Gamma_c L_c^-T`` (mathematics.md section 6.4).

    ``Gamma_c = int k(Z, x) k(x, Z) dnu`` is right to 1e-6 for lengthscales from a tenth of the distance between
    inducing inputs on.
    """
    result: dict[str, Squares] = {}
    read: dict[tuple[int, ...], str] = {}
    measures: dict[int, tuple[str, object]] = {}
    for name, part in zip(basis.names, basis.parts, strict=True):
        scale, factors = one_dimensional(part.kernel, tuple(range(part.inducing.shape[1])))
        used = [column for column, _ in factors]
        if len(set(used)) < len(used):
            cure = "Name each column once: k1.on(0) * k2.on(1)."
            fail(f"the kernel of component {name!r}", "a product over different columns", f"{used}", cure)
        if not factors:
            continue
        if (other := read.setdefault(tuple(sorted(used)), name)) != name:
            cure = "Variances of two functions of the same columns do not add up: give each set of columns one kernel."
            fail("components", "of different columns each", f"{other!r} and {name!r}, both of {sorted(used)}", cure)
        for column, kernel in factors:
            measure = kernel.probabilities if isinstance(kernel, kernels.ZeroMeanCategory) else kernel.measure
            check_same_measure(column, measures.setdefault(column, (name, measure)), (name, measure))
        integral, diagonal = scale**2, scale
        for column, kernel in factors:
            points = part.inducing[:, column]
            if isinstance(kernel, kernels.ZeroMeanCategory):
                nodes, weights = kernel.quadrature()
            else:
                nodes, weights = kernel.measure.quadrature(breaks=points)  # kernels have kinks at the inducing inputs
            nodes, weights = nodes.astype(points.dtype)[:, None], weights.astype(points.dtype)
            cross = kernel.matrix(points[:, None], nodes)
            integral = integral * matmul(cross * weights[None, :], cross.T)
            diagonal = diagonal * matmul(weights, kernel.diagonal(nodes))
        result[name] = Squares(matmul(matmul(part.inverse, integral), part.inverse.T), jnp.asarray(diagonal))
    if not result:
        cure = "Add a main effect to the model, such as ZeroMean(RBF(1.0, 0.3), Uniform()).on(0)."
        fail("components", "at least one that is not constant", f"{list(basis.names)}", cure)
    return result


def squares_over(basis: AdditiveBasis, X: Float[Array, "N D"]) -> dict[str, Squares]:
    """Return the same with the rows of ``X`` for the measure, around the average of each component, for any kernel.

    Rows of other units than the process reads are refused: further outside of the range of a measure than it is wide.
    """

    def check(values: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
        if (np.maximum(low - values, values - high) > high - low).any():
            required = f"as the process reads them, within {low.min():.6g} to {high.max():.6g}"
            cure = "Pass design.map(X) where a design maps its inputs, else rows in the units of the kernels."
            fail("over", required, f"values from {values.min():.6g} to {values.max():.6g}", cure)

    every, mass = tuple(range(X.shape[1])), jnp.full(X.shape[0], 1 / X.shape[0], X.dtype)
    for part in basis.parts:
        for kernel, columns in kernel_parts(part.kernel, every):
            measure = kernel.measure if isinstance(kernel, (kernels.ZeroMean, kernels.ZeroMeanLinear)) else None
            if isinstance(measure, kernels.Uniform):
                when_known(check, X[:, list(columns)], measure.low, measure.high)
    parts = zip(basis.names, basis.parts, basis.blocks(X), basis.diagonals(X), strict=True)
    result = {
        name: Squares.over(block, diagonal, mass)
        for name, part, block, diagonal in parts
        if kernel_columns(part.kernel, every)
    }
    if not result:
        fail("components", "at least one that is not constant", f"{list(basis.names)}", "Add a main effect.")
    return result


def check_same_measure(column: int, first: tuple[str, object], second: tuple[str, object]) -> None:
    """Refuse two measures of one column: functions that average to zero under each of them are not orthogonal."""
    kinds: list[Any] = [jax.tree.structure(measure) for _, measure in (first, second)]

    def check(*leaves: np.ndarray) -> None:
        half = len(leaves) // 2
        pairs = list(zip(leaves[:half], leaves[half:], strict=True))
        # Points and weights have a size each, two ends, or a mean and its deviation, one: a mean may be zero.
        sizes = [max(np.abs(part).max(initial=0.0) for part in pair) for pair in pairs]
        sizes = sizes if isinstance(first[1], kernels.Empirical) else [max(sizes, default=0.0)] * half
        is_same = kinds[0] == kinds[1] and all(a.shape == b.shape for a, b in pairs)
        for (a, b), size in zip(pairs, sizes, strict=True) if is_same else ():
            eps = max(float(np.finfo(part.dtype).eps) for part in (a, b))
            is_same &= bool(np.all(np.abs(a - b) <= 16 * eps * size))  # of a size, of which a narrow range is no part
        if not is_same:
            got = f"others for {first[0]!r} and {second[0]!r}"
            cure = "Use one measure for each column in all components, such as Uniform(0.0, 1.0)."
            fail(f"the measure of column {column}", "the same in all components", got, cure)

    # Measures of two kinds differ whatever their numbers are.
    when_known(check, *(jax.tree.leaves((first[1], second[1])) if kinds[0] == kinds[1] else ()))
