"""A process on a line behind its rows, as data go on: a filter takes each new datum in constant time."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import check_array, check_finite, check_positive, fail
from numpyro_gp.likelihoods import Gaussian
from numpyro_gp.posterior.chunks import Chunks
from numpyro_gp.posterior.prediction import Prediction
from numpyro_gp.posterior.tracing import AskedProcess, Draw, draws_of
from numpyro_gp.primitives.lines.line_process import LineEnd
from numpyro_gp.primitives.lines.value import Line
from numpyro_gp.primitives.lines.value import line as line_of
from numpyro_gp.primitives.neighbours.local_process import LocalProcess
from numpyro_gp.programs.compiled import compiled
from numpyro_gp.sites import Observation, normal_of

CURE = "Call posterior.predict_at with the line of all rows: it smooths."


@compiled
def _told(ends: LineEnd, rows: Array, gaps: Array, y: Array, variances: Array) -> LineEnd:
    return jax.vmap(lambda end, variance: end.told(rows, gaps, y, variance))(ends, variances)


@compiled
def _at(ends: LineEnd, rows: Array, gaps: Array, variances: Array) -> Observation:
    def one(end: LineEnd, variance: Array) -> Observation:
        mean, spread = end.at(rows, gaps)
        return Observation(normal_of(mean, jnp.sqrt(spread)), Gaussian(jnp.sqrt(variance)))

    return jax.vmap(one)(ends, variances)


def _last_row(line: Line) -> Line:
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

        return cls(key, asked.name, asked.at_each(end, draws_of(key, index)), _last_row(line))

    def __init__(self, key: Array, name: str | None, ends: LineEnd, last: Line) -> None:
        self._key, self._name, self._ends, self._last = key, name, ends, last

    def __call__(self, t_new: ArrayLike, noise_variance: ArrayLike | None = None) -> Prediction:
        """Predict new data at times ``(B,)``, or rows of times and codes, behind the last datum."""
        new = self._last.find(self._rows(t_new))
        if np.any(np.asarray(new.index) < 0):
            fail("t_new", "behind the last datum", "earlier times", CURE)
        rows = new.inputs
        chunk = _at(self._ends, rows, new.gaps[:, 0], self._variances(noise_variance, len(rows)))
        if np.isnan(np.asarray(chunk.mean_latent)).any():
            fail("t_new", "of series that the kernel has", "codes of others", "Pass codes of the fit.")
        return Prediction.of_chunks(Chunks(None, [chunk], [len(rows)]), self._key, -1, None, self._name)

    def observe(self, t: ArrayLike, y: ArrayLike, noise_variance: ArrayLike | None = None) -> "LineStream":
        """Go on with a datum, or several: times as in the fit, and data ``(B,)``."""
        new = line_of(self._rows(t))
        if np.shape(new.inputs)[1] != np.shape(self._last.inputs)[1] or new.times[0] < self._last.times[0]:
            fail("t", "times behind the last datum, with a code where the fit has codes", "others", CURE)
        values = check_array("y", y)
        check_finite("y", values)
        if values.size != new.size or values.ndim > 1:
            fail("y", f"of shape ({new.size},), one datum for each time", f"shape {values.shape}", "Pass all of them.")
        gaps = new.gaps.at[0].set(new.times[0] - self._last.times[0])
        variances = self._variances(noise_variance, new.size)[:, new.order]
        data = values.reshape(-1).astype(gaps.dtype)[new.order]
        ends = _told(self._ends, new.inputs[new.order], gaps, data, variances)
        return LineStream(self._key, self._name, ends, _last_row(new))

    def _rows(self, t: ArrayLike) -> Any:
        """Times, or rows of times and codes, where one of them may be given alone."""
        given = np.atleast_1d(t)
        return given[None] if given.ndim == 1 and self._last.inputs.shape[1] == 2 else given

    def _variances(self, given: ArrayLike | None, count: int) -> Array:
        """Noise variances ``(S, B)`` of so many data."""
        noise = self._ends.noise if given is None else jnp.asarray(check_positive("noise_variance", given))[None]
        if given is None and noise.ndim > 1:
            cure = "Pass noise_variance=0.1, or one variance for each row."
            fail("noise_variance", "given for the new data", "a variance for each row of the fit", cure)
        draws = self._ends.state[0].shape[0]
        return jnp.broadcast_to(noise[:, None] if noise.ndim == 1 else noise, (draws, count))
