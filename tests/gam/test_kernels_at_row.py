"""Kernels at a row are those of many rows, at each draw of the lengthscales."""

import numpy as np
import pytest

import numpyro_gp as ngp
from numpyro_gp.gam.kernels_at_row import TermAtRow
from numpyro_gp.gam.row_features import inducing_of, kernel_of

RNG = np.random.default_rng(0)
DATA = {"x": RNG.normal(size=30), "z": RNG.normal(size=30), "g": np.array(list("abc") * 10), "y": RNG.normal(size=30)}
TERMS = ("s(x)", "s(x, by=g)", "s(x, cyclic=True)", "te(x, z)", "ti(x, z, kernel=Matern32)", "re(g, by=x)", "linear(z)")


def test_levels_that_are_forgotten_while_a_row_is_predicted_are_found_all_the_same():
    """A service has threads, and one of them may clear what another has just kept."""
    model = ngp.gam.model("y ~ re(g)", DATA)
    (part,) = model.layout.read_terms
    term, row = TermAtRow(model, part, np.zeros((1, 0))), model.rows.X[4]

    class Forgetful(dict):
        def __setitem__(self, key, value):
            """Nothing stays, as where another thread clears it at once."""

    wanted, term._known = term.at(row), Forgetful()
    np.testing.assert_array_equal(term.at(row).cross, wanted.cross)


@pytest.mark.parametrize("measure", ["empirical", "uniform"])
def test_kernels_of_every_term(measure):
    for text in TERMS:
        model = ngp.gam.model(f"y ~ {text}", DATA, measure=measure)
        (part,) = model.layout.read_terms
        lengths, row = RNG.uniform(0.2, 3.0, (3, 2)), model.rows.X[4]
        found = TermAtRow(model, part, lengths).at(row)
        kernel = kernel_of(model, part, inducing_of(model, part), row[None, list(part.columns)])
        for at, own in enumerate(lengths):
            wanted = kernel(own[: len(part.term.columns)] if text[0] in "st" else own[:0])
            cross, variance = (np.broadcast_to(one, (3, *one.shape[1:]))[at] for one in found)
            np.testing.assert_allclose(cross, wanted.cross.value[:, 0], rtol=1e-10, atol=1e-12, err_msg=text)
            np.testing.assert_allclose(variance, wanted.diagonal.value[0], rtol=1e-10, err_msg=text)
