"""jaxlib 0.10 and 0.11.0: of XLA's two schedulers for CPUs, the one that does not stop.

Their other one, the default, spreads a batch of LAPACK calls over the threads that wait for it: on few cores a step can
wait for ever. Importing `numpyro_gp` chooses before XLA has read its flags, and says so when it comes too late.
"""

import os
import warnings

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
