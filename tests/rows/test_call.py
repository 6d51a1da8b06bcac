"""Calls of a model: binding, rows, and what is refused."""

import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.rows.call import bind, is_data, row_arrays, split_arguments


def model(X, y=None, *, W=None, batch=None): ...


def test_first_argument_has_the_rows_unless_others_are_named():
    call = bind(model, (np.zeros((3, 1)),), {"W": {"a": jnp.zeros((3, 2)), "b": (np.zeros(3), "text")}, "batch": 4})
    assert call.owners == ("X", "W", "W")
    assert row_arrays(call, None) == {0}
    assert row_arrays(call, ["X", "W"]) == {0, 1, 2}
    assert [is_data(value) for value in call.arguments.values()] == [True, False, False]


def test_arrays_are_put_back_where_they_were():
    call = bind(model, (np.zeros((3, 1)),), {"W": {"a": jnp.zeros((3, 2)), "b": (np.zeros(3), "text")}, "batch": 4})
    bound = call.at([1, 2, 3])
    assert bound.args == (1,)
    assert bound.kwargs == {"W": {"a": 2, "b": (3, "text")}, "batch": 4}


def test_arguments_of_a_model_that_takes_any_are_known_by_their_own_names():
    """A wrapper ``def two(y=None, **data)``: one name for all of them would give ``Z`` the rows of ``X``."""

    def wrapper(y=None, **data): ...

    call = bind(wrapper, (), {"X": np.zeros((3, 1)), "Z": jnp.zeros((2, 1)), "A": (1, jnp.zeros(3))})
    assert call.owners == ("X", "Z", "A")
    assert row_arrays(call, None) == {0}
    assert row_arrays(call, ["X", "A"]) == {0, 2}
    assert call.at([1, 2, 3]).kwargs == {"X": 1, "Z": 2, "A": (1, 3)}


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: bind(model, (), {}), TypeError, "args and kwargs must be arguments of the model.*missing"),
        (lambda: bind(model, (1,), {"q": 1}), TypeError, "but got an unexpected keyword argument 'q'"),
        (lambda: row_arrays(bind(model, (1,), {}), None), ValueError, r"rows must be names of array arguments.*\['X'\]"),
        (lambda: row_arrays(bind(model, (np.zeros(1),), {}), ["Q"]), ValueError, r"got \['Q'\]"),
        (lambda: row_arrays(bind(model, (np.zeros(2), np.zeros(3)), {}), ("X", "y")), ValueError, "same, non-zero number of rows"),
        (lambda: row_arrays(bind(model, (np.zeros(2), np.asarray(3.0)), {}), ("y",)), ValueError, "same, non-zero number of rows"),
        (lambda: row_arrays(bind(model, (np.zeros((0, 1)),), {}), ("X",)), ValueError, "same, non-zero number of rows"),
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
