"""How many programs a block of code sends to the compiler, and how large one is: the same numbers on every machine."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import jax

EVENT = "/jax/core/compile/backend_compile_duration"
UNSEEN: list[bool] = []


class Programs:
    """Programs compiled so far inside the block; those read from the persistent cache count as well."""

    def __init__(self) -> None:
        self.count, self.is_open = 0, True

    def see(self, event: str, seconds: float, **details: object) -> None:
        self.count += self.is_open and event == EVENT and not UNSEEN


@contextmanager
def unseen() -> Iterator[None]:
    """Programs compiled in this block do not count."""
    UNSEEN.append(True)
    try:
        yield
    finally:
        UNSEEN.pop()


@contextmanager
def counted() -> Iterator[Programs]:
    """Count programs: ``with counted() as programs: ...; assert programs.count == 0``."""
    programs = Programs()
    jax.monitoring.register_event_duration_secs_listener(programs.see)
    try:
        yield programs
    finally:
        programs.is_open = False  # JAX before 0.8 cannot forget a listener


def operations(function: Callable[..., object], *arguments: object) -> int:
    """Operations of the lowered program; those inside of loops count once, and no time is spent in the compiler."""
    text = jax.jit(function).lower(*arguments).as_text()
    return sum(" = " in line for line in text.splitlines())
