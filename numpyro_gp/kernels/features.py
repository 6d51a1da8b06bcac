"""Kernels as inner products of features, random or finitely many (mathematics.md section 13.1)."""

import math
from collections import Counter
from collections.abc import Callable
from functools import singledispatch
from itertools import combinations_with_replacement

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Float

from numpyro_gp.arrays import Array
from numpyro_gp.kernels import stationary
from numpyro_gp.kernels.base import Active, Kernel, Product, Scaled, Sum, inner_products, per_input
from numpyro_gp.kernels.functionals import OfFunctionals, applied, terms
from numpyro_gp.kernels.measures import Empirical, Uniform, mean_of_measure
from numpyro_gp.kernels.nonstationary import (
    ArcCosine,
    CategoryDelta,
    Constant,
    Coregion,
    Linear,
    Polynomial,
    ZeroMeanCategory,
    around_average,
    at_codes,
)
from numpyro_gp.kernels.stationary import SpectralMixture
from numpyro_gp.kernels.varying import Modulated
from numpyro_gp.kernels.zero_mean import ZeroMean, ZeroMeanLinear
from numpyro_gp.linalg import matmul

# --------------------------------------------------------------------------------------
# Features of kernels of finite rank: as many functions as they have dimensions, none of them random.


# Each of shape (N, G, R): G independent groups, 1 where nothing is random, of R functions.
FeatureBlocks = tuple[Array, ...]


def _monomials(kernel: Polynomial, X: Array) -> Float[Array, "N R"]:
    """Monomials of the degree in the scaled inputs and the root of the offset: the multinomial theorem."""
    inside = kernel.offset > 0
    offset = jnp.where(inside, jnp.sqrt(jnp.where(inside, kernel.offset, 1)), 0)
    terms = [*(X * jnp.sqrt(per_input("variance", kernel.variance, X))).T, jnp.full(X.shape[:1], offset)]
    monomials = []
    for choice in combinations_with_replacement(range(len(terms)), kernel.degree):
        orders = math.factorial(kernel.degree) // math.prod(map(math.factorial, Counter(choice).values()))
        monomials.append(math.sqrt(orders) * math.prod(terms[at] for at in choice))
    return jnp.stack(monomials, axis=1)


def _coregion(kernel: Coregion, X: Array) -> Float[Array, "N R"]:
    is_positive = kernel.diagonal_values > 0
    roots = jnp.where(is_positive, jnp.sqrt(jnp.where(is_positive, kernel.diagonal_values, 1)), 0)
    each = jnp.eye(kernel.weights.shape[0], dtype=roots.dtype) * jnp.reshape(roots, (1, -1))
    return at_codes(jnp.concatenate([kernel.weights, each], axis=1), X)


FINITE: dict[type, Callable[..., Float[Array, "N R"]]] = {
    Linear: lambda kernel, X: X * jnp.sqrt(per_input("variance", kernel.variance, X)),
    ZeroMeanLinear: lambda kernel, X: jnp.sqrt(kernel.variance) * (X - mean_of_measure(kernel.measure)),
    Constant: lambda kernel, X: jnp.sqrt(kernel._diagonal(X))[:, None],
    Polynomial: _monomials,
    Coregion: _coregion,
    # The covariance of the levels is ``variance`` times a projection, its own root.
    ZeroMeanCategory: lambda kernel, X: at_codes(jnp.sqrt(kernel.variance) * around_average(kernel.probabilities), X),
}


def _finite(kernel: Kernel, X: Array) -> FeatureBlocks:
    make = next(make for kind, make in FINITE.items() if isinstance(kernel, kind))
    return (make(kernel, X)[:, None, :],)


FeatureMap = Callable[[Array], FeatureBlocks]


@singledispatch
def features(kernel: Kernel, key: Array, num: int, points: Float[Array, "N D"]) -> FeatureMap | None:  # noqa: ARG001
    """Features of a kernel, from which function draws are made: ``k(x, y) = E mean_g sum_r psi_gr(x) psi_gr(y)``.

    A kernel of your own gets functions that one can keep (`Posterior.functions`) by registering its features:
    ``@ngp.kernels.features.register``, on a function of these four arguments.

    Parameters
    ----------
    kernel : Kernel
    key : PRNG key
        The features are random where the kernel has infinitely many; each group is independent and unbiased.
    num : int
        Number G of groups: for a stationary kernel a frequency each, with its cosine and its sine.
    points : array (N, D)
        Some inputs: their columns, their floating point type, and where the origin of phases may lie.

    Returns
    -------
    jax.tree_util.Partial
        ``X -> blocks``, a tuple of arrays ``(N, G, R)`` whose inner products add up; ``(N, 1, R)`` is exact. It is a
        pytree, and pickles. None for a kernel without features.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro_gp as ngp
    >>> X = jnp.array([[0.0], [1.0]])
    >>> (block,) = ngp.kernels.features(ngp.kernels.Linear(2.0), jax.random.key(0), 1, X)(X)
    >>> (block[:, 0] @ block[:, 0].T).round(4).tolist()   # a linear kernel has one feature, exactly
    [[0.0, 0.0], [0.0, 2.0]]
    """
    return None


