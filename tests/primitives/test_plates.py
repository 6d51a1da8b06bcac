"""Where the axes of plates stand: inputs and results of all arrangements, against loops over members."""

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


ARRANGED = {
    "on the right": ({"group": (3, -1)}, (3,), (3,)),
    "left of data": ({"group": (3, -2)}, (3, 1), (3,)),
    "left of replicates": ({"group": (3, -3)}, (3, 1, 1), (3, 1)),
    "two": ({"a": (2, -3), "b": (3, -2)}, (2, 3, 1), (2, 3)),
    "two on the right": ({"a": (2, -2), "b": (3, -1)}, (2, 3), (2, 3)),
    "of one": ({"group": (1, -2)}, (1, 1), (1,)),
}


@pytest.mark.parametrize("name", ARRANGED)
def test_results_have_the_axes_of_plates_left_of_the_rows(name):
    """A result with members 0, 1, ... on the axes of the batch, at shared rows and at rows of each."""
    dims, batch, lead = ARRANGED[name]
    plates = plates_of(**dims)
    assert (plates.batch, plates.lead) == (batch, lead)
    numbers = jnp.arange(float(np.prod(batch))).reshape(*batch, 1, 1) + jnp.zeros((*batch, 1, 4))
    whole = plates.layout("X", (4,)).whole(numbers)
    np.testing.assert_array_equal(whole, numbers.reshape(*lead, 4))
    inputs = jnp.asarray(np.random.default_rng(0).normal(size=(*lead, 4, 2)))
    layout = plates.layout("X", inputs.shape[:-1])
    rows = layout.rows(inputs)
    assert rows.shape == ((*batch, 1, 4, 2) if layout.is_own else (1, 4, 2))
    assert layout.is_own == (np.prod(batch) > 1)
    if layout.is_own:
        np.testing.assert_array_equal(layout.whole(rows), inputs)


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
