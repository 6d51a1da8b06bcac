"""New rows of a process that is given its data by neighbours: found before anything is traced."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array
from numpyro_gp.checks import check_count, fail, is_known
from numpyro_gp.kernels.functionals import Functional
from numpyro_gp.posterior import tracing
from numpyro_gp.posterior.fitted import Fitted
from numpyro_gp.primitives.given_both import CombinedData
from numpyro_gp.primitives.given_neighbours import LocalData
from numpyro_gp.primitives.local_process import NEIGHBOURS, LocalProcess, SeenProcesses
from numpyro_gp.primitives.opening import recorded_processes
from numpyro_gp.rows.call import Call
from numpyro_gp.rows.joint_rows import JointRows, joint_rows
from numpyro_gp.rows.nearest import tree_of
from numpyro_gp.rows.neighbours import Neighbours, NewRows

# Draws of a posterior whose lengthscales are looked at, and of a prediction where nobody says how many: each factorises
# a block for every row.
FEW_DRAWS = 16
# Neighbours of a row that is drawn together with others, where nobody says how many.
TOGETHER = 64
# Of "auto": the least number and the most, what more must gain in nats per row, and how many rows are left out to see.
LEAST, MOST, WORTH, LEFT_OUT = 16, 1024, 0.005, 300


def neighbours_of(call: Call) -> list[Neighbours]:
    """Rows with their neighbours among the arguments of a model."""
    leaves = jax.tree.leaves(list(call.arguments.values()), is_leaf=lambda leaf: isinstance(leaf, Neighbours))
    return [leaf for leaf in leaves if isinstance(leaf, Neighbours)]


def refuse_old_rows(call: Call) -> None:
    """Refuse the neighbours of a fit where new rows stand: what is new is near to other rows."""
    for name, value in call.arguments.items():
        if isinstance(value, Neighbours):
            cure = f"Pass {name}.find(X_new, 256). Of a gp_regression call posterior.predict_at(key, X_new, {name}, y)."
            fail(name, "new rows where they are predicted", "the neighbours of a fit", cure, TypeError)


class RowFinder:
    """New rows with the nearest of the data, asked for once or again and again: from the second time on by a tree."""

    def __init__(self, near: Neighbours, count: int, lengthscale: Array) -> None:
        self._near, self._count, self._lengthscale = near, min(count, near.size), lengthscale
        self._calls, self._tree = 0, None

    def __call__(self, X: Functional | NewRows | Array) -> Functional | NewRows | Array:
        """``X`` itself where it has neighbours already, or is traced."""
        if isinstance(X, (NewRows, Functional)) or not is_known(X):
            return X
        self._calls += 1
        if self._calls == 1:
            return self._near.find(X, self._count, lengthscale=self._lengthscale)
        scale = np.asarray(self._lengthscale, float)
        if self._tree is None:
            self._tree = tree_of(np.asarray(self._near.inputs, float) / scale)
        found = self._tree.query(np.asarray(X, float) / scale, self._count)[1]
        return NewRows(X, found.reshape(-1, self._count).astype(np.int32))


def check_neighbours(count: int | str | None) -> None:
    """Refuse what is neither a number of neighbours nor "auto"."""
    if isinstance(count, str) and count != "auto":
        fail("neighbours", "a number or 'auto'", repr(count), "Pass neighbours='auto', or a number such as 256.")
    if count not in (None, "auto"):
        check_count("neighbours", count)


def finder_of(
    posterior: Fitted,
    key: Array,
    X: object,
    call: Call,
    plates: frozenset[str],
    gp: str | None,
    index: np.ndarray,
    count: int | str | None,
) -> RowFinder | None:
    """What finds the nearest ``count`` of the data, in units of the median lengthscales of the posterior.

    None of rows of a process that has no neighbours, of rows that have theirs, and of rows that are traced.
    """
    given = neighbours_of(call)
    if not given or isinstance(X, (NewRows, Functional)):
        if count is not None:
            got = f"{count}, with {type(X).__name__ if given else 'none in the arguments of the model'}"
            cure = "Leave it out, or pass the rows of new data themselves and the neighbours of the fit."
            fail("neighbours", "left out unless new rows are to be searched for", got, cure)
        return None
    if not all(map(is_known, (X, *jax.tree.leaves(given)))):
        return None
    found = near_in_units(posterior, key, call, plates, gp, index)
    if found is None:
        return None
    number = enough_neighbours(posterior, key, call, found[0]) if count == "auto" else count
    return RowFinder(found[0], NEIGHBOURS if number is None else int(number), found[1])


def near_in_units(
    posterior: Fitted,
    key: Array,
    call: Call,
    plates: frozenset[str],
    gp: str | None,
    index: np.ndarray,
    conditioned: bool = True,
) -> tuple[Neighbours, Array] | None:
    """The neighbours that a process stands on, and the median of its lengthscales; None of one that has none.

    ``conditioned``: of processes by the names of their data, else by their own.
    """

    def units(own: Fitted, draw: tracing.Draw, arrays: list[Array]) -> Any:
        process = _process_at(own, draw, arrays, call, plates, gp, conditioned)
        if not isinstance(process, LocalProcess):
            return None
        near, found = process.units()
        return near.lengthscale if found is None else found

    draws = tracing.draws_of(key, index[np.linspace(0, len(index) - 1, min(len(index), FEW_DRAWS)).astype(int)])
    scales = tracing.at_each_draw(units, posterior, draws, call.arrays)
    if scales is None:
        return None
    return near_of(posterior, draws, call, plates, gp, conditioned), jnp.median(scales, axis=0)


def joint_rows_of(
    posterior: Fitted,
    key: Array,
    X: object,
    call: Call,
    plates: frozenset[str],
    gp: str | None,
    index: np.ndarray,
    count: int | None,
) -> JointRows | None:
    """New rows to be drawn together, with what each is given; None of a process that has no neighbours."""
    if isinstance(X, NewRows):
        cure = "Pass the rows themselves: they are given new rows as well as data."
        fail("X", "rows of inputs where functions are drawn together", "rows with neighbours", cure, TypeError)
    if not all(map(is_known, (X, *jax.tree.leaves(neighbours_of(call))))):
        cure = "Draw functions outside of compiled programs, or take posterior.functions(key, ...)."
        fail("X", "known where rows have neighbours", "a traced array", cure, TypeError)
    found = near_in_units(posterior, key, call, plates, gp, index, conditioned=False)
    return None if found is None else joint_rows(found[0], X, TOGETHER if count is None else count, found[1])


def enough_neighbours(posterior: Fitted, key: Array, call: Call, near: Neighbours) -> int:
    """From how many neighbours some rows of the data, left out, are predicted as well as from four times as many.

    16, 64, 256 or 1024, or all others: "as well" is within their standard error, or 0.005 nats per row.
    """
    rows = np.unique(np.linspace(0, near.size - 1, LEFT_OUT).astype(int))
    count = min(LEAST, near.size - 1)
    while count < min(MOST, near.size - 1):
        more = min(4 * count, near.size - 1)
        gain = gain_of_neighbours(posterior, key, call, near, rows, count, more)
        if gain is None:
            cure = "Pass a number, such as neighbours=256."
            fail("neighbours='auto'", "asked of data with Gaussian noise", "another process", cure)
        if gain[0] <= max(WORTH, gain[1]):
            break
        count = more
    return count


def _process_at(
    own: Fitted,
    draw: tracing.Draw,
    arrays: list[Array],
    call: Call,
    plates: frozenset[str],
    gp: str | None,
    conditioned: bool = True,
) -> Any:
    """The process of new rows; of several that data are seen through, whose rows are the same, the first."""
    process = tracing.process_at(own, draw, call.at(arrays), plates, gp, conditioned=conditioned)
    return process.processes[0] if isinstance(process, SeenProcesses) else process


def near_of(
    posterior: Any, draws: tracing.Draw, call: Call, plates: frozenset[str], gp: str | None, conditioned: bool = True
) -> Neighbours:
    """The neighbours among the arguments on which a process stands."""
    given = neighbours_of(call)
    return given[0] if len(given) == 1 else _that_of(given, posterior, draws, call, plates, gp, conditioned)


def _that_of(
    given: list[Neighbours],
    posterior: Fitted,
    draws: tracing.Draw,
    call: Call,
    plates: frozenset[str],
    gp: str | None,
    conditioned: bool,
) -> Neighbours:
    """The one of several that the process stands on: its rows are compared."""

    def inputs(own: Fitted, draw: tracing.Draw, arrays: list[Array]) -> Any:
        near = _process_at(own, draw, arrays, call, plates, gp, conditioned).data.near
        return near.inputs, near.order

    first = jax.tree.map(lambda array: array[:1], draws)
    rows, order = tracing.at_each_draw(inputs, posterior, first, call.arrays)
    same = [
        one
        for one in given
        if one.inputs.shape == rows.shape[1:]
        and np.array_equal(one.inputs, rows[0])
        and np.array_equal(one.order, order[0])
    ]
    return same[0]


def gain_of_neighbours(
    posterior: Fitted, key: Array, call: Call, near: Neighbours, rows: np.ndarray, count: int, more: int
) -> tuple[float, float] | None:
    """Mean log density of left-out data from ``more`` of the nearest others less that from ``count``, and its error.

    At one draw of the posterior; None of neighbours on which no process stands.
    """
    if not all(map(is_known, jax.tree.leaves(near))):
        return None
    draw = tracing.draws_of(key, posterior.spread(1, True))

    def units(own: Fitted, draw: tracing.Draw, arrays: list[Array]) -> list[Any]:
        found = [process.units()[1] for process in _on(own, draw, arrays, call, near)]
        return [scale for scale in found if scale is not None]

    scales = tracing.at_each_draw(units, posterior, draw, call.arrays)
    own = scales[0][0] if scales else near.lengthscale
    few, many = (near.around(number, rows=rows, lengthscale=own) for number in (count, more))

    def densities(own: Fitted, draw: tracing.Draw, arrays: list[Array], few: NewRows, many: NewRows) -> list[Array]:
        data = [process.data for process in _on(own, draw, arrays, call, near)]
        return [one.log_density_at(many, rows) - one.log_density_at(few, rows) for one in data]

    found = tracing.at_each_draw(densities, posterior, draw, call.arrays, few, many)
    gains = np.asarray(found[0][0]) if found else np.zeros(0)
    return (float(gains.mean()), float(gains.std() / np.sqrt(len(gains)))) if gains.size else None


def _on(own: Fitted, draw: tracing.Draw, arrays: list[Array], call: Call, near: Neighbours) -> list[LocalProcess]:
    """The processes given Gaussian data, at a draw and at the data of the fit, whose rows are as many as these."""
    with recorded_processes() as found:
        tracing.trace_at(own, draw, call.at(arrays), frozenset())
    # Those of gp_regression: a latent one under a sampler has its values for data.
    local = [one for one in found.values() if isinstance(one, LocalProcess) and one.marginals is None]
    of_data = [one for one in local if isinstance(one.data, (CombinedData, LocalData))]
    return [one for one in of_data if one.data.near.inputs.shape == near.inputs.shape]
