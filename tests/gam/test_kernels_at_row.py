"""Kernels at a row, while others predict; their numbers are those of `test_row_predictor.py`."""

import numpy as np

import numpyro_gp as ngp
from numpyro_gp.gam.answers.predictions import TermAtRow

DATA = {"g": np.array(list("abc") * 10), "y": np.random.default_rng(0).normal(size=30)}


def test_levels_that_are_forgotten_while_a_row_is_predicted_are_found_all_the_same():
    """A service has threads, and one of them may clear what another has just kept."""
    model = ngp.gam.model("y ~ re(g)", DATA)
    (part,) = model.layout.read_terms
    term, row = TermAtRow(model, part, np.zeros((1, 0))), model.rows.X[4]

    class Forgetful(dict):
        def __setitem__(self, key, value):
            """Nothing stays, as where another thread clears it at once."""

    wanted, term._known = term.at(row), Forgetful()
    np.testing.assert_array_equal(term.at(row), wanted)
