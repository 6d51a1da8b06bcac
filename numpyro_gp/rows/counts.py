"""Which plates have rows that a program computes with: a number that depends on how rows are counted.

Data that come in chunks, or in a stream, are counted anew in each part. Arrays that are read by the rows of a plate are
cut with them, and are none the worse for it; ``0.1 * rows`` is.
"""

from collections.abc import Iterable

import jax.numpy as jnp
from jax.extend.core import JaxprEqn, Literal

from numpyro_gp.programs.private import parts_of_loop

RESHAPES = frozenset({"broadcast_in_dim", "reshape", "squeeze", "expand_dims"})
COPIES = frozenset({"copy", "device_put"})  # of jnp.array, and of jnp.asarray with JAX 0.7
# Operations that leave rows rows: they put them beside each other, or into another place or type.
PLACING = RESHAPES | COPIES | {"concatenate", "transpose", "convert_element_type", "select_n", "clamp", "stop_gradient"}


class Counts:
    """Which plates have rows that a program computes with, as a number that counts data does.

    Rows may be put beside each other and index an array: all else that is made of them, and is no whole number itself,
    depends on how rows are numbered.
    """

    def __init__(self) -> None:
        self.found: set[str] = set()
        # Values made of rows: the plates of these, and whether they are still rows.
        self._made: dict[object, tuple[frozenset[str], bool]] = {}

    def start(self, var: object, plate: str) -> None:
        """Begin with the rows of a plate."""
        self._made[var] = frozenset({plate}), True

    def inside(self, inner: Iterable[object], outer: Iterable[object]) -> "Counts":
        """Those of the body of a loop, which has these values of the program around it."""
        own = Counts()
        own.found = self.found
        own._made = {var: self._made[atom] for var, atom in zip(inner, outer) if self._of(atom) is not None}
        return own

    def _of(self, atom: object) -> tuple[frozenset[str], bool] | None:
        return None if isinstance(atom, Literal) else self._made.get(atom)

    def see(self, equation: JaxprEqn, inputs: list[object]) -> None:
        """Follow what is made of rows through one operation."""
        name = equation.primitive.name
        if name == "scan":  # its body was followed where rows are constants of it
            inputs = inputs[parts_of_loop(equation.params)[0] :]
        made = [found for found in map(self._of, inputs) if found is not None]
        if not made:
            return
        if name == "gather":
            index, made = self._of(inputs[1]), [found for found in [self._of(inputs[0])] if found is not None]
            if index is not None and not index[1]:
                self.found |= index[0]
        plates = frozenset[str]().union(*(own for own, _ in made))
        is_plain = name in PLACING and all(is_row for _, is_row in made)
        for var in equation.outvars if plates else ():
            dtype = getattr(var.aval, "dtype", None)
            if dtype is not None and any(jnp.issubdtype(dtype, kind) for kind in (jnp.integer, jnp.bool_)):
                self._made[var] = plates, is_plain
            else:
                self.found |= plates
