"""Where the axes of plates stand among those of inputs."""

from contextlib import ExitStack

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

from numpyro_gp.primitives.opening import Plates


def plates_of(**dims):
    """The plates that NumPyro reports for a site inside them, each given as (size, axis)."""
    with handlers.trace() as trace, handlers.seed(rng_seed=0), ExitStack() as stack:
        for name, (size, dim) in dims.items():
            stack.enter_context(numpyro.plate(name, size, dim=dim))
        numpyro.sample("v", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    return Plates.of(trace["v"]["cond_indep_stack"])


def test_axes_left_of_plates_and_between_them_are_sets_of_rows():
    plates = plates_of(group=(3, -3))
    inputs = jnp.arange(5.0 * 3 * 2 * 4).reshape(5, 3, 2, 4, 1)
    layout = plates.layout("X", inputs.shape[:-1])
    rows = layout.rows(inputs)
    assert (rows.shape, layout.sets) == ((3, 1, 1, 10, 4, 1), 10)
    np.testing.assert_array_equal(rows[1, 0, 0].reshape(5, 2, 4, 1), inputs[:, 1])
    np.testing.assert_array_equal(layout.whole(rows), inputs)
    shared = plates.layout("X", (5, 1, 2, 4))
    assert (shared.is_own, shared.shape, shared.sets) == (False, (5, 3, 2), 10)
    message = (
        r"X must be of shape \(N, D\), rows that all members share, or \(3, N, D\), rows of each, but got shape "
        r"\(2, 5, D\)\. Put the axes of plate 'group' of 3 on their left"
    )
    with pytest.raises(ValueError, match=message):
        plates_of(group=(3, -2)).layout("X", (2, 5))
