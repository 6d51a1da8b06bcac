"""Kernels as states: a process on a line whose past counts by a few numbers (mathematics.md section 17.2).

A state ``x`` of S numbers moves by ``x(t + g) = A(g) x(t) + noise`` of covariance ``Q(g)``, and ``f = read . x``. Of
several series on one line each has a ``read`` of its own.
Matrices have their axes first, ``(S, S, n)``, and the gaps last. Of ``A`` there are the blocks on its diagonal alone:
waves of a period, parts of a sum and several series move by themselves. ``Q(g) = int_0^g A(u) b b^T A(u)^T du`` is
written so that nothing cancels where gaps are short.
"""

import math
from collections.abc import Callable
from functools import partial, reduce, singledispatch
from itertools import groupby
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array
from numpyro_gp.checks import fail, when_known
from numpyro_gp.kernels.base import Active, Kernel, Product, Scaled, Sum
from numpyro_gp.kernels.nonstationary import Constant, Linear, OfCodes
from numpyro_gp.kernels.stationary import SHO, Cosine, Matern12, Matern32, Matern52, Periodic, damped
from numpyro_gp.kernels.trends import IntegratedOU, IntegratedWiener, Wiener
from numpyro_gp.linalg import einsum

# Up to where what an exponential loses is a series, and its terms there: 2^18 / 18! is nothing in double precision.
SERIES_BELOW, TERMS = 2.0, 18
# Waves of a periodic kernel, and down to where they are enough.
WAVES, LEAST_WIGGLE = 8, 0.4
LIST = "Matern12, Matern32, Matern52, SHO, Periodic, Cosine, Constant, Linear, Wiener, IntegratedWiener, IntegratedOU"


# Blocks ``(count, size, size, n)`` of equal sizes, one after the other on the diagonal of a matrix.
StateBlocks = tuple[Array, ...]


class States(NamedTuple):
    """A kernel as states.

    Attributes
    ----------
    move : callable
        ``A(g)`` by its blocks and ``Q(g)`` ``(S, S, n)`` of gaps ``(n,)``.
    start : callable
        Covariance ``(S, S, n)`` of the state at times ``(n,)``.
    read : NumPy array (S, 1) or (S, C + 1)
        ``f`` of the state, of each series, and no number for what is none of C.
    block : int
        The size of the largest block.
    is_stationary : bool
    is_still : bool
        Whether states stay as they start.
    """

    move: Callable[[Array], tuple[StateBlocks, Array]]
    start: Callable[[Array], Array]
    read: np.ndarray
    block: int
    is_stationary: bool = True
    is_still: bool = False

    @property
    def size(self) -> int:
        """Number S of states."""
        return int(self.read.shape[0])

    def of_slope(self) -> Array:
        """What reads the slope of ``f`` in time ``(S, C)``: as states move on average in a short gap."""
        slope = jax.jvp(lambda g: self.move(g)[0], (jnp.zeros(1),), (jnp.ones(1),))[1]
        return times(turned(slope), jnp.asarray(self.read)[:, :, None])[..., 0]


def mm(first: Array, second: Array) -> Array:
    """Products ``(S, T, n)`` of matrices whose axes come first."""
    return times((first[None],), second)


def times(blocks: StateBlocks, matrix: Array) -> Array:
    """A matrix of blocks on its diagonal times another."""
    pairs = zip(blocks, rows_of(blocks, matrix), strict=True)
    parts = [jnp.sum(block[:, :, :, None] * rows[:, None], axis=2) for block, rows in pairs]
    parts = [part.reshape(-1, *part.shape[2:]) for part in parts]
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts)


def rows_of(blocks: StateBlocks, matrix: Array) -> list[Array]:
    """Rows ``(count, size, ..., n)`` of a matrix, as they belong to these blocks."""
    parts, at = [], 0
    for count, size in (block.shape[:2] for block in blocks):
        parts.append(matrix[at : at + count * size].reshape(count, size, *matrix.shape[1:]))
        at += count * size
    return parts


