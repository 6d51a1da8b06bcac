"""The two forms of the bound agree where both hold, with each other and with a dense formula."""

import numpy as np
import pytest
from scipy import stats

from numpyro_gp.gam.model.features import Features
from numpyro_gp.gam.search import bound_formulas as own
from numpyro_gp.gam.search.bound_formulas import ExpectedTotal

RNG = np.random.default_rng(4)
SIZES = np.array([4, 3, 1])
SCALES = np.array([0.7, 1.3, 2.0])
NOISE, ROWS = 0.6, 25


def features_of():
    values = RNG.normal(size=(8, ROWS))
    variances = np.stack([np.sum(block**2, 0) for block in np.split(values, [4, 7])]) + 0.1
    return Features(values, variances, RNG.normal(size=(2, 8, ROWS)), RNG.normal(size=(2, 3, ROWS)))


def test_sites_of_gaussian_noise_give_the_bound_of_gaussian_noise():
    """With the pseudo-data ``W = w / noise^2``, ``s = W y``, value and all slopes are equal: 1e-9 rejects any missing term."""
    features, y, offset = features_of(), RNG.normal(size=ROWS), RNG.normal(size=ROWS)
    weights = RNG.uniform(0.5, 2, ROWS)
    residual = weights * (y - offset)
    response = own.ResponseSums(weights.sum(), np.sum(residual * (y - offset)))
    first = own.gaussian_bound(own.summed(features, weights, residual), response, SCALES, NOISE, SIZES)

    def expected(mean, variance):
        rest = (y - mean) ** 2 + variance
        value = np.sum(weights * (-0.5 * np.log(2 * np.pi * NOISE**2) - 0.5 * rest / NOISE**2))
        return ExpectedTotal(value, np.zeros(0), weights * (y - mean) / NOISE**2, -0.5 * weights / NOISE**2)

    weight = weights / NOISE**2
    second, at, _ = own.bound_at_pseudo_data(features, SCALES, SIZES, (weight * y, weight), offset, expected)
    for name in ("loss", "of_scales", "of_lengths", "precision", "projected"):
        np.testing.assert_allclose(getattr(first, name), getattr(second, name), rtol=1e-9, atol=1e-9)
    s = np.repeat(SCALES, SIZES)
    A = s[:, None] * features.values
    S = np.linalg.inv(np.eye(8) + (A * weight) @ A.T)
    np.testing.assert_allclose(at.mean, offset + (S @ A @ (weight * (y - offset))) @ A)


def test_the_bound_is_titsias_with_the_slope_of_the_noise():
    """``log N(y; offset, A^T A + noise^2 / w)`` less half the variance left out over the noise."""
    features, y, offset = features_of(), RNG.normal(size=ROWS), RNG.normal(size=ROWS)
    ones = np.ones(ROWS)
    response = own.ResponseSums(ROWS, np.sum((y - offset) ** 2))
    at = lambda noise: own.gaussian_bound(own.summed(features, ones, y - offset), response, SCALES, noise, SIZES)  # noqa: E731
    found = at(NOISE)
    np.testing.assert_allclose(found.of_noise, (at(NOISE + 1e-5).loss - at(NOISE - 1e-5).loss) / 2e-5, rtol=1e-7)
    A = np.repeat(SCALES, SIZES)[:, None] * features.values
    dense = stats.multivariate_normal(offset, A.T @ A + NOISE**2 * np.eye(ROWS)).logpdf(y)
    left = np.sum(SCALES[:, None] ** 2 * features.variances) - np.sum(A**2)
    np.testing.assert_allclose(found.loss, -(dense - 0.5 * left / NOISE**2), rtol=1e-10)


def test_sums_are_sums():
    features, weights, residual = features_of(), RNG.uniform(size=ROWS), RNG.normal(size=ROWS)
    whole = own.summed(features, weights, residual)
    some = lambda at: own.summed(Features(*(leaf[..., at] for leaf in features)), weights[at], residual[at])  # noqa: E731
    for one, other in zip(whole, map(np.add, some(slice(0, 9)), some(slice(9, ROWS))), strict=True):
        np.testing.assert_allclose(one, other)


def test_a_matrix_that_is_no_number_is_told_as_one_without_a_factor():
    """So that a step too long is taken back, whichever way its numbers end."""
    for bad in (np.full((3, 3), np.nan), np.diag([1.0, np.nan, 1.0]), np.diag([1.0, -1.0])):
        with pytest.raises(np.linalg.LinAlgError):
            own.inverse_of(bad)
