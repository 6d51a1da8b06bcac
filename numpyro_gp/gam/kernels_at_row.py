"""Kernels of the terms between one row and all inducing inputs, at all draws of the lengthscales at once.

What depends on inducing inputs alone is found when they are made, so that a row costs a few products.
"""

import operator
from typing import NamedTuple

import numpy as np

from numpyro_gp.checks import fail
from numpyro_gp.gam.column_kernels import atoms, average, deviation
from numpyro_gp.gam.model import Model
from numpyro_gp.gam.row_features import fixed_matrices, inducing_of
from numpyro_gp.gam.table_layout import ReadTerm, is_difference
from numpyro_gp.gam.term_kernels import SMOOTH, count_lengthscales, together
from numpyro_gp.kernels import RBF
from numpyro_gp.kernels.measures import Measure
from numpyro_gp.kernels.profiles import of_average


class AtRow(NamedTuple):
    """A kernel of unit variance at a row: ``k(Z, x) (S, M_c)`` and ``k(x, x) (S,)``, or one for all draws."""

    cross: np.ndarray
    own: np.ndarray


class CurveAtRow(NamedTuple):
    """A curve at draws of its lengthscale: ``k = d(x - z) - (a(x) + a(z) + a(x) a(z) - b) / (1 + b)``.

    Attributes
    ----------
    kind : type
    period : float, optional
    measure : Empirical, Uniform or Gaussian
    lengths : array (S, 1)
    columns : array (Q + M,)
        Points of an empirical measure, of which others have none, and inducing inputs.
    weights : array (Q,)
    a, b : array (S, M), (S, 1)
    """

    kind: type
    period: float | None
    measure: Measure
    lengths: np.ndarray
    columns: np.ndarray
    weights: np.ndarray
    a: np.ndarray
    b: np.ndarray

    @classmethod
    def of(cls, kind: type, given: object, lengths: np.ndarray, Z: np.ndarray) -> "CurveAtRow":
        """Of what `KernelData.column_data` gives."""
        measure, period = given if isinstance(given, tuple) else (given, None)
        kind = RBF if period is not None else kind
        points, weights = atoms(measure)
        columns, size = np.concatenate([points, Z]), len(points)
        bare = cls(kind, period, measure, lengths[:, None], columns, weights, np.zeros(0), np.zeros(0))
        if not size:
            found = [average(kind, measure, float(length), Z) for length in lengths]
            return bare._replace(a=np.stack([one.a for one in found]), b=np.array([[one.b] for one in found]))
        gaps = bare.gaps(points[:, None])
        each = np.stack([weights @ deviation(kind, gaps, float(length))[0] for length in lengths])
        return bare._replace(a=each[:, size:], b=(each[:, :size] @ weights)[:, None])

    def gaps(self, x: object) -> np.ndarray:
        """Distances to all columns, along a chord where they lie on a circle."""
        straight: np.ndarray = np.abs(x - self.columns)
        return straight if self.period is None else np.abs(2 * np.sin(np.pi * straight / self.period))

    def at(self, x: float) -> AtRow:
        """At one value of the column."""
        d, size = deviation(self.kind, self.gaps(x), self.lengths)[0], len(self.weights)
        if size:
            a = d[:, :size] @ self.weights[:, None]
        else:
            lengths, point = self.lengths[:, 0], np.array([x])
            a = np.stack([average(self.kind, self.measure, float(length), point).a for length in lengths])
        return AtRow(d[:, size:] - of_average(a, self.a, self.b), -of_average(a, a, self.b)[:, 0])


class TermAtRow:
    """A term at draws of its lengthscales ``(S, P)``."""

    def __init__(self, model: Model, part: ReadTerm, lengths: np.ndarray) -> None:
        self.kind, self.columns = part.term.kind, list(part.columns)
        self.given, self.Z = model.kernel_data.column_data(part), inducing_of(model, part)
        self.count = count_lengthscales(part) if self.kind in SMOOTH else 0
        if self.kind not in (*SMOOTH, "linear", "factor", "re"):
            cure = "Take fit.predict(data), which knows all terms."
            fail("terms of a fit with a predictor", "curves, surfaces, lines and levels", part.name, cure)
        self.curves = [
            CurveAtRow.of(part.term.kernel, self.given[at], lengths[:, at], self.Z[:, at]) for at in range(self.count)
        ]
        self.levels = self.kind
        if self.curves:
            is_own = not is_difference(part, model.layout.read_terms)
            self.levels = "" if part.term.by is None else "re" if is_own else "factor"
        self._known: dict[bytes, AtRow] = {}

    def at(self, row: np.ndarray) -> AtRow:
        """At an encoded row ``(D,)``."""
        read = row[self.columns]
        found = [curve.at(x) for curve, x in zip(self.curves, read, strict=False)]
        if self.levels:
            found.append(self._fixed(read[self.count :]))
        whole = found[0]
        for one in found[1:]:
            whole = AtRow(*map(together if self.kind == "te" else operator.mul, whole, one))
        return whole

    def _fixed(self, read: np.ndarray) -> AtRow:
        """What no lengthscale moves; of levels kept, since there are few."""
        key = read.tobytes()
        found = self._known.get(key)
        if found is None:
            matrices = fixed_matrices(self.levels, self.given[self.count :], self.Z[:, self.count :], read[None])
            found = AtRow(matrices.cross.value.T, matrices.diagonal.value)
            if len(self._known) > 1000:  # a slope, or a line: of numbers there is no end
                self._known.clear()
            self._known[key] = found
        return found
