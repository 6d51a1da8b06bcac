"""Data whose last digit is another one: what a processor changes is rounding, and no result may hang on that.

``NUMPYRO_GP_TEST_ROUNDING=7`` multiplies what tests draw at random by ``1 + 1e-15 u``, where ``u`` depends on the number
and on the seed 7; ``XLA_FLAGS=--xla_cpu_max_isa=SSE4_2`` or ``AVX2`` changes what XLA compiles, and
``OPENBLAS_NUM_THREADS=2`` sums. A test that is red then compares what rounding decides, or the package lets it decide.
"""

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


def install(seed: str | None) -> None:
    """Have `numpy.random.default_rng` draw floating numbers that differ in the last digit; nothing without a seed."""
    if not seed:
        return
    phase, plain = float(int(seed, 16) % 1000), np.random.default_rng

    def rounded(name):
        draw = getattr(np.random.Generator, name)

        def other(self, *args, **kwargs):
            values = draw(self, *args, **kwargs)
            return values * (1 + 1e-15 * np.sin(1e6 * values + phase))

        return other

    Rounded = type("Rounded", (np.random.Generator,), {name: rounded(name) for name in DRAWS})
    np.random.default_rng = lambda *args: Rounded(plain(*args).bit_generator)
