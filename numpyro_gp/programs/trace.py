"""A function as a program: its operations one after the other, and its early and late part.

Arrays that the function closes over are inputs.
"""

import functools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun
from jax.tree_util import PyTreeDef

from numpyro_gp.arrays import EAGER, Array, current_trace
from numpyro_gp.programs.handler_lock import alone

# Operations that call a program, and where they hold it; and those that have rules of derivatives, or of batches, too.
CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr"}
RULED = {
    "custom_vmap_call": "call",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
}
WHOLE = frozenset({int})  # the types in a shape, or in axes
# Operations whose result is larger than what it is made of, and those that keep it so: they are cheap, and repeated
# in the second part where handing their result over would cost a number for each row and posterior draw.
SPREADING = frozenset({"broadcast_in_dim", "iota"})
ELEMENTWISE = frozenset(
    {"add", "sub", "mul", "div", "max", "min", "neg", "sqrt", "rsqrt", "log", "exp", "log1p", "square", "pow"}
    | {"integer_pow", "select_n", "convert_element_type", "reshape", "squeeze", "expand_dims", "add_any", "copy"}
    | {"device_put"}  # what JAX 0.7 makes of jnp.asarray
)
# Not cheap even of numbers alone, as the factor of a kernel with nothing to learn at inducing inputs of the model's.
COSTLY = frozenset({"cholesky", "triangular_solve", "eigh", "lu", "qr", "svd", "dot_general", "while", "scan"})
# Scope of operations whose result may be any point: that it is made of several rows does not count (`mixing_of`).
ANY_POINT = "numpyro_gp_any_point"


def is_traced() -> bool:
    """Whether operations are traced now, and not carried out."""
    return bool(current_trace() != EAGER)


class Traced(NamedTuple):
    """A program without constants, inner calls and what nothing needs, its first inputs, and its result's structure."""

    program: Jaxpr
    constants: list[Array]
    structure: PyTreeDef


@alone
def traced(function: Callable[..., object], *arguments: object) -> Traced:
    """The program of a function of trees of arrays; arrays that it captures are the first inputs.

    JAX remembers a function that it traced, and the structures of its arguments and its result for longer than that.
    They may hold a guide, and its model with the data: it sees leaves alone.
    """
    leaves, structure = jax.tree.flatten(arguments)
    results: list[object] = []

    def of_leaves(*leaves: object) -> list[object]:
        found, result = jax.tree.flatten(function(*jax.tree.unflatten(structure, leaves)))
        results.append(result)
        return found

    flat = written_out(jax.make_jaxpr(of_leaves)(*leaves), dead=False)
    program = replaced(flat.jaxpr, constvars=[], invars=[*flat.jaxpr.constvars, *flat.jaxpr.invars])
    return Traced(program, list(flat.consts), results[-1])


def replaced(program: Any, **parts: object) -> Jaxpr:
    """A program with other parts."""
    return program.replace(**parts)


def as_function(program: Jaxpr) -> Callable[..., list[Array]]:
    """A program of no constants as a function of its inputs."""
    return jaxpr_as_fun(ClosedJaxpr(program, []))


def written_out(closed: ClosedJaxpr, *, dead: bool = True) -> ClosedJaxpr:
    """A program with its inner calls written out: a jitted helper hides nothing, and its constants are those of all.

    A program runs forward, and rules of derivatives go, but not inside of another trace, which may take some. Without
    ``dead`` it is left without operations that nothing needs, neither a result nor an effect: a third of what stands in
    models and their derivatives.
    """
    into = _Written(CALLS if is_traced() else CALLS | RULED)
    inputs = [Var(var.aval) for var in closed.jaxpr.invars]
    results = into.place(closed.jaxpr, [*map(into.constant, closed.jaxpr.constvars, closed.consts), *inputs])
    # One helper that is called many times has one loop, or branch, in all places.
    inside = functools.cache(functools.partial(written_out, dead=dead))
    wanted, equations = set(variables_of(results)), []
    for equation, own, made, where in reversed(into.lines):
        if dead or equation.effects or not wanted.isdisjoint(made):
            wanted.update(variables_of(own))
            parameters = _parameters(equation.params, inside)
            equations.append(equation.replace(invars=own, outvars=made, params=parameters, source_info=where))
    variables = [var for var, _ in into.constants.values()]
    flat = replaced(closed.jaxpr, constvars=variables, invars=inputs, outvars=results, eqns=equations[::-1])
    return ClosedJaxpr(flat, [value for _, value in into.constants.values()])


class _Written:
    """The operations of a program and of what it calls, in their order: each with its values and its scope."""

    def __init__(self, calls: dict[str, str]) -> None:
        self.calls = calls
        self.constants: dict[int, tuple[Var, Any]] = {}
        self.lines: list[tuple[Any, list[Any], list[Var], Any]] = []

    def constant(self, var: Var, value: object) -> Var:
        return self.constants.setdefault(id(value), (Var(var.aval), value))[0]

    def place(self, program: Jaxpr, inputs: list[Any], scope: Any = None) -> list[Any]:
        """Write a program that is called with these inputs; its results."""
        known = dict(zip(program.constvars + program.invars, inputs, strict=True))
        for equation in program.eqns:
            own = [atom if isinstance(atom, Literal) else known[atom] for atom in equation.invars]
            name, where = equation.primitive.name, equation.source_info
            # An inner program does not know the scope in which it is called.
            mark = where if len(where.name_stack) and ANY_POINT in str(where.name_stack) else scope
            inner = equation.params.get(self.calls[name]) if name in self.calls else None
            if isinstance(inner, ClosedJaxpr):
                held = map(self.constant, inner.jaxpr.constvars, inner.consts)
                known.update(zip(equation.outvars, self.place(inner.jaxpr, [*held, *own], mark), strict=True))
                continue
            made = []
            for var in equation.outvars:
                known[var] = new = Var(var.aval)
                made.append(new)
            self.lines.append((equation, own, made, mark or where))
        return [atom if isinstance(atom, Literal) else known[atom] for atom in program.outvars]


