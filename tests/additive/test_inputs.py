"""Columns of an ANOVA model: names, numbers, pairs, levels and measures."""

import jax.numpy as jnp
import numpy as np
import pytest

import numpyro_gp as ngp
from numpyro_gp.additive.anova import column_number, pair_numbers
from numpyro_gp.kernels import Empirical, Gaussian

MEASURES, LABELS = ("uniform", "empirical", "gaussian"), ("age", "site", "dose")


def test_columns_by_name_and_number():
    assert [column_number(one, LABELS) for one in ("dose", 0, np.int64(1))] == [2, 0, 1]
    assert pair_numbers("all", LABELS) == [(0, 1), (0, 2), (1, 2)]
    assert pair_numbers([("dose", 0)], LABELS) == [(0, 2)]
    for wrong in (3, -1, "height", 0.0):
        with pytest.raises(ValueError, match="columns must be numbers below 3 or names among"):
            column_number(wrong, LABELS)
    with pytest.raises(ValueError, match="pairs must be pairs of two different columns, each once"):
        pair_numbers([("age", "site"), (1, 0)], LABELS)


def test_levels_have_the_share_of_their_rows_and_measures_the_mapped_values():
    X, names = np.array([[20.0, 7.0], [40.0, 5.0], [30.0, 7.0]]), ("age", "site")
    designs = {m: ngp.anova.design(X, names=names, categorical=["site"], measure=m) for m in MEASURES}
    number, level = designs["uniform"].inputs
    assert (number.low, number.high, level.levels, level.frequencies) == (20.0, 40.0, (5.0, 7.0), (1 / 3, 2 / 3))
    np.testing.assert_array_equal(level.map(jnp.array([7.0, 6.0])), [1.0, np.nan])
    empirical, normal = (designs[name].measures[0] for name in ("empirical", "gaussian"))
    assert isinstance(empirical, Empirical)
    assert isinstance(normal, Gaussian)
    np.testing.assert_allclose([empirical.weights @ empirical.points, normal.mean], 0.5)
    np.testing.assert_allclose(normal.sd, np.std([0.0, 1.0, 0.5]))
    assert designs["uniform"].measures == ()
