"""The key by which a program is kept: all that it does.

That is its operations with their parameters, the shapes and types of all its values, and the numbers written in it,
those inside of loops and branches too. A closure, a global number, a method or the precision that changed gives another
program.
"""

import functools
import itertools
from collections.abc import Callable, Hashable, Iterable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jax.tree_util import PyTreeDef

from numpyro_gp.arrays import Array, Function, T, value_type
from numpyro_gp.checks import waiting_checks, when_known
from numpyro_gp.programs.scheduler import compiler_options
from numpyro_gp.programs.trace import WHOLE, as_function, bytes_of, is_traced, size_of, traced

# --------------------------------------------------------------------------------------
# What stands in a model, computed as one compiled program where the model runs eagerly.
#
# NumPyro runs models eagerly before it compiles them: to set up a guide, to find a start of a chain, for a trace.
# Each operation is then a program of its own, a hundred for one Gaussian process. One program of few numbers takes
# longer to compile than it will ever run, so that the compiler optimises it less.


ARGUMENT_TYPES = (jax.Array, np.ndarray, np.generic, float, int)
# Numbers in the arguments of a program that is optimised less: an array of all pairs of them runs for milliseconds.
FEW_NUMBERS = 2000


@value_type(static=("checks",))
class _Outcome:
    """What a function returned, and checks of values that wait for the end of its program."""

    result: Any
    values: tuple[Any, ...]
    checks: tuple[Callable[..., None], ...]


def one_program(function: Function) -> Function:
    """A function of arrays and values of this library as one compiled program; where anything is traced, a part of it.

    A kernel, belief, mean or likelihood of the user's own may read what changes from call to call: with one among the
    arguments the function runs as it stands.
    """

    def computed(*arguments: object) -> _Outcome:
        with waiting_checks() as waiting:
            result = function(*arguments)
        return _Outcome(result, tuple(values for _, values in waiting), tuple(check for check, _ in waiting))

    compiled = jax.jit(computed)
    # Made when it is asked for: the options depend on the device, which an import does not look for.
    quick = functools.cache(lambda: jax.jit(computed, compiler_options=compiler_options(1)))

    @functools.wraps(function)
    def call(*arguments: object) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        if not (all(isinstance(leaf, ARGUMENT_TYPES) for leaf in leaves) and is_of_library(structure)):
            return function(*arguments)
        is_few = not is_traced() and sum(map(np.size, leaves)) <= FEW_NUMBERS  # options are of a whole program
        outcome = (quick() if is_few else compiled)(*arguments)
        for check, values in zip(outcome.checks, outcome.values, strict=True):
            when_known(check, *values)
        return outcome.result

    return cast("Function", call)


def is_of_library(structure: PyTreeDef) -> bool:
    """Whether a tree is made of containers and classes of this library, and holds no function.

    A function of the user's own may read globals that change, and so may the methods of a class: nothing compiled for
    one tree then serves an equal one.
    """
    node = structure.node_data()
    if node is not None and node[0] not in (tuple, list, dict, type(None)):
        is_own = getattr(node[0], "is_users_own", False) or not node[0].__module__.startswith("numpyro_gp.")
        if is_own or _holds_function(node[1]):
            return False
    return all(map(is_of_library, structure.children()))


def _holds_function(fixed: object) -> bool:
    return any(map(_holds_function, fixed)) if isinstance(fixed, tuple) else callable(fixed)


# Arrays inside of a program count by their numbers up to this size in bytes, larger ones by identity.
COMPARED = 2**16
# Types of most parameters of operations.
PLAIN_TYPES = frozenset({int, bool, str, type(None)})


def program_key(program: Jaxpr, constants: Iterable[object] = (), seen: dict[int, object] | None = None) -> Hashable:
    """What a program computes: equal keys and equal inputs give equal results.

    ``seen`` has the keys of inner programs, which may stand in many places. Raises a TypeError where a parameter of an
    operation has no hash.
    """
    seen = {} if seen is None else seen
    numbers: dict[Any, int] = {}
    for var in program.constvars + program.invars:
        numbers[var] = len(numbers)
    lines = []
    for equation in program.eqns:
        inputs = tuple([_literal(atom) if isinstance(atom, Literal) else numbers[atom] for atom in equation.invars])
        for var in equation.outvars:
            numbers[var] = len(numbers)
        results = tuple([var.aval for var in equation.outvars])
        parameters = tuple([(name, _parameter(value, seen)) for name, value in sorted(equation.params.items())])
        lines.append((equation.primitive, inputs, results, parameters))
    inputs = tuple([var.aval for var in program.constvars + program.invars])
    outputs = tuple([_literal(atom) if isinstance(atom, Literal) else numbers[atom] for atom in program.outvars])
    return inputs, tuple(map(_content, constants)), tuple(lines), outputs


