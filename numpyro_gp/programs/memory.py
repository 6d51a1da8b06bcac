"""Memory that a compiler leaves behind, given back to the system."""

import ctypes
import functools
import sys
import threading
from collections.abc import Callable

# The thread that gives memory back: who counts memory waits for it.
NAME = "numpyro_gp gives memory back"


@functools.cache
def trim() -> Callable[[int], int] | None:
    """``malloc_trim`` of the C library; None of one that has no such function, as those of macOS and Alpine."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


def give_back() -> None:
    """Give back the memory that nobody uses, beside whatever runs next.

    XLA compiles the loop of a fit in some 200 MiB, in threads of its own. glibc keeps what they have freed, in the heap
    of each thread, for as long as the process lives: that was half of what a process held after its first fit.
    """
    if (release := trim()) is not None:
        threading.Thread(target=release, args=(0,), name=NAME, daemon=True).start()
