"""Scores of pairs: large where residuals vary jointly, chi-squared where they do not; and a screening as a whole."""

import numpy as np
import pytest

import numpyro_gp as ngp
from numpyro_gp.gam.screening import CELLS, _cells, score


def test_a_score_finds_a_product_and_ignores_a_sum():
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(2, 500))
    cells, ones = [_cells(x, False), _cells(z, False)], np.ones(500)
    assert cells[0].max() == CELLS - 1
    noise = rng.normal(size=500)
    assert score(*cells, 0.5 * x * z + noise, ones) > 5
    means = 2.0 * cells[0] - cells[1]
    np.testing.assert_allclose(score(*cells, means + noise, ones), score(*cells, noise, ones), atol=1e-9)


def test_scores_of_noise_have_mean_0_and_deviation_1():
    """Of 400 draws: standard errors of 0.05; without the degrees of freedom of both columns the mean would be 0.7."""
    rng = np.random.default_rng(1)
    x, z = rng.normal(size=(2, 400))
    cells, weights = (_cells(x, False), _cells(z, False)), rng.uniform(0.5, 2.0, 400)
    found = [score(*cells, rng.normal(size=400) / np.sqrt(weights), weights) for _ in range(400)]
    np.testing.assert_allclose([np.mean(found), np.std(found)], [0.0, 1.0], atol=0.25)


@pytest.mark.long
def test_a_product_is_kept_and_noise_is_not_tried():
    rng = np.random.default_rng(2)
    x, z, w = rng.uniform(-1, 1, size=(3, 150))
    data = {"x": x, "z": z, "w": w, "y": x + 3 * x * z + 0.3 * rng.normal(size=150)}
    found = ngp.gam.screen("y ~ x + z + w", data, num_steps=200, most=1)
    assert next(iter(found.scores)) == ("x", "z")
    assert [str(one.term) for one in found.tried] == ["ti(x, z)"]
    assert str(found.terms) == "y ~ x + z + w + ti(x, z)"
    assert found.tried[0].gain > 0.5


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
