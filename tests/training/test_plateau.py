"""Where a fit ends by itself. Fits that do: ``tests/gam/test_engines.py`` and ``test_particles.py``."""

import numpy as np

from numpyro_gp.gam.search.engines import BLOCK
from numpyro_gp.training.plateau import still_rises

RNG = np.random.default_rng(0)


def test_a_bound_rises_or_has_arrived():
    noise = RNG.normal(size=BLOCK)
    assert not still_rises(100 + noise, BLOCK)
    assert still_rises(100 + noise - 0.02 * np.arange(BLOCK), BLOCK)
    assert still_rises(100 + noise[: BLOCK // 2], BLOCK)  # of so few steps nobody can say
