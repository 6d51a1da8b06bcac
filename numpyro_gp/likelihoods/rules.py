"""Nodes and weights for normal distributions, in units of their standard deviation (mathematics.md section 7.2).

All are constants for differentiation; `numpyro_gp.quadrature` takes expectations with them.
"""

import functools
from statistics import NormalDist

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Bool, Float

from numpyro_gp.arrays import Array
from numpyro_gp.checks import check_count

LEGENDRE_NODES = 8
CUTS = (-4.0, -2.0, 0.0, 2.0, 4.0)
REACH = 8.0  # a standard normal has 1e-15 of its mass outside
BULK = (-6.5, -3.0, 0.0, 3.0, 6.0)  # edges about a bulk whose nodes go on to a peak far away
LIFT = 60.0  # a logarithm: weights so much larger leave single precision no narrower on its upper side
FIXED = (-REACH, *CUTS, REACH)
SMALLEST = 1e-12  # a width in standard deviations
LEAST = 30.0  # widths that the graded rule goes to at least
# Its cuts, as parts of the way to two standard deviations, in the logarithm of the distance.
GRADES = (-0.9, -0.7, -0.45, -0.2, 0.0, 0.2, 0.45, 0.7, 0.9)


@functools.cache
def gauss_hermite(num: int) -> tuple[Float[np.ndarray, " Q"], Float[np.ndarray, " Q"]]:
    """Nodes and weights (summing to one) of the rule for a standard normal, exact for degree ``2 num - 1``.

    Examples
    --------
    >>> nodes, weights = gauss_hermite(5)
    >>> round(float(weights @ nodes**4), 12)
    3.0
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(check_count("num", num))
    return nodes, weights / weights.sum()


@functools.cache
def tensor_hermite(num: int, dimension: int) -> tuple[Float[np.ndarray, "Q {dimension}"], Float[np.ndarray, " Q"]]:
    """Product rule of ``num**dimension`` nodes, and its weights."""
    nodes, weights = gauss_hermite(num)
    grid = np.meshgrid(*[nodes] * dimension, indexing="ij")
    products = functools.reduce(np.multiply.outer, [weights] * dimension)
    return np.stack([axis.ravel() for axis in grid], axis=-1), products.ravel()


@functools.cache
def quasi_normal(dimension: int) -> tuple[Float[np.ndarray, "Q {dimension}"], Float[np.ndarray, " Q"]]:
    """A Kronecker sequence of 1024 standard normals, with equal weights; draws in many dimensions.

    Steps are the powers of the root of ``x^(d+1) = x + 1``, the golden ratio's kin in d dimensions, which
    keep the points apart in every projection. Mirror images make the odd moments exact, and a linear map the
    covariance. Of more dimensions than a quarter of the points, which no linear map separates, they are fixed draws.
    """
    num = 512  # of a half
    if 2 * dimension > num:
        half = np.random.default_rng(0).standard_normal((num, dimension))
        half = half / np.sqrt(np.mean(half**2, axis=0))
        return np.concatenate([half, -half]), np.full(2 * num, 0.5 / num)
    root = 2.0
    for _ in range(60):
        root = (1.0 + root) ** (1.0 / (dimension + 1))
    steps = root ** -np.arange(1.0, dimension + 1)
    uniform = (0.5 + steps * np.arange(1, num + 1)[:, None]) % 1.0
    quantile = np.vectorize(NormalDist().inv_cdf)
    half = quantile(np.clip(uniform, 1e-12, 1 - 1e-12))
    half = np.linalg.solve(np.linalg.cholesky(half.T @ half / num), half.T).T  # unit covariance, exactly
    return np.concatenate([half, -half]), np.full(2 * num, 0.5 / num)


def composite_rule(
    cuts: Float[Array, "*batch K"],
) -> tuple[Float[Array, "*batch 8*(K+6)"], Float[Array, "*batch 8*(K+6)"]]:
    """Nodes and weights for a standard normal, cut at ``cuts`` and {0, ±2, ±4, ±8}.

    Cuts outside ±8 are clipped there and leave pieces of no width. The rule is a constant for
    differentiation: where the cuts are has no derivative worth having.

    Examples
    --------
    >>> z, weights = composite_rule(jnp.array([0.3]))
    >>> z.shape
    (56,)
    """
    fixed = jnp.broadcast_to(jnp.asarray(np.array(FIXED), cuts.dtype), (*cuts.shape[:-1], len(FIXED)))
    z, weights = pieces(_edges(lax.stop_gradient(cuts), fixed))
    density = jnp.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi).item()
    return z, weights * density


def graded_rule(
    centre: Float[Array, "*batch"], width: Float[Array, "*batch"], spans: Bool[Array, "*batch"] | None = None
) -> tuple[Float[Array, "*batch 120"], Float[Array, "*batch 120"]]:
    """A composite rule in ``t`` of ``z = centre + width sinh(t)``, for what has a heavy tail beyond ``width``.

    Logarithms and powers of the distance are smooth in ``t``, over however many decades of it. A constant for
    differentiation. Where ``spans``, the nodes reach from beyond ``-centre`` to beyond ``centre``, and weights are
    larger by ``exp(LIFT)``: of single precision's range the lower half alone would be used.

    Examples
    --------
    >>> z, weights = graded_rule(jnp.array(0.3), jnp.array(1e-6))
    >>> round(float(weights @ jnp.log1p((z - 0.3) ** 2 * 1e12)), 4)   # SciPy, with a break at 0.3: 26.4493
    26.4493
    """
    is_near = jnp.abs(centre) < REACH
    centre, width = (lax.stop_gradient(part)[..., None] for part in (centre, width))
    fixed = jnp.expand_dims(jnp.asarray(np.array(FIXED), centre.dtype), range(centre.ndim - 1))
    lift = jnp.zeros_like(centre)
    if spans is not None:
        is_near = is_near | spans
        fixed = jnp.where(spans[..., None], _span(centre), fixed)
        lift = jnp.where(spans[..., None], LIFT, lift)
    # Of a centre without mass about it the rule knows nothing: any other serves.
    centre, width = jnp.where(is_near[..., None], centre, 0.0), jnp.where(is_near[..., None], width, 1.0)
    width = jnp.clip(width, SMALLEST, 1.0)  # one that is wide needs no grading, and z would be a difference of much
    grades = jnp.expand_dims(jnp.asarray(np.array(GRADES), centre.dtype), range(centre.ndim - 1))
    # Sorted as values of t: before the sort the compiler would take an inverse of sinh for each node.
    cuts = grades * jnp.arcsinh(jnp.maximum(CUTS[-2] / width, LEAST))
    t, weights = pieces(_edges(cuts, jnp.arcsinh((fixed - centre) / width)))
    rising, falling = 0.5 * jnp.exp(t), 0.5 * jnp.exp(-t)
    z = centre + width * (rising - falling)
    density = jnp.exp(lift - 0.5 * z**2) / np.sqrt(2.0 * np.pi).item()
    return z, weights * width * (rising + falling) * density


def _span(centre: Float[Array, "*batch 1"]) -> Float[Array, "*batch 7"]:
    """Edges about the bulk of a normal at ``-centre``, and on to beyond ``centre``, in rising order."""
    far = 2 * jnp.abs(centre)
    end = jnp.maximum(far + 3.0, REACH)
    bulk = jnp.broadcast_to(jnp.asarray(np.array(BULK), centre.dtype), (*centre.shape[:-1], len(BULK)))
    edges = jnp.concatenate([bulk, 0.5 * (BULK[-1] + end), end], axis=-1) - 0.5 * far
    return jnp.sort(jnp.sign(centre) * edges, axis=-1)


def _edges(cuts: Float[Array, "*batch K"], fixed: Float[Array, "*batch 7"]) -> Float[Array, "*batch K+7"]:
    """The fixed edges and the cuts, those beyond the first and the last moved there."""
    cuts = jnp.clip(cuts, fixed[..., :1], fixed[..., -1:])
    return jnp.sort(jnp.concatenate([fixed, cuts], axis=-1), axis=-1)


def pieces(edges: Float[Array, "*batch E"]) -> tuple[Float[Array, "*batch 8*(E-1)"], Float[Array, "*batch 8*(E-1)"]]:
    """Nodes between neighbouring edges, and weights for an integral."""
    nodes, weights = (jnp.asarray(part, edges.dtype) for part in np.polynomial.legendre.leggauss(LEGENDRE_NODES))
    half = 0.5 * jnp.diff(edges, axis=-1)[..., None]
    z = 0.5 * (edges[..., 1:] + edges[..., :-1])[..., None] + half * jnp.expand_dims(nodes, range(half.ndim - 1))
    weights = half * jnp.expand_dims(weights, range(half.ndim - 1))
    shape = (*edges.shape[:-1], -1)
    return z.reshape(shape), weights.reshape(shape)


def spread_points(
    mean: Float[Array, "*batch C"], covariance_factor: Float[Array, "*batch C C"], nodes: Float[np.ndarray, "K C"]
) -> Float[Array, "K *batch C"]:
    """``mean + L z`` for every node."""
    z = jnp.asarray(nodes, mean.dtype)
    return mean[None] + jnp.sum(covariance_factor[None] * jnp.expand_dims(z, range(1, mean.ndim + 1)), axis=-1)
