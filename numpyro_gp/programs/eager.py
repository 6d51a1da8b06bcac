"""What stands in a model, computed as one compiled program where the model runs eagerly.

NumPyro runs models eagerly before it compiles them: to set up a guide, to find a start of a chain, for a trace. Each
operation is then a program of its own, a hundred for one Gaussian process. One program of few numbers takes longer to
compile than it will ever run, so that the compiler optimises it less.
"""

import functools
from collections.abc import Callable
from typing import Any, cast

import jax
import numpy as np
from jax.tree_util import PyTreeDef

from numpyro_gp.arrays import Function, value_type
from numpyro_gp.checks import waiting_checks, when_known
from numpyro_gp.programs.scheduler import compiler_options
from numpyro_gp.programs.trace import is_traced

NUMBERS = (jax.Array, np.ndarray, np.generic, float, int)
# Trees that are made of this library alone.
_known: set[Any] = set()
MOST_KNOWN = 1000
# Numbers in the arguments of a program that is optimised less: an array of all pairs of them runs for milliseconds.
FEW = 2000


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
        if not (all(isinstance(leaf, NUMBERS) for leaf in leaves) and is_of_library(structure)):
            return function(*arguments)
        is_few = not is_traced() and sum(map(np.size, leaves)) <= FEW  # options are of a whole program
        outcome = (quick() if is_few else compiled)(*arguments)
        for check, values in zip(outcome.checks, outcome.values, strict=True):
            when_known(check, *values)
        return outcome.result

    return cast("Function", call)


def is_of_library(structure: PyTreeDef) -> bool:
    """Whether a tree is made of containers and classes of this library, and holds no function.

    A function of the user's own may read globals that change, and so may the methods of a class: nothing compiled for
    one tree then serves an equal one. Nor is such a tree remembered, or all that it holds would stay.
    """
    if structure in _known:
        return True
    node = structure.node_data()
    if node is not None and node[0] not in (tuple, list, dict, type(None)):
        is_own = getattr(node[0], "is_users_own", False) or not node[0].__module__.startswith("numpyro_gp.")
        if is_own or _holds_function(node[1]):
            return False
    if not all(map(is_of_library, structure.children())):
        return False
    if len(_known) >= MOST_KNOWN:
        _known.clear()
    _known.add(structure)
    return True


def _holds_function(fixed: object) -> bool:
    return any(map(_holds_function, fixed)) if isinstance(fixed, tuple) else callable(fixed)
