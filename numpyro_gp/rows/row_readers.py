"""What a traced model does with the rows of its arguments, equation by equation."""

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from numpyro_gp.programs.private import parts_of_loop
from numpyro_gp.programs.trace import aval_of, replaced

# --------------------------------------------------------------------------------------
# Which plates have rows that a program computes with: a number that depends on how rows are counted.
#
# Data that come in chunks, or in a stream, are counted anew in each part. Arrays that are read by the rows of a plate
# are cut with them, and are none the worse for it; ``0.1 * rows`` is.


RESHAPES = frozenset({"broadcast_in_dim", "reshape", "squeeze", "expand_dims"})
COPIES = frozenset({"copy", "device_put"})  # of jnp.array, and of jnp.asarray with JAX 0.7
# Operations that leave rows rows: they put them beside each other, or into another place or type.
PLACING = RESHAPES | COPIES | {"concatenate", "transpose", "convert_element_type", "select_n", "clamp", "stop_gradient"}


class Counts:
    """Which plates have rows that a program computes with, as a number that counts data does.

    Rows may be put beside each other and index an array: all else that is made of them, and is no whole number itself,
    depends on how rows are numbered.
    """

    def __init__(self) -> None:
        self.found: set[str] = set()
        # Values made of rows: the plates of these, and whether they are still rows.
        self._made: dict[object, tuple[frozenset[str], bool]] = {}

    def start(self, var: object, plate: str) -> None:
        """Begin with the rows of a plate."""
        self._made[var] = frozenset({plate}), True

    def inside(self, inner: Iterable[object], outer: Iterable[object]) -> "Counts":
        """Those of the body of a loop, which has these values of the program around it."""
        own = Counts()
        own.found = self.found
        own._made = {var: self._made[atom] for var, atom in zip(inner, outer) if self._of(atom) is not None}
        return own

    def _of(self, atom: object) -> tuple[frozenset[str], bool] | None:
        return None if isinstance(atom, Literal) else self._made.get(atom)

    def see(self, equation: JaxprEqn, inputs: list[object]) -> None:
        """Follow what is made of rows through one operation."""
        name = equation.primitive.name
        if name == "scan":  # its body was followed where rows are constants of it
            inputs = inputs[parts_of_loop(equation.params)[0] :]
        made = [found for found in map(self._of, inputs) if found is not None]
        if not made:
            return
        if name == "gather":
            index, made = self._of(inputs[1]), [found for found in [self._of(inputs[0])] if found is not None]
            if index is not None and not index[1]:
                self.found |= index[0]
        plates = frozenset[str]().union(*(own for own, _ in made))
        is_plain = name in PLACING and all(is_row for _, is_row in made)
        for var in equation.outvars if plates else ():
            dtype = getattr(var.aval, "dtype", None)
            if dtype is not None and any(jnp.issubdtype(dtype, kind) for kind in (jnp.integer, jnp.bool_)):
                self._made[var] = plates, is_plain
            else:
                self.found |= plates


