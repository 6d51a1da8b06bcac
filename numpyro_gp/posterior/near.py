"""New rows of a process that is given its data by neighbours: found before anything is traced."""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array
from numpyro_gp.checks import fail, is_known
from numpyro_gp.kernels.functionals import Functional
from numpyro_gp.neighbours.search import Tree
from numpyro_gp.neighbours.value import JointRows, Neighbours, NewRows, joint_rows, neighbours_in
from numpyro_gp.posterior import tracing
from numpyro_gp.posterior.tracing import Fitted
from numpyro_gp.primitives.neighbours.local_process import NEIGHBOURS, LocalProcess, SeenProcesses, shortest
from numpyro_gp.primitives.opening import recorded_processes
from numpyro_gp.primitives.process import GaussianProcess
from numpyro_gp.rows.batches import some_rows

# Draws of a posterior whose lengthscales are looked at, and of a prediction where nobody says how many: each factorises
# a block for every row.
FEW_DRAWS = 16
# Neighbours of a row that is drawn together with others, where nobody says how many.
NEIGHBOURS_TOGETHER = 64
# Of "auto": the least number and the most, what more must gain in nats per row, and how many rows are left out to see.
LEAST, MOST, WORTH, LEFT_OUT = 16, 1024, 0.005, 300


def finder_of(
    asked: tracing.AskedProcess, key: Array, X: object, index: np.ndarray, count: int | str | None
) -> Callable[[Any], Any] | None:
    """What finds the nearest ``count`` of the data, in units of the median lengthscales of the posterior.

    It is asked once or again and again: from the second time on it has a tree. Rows that have neighbours already, or
    are traced, come back as they are. None of rows of a process that has no neighbours, of rows that have theirs, and
    of rows that are traced.
    """
    given = neighbours_in(asked.call.arguments)
    if not given or isinstance(X, (NewRows, Functional)):
        if count is not None:
            got = f"{count}, with {type(X).__name__ if given else 'none in the arguments of the model'}"
            cure = "Leave it out, or pass the rows of new data themselves and the neighbours of the fit."
            fail("neighbours", "left out unless new rows are to be searched for", got, cure)
        if isinstance(X, NewRows) and is_known(X.index) and given:
            size, largest = max(near.size for near in given), int(np.max(X.index))
            if largest >= size:  # JAX takes the last row for one that is not there
                cure = "Find them by the neighbours that are given: near.find(X_new, 256)."
                fail("X", f"new rows with neighbours among {size} rows of data", f"the number {largest} of a row", cure)
        return None
    if not all(map(is_known, (X, *jax.tree.leaves(given)))):
        return None
    if (found := near_in_units(asked, key, index)) is None:
        return None
    near, lengthscale = found
    nearest = min(NEIGHBOURS if count in (None, "auto") else int(count), near.size)
    if count == "auto":
        # From how many some rows of the data, left out, are predicted as well as from four times as many: 16, 64, 256,
        # 1024, or all others. "As well" is within their standard error, or 0.005 nats per row.
        rows, nearest = some_rows(near.size, LEFT_OUT), min(LEAST, near.size - 1)
        while nearest < min(MOST, near.size - 1):
            more = min(4 * nearest, near.size - 1)
            if (gain := gain_of_neighbours(asked, key, near, rows, nearest, more)) is None:
                cure = "Pass a number, such as neighbours=256."
                fail("neighbours='auto'", "asked of data with Gaussian noise", "another process", cure)
            if gain[0] <= max(WORTH, gain[1]):
                break
            nearest = more
    calls, scale = itertools.count(), np.asarray(lengthscale, float)
    tree = functools.cache(lambda: Tree(np.asarray(near.inputs, float) / scale))

    def find(X: Any) -> Any:
        if isinstance(X, (NewRows, Functional)) or not is_known(X):
            return X
        if next(calls) == 0:
            return near.find(X, nearest, lengthscale=lengthscale)
        return NewRows(X, tree().query(np.asarray(X, float) / scale, nearest).astype(np.int32))

    return find


def near_in_units(asked: tracing.AskedProcess, key: Array, index: np.ndarray) -> tuple[Neighbours, Array] | None:
    """The neighbours that a process stands on, and the median of its lengthscales; None of one that has none."""

    def units(process: tracing.ModelProcess, _: object) -> Array | None:
        return shortest([lengthscales_of(one) for one in processes_of(process) if isinstance(one, LocalProcess)])

    draws = tracing.draws_of(key, index[np.linspace(0, len(index) - 1, min(len(index), FEW_DRAWS)).astype(int)])
    scales = asked.at_each(units, draws)
    return None if scales is None else (near_of(asked, draws), jnp.median(scales, axis=0))


