"""Whether a model computes with the number of its rows, or with the number of each: chunks of rows have others.

Nothing in the program of ``len(X)`` rows says where a number is from. Beside a program of one row more it does: their
literals differ, or a count of 0, 1, 2, ... goes further.
"""

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from numpyro_gp.programs.trace import ANY_POINT, variables_of
from numpyro_gp.rows.row_facts import Facts

# Operations on whole numbers that keep an index inside of an array, whatever the length of that.
BOUNDS = frozenset({"clamp", "min", "max", "lt", "le", "gt", "ge", "eq", "ne"})


def counts_rows(program: Jaxpr, longer: Jaxpr) -> bool:
    """Whether the result of a program depends on how many rows there are, by that of the same function of more rows.

    Programs that do not go through the same operations, as where a branch of the model asks for the number, are not
    compared.
    """
    if [one.primitive for one in program.eqns] != [one.primitive for one in longer.eqns]:
        return False
    rows = dict[object, tuple[int, str]]()
    for one, other in zip(program.eqns, longer.eqns, strict=True):
        if ANY_POINT in str(one.source_info.name_stack):
            continue
        if any(map(_is_other, one.invars, other.invars)) and not _is_bound(one, program):
            return True
        if one.primitive.name == "integer_pow" and one.params["y"] != other.params["y"]:
            return True
        if one.primitive.name == "iota" and _counted(one) != _counted(other):
            rows[one.outvars[0]] = _counted(one), "rows"
        if any(counts_rows(*pair) for pair in zip(_bodies(one), _bodies(other), strict=True)):
            return True
    facts = Facts(rows)
    facts.follow(program, {})
    return bool(facts.counts.found)


def _is_other(one: Any, other: Any) -> bool:
    both = isinstance(one, Literal) and isinstance(other, Literal)
    return both and np.asarray(one.val).tobytes() != np.asarray(other.val).tobytes()


def _counted(iota: JaxprEqn) -> int:
    """How far an operation counts."""
    return int(iota.params["shape"][iota.params["dimension"]])


def _is_bound(equation: JaxprEqn, program: Jaxpr) -> bool:
    """Whether an operation keeps an index inside of an array, from its end too if it is negative."""
    if not all(jnp.issubdtype(atom.aval.dtype, jnp.integer) for atom in equation.invars):
        return False
    users = [one.primitive.name for one in program.eqns if equation.outvars[0] in variables_of(one.invars)]
    return equation.primitive.name in BOUNDS or (equation.primitive.name == "add" and set(users) == {"select_n"})


def _bodies(equation: JaxprEqn) -> Iterator[Jaxpr]:
    for value in equation.params.values():
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, ClosedJaxpr):
                yield one.jaxpr