@features.register(Sum)
@features.register(Product)
def _of_sum(kernel: Sum | Product, key: Array, num: int, points: Float[Array, "N D"]) -> FeatureMap | None:
    keys = jax.random.split(key)
    parts = [features(part, each, num, points) for part, each in zip(kernel.parts.values(), keys, strict=True)]
    return None if None in parts else Partial(_sum_blocks if isinstance(kernel, Sum) else _product_blocks, *parts)


def _sum_blocks(first: FeatureMap, second: FeatureMap, X: Array) -> FeatureBlocks:
    return (*first(X), *second(X))


def _product_blocks(first: FeatureMap, second: FeatureMap, X: Array) -> FeatureBlocks:
    """Every block with every other: group by group, as groups are independent, or all groups with the exact one."""
    return tuple(_outer(a, b) for a in first(X) for b in second(X))


def _outer(a: Float[Array, "N Ga Ra"], b: Float[Array, "N Gb Rb"]) -> Float[Array, "N G R"]:
    groups = max(a.shape[1], b.shape[1])
    return (a[:, :, :, None] * b[:, :, None, :]).reshape(a.shape[0], groups, -1)


@features.register(Scaled)
@features.register(Modulated)
@features.register(Active)
@features.register(OfFunctionals)
def _of_one_kernel(
    kernel: Scaled | Modulated | Active | OfFunctionals, key: Array, num: int, points: Float[Array, "N W"]
) -> FeatureMap | None:
    if isinstance(kernel, Active):
        points = kernel._columns(points)
    elif isinstance(kernel, OfFunctionals):
        points = terms(points, kernel.columns).points.reshape(-1, kernel.columns)
    part = features(kernel.kernel, key, num, points)
    return None if part is None else Partial(_one_kernel, kernel, part)


def _one_kernel(kernel: Scaled | Modulated | Active | OfFunctionals, part: FeatureMap, X: Array) -> FeatureBlocks:
    if isinstance(kernel, Active):
        return part(kernel._columns(X))
    if isinstance(kernel, OfFunctionals):
        return applied(part, X, kernel.columns, axis=-3)
    scale = kernel.at(X)[:, None, None] if isinstance(kernel, Modulated) else jnp.sqrt(kernel.factor)
    return tuple(scale * block for block in part(X))


# ------------------------------------------------------------- waves: kernels with a spectral measure


@features.register(stationary.RBF)
@features.register(stationary.Matern12)
@features.register(stationary.Matern32)
@features.register(stationary.Matern52)
@features.register(stationary.RationalQuadratic)
@features.register(stationary.Periodic)
def _of_stationary(kernel: stationary._Stationary, key: Array, num: int, points: Float[Array, "N D"]) -> FeatureMap:
    if isinstance(kernel, stationary.Periodic) and points.shape[1] == 1:
        numbers = jnp.arange(HARMONICS + 1, dtype=points.dtype)
        return Partial(_harmonics, kernel, stationary._centre(points), numbers)
    # In several columns `Periodic` is an RBF kernel of the points on the circles.
    return Partial(_plane_waves, kernel, stationary._centre(points), _frequencies(kernel, key, num, points))


def _frequencies(
    kernel: stationary._Stationary, key: Array, num: int, points: Float[Array, "N D"]
) -> Float[Array, "G E"]:
    """Draws from the spectral measure in units of the inverse lengthscale, a scale mixture of normals."""
    scaled = kernel._scaled(points[:1], stationary._centre(points))
    key_normal, key_scale = jax.random.split(key)
    normal = jax.random.normal(key_normal, (num, scaled.shape[1]), scaled.dtype)
    if isinstance(kernel, (stationary.RBF, stationary.Periodic)):
        return normal
    orders = {stationary.Matern12: 0.5, stationary.Matern32: 1.5, stationary.Matern52: 2.5}
    shape = jnp.asarray(orders.get(type(kernel), getattr(kernel, "alpha", None)), scaled.dtype)
    gamma = jax.random.gamma(key_scale, shape, (num,), scaled.dtype)
    # Above the smallest numbers: a frequency that overflows has no phase.
    gamma = jnp.maximum(gamma, jnp.finfo(gamma.dtype).eps ** 2)
    # Student's t with 2 nu degrees of freedom has precision Gamma(nu) / nu; RationalQuadratic mixes over that precision
    # of the distance itself.
    ratio = gamma / shape if isinstance(kernel, stationary.RationalQuadratic) else shape / gamma
    return normal * jnp.sqrt(ratio)[:, None]


