"""Calls of a model: binding, rows, and what is refused."""

import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.training.calls import bind, check_rows, is_data, row_names, split_arguments


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


def test_arrays_are_parted_from_the_fixed_arguments_and_put_back():
    arrays, merge = split_arguments((np.arange(3.0), 5, "name"), {"Z": jnp.ones((2, 1)), "wide": True})
    assert [leaf.shape for leaf in arrays] == [(3,), (2, 1)]
    args, kwargs = merge([leaf + 1 for leaf in arrays])
    assert args[1:] == (5, "name")
    assert kwargs["wide"] is True
    np.testing.assert_array_equal(args[0], [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(kwargs["Z"], 2 * np.ones((2, 1)))
