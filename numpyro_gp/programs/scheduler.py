"""How XLA runs programs on a CPU: a scheduler that does not stop, and an end that waits for what still runs.

Of the two schedulers of jaxlib 0.10 and 0.11.0 the default spreads a batch of LAPACK calls over the threads that wait
for it: on few cores a step can wait for ever. Importing `numpyro_gp` chooses before XLA has read its flags, and says so
when it comes too late. With jaxlib 0.12 a script that ends while a program runs, as one whose last prediction nobody
reads, ends in a segmentation fault.
"""

import atexit
import os
import warnings
from contextlib import suppress

import jax
import jaxlib

from numpyro_gp.programs.private import xla_has_started

FLAG = "--xla_cpu_enable_concurrency_optimized_scheduler"


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


@atexit.register
def wait_for_programs() -> None:
    """Wait until all arrays are there: where Python ends first, threads at work lose what they stand on."""
    if xla_has_started():
        with suppress(Exception):  # what failed has no one left to tell
            jax.block_until_ready(jax.live_arrays())