def turned(blocks: StateBlocks) -> StateBlocks:
    """The transpose of a matrix of blocks."""
    return tuple(jnp.swapaxes(block, 1, 2) for block in blocks)


def transposed(matrix: Array) -> Array:
    """The transpose of matrices whose axes come first."""
    return jnp.swapaxes(matrix, 0, 1)


def _stack(rows: list[list[Array]]) -> Array:
    return jnp.stack([jnp.stack(jnp.broadcast_arrays(*row)) for row in rows])


@singledispatch
def states_of(kernel: Kernel) -> States:
    """The states of a kernel on one column."""
    got = f"a {type(kernel).__name__}"
    cure = f"Take {LIST}, sums, products and multiples of them; else pass X, or ngp.neighbours(X, 16)."
    fail("the kernel of a process on a line", "one of few states", got, cure, TypeError)


def _of_all(*reads: np.ndarray) -> list[np.ndarray]:
    """Those of one series and of several, for as many; the last of each is that of all others."""
    most = max(read.shape[1] for read in reads)
    return [np.pad(read, [(0, 0), (0, most - read.shape[1])], mode="edge") for read in reads]


def _one_number(kernel: Kernel, name: str) -> Array:
    value: Array = getattr(kernel, name)
    if value.size != 1:
        fail(f"{name} of {type(kernel).__name__}", "a number on a line", f"shape {value.shape}", "Pass one number.")
    return value.reshape(())


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def lost(count: int, u: Array) -> Array:
    """``1 - exp(-u) sum_{k <= n} u^k / k!`` of ``u >= 0`` for each ``n < count``, with all digits of small ``u``.

    The last is a series where ``u`` is small, and each of the others the next one and a positive term.
    """
    is_small, terms = u < SERIES_BELOW, _terms(count, u)
    near, far = jnp.where(is_small, u, 0), 1 - jnp.sum(terms, axis=0)
    series = jnp.ones_like(near)
    for k in range(TERMS, 0, -1):
        series = 1 + series * (near * (1 / (count + k)))
    last = jnp.where(is_small, series * terms[-1] * u * (1 / count), far)
    below = [last]
    for n in range(count - 1, 0, -1):
        below.append(below[-1] + terms[n])
    return jnp.stack(below[::-1])


def _terms(count: int, u: Array) -> Array:
    return jnp.exp(-u)[None] * jnp.stack([u**n * (1 / math.factorial(n)) for n in range(count)])


