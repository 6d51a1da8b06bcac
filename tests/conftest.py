"""Settings of every test: float64, no implicit rank promotion, CPU-safe; warnings are errors (pyproject.toml)."""

import jax
import numpy as np
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator that is the same in every run."""
    return np.random.default_rng(20240511)
