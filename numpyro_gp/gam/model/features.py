"""Features of the terms at rows, with their slopes in the lengthscales, in NumPy.

A component with variance ``s^2`` has ``s`` times the features of unit variance, which are found here. A bound is then
linear algebra with a few hundred rows and columns (`gam.bounds`): nothing of it is compiled. Rows that are equal in the
columns of a term are computed once, and so are terms without a lengthscale.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.linalg.blas import dtrmm
from scipy.linalg.lapack import dpotrf, dtrtri

from numpyro_gp.beliefs.members import Stacks
from numpyro_gp.gam.model.column_kernels import (
    Curve,
    MatrixFunction,
    Sloped,
    split_kernel,
    time_matrices,
    without_slopes,
)
from numpyro_gp.gam.model.model import Model, places_of_lengths
from numpyro_gp.gam.model.term_kernels import SMOOTH, composed, count_lengthscales, mean_over
from numpyro_gp.gam.table.layout import ReadTerm, is_difference
from numpyro_gp.gam.table.terms import TIME
from numpyro_gp.kernels.jitter import least_jitter_of
from numpyro_gp.kernels.nonstationary import around_average

# Relative jitter of a Gram matrix that moves with a lengthscale. All here is in double precision, whatever that of JAX
# is; matrices of the other kinds, the constant's, lines, levels, are far from singular and get none.
JITTER = 1e-6
# Of terms of time: of a trend the line has almost all of the variance, and what wanders must not drown in the jitter.
JITTER_OF_TIME = 1e-9
# Rows whose features are held at once, where rows are only summed over.
CHUNK = 8192


class Features(NamedTuple):
    """Of ``C`` components with ``M`` inducing inputs at ``N`` rows, all with unit variance.

    Attributes
    ----------
    values : array (M, N)
        ``L^-1 k(Z, X)``, one component after the other.
    variances : array (C, N)
        ``k_c(x_n, x_n)``.
    slopes : array (P, M, N)
        Of the values in the ``p``-th lengthscale of their own component.
    variance_slopes : array (P, C, N)
    """

    values: np.ndarray
    variances: np.ndarray
    slopes: np.ndarray
    variance_slopes: np.ndarray


def factored(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``L`` and ``L^-1`` of a positive definite matrix ``L L^T``."""
    factor, failed = dpotrf(matrix, lower=1, clean=1)
    if failed:  # what is there then is the factor of a part; a search comes back from such a step
        raise np.linalg.LinAlgError("the matrix must be positive definite")
    return factor, dtrtri(factor, lower=1)[0]


class ComponentRows(NamedTuple):
    """A component at rows: its kernel, moved by so many lengthscales, which of its rows each row is, its jitter."""

    kernel: MatrixFunction
    moved: int
    rows: np.ndarray
    jitter: float = 0.0