@lost.defjvp
def _lost_jvp(count: int, primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (u,), (change,) = primals, tangents
    return lost(count, u), _terms(count, u) * change[None]


@states_of.register
def _states_of_matern(kernel: Matern12 | Matern32 | Matern52) -> States:
    """The value, and derivatives in units of the rate: white noise through S equal filters.

    In gaps ``d`` in units of ``1 / rate``, ``A = exp(-d) sum_k N^k d^k / k!`` with ``N^S = 0``, and the last column of
    that makes ``Q`` a sum of ``int_0^d s^n exp(-2 s) ds``.
    """
    size = {Matern12: 1, Matern32: 2, Matern52: 3}[type(kernel)]
    variance, rate = kernel.variance, math.sqrt(2 * size - 1) / _one_number(kernel, "lengthscale")
    companion = np.eye(size, k=1)
    companion[-1] = [-math.comb(size, k) for k in range(size)]
    powers = [np.linalg.matrix_power(companion + np.eye(size), k) / math.factorial(k) for k in range(size)]
    transitions, column = np.stack(powers, axis=-1), np.stack(powers, axis=-1)[:, -1]
    products = np.zeros((size, size, 2 * size - 1))  # of two columns, by powers of ``s``
    for k in range(size):
        for n in range(size):
            products[:, :, k + n] += np.outer(column[:, k], column[:, n])
    products *= [math.factorial(n) / 2 ** (n + 1) for n in range(2 * size - 1)]  # times the whole integrals
    products /= products[0, 0].sum()

    def move(g: Array) -> tuple[StateBlocks, Array]:
        d = jnp.minimum(rate * g, 1e3)  # where nothing is left: powers of more overflow
        of_powers = jnp.exp(-d)[None] * jnp.stack([d**k for k in range(size)])
        parts = lost(2 * size - 1, 2 * d)
        noise = variance * einsum("ijk,kn->ijn", jnp.asarray(products, d.dtype), parts)
        return (einsum("ijk,kn->ijn", jnp.asarray(transitions, d.dtype), of_powers)[None],), noise

    prior = np.sum(products, axis=-1)[:, :, None]
    return States(move, lambda t: variance * jnp.broadcast_to(prior, (size, size, *t.shape)), np.eye(size, 1), size)


@states_of.register
def _states_of_cosine(kernel: Cosine) -> States:
    variance, rate = kernel.variance, 2 * math.pi / _one_number(kernel, "lengthscale")

    def move(g: Array) -> tuple[StateBlocks, Array]:
        c, s = jnp.cos(rate * g), jnp.sin(rate * g)
        return (_stack([[c, s], [-s, c]])[None],), jnp.zeros((2, 2, *g.shape), g.dtype)

    def start(t: Array) -> Array:
        eye = variance * jnp.eye(2, dtype=variance.dtype)
        return jnp.broadcast_to(eye[:, :, None], (2, 2, *t.shape))

    return States(move, start, np.eye(2, 1), 2)


@states_of.register
def _states_of_periodic(kernel: Periodic) -> States:
    """Waves, first a level, by a discrete Fourier transform of a period: exact at gaps of that over ``2 WAVES``."""
    rate = 2 * math.pi / _one_number(kernel, "period")
    lengthscale, places, order = _one_number(kernel, "lengthscale"), np.arange(2 * WAVES), np.arange(WAVES + 1)
    when_known(_check_wiggle, lengthscale)
    table = np.cos(math.pi / WAVES * np.outer(order, places)) / np.where(order % WAVES, WAVES, 2 * WAVES)[:, None]
    correlations = jnp.exp(-2 * jnp.square(np.sin(math.pi / (2 * WAVES) * places) / lengthscale))
    of_waves = jnp.maximum(jnp.sum(table.astype(correlations.dtype) * correlations[None], axis=1), 0)
    of_states = kernel.variance * jnp.repeat(of_waves, 2)
    read = np.tile(np.eye(2, 1), (len(order), 1))

    def move(g: Array) -> tuple[StateBlocks, Array]:
        angles = order[:, None].astype(g.dtype) * (rate * g)[None]
        c, s = jnp.cos(angles), jnp.sin(angles)
        return (jnp.moveaxis(_stack([[c, s], [-s, c]]), 2, 0),), jnp.zeros((len(read), len(read), *g.shape), g.dtype)

    def start(t: Array) -> Array:
        return jnp.broadcast_to(jnp.diag(of_states)[:, :, None], (len(read), len(read), *t.shape))

    return States(move, start, read, 2)


def _check_wiggle(values: np.ndarray) -> None:
    if (least := float(np.min(values))) < LEAST_WIGGLE:
        got, cure = f"{least:.3g}", "Its narrow features take more waves than a line has: pass X."
        fail("lengthscale of Periodic on a line", f"at least {LEAST_WIGGLE}", got, cure)


@states_of.register
def _states_of_sho(kernel: SHO) -> States:
    """The value, and its slope in units of the frequency: noise is a series where gaps are short."""
    variance, rate, friction = kernel.variance, 2 * math.pi / kernel.period, 1 / kernel.quality
    eye, zero, one = jnp.eye(2, dtype=variance.dtype), jnp.zeros_like(friction), jnp.ones_like(friction)
    scale = jnp.maximum(2 * friction, 1)  # without which powers of much friction overflow
    companion = _stack([[zero, one], [-one, -friction]]) / scale
    powers = [2 * friction / scale * variance * eye[1:] * eye[:, 1:]]  # of the scaled gap, from the first
    for n in range(2, TERMS + 1):
        pushed = jnp.matmul(companion, powers[-1], precision="highest") / n
        powers.append(pushed + pushed.T)
    # Of much friction the value sums two decays, of rates ``1 / fast`` and ``fast``.
    is_slow = friction > 2.5
    root = jnp.sqrt(jnp.where(is_slow, 0.25 * friction**2 - 1, 1))
    fast = 0.5 * friction + root

    def move(g: Array) -> tuple[StateBlocks, Array]:
        d = rate * g
        c, s = damped(d, kernel.quality)
        transition = _stack([[c + 0.5 * friction * s, s], [-s, c - 0.5 * friction * s]])
        is_near = 2 * scale * d < 1
        near, series = jnp.where(is_near, scale * d, 0), jnp.zeros((2, 2, *g.shape), g.dtype)
        for power in powers[::-1]:
            series = (series + power[:, :, None]) * near[None, None]
        # ``I - A A^T`` without its differences: all is small as friction is, or as gaps are.
        decayed, both = -jnp.expm1(-friction * d), friction * s**2
        of_rates = [-jnp.expm1(-r * d) / r for r in (2 / fast, friction, 2 * fast)]
        slow = 0.5 * friction / root**2 * (of_rates[0] - 2 * of_rates[1] + of_rates[2])
        value = jnp.where(is_slow, slow, decayed - friction * s * c - 0.5 * friction * both)
        far = variance * _stack([[value, both], [both, decayed + friction * s * c - 0.5 * friction * both]])
        return (transition[None],), jnp.where(is_near, series, far)

    return States(move, lambda t: variance * jnp.broadcast_to(eye[:, :, None], (2, 2, *t.shape)), np.eye(2, 1), 2)


def _since(kernel: Wiener | IntegratedWiener | IntegratedOU, t: Array) -> Array:
    """Times since the origin; no number before it, where the process is another one."""
    since = t - kernel.origin

    def check(values: np.ndarray) -> None:
        if np.min(values) < 0:
            got, cure = f"{-float(np.min(values)):.3g} behind the first row", "Pass origin=, at or before the first."
            fail(f"the origin of {type(kernel).__name__} on a line", "at or before all rows", got, cure)

    when_known(check, since)
    return jnp.where(since >= 0, since, jnp.nan)


@states_of.register
def _states_of_level(kernel: Constant | Wiener) -> States:
    """A number that stays, or walks."""

    def move(g: Array) -> tuple[StateBlocks, Array]:
        same = jnp.ones((1, 1, *g.shape), g.dtype)
        return (same[None],), kernel.variance * g[None, None] if isinstance(kernel, Wiener) else jnp.zeros_like(same)

    def start(t: Array) -> Array:
        since = _since(kernel, t) if isinstance(kernel, Wiener) else jnp.ones_like(t)
        return kernel.variance * since[None, None]

    is_still = not isinstance(kernel, Wiener)
    return States(move, start, np.eye(1, 1), 1, is_still, is_still)


@states_of.register
def _states_of_slope(kernel: Linear | IntegratedWiener) -> States:
    """A value and its slope, which stays or walks."""
    variance = _one_number(kernel, "variance")

    def noise(g: Array) -> Array:
        return variance * _stack([[g**3 / 3, g**2 / 2], [g**2 / 2, g]])

    def move(g: Array) -> tuple[StateBlocks, Array]:
        straight = _stack([[jnp.ones_like(g), g], [jnp.zeros_like(g), jnp.ones_like(g)]])
        return (straight[None],), noise(g) if isinstance(kernel, IntegratedWiener) else jnp.zeros_like(straight)

    def start(t: Array) -> Array:
        if isinstance(kernel, IntegratedWiener):
            return noise(_since(kernel, t))
        return variance * _stack([[t * t, t], [t, jnp.ones_like(t)]])

    return States(move, start, np.eye(2, 1), 2, False)


@jax.custom_jvp
def _integral_of_forgotten(r: Array) -> Array:
    """``2 int_0^r (1 - exp(-s))^2 ds``, with all its digits where ``r`` is small."""
    near, far = jnp.where(r < 1, r, 0), jnp.where(r < 1, 1, r)
    series = jnp.zeros_like(near)
    for k in range(TERMS, 2, -1):
        series = (-1) ** k * (4 - 2**k) / math.factorial(k) + series * near
    forgotten = -jnp.expm1(-far)
    return jnp.where(r < 1, series * near**3, 2 * (far - forgotten) - forgotten**2)


_integral_of_forgotten.defjvps(lambda change, _, r: 2 * jnp.expm1(-r) ** 2 * change)


@states_of.register
def _states_of_integrated_ou(kernel: IntegratedOU) -> States:
    """The value, and the slope times the lengthscale."""
    scale = kernel.variance * kernel.lengthscale**2

    def move(g: Array) -> Array:
        r = g / kernel.lengthscale
        return _stack([[jnp.ones_like(r), -jnp.expm1(-r)], [jnp.zeros_like(r), jnp.exp(-r)]])

    def noise(g: Array) -> Array:
        r = g / kernel.lengthscale
        forgotten = -jnp.expm1(-r)
        both = forgotten**2
        return scale * _stack([[_integral_of_forgotten(r), both], [both, -jnp.expm1(-2 * r)]])

    def start(t: Array) -> Array:
        since = _since(kernel, t)
        before = move(since)
        prior = scale * jnp.asarray([[0.0, 0.0], [0.0, 1.0]], scale.dtype)[:, :, None]
        return mm(mm(before, prior), transposed(before)) + noise(since)

    return States(lambda g: ((move(g)[None],), noise(g)), start, np.eye(2, 1), 2, False)


def _side_by_side(first: Array, second: Array) -> Array:
    """Matrices ``(S, S, n)`` of two blocks."""
    one, two = first.shape[0], second.shape[0]
    pad = [(0, 0)] * (first.ndim - 2)
    return jnp.pad(first, [(0, two), (0, two), *pad]) + jnp.pad(second, [(one, 0), (one, 0), *pad])


@states_of.register
def _states_of_sum(kernel: Sum) -> States:
    first, second = states_of(kernel.first), states_of(kernel.second)

    def move(g: Array) -> tuple[StateBlocks, Array]:
        (a, q), (b, r) = first.move(g), second.move(g)
        return _joined(a + b), _side_by_side(q, r)

    read = np.concatenate(_of_all(first.read, second.read))
    both = first.is_stationary and second.is_stationary
    is_still, block = first.is_still and second.is_still, max(first.block, second.block)
    return States(move, lambda t: _side_by_side(first.start(t), second.start(t)), read, block, both, is_still)


def _joined(blocks: StateBlocks) -> StateBlocks:
    """The same blocks, neighbours of one size as one array."""
    sizes = groupby(blocks, key=lambda block: block.shape[1])
    return tuple(jnp.concatenate(list(equal)) for _, equal in sizes)


def _whole(blocks: StateBlocks) -> Array:
    """The matrix ``(S, S, n)`` of its blocks."""
    each = (part for block in blocks for part in block)
    return reduce(_side_by_side, each)


def _kronecker(first: Array, second: Array) -> Array:
    size = first.shape[0] * second.shape[0]
    product = first[:, None, :, None] * second[None, :, None, :]
    return product.reshape(size, size, *product.shape[4:])


@states_of.register
def _states_of_product(kernel: Product) -> States:
    factors = states_of(kernel.first), states_of(kernel.second)
    # That of smaller blocks for its size stands outside: so those of the product are small.
    first, second = sorted(factors, key=lambda states: states.block / states.size)
    both = first.is_stationary and second.is_stationary
    if not (both or first.is_still or second.is_still):
        names = " times ".join(
            type(k.kernel if isinstance(k, Active) else k).__name__ for k in (kernel.first, kernel.second)
        )
        fail("a product of kernels on a line", "one of stationary kernels", names, "Add them, or pass X.", TypeError)

    def move(g: Array) -> tuple[StateBlocks, Array]:
        """``Q`` is ``P P' - A P A^T A' P' A'^T``, as a sum of positive terms."""
        (a, q), (b, r) = first.move(g), second.move(g)
        if first.block == 1:
            blocks = _joined(tuple(level[None] * block for part in a for level in part for block in b))
        else:
            inner = _whole(b)
            blocks = tuple(jax.vmap(_kronecker, in_axes=(0, None))(part, inner) for part in a)
        if first.is_still:
            return blocks, _kronecker(first.start(g), r)
        noise = _kronecker(q, second.start(g))
        if not second.is_still:
            noise = noise + _kronecker(times(a, transposed(times(a, first.start(g)))), r)
        return blocks, noise

    one, two = _of_all(first.read, second.read)
    read = (one[:, None] * two).reshape(first.size * second.size, -1)
    start = lambda t: _kronecker(first.start(t), second.start(t))  # noqa: E731
    block = second.block if first.block == 1 else first.block * second.size
    return States(move, start, read, block, both, first.is_still and second.is_still)


@states_of.register
def _states_of_scaled(kernel: Scaled) -> States:
    states = states_of(kernel.kernel)

    def move(g: Array) -> tuple[StateBlocks, Array]:
        blocks, noise = states.move(g)
        return blocks, kernel.factor * noise

    return states._replace(move=move, start=lambda t: kernel.factor * states.start(t))


@states_of.register
def _states_of_active(kernel: Active) -> States:
    inner = kernel.kernel
    if isinstance(inner, (Sum, Product)):
        return states_of(type(inner)(inner.first.on(kernel.dims), inner.second.on(kernel.dims)))
    if isinstance(inner, Scaled):
        return states_of(inner.factor * inner.kernel.on(kernel.dims))
    if kernel.dims == (1,) and isinstance(inner, OfCodes):
        return _states_of_codes(inner)
    if (kernel.dims != (0,) or isinstance(inner, OfCodes)) and not isinstance(inner, Constant):
        got = f"{type(inner).__name__} on {list(kernel.dims)}"
        cure = "Write .on(0) of a kernel of times, and .on(1) of Coregion where rows are of several series."
        fail("the columns of a kernel on a line", "times, or codes of series", got, cure)
    return states_of(inner)


def _states_of_codes(kernel: OfCodes) -> States:
    """A level for each series."""
    covariance = kernel.covariance()
    size = len(covariance)

    def fixed(matrix: Array, like: Array) -> Array:
        return jnp.broadcast_to(matrix[:, :, None], (size, size, *like.shape))

    def move(g: Array) -> tuple[StateBlocks, Array]:
        return (jnp.ones((size, 1, 1, *g.shape), g.dtype),), fixed(0 * covariance, g)

    read = np.pad(np.eye(size), [(0, 0), (0, 1)], constant_values=np.nan)
    return States(move, lambda t: fixed(covariance, t), read, 1, is_still=True)


def states_at(kernel: Kernel, columns: int) -> States:
    """The states of a kernel of rows, which are times, or times and codes of series."""
    if columns == 2 and _reads_both(kernel):
        cure = "Write .on(0) of kernels of times: Matern32(1.0, 2.0).on(0) * Coregion(weights, 0.1).on(1)."
        fail("a kernel of several series on a line", "of one column each", f"{type(kernel).__name__} of both", cure)
    return states_of(kernel)


def _reads_both(kernel: Kernel) -> bool:
    if isinstance(kernel, (Sum, Product)):
        return _reads_both(kernel.first) or _reads_both(kernel.second)
    return _reads_both(kernel.kernel) if isinstance(kernel, Scaled) else not isinstance(kernel, (Active, Constant))
