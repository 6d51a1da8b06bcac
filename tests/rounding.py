"""Data whose last digit is another one: what a processor changes is rounding, and no result may hang on that.

``NUMPYRO_GP_TEST_ROUNDING=7`` multiplies what tests draw at random by ``1 + 1e-15 u``, where ``u`` depends on the number
and on the seed 7, and ``7/gam,criticism`` in these rooms alone; ``XLA_FLAGS=--xla_cpu_max_isa=SSE4_2`` or ``AVX2``
changes what XLA compiles, and ``OPENBLAS_NUM_THREADS=2`` sums. A test that is red then compares what rounding decides,
or the package lets it decide.
"""

from pathlib import Path

import numpy as np

DRAWS = (
    "beta",
    "exponential",
    "gamma",
    "laplace",
    "lognormal",
    "normal",
    "random",
    "standard_normal",
    "standard_t",
    "uniform",
)


ROOMS: list[str] = []
now = {"rounded": True}


def install(setting: str | None) -> None:
    """Have `numpy.random.default_rng` draw floating numbers that differ in the last digit; nothing without a seed."""
    if not setting:
        return
    seed, _, rooms = setting.partition("/")
    ROOMS.extend(filter(None, rooms.split(",")))
    phase, plain = float(int(seed, 16) % 1000), np.random.default_rng

    def rounded(name):
        draw = getattr(np.random.Generator, name)

        def other(self, *args, **kwargs):
            values = draw(self, *args, **kwargs)
            factor = 1 + 1e-15 * np.sin(1e6 * values + phase)
            return values * factor if kwargs.get("out") is None else np.multiply(values, factor, out=values)

        return other

    Rounded = type("Rounded", (np.random.Generator,), {name: rounded(name) for name in DRAWS})
    np.random.default_rng = lambda *args: Rounded(plain(*args).bit_generator) if now["rounded"] else plain(*args)


def look_at(file: Path) -> None:
    """Draw so in the tests of this file, if it is of one of the rooms; all tests are, where no room is named."""
    now["rounded"] = not ROOMS or file.parent.name in ROOMS
