"""Masks and ends of data of which a bound is known: their shapes, their order, and what rounding leaves of a width."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import check_array, fail, when_known

# Share of the width of an interval that may be lost when its ends are rounded: the probability inside loses as much.
MOST_LOST = 0.1


def shaped(argument: str, value: Array, y: Array) -> Array:
    """A mask or a bound, after a check that there is one for each datum."""
    if value.ndim and value.shape != y.shape[max(y.ndim - value.ndim, 0) :]:
        cure = f"Give each datum its own; in a plate of minibatches {argument}[idx], as y[idx]."
        fail(argument, f"of the shape of the data, {y.shape}", f"shape {value.shape}", cure)
    return value


def check_mask(argument: str, mask: ArrayLike | None) -> Array | None:
    """A boolean array, or None."""
    if mask is None:
        return None
    array = check_array(argument, mask)
    if array.dtype != bool:
        required = "boolean, true where y is the bound"
        fail(argument, required, f"dtype {array.dtype}", f"Compare: {argument}={argument} == 1.", TypeError)
    return array


def check_ends(names: tuple[str, str], lower: ArrayLike | None, upper: ArrayLike | None) -> list[Array | None]:
    """Ends of intervals, infinite ones among them: the first is not above the second, and none is NaN."""
    ends = [None if end is None else check_array(name, end) for name, end in zip(names, (lower, upper), strict=True)]
    given = [(name, end.astype(jnp.result_type(end, float))) for name, end in zip(names, ends) if end is not None]

    def check(*values: np.ndarray) -> None:
        for (name, _), value in zip(given, values):
            if np.isnan(value).any():
                cure = f"Where an end is not known pass {'-jnp.inf' if name == names[0] else 'jnp.inf'}."
                fail(name, "free of NaN", f"{np.isnan(value).sum()} NaN of {value.size}", cure)
        if len(values) == 2 and (wrong := np.broadcast_to(np.greater(*values), np.broadcast(*values).shape)).any():
            first = tuple(map(int, np.argwhere(wrong)[0]))
            pair = [f"{np.broadcast_to(value, wrong.shape)[first]:.6g}" for value in values]
            where = f"{pair[0]} above {pair[1]}" + (f" at index {first}" if first else "")
            fail(names[0], f"at most {names[1]}", where, f"Swap the two: {names[0]} comes first.")

    when_known(check, *[end for _, end in given])
    if len(given) == 2:
        _check_lost_width(names, (lower, upper), [end for _, end in given])
    found = dict(given)
    return [found.get(name) for name in names]


def _check_lost_width(names: tuple[str, str], given: Sequence[Any], ends: Sequence[Array]) -> None:
    """Refuse intervals whose width is lost when their ends are rounded: two that become equal would be a density."""
    if any(isinstance(end, jax.Array) for end in given):  # they came rounded
        return
    with np.errstate(invalid="ignore"):  # of two infinite ends
        before, after = (np.subtract(*(np.asarray(end, float) for end in own[::-1])) for own in (given, ends))
        lost = np.isfinite(before) & (np.abs(after - before) > MOST_LOST * np.abs(before))
    if lost.any():
        first = tuple(map(int, np.argwhere(lost)[0]))
        pair = " and ".join(f"{float(np.broadcast_to(end, lost.shape)[first])!r}" for end in given)
        cure = "Take a number near them off data and bounds, as the first of all times, or set JAX_ENABLE_X64=1."
        got = f"{pair}" + (f" at index {first}" if first else "")
        fail(names[0], f"apart from {names[1]} by as much in {ends[0].dtype} as they are", got, cure)


def check_inside(y: ArrayLike, names: tuple[str, str], ends: Sequence[ArrayLike | None]) -> None:
    """Refuse known data outside of their interval."""
    low, high = (infinite if end is None else end for end, infinite in zip(ends, (-jnp.inf, jnp.inf), strict=True))

    def check(values: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
        if (wrong := (values < low) | (values > high)).any():
            cure = f"Pass a value inside for each datum: {names[1]} where it is finite, else {names[0]}."
            got = f"{float(np.broadcast_to(values, wrong.shape)[wrong].ravel()[0]):.6g} outside"
            fail("obs", f"between {names[0]} and {names[1]}", got, cure)

    when_known(check, y, low, high)


def check_one_side(left: np.ndarray, right: np.ndarray) -> None:
    """Refuse data that are censored on both sides."""
    if (both := left & right).any():
        got = f"both true for {both.sum()} of {both.size}"
        cure = "A value between two bounds has an interval: ngp.likelihoods.Interval."
        fail("left and right", "true for different data", got, cure)
