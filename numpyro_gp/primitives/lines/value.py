"""Rows on a line: a value that is made once, before the model, and stands where inputs stand."""

import warnings
from typing import Any, NoReturn, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array, ArrayLike, on_device, value_type
from numpyro_gp.checks import check_points, fail, is_known
from numpyro_gp.neighbours.value import NewRows

NONE = np.zeros(0)


@value_type(static=("is_slope",))
class NewTimes(NewRows):
    """New rows on a line, each between two rows of the data: what ``line.find(t_new)`` is.

    Attributes
    ----------
    inputs : Array (B, 1) or (B, 2)
        The new rows.
    index : Array (B, 1)
        Place among the sorted rows of the data of the last that is not later, -1 where there is none.
    gaps : Array (B, 2)
        Distances to that row and to the next one, from double precision; 0 where there is none.
    is_slope : bool
        Whether slopes in time are meant there, in place of values.
    """

    gaps: Array
    is_slope: bool = False

    def __getitem__(self, idx: slice | ArrayLike) -> "NewTimes":
        """Some of them, by a slice or their numbers."""
        rows = NewRows(self.inputs, self.index)[idx]
        return NewTimes(rows.inputs, rows.index, jnp.asarray(self.gaps)[idx], self.is_slope)


@value_type()
class Line:
    """Rows of data on a line, sorted: what `line` returns.

    It is a pytree of arrays, an argument of the model as ``X`` is.

    Attributes
    ----------
    inputs : Array (N, 1) or (N, 2)
        The rows, as they were given: times, and codes where they are of several series.
    order : Array (N,)
        Numbers of the rows, first to last.
    gaps : Array (N,)
        Distance of each sorted row from the one before it, from double precision; 0 for the first.
    times : array (N,)
        Sorted rows in double precision, for what is found later.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> line = ngp.line([3.0, 1.0, 1.5])
    >>> line, line.order.tolist(), line.gaps.tolist()
    (Line(3 rows), [1, 2, 0], [0.0, 0.5, 1.5])
    """

    inputs: Array
    order: Array
    gaps: Array
    times: np.ndarray

    @property
    def size(self) -> int:
        """Number N of rows."""
        return int(self.order.shape[0])

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, idx: object) -> NoReturn:
        """Refuses a part: a process on a line is one of all its rows."""
        cure = (
            "Leave the index and subsample_size out: a line takes no minibatches. Of some rows make ngp.line(t[rows])."
        )
        fail("a line", "taken as a whole", f"an index, line[{idx!r:.40}]", cure, TypeError)

    def __repr__(self) -> str:
        """Its size, without the arrays."""
        return f"Line({self.size} rows)"

    def sorted(self, values: Array) -> Array:
        """Values ``(N,)`` of the rows, or one for all, in the order of time."""
        return jnp.broadcast_to(values, self.order.shape)[self.order]

    def as_given(self, values: Array) -> Array:
        """Values ``(..., N)`` in the order of time, in that of the rows."""
        return jnp.zeros_like(values).at[..., self.order].set(values)

    def find(self, t_new: ArrayLike, slope: bool = False) -> NewTimes:
        """New rows with the rows of the data before and behind them, for predictions, of slopes in time if asked for.

        A time may be given alone. Their gaps are found in double precision unless they are traced.
        """
        package: Any = np if all(map(is_known, (t_new, self.order, self.times))) else jnp
        columns, times = self.inputs.shape[1], package.asarray(self.times)
        given = "t_new", t_new, columns
        rows = read_rows(*given, times) if package is np else check_points(*given)
        new = rows[:, 0]
        place, last = package.searchsorted(times, new, side="right") - 1, len(times) - 1
        before = package.where(place >= 0, new - times[package.maximum(place, 0)], 0.0)
        behind = package.where(place < last, times[package.minimum(place + 1, last)] - new, 0.0)
        gaps = jnp.asarray(package.stack([before, behind], axis=1), jnp.result_type(float))
        return NewTimes(jnp.asarray(rows, gaps.dtype), jnp.asarray(place, jnp.int32)[:, None], gaps, slope)

    def check_found(self, new: NewTimes) -> None:
        """Refuse new rows of another line, whose neighbours in time are not those of this one."""
        if not all(map(is_known, (*jax.tree.leaves(new), self.times))):
            return
        place, inputs, last = np.asarray(new.index)[:, 0], np.asarray(new.inputs)[:, 0], self.size - 1
        ends = [np.asarray(self.times)[np.clip(place + step, 0, last)] for step in (0, 1)]
        gaps = np.asarray(new.gaps, float).T
        slack = 4 * np.finfo(inputs.dtype).eps * (np.abs(inputs) + gaps[0] + gaps[1])
        is_behind = (place < 0) | (np.abs(ends[0] + gaps[0] - inputs) <= slack)
        is_before = (place == last) | (np.abs(ends[1] - gaps[1] - inputs) <= slack)
        if not np.all(is_behind & is_before & (place <= last)):
            fail("X", "found on the line of the fit", "rows of another line", "Pass line.find(t_new) of that one.")


