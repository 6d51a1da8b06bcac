"""How XLA makes programs of a CPU and runs them: order, effort, a scheduler that does not stop, an end that waits.

Of the two schedulers of jaxlib 0.10 and 0.11.0 the default spreads a batch of LAPACK calls over the threads that wait
for it: on few cores a step can wait for ever. Importing `numpyro_gp` chooses before XLA has read its flags, and says so
when it comes too late. With jaxlib 0.12 a script that ends while a program runs, as one whose last prediction nobody
reads, ends in a segmentation fault.
"""

import atexit
import os
import warnings
from contextlib import suppress
from typing import Any

import jax
import jaxlib.version

from numpyro_gp.programs.private import xla_has_started

FLAG = "--xla_cpu_enable_concurrency_optimized_scheduler"
VERSION = jaxlib.version.__version_info__
# Bytes of the largest array from which a program should hold little: 512 inducing inputs, or by 1024 rows in float32.
LEAST_MEMORY_FROM = 2**21


def can_stop(version: str) -> bool:
    """Whether programs of this jaxlib can stop for ever on a CPU."""
    return f"{version}.".startswith(("0.10.", "0.11.0."))


def choose_scheduler(version: str = jaxlib.__version__) -> None:
    """Add the flag to ``XLA_FLAGS``, which XLA reads once; what a user says there about this flag is left alone."""
    flags = os.environ.get("XLA_FLAGS", "")
    if not can_stop(version) or FLAG in flags:
        return
    if not xla_has_started():
        os.environ["XLA_FLAGS"] = f"{flags} {FLAG}=false".strip()
    elif jax.default_backend() == "cpu":
        warnings.warn(
            f"Programs of jaxlib {version} can stop for ever on a CPU, and JAX has started already. Import numpyro_gp "
            f"before the first array is made, or set XLA_FLAGS={FLAG}=false.",
            RuntimeWarning,
            stacklevel=3,
        )


def compiler_options(effort: int | None = None, *, largest: int = 0) -> dict[str, Any] | None:
    """Options of the compiler for a program on a CPU whose largest array has so many bytes; None on other devices.

    By default operations that could run side by side come together, and all that they make is held: a step of 5000 mean
    points takes 37 MiB for 31, and half as long again. Where arrays are large they come in the order that holds the
    least at once; small ones would wait for each other, up to a tenth of a step.

    An ``effort`` of 0 is for a program that runs once. At 1 it compiles for twice the time and runs four times as fast,
    small arrays as fast as ever. None is all of it.
    """
    if jax.default_backend() != "cpu":
        return None
    options: dict[str, Any] = {}
    if largest >= LEAST_MEMORY_FROM and VERSION >= (0, 9, 1):  # earlier ones have no such option
        options["xla_cpu_scheduler_type"] = "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"
    if effort is not None:
        options["xla_backend_optimization_level"] = effort
        if VERSION < (0, 10):  # later ones have one code generator
            options["xla_cpu_use_fusion_emitters"] = False
    return options or None


@atexit.register
def wait_for_programs() -> None:
    """Wait until all arrays are there: where Python ends first, threads at work lose what they stand on."""
    if xla_has_started():
        with suppress(Exception):  # what failed has no one left to tell
            jax.block_until_ready(jax.live_arrays())