def lengthscales_of(process: LocalProcess) -> Array:
    """The lengthscales of a process; where its kernel has none, those by which its neighbours were found."""
    near, found = process.units()
    return near.lengthscale if found is None else found


def joint_rows_of(
    asked: tracing.AskedProcess, key: Array, X: object, index: np.ndarray, count: int | None
) -> JointRows | None:
    """New rows to be drawn together, with what each is given; None of a process that has no neighbours."""
    if isinstance(X, NewRows):
        cure = "Pass the rows themselves: they are given new rows as well as data."
        fail("X", "rows of inputs where functions are drawn together", "rows with neighbours", cure, TypeError)
    if not all(map(is_known, (X, *jax.tree.leaves(neighbours_in(asked.call.arguments))))):
        cure = "Draw functions outside of compiled programs, or take posterior.functions(key, ...)."
        fail("X", "known where rows have neighbours", "a traced array", cure, TypeError)
    found = near_in_units(asked, key, index)
    return None if found is None else joint_rows(found[0], X, NEIGHBOURS_TOGETHER if count is None else count, found[1])


def processes_of(process: tracing.ModelProcess) -> tuple[GaussianProcess | LocalProcess, ...]:
    """A process, or the several that data are seen through."""
    return process.processes if isinstance(process, SeenProcesses) else (process,)


def near_of(asked: tracing.AskedProcess, draws: tracing.Draw) -> Neighbours:
    """The neighbours among the arguments on which a process stands: of several its rows are compared.

    Refused of data that are seen through processes on other rows each, as new rows have one set of neighbours.
    """
    given = neighbours_in(asked.call.arguments)
    if len(given) == 1:
        return given[0]

    def inputs(process: tracing.ModelProcess, _: object) -> list[tuple[Array, Array]]:
        return [(one.data.near.inputs, one.data.near.order) for one in processes_of(process)]

    (rows, order), *others = asked.at_each(inputs, jax.tree.map(lambda array: array[:1], draws))
    if not all(np.array_equal(own, rows) for own, _ in others):
        cure = "Find neighbours of all columns together, and let each kernel read its own: kernel.on(dims)."
        fail("the processes that data are seen through", "on the same rows, for new ones", "others for some", cure)
    is_same = lambda one: np.array_equal(one.inputs, rows[0]) and np.array_equal(one.order, order[0])  # noqa: E731
    return next(filter(is_same, given))


def gain_of_neighbours(
    asked: tracing.AskedProcess, key: Array, near: Neighbours, rows: np.ndarray, count: int, more: int
) -> tuple[float, float] | None:
    """Mean log density of left-out data from ``more`` of the nearest others less that from ``count``, and its error.

    Of the process of a name, or the first on such rows, at one draw; None of neighbours on which no process stands.
    """
    if not all(map(is_known, jax.tree.leaves(near))):
        return None
    posterior, call = asked.posterior, asked.call
    draw = tracing.draws_of(key, posterior.spread(1, True))

    def units(own: Fitted, draw: tracing.Draw, arrays: list[Array]) -> list[Array]:
        return [lengthscales_of(process) for process in _on(asked, own, draw, arrays, near)]

    scales = tracing.at_each_draw(units, posterior, draw, call.arrays)
    own = scales[0][0] if scales else near.lengthscale
    few, many = (near.around(number, rows=rows, lengthscale=own) for number in (count, more))

    def densities(own: Fitted, draw: tracing.Draw, arrays: list[Array], few: NewRows, many: NewRows) -> list[Array]:
        data = [process.data for process in _on(asked, own, draw, arrays, near)]
        return [one.log_density_at(many, rows) - one.log_density_at(few, rows) for one in data]

    found = tracing.at_each_draw(densities, posterior, draw, call.arrays, few, many)
    gains = np.asarray(found[0][0]) if found else np.zeros(0)
    return (float(gains.mean()), float(gains.std() / np.sqrt(len(gains)))) if gains.size else None


def _on(
    asked: tracing.AskedProcess, own: Fitted, draw: tracing.Draw, arrays: list[Array], near: Neighbours
) -> list[LocalProcess]:
    """The processes given Gaussian data, at a draw and at the data of the fit, on these rows or on as many."""
    with recorded_processes() as found:
        tracing.trace_at(own, draw, asked.call.at(arrays), frozenset())
    # Those of gp_regression: a latent one under a sampler has its values for data.
    local = [one for one in found.values() if isinstance(one, LocalProcess) and one.marginals is None]
    of_data = [one for one in local if asked.name in (None, one.name)]
    # In the program the arrays of these neighbours have a place among those of the model.
    places = [place for place, array in enumerate(asked.call.arrays) if array is near.index]
    same = [one for one in of_data if any(one.data.near.index is arrays[place] for place in places)]
    return same or [one for one in of_data if one.data.near.inputs.shape == near.inputs.shape]