def with_rows(line: Line, t_new: ArrayLike) -> Line:
    """The line of the rows and, behind them in number, new ones."""
    rows = np.array(line.inputs, float)
    rows[np.asarray(line.order), 0] = np.asarray(line.times, float)
    return _sorted_line(np.concatenate([rows, _rows("t_new", t_new, rows.shape[1])]))


def line(t: ArrayLike) -> Line:
    """Sort rows on a line once, before the model (mathematics.md section 17.1).

    Pass the value in place of ``X``: ``ngp.gp_regression("y", kernel, line, noise**2, obs=y)``, or in place of
    inducing inputs, for any likelihood: ``f = ngp.gp("f", kernel, inducing=line)`` and ``ngp.observe("y",
    f.at_inducing(), likelihood, obs=y)``. Time and memory then grow as the number of rows, and the process is exact.
    Its kernel is one with few states: `Matern12`, `Matern32`, `Matern52`, `SHO`, `Periodic`, `Cosine`, `Constant`,
    `Linear`, `Wiener`, `IntegratedWiener`, `IntegratedOU`, sums of them, products of those that are stationary or
    of any with `Coregion`, and multiples.

    Rows of several series, such as the bands of a light curve or sensors side by side, have a second column, the code
    0, 1, ... of their series, and kernels name their column:
    ``Matern32(1.0, 2.0).on(0) * Coregion(weights, 0.1).on(1)``.

    Rows need not be sorted or apart, and their gaps are found in double precision: pass times as NumPy's ``float64``
    where they are large. Leave rows without data out; predict there.

    Parameters
    ----------
    t : array (N,) or (N, 1), or (N, 2) of several series
        Times, or places on any line; and the code of the series of each row.

    Returns
    -------
    Line

    Examples
    --------
    >>> import numpy as np, jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> def model(line, y=None):
    ...     return ngp.gp_regression("y", ngp.kernels.Matern32(1.0, 0.5), line, 0.1**2, obs=y)
    >>> t = np.linspace(0.0, 1.0, 5)
    >>> f = numpyro.handlers.seed(model, 0)(ngp.line(t), jnp.sin(6 * t))
    >>> f(jnp.array([0.5])).loc.shape
    (1,)
    """
    if not is_known(t):
        cure = "Call ngp.line(t) before the model, outside jit, and pass what it returns as an argument."
        fail("t", "known", "a traced array", cure, TypeError)
    return _sorted_line(read_rows("t", t))


def _sorted_line(rows: np.ndarray) -> Line:
    times = rows[:, 0]
    order = np.argsort(times, kind="stable")
    dtype = jnp.result_type(float)
    gaps = np.diff(times[order], prepend=times[order[:1]])
    placed = on_device(rows.astype(dtype)), on_device(order.astype(np.int32)), on_device(gaps.astype(dtype))
    return Line(*placed, times[order])


