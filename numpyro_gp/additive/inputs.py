"""Columns of an ANOVA model: their ranges, levels, measures and names."""

import dataclasses
from collections.abc import Sequence
from itertools import combinations

import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array
from numpyro_gp.checks import fail
from numpyro_gp.kernels import Empirical, Gaussian
from numpyro_gp.kernels.measures import Measure


@dataclasses.dataclass(frozen=True)
class Input:
    """One column of the data: a number on ``[low, high]``, or a category with its levels and their frequencies.

    Parameters
    ----------
    name : str
    low, high : float
        The range of a number.
    levels : tuple of float
        The distinct values of a category; empty for a number.
    frequencies : tuple of float
        Share of the rows that have each level.

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> ngp.anova.Input("age", 20.0, 60.0).map(np.array([20.0, 30.0, 60.0])).tolist()
    [0.0, 0.25, 1.0]
    """

    name: str
    low: float = 0.0
    high: float = 1.0
    levels: tuple[float, ...] = ()
    frequencies: tuple[float, ...] = ()

    @property
    def is_category(self) -> bool:
        """Whether the column holds categories."""
        return bool(self.levels)

    def map(self, x: Array) -> Array:
        """Numbers to ``[0, 1]``, levels to codes 0, 1, …; a level that the design has not seen becomes NaN."""
        if not self.is_category:
            return (x - self.low) / (self.high - self.low)
        equal = x[..., None] == jnp.asarray(self.levels, x.dtype)[(None,) * x.ndim]
        codes = jnp.argmax(equal, axis=-1).astype(x.dtype)
        return jnp.where(jnp.any(equal, axis=-1), codes, jnp.nan)

    def grid(self, size: int) -> np.ndarray:
        """Mapped values at which inducing inputs stand: an even grid, or all codes."""
        return np.arange(len(self.levels), dtype=float) if self.is_category else np.linspace(0.0, 1.0, size)


def measures_of(measure: str, inputs: tuple[Input, ...], data: np.ndarray) -> tuple[Measure, ...]:
    """That of each column in its mapped values; categories have their own, and an entry that nothing reads."""
    if measure == "uniform":
        return ()
    columns = [one.map(jnp.asarray(data[:, d])) for d, one in enumerate(inputs)]
    if measure == "empirical":
        return tuple(Empirical.of(column) for column in columns)
    return tuple(Gaussian(jnp.mean(column), jnp.std(column)) for column in columns)


def column_number(column: object, labels: tuple[str, ...]) -> int:
    """The number of a column that is given by name or number."""
    if column in labels:
        return labels.index(column)
    if isinstance(column, (int, np.integer)) and 0 <= column < len(labels):
        return int(column)
    fail("columns", f"numbers below {len(labels)} or names among {list(labels)}", repr(column), "Check the spelling.")


def pairs_of(pairs: str | Sequence[tuple[int | str, int | str]], labels: tuple[str, ...]) -> list[tuple[int, int]]:
    """Pairs of columns by their numbers, each once and in order."""
    if isinstance(pairs, str) and pairs == "all":
        return list(combinations(range(len(labels)), 2))
    numbers: list[tuple[int, int]] = []
    for pair in [pairs] if isinstance(pairs, str) else pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            fail("pairs", "'all' or a sequence of pairs of columns", repr(pair), 'Pass pairs=[("age", "income")].')
        first, second = sorted(column_number(one, labels) for one in pair)
        if first == second or (first, second) in numbers:
            fail("pairs", "pairs of two different columns, each once", f"{pair}", "Leave it out: it is there already.")
        numbers.append((first, second))
    return numbers


def input_of(name: str, values: np.ndarray, is_category: bool) -> Input:
    """The range of a column, or its levels and how often each is."""
    levels, counts = np.unique(values, return_counts=True)
    if len(levels) < 2:
        fail(f"input {name!r}", "a column that varies", f"the constant {levels[0]:.6g}", "Leave the column out of X.")
    if not is_category:
        return Input(name, float(levels[0]), float(levels[-1]))
    return Input(name, levels=tuple(levels.tolist()), frequencies=tuple((counts / counts.sum()).tolist()))
