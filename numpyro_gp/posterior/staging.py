"""Split a traced program in the part that needs only its first inputs, and the rest."""

from collections.abc import Iterable
from typing import Any

from jax.extend.core import Jaxpr, Literal, Var

# Operations whose result is larger than what it is made of, and those that keep it so: they are cheap, and repeated
# in the second part where handing their result over would cost a number for each row and posterior draw.
SPREADING = frozenset({"broadcast_in_dim", "iota"})
ELEMENTWISE = frozenset(
    {"add", "sub", "mul", "div", "max", "min", "neg", "sqrt", "rsqrt", "log", "exp", "log1p", "square", "pow"}
    | {"integer_pow", "select_n", "convert_element_type", "reshape", "squeeze", "expand_dims", "add_any", "copy"}
    | {"device_put"}  # what JAX 0.7 makes of jnp.asarray
)


def split(program: Jaxpr, count: int) -> tuple[Jaxpr, Jaxpr]:
    """Two programs that compose to one: the first needs the first ``count`` inputs only, the second gets its results.

    With a posterior draw as the first inputs and rows of data as the others, the factorisation of
    ``k(Z, Z)`` stands in the first, whoever makes it: a process, a belief or the user's own algebra.

    Parameters
    ----------
    program : Jaxpr
        Without inner ``jit`` and constants: see `programs.traced`.

    Returns
    -------
    first, second : Jaxpr
        ``handed = first(*early)`` and ``second(*early, *handed, *late)`` for inputs ``early + late``.
    """
    early, late = program.invars[:count], program.invars[count:]
    known, cheap = _known(program, early)
    needed, handed, after = set(_variables(program.outvars)), [], []
    for equation in reversed(program.eqns):
        made = [var for var in equation.outvars if var in needed]
        if made and known.issuperset(made) and not cheap.issuperset(made):
            handed += made
        elif made or equation.effects:
            after.append(equation)
            needed.update(_variables(equation.invars))
    needed, before = set(handed), []
    for equation in reversed(program.eqns):
        if needed.intersection(equation.outvars):
            before.append(equation)
            needed.update(_variables(equation.invars))
    return _part(program, early, before, handed), _part(program, early + handed + late, after, program.outvars)


def _known(program: Jaxpr, early: list[Var]) -> tuple[set[Var], set[Var]]:
    """What the early inputs determine, and of all values those that are copies of smaller ones or of numbers alone."""
    known = set(early)
    cheap: set[Var] = set()
    bare: set[Var] = set()
    for equation in program.eqns:
        inputs, name = set(_variables(equation.invars)), equation.primitive.name
        if inputs <= known and not equation.effects:
            known.update(equation.outvars)
        if inputs <= bare:
            bare.update(equation.outvars)
        if inputs <= bare or name in SPREADING or (name in ELEMENTWISE and inputs & cheap):
            cheap.update(equation.outvars)
    return known, cheap


def _variables(atoms: Iterable[Any]) -> list[Var]:
    return [atom for atom in atoms if not isinstance(atom, Literal)]


def _part(program: Jaxpr, inputs: list[Var], equations: list[Any], outputs: list[Any]) -> Jaxpr:
    effects = set().union(*(equation.effects for equation in equations))
    return program.replace(constvars=[], invars=inputs, outvars=outputs, eqns=equations[::-1], effects=effects)
