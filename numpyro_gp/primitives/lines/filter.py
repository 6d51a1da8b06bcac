"""Linear time: rows of many chunks of a line move together, and a short filter runs over the chunks.

Rows are cut into chunks of consecutive ones, and all chunks are filtered side by side, one row of each at a time, given
the state ``x`` at their start: what a chunk says of it, ``exp(k + h . x - x . J x / 2)``, and what the state at its end
is given ``x``, ``N(F x + c, C)``. These follow from each other by rules for one row alone, and a filter over the chunks
does the rest (mathematics.md section 17.3). A datum is a factor ``exp(-w (y - f)^2 / 2)``, ``w`` being 0 where nothing
is seen. Where rows are of several series, ``read (S, C)`` has a column for each, and rows their code; else codes are
None.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import solve_triangular
from jaxtyping import Float

from numpyro_gp.arrays import Array
from numpyro_gp.primitives.lines.states import StateBlocks, States, mm, rows_of, times, transposed, turned

MOST_CHUNKS = 256
# ``F, c, C, J, h, k`` of the chunks.
Said = tuple[Array, Array, Array, Array, Array, Array]
ScannedRows = tuple[StateBlocks, Array, Array, Array, Array | None]


class Rows(NamedTuple):
    """Sorted rows and the states of their process.

    Attributes
    ----------
    states : States
    gaps : Array (N,)
        From the row before; 0 of the first.
    first : Array ()
        Time of the first row.
    codes : Array (N,) or None
        The series of each row, where there are several.
    """

    states: States
    gaps: Float[Array, " N"]
    first: Array
    codes: Array | None

    @property
    def chunks(self) -> int:
        """Number of chunks: some half of the root of N, a power of two."""
        return min(MOST_CHUNKS, 2 ** max(0, int(np.log2(len(self.gaps))) // 2 - 1))

    @property
    def prior(self) -> Array:
        """Covariance ``(S, S)`` of the state at the first row."""
        return self.states.start(self.first[None])[:, :, 0].astype(self.gaps.dtype)

    @property
    def read(self) -> Array:
        """``f`` of the states, ``(S, N)``, or ``(S, 1)`` for all rows."""
        return read_at(self.states.read, self.codes)

    def data(self, y: Array, w: Array) -> ScannedRows:
        """Moves, data, precisions and codes of all rows, cut into chunks."""
        return *self.moves(), self.cut(y), self.cut(w), None if self.codes is None else self.cut(self.codes)

    def cut(self, values: Array) -> Array:
        """Values ``(..., N)`` as ``(L, ..., chunks)``; those that are missing are 0."""
        length = -(-values.shape[-1] // self.chunks)
        missing = self.chunks * length - values.shape[-1]
        padded = jnp.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, missing)])
        return jnp.moveaxis(padded.reshape(*values.shape[:-1], self.chunks, length), -1, 0)

    def joined(self, values: Array) -> Array:
        """The way back: ``(L, ..., chunks)`` as ``(..., N)``."""
        whole = jnp.moveaxis(values, 0, -1)
        return whole.reshape(*whole.shape[:-2], -1)[..., : len(self.gaps)]

    def moves(self) -> tuple[StateBlocks, Array]:
        """``A`` by its blocks, and ``Q (L, S, S, chunks)``, of all rows; missing ones have no gap, and stay."""
        moves: tuple[StateBlocks, Array] = jax.vmap(self.states.move)(self.cut(self.gaps))
        return moves


def read_at(read: np.ndarray, codes: Array | None) -> Array:
    """``f`` of the states of rows of these series, ``(S, n)``."""
    return jnp.asarray(read) if codes is None else jnp.take(read, codes, axis=1, mode="clip")


def _dot(read: Array, vector: Array) -> Array:
    return jnp.sum(read * vector, axis=0)


def _mv(matrix: Array, vector: Array) -> Array:
    return jnp.sum(matrix * vector[None], axis=1)


def _moved_state(A: StateBlocks, Q: Array, mean: Array, covariance: Array) -> tuple[Array, Array]:
    """A state ``N(c, C)`` after a move."""
    return _moved_mean(A, mean), times(A, transposed(times(A, covariance))) + Q


def _moved_mean(A: StateBlocks, vector: Array) -> Array:
    return times(A, vector[:, None])[:, 0]


def _dyads(A: StateBlocks, first: Array, second: Array) -> StateBlocks:
    """``first second^T`` of ``(S, T, n)``, where ``A`` has blocks."""
    pairs = zip(rows_of(A, first), rows_of(A, second), strict=True)
    return tuple(jnp.sum(one[:, :, None] * two[:, None], axis=3) for one, two in pairs)


class Datum(NamedTuple):
    """What a datum does to a state ``N(c, C)``: innovation, weight of it, ``C read``, and its log density."""

    error: Array
    weight: Array
    column: Array
    log_density: Array

    @classmethod
    def of(cls, read: Array, mean: Array, covariance: Array, y: Array, w: Array) -> "Datum":
        column = _mv(covariance, read)
        share = 1 / (1 + w * _dot(read, column))
        error = y - _dot(read, mean)
        return cls(error, w * share, column, 0.5 * (jnp.log(share) - w * share * error * error))

    def known(self, mean: Array, covariance: Array) -> tuple[Array, Array]:
        """The state given the datum."""
        gain = self.weight[None] * self.column
        return mean + gain * self.error[None], covariance - gain[:, None] * self.column[None]


def _said(read: np.ndarray, A: StateBlocks, Q: Array, y: Array, w: Array, codes: Array | None) -> Said:
    """``F, c, C, J, h, k`` of the chunks, whose axis is the first."""
    size, count, dtype = len(read), y.shape[-1], y.dtype

    def step(carry: Said, row: ScannedRows) -> tuple[Said, None]:
        F, c, C, J, h, k = carry
        A, Q, y, w, code = row
        F, (c, C) = times(A, F), _moved_state(A, Q, c, C)
        reading = read_at(read, code)
        datum = Datum.of(reading, c, C, y, w)
        seen = jnp.sum(reading[:, None] * F, axis=0)
        J = J + datum.weight[None, None] * seen[:, None] * seen[None]
        h = h + (datum.weight * datum.error)[None] * seen
        F = F - (datum.weight[None] * datum.column)[:, None] * seen[None]
        return (F, *datum.known(c, C), J, h, k + datum.log_density), None

    none, zero = jnp.zeros((size, size, count), dtype), jnp.zeros((size, count), dtype)
    start = (none + jnp.eye(size, dtype=dtype)[:, :, None], zero, none, none, zero, jnp.zeros(count, dtype))
    found, _ = lax.scan(step, start, (A, Q, y, w, codes))
    F, c, C, J, h, k = (jnp.moveaxis(part, -1, 0) for part in found)
    return F, c, C, J, h, k


def _root(covariance: Array) -> Array:
    """``L`` of a covariance ``L L^T`` of any rank: a pivot that is no more than rounding leaves of one is none."""
    least = len(covariance) * jnp.finfo(covariance.dtype).eps * jnp.diag(covariance)

    def column(left: Array, j: Array) -> tuple[Array, Array]:
        is_there = ~(left[j, j] <= least[j])  # or no number, which stays
        found = jnp.where(is_there, left[:, j] * lax.rsqrt(jnp.where(is_there, left[j, j], 1)), 0)
        return left - found[:, None] * found[None], found

    return lax.scan(column, covariance, jnp.arange(len(covariance)))[1].T


def _conditioned(m: Array, P: Array, h: Array, J: Array) -> tuple[Array, Array, Array]:
    """``N(m, P)`` times ``exp(h . x - x . J x / 2)``: its mean, its covariance, and the log of its integral.

    With a root of ``P`` all is positive, whatever rounding does.
    """
    root, left = _root(P), h - J @ m
    factor = jnp.linalg.cholesky(jnp.eye(len(m), dtype=m.dtype) + root.T @ J @ root)
    solved = solve_triangular(factor, root.T, lower=True)
    moved = solved @ left
    log = h @ m - 0.5 * m @ (J @ m) + 0.5 * moved @ moved - jnp.sum(jnp.log(jnp.diag(factor)))
    return m + moved @ solved, solved.T @ solved, log


def _starts(prior: Array, said: Said) -> tuple[Array, tuple[Array, Array], tuple[Array, Array]]:
    """Log of the integral of all factors, and states ``N(m, P)`` given earlier data: at starts of chunks, and last.

    Those at the starts have their chunks last.
    """

    def step(carry: tuple[Array, Array, Array], chunk: Said) -> tuple[tuple[Array, Array, Array], tuple[Array, Array]]:
        (m, P, total), (F, c, C, J, h, k) = carry, chunk
        mean, covariance, log = _conditioned(m, P, h, J)
        return (F @ mean + c, F @ covariance @ F.T + C, total + k + log), (m, P)

    zero = jnp.zeros(prior.shape[:1], prior.dtype)
    (m, P, total), starts = lax.scan(step, (zero, prior, zero[0]), said)
    return total, (jnp.moveaxis(starts[0], 0, -1), jnp.moveaxis(starts[1], 0, -1)), (m, P)


def _told_later(said: Said) -> tuple[Array, Array]:
    """``h`` and ``J`` of what later chunks say of the state at the end of each; chunks are last."""

    def step(later: tuple[Array, Array], chunk: Said) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        (h, J), (F, c, C, own_J, own_h, _) = later, chunk
        told = jnp.linalg.solve(jnp.eye(len(h), dtype=h.dtype) + C @ J, F).T  # F^T (I + J C)^-1
        return (own_h + told @ (h - J @ c), own_J + told @ J @ F), later

    nothing = jnp.zeros_like(said[1][0]), jnp.zeros_like(said[2][0])
    h, J = lax.scan(step, nothing, said, reverse=True)[1]
    return jnp.moveaxis(h, 0, -1), jnp.moveaxis(J, 0, -1)


def _filter(
    read: np.ndarray, starts: tuple[Array, ...], A: StateBlocks, Q: Array, y: Array, w: Array, codes: Array | None
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """States given the data up to the row before, and moved to the row: means and covariances ``(L, ..., chunks)``."""

    def step(
        carry: tuple[Array, ...], row: ScannedRows
    ) -> tuple[tuple[Array, ...], tuple[tuple[Array, Array], tuple[Array, Array]]]:
        (m, P), (A, Q, y, w, code) = carry, row
        moved = _moved_state(A, Q, m, P)
        return Datum.of(read_at(read, code), *moved, y, w).known(*moved), ((m, P), moved)

    return lax.scan(step, starts, (A, Q, y, w, codes))[1]


def log_integral(rows: Rows, y: Float[Array, " N"], w: Float[Array, " N"]) -> Float[Array, ""]:
    """``log E exp(-sum_i w_i (y_i - f_i)^2 / 2)``, whose gradients say what is known of each ``f_i``."""
    return _log_integral(rows.states.read, rows.prior, *rows.data(y, w))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _log_integral(
    read: np.ndarray, prior: Array, A: StateBlocks, Q: Array, y: Array, w: Array, codes: Array | None
) -> Array:
    return _starts(prior, _said(read, A, Q, y, w, codes))[0]


@_log_integral.defjvp
def _log_integral_jvp(read: np.ndarray, primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
    """Slopes by one pass forward and one back, in place of those of each operation.

    With ``l`` and ``-L`` the slope and the curvature of the logarithm in the mean of a state before its datum, that in
    its covariance is ``B = (l l^T - L) / 2``, as that in ``Q`` is; in ``A`` it is ``l m^T + 2 B A P``.
    """
    prior, A, Q, y, w, codes = primals
    said = _said(read, A, Q, y, w, codes)
    total, starts, last = _starts(prior, said)
    h, J = _told_later(said)
    (m, P), _ = _filter(read, starts, A, Q, y, w, codes)
    ends = [jnp.concatenate([part[..., 1:], end[..., None]], axis=-1) for part, end in zip(starts, last, strict=True)]

    def slopes_of_end(m: Array, P: Array, h: Array, J: Array) -> tuple[Array, Array]:
        """Slope and minus the curvature in ``m`` of ``log E exp(h . x - x . J x / 2)``, ``x ~ N(m, P)``."""
        mixed, right = jnp.eye(len(m), dtype=m.dtype) + J @ P, jnp.concatenate([J, (h - J @ m)[:, None]], axis=1)
        solved = jnp.linalg.solve(mixed, right)
        return solved[:, -1], 0.5 * (solved[:, :-1] + solved[:, :-1].T)

    slope, curvature = jax.vmap(slopes_of_end, in_axes=-1, out_axes=-1)(ends[0], ends[1], h, J)

    def back(carry: tuple[Array, Array], row: tuple[Any, ...]) -> tuple[tuple[Array, Array], tuple[Any, ...]]:
        (slope, curvature), (A, Q, y, w, code, m, P) = carry, row
        PA, reading = transposed(times(A, P)), read_at(read, code)
        before, covariance = _moved_mean(A, m), times(A, PA) + Q
        datum = Datum.of(reading, before, covariance, y, w)
        gain = datum.weight[None] * datum.column
        pull = jnp.sum(gain * slope, axis=0)
        d_y = pull - datum.weight * datum.error
        slope = slope - d_y[None] * reading
        # ``(I - gain r^T)^T L (I - gain r^T) + w r r^T``, one factor after the other.
        curvature = curvature - _mv(curvature, gain)[:, None] * reading[None]
        own = datum.weight[None] * reading - jnp.sum(gain[:, None] * curvature, axis=0)
        curvature = curvature + reading[:, None] * own[None]
        d_Q = 0.5 * (slope[:, None] * slope[None] - curvature)
        # ``l m^T + 2 B A P``, its two terms side by side.
        d_A = _dyads(A, jnp.concatenate([slope[:, None], 2 * d_Q], axis=1), jnp.concatenate([m[:, None], PA], axis=1))
        value = _dot(reading, before) + jnp.sum(datum.column * slope, axis=0)
        left = _dot(reading, datum.column) - jnp.sum(datum.column * _mv(curvature, datum.column), axis=0)
        d_w = -0.5 * (jnp.square(y - value) + left)
        carry = _moved_mean(turned(A), slope), times(turned(A), transposed(times(turned(A), curvature)))
        return carry, (d_A, d_Q, d_y, d_w)

    (slope, curvature), slopes = lax.scan(back, (slope, curvature), (A, Q, y, w, codes, m, P), reverse=True)
    d_prior = 0.5 * (slope[:, None, 0] * slope[None, :, 0] - curvature[..., 0])
    changes = jax.tree.map(lambda slope, tangent: jnp.sum(slope * tangent), (d_prior, *slopes), tangents[:5])
    return total, jnp.sum(jnp.stack(jax.tree.leaves(changes)))


class Filtered(NamedTuple):
    """What data say of the states at all rows.

    Attributes
    ----------
    mean, covariance : Array (S, N), (S, S, N)
        Of the state given the data before the row.
    h, J : Array (S, N), (S, S, N)
        ``exp(h . x - x . J x / 2)`` is what the data behind the row say of the state there.
    """

    mean: Array
    covariance: Array
    h: Array
    J: Array


def filtered(rows: Rows, y: Array, w: Array) -> Filtered:
    """What data say of the states at all rows: those before each, and those behind it."""
    read, data = rows.states.read, rows.data(y, w)
    said = _said(read, *data)
    _, starts, _ = _starts(rows.prior, said)
    mean, covariance = _filter(read, starts, *data)[1]

    def back(later: tuple[Array, Array], row: ScannedRows) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        (h, J), (A, Q, y, w, code) = later, row
        return told_before(A, Q, *with_datum(read_at(read, code), h, J, y, w)), (h, J)

    _, (h, J) = lax.scan(back, _told_later(said), data, reverse=True)
    return Filtered(*map(rows.joined, (mean, covariance, h, J)))


def at_the_end(rows: Rows, y: Array, w: Array) -> tuple[Array, Array]:
    """Mean ``(S,)`` and covariance ``(S, S)`` of the state at the last row, given all data."""
    return _starts(rows.prior, _said(rows.states.read, *rows.data(y, w)))[2]


def told(
    states: States, state: tuple[Array, Array], gaps: Array, y: Array, w: Array, read: Array
) -> tuple[Array, Array]:
    """The state ``N(m, P)`` after more data in the order of time, ``gaps (B,)`` apart, which ``read (S, B)`` it."""

    def step(state: tuple[Array, Array], row: tuple[Any, ...]) -> tuple[tuple[Array, Array], None]:
        A, Q, y, w, read = row
        mean, covariance = _moved_state(A, Q, *state)
        datum = Datum.of(read, mean, covariance, y, w)
        gain = datum.weight[None] * datum.column
        kept = jnp.eye(len(gain), dtype=gain.dtype)[:, :, None] - gain[:, None] * read[None]
        # A sum of positive terms, in place of `Datum.known`: however many data come, it stays positive.
        covariance = mm(kept, mm(covariance, transposed(kept))) + gain[:, None] * gain[None] / w[None, None]
        return (mean + gain * datum.error[None], covariance), None

    rows = *states.move(gaps), y, w, jnp.broadcast_to(read, (states.size, len(y)))
    each = jax.tree.map(lambda part: jnp.moveaxis(part, -1, 0)[..., None], rows)
    mean, covariance = lax.scan(step, (state[0][:, None], state[1][:, :, None]), each)[0]
    return mean[:, 0], covariance[:, :, 0]


def behind(states: States, state: tuple[Array, Array], gaps: Array, read: Array) -> tuple[Array, Array]:
    """Mean and variance ``(B,)`` of what is ``read (S, B)`` of states at times behind one ``N(m, P)``."""
    mean, covariance = _moved_state(*states.move(gaps), state[0][:, None], state[1][:, :, None])
    return _dot(read, mean), _dot(read, _mv(covariance, read))


def with_datum(read: Array, h: Array, J: Array, y: Array, w: Array) -> tuple[Array, Array]:
    """What is said of a state with what its own datum says."""
    return h + (w * y)[None] * read, J + w[None, None] * (read[:, None] * read[None])


def told_before(A: StateBlocks, Q: Array, h: Array, J: Array) -> tuple[Array, Array]:
    """What ``exp(h . x - x . J x / 2)`` says of the state before the move that led to ``x``; axes ``n`` are last."""
    mixed = jnp.eye(len(h), dtype=h.dtype)[:, :, None] + mm(J, Q)
    right = jnp.concatenate([transposed(times(turned(A), J)), h[:, None]], axis=1)
    told = times(turned(A), jax.vmap(jnp.linalg.solve, in_axes=-1, out_axes=-1)(mixed, right))
    J = told[:, :-1]
    return told[:, -1], 0.5 * (J + transposed(J))


def at_new_rows(
    rows: Rows, known: Filtered, read: Array, y: Array, w: Array, t: Array, place: Array, gaps: Array
) -> tuple[Array, Array]:
    """Mean and variance ``(B,)`` of what is ``read (S, B)`` of states at new times ``t``.

    They are behind the sorted rows ``place``, -1 for none; ``gaps`` ``(B, 2)`` are to that row and to the next.
    """
    states, last = rows.states, len(rows.gaps) - 1
    at, behind = jnp.maximum(place, 0), jnp.minimum(place + 1, last)

    def read_near(row: Array) -> Array:
        return read_at(states.read, None if rows.codes is None else rows.codes[row])

    mean, covariance = known.mean[:, at], known.covariance[:, :, at]
    mean, covariance = Datum.of(read_near(at), mean, covariance, y[at], w[at]).known(mean, covariance)
    mean, covariance = _moved_state(*states.move(gaps[:, 0]), mean, covariance)
    mean = jnp.where(place[None] >= 0, mean, 0)
    covariance = jnp.where(place[None, None] >= 0, covariance, states.start(t))
    later = with_datum(read_near(behind), known.h[:, behind], known.J[:, :, behind], y[behind], w[behind])
    h, J = told_before(*states.move(gaps[:, 1]), *later)
    is_between = (place < last)[None]
    later = jnp.where(is_between, h, 0), jnp.where(is_between[None], J, 0)
    return values_with(read, mean, covariance, *later)


def values_with(read: Array, mean: Array, covariance: Array, h: Array, J: Array) -> tuple[Array, Array]:
    """Mean and variance ``(n,)`` of ``f`` for states ``N(m, P)`` times ``exp(h . x - x . J x / 2)``."""
    mean, covariance, _ = jax.vmap(_conditioned, in_axes=-1, out_axes=-1)(mean, covariance, h, J)
    return _dot(read, mean), _dot(read, _mv(covariance, read))


def whitened_to_values(rows: Rows, noise: Float[Array, " N"], white: Float[Array, " N"]) -> Float[Array, " N"]:
    """``L v`` of the factor ``L`` of ``k + diag(noise)``, rows in the order of time: each from those before it."""
    data = rows.data(jnp.zeros_like(white), 1 / noise)
    _, starts, _ = _starts(rows.prior, _said(rows.states.read, *data))
    column = _mv(rows.joined(_filter(rows.states.read, starts, *data)[1][1]), rows.read)
    deviation = jnp.sqrt(_dot(rows.read, column) + noise)
    push = column * (white / deviation)[None]
    states = _accumulated(rows, data[0], push) - push
    return _dot(rows.read, states) + deviation * white


def drawn_from_prior(rows: Rows, white: Float[Array, "S N"]) -> Float[Array, " N"]:
    """``f`` at the rows, of standard normal noise for each number of each state; rows may tie."""
    A, Q = rows.moves()
    noise = jnp.concatenate([rows.prior[:, :, None], rows.joined(Q)[..., 1:]], axis=-1)
    values, vectors = jnp.linalg.eigh(jnp.moveaxis(noise, -1, 0))
    push = jnp.einsum("nij,nj,jn->in", vectors, jnp.sqrt(jnp.maximum(values, 0)), white)
    return _dot(rows.read, _accumulated(rows, A, push))


def _accumulated(rows: Rows, A: StateBlocks, push: Float[Array, "S N"]) -> Float[Array, "S N"]:
    """``x_i = A_i x_(i-1) + push_i`` at all rows, from zero."""
    pushes = rows.cut(push)

    def within(x: Array, row: tuple[StateBlocks, Array]) -> tuple[Array, Array]:
        A, push = row
        x = _moved_mean(A, x) + push
        return x, x

    def product(whole: Array, A: StateBlocks) -> tuple[Array, None]:
        return times(A, whole), None

    def over_chunks(x: Array, chunk: tuple[Array, Array]) -> tuple[Array, Array]:
        A, end = chunk
        return A @ x + end, x

    zeros = jnp.zeros_like(pushes[0])
    ends, _ = lax.scan(within, zeros, (A, pushes))
    eye = jnp.broadcast_to(jnp.eye(len(zeros), dtype=push.dtype)[:, :, None], (len(zeros), *zeros.shape))
    whole, _ = lax.scan(product, eye, A)
    _, starts = lax.scan(over_chunks, zeros[:, 0], (jnp.moveaxis(whole, -1, 0), ends.T))
    _, states = lax.scan(within, starts.T, (A, pushes))
    return rows.joined(states)