class RowFeatures:
    """All components of a model at rows: features at any lengthscales. Those that did not move are kept.

    The jitter is that of `collapsed`: constant, so that the bound has no steps, and none of matrices that are far from
    singular. Or it is that of programs of JAX: the least one of each matrix in their precision.
    """

    def __init__(self, model: Model, X: np.ndarray, is_sloped: bool = True, is_of_programs: bool = False) -> None:
        self.count, self.is_sloped = len(X), is_sloped
        self.jitter, self.of_programs = model.jitter, np.dtype(jnp.result_type(float)) if is_of_programs else None
        self.components = []
        for part in model.layout.read_terms:
            read, count = X[:, list(part.columns)].astype(float), count_lengthscales(part)
            keys = read[:, 0] if len(part.columns) == 1 else read  # which is sorted sooner
            rows, place = np.unique(keys, axis=0, return_inverse=True)
            jitter = JITTER_OF_TIME if part.term.kind in TIME else JITTER if count else 0.0
            kernel = kernel_of(model, part, inducing_inputs_of(model, part), rows.reshape(len(rows), -1), is_sloped)
            self.components.append(ComponentRows(kernel, count, place.reshape(-1), jitter))
        constant = without_slopes(np.ones((2, 2)), 0)
        self.components.append(ComponentRows(lambda _: constant, 0, np.zeros(self.count, int)))
        sizes, ends = model.sizes, np.cumsum(model.sizes)
        self.slices = [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]
        M, C, most = ends[-1], len(sizes), places_of_lengths(model).shape[1] if is_sloped else 0
        shapes = (M, self.count), (C, self.count), (most, M, self.count), (most, C, self.count)
        self.features = Features(*map(np.zeros, shapes))
        self.inverse, self.factor = np.zeros((M, M)), np.zeros((M, M))
        self._lengths: np.ndarray | None = None

    def __call__(self, lengths: np.ndarray) -> tuple[Features, np.ndarray]:
        """Features and ``L^-1 (M, M)`` at lengthscales ``(C, P)``, and ``L`` as ``factor``: blocks of components.

        The next call writes to all of these arrays.
        """
        values, variances, slopes, variance_slopes = self.features
        before, self._lengths = self._lengths, None  # what ends in the middle leaves features of two lengthscales
        for at, (place, own) in enumerate(zip(self.components, self.slices, strict=True)):
            if before is not None and np.array_equal(before[at, : place.moved], lengths[at, : place.moved]):
                continue
            gram, cross, diagonal = split_kernel(place.kernel(lengths[at][: place.moved]))
            size, jitter = len(gram.value), self.jitter  # relative to the mean of the diagonal
            if self.of_programs is not None:
                jitter = least_jitter_of(gram.value, self.of_programs) if jitter is None else jitter
            else:
                jitter = place.jitter if jitter is None or place.jitter == 0 else jitter
            factor, inverse = factored(gram.value + jitter * np.trace(gram.value) / size * np.eye(size))
            whitened = dtrmm(1.0, inverse, cross.value.T, side=1, lower=1, trans_a=1).T  # half of the work of a product
            np.take(whitened, place.rows, axis=1, out=values[own], mode="clip")
            np.take(diagonal.value, place.rows, out=variances[at], mode="clip")
            for slot in range(place.moved if self.is_sloped else 0):
                of_gram = gram.slopes[slot]
                moved = of_gram + jitter * np.trace(of_gram) / size * np.eye(size)
                turn = np.tril(inverse @ moved @ inverse.T)  # dL = L Phi(W dK W^T), the lower half
                turn[np.diag_indices(size)] *= 0.5
                slope = inverse @ cross.slopes[slot] - turn @ whitened
                np.take(slope, place.rows, axis=1, out=slopes[slot, own], mode="clip")
                np.take(diagonal.slopes[slot], place.rows, out=variance_slopes[slot, at], mode="clip")
            self.inverse[own, own], self.factor[own, own] = inverse, factor
        self._lengths = lengths.copy()
        return self.features, self.inverse


def row_chunks(model: Model, X: np.ndarray) -> Iterator[tuple[slice, RowFeatures]]:
    """Rows in chunks."""
    for low in range(0, len(X), CHUNK):
        rows = slice(low, min(low + CHUNK, len(X)))
        yield rows, RowFeatures(model, X[rows])


def inducing_inputs_of(model: Model, part: ReadTerm) -> np.ndarray:
    """Inducing inputs of a term ``(M_c, P)`` in the columns that it reads, as programs of JAX see them."""
    rounded = np.asarray(model.kernel_data.inducing[part.name], jnp.result_type(float))
    return rounded[:, list(part.columns)].astype(float)


def kernel_of(model: Model, part: ReadTerm, Z: np.ndarray, X: np.ndarray, is_sloped: bool = True) -> MatrixFunction:
    """The kernel of a term of unit variance at inducing inputs and rows of its columns, for lengthscales ``(P,)``.

    Without slopes curves and surfaces have none; terms of time have theirs.
    """
    term, given = part.term, model.kernel_data.column_data(part)
    count = count_lengthscales(part)
    if term.kind in TIME:
        return time_matrices(term.kind, given[0], Z[:, 0], X[:, 0])
    if term.kind not in SMOOTH:
        fixed = fixed_matrices(term.kind, given, Z, X)
        return lambda _: fixed
    curves = [Curve(term.kernel, given[at], Z[:, at], X[:, at], is_sloped) for at in range(count)]
    levels = None
    if term.by:
        kind = "factor" if is_difference(part, model.layout.read_terms) else "re"
        levels = fixed_matrices(kind, given[count:], Z[:, count:], X[:, count:], count * is_sloped)

    def kernel(lengths: np.ndarray) -> Sloped:
        found = [curve(float(length)) for curve, length in zip(curves, lengths, strict=True)]
        if count > 1:
            found = [one.at(at, count) for at, one in enumerate(found)]
        return composed(term, found, levels)

    return kernel


