"""Whether a program combines rows with each other: each of its results then is of all rows, and not of one.

``X - X.mean(0)`` in a model does. In chunks of rows it would be the mean of each chunk. One axis of each value is
followed through the operations that this library and ordinary models are made of. Of an operation that is not known
here, the axis is taken to be where a result has the shape of its input, and else no more is said of it.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from numpyro_gp.programs.private import parts_of_loop
from numpyro_gp.programs.trace import ANY_POINT, aval_of, live, variables_of

MIXED = -1  # of an axis: its rows have been combined
WHOLE = frozenset({"reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or"})
WHOLE |= {"argmax", "argmin"}
ALONG = frozenset({"cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"})


def mixing_of(program: Jaxpr, axes: Mapping[object, int]) -> str | None:
    """Name of the first operation whose result combines rows and counts in the end, None where there is none.

    Parameters
    ----------
    program : Jaxpr
        Of `traced`.
    axes : dict
        Axis of the rows in each input that has them.
    """
    return _Walk().follow(program, dict(axes))


class _Walk:
    """One way through a program, and those inside of it."""

    def follow(self, program: Jaxpr, axes: dict[Any, int]) -> str | None:
        """Fill in the axes of all values; the name of the first operation that combines rows."""
        for equation in program.eqns:
            before = [None if isinstance(atom, Literal) else axes.get(atom) for atom in equation.invars]
            if all(axis is None for axis in before) or ANY_POINT in str(equation.source_info.name_stack):
                continue
            name, inner = equation.primitive.name, None
            if name in ("scan", "while", "cond"):
                after, inner = self._inside(equation, before)
            else:
                after = _after(equation, before)
            if inner is not None or MIXED in after:
                return inner or str(name)
            axes.update({var: axis for var, axis in zip(equation.outvars, after, strict=True) if axis is not None})
        return None

    def _inside(self, equation: JaxprEqn, before: list[int | None]) -> tuple[list[int | None], str | None]:
        """Axes of the results of a loop or branch, and what combines rows in it."""
        name, params = equation.primitive.name, equation.params
        if name == "cond":
            found = [self._body(branch, before[1:]) for branch in params["branches"]]
            return found[0][0], next((inner for _, inner in found if inner), None)
        if name == "while":
            first = params["cond_nconsts"]
            return self._body(params["body_jaxpr"], before[first:])
        (constants, carried), body = parts_of_loop(params), params["jaxpr"]
        first = constants + carried
        rows = [var for var, axis in zip(body.jaxpr.invars[first:], before[first:], strict=True) if axis == 0]
        if rows and not _made_of(body.jaxpr, rows).isdisjoint(variables_of(body.jaxpr.outvars[:carried])):
            return [], "scan"
        steps = [None if axis is None or axis == 0 else axis - 1 for axis in before[first:]]
        after, inner = self._body(body, [*before[:first], *steps])
        put_back = [0 if rows else None if axis is None else axis + 1 for axis in after[carried:]]
        return [*after[:carried], *put_back], inner

    def _body(self, body: ClosedJaxpr, before: list[int | None]) -> tuple[list[int | None], str | None]:
        axes = {var: axis for var, axis in zip(body.jaxpr.invars, before, strict=True) if axis is not None}
        inner = self.follow(live(body.jaxpr), axes)
        return [None if isinstance(atom, Literal) else axes.get(atom) for atom in body.jaxpr.outvars], inner


def _made_of(program: Jaxpr, values: Iterable[object]) -> set[object]:
    """All values of a program that depend on these."""
    found = set(values)
    for equation in program.eqns:
        if found.intersection(variables_of(equation.invars)):
            found.update(equation.outvars)
    return found


def _after(equation: JaxprEqn, before: list[int | None]) -> list[int | None]:
    """Axis of the rows in each result, `MIXED` where they are combined, None where it is not known."""
    if rule := RULES.get(equation.primitive.name):
        return [rule(equation, before)] + [None] * (len(equation.outvars) - 1)
    if len(equation.outvars) == len(equation.invars) > 1:  # each result is of its own input, as behind a barrier
        shapes = [(aval_of(a).shape, aval_of(b).shape) for a, b in zip(equation.invars, equation.outvars, strict=True)]
        if all(one == other for one, other in shapes):
            return before
    pairs = zip(equation.invars, before, strict=True)
    known = [(aval_of(atom).shape, axis) for atom, axis in pairs if axis is not None]
    after: list[int | None] = []
    for var in equation.outvars:
        axes = {axis for shape, axis in known if _becomes(shape, axis, getattr(var.aval, "shape", ()))}
        after.append(MIXED if len(axes) > 1 else next(iter(axes), None))
    return after


def _becomes(shape: tuple[int, ...], axis: int, result: tuple[int, ...]) -> bool:
    """Whether a value entry by entry gives a result, with the rows where they were."""
    is_entrywise = len(shape) == len(result) and all(size in (1, new) for size, new in zip(shape, result, strict=True))
    return is_entrywise and shape[axis] == result[axis]


def _only(before: list[int | None]) -> int | None:
    return next((axis for axis in before if axis is not None), None)


def _shifted(axis: int, gone: Any) -> int:
    return axis - len([one for one in gone if one < axis])


def _reduced(equation: JaxprEqn, before: list[int | None]) -> int | None:
    axis, gone = _only(before), tuple(equation.params["axes"])
    assert axis is not None
    return MIXED if axis in gone else _shifted(axis, gone)


def _along(equation: JaxprEqn, before: list[int | None]) -> int | None:
    axis = _only(before)
    return MIXED if axis == equation.params.get("axis", equation.params.get("dimension")) else axis


def _spread(equation: JaxprEqn, before: list[int | None]) -> int | None:
    axis = before[0]
    return None if axis is None else int(equation.params["broadcast_dimensions"][axis])


def _reshaped(equation: JaxprEqn, before: list[int | None]) -> int | None:
    axis, old, new = before[0], aval_of(equation.invars[0]).shape, aval_of(equation.outvars[0]).shape
    if axis is None:
        return None
    left = math.prod(old[:axis])
    places = [at for at, size in enumerate(new) if size == old[axis] and math.prod(new[:at]) == left]
    return places[-1] if places else None


def _cut(equation: JaxprEqn, before: list[int | None]) -> int | None:
    """Some of the rows alone are other rows' neighbours, or the first: what is made of them is not of one row."""
    axis = before[0]
    if axis is None:
        return None
    is_whole = aval_of(equation.outvars[0]).shape[axis] == aval_of(equation.invars[0]).shape[axis]
    return axis if is_whole else MIXED


