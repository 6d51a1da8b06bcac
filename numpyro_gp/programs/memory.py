"""Memory that a compiler leaves behind, given back; blocks of NumPy, kept; and no search for cycles while it traces."""

import ctypes
import functools
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

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


def keep_blocks() -> None:
    """Have freed blocks of up to 8 MiB serve the next ones, before a pass that makes and drops thousands of them.

    glibc maps blocks above 128 KiB one by one, and gives each back at once: every page of the next one is then a fault
    of its own, 0.25 s of a first summary. How large the blocks are that it keeps it learns from the largest one that
    was freed. This one is never touched.
    """
    np.empty(2**20)


@contextmanager
def unswept() -> Iterator[None]:
    """Python looks for cycles of objects that nobody holds after this block, and not inside of it.

    A model and its derivative are some 10^5 objects when they are traced. So many new ones have Python go through all
    that a process holds, twice in a first fit: a fifth of the time before its first step, with programs on disk.
    """
    is_ours = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_ours:
            gc.enable()
