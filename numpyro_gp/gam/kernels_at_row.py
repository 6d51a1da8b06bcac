"""Kernels of the terms between one row and all inducing inputs, at all draws of the lengthscales at once.

What depends on inducing inputs alone is found when they are made, so that a row costs a few products.
"""

from dataclasses import dataclass

import numpy as np

from numpyro_gp.checks import fail
from numpyro_gp.gam.column_kernels import Curve, Entries, average, deviation, distances
from numpyro_gp.gam.model import Model
from numpyro_gp.gam.row_features import fixed_matrices, inducing_of
from numpyro_gp.gam.table_layout import ReadTerm, is_difference
from numpyro_gp.gam.term_kernels import composed, count_lengthscales
from numpyro_gp.gam.terms import TIME
from numpyro_gp.kernels.profiles import of_average


@dataclass(frozen=True)
class AtRow(Entries):
    """A kernel of unit variance at a row: ``k(Z, x) (S, M_c)`` and ``k(x, x) (S,)``, or one for all draws."""

    cross: np.ndarray
    own: np.ndarray


class CurveAtRow:
    """A `Curve` at draws of its lengthscale ``(S,)``, whose averages ``a (S, M)``, ``b (S, 1)`` are found once."""

    def __init__(self, kind: type, given: object, lengths: np.ndarray, Z: np.ndarray) -> None:
        self.curve, self.lengths = Curve(kind, given, Z, Z[:0]), lengths
        kind, gaps = self.curve.kind, self.curve.gaps
        found = [self.curve.average(one, deviation(kind, gaps, one, is_sloped=False)) for one in map(float, lengths)]
        self.a, self.b = np.stack([one.a.value for one in found]), np.array([[one.b.value] for one in found])

    def at(self, x: float) -> AtRow:
        """At one value of the column."""
        curve, size = self.curve, len(self.curve.weights)
        gaps = distances(x, curve.columns, curve.period)
        d = deviation(curve.kind, gaps, self.lengths[:, None], is_sloped=False).value
        if size:
            a = d[:, :size] @ curve.weights[:, None]
        else:
            point = np.array([x])
            a = np.stack([average(curve.kind, curve.measure, float(length), point).a.value for length in self.lengths])
        return AtRow(d[:, size:] - of_average(a, self.a, self.b), -of_average(a, a, self.b)[:, 0])


class TermAtRow:
    """A term at draws of its lengthscales ``(S, P)``."""

    def __init__(self, model: Model, part: ReadTerm, lengths: np.ndarray) -> None:
        self.term, self.columns, self.count = part.term, list(part.columns), count_lengthscales(part)
        self.given, self.Z = model.kernel_data.column_data(part), inducing_of(model, part)
        if part.term.kind in TIME:
            cure = "Take fit.predict(data), which knows all terms."
            fail("terms of a fit with a predictor", "curves, surfaces, lines and levels", part.name, cure)
        kind, every = part.term.kernel, range(self.count)
        self.curves = [CurveAtRow(kind, self.given[at], lengths[:, at], self.Z[:, at]) for at in every]
        of_levels = "factor" if is_difference(part, model.layout.read_terms) else "re" if part.term.by else ""
        self.levels = of_levels if self.curves else part.term.kind
        self._known: dict[bytes, AtRow] = {}

    def at(self, row: np.ndarray) -> AtRow:
        """At an encoded row ``(D,)``."""
        read = row[self.columns]
        if not self.curves:
            return self._fixed(read)
        curves = [curve.at(x) for curve, x in zip(self.curves, read, strict=False)]
        return composed(self.term, curves, self._fixed(read[self.count :]) if self.levels else None)

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
