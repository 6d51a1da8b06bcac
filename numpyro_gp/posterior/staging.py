"""Split a function of two arguments in the part that needs only the first, run once, and the rest."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
from jax.extend.core import ClosedJaxpr, Literal, Var, jaxpr_as_fun

__all__ = ["Staged", "stage"]

# Operations whose result is larger than what it is made of, and those that keep it so: they are cheap, and repeated
# in the second part where handing their result over would cost a number for each row and posterior draw.
SPREADING = frozenset({"broadcast_in_dim", "iota"})
ELEMENTWISE = frozenset(
    {"add", "sub", "mul", "div", "max", "min", "neg", "sqrt", "rsqrt", "log", "exp", "log1p", "square", "pow"}
    | {"integer_pow", "select_n", "convert_element_type", "reshape", "squeeze", "expand_dims", "add_any", "copy"}
)


class Staged(NamedTuple):
    """Three functions that compose to one, each with everything that the parts before it returned.

    ``shared = once(constants)``, ``own = prepare(constants, shared, fixed)`` and then
    ``finish(constants, shared, own, moving)``. ``constants`` are the arrays that the function had
    captured. They are arguments, so that compiled programs do not hold copies of them.
    """

    constants: list[Any]
    once: Callable[[list[Any]], list[Any]]
    prepare: Callable[[list[Any], list[Any], Any], list[Any]]
    finish: Callable[[list[Any], list[Any], list[Any], Any], Any]


def stage(function: Callable[[Any, Any], Any], fixed: Any, moving: Any) -> Staged:
    """Split ``function(fixed, moving)`` in what needs neither argument, what needs the first, and the rest.

    A pass over the traced program puts every operation into the first part that has its inputs: with
    a posterior draw as ``fixed`` and rows of data as ``moving``, the factorisation of ``k(Z, Z)``
    runs once for each draw and not once for each chunk of rows. The parts may be transformed
    (``jit``, ``vmap``, ``lax.map``).

    Parameters
    ----------
    function : callable
        Traceable function of two pytrees of arrays.
    fixed, moving : pytrees of arrays or ``jax.ShapeDtypeStruct``
        Shapes and types; the parts work for these only.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> constants, once, prepare, finish = stage(lambda a, x: jnp.linalg.cholesky(a) @ x, jnp.eye(2), jnp.ones(2))
    >>> shared = once(constants)
    >>> finish(constants, shared, prepare(constants, shared, 4.0 * jnp.eye(2)), jnp.array([1.0, 3.0])).tolist()
    [2.0, 6.0]
    """
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(fixed, moving)
    program, structure = closed.jaxpr, jax.tree.structure(shapes)
    count = len(jax.tree.leaves(fixed))
    given, rows = program.invars[:count], program.invars[count:]
    level, spread = _levels(program, given, rows), _spread(program)
    last, handed = _part(program, level, spread, program.outvars, 3)
    own = [var for var in handed if level[var] == 2]
    middle, lower = _part(program, level, spread, own, 2)
    shared = list(dict.fromkeys([var for var in handed + lower if level[var] == 1]))
    first, _ = _part(program, level, spread, shared, 1)
    compute = _function(program, [], first, shared)
    prepared = _function(program, shared + given, middle, own)
    finished = _function(program, shared + own + rows, last, program.outvars)

    def once(constants: list[Any]) -> list[Any]:
        return compute(*constants)

    def prepare(constants: list[Any], shared: list[Any], fixed: Any) -> list[Any]:
        return prepared(*constants, *shared, *jax.tree.leaves(fixed))

    def finish(constants: list[Any], shared: list[Any], own: list[Any], moving: Any) -> Any:
        return jax.tree.unflatten(structure, finished(*constants, *shared, *own, *jax.tree.leaves(moving)))

    return Staged(list(closed.consts), once, prepare, finish)


def _variables(atoms: Iterable[Any]) -> list[Var]:
    return [atom for atom in atoms if not isinstance(atom, Literal)]


def _level(level: dict[Var, int], atoms: Iterable[Any]) -> int:
    return max((level[atom] for atom in _variables(atoms)), default=0)


def _levels(program: Any, given: list[Var], rows: list[Var]) -> dict[Var, int]:
    """0: made of literals alone; 1: of constants; 2: of the first argument; 3: of the second argument."""
    level = {**dict.fromkeys(program.constvars, 1), **dict.fromkeys(given, 2), **dict.fromkeys(rows, 3)}
    for equation in program.eqns:
        level.update(dict.fromkeys(equation.outvars, _level(level, equation.invars)))
    return level


def _spread(program: Any) -> set[Var]:
    """Results that are copies of smaller arrays, up to elementwise operations."""
    spread: set[Var] = set()
    for equation in program.eqns:
        name = equation.primitive.name
        if name in SPREADING or (name in ELEMENTWISE and spread.intersection(_variables(equation.invars))):
            spread.update(equation.outvars)
    return spread


def _part(
    program: Any, level: dict[Var, int], spread: set[Var], outputs: list[Any], own: int
) -> tuple[list[Any], list[Var]]:
    """Operations that make ``outputs`` in the part of a level, in order, and the variables of the parts before it."""
    needed, handed, equations = set(_variables(outputs)), [], []
    for equation in reversed(program.eqns):
        made = [var for var in equation.outvars if var in needed]
        if not made:
            continue
        if 0 < _level(level, equation.outvars) < own and not spread.issuperset(made):
            handed += made
        else:
            equations.append(equation)
            needed.update(_variables(equation.invars))
    handed += [var for var in program.invars if var in needed and level[var] < own]
    return equations[::-1], handed


def _function(program: Any, inputs: list[Var], equations: list[Any], outputs: list[Any]) -> Callable[..., Any]:
    """The equations as a function of the constants and the inputs."""
    effects = set().union(*(equation.effects for equation in equations))
    arguments = program.constvars + inputs
    part = program.replace(constvars=[], invars=arguments, outvars=outputs, eqns=equations, effects=effects)
    return jaxpr_as_fun(ClosedJaxpr(part, []))
