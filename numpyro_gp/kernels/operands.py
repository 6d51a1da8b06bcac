"""What stands on the other side of a sign: functions that are kernels, numbers, and the start of a sum."""

from typing import Protocol, TypeGuard

import jax
import numpy as np

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import fail

OPERAND = "a kernel or a positive number"


def is_start(value: object) -> bool:
    """Whether it is what the builtin sum(kernels) starts from."""
    return isinstance(value, int) and value == 0


def operand(sign: str, value: object, required: str) -> "KernelLike":
    """The kernel on the other side of a sign."""
    if not callable(value):
        fail(f"the other side of {sign}", required, f"a {type(value).__name__}", "Use kernels.Constant(c).", TypeError)
    return value


class KernelLike(Protocol):
    """A function of two sets of points, ``(N1, D)`` and ``(N2, D)``, that returns their covariances ``(N1, N2)``."""

    def __call__(self, X1: Array, X2: Array, /) -> Array: ...


def is_number(value: object) -> TypeGuard[ArrayLike]:
    """Whether it scales a kernel."""
    return isinstance(value, (int, float, np.ndarray, np.generic, jax.Array))
