"""Features of unit variance in NumPy: against a basis with the scales, and differences."""

import numpy as np
import pytest

import numpyro_gp as ngp
from numpyro_gp.gam.model import features as own
from numpyro_gp.gam.model.model import places_of_lengths

RNG = np.random.default_rng(2)
ROWS = 61
DATA = {"x": RNG.uniform(size=ROWS), "z": RNG.normal(size=ROWS), "g": RNG.choice(["a", "b", "c"], ROWS)}
DATA |= {"k": RNG.integers(0, 5, ROWS), "y": np.sin(5 * DATA["x"]) + 0.3 * RNG.normal(size=ROWS)}
FORMULA = "y ~ s(x, num_inducing=5) + te(x, z, num_inducing=6) + re(g)"


def at_random(model, X):
    """Lengthscales, scales and features there."""
    C, P = places_of_lengths(model).shape
    lengths, scales = RNG.uniform(0.3, 2.0, (C, P)), RNG.uniform(0.5, 2.0, C)
    return lengths, scales, *own.RowFeatures(model, X)(lengths)


def test_what_did_not_move_is_kept_and_what_did_is_not():
    """One lengthscale after the other, at the same places, gives what all of them give at new ones."""
    model = ngp.gam.model(FORMULA, DATA)
    lengths, _, _, _ = at_random(model, model.rows.X)
    places = own.RowFeatures(model, model.rows.X)
    places(lengths)
    for at in ((0, 0), (1, 1), (1, 0)):
        lengths[at] *= 1.3
        found = places(lengths)
        new = own.RowFeatures(model, model.rows.X)(lengths)
        for one, other in zip((*found[0], found[1]), (*new[0], new[1]), strict=True):
            np.testing.assert_array_equal(one, other)


def test_an_interrupt_leaves_no_features_of_other_lengthscales():
    """And a matrix without a factor is one: LAPACK leaves what it has of it, and says so in a number."""
    model = ngp.gam.model("y ~ s(x, num_inducing=4) + s(z, num_inducing=4)", DATA)
    found, lengths = own.RowFeatures(model, model.rows.X[:5]), np.ones((3, 1))
    before = found(lengths)[0].values.copy()
    whole, indefinite = found.components[1], np.array([[1.0, 2.0], [2.0, 1.0]])
    none = own.without_slopes(np.vstack([np.hstack([indefinite, indefinite]), np.ones(4)]), 0)
    found.components[1] = whole._replace(kernel=lambda _: none)
    with pytest.raises(np.linalg.LinAlgError):
        found(2 * lengths)
    found.components[1] = whole
    np.testing.assert_array_equal(found(lengths)[0].values, before)