def _literal(atom: Literal) -> object:
    """A number that stands in a program."""
    return atom.aval, np.asarray(atom.val).tobytes()


def _parameter(value: object, seen: dict[int, object]) -> object:
    kind = type(value)
    if kind in PLAIN_TYPES:
        return kind, value
    if isinstance(value, ClosedJaxpr):
        if id(value) not in seen:
            seen[id(value)] = program_key(value.jaxpr, value.consts, seen)
        return seen[id(value)]
    if isinstance(value, Jaxpr):
        return program_key(value, (), seen)
    if isinstance(value, (tuple, list)):
        is_plain = kind is tuple and WHOLE.issuperset(map(type, value))
        return (kind, value) if is_plain else tuple([_parameter(item, seen) for item in value])
    return _content(value) if isinstance(value, (np.ndarray, jax.Array)) else (kind, value)


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


# --------------------------------------------------------------------------------------
# Programs that are compiled once for all functions that compute the same, so that no change of a model is missed.


Program = Callable[..., list[Array]]
# How many programs are kept: those used last.
SIZE = 64
# A program with an array of more numbers than this (512 points by 20 000 rows) is optimised even if it runs once.
LARGE = 10_000_000
# What was made of each program, and when it was used last. That is no order of the dictionary: to move a program in
# there, all of its key would be looked at again.
_programs: dict[object, list[Any]] = {}
_uses = itertools.count()
# Why programs could not be kept: a parameter of an operation that has no hash. Of the last of them, and not themselves.
without_key: list[str] = []


def kept(program: Jaxpr, extra: object, build: Callable[[], T]) -> T:
    """What ``build`` makes of a program, made once; ``extra`` is what else it depends on.

    It holds operations and constants, and no object of the user's: not an engine, a guide or a model. Inside of another
    trace, where rules of derivatives are part of a program, nothing is kept.
    """
    if is_traced():
        return build()
    try:
        key = (program_key(program), extra)
        found = _programs.get(key)
    except TypeError as error:
        without_key.append(str(error))
        del without_key[:-SIZE]
        return build()
    if found is None:
        found = _programs[key] = [build(), 0]
    found[1] = next(_uses)
    while len(_programs) > SIZE:
        oldest = min([*_programs.items()], key=lambda item: item[1][1])[0]  # of a copy: other threads keep theirs
        _programs.pop(oldest, None)
    made: T = found[0]
    return made


def run(function: Callable[..., T], *arguments: object) -> T:
    """``jax.jit(function)(*arguments)``, compiled once for all functions that compute the same.

    Where a derivative or another program is being traced it is the function itself, whose rules of derivatives stay.
    """
    return function(*arguments) if is_traced() else prepared(function, *arguments, is_fast=True)(*arguments)


def run_quickly(function: Callable[..., T], *arguments: object) -> T:
    """`run` of what compiles for longer than it runs, as `quickly` compiles it."""
    return function(*arguments) if is_traced() else prepared(function, *arguments)(*arguments)


def prepared(function: Callable[..., T], *like: object, is_fast: bool = False) -> Callable[..., T]:
    """`run_quickly`, or `run`, of arguments like these: traced once for many calls, outside of any other program."""
    found, build = traced(function, *like), optimised if is_fast else quickly
    compiled = kept(found.program, build, lambda: build(found.program))

    def call(*arguments: object) -> T:
        return jax.tree.unflatten(found.structure, compiled(*found.constants, *jax.tree.leaves(arguments)))

    return call


def compiled(function: Function) -> Function:
    """``jax.jit`` of a function of arrays and values, with keywords that are static; for all calls of one structure.

    Where the user's own functions or classes are among the arguments it is `run`, which sees what their code reads.
    """
    quick = functools.cache(lambda names: jax.jit(function, static_argnames=names))

    @functools.wraps(function)
    def call(*arguments: object, **static: object) -> Any:
        if is_of_library(jax.tree.structure(arguments)):
            return quick(tuple(sorted(static)))(*arguments, **static)
        return run(functools.partial(function, **static), *arguments)

    return cast("Function", call)


def optimised(program: Jaxpr) -> Program:
    """A program of no constants as fast as the compiler makes it."""
    return jax.jit(as_function(program), compiler_options=compiler_options(largest=bytes_of(program)))


def quickly(program: Jaxpr) -> Program:
    """A program of no constants compiled for one call: on CPUs the compiler optimises it as little as it can.

    A start is thousands of operations that compile for seconds, half of them spent on speed, and run for milliseconds.
    Where arrays are large, they run longer than that.
    """
    effort = 0 if size_of(program) <= LARGE else None
    return jax.jit(as_function(program), compiler_options=compiler_options(effort, largest=bytes_of(program)))
