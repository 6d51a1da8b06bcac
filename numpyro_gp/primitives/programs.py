"""Programs that are compiled once: kept by what they compute, so that no change of a model can be missed.

The key of a compiled program is the traced program itself: its operations with their parameters, the shapes and types
of all its values, and the numbers written in it. A closure, a global number, a method or the precision that changed
gives another program. Arrays that the function closes over, parameters, draws, random keys and data are arguments.
"""

import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar, cast

import jax
import jaxlib
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun

from numpyro_gp.beliefs.eager import is_of_library

Function = TypeVar("Function", bound=Callable[..., Any])
# How many programs are kept: the oldest leave first.
SIZE = 128
# A program with an array of more numbers than this (512 points by 20 000 rows) is optimised even if it runs once.
LARGE = 10_000_000
# Rules for derivatives: a forward program does the same whatever they are, and some are new objects at each trace.
RULES = frozenset({"jvp", "jvp_jaxpr_fun", "jvp_jaxpr_thunk", "fwd_jaxpr_thunk", "fwd", "bwd", "out_trees"})
_programs: OrderedDict[Any, Any] = OrderedDict()


def traced(function: Callable[..., object], *arguments: object) -> tuple[Jaxpr, list[Any], Any]:
    """Program of a function, the arrays that it captured (its first inputs), and the structure of its result.

    Inner ``jit`` is written out, so that a jitted helper hides nothing.
    """
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
    inputs = [var.aval for var in closed.jaxpr.constvars + closed.jaxpr.invars]
    empty = [jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type) for aval in inputs]
    count = len(closed.consts)
    flat = jax.make_jaxpr(lambda *values: _evaluate(closed.jaxpr, values[:count], values[count:]))(*empty)
    program = replaced(flat.jaxpr, constvars=[], invars=[*flat.jaxpr.constvars, *flat.jaxpr.invars])
    return program, [*flat.consts, *closed.consts], jax.tree.structure(shapes)


def _evaluate(program: Jaxpr, constants: Any, arguments: Any) -> list[Any]:
    known = dict(zip(program.constvars + program.invars, (*constants, *arguments), strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else known[atom]

    for equation in program.eqns:
        if equation.primitive.name in ("jit", "pjit"):
            inner = equation.params["jaxpr"]
            results = _evaluate(inner.jaxpr, inner.consts, [read(atom) for atom in equation.invars])
        else:
            results = carried_out(program, equation, read)
        known.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in program.outvars]


def carried_out(program: Jaxpr, equation: Any, read: Callable[[Any], Any]) -> list[Any]:
    """Results of one operation of a program; ``read`` gives the values of its inputs."""
    inputs = list(dict.fromkeys(atom for atom in equation.invars if not isinstance(atom, Literal)))
    alone: Any = dict(constvars=[], invars=inputs, outvars=equation.outvars, eqns=[equation])
    return as_function(replaced(program, **alone, effects=equation.effects))(*map(read, inputs))


def kept(program: Jaxpr, extra: object, build: Callable[[], Any]) -> Any:
    """What ``build`` makes of a program, made once; ``extra`` is what else it depends on."""
    try:
        key = (_signature(program), extra)
        found = _programs.pop(key, None)
    except TypeError:  # a parameter without a hash: nothing is kept
        return build()
    _programs[key] = build() if found is None else found
    while len(_programs) > SIZE:
        _programs.popitem(last=False)
    return _programs[key]


def run(function: Callable[..., object], *arguments: object) -> Any:
    """``jax.jit(function)(*arguments)``, compiled once for all functions that compute the same."""
    program, constants, structure = traced(function, *arguments)
    compiled = kept(program, None, lambda: jax.jit(as_function(program)))
    return jax.tree.unflatten(structure, compiled(*constants, *jax.tree.leaves(arguments)))


def compiled(function: Function) -> Function:
    """``jax.jit`` of a function of arrays and values, with keywords that are static; for all calls of one structure.

    Where the user's own functions or classes are among the arguments it is `run`, which sees what their code reads.
    """
    quick = functools.cache(lambda names: jax.jit(function, static_argnames=names))

    @functools.wraps(function)
    def call(*arguments: Any, **static: Any) -> Any:
        if is_of_library(jax.tree.structure(arguments)):
            return quick(tuple(sorted(static)))(*arguments, **static)
        return run(functools.partial(function, **static), *arguments)

    return cast("Function", call)


def same_program(first: Jaxpr, second: Jaxpr) -> bool:
    """Whether two traced programs compute the same from the same inputs."""
    return _signature(first) == _signature(second)


def replaced(program: Any, **parts: object) -> Jaxpr:
    """A program with other parts."""
    new: Jaxpr = program.replace(**parts)
    return new


def as_function(program: Jaxpr) -> Callable[..., list[Any]]:
    """A program of no constants as a function of its inputs."""
    function: Callable[..., list[Any]] = jaxpr_as_fun(ClosedJaxpr(program, []))
    return function


def run_once(program: Jaxpr) -> Callable[..., list[Any]]:
    """A program of no constants compiled for one call: on CPUs the compiler optimises it as little as it can.

    A start is thousands of operations that compile for seconds, half of them spent on speed, and run for milliseconds.
    Where arrays are large, they run longer than that.
    """
    quick: dict[str, Any] = {"xla_backend_optimization_level": 0}
    if tuple(map(int, jaxlib.__version__.split(".")[:2])) < (0, 10):  # later ones have one code generator
        quick["xla_cpu_use_fusion_emitters"] = False
    is_quick = jax.default_backend() == "cpu" and _largest(program) <= LARGE
    compiled: Callable[..., list[Any]] = jax.jit(as_function(program), compiler_options=quick if is_quick else None)
    return compiled


def _largest(program: Jaxpr) -> int:
    """Numbers in the largest array that a program makes."""
    sizes = [int(getattr(var.aval, "size", 0)) for equation in program.eqns for var in equation.outvars]
    for value in jax.tree.leaves([equation.params for equation in program.eqns], is_leaf=_is_program):
        if _is_program(value):
            sizes.append(_largest(value.jaxpr if isinstance(value, ClosedJaxpr) else value))
    return max(sizes, default=0)


def _is_program(value: object) -> bool:
    return isinstance(value, (ClosedJaxpr, Jaxpr))


def _signature(program: Jaxpr) -> tuple[Any, ...]:
    numbers: dict[Any, int] = {}
    for var in program.constvars + program.invars:
        numbers[var] = len(numbers)
    lines = []
    for equation in program.eqns:
        inputs = tuple(_atom(atom, numbers) for atom in equation.invars)
        numbers.update({var: len(numbers) + at for at, var in enumerate(equation.outvars)})
        results = tuple(var.aval for var in equation.outvars)
        parameters = tuple((n, _parameter(x)) for n, x in sorted(equation.params.items()) if n not in RULES)
        lines.append((equation.primitive, inputs, results, parameters))
    inputs = tuple(var.aval for var in program.constvars + program.invars)
    return inputs, tuple(lines), tuple(_atom(atom, numbers) for atom in program.outvars)


def _atom(atom: object, numbers: dict[Any, int]) -> Any:
    if not isinstance(atom, Literal):
        return numbers[atom]
    return atom.aval, np.asarray(atom.val).tobytes()


def _parameter(value: object) -> Any:
    if isinstance(value, ClosedJaxpr):
        if value.consts:
            raise TypeError(f"{len(value.consts)} constants inside a program")
        return _signature(value.jaxpr)
    if isinstance(value, Jaxpr):
        return _signature(value)
    if isinstance(value, (tuple, list)):
        return tuple(_parameter(item) for item in value)
    return type(value), value
