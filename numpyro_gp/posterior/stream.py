"""A process on a line behind its rows, as data go on: a filter takes each new datum in constant time."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import check_array, check_finite, check_positive, fail, is_known
from numpyro_gp.likelihoods import Gaussian
from numpyro_gp.neighbours.value import NewRows
from numpyro_gp.posterior.chunks import Chunks
from numpyro_gp.posterior.prediction import Prediction
from numpyro_gp.posterior.tracing import AskedProcess, Draw, draws_of
from numpyro_gp.primitives.lines.line_process import LineEnd
from numpyro_gp.primitives.lines.value import Line, read_rows
from numpyro_gp.primitives.lines.value import line as line_of
from numpyro_gp.primitives.neighbours.local_process import LocalProcess
from numpyro_gp.programs.compiled import compiled
from numpyro_gp.sites import Observation, normal_of


@compiled
def _told(ends: LineEnd, rows: Array, gaps: Array, y: Array, variances: Array) -> LineEnd:
    return jax.vmap(lambda end, variance: end.told(rows, gaps, y, variance))(ends, variances)


@compiled
def _at(ends: LineEnd, rows: Array, gaps: Array, variances: Array) -> Observation:
    def one(end: LineEnd, variance: Array) -> Observation:
        mean, spread = end.at(rows, gaps)
        return Observation(normal_of(mean, jnp.sqrt(spread)), Gaussian(jnp.sqrt(variance)))

    return jax.vmap(one)(ends, variances)


def _at_last_row(line: Line) -> Line:
    """The line of the last row alone, from which later ones are found."""
    return Line(line.inputs[line.order[-1:]], jnp.zeros_like(line.order[:1]), line.gaps[:1], line.times[-1:])


class LineStream:
    """Predictions behind the data so far, as `Predictor.observe` returns it.

    Call it at times behind the last datum. ``observe`` returns another one, with more data: this one stays. Draws of
    the hyper-parameters stay as they were in the fit.
    """

    @classmethod
    def behind(cls, asked: AskedProcess, index: np.ndarray, line: Line, key: Array) -> "LineStream":
        """What is behind the rows of a fit: one filter over all of them."""

        def end(process: Any, _: Draw) -> LineEnd:
            if not isinstance(process, LocalProcess) or process.noise is None:
                cure = "Fit with more rows: pseudo-data of other likelihoods are found by natural steps."
                fail("a predictor that takes data", "of Gaussian data, a gp_regression", "another one", cure, TypeError)
            return LineEnd.of(process.data)

        return cls(key, asked.name, asked.at_each(end, draws_of(key, index)), _at_last_row(line))

    def __init__(self, key: Array, name: str | None, ends: LineEnd, last: Line) -> None:
        self._key, self._name, self._ends, self._last = key, name, ends, last

    def __call__(self, t_new: ArrayLike, noise_variance: ArrayLike | None = None) -> Prediction:
        """Predict new data at times ``(B,)``, or rows of times and codes, behind the last datum."""
        new = self._last.find(self._rows("t_new", t_new))
        rows = new.inputs
        chunk = _at(self._ends, rows, new.gaps[:, 0], self._variances(noise_variance, len(rows)))
        _check_codes("t_new", chunk.mean_latent)
        return Prediction.of_chunks(Chunks(None, [chunk], [len(rows)]), self._key, -1, None, self._name)

    def observe(self, t: ArrayLike, y: ArrayLike, noise_variance: ArrayLike | None = None) -> "LineStream":
        """Go on with a datum, or several: times as in the fit, and data ``(B,)``."""
        line = line_of(self._rows("t", t))
        values = check_array("y", y)
        check_finite("y", values)
        if values.size != line.size or values.ndim > 1:
            cure = "Pass one number for each time, as y.ravel() of a column."
            fail("y", f"of shape ({line.size},), one datum for each time", f"shape {values.shape}", cure)
        gaps = line.gaps.at[0].set(line.times[0] - self._last.times[0])
        variances = self._variances(noise_variance, line.size)[:, line.order]
        data = values.reshape(-1).astype(gaps.dtype)[line.order]
        ends = _told(self._ends, line.inputs[line.order], gaps, data, variances)
        _check_codes("t", ends.state[0])
        return LineStream(self._key, self._name, ends, _at_last_row(line))

    def _rows(self, argument: str, t: Any) -> np.ndarray:
        """Times, or rows of times and codes, behind the last datum; one of them may be given alone."""
        if isinstance(t, (Line, NewRows)):
            cure = (
                "Pass the times. For slopes call posterior.predict_at with line.find(t_new, slope=True) and all rows."
            )
            fail(argument, "times", f"a {type(t).__name__}", cure, TypeError)
        if not is_known(t):
            fail(argument, "known", "a traced array", "Call it outside of jit.", TypeError)
        given, columns, last = np.atleast_1d(t), self._last.inputs.shape[1], self._last.times
        given = given[None] if given.ndim == 1 and columns == 2 else given
        rows = read_rows(argument, given, columns, last)
        if (first := rows[:, 0].min()) < last[0]:
            cure = "Call posterior.predict_at with the line of all rows: it smooths."
            fail(argument, f"times behind the last datum, at {last[0]:.12g}", f"{first:.12g}", cure)
        return rows

    def _variances(self, given: ArrayLike | None, count: int) -> Array:
        """Noise variances ``(S, B)`` of so many data."""
        noise = self._ends.noise if given is None else jnp.asarray(check_positive("noise_variance", given))
        draws = self._ends.state[0].shape[0]
        if given is None and noise.ndim > 1:
            cure = "Pass noise_variance=0.1, or one variance for each row."
            fail("noise_variance", "given for the new data", "a variance for each row of the fit", cure)
        if given is not None and noise.shape not in ((), (1,), (count,)):
            cure = "Pass one variance, or one for each row."
            fail("noise_variance", f"a number or of shape ({count},)", f"shape {noise.shape}", cure)
        return jnp.broadcast_to(noise[:, None] if given is None else noise, (draws, count))


def _check_codes(argument: str, found: Array) -> None:
    """Refuse rows of no series of the kernel, which have no number, before a state has none for good."""
    if np.isnan(np.asarray(found)).any():
        fail(argument, "of series that the kernel has", "codes of others", "Pass codes of the fit.")
