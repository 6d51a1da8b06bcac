"""``X[rows]`` where ``rows`` are all rows in their order is ``X``: a gather that costs, and on several devices speaks.

A model that indexes its data by its plate does so too where the plate holds all that it is given. The compiler does not
see that such a gather changes nothing, and for data in pieces on several devices it sends all rows to all of them.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Jaxpr, Literal

from numpyro_gp.primitives.programs import carried_out

# What is known of a value: it holds 0, 1, 2, ... in its order, or it is False everywhere.
COUNTING, NEVER = "counting", "never"
RESHAPES = frozenset({"broadcast_in_dim", "reshape", "squeeze", "expand_dims"})


def without_own_rows(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, without the gathers of an array's own rows."""

    def run(*arguments: Any) -> Any:
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
        results, _ = _evaluate(closed.jaxpr, closed.consts, jax.tree.leaves(arguments), {})
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    return run


def _evaluate(program: Jaxpr, constants: Any, inputs: Any, known: dict[int, str]) -> tuple[list[Any], list[Any]]:
    """Results of a program, and what is known of each; ``known`` is that of its inputs, by their numbers."""
    values = dict(zip((*program.constvars, *program.invars), (*constants, *inputs), strict=True))
    facts: dict[Any, Any] = {program.invars[number]: fact for number, fact in known.items()}

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else values[atom]

    def fact_of(atom: Any) -> Any:
        return None if isinstance(atom, Literal) else facts.get(atom)

    for equation in program.eqns:
        before = [fact_of(atom) for atom in equation.invars]
        after = [learnt(equation, before)] * len(equation.outvars)
        name, params, inputs = equation.primitive.name, equation.params, equation.invars
        if name in ("jit", "pjit"):
            given = {number: fact for number, fact in enumerate(before) if fact}
            inner = params["jaxpr"]
            results, after = _evaluate(inner.jaxpr, inner.consts, [read(atom) for atom in inputs], given)
        elif name == "select_n" and before[0] == NEVER:
            results, after = [read(inputs[1])], [before[1]]
        elif name == "gather" and before[1] == COUNTING and takes_all_rows(params, inputs):
            results = [read(inputs[0])]
        else:
            equation = equation.replace(params=_body(equation, before)) if name == "scan" else equation
            results = carried_out(program, equation, read)
        values.update(zip(equation.outvars, results, strict=True))
        facts.update((var, fact) for var, fact in zip(equation.outvars, after, strict=True) if fact)
    return [read(atom) for atom in program.outvars], [fact_of(atom) for atom in program.outvars]


def _body(equation: Any, before: list[Any]) -> dict[str, Any]:
    """Parameters of a loop whose body knows what is known of its constants."""
    params, body = equation.params, equation.params["jaxpr"]
    # What each turn has a piece of has one axis less inside. Constants come first, then what is carried.
    inside = [len(a.shape) == len(b.aval.shape) for a, b in zip(body.in_avals, equation.invars, strict=True)]
    carried = [len(a.shape) == len(b.aval.shape) for a, b in zip(body.out_avals, equation.outvars, strict=True)]
    known = {number: fact for number, fact in enumerate(before[: sum(inside) - sum(carried)]) if fact}
    empty = [jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in body.in_avals]
    run = lambda *inputs: _evaluate(body.jaxpr, body.consts, inputs, known)[0]  # noqa: E731
    return {**params, "jaxpr": jax.make_jaxpr(run)(*empty)}


def learnt(equation: Any, before: list[Any]) -> str | None:
    """What is known of the result of an operation."""
    if not equation.outvars:  # a callback
        return None
    name, result = equation.primitive.name, equation.outvars[0].aval
    is_whole = jnp.issubdtype(result.dtype, jnp.integer)
    if name == "iota":
        return COUNTING if result.ndim == 1 and is_whole else None
    if not before or before[0] != COUNTING:
        return None
    if name == "convert_element_type" or (name in RESHAPES and result.size == equation.invars[0].aval.size):
        return before[0] if is_whole else None
    zero = equation.invars[1] if name == "lt" else None
    return NEVER if isinstance(zero, Literal) and not np.any(zero.val) else None


def takes_all_rows(params: dict[str, Any], inputs: list[Any]) -> bool:
    """Whether a gather by counting indices has all rows of its array, in their order."""
    array, rows, how = inputs[0].aval, inputs[1].aval, params["dimension_numbers"]
    return (
        rows.shape == (array.shape[0], 1)
        and tuple(params["slice_sizes"]) == (1, *array.shape[1:])
        and tuple(how.collapsed_slice_dims) == tuple(how.start_index_map) == (0,)
        and tuple(how.offset_dims) == tuple(range(1, array.ndim))
        and not how.operand_batching_dims
    )