def _plane_waves(
    kernel: stationary._Stationary, centre: Array, frequencies: Float[Array, "G E"], X: Array
) -> FeatureBlocks:
    return (jnp.sqrt(kernel.variance) * stationary.waves(inner_products(kernel._scaled(X, centre), frequencies)),)


# All that a lengthscale above 0.03 needs; of shorter ones, those that there are carry the whole variance.
HARMONICS = 256


def _harmonics(
    kernel: stationary.Periodic, centre: Float[Array, "1 1"], numbers: Float[Array, " C"], X: Float[Array, "N 1"]
) -> FeatureBlocks:
    """``exp((cos t - 1) / l^2) = sum_n c_n cos(n t)``; the coefficients by the trapezoid rule, exact to rounding."""
    count = numbers.shape[0] - 1
    precision = jnp.reshape(kernel.lengthscale, ()) ** -2
    nodes = 4 * count
    turns = 2 * math.pi / nodes * (np.outer(np.arange(count + 1), np.arange(nodes)) % nodes)
    profile = jnp.exp(precision * jnp.asarray(np.cos(turns[1]) - 1, precision.dtype))
    fold = np.where(np.arange(count + 1) == 0, 1, 2) / nodes
    weights = matmul(jnp.asarray(np.cos(turns) * fold[:, None], precision.dtype), profile)
    weights = weights / jnp.sum(weights)  # one, where these are all harmonics
    is_large = weights > jnp.finfo(weights.dtype).eps
    roots = jnp.where(is_large, jnp.sqrt(jnp.where(is_large, weights, 1)), 0) * jnp.sqrt(kernel.variance)
    angles = 2 * math.pi * (X - centre) / per_input("period", kernel.period, X) * numbers[None, :]
    return ((stationary.waves(angles) * roots[None, :, None]).reshape(X.shape[0], 1, -1),)


@features.register
def _of_cosine(kernel: stationary.Cosine, key: Array, num: int, points: Float[Array, "N D"]) -> FeatureMap:  # noqa: ARG001
    return Partial(_cosine, kernel, stationary._centre(points))


def _cosine(kernel: stationary.Cosine, centre: Array, X: Array) -> FeatureBlocks:
    angles = 2 * math.pi * jnp.sum((X - centre) / per_input("lengthscale", kernel.lengthscale, X), axis=1)
    return (jnp.sqrt(kernel.variance) * stationary.waves(angles)[:, None, :],)


@features.register
def _of_spectral_mixture(kernel: SpectralMixture, key: Array, num: int, points: Float[Array, "N D"]) -> FeatureMap:
    kernel._require_columns(points)
    key_normal, key_sign = jax.random.split(key)
    shape = (kernel.weights.shape[0], num, points.shape[1])
    normal = jax.random.normal(key_normal, shape, kernel.means.dtype)
    # The product over the columns of cosines is the mean of plane waves over the signs of their frequencies.
    sign = jax.random.rademacher(key_sign, shape, kernel.means.dtype)
    return Partial(_spectral_waves, kernel, stationary._centre(points), normal, sign)


def _spectral_waves(kernel: SpectralMixture, centre: Array, normal: Array, sign: Array, X: Array) -> FeatureBlocks:
    frequencies = 2 * math.pi * (sign * kernel.means[:, None, :] + kernel.scales[:, None, :] * normal)
    angles = jnp.stack([inner_products(X - centre, component) for component in frequencies], axis=-1)
    return ((stationary.waves(angles) * jnp.sqrt(kernel.weights)[None, None, :, None]).reshape(*angles.shape[:2], -1),)