class Facts:
    """What is known of the values of a program, followed from its inputs to its results.

    A fact is the number of the array that a value is, ``COUNTING`` or ``NEVER``. ``rows`` are the values that are
    rows of plates, with the plates' sizes and names; ``read`` takes the number of each array that is read by them, with
    the largest size of such a plate, ``readers`` the names of these, and ``counts`` what else is made of rows.
    """

    def __init__(self, rows: Mapping[object, tuple[int, str]], counts: Counts | None = None) -> None:
        self.rows, self.read, self.readers = rows, dict[int, int](), dict[int, set[str]]()
        # Of those that are read, where JAX repeats the last row in place of one that is not there.
        self.repeated = dict[int, int]()
        # Values made of arrays that rows of plates read, and arrays that other indices read, as codes do a table.
        self.made, self.looked_up = list[Any](), set[int]()
        self.counts = Counts() if counts is None else counts

    def follow(self, program: Jaxpr, facts: dict[object, Any]) -> tuple[Jaxpr, list[Any]]:
        """The program without gathers of all rows, and what is known of its results; ``facts`` are of its inputs."""
        same: dict[object, object] = {}
        equations = []

        def read(atom: object) -> Any:
            return atom if isinstance(atom, Literal) else same.get(atom, atom)

        def known(atoms: Iterable[object]) -> list[Any]:
            return [None if isinstance(atom, Literal) else facts.get(atom) for atom in atoms]

        for equation in program.eqns:
            inputs = [read(atom) for atom in equation.invars]
            before = known(inputs)
            if (kept := self._kept(equation, inputs, before)) is not None:
                same[equation.outvars[0]] = kept
                continue
            parameters = self._without_gathers(equation, before) if equation.primitive.name == "scan" else {}
            self.counts.see(equation, inputs)
            if same or parameters:
                equation = equation.replace(invars=inputs, params={**equation.params, **parameters})
            equations.append(equation)
            facts.update(dict.fromkeys(equation.outvars, _learnt(equation, before)))
            for var in filter(self.rows.__contains__, equation.outvars):
                size, name = self.rows[var]
                facts[var] = _RowsOfPlate(size, name)
                self.counts.start(var, name)
        results = [read(atom) for atom in program.outvars]
        return replaced(program, eqns=equations, outvars=results), known(results)

    def _kept(self, equation: JaxprEqn, inputs: list[object], before: list[Any]) -> Any:
        """The input that the result of an operation is, if it is one."""
        name, params = equation.primitive.name, equation.params
        if name == "select_n" and before[0] == NEVER:
            return inputs[1]
        if name != "gather":
            return None
        by_rows = tuple(params["dimension_numbers"].start_index_map) == (0,)
        if before[1] != COUNTING:
            if by_rows and isinstance(before[0], int):
                self.looked_up.add(before[0])
            return None
        how = params["mode"]  # a user may ask for zeros, or NaN, where there is no row
        is_plates = isinstance(before[1], _RowsOfPlate) and isinstance(before[0], int)
        if by_rows and isinstance(before[1], _RowsOfPlate) and not is_plates:
            self.made.append(inputs[0])
        if is_plates and by_rows:
            self.read[before[0]] = max(before[1].size, self.read.get(before[0], 0))
            if how != jax.lax.GatherScatterMode.FILL_OR_DROP:
                self.repeated[before[0]] = max(before[1].size, self.repeated.get(before[0], 0))
            self.readers.setdefault(before[0], set()).add(before[1].name)
        return inputs[0] if _takes_all_rows(params, inputs) else None

    def _without_gathers(self, equation: JaxprEqn, before: list[Any]) -> dict[str, Any]:
        """The body of a loop, which knows what is known of its constants: they come first among its inputs."""
        body, count = equation.params["jaxpr"], parts_of_loop(equation.params)[0]
        facts = {var: fact for var, fact in zip(body.jaxpr.invars[:count], before) if isinstance(fact, str)}
        inner = Facts({}, self.counts.inside(body.jaxpr.invars[:count], equation.invars))
        return {"jaxpr": ClosedJaxpr(inner.follow(body.jaxpr, facts)[0], body.consts)}


class _RowsOfPlate(str):
    """The fact ``COUNTING`` of the rows of a plate, and how many rows an array must have that is read by them."""

    def __new__(cls, size: int, name: str) -> "_RowsOfPlate":
        fact = super().__new__(cls, COUNTING)
        fact.size, fact.name = size, name
        return fact

    size: int
    name: str


def _learnt(equation: JaxprEqn, before: list[object]) -> Any:
    """What is known of the result of an operation."""
    name, first = equation.primitive.name, before[0] if before else None
    if name in COPIES and len(before) == 1:
        return first
    # A callback has no result.
    if not equation.outvars or (name != "iota" and first != COUNTING):
        return None
    result = aval_of(equation.outvars[0])
    is_whole = hasattr(result, "dtype") and jnp.issubdtype(result.dtype, jnp.integer)
    if name == "iota":
        return COUNTING if result.ndim == 1 and is_whole else None
    if name == "convert_element_type" or (name in RESHAPES and result.size == aval_of(equation.invars[0]).size):
        return first if is_whole else None
    zero = equation.invars[1] if name == "lt" else None
    return NEVER if isinstance(zero, Literal) and not np.any(zero.val) else None


def _takes_all_rows(params: dict[str, Any], inputs: list[Any]) -> bool:
    """Whether a gather by counting indices has all rows of its array, in their order."""
    array, rows, how = inputs[0].aval, inputs[1].aval, params["dimension_numbers"]
    return (
        rows.shape == (array.shape[0], 1)
        and tuple(params["slice_sizes"]) == (1, *array.shape[1:])
        and tuple(how.collapsed_slice_dims) == tuple(how.start_index_map) == (0,)
        and tuple(how.offset_dims) == tuple(range(1, array.ndim))
        and not how.operand_batching_dims
    )


# What is known of a value: it holds 0, 1, 2, ... in its order, or it is False everywhere.
COUNTING, NEVER = "counting", "never"