def _joined(equation: JaxprEqn, before: list[int | None]) -> int | None:
    axis = _only(before)
    return None if axis == equation.params["dimension"] else axis


def _gathered(equation: JaxprEqn, before: list[int | None]) -> int | None:
    """By rows of a plate all rows come back in their order: the axis is then that of the indices."""
    how, sizes = equation.params["dimension_numbers"], equation.params["slice_sizes"]
    result, count = aval_of(equation.outvars[0]).shape, aval_of(equation.invars[0]).shape
    axis, placed = before[0], [at for at in range(len(result)) if at not in how.offset_dims]
    if axis is not None and sizes[axis] == count[axis]:
        gone = {*how.collapsed_slice_dims, *how.operand_batching_dims}
        return None if axis in gone else int(how.offset_dims[_shifted(axis, gone)])
    if axis is not None:
        return next((at for at in placed if result[at] == count[axis]), MIXED)
    index = before[1]
    return placed[index] if index is not None and index < len(placed) else None


def _product(equation: JaxprEqn, before: list[int | None]) -> int | None:
    (left, right), (left_batch, right_batch) = equation.params["dimension_numbers"]
    sides = [(left, left_batch), (right, right_batch)]
    sizes = [len(aval_of(atom).shape) for atom in equation.invars]
    free = sizes[0] - len(left) - len(left_batch)
    places = set()
    for number, (axis, (contracted, batch)) in enumerate(zip(before, sides, strict=True)):
        if axis is None:
            continue
        if axis in contracted:
            return MIXED
        if axis in batch:
            places.add(tuple(batch).index(axis))
        else:
            places.add(len(batch) + number * free + _shifted(axis, {*contracted, *batch}))
    return places.pop() if len(places) == 1 else MIXED


def _solved(equation: JaxprEqn, before: list[int | None]) -> int | None:
    matrix, right = before
    size = len(aval_of(equation.invars[1]).shape)
    if matrix is not None and matrix >= size - 2:
        return MIXED
    if right is None:
        return matrix
    return MIXED if right == (size - 2 if equation.params["left_side"] else size - 1) else right


def _factorised(equation: JaxprEqn, before: list[int | None]) -> int | None:
    axis = before[0]
    return MIXED if axis is not None and axis >= len(aval_of(equation.invars[0]).shape) - 2 else axis


RULES: dict[str, Callable[[JaxprEqn, list[int | None]], int | None]] = {
    **dict.fromkeys(WHOLE, _reduced),
    **dict.fromkeys(ALONG, _along),
    **dict.fromkeys(("slice", "dynamic_slice"), _cut),
    **dict.fromkeys(("cholesky", "eigh", "lu", "qr"), _factorised),
    "sort": _along,
    "rev": lambda one, before: MIXED if before[0] in one.params["dimensions"] else before[0],
    "broadcast_in_dim": _spread,
    "reshape": _reshaped,
    "transpose": lambda one, before: None if before[0] is None else list(one.params["permutation"]).index(before[0]),
    "squeeze": lambda one, before: None if before[0] is None else _shifted(before[0], one.params["dimensions"]),
    "concatenate": _joined,
    "gather": _gathered,
    "dot_general": _product,
    "triangular_solve": _solved,
}