def _parameters(parameters: dict[str, Any], change: Callable[[ClosedJaxpr], object]) -> dict[str, Any]:
    """The parameters of an operation with the programs in them changed; themselves where there are none."""
    changed = {name: _each_program(value, change) for name, value in parameters.items()}
    return parameters if all(map(operator.is_, changed.values(), parameters.values())) else changed


def _each_program(parameter: object, change: Callable[[ClosedJaxpr], object]) -> Any:
    """A parameter of an operation, changed where it is a program or a tuple that holds some."""
    if isinstance(parameter, ClosedJaxpr):
        return change(parameter)
    if not isinstance(parameter, tuple) or WHOLE.issuperset(map(type, parameter)):
        return parameter
    items = [_each_program(item, change) for item in parameter]
    if all(map(operator.is_, items, parameter)):
        return parameter
    return type(parameter)(*items) if hasattr(parameter, "_fields") else tuple(items)


def aval_of(atom: Any) -> ShapedArray:
    """Shape and type of a value of a program."""
    return atom.aval


def size_of(program: Jaxpr, in_bytes: bool = False) -> int:
    """Numbers in the largest array that a program makes, or its bytes, also inside of loops and branches."""
    made = {id(var.aval): var.aval for equation in program.eqns for var in equation.outvars}
    inside = {id(body): body for equation in program.eqns for body in bodies_of(equation)}
    arrays: list[Any] = [array for array in made.values() if hasattr(array, "size")]
    sizes = [array.size * array.dtype.itemsize if in_bytes else int(array.size) for array in arrays]
    return max([*sizes, *(size_of(body, in_bytes) for body in inside.values())], default=0)


def bytes_of(program: Jaxpr) -> int:
    """Bytes of the largest array that a program makes."""
    return size_of(program, in_bytes=True)


def bodies_of(equation: JaxprEqn) -> Iterator[Jaxpr]:
    """The programs inside of an operation: of a loop, of branches."""
    for value in equation.params.values():
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, (Jaxpr, ClosedJaxpr)):
                yield part.jaxpr if isinstance(part, ClosedJaxpr) else part


# ---------------------------------------------------------------------------------------------- its two parts


def sources(program: Jaxpr) -> list[frozenset[int]]:
    """Numbers of the inputs that each output of a program is computed from: an operation mixes all that it has."""
    found = {var: frozenset([number]) for number, var in enumerate(program.invars)}

    def of(atoms: Iterable[object]) -> frozenset[int]:
        return frozenset().union(*(found.get(var, frozenset()) for var in variables_of(atoms)))

    for equation in program.eqns:
        found.update(dict.fromkeys(equation.outvars, of(equation.invars)))
    return [of([atom]) for atom in program.outvars]


def split(program: Jaxpr, count: int) -> tuple[Jaxpr, Jaxpr]:
    """Two programs that compose to one: the first needs the first ``count`` inputs only, the second gets its results.

    With a posterior draw as the first inputs and rows of data as the others, the factorisation of
    ``k(Z, Z)`` stands in the first, whoever makes it: a process, a belief or the user's own algebra.

    Parameters
    ----------
    program : Jaxpr
        Of `traced`: without inner calls and constants.

    Returns
    -------
    first, second : Jaxpr
        ``handed = first(*early)`` and ``second(*early, *handed, *late)`` for inputs ``early + late``.
    """
    early, late = program.invars[:count], program.invars[count:]
    # What the early inputs determine; and of all values those that are copies of smaller ones, or of numbers alone.
    known, cheap, bare = set(early), set[Var](), set[Var]()
    for equation in program.eqns:
        inputs, name = set(variables_of(equation.invars)), equation.primitive.name
        if inputs <= known and not equation.effects:
            known.update(equation.outvars)
        is_bare = inputs <= bare and name not in COSTLY
        if is_bare:
            bare.update(equation.outvars)
        if is_bare or name in SPREADING or (name in ELEMENTWISE and inputs & cheap):
            cheap.update(equation.outvars)
    wanted, handed, after = set(variables_of(program.outvars)), [], []
    for equation in reversed(program.eqns):
        made = [var for var in equation.outvars if var in wanted]
        if made and known.issuperset(made) and not cheap.issuperset(made):
            handed += made
        elif made or equation.effects:
            after.append(equation)
            wanted.update(variables_of(equation.invars))
    first = replaced(needed(program, handed), invars=early)
    return first, _part(program, early + handed + late, after, program.outvars)


def needed(program: Jaxpr, results: Iterable[Any]) -> Jaxpr:
    """The part of a program that makes some of its values; its inputs are those it needs, constants among them."""
    results = list(results)
    wanted, equations = set(variables_of(results)), []
    for equation in reversed(program.eqns):
        if wanted.intersection(equation.outvars):
            equations.append(equation)
            wanted.update(variables_of(equation.invars))
    inputs = [var for var in (*program.constvars, *program.invars) if var in wanted]
    return _part(program, inputs, equations, results)


def variables_of(atoms: Iterable[Any]) -> list[Var]:
    """Those of the inputs of an operation, or of results, that are no numbers."""
    return [atom for atom in atoms if not isinstance(atom, Literal)]


def _part(program: Jaxpr, inputs: list[Var], equations: list[Any], outputs: list[Any]) -> Jaxpr:
    effects = set().union(*(equation.effects for equation in equations))
    return replaced(program, constvars=[], invars=inputs, outvars=outputs, eqns=equations[::-1], effects=effects)
