"""Calls of a model: binding, rows, and what is refused."""

import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.calls import bind, check_rows, is_data, row_names


def model(X, y=None, *, W=None, batch=None): ...


def test_first_argument_has_the_rows_unless_others_are_named():
    call = bind(model, (np.zeros((3, 1)),), {"W": jnp.zeros((3, 2)), "batch": 4})
    assert row_names(call, None) == ("X",)
    assert row_names(call, ["X", "W"]) == ("X", "W")
    check_rows(call, ("X", "W"))
    assert [is_data(value) for value in call.arguments.values()] == [True, True, False]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: bind(model, (), {}), TypeError, "args and kwargs must be arguments of the model.*missing"),
        (lambda: row_names(bind(model, (1,), {}), None), ValueError, r"rows must be names of array arguments.*\['X'\]"),
        (lambda: row_names(bind(model, (np.zeros(1),), {}), ["Q"]), ValueError, r"got \['Q'\]"),
        (lambda: check_rows(bind(model, (np.zeros(2), np.zeros(3)), {}), ("X", "y")), ValueError, "same, non-zero number of rows"),
        (lambda: check_rows(bind(model, (np.zeros((0, 1)),), {}), ("X",)), ValueError, "same, non-zero number of rows"),
    ],
)  # fmt: skip
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()
