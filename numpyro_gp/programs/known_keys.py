"""Keys that a program makes of keys it knows, and a few random bits of theirs: found in NumPy before it is compiled.

A start splits its key for each site, several times over, and draws some numbers at each. For the compiler each split is
seventy instructions, a loop among them, and takes longer than all algebra beside it.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import Jaxpr, Var

from numpyro_gp.programs.threefry import split, threefry, words_of
from numpyro_gp.programs.trace import aval_of, replaced, variables_of

# Numbers in the largest array of random bits that is found here: more are drawn faster in the program.
MOST = 4096


def _split(words: np.ndarray, *, shape: tuple[int, ...], **_: object) -> np.ndarray:
    return split(words, math.prod(shape)).reshape(*words.shape[:-1], *shape, 2)


def _slice(words: np.ndarray, *, start_indices: Any, limit_indices: Any, strides: Any, **_: object) -> np.ndarray:
    steps = strides or [1] * len(start_indices)
    return words[tuple(map(slice, start_indices, limit_indices, steps))]  # the words of a key are its last axis


def _bits(words: np.ndarray, *, bit_width: int, shape: tuple[int, ...], **_: object) -> np.ndarray | None:
    if words.ndim > 1 or bit_width not in (32, 64) or math.prod(shape) > MOST:
        return None
    high, low = np.moveaxis(threefry(words, np.arange(math.prod(shape))), -1, 0)
    found: np.ndarray = high ^ low if bit_width == 32 else (high.astype(np.uint64) << np.uint64(32)) | low
    return found.reshape(shape)


RULES: dict[str, Callable[..., np.ndarray | None]] = {
    "random_split": _split,
    "random_bits": _bits,
    "slice": _slice,
    "squeeze": lambda words, *, dimensions, **_: np.squeeze(words, dimensions),
}


def with_known_keys(program: Jaxpr, constants: Sequence[Any]) -> tuple[Jaxpr, list[Any]]:
    """The same program of more constants, which are the keys and bits that follow from keys among its first inputs.

    It is the same for every key, as it was. Keys of other generators than JAX's default are left to it.
    """
    known = {var: words for var, value in zip(program.invars, constants) if (words := words_of(value)) is not None}
    given, equations = set(known), []
    for equation in program.eqns:
        rule = RULES.get(equation.primitive.name)
        first = equation.invars[0] if rule else None
        words = known.get(first) if isinstance(first, Var) else None
        found = None if rule is None or words is None else rule(words, **equation.params)
        if found is None:
            equations.append(equation)
        else:
            known[equation.outvars[0]] = found
    read = set(variables_of(program.outvars)).union(*(variables_of(one.invars) for one in equations))
    made = [var for var in known if var in read and var not in given]
    new = replaced(program, invars=[*made, *program.invars], eqns=equations)
    return new, [*(_value(var, known[var]) for var in made), *constants]


def _value(var: Var, words: Any) -> Any:
    is_key = jax.dtypes.issubdtype(aval_of(var).dtype, jax.dtypes.prng_key)
    return jax.random.wrap_key_data(words, impl="threefry2x32") if is_key else words
