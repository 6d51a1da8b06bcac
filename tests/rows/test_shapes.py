"""Arguments in words: shapes of arrays, and all else as it was; objects of other kinds have none."""

import json

import jax
import jax.numpy as jnp
import numpy as np

import numpyro_gp as ngp
from numpyro_gp.rows.argument_shapes import arguments_of, shapes_in_words
from numpyro_gp.rows.call import Arguments


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
