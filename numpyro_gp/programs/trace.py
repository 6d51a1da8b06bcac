"""A function as a program: what it computes, which is also the key by which it is kept, and its early and late part.

The key of a program is all that it does: its operations with their parameters, the shapes and types of all its
values, and the numbers written in it, those inside of loops and branches too. A closure, a global number, a method or
the precision that changed gives another program. Arrays that the function closes over are inputs.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var, jaxpr_as_fun
from jax.tree_util import PyTreeDef

from numpyro_gp.arrays import EAGER, Array, current_trace
from numpyro_gp.programs.alone import alone

# Operations that call a program, and where they hold it; and those that have rules of derivatives beside it.
CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr"}
RULED = {"custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr", "custom_vjp_call_jaxpr": "fun_jaxpr"}
# Arrays inside of a program count by their numbers up to this size in bytes, larger ones by identity.
COMPARED = 2**16
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

    flat = written_out(jax.make_jaxpr(of_leaves)(*leaves))
    program = replaced(live(flat.jaxpr), constvars=[], invars=[*flat.jaxpr.constvars, *flat.jaxpr.invars])
    return Traced(program, list(flat.consts), results[-1])


def replaced(program: Any, **parts: object) -> Jaxpr:
    """A program with other parts."""
    return program.replace(**parts)


def as_function(program: Jaxpr) -> Callable[..., list[Array]]:
    """A program of no constants as a function of its inputs."""
    return jaxpr_as_fun(ClosedJaxpr(program, []))


def written_out(closed: ClosedJaxpr) -> ClosedJaxpr:
    """A program with its inner calls written out: a jitted helper hides nothing, and its constants are those of all.

    A program runs forward, and rules of derivatives go, but not inside of another trace, which may take some.
    """
    calls = CALLS if is_traced() else CALLS | RULED
    constants: dict[int, tuple[Var, Any]] = {}
    equations: list[object] = []

    def constant(var: Var, value: object) -> Var:
        return constants.setdefault(id(value), (Var(var.aval), value))[0]

    def place(program: Jaxpr, inputs: list[Any], scope: Any = None) -> list[Any]:
        known = dict(zip(program.constvars + program.invars, inputs, strict=True))
        for equation in program.eqns:
            own = [atom if isinstance(atom, Literal) else known[atom] for atom in equation.invars]
            inner = equation.params.get(calls.get(equation.primitive.name, ""))
            # An inner program does not know the scope in which it is called.
            stack = equation.source_info.name_stack
            mark = equation.source_info if len(stack) and ANY_POINT in str(stack) else scope
            if isinstance(inner, ClosedJaxpr):
                results = place(inner.jaxpr, [*map(constant, inner.jaxpr.constvars, inner.consts), *own], mark)
            else:
                results = [Var(var.aval) for var in equation.outvars]
                parameters = _parameters(equation.params, written_out)
                where = equation.source_info if mark is None else mark
                equations.append(equation.replace(invars=own, outvars=results, params=parameters, source_info=where))
            known.update(zip(equation.outvars, results, strict=True))
        return [atom if isinstance(atom, Literal) else known[atom] for atom in program.outvars]

    inputs = [Var(var.aval) for var in closed.jaxpr.invars]
    results = place(closed.jaxpr, [*map(constant, closed.jaxpr.constvars, closed.consts), *inputs])
    variables = [var for var, _ in constants.values()]
    flat = replaced(closed.jaxpr, constvars=variables, invars=inputs, outvars=results, eqns=equations)
    return ClosedJaxpr(flat, [value for _, value in constants.values()])


def _parameters(parameters: dict[str, Any], change: Callable[[ClosedJaxpr], object]) -> dict[str, Any]:
    """The parameters of an operation with the programs in them changed; themselves where there are none."""
    if any(map(_may_hold_programs, parameters.values())):
        return {name: _each_program(value, change) for name, value in parameters.items()}
    return parameters


def _may_hold_programs(parameter: object) -> bool:
    """Whether a parameter is a program, or a tuple of more than numbers."""
    if isinstance(parameter, tuple):
        return any(isinstance(item, (ClosedJaxpr, tuple)) for item in parameter)
    return isinstance(parameter, ClosedJaxpr)


def _each_program(parameter: object, change: Callable[[ClosedJaxpr], object]) -> Any:
    """A parameter of an operation, changed where it is a program or a tuple that holds some."""
    if isinstance(parameter, ClosedJaxpr):
        return change(parameter)
    if isinstance(parameter, tuple) and _may_hold_programs(parameter):
        items = [_each_program(item, change) for item in parameter]
        return type(parameter)(*items) if hasattr(parameter, "_fields") else tuple(items)
    return parameter


# ---------------------------------------------------------------------------------------------- what it computes


def key_of(program: Jaxpr) -> Hashable:
    """What a program computes: equal keys and equal inputs give equal results.

    Raises a TypeError where a parameter of an operation has no hash.
    """
    return _signature(program, ())


def _signature(program: Jaxpr, constants: Iterable[object]) -> tuple[object, ...]:
    numbers: dict[Any, int] = {}
    for var in program.constvars + program.invars:
        numbers[var] = len(numbers)
    lines = []
    for equation in program.eqns:
        inputs = tuple(_atom(atom, numbers) for atom in equation.invars)
        numbers.update({var: len(numbers) + at for at, var in enumerate(equation.outvars)})
        results = tuple(var.aval for var in equation.outvars)
        parameters = tuple((name, _parameter(value)) for name, value in sorted(equation.params.items()))
        lines.append((equation.primitive, inputs, results, parameters))
    inputs = tuple(var.aval for var in program.constvars + program.invars)
    outputs = tuple(_atom(atom, numbers) for atom in program.outvars)
    return inputs, tuple(map(_content, constants)), tuple(lines), outputs


def _atom(atom: object, numbers: dict[object, int]) -> object:
    if not isinstance(atom, Literal):
        return numbers[atom]
    return atom.aval, np.asarray(atom.val).tobytes()


def _parameter(value: object) -> object:
    if isinstance(value, ClosedJaxpr):
        return _signature(value.jaxpr, value.consts)
    if isinstance(value, Jaxpr):
        return _signature(value, ())
    if isinstance(value, (tuple, list)):
        return tuple(_parameter(item) for item in value)
    return _content(value) if isinstance(value, (np.ndarray, jax.Array)) else (type(value), value)


def _content(value: object) -> object:
    """A constant by its numbers, a large one of JAX, which cannot change, by its identity."""
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return str(value.dtype), _content(jax.random.key_data(value))
    if isinstance(value, jax.Array) and (value.nbytes > COMPARED or not value.is_fully_addressable):
        return Same(value)
    array = np.asarray(value)
    return array.shape, str(array.dtype), array.tobytes()


class Same:
    """A value that equals itself alone; it is held, so that nothing else takes its address."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def aval_of(atom: Any) -> ShapedArray:
    """Shape and type of a value of a program."""
    return atom.aval


