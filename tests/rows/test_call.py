"""Calls of a model: binding, rows, and what is refused."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import numpyro_gp as ngp
from numpyro_gp.rows.argument_shapes import arguments_of, shapes_in_words
from numpyro_gp.rows.call import Arguments, call_of, check_not_empty, is_data


def model(X, y=None, *, W=None, batch=None): ...


def test_first_argument_has_the_rows_unless_others_are_named_and_arrays_are_put_back():
    call = call_of(model, (np.zeros((3, 1)),), {"W": {"a": jnp.zeros((3, 2)), "b": (np.zeros(3), "text")}, "batch": 4})
    assert call.owners == ("X", "W", "W")
    assert call.numbers(None) == {0}
    assert call.numbers(["X", "W"]) == {0, 1, 2}
    assert [is_data(value) for value in call.arguments.values()] == [True, False, False]
    bound = call.at([1, 2, 3])
    assert bound.args == (1,)
    assert bound.kwargs == {"W": {"a": 2, "b": (3, "text")}, "batch": 4}


def test_arguments_of_a_model_that_takes_any_are_known_by_their_own_names():
    """A wrapper ``def two(y=None, **data)``: one name for all of them would give ``Z`` the rows of ``X``."""

    def wrapper(y=None, **data): ...

    call = call_of(wrapper, (), {"X": np.zeros((3, 1)), "Z": jnp.zeros((2, 1)), "A": (1, jnp.zeros(3))})
    assert call.owners == ("A", "X", "Z")
    assert call.numbers(None) == {1}
    assert call.numbers(["X", "A"]) == {0, 1}
    assert call.at([1, 2, 3]).kwargs == {"X": 2, "Z": 3, "A": (1, 1)}


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: call_of(model, (), {}), TypeError, "args and kwargs must be arguments of the model.*missing"),
        (lambda: call_of(model, (1,), {"q": 1}), TypeError, "but got an unexpected keyword argument 'q'"),
        (lambda: call_of(model, (1,), {}).numbers(None), TypeError, "X must be an array of numbers, whose rows are predicted, but got int"),
        (lambda: call_of(model, ([[0.5]],), {}).numbers(None), TypeError, r"but got list\. Pass an array with a row for each datum: jnp\.asarray\(X\)\."),
        (lambda: call_of(model, (np.array([["a"]]),), {}).numbers(None), TypeError, "X must be an array of numbers.* but got <U1"),
        (lambda: call_of(model, (np.zeros(1),), {}).numbers(["Q"]), ValueError, r"got \['Q'\]"),
        (lambda: call_of(model, (np.zeros(2), np.zeros(3)), {}).numbers(("X", "y")), ValueError, "same, non-zero number of rows"),
        (lambda: call_of(model, (np.zeros(2), np.asarray(3.0)), {}).numbers(("y",)), ValueError, "same, non-zero number of rows"),
        (lambda: call_of(model, (np.zeros((0, 1)),), {}).numbers(("X",)), ValueError, "same, non-zero number of rows"),
    ],
)  # fmt: skip
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_empty_data_are_refused_by_name():
    with pytest.raises(ValueError, match=r"y of the model must be non-empty data, but got shape \(0,\)"):
        check_not_empty(call_of(model, (np.zeros(2), np.zeros(0)), {}))


def test_arguments_come_back_through_a_file_as_their_shapes():
    rows = {"X": np.ones((4, 2), np.float32), "y": [jnp.arange(4), None]}
    given = Arguments((rows, (3, "probit")), {"batch": None, "rate": 0.5, "half": jnp.ones(2, jnp.bfloat16)})
    found = arguments_of(json.loads(json.dumps(shapes_in_words(given))))
    shape = jax.ShapeDtypeStruct
    expected = {"X": shape((4, 2), jnp.float32), "y": [shape((4,), jnp.arange(4).dtype), None]}
    assert found.args == (expected, (3, "probit"))
    assert found.kwargs == {"batch": None, "rate": 0.5, "half": shape((2,), jnp.bfloat16)}
    assert shapes_in_words(found) == shapes_in_words(given)


def test_objects_have_no_words():
    others = [len, ngp.kernels.RBF(1.0, 1.0), {1: 2}, jax.random.key(0), ngp.neighbours(np.eye(4), 2).find(np.eye(4))]
    assert [shapes_in_words(Arguments((other,), {})) for other in others] == [None] * 5
    assert shapes_in_words(Arguments((), {"f": [others[1]]})) is None
    assert shapes_in_words(Arguments(([0.5] * 101,), {})) is None  # these are data