@features.register
def _of_zero_mean(kernel: ZeroMean, key: Array, num: int, points: Float[Array, "N D"]) -> FeatureMap:
    parts, made = kernel.factors(points.shape[1]), []
    for d, (part, each) in enumerate(zip(parts, jax.random.split(key, len(parts)), strict=True)):
        x = points[:, d : d + 1]
        if isinstance(part.measure, Empirical):
            made.append(Partial(_less_average, part, features(part.kernel, each, num, x)))
        else:
            made.append(Partial(_integrated, part, _frequencies(part.kernel, each, num, x)))
    return Partial(_zero_mean, jnp.sqrt(kernel.kernel.variance), made)


def _zero_mean(scale: Array, parts: list[Callable[[Array], Array]], X: Array) -> FeatureBlocks:
    block = parts[0](X[:, :1])
    for d, part in enumerate(parts[1:], start=1):
        block = _outer(block, part(X[:, d : d + 1]))
    return (scale * block,)


def _less_average(part: ZeroMean, base: FeatureMap, X: Float[Array, "N 1"]) -> Float[Array, "N G R"]:
    """``psi - (int psi dnu) kbar / cbar`` of the features of the kernel itself, averaged over the points."""
    points, weights = (value.astype(X.dtype) for value in part.measure.quadrature())
    (values,), (nodes,) = base(X), base(points[:, None])
    a, b = part._deviations(X)
    mean = matmul(weights, nodes.reshape(len(weights), -1)).reshape(1, *nodes.shape[1:])
    return values - ((1 + a) / (1 + b))[:, :, None] * mean


def _integrated(part: ZeroMean, frequencies: Float[Array, "G 1"], X: Float[Array, "N 1"]) -> Float[Array, "N G 2"]:
    """``psi - (int psi dnu) kbar / cbar`` for waves around the middle of the measure, in deviations from 1."""
    measure = part.measure
    assert not isinstance(measure, Empirical)
    rate = frequencies[:, 0] / jnp.reshape(part.kernel.lengthscale, ())
    if isinstance(measure, Uniform):
        middle, half = 0.5 * (measure.low + measure.high), 0.5 * (measure.high - measure.low) * rate
        small = jnp.abs(half) < 0.1
        safe = jnp.where(small, 1, half)
        series = half**2 * (-1 / 6 + half**2 * (1 / 120 - half**2 / 5040 + half**4 / 362880))
        integral = jnp.where(small, series, jnp.sin(safe) / safe - 1)
    else:
        middle, integral = measure.mean, jnp.expm1(-0.5 * (rate * measure.sd) ** 2)
    a, b = part._deviations(X)
    angles = (X - middle) * rate[None, :]
    mean = (integral + 1)[None, :] * ((a - b) / (1 + b))
    cosine = -2 * jnp.sin(0.5 * angles) ** 2 - integral[None, :] - mean
    return jnp.stack([cosine, jnp.sin(angles)], axis=-1)


# --------------------------------------------------------------------------- kernels of finite rank


for _family in FINITE:
    features.register(_family)(lambda kernel, key, num, points: Partial(_finite, kernel))  # noqa: ARG005


# ------------------------------------------------------------------------ other random features


@features.register
def _of_category_delta(kernel: CategoryDelta, key: Array, num: int, points: Float[Array, "N D"]) -> FeatureMap:
    """Whole numbers differ by whole turns: frequencies uniform on one turn tell them apart."""
    return Partial(_delta, kernel, jax.random.uniform(key, (num, points.shape[1]), points.dtype, 0, 2 * math.pi))


def _delta(kernel: CategoryDelta, frequencies: Array, X: Array) -> FeatureBlocks:
    whole = jnp.all(jnp.round(X) == X, axis=1)
    waves = jnp.sqrt(kernel.variance) * stationary.waves(inner_products(X, frequencies))
    return (jnp.where(whole[:, None, None], waves, jnp.nan),)


@features.register
def _of_arc_cosine(kernel: ArcCosine, key: Array, num: int, points: Float[Array, "N D"]) -> FeatureMap:
    """The hidden units of the network, whose number the kernel takes to infinity."""
    return Partial(_units, kernel, jax.random.normal(key, (num, points.shape[1] + 1), points.dtype))


def _units(kernel: ArcCosine, directions: Array, X: Array) -> FeatureBlocks:
    scaled = X * jnp.sqrt(per_input("weight_variance", kernel.weight_variance, X))
    bias = jnp.full((X.shape[0], 1), jnp.sqrt(kernel.bias_variance), scaled.dtype)
    inside = inner_products(jnp.concatenate([scaled, bias], axis=1), directions)
    active = jnp.where(inside > 0, 1, 0) * inside**kernel.order
    return ((jnp.sqrt(2 * kernel.variance) * active)[:, :, None],)