def read_rows(argument: str, values: ArrayLike, columns: int | None = None, times: np.ndarray = NONE) -> np.ndarray:
    """Rows of data, or new ones beside these times, in double precision; warn where they came with too few digits."""
    rows = _rows(argument, values, columns)
    _warn_of_few_digits(argument, values, times, rows[:, 0])
    return rows


def _rows(argument: str, values: ArrayLike, columns: int | None = None) -> np.ndarray:
    """Numbers ``(N, 1)`` or ``(N, 2)`` in double precision, of so many columns where that is known."""
    if isinstance(values, (Line, NewRows)):
        fail(argument, "numbers", f"a {type(values).__name__}", "Pass the times themselves.", TypeError)
    given = np.ma.filled(values.astype(float), np.nan) if isinstance(values, np.ma.MaskedArray) else np.asarray(values)
    if given.dtype.kind not in "biuf":  # a date is a number in a unit of its own, and another one in new rows
        cure = "Of dates pass a number in a unit of your choice: (dates - dates[0]) / np.timedelta64(1, 'D')."
        cure += " Of names of series pass codes: np.unique(names, return_inverse=True)[1]."
        fail(argument, "real numbers", f"an array of {given.dtype}", cure, TypeError)
    array = np.asarray(given, float)
    if array.ndim == 1 or (array.ndim == 0 and columns == 1):  # a new time alone
        array = array.reshape(-1, 1)
    if array.ndim != 2 or not array.size or array.shape[1] not in (1, 2) or columns not in (None, array.shape[1]):
        shapes = {None: "(N,), (N, 1) or (N, 2)", 1: "(N,) or (N, 1)", 2: "(N, 2)"}[columns]
        cure = "Pass times, and codes of series where they are several. Of more columns take ngp.neighbours(X, 16)."
        fail(argument, f"of shape {shapes}", f"shape {np.shape(values)}", cure)
    if not np.all(np.isfinite(array)):
        fail(argument, "finite", f"{int(np.sum(~np.isfinite(array)))} numbers that are not", "Leave these rows out.")
    wrong = (array[:, 1:] < 0) | (array[:, 1:] != np.round(array[:, 1:]))
    if np.any(wrong):
        cure = "Number the series from 0. Of two columns of inputs take ngp.neighbours(X, 16)."
        fail(f"the second column of {argument}", "codes 0, 1, ...", f"{array[:, 1:][wrong][0]:.9g}", cure)
    return array


def _warn_of_few_digits(argument: str, given: ArrayLike, *times: np.ndarray) -> None:
    """Warn of times that came in single precision and are rounded there to more than a tenth of their mean distance.

    What lies between them was lost before it was given. Whole numbers are exact, up to 2^24 in float32.
    """
    kind = np.dtype(getattr(given, "dtype", float))
    if kind.kind != "f" or kind.itemsize > 4:
        return
    every = np.concatenate(times)  # not before: a stream of times in double precision asks again and again
    largest = float(np.abs(every).max())
    lost = float(np.spacing(kind.type(largest)))
    is_exact = largest <= 2 / np.finfo(kind).eps and np.array_equal(every, np.round(every))
    apart = np.ptp(every) / max(1, len(np.unique(every)) - 1)
    if lost > 0.1 * apart and (apart > 0 or lost >= 1) and not is_exact:
        text = f"{argument} came in {kind}, which knows times near {largest:.3g} to {lost:.3g}, where they are "
        cure = "Pass NumPy's float64, from before JAX had them; or subtract the first time in float64."
        warnings.warn(f"{text}{apart:.3g} apart in the mean. {cure}", stacklevel=3)


def is_line(leaf: object) -> TypeGuard[Line]:
    """Whether a part of a tree is a line as a whole: ``is_leaf`` of JAX's functions of trees."""
    return isinstance(leaf, Line)


def lines_in(tree: object) -> list[Line]:
    """All of them that a tree holds, such as the arguments of a model."""
    return [leaf for leaf in jax.tree.leaves(tree, is_leaf=is_line) if is_line(leaf)]