def size_of(program: Jaxpr) -> int:
    """Numbers in the largest array that a program makes, also inside of loops and branches."""
    sizes = [int(getattr(var.aval, "size", 0)) for equation in program.eqns for var in equation.outvars]
    for equation in program.eqns:
        for value in equation.params.values():
            _each_program(value, lambda inner: sizes.append(size_of(inner.jaxpr)))
            if isinstance(value, Jaxpr):
                sizes.append(size_of(value))
    return max(sizes, default=0)


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
    known, cheap = _known(program, early)
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


def live(program: Jaxpr) -> Jaxpr:
    """A program of the same inputs without operations that nothing needs, neither a result nor an effect.

    A third of what stands in models and their derivatives is of this kind, and would be lowered for the compiler.
    """
    wanted, equations = set(variables_of(program.outvars)), []
    for equation in reversed(program.eqns):
        if equation.effects or not wanted.isdisjoint(equation.outvars):
            parameters = _parameters(equation.params, _live_inside)
            equations.append(equation if parameters is equation.params else equation.replace(params=parameters))
            wanted.update(variables_of(equation.invars))
    return replaced(program, eqns=equations[::-1])


def _live_inside(closed: ClosedJaxpr) -> ClosedJaxpr:
    return ClosedJaxpr(live(closed.jaxpr), closed.consts)


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


def _known(program: Jaxpr, early: list[Var]) -> tuple[set[Var], set[Var]]:
    """What the early inputs determine, and of all values those that are copies of smaller ones or of numbers alone."""
    known = set(early)
    cheap: set[Var] = set()
    bare: set[Var] = set()
    for equation in program.eqns:
        inputs, name = set(variables_of(equation.invars)), equation.primitive.name
        if inputs <= known and not equation.effects:
            known.update(equation.outvars)
        is_bare = inputs <= bare and name not in COSTLY
        if is_bare:
            bare.update(equation.outvars)
        if is_bare or name in SPREADING or (name in ELEMENTWISE and inputs & cheap):
            cheap.update(equation.outvars)
    return known, cheap


def variables_of(atoms: Iterable[Any]) -> list[Var]:
    """Those of the inputs of an operation, or of results, that are no numbers."""
    return [atom for atom in atoms if not isinstance(atom, Literal)]


def _part(program: Jaxpr, inputs: list[Var], equations: list[Any], outputs: list[Any]) -> Jaxpr:
    effects = set().union(*(equation.effects for equation in equations))
    return replaced(program, constvars=[], invars=inputs, outvars=outputs, eqns=equations[::-1], effects=effects)
