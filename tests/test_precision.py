"""Tests of both precisions run in any order."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.precision import x64

VALUES = np.arange(3.0)


@pytest.mark.parametrize("first", [True, False])
def test_an_array_that_a_living_program_closes_over_has_the_precision_of_the_moment(first):
    kept = []
    for is_double in (first, not first, first):
        with x64(is_double):
            kept.append(jax.jit(lambda x: x + VALUES))
            assert kept[-1](jnp.ones(3)).dtype == (jnp.float64 if is_double else jnp.float32)
