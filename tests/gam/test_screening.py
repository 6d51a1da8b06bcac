"""Scores of pairs: large where residuals vary jointly, chi-squared where they do not; and a screening as a whole."""

from types import SimpleNamespace

import numpy as np
import pytest

import numpyro_gp as ngp
from numpyro_gp.gam.screening import ranked_pairs, score


def test_a_score_finds_a_product_and_ignores_a_sum():
    rng = np.random.default_rng(0)
    cells, ones = rng.integers(0, 5, (2, 500)), np.ones(500)
    noise = rng.normal(size=500)
    assert score(*cells, 0.3 * (cells[0] - 2) * (cells[1] - 2) + noise, ones) > 5
    means = 2.0 * cells[0] - cells[1]
    np.testing.assert_allclose(score(*cells, means + noise, ones), score(*cells, noise, ones), atol=1e-9)


def test_scores_of_noise_have_mean_0_and_deviation_1():
    """Of 400 draws: standard errors of 0.05; without the degrees of freedom of both columns the mean would be 0.7."""
    rng = np.random.default_rng(1)
    cells, weights = rng.integers(0, 5, (2, 400)), rng.uniform(0.5, 2.0, 400)
    found = [score(*cells, rng.normal(size=400) / np.sqrt(weights), weights) for _ in range(400)]
    np.testing.assert_allclose([np.mean(found), np.std(found)], [0.0, 1.0], atol=0.25)


def of_columns(text, **data):
    """What `ranked_pairs` reads of a fit, with residuals that are a product of the first two columns."""
    model = ngp.gam.model(text, data)
    first, second = (np.asarray(column, float) for column in list(data.values())[:2])
    left = (first - first.mean()) * (second - second.mean())
    return SimpleNamespace(model=model, _residuals=lambda: (left, np.ones(len(left))))


def test_a_column_that_is_also_a_category_is_a_number_where_a_main_effect_reads_it_as_one():
    rng = np.random.default_rng(0)
    data = {"year": rng.integers(2000, 2010, 200), "age": rng.normal(size=200), "y": rng.normal(size=200)}
    (pair,) = ranked_pairs(of_columns("y ~ s(year) + s(age) + re(year)", **data))
    assert str(pair.term) == "ti(year, age)"
    both = ranked_pairs(of_columns("y ~ s(year) + factor(year) + s(age)", **data))
    assert {str(pair.term) for pair in both} == {"ti(year, age)", "s(age, by=year)"}
    assert both[0].score > both[1].score


@pytest.mark.parametrize("given", ["ti(b, a)", "te(b, a)", "te(c, b, a)", "s(a, by=g)"])
def test_what_is_a_term_is_no_pair_in_any_order(given):
    data = {name: np.random.default_rng(ord(name)).normal(size=60) for name in "abcy"} | {"g": np.arange(60) % 2}
    found = {frozenset(pair.names) for pair in ranked_pairs(of_columns(f"y ~ a + b + factor(g) + {given}", **data))}
    every = {frozenset("ab"), frozenset("ag"), frozenset("bg")}
    assert found == every - {frozenset("ag") if "by" in given else frozenset("ab")}


def test_rows_with_missing_values_are_left_out_of_both_parts():
    """Those of columns that are read: the other ones say nothing."""
    rng = np.random.default_rng(0)
    data = {name: rng.normal(size=60) for name in "aby"}
    gaps = {name: np.where(np.arange(60) % 5 == at, np.nan, data[name]) for at, name in enumerate("aby")}
    full = {name: column[np.arange(60) % 5 > 2] for name, column in data.items()}
    found = ngp.gam.screen("y ~ a + b", gaps | {"other": np.full(60, np.nan)}, num_steps=20, most=1)
    assert found.scores == ngp.gam.screen("y ~ a + b", full, num_steps=20, most=1).scores


def test_rows_of_a_level_that_no_other_row_has_are_fitted():
    """Of 20 levels with one row each some are held out, whatever the key is."""
    g = np.append(np.arange(20), np.repeat([20, 21], 20)).astype(str)
    rng = np.random.default_rng(0)
    data = {"a": rng.normal(size=60), "g": g, "y": rng.normal(size=60)}
    found = ngp.gam.screen("y ~ a + factor(g)", data, num_steps=20, most=1)
    assert list(found.scores) == [("a", "g")]
    table = {name: column[:20] for name, column in data.items()}
    with pytest.raises(ValueError, match="held_out must be a share with rows of levels that others have too, but got"):
        ngp.gam.screen("y ~ a + factor(g)", table)


@pytest.mark.parametrize("share", [0, 1.0, 1.5, -0.1, np.nan, "0.2", True])
def test_the_share_that_judges_is_between_0_and_1(share):
    with pytest.raises((TypeError, ValueError), match="held_out must be a share between 0 and 1, but got"):
        ngp.gam.screen("y ~ a", {"a": np.arange(9.0), "y": np.arange(9.0)}, held_out=share)


@pytest.mark.long
def test_a_weak_product_is_found_once_the_strong_one_is_explained():
    """Beside the strong one its score is that of noise: below what is tried at all."""
    rng = np.random.default_rng(0)
    x, z, w = rng.uniform(-1, 1, size=(3, 200))
    data = {"x": x, "z": z, "w": w, "y": 6 * x * z + 0.8 * z * w + 0.1 * rng.normal(size=200)}
    found = ngp.gam.screen("y ~ x + z + w", data, most=2)
    assert found.scores["z", "w"] < 2 < found.tried[1].score
    assert [str(one.term) for one in found.tried] == ["ti(x, z)", "ti(z, w)"]
    assert found.tried[1].kept


@pytest.mark.long
def test_numbers_that_a_table_calls_levels_are_levels():
    """As in `ngp.gam`: of arrays they would be a line. And a response of two such levels is 0 and 1."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    levels = pandas.Categorical(np.arange(40) % 4 + 1)
    label = pandas.Categorical([None, *rng.integers(1, 3, 39)])
    table = pandas.DataFrame({"a": rng.normal(size=40), "g": levels, "y": label})
    found = ngp.gam.screen("y ~ a + g", table, "bernoulli", num_steps=5, most=1)
    assert [term.name for term in found.terms.items[:2]] == ["a", "factor(g)"]
    table["y"] = levels
    with pytest.raises(ValueError, match="response 'y' must be numbers in this family, but got levels of a category"):
        ngp.gam.screen("y ~ a", table, "poisson")


def test_one_row_judges_nothing_and_weights_are_refused():
    """The deviation of one gain is zero, which every gain is above."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 60))
    data = {"a": a, "b": b, "y": 3 * a * b + 0.1 * rng.normal(size=60)}
    (tried,) = ngp.gam.screen("y ~ a + b", data, most=1, held_out=0.01, num_steps=20).tried
    assert (tried.error, tried.kept) == (np.inf, False)
    with pytest.raises(ValueError, match="weights must be None in a screening"):
        ngp.gam.screen("y ~ a + b", data, weights="a")