def fixed_matrices(kind: str, given: Sequence[object], Z: np.ndarray, X: np.ndarray, count: int = 0) -> Sloped:
    """A kernel that no lengthscale moves: a line, levels around their average, independent levels and their slopes."""
    both, M = np.concatenate([Z, X]), len(Z)
    if kind == "factor":
        table, codes = around_average(np.asarray(given[0], float), np), both[:, 0].astype(int)
        matrix, diagonal = table[np.ix_(codes[:M], codes)], table[codes, codes]
    elif kind == "linear":
        x = both[:, 0] - mean_over(given[0])
        matrix, diagonal = x[:M, None] * x, x * x
    else:
        x = both[:, 1] if both.shape[1] > 1 else np.ones(len(both))
        matrix, diagonal = (Z[:, :1] == both[:, 0]) * x[:M, None] * x, x * x
    return without_slopes(np.vstack([matrix, diagonal]), count)


# --------------------------------------------------------------------------------------
# Features of all terms at rows, at any hyper-parameters, as the engine saw them: in NumPy, so nothing is compiled.


# Rows of one call of a program that computes densities; the last ones of a table are filled up.
ROWS = 512
# Rows whose features are held at once, and numbers in them, at most.
MANY, MANY_NUMBERS = 4096, 600 * 4096


class ScaledFeatures(NamedTuple):
    """Components at rows: features ``A (M, N)`` and prior variances ``(C, N)``, and the factor ``L (M, M)`` in blocks.

    All have their scales.
    """

    A: np.ndarray
    prior: np.ndarray
    factor: np.ndarray


class TermFeatures:
    """The components of a model at rows, in double precision.

    Whitened values belong to the factors of an engine, and so to its jitter: by itself that of programs of JAX.
    """

    def __init__(self, model: Model, is_of_programs: bool = True) -> None:
        self.model, self.dtype, self.is_of_programs = model, np.dtype(jnp.result_type(float)), is_of_programs
        self.sizes = model.sizes
        self.blocks = Stacks.of_sizes(self.sizes)
        self.repeats = np.repeat(np.arange(len(self.sizes)), self.sizes)
        self.step = int(np.clip(MANY_NUMBERS // len(self.repeats), ROWS, MANY))
        self._places = places_of_lengths(model)
        self._first = RowFeatures(model, model.rows.X[:1], False, is_of_programs)
        self.slices = self._first.slices

    def _by_component(self, lengths: np.ndarray) -> np.ndarray:
        """Lengthscales ``(L,)`` by component ``(C, P)``, with ones where one has fewer."""
        return np.append(lengths, 1.0)[self._places]

    def at(self, X: np.ndarray) -> Callable[[np.ndarray, np.ndarray], ScaledFeatures]:
        """The components at these rows, from standard deviations ``(C,)`` and lengthscales ``(L,)``.

        Of a row with NaN, which misses a value, all is NaN.
        """
        lost = np.isnan(X).any(axis=1)
        known = np.where(lost[:, None], self.model.rows.X[0], X) if lost.any() else X
        row_features = RowFeatures(self.model, known, False, self.is_of_programs)

        def features_at(scales: np.ndarray, lengths: np.ndarray) -> ScaledFeatures:
            (values, variances, *_), _ = row_features(self._by_component(lengths))
            own = scales[self.repeats, None]
            A, prior = own * values, scales[:, None] ** 2 * variances
            if known is not X:
                A[:, lost] = prior[:, lost] = np.nan
            return ScaledFeatures(A, prior, own * row_features.factor)

        return features_at

    def roots(self, scales: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``L`` and ``s_c L_c^-1 (M, M)`` in blocks, which times a kernel of unit variance are features."""
        inverse = self._first(self._by_component(lengths))[1]
        return scales[self.repeats, None] * self._first.factor, scales[self.repeats, None] * inverse
