"""Scores against numerical integrals, SciPy, double sums and numbers worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from numpyro_gp.criticism import metrics
from tests.compiling import counted


@pytest.fixture
def pair(rng):
    return rng.normal(size=25), rng.normal(size=25)


def test_means_and_standard_errors(pair):
    mean, y = pair
    cases = {
        "log": (metrics.mean_log_density(y), y),
        "mae": (metrics.mae(mean, y), np.abs(mean - y)),
    }
    for score, terms in cases.values():
        np.testing.assert_allclose(score.value, terms.mean(), rtol=1e-12)
        # ddof=0 would be 2 % less.
        np.testing.assert_allclose(score.standard_error, stats.sem(terms), rtol=1e-12)


def test_rmse_and_its_standard_error(rng):
    mean, y = rng.normal(size=400), rng.normal(size=400)
    score = metrics.rmse(mean, y)
    np.testing.assert_allclose(score.value, np.sqrt(((mean - y) ** 2).mean()), rtol=1e-12)
    squares = np.delete(np.tile((mean - y) ** 2, (400, 1)), np.arange(400) * 401).reshape(400, 399)
    leave_one_out = np.sqrt(squares.mean(1))
    jackknife = np.sqrt(399 / 400 * ((leave_one_out - leave_one_out.mean()) ** 2).sum())
    # The error of the mean square itself (without the delta method) is 2.8 times as large.
    np.testing.assert_allclose(score.standard_error, jackknife, rtol=0.02)


def test_an_error_is_one_program(rng):
    mean, y = jnp.asarray(rng.normal(size=(2, 43)))
    with counted() as programs:
        metrics.rmse(mean, y)
    assert programs.count == 1


def test_perfect_single_and_excluded_data():
    assert metrics.rmse(jnp.ones(3), jnp.ones(3)) == (0.0, 0.0)
    score = metrics.mae(jnp.ones(1), jnp.zeros(1))
    assert score.value == 1.0
    assert np.isnan(score.standard_error)
    assert metrics.mean_log_density(jnp.asarray([-1.0, -jnp.inf])).value == -jnp.inf
    with pytest.raises(ValueError, match="log_density must be finite, but got 1 NaN"):
        metrics.mean_log_density(jnp.asarray([-jnp.inf, jnp.nan]))


def crps_integral(cdf, y):
    """The definition: the integral of (F(x) - 1{x >= y})^2."""
    below = integrate.quad(lambda x: cdf(x) ** 2, -np.inf, y, epsabs=1e-12)[0]
    return below + integrate.quad(lambda x: (1 - cdf(x)) ** 2, y, np.inf, epsabs=1e-12)[0]


def test_crps_gaussian_equals_the_integral(rng):
    mean, scale, y = rng.normal(size=6), rng.uniform(0.3, 2.0, size=6), rng.normal(size=6)
    expected = [crps_integral(stats.norm(m, s).cdf, v) for m, s, v in zip(mean, scale, y, strict=True)]
    score = metrics.crps_gaussian(mean, scale, y)
    np.testing.assert_allclose(score.value, np.mean(expected), rtol=1e-8)
    np.testing.assert_allclose(score.standard_error, stats.sem(expected), rtol=1e-7)
    # A variance taken for a scale misses by more than 1000 tolerances.
    assert abs(metrics.crps_gaussian(mean, scale**2, y).value / np.mean(expected) - 1) > 1e-3
    shared = metrics.crps_gaussian(mean, 0.7, y).value
    np.testing.assert_allclose(shared, metrics.crps_gaussian(mean, np.full(6, 0.7), y).value, rtol=1e-12)


def test_crps_samples_equals_the_double_sum(rng):
    samples, y = rng.normal(size=(7, 3, 2)), rng.normal(size=(3, 2))
    pairs = np.abs(samples[:, None] - samples[None]).sum((0, 1)) / (2 * 7 * 6)
    terms = np.abs(samples - y).mean(0) - pairs
    score = metrics.crps_samples(samples, y)
    np.testing.assert_allclose(score.value, terms.mean(), rtol=1e-12)
    np.testing.assert_allclose(score.standard_error, stats.sem(terms.ravel()), rtol=1e-12)


def test_crps_samples_is_fair(rng):
    # Expectation over 2-sample ensembles equals the exact score; the plain ensemble form is 0.28 too high.
    samples, y = rng.normal(size=(2, 100_000)), np.full(100_000, 0.4)
    score = metrics.crps_samples(samples, y)
    exact = crps_integral(stats.norm.cdf, 0.4)
    assert abs(score.value - exact) < 4.5 * score.standard_error
    assert 4.5 * score.standard_error < 0.28 / 10


def test_interval_coverage_by_hand():
    score = metrics.interval_coverage(jnp.zeros(5), jnp.ones(5), jnp.asarray([0.0, 1.0, 0.5, -0.1, 1.1]))
    np.testing.assert_allclose(score.value, 0.6, rtol=1e-12)
    np.testing.assert_allclose(score.standard_error, np.sqrt(0.6 * 0.4 / 5), rtol=1e-12)
    with pytest.raises(ValueError, match=r"lower must be not greater than upper, but got 1 of 2 greater\. Exchange"):
        metrics.interval_coverage(jnp.asarray([0.0, 2.0]), jnp.ones(2), jnp.ones(2))


def test_pit_values(rng):
    mean, scale, y = rng.normal(size=9), rng.uniform(0.3, 2.0, size=9), rng.normal(size=9)
    np.testing.assert_allclose(metrics.pit_gaussian(mean, scale, y), stats.norm(mean, scale).cdf(y), rtol=1e-10)
    samples = np.asarray([[1.0, 1.0], [2.0, 2.0], [3.0, 2.0]])
    np.testing.assert_allclose(metrics.pit_samples(samples, [2.5, 2.0]), [2.5 / 4, (1 + 1 + 0.5) / 4], rtol=1e-12)


def test_rank_values_of_a_right_prediction_are_uniform(rng):
    samples, y = rng.normal(size=(4, 20_000)), rng.normal(size=20_000)
    counts = np.unique(np.asarray(metrics.pit_samples(samples, y)), return_counts=True)[1]
    assert len(counts) == 5  # S + 1 ranks, none forgotten
    assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("rate", [0.1, 1.0, 30.0])
def test_randomised_values_of_counts_are_uniform(rng, rate):
    """Mid-ranks of a right prediction of counts gather in the middle: a distance of 0.45 at a rate of 0.1."""
    samples, y = rng.poisson(rate, size=(200, 4000)), rng.poisson(rate, size=4000)
    pit = metrics.pit_samples(samples, y, jax.random.key(0))
    assert stats.kstest(np.asarray(pit), "uniform").pvalue > 1e-3
    assert metrics.calibration_error(np.linspace(0.05, 0.95, 19), pit) < 0.02
    with pytest.raises(TypeError, match="key must be one JAX random key"):
        metrics.pit_samples(samples, y, 0)


def test_the_score_of_draws_keeps_its_digits_beside_an_offset(rng):
    """In float32 sums of weights of a thousand times 2e5 had lost one digit in a hundred."""
    samples = (2e5 + rng.normal(size=(1000, 20))).astype(np.float32)
    y = (2e5 + rng.normal(size=20)).astype(np.float32)
    wanted = metrics.crps_samples(samples.astype(float), y.astype(float)).value
    np.testing.assert_allclose(metrics.crps_samples(samples, y).value, wanted, rtol=1e-5)


@pytest.mark.parametrize("size", [10, 20, 500])
@pytest.mark.parametrize("power", [1.0, 1.1, 1.5])
def test_uniformity_equals_scipy(rng, size, power):
    values = rng.uniform(size=size) ** power
    expected = stats.kstest(values, "uniform")
    got = metrics.pit_uniformity(values)
    np.testing.assert_allclose(got.distance, expected.statistic, rtol=1e-12)
    # The plain limit, without the correction for N, is off by up to 0.08 at N = 10.
    np.testing.assert_allclose(got.p_value, expected.pvalue, rtol=0, atol=0.003)


def test_uniformity_of_an_even_grid_is_certain():
    assert metrics.pit_uniformity((jnp.arange(100.0) + 0.5) / 100).p_value == 1.0


def test_calibration_by_hand():
    pit = jnp.asarray([0.1, 0.2, 0.2, 0.9])
    levels = jnp.asarray([0.2, 0.5, 0.9])
    np.testing.assert_allclose(metrics.calibration_curve(levels, pit), [0.75, 0.75, 1.0])
    np.testing.assert_allclose(metrics.calibration_error(levels, pit), (0.55 + 0.25 + 0.1) / 3, rtol=1e-12)


def test_calibration_error_of_a_right_prediction_has_the_size_stated(rng):
    levels = np.linspace(0.005, 0.995, 100)
    errors = [float(metrics.calibration_error(levels, rng.uniform(size=400))) for _ in range(60)]
    # E|B(t)| averaged over the unit interval is sqrt(2 / pi) pi / 8 = 0.3133.
    assert abs(np.mean(errors) * 20 - 0.3133) < 4.5 * 20 * stats.sem(errors)


def test_binary_calibration_by_hand():
    p = jnp.asarray([0.1, 0.1, 0.7, 0.7, 0.7, 1.0, 0.0])
    labels = jnp.asarray([0, 1, 1, 1, 0, 1, 0])
    # Bins (0, .1]: 0.0, 0.1, 0.1 with one event; (.6, .7]: three with two; (.9, 1]: one with one.
    expected = (abs(1 - 0.2) + abs(2 - 2.1) + 0.0) / 7
    np.testing.assert_allclose(metrics.expected_calibration_error(p, labels), expected, rtol=1e-12)
    one_bin = abs(4 - 3.3) / 7
    np.testing.assert_allclose(metrics.expected_calibration_error(p, labels, bins=1), one_bin, rtol=1e-12)


def test_multiclass_calibration_by_hand():
    p = jnp.asarray([[0.8, 0.1, 0.1], [0.15, 0.75, 0.1], [0.2, 0.2, 0.6], [0.55, 0.25, 0.2]])
    labels = jnp.asarray([0, 2, 2, 1])
    # Top-label bins: (.7, .8] holds 0.8 (right) and 0.75 (wrong); (.5, .6] 0.6 (right) and 0.55 (wrong).
    expected = (abs(1 - 1.55) + abs(1 - 1.15)) / 4
    np.testing.assert_allclose(metrics.expected_calibration_error(p, labels), expected, rtol=1e-12)
    assert metrics.accuracy(p, labels).value == 0.5


def test_bin_edges_belong_to_the_bin_below():
    # 0.7 * 10 is 7.000000000000001: a bin found by that product would be the next one.
    for edge in np.arange(1, 11) / 10:
        p = jnp.asarray([edge, edge - 0.05])
        labels = jnp.asarray([1, 0])
        expected = abs(1 - (2 * edge - 0.05)) / 2  # one bin for both; two bins would add the gaps
        np.testing.assert_allclose(metrics.expected_calibration_error(p, labels), expected, rtol=1e-12, atol=1e-15)


def test_accuracy_by_hand():
    score = metrics.accuracy(jnp.asarray([0.9, 0.4, 0.6, 0.1]), jnp.asarray([1, 0, 0, 0]))
    np.testing.assert_allclose(score, [0.75, np.sqrt(0.75 * 0.25 / 4)], rtol=1e-12)


ONE, TWO = jnp.full(4, 0.5), jnp.full((4, 1), 0.5)
LABELS = jnp.zeros(4, int)
CALLS = {
    "rmse": (lambda a, b: metrics.rmse(a, b), "mean"),
    "mae": (lambda a, b: metrics.mae(a, b), "mean"),
    "crps_gaussian": (lambda a, b: metrics.crps_gaussian(a, 1.0, b), "mean"),
    "crps_scale": (lambda a, b: metrics.crps_gaussian(b, a, b), "scale"),
    "pit_gaussian": (lambda a, b: metrics.pit_gaussian(a, 1.0, b), "mean"),
    "coverage_lower": (lambda a, b: metrics.interval_coverage(a, b, b), "lower"),
    "coverage_upper": (lambda a, b: metrics.interval_coverage(b, a, b), "upper"),
}


@pytest.mark.parametrize(("score", "name"), CALLS.values(), ids=CALLS.keys())
def test_column_beside_vector_and_nan_are_refused(score, name):
    for run in (score, jax.jit(score)):
        with pytest.raises(ValueError, match=rf"{name} must be of the shape of y, \(4,\), but got shape \(4, 1\)"):
            run(TWO, ONE)
        with pytest.raises(ValueError, match=rf"{name} must be of the shape of y, \(4, 1\), but got shape \(4,\)"):
            run(ONE, TWO)
    with pytest.raises(ValueError, match=rf"{name} must be finite, but got 1 NaN .*index \(2,\)"):
        score(ONE.at[2].set(jnp.nan), ONE)
    with pytest.raises(ValueError, match="must be finite"):
        score(ONE, ONE.at[2].set(jnp.nan))
    with pytest.raises(ValueError, match=r"must be a non-empty array with one entry per datum, but got shape \(0,\)"):
        score(jnp.zeros(0), jnp.zeros(0)) if name != "scale" else metrics.crps_gaussian([], 1.0, jnp.zeros(0))


@pytest.mark.parametrize("score", [metrics.crps_samples, metrics.pit_samples])
def test_wrong_samples_are_named(score):
    with pytest.raises(ValueError, match=r"samples must be of shape \(S, 4,\), but got shape \(3, 4, 1\)"):
        score(jnp.ones((3, 4, 1)), ONE)
    with pytest.raises(ValueError, match="samples must be finite"):
        score(jnp.full((3, 4), jnp.nan), ONE)
    with pytest.raises(ValueError, match="samples must be at least 2 draws on the first axis"):
        metrics.crps_samples(jnp.ones((1, 4)), ONE)


@pytest.mark.parametrize("score", [metrics.accuracy, metrics.expected_calibration_error])
def test_wrong_classes_are_named(score):
    with pytest.raises(ValueError, match=r"labels must be of shape \(4,\), but got shape \(4, 1\)"):
        score(ONE, LABELS[:, None])
    with pytest.raises(TypeError, match="labels must be whole numbers, but got dtype float64"):
        score(ONE, ONE)
    with pytest.raises(ValueError, match="labels must be between 0 and 1, but got labels from 0 to 2"):
        score(ONE, LABELS.at[1].set(2))
    with pytest.raises(ValueError, match=r"probabilities must be between 0 and 1, but got values from -1 to 0\.5"):
        score(ONE.at[0].set(-1.0), LABELS)
    with pytest.raises(ValueError, match=r"probabilities must be rows that sum to 1, but got a row that sums to 0\.9"):
        score(jnp.full((4, 3), 0.3), LABELS)
    with pytest.raises(ValueError, match=r"probabilities must be of shape \(N,\) or \(N, C\) with C > 1"):
        score(TWO, LABELS)
    with pytest.raises(ValueError, match="probabilities must be finite"):
        score(ONE.at[0].set(jnp.nan), LABELS)


@pytest.mark.parametrize("wrong", [["cat", "dog"], None])
def test_what_is_no_array_of_numbers_is_named(wrong):
    with pytest.raises(TypeError, match=r"labels must be an array of real numbers, but got (a list|None)"):
        metrics.accuracy(ONE, wrong)
    with pytest.raises(TypeError, match=r"log_density must be an array of real numbers, but got (a list|None)"):
        metrics.mean_log_density(wrong)


def test_wrong_probabilities_and_scales_are_named():
    with pytest.raises(ValueError, match="pit must be between 0 and 1"):
        metrics.pit_uniformity(2.0 * ONE + 0.5)
    with pytest.raises(ValueError, match=r"levels must be of shape \(L,\), but got shape \(4, 1\)"):
        metrics.calibration_error(TWO, ONE)
    with pytest.raises(ValueError, match=r"scale must be positive \(a standard deviation\), but got 0"):
        metrics.crps_gaussian(ONE, 0.0, ONE)
    with pytest.raises(ValueError, match="bins must be at least 1"):
        metrics.expected_calibration_error(ONE, LABELS, bins=0)


def test_counts_are_data():
    np.testing.assert_allclose(metrics.mae(jnp.asarray([0.5, 3.0]), np.asarray([1, 2])).value, 0.75)


@pytest.mark.long
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_jit_equals_eager_and_the_type_follows_the_inputs(rng, dtype):
    mean, y = (jnp.asarray(rng.uniform(size=8), dtype) for _ in range(2))
    samples, labels = jnp.asarray(rng.uniform(size=(5, 8)), dtype), jnp.asarray(rng.integers(0, 2, size=8))
    calls = {
        "mean_log_density": (y,),
        "rmse": (mean, y),
        "mae": (mean, y),
        "crps_gaussian": (mean, jnp.asarray(0.4, dtype), y),
        "crps_samples": (samples, y),
        "interval_coverage": (y - 0.1, y, mean),
        "pit_gaussian": (mean, jnp.asarray(0.4, dtype), y),
        "pit_samples": (samples, y),
        "pit_uniformity": (y,),
        "calibration_curve": (mean, y),
        "calibration_error": (mean, y),
        "accuracy": (y, labels),
        "expected_calibration_error": (y, labels),
        "concordance": (mean, y, labels == 1),
        "survival_calibration": (y, labels == 1),
    }
    assert set(calls) == {name for name in metrics.__all__ if name.islower()}
    for name, inputs in calls.items():
        score = getattr(metrics, name)
        eager = score(*inputs)
        compiled = jax.jit(score)(*inputs) if dtype == jnp.float32 else eager
        for a, b in zip(jax.tree.leaves(eager), jax.tree.leaves(compiled), strict=True):
            assert a.dtype == b.dtype == dtype, name
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
