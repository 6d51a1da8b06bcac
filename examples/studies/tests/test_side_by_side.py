"""Fits of several splits in one program: each is the fit that it would be alone, and other programs are refused."""

import jax
import numpy as np
import pytest

from examples.studies.side_by_side.side_by_side import alone, job_of, problems_of, together
from examples.tools.datasets import HERE
from tests.compiling import counted

STEPS = 7


@pytest.fixture(autouse=True)
def settings_of_examples():
    """Examples choose their precision; their models leave it to NumPy how shapes meet."""
    precision = jax.config.jax_enable_x64
    with jax.numpy_rank_promotion("allow"):
        yield
    jax.config.update("jax_enable_x64", precision)


@pytest.mark.long
@pytest.mark.experiments("examples/studies/side_by_side")
def test_a_fit_is_the_one_that_it_would_be_alone():
    """A wrong split's data or starting points, or one key for all, would be far from single fits."""
    text = "deep challenger LV-GP_IW inducing=4 batch=8 draws=3"
    problems, others = (problems_of(job_of(text, 3), HERE) for _ in range(2))
    fits = together(problems)
    states, losses = fits.advance(fits.states, STEPS)
    with counted() as programs:
        fits.advance(states, STEPS)
    assert programs.count == 0
    for place, own in enumerate(others):
        # Set up while traced, as together: that takes one key more, and other rows.
        state = jax.jit(lambda key, own=own: own.svi.init(key, *own.arguments, **own.keywords))(own.key)
        single = []
        step = jax.jit(lambda state, own=own: own.svi.update(state, *own.arguments, **own.keywords))
        for _ in range(STEPS):
            state, loss = step(state)
            single.append(loss)
        close = {"rtol": 1e-9} if jax.config.jax_enable_x64 else {"rtol": 1e-3, "atol": 1e-5}
        np.testing.assert_allclose(losses[:, place], single, **close)
        for name, value in alone(fits, problems, states, place).items():
            np.testing.assert_allclose(value, own.svi.get_params(state)[name], **close, err_msg=name)
    assert len({float(loss) for loss in losses[-1]}) == 3
