"""What a program does with rows, learnt on one way through it: `Visitor`, and what is asked of it.

`Readers` tells which arrays the rows of a plate read, and which plates have rows that a model computes with;
`counts_rows` whether a result depends on how many rows there are; `mixing_of` whether it combines them.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from numpyro_gp.programs.private import parts_of_loop
from numpyro_gp.programs.trace import ANY_POINT, aval_of, bodies_of, replaced, sources, variables_of


class Visitor(ABC):
    """A way through a program that knows a fact of each value; `visit` makes those of results of those of inputs."""

    unknown: Any = None

    def follow(self, program: Jaxpr, facts: dict[Any, Any]) -> tuple[Jaxpr, list[Any]]:
        """The program as `visit` leaves it, and the facts of its results; ``facts`` are those of its inputs.

        Facts of other values too: they hold where nothing is known of what these are made of.
        """
        same: dict[object, Any] = {}
        equations = []

        def known(atoms: Sequence[Any]) -> list[Any]:
            return [self.unknown if isinstance(atom, Literal) else facts.get(atom, self.unknown) for atom in atoms]

        def read(atoms: Sequence[Any]) -> list[Any]:
            return [atom if isinstance(atom, Literal) else same.get(atom, atom) for atom in atoms]

        for equation in program.eqns:
            inputs = read(equation.invars)
            visited, after = self.visit(equation.replace(invars=inputs) if same else equation, known(inputs))
            if isinstance(visited, JaxprEqn):
                equations.append(visited)
                pairs = zip(equation.outvars, after, strict=True)
                facts.update({var: fact for var, fact in pairs if fact != self.unknown})
            else:
                same[equation.outvars[0]] = visited
        results = read(program.outvars)
        return replaced(program, eqns=equations, outvars=results), known(results)

    @abstractmethod
    def visit(self, equation: JaxprEqn, before: list[Any]) -> tuple[Any, list[Any]]:
        """The operation and facts of its results; or, in its place, the input that its only result is."""


# --------------------------------------------------------------------------------------
# Which plates have rows that a program computes with: a number that depends on how rows are counted.
#
# Data that come in chunks, or in a stream, are counted anew in each part. Arrays that are read by the rows of a plate
# are cut with them, and are none the worse for it; ``0.1 * rows`` is.


# What is known of a value: it holds 0, 1, 2, ... in its order, or it is False everywhere.
COUNTING, NEVER = "counting", "never"
RESHAPES = frozenset({"broadcast_in_dim", "reshape", "squeeze", "expand_dims"})
COPYING = frozenset({"copy", "device_put"})  # of jnp.array, and of jnp.asarray with JAX 0.7
# Operations that leave rows rows: they put them beside each other, or into another place or type.
PLACING = RESHAPES | COPYING | {"concatenate", "transpose", "convert_element_type", "select_n", "clamp"}
PLACING |= {"stop_gradient"}


class RowFact(NamedTuple):
    """What is known of a value.

    It is the array of this number; it is `COUNTING` or `NEVER`; it is the rows of a plate, of this size and name; it is
    made of the rows of these plates, and still holds rows.
    """

    array: int | None = None
    holds: str | None = None
    plate: tuple[int, str] | None = None
    plates: frozenset[str] = frozenset()
    is_rows: bool = False


class Readers(Visitor):
    """Which arrays the rows of plates read; ``rows`` are the values that are such, with size and name of the plate.

    Attributes
    ----------
    read, repeated : dict
        Number of an array that is read by rows, to the largest size of such a plate; those where JAX repeats the last
        row in place of one that is not there.
    readers : dict
        Number of an array to the names of the plates.
    made : list
        Values made of arrays that rows of plates read.
    looked_up : set of int
        Arrays that other indices read, as codes do a table.
    counted : set of str
        Plates whose rows are computed with. Rows may be put beside each other and index an array: all else that is made
        of them, and is no whole number itself, depends on how rows are numbered.
    """

    unknown = RowFact()

    def __init__(self, rows: Mapping[object, tuple[int, str]], counted: set[str] | None = None) -> None:
        self.rows, self.counted = rows, set[str]() if counted is None else counted
        self.read, self.repeated, self.readers = dict[int, int](), dict[int, int](), dict[int, set[str]]()
        self.made, self.looked_up = list[Any](), set[int]()

    def visit(self, equation: JaxprEqn, before: list[RowFact]) -> tuple[Any, list[RowFact]]:
        name, made = equation.primitive.name, before
        if name == "select_n" and before[0].holds == NEVER:
            return equation.invars[1], []
        if name == "gather":
            if self._gathers_all(equation, *before[:2]):
                return equation.invars[0], []
            made = before[:1]
            if not before[1].is_rows:
                self.counted |= before[1].plates
        elif name == "scan":
            count, body = parts_of_loop(equation.params)[0], equation.params["jaxpr"]
            constants = [fact._replace(array=None) for fact in before[:count]]
            inside = Readers({}, self.counted).follow(body.jaxpr, dict(zip(body.jaxpr.invars, constants)))[0]
            equation = equation.replace(params={**equation.params, "jaxpr": ClosedJaxpr(inside, body.consts)})
            made = before[count:]
        plates = frozenset[str]().union(*(fact.plates for fact in made))
        is_rows = name in PLACING and all(fact.is_rows for fact in made if fact.plates)
        learnt, after = _learnt(equation, before), []
        for var in equation.outvars:
            dtype = getattr(var.aval, "dtype", None)
            is_whole = dtype is not None and any(jnp.issubdtype(dtype, kind) for kind in (jnp.integer, jnp.bool_))
            if not is_whole:
                self.counted |= plates
            fact = learnt._replace(plates=plates, is_rows=is_rows and bool(plates)) if is_whole else learnt
            if plate := self.rows.get(var):
                fact = RowFact(None, COUNTING, plate, frozenset({plate[1]}), True)
            after.append(fact)
        return equation, after

    def _gathers_all(self, equation: JaxprEqn, array: RowFact, index: RowFact) -> bool:
        """Note what a gather reads; whether it has all rows of its array, in their order."""
        params, how = equation.params, equation.params["dimension_numbers"]
        if tuple(how.start_index_map) != (0,):
            return False
        if index.holds != COUNTING:
            if array.array is not None:
                self.looked_up.add(array.array)
            return False
        if index.plate and array.array is None:
            self.made.append(equation.invars[0])
        elif index.plate and array.array is not None:
            number, (size, name) = array.array, index.plate
            self.read[number] = max(size, self.read.get(number, 0))
            if params["mode"] != jax.lax.GatherScatterMode.FILL_OR_DROP:  # a user may ask for zeros, or NaN, there
                self.repeated[number] = max(size, self.repeated.get(number, 0))
            self.readers.setdefault(number, set()).add(name)
        shape = aval_of(equation.invars[0]).shape
        return (
            aval_of(equation.invars[1]).shape == (shape[0], 1)
            and tuple(params["slice_sizes"]) == (1, *shape[1:])
            and tuple(how.collapsed_slice_dims) == (0,)
            and tuple(how.offset_dims) == tuple(range(1, len(shape)))
            and not how.operand_batching_dims
        )


def _learnt(equation: JaxprEqn, before: list[RowFact]) -> RowFact:
    """What is known of the results of an operation, but for the plates that they are made of."""
    name, first = (
        equation.primitive.name,
        before[0]._replace(plates=frozenset(), is_rows=False) if before else RowFact(),
    )
    if name in COPYING and len(before) == 1:
        return first
    # A callback has no result.
    if not equation.outvars or (name != "iota" and first.holds != COUNTING):
        return RowFact()
    result = aval_of(equation.outvars[0])
    is_whole = hasattr(result, "dtype") and jnp.issubdtype(result.dtype, jnp.integer)
    if name == "iota":
        return RowFact(holds=COUNTING) if result.ndim == 1 and is_whole else RowFact()
    if name == "convert_element_type" or (name in RESHAPES and result.size == aval_of(equation.invars[0]).size):
        return first if is_whole else RowFact()
    zero = equation.invars[1] if name == "lt" else None
    return RowFact(holds=NEVER) if isinstance(zero, Literal) and not np.any(zero.val) else RowFact()


# --------------------------------------------------------------------------------------
# Whether a program computes with the number of its rows, or with the number of each: chunks of rows have others.
#
# Nothing in the program of ``len(X)`` rows says where a number is from. Beside a program of one row more it does:
# their literals differ, or a count of 0, 1, 2, ... goes further.


# Operations on whole numbers that keep an index inside of an array, whatever the length of that.
BOUNDS = frozenset({"clamp", "min", "max", "lt", "le", "gt", "ge", "eq", "ne"})


def counts_rows(program: Jaxpr, longer: Jaxpr) -> bool:
    """Whether the result of a program depends on how many rows there are, by that of the same function of more rows.

    Programs that do not go through the same operations, as where a branch of the model asks for the number, are not
    compared.
    """
    if [equation.primitive for equation in program.eqns] != [equation.primitive for equation in longer.eqns]:
        return False
    rows = dict[object, tuple[int, str]]()
    for short, long in zip(program.eqns, longer.eqns, strict=True):
        if ANY_POINT in str(short.source_info.name_stack):
            continue
        pairs = zip(short.invars, long.invars, strict=True)
        both = [(a.val, b.val) for a, b in pairs if isinstance(a, Literal) and isinstance(b, Literal)]
        if any(np.asarray(a).tobytes() != np.asarray(b).tobytes() for a, b in both) and not _is_bound(short, program):
            return True
        if short.primitive.name == "integer_pow" and short.params["y"] != long.params["y"]:
            return True
        if short.primitive.name == "iota":
            size, more = (one.params["shape"][one.params["dimension"]] for one in (short, long))
            if size != more:
                rows[short.outvars[0]] = size, "rows"
        if any(counts_rows(*pair) for pair in zip(bodies_of(short), bodies_of(long), strict=True)):
            return True
    readers = Readers(rows)
    readers.follow(program, {})
    return bool(readers.counted)


def _is_bound(equation: JaxprEqn, program: Jaxpr) -> bool:
    """Whether an operation keeps an index inside of an array, from its end too if it is negative."""
    if not all(jnp.issubdtype(aval_of(atom).dtype, jnp.integer) for atom in equation.invars):
        return False
    users = {user.primitive.name for user in program.eqns if equation.outvars[0] in variables_of(user.invars)}
    return equation.primitive.name in BOUNDS or (equation.primitive.name == "add" and users == {"select_n"})


# --------------------------------------------------------------------------------------
# Whether a program combines rows with each other: each of its results then is of all rows, and not of one.
#
# ``X - X.mean(0)`` in a model does. In chunks of rows it would be the mean of each chunk. One axis of each value is
# followed through the operations that this library and ordinary models are made of. Of an operation that is not known
# here, the axis is taken to be where a result has the shape of its input, and else no more is known of it.


MIXED = -1  # of an axis: its rows have been combined


def mixing_of(program: Jaxpr, axes: Mapping[object, int]) -> str | None:
    """Name of the first operation whose result combines rows and counts in the end, None where there is none.

    Parameters
    ----------
    program : Jaxpr
        Of `traced`.
    axes : dict
        Axis of the rows in each input that has them.
    """
    try:
        _Axes().follow(program, dict(axes))
    except _Mixed as mixed:
        return str(mixed)
    return None


class _Mixed(Exception):
    """An operation combines rows; it says which."""


class _Axes(Visitor):
    """The axis of the rows in each value."""

    def visit(self, equation: JaxprEqn, before: list[int | None]) -> tuple[JaxprEqn, list[int | None]]:
        name, params = equation.primitive.name, equation.params
        if all(axis is None for axis in before) or ANY_POINT in str(equation.source_info.name_stack):
            return equation, [None] * len(equation.outvars)
        if name == "cond":
            after, *_ = [self._inside(branch, before[1:]) for branch in params["branches"]]
        elif name == "while":
            after = self._inside(params["body_jaxpr"], before[params["cond_nconsts"] :])
        elif name == "scan":
            after = self._scanned(params["jaxpr"], *parts_of_loop(params), before)
        else:
            after = _axes_after(equation, before)
        if MIXED in after:
            raise _Mixed(name)
        return equation, after

    def _inside(self, body: ClosedJaxpr, before: list[int | None]) -> list[int | None]:
        return self.follow(body.jaxpr, dict(zip(body.jaxpr.invars, before, strict=True)))[1]

    def _scanned(self, body: ClosedJaxpr, constants: int, carried: int, before: list[int | None]) -> list[int | None]:
        first = constants + carried
        rows = {number for number, axis in enumerate(before) if number >= first and axis == 0}
        if any(rows & inputs for inputs in sources(body.jaxpr)[:carried]):
            raise _Mixed("scan")
        steps = [None if axis is None or axis == 0 else axis - 1 for axis in before[first:]]
        after = self._inside(body, [*before[:first], *steps])
        return after[:carried] + [0 if rows else None if axis is None else axis + 1 for axis in after[carried:]]


REDUCING = frozenset({"reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or"})
REDUCING |= {"argmax", "argmin"}
ALONG = frozenset({"cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp", "sort"})
FACTORS = frozenset({"cholesky", "eigh", "lu", "qr"})
# Operations whose result has its rows from the first input.
BY_FIRST = FACTORS | {"slice", "dynamic_slice", "rev", "broadcast_in_dim", "reshape", "transpose", "squeeze"}


def _axes_after(equation: JaxprEqn, before: list[int | None]) -> list[int | None]:
    """Axis of the rows in each result, `MIXED` where they are combined, None where it is not known."""
    name, params = equation.primitive.name, equation.params
    shapes, results = ([getattr(x.aval, "shape", ()) for x in side] for side in (equation.invars, equation.outvars))
    known = [(shape, axis) for shape, axis in zip(shapes, before, strict=True) if axis is not None]
    axis, after = known[0][1], list[int | None]()
    if name in REDUCING:
        after = [MIXED if axis in params["axes"] else _shifted(axis, params["axes"])]
    elif name in ALONG:
        after = [MIXED if axis == params.get("axis", params.get("dimension")) else axis]
    elif name == "concatenate":
        after = [None if axis == params["dimension"] else axis]
    elif name in BY_FIRST:
        after = [None if before[0] is None else _moved_axis(name, params, shapes[0], results[0], before[0])]
    elif name == "gather":
        after = [_gathered_axis(params, shapes[0], results[0], *before[:2])]
    elif name == "dot_general":
        after = [_product_axis(params, shapes, before)]
    elif name == "triangular_solve":
        (matrix, right), last = before, len(shapes[1]) - 1
        is_mixed = (matrix is not None and matrix >= last - 1) or right == last - bool(params["left_side"])
        after = [MIXED if is_mixed else matrix if right is None else right]
    elif len(results) > 1 and results == shapes:  # each result is of its own input, as behind a barrier
        after = before
    else:
        for new in results:
            # Entry by entry, of arrays of one shape, or with axes of size 1.
            alike = [(shape, at) for shape, at in known if len(shape) == len(new)]
            alike = [pair for pair in alike if all(own in (1, size) for own, size in zip(pair[0], new, strict=True))]
            axes = {at for shape, at in alike if shape[at] == new[at]}
            after.append(MIXED if len(axes) > 1 else next(iter(axes), None))
    return after + [None] * (len(results) - len(after))


def _shifted(axis: int, gone: Any) -> int:
    return axis - len([one for one in gone if one < axis])


def _moved_axis(name: str, params: Any, old: tuple[int, ...], new: tuple[int, ...], axis: int) -> int | None:
    """Where an operation of one array puts an axis."""
    if name in ("slice", "dynamic_slice"):  # some of the rows are other rows' neighbours, or the first
        return axis if new[axis] == old[axis] else MIXED
    if name == "rev":
        return MIXED if axis in params["dimensions"] else axis
    if name == "broadcast_in_dim":
        return int(params["broadcast_dimensions"][axis])
    if name == "transpose":
        return list(params["permutation"]).index(axis)
    if name == "squeeze":
        return _shifted(axis, params["dimensions"])
    if name == "reshape":
        left = math.prod(old[:axis])
        places = [at for at, size in enumerate(new) if size == old[axis] and math.prod(new[:at]) == left]
        return places[-1] if places else None
    return MIXED if axis >= len(old) - 2 else axis  # a factor


def _gathered_axis(
    params: Any, shape: tuple[int, ...], result: tuple[int, ...], axis: int | None, index: int | None
) -> int | None:
    """By rows of a plate all rows come back in their order: the axis is then that of the indices."""
    how, sizes = params["dimension_numbers"], params["slice_sizes"]
    placed = [at for at in range(len(result)) if at not in how.offset_dims]
    if axis is None:
        return placed[index] if index is not None and index < len(placed) else None
    if sizes[axis] == shape[axis]:
        gone = {*how.collapsed_slice_dims, *how.operand_batching_dims}
        return None if axis in gone else int(how.offset_dims[_shifted(axis, gone)])
    return next((at for at in placed if result[at] == shape[axis]), MIXED)


def _product_axis(params: Any, shapes: list[tuple[int, ...]], before: list[int | None]) -> int | None:
    (left, right), (left_batch, right_batch) = params["dimension_numbers"]
    free = len(shapes[0]) - len(left) - len(left_batch)
    places = set()
    for first, axis, contracted, batch in ((0, before[0], left, left_batch), (free, before[1], right, right_batch)):
        if axis in contracted:
            return MIXED
        if axis in batch:
            places.add(tuple(batch).index(axis))
        elif axis is not None:
            places.add(len(batch) + first + _shifted(axis, {*contracted, *batch}))
    return places.pop() if len(places) == 1 else MIXED
