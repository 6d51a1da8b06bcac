"""Several classes against sums over grids; tolerances reject Gauss-Hermite for RobustMax (1e-3 to 4e-2)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from numpyro_gp.likelihoods import Bernoulli, RobustMax, Softmax
from tests.likelihoods.grids import expected

QUANTITIES = ("probability_largest", "expected_log_prob", "predictive_log_prob")


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_robust_max_is_a_sum_over_the_function_of_its_class(scale):
    """``P(f_c is the largest) = E prod_j Phi((f_c - m_j) / s_j)``; of very different variances too."""
    mean, variance = np.array([[0.3, 0.1, -0.4, 0.9], [0.0, 2.0, 0.5, -1.0]]), np.array([2.0, 0.3, 1.0 * scale, 0.6])
    robust = RobustMax(4, 1e-3)
    answers = jax.jit(lambda y: [getattr(robust, name)(y, mean, np.stack([variance] * 2)) for name in QUANTITIES])
    for c in range(4):
        others = [j for j in range(4) if j != c]
        below = lambda f, c=c, others=others: stats.norm.cdf(f[..., None], mean[:, others], np.sqrt(variance[others]))  # noqa: E731
        largest = expected(lambda f: below(f).prod(-1), mean[:, c], variance[c])  # noqa: B023
        found = answers(np.full(2, c))
        assert_allclose(found[0], largest, atol=1e-8)
        assert_allclose(found[1], largest * np.log(1 - 1e-3) + (1 - largest) * np.log(1e-3 / 3), atol=1e-6)
        # The log of a probability of order epsilon magnifies the error of P a thousand times.
        assert_allclose(found[2], np.log(largest * (1 - 1e-3) + (1 - largest) * 1e-3 / 3), atol=1e-6)


@jax.jit
def slopes_of_largest(mean, variance):
    """Of the probability that the second of four is the largest; and its curvature in the means."""
    slopes = jax.grad(lambda m, v: RobustMax(4).probability_largest(1, m, v), argnums=(0, 1))
    return slopes(mean, variance), jax.jacfwd(lambda m: slopes(m, variance)[0])(mean)


@pytest.mark.parametrize("variances", [(1e-10, 1.0), (1.0, 1e-4)])
def test_robust_max_derivatives_obey_the_heat_equation(variances):
    """Every Gaussian probability has ``dP/ds_j = (d2P/dmu_j^2) / 2``, and moving all means changes nothing."""
    own, others = variances
    variance = jnp.array([others, own, others, others])
    mean = jnp.array([0.13, 0.31, -0.2, 0.05]) * np.sqrt(max(variances))
    (d_mean, d_variance), curvature = slopes_of_largest(mean, variance)
    tolerance = 1e-6 * np.abs(d_variance).max()
    assert_allclose(d_variance, 0.5 * np.diag(curvature), atol=tolerance)
    assert_allclose(jnp.sum(d_mean), 0.0, atol=1e-9 * np.abs(d_mean).max())


@pytest.mark.long
def test_robust_max_of_two_classes_is_closed_and_agrees_with_three():
    mean, variance = np.array([0.3, -0.4]), np.array([0.5, 1.2])
    exact = stats.norm.cdf(0.7 / np.sqrt(1.7))
    assert_allclose(RobustMax(2).probability_largest(0, mean, variance), exact, rtol=1e-12)
    far = RobustMax(3).probability_largest(0, np.append(mean, -50.0), np.append(variance, 1.0))
    assert_allclose(far, exact, atol=1e-9)
    assert np.isfinite(jax.grad(RobustMax(2).expected_log_prob, argnums=2)(0, mean, np.zeros(2))).all()


@pytest.mark.long
def test_robust_max_of_many_classes_cuts_only_at_its_rivals():
    """Twelve equal classes: ``P = 1/12`` each; with distinct narrow ones, their sum is one."""
    equal = jax.jit(RobustMax(12).probability_largest)(3, np.zeros(12), np.full(12, 0.7))
    assert_allclose(equal, 1 / 12, atol=1e-9)
    means = jax.jit(RobustMax(12, 1e-12).predictive_mean)(np.linspace(-1, 1, 12), np.geomspace(1e-4, 1.0, 12))
    assert_allclose(jnp.sum(means), 1.0, atol=1e-6)


def test_robust_max_conditional_and_moments():
    robust, moments = RobustMax(3, 0.1), (np.array([0.1, 0.5, -0.3]), np.array([0.2, 1.0, 0.4]))
    assert_allclose(robust.conditional(jnp.array([0.0, 2.0, 1.0])).probs, [0.05, 0.9, 0.05], rtol=1e-12)
    p = robust.predictive_mean(*moments)
    assert_allclose(p, np.exp([robust.predictive_log_prob(c, *moments) for c in range(3)]), atol=1e-8)
    assert_allclose(robust.predictive_variance(*moments), p * (1 - p), rtol=1e-12)
    each = RobustMax(3, np.array([0.1, 0.2])).conditional(jnp.array([[0.0, 2.0, 1.0]] * 2)).probs
    assert_allclose(each, [[0.05, 0.9, 0.05], [0.1, 0.8, 0.1]], rtol=1e-12)


def reference_softmax(y, mean, covariance, nodes=60):
    """Tensor rule over the three functions themselves, through NumPy's Cholesky factor."""
    t, w = np.polynomial.hermite_e.hermegauss(nodes)
    grid = np.stack(np.meshgrid(t, t, t, indexing="ij"), -1).reshape(-1, 3)
    weights = (w[:, None, None] * w[:, None] * w).ravel() / w.sum() ** 3
    f = mean + grid @ np.linalg.cholesky(covariance).T
    log_mass = f[:, y] - np.log(np.exp(f).sum(-1))
    return weights @ log_mass, np.log(weights @ np.exp(log_mass))


@pytest.mark.long
def test_softmax_of_correlated_latent_functions():
    mean = np.array([0.3, -0.2, 0.5])
    factor = np.array([[0.9, 0, 0], [0.6, 0.5, 0], [-0.4, 0.2, 0.8]])
    covariance = factor @ factor.T
    variance, softmax = np.diag(covariance), Softmax(3)
    for y in range(3):
        log, predictive = reference_softmax(y, mean, covariance)
        assert_allclose(softmax.expected_log_prob(y, mean, variance, covariance=covariance), log, atol=1e-8)
        assert_allclose(softmax.predictive_log_prob(y, mean, variance, covariance=covariance), predictive, atol=1e-8)
    alone = reference_softmax(2, mean, np.diag(variance))  # without covariances another by 1e-2
    assert_allclose(softmax.expected_log_prob(2, mean, variance), alone[0], atol=1e-7)
    assert_allclose(softmax.predictive_log_prob(2, mean, variance), alone[1], atol=1e-7)


@pytest.mark.long
def test_softmax_of_two_classes_is_bernoulli_of_the_difference_and_has_its_tail():
    mean, variance = np.array([0.3, -0.4]), np.array([0.5, 1.2])
    for quantity in ("expected_log_prob", "predictive_log_prob"):
        found = getattr(Softmax(2), quantity)(0, mean, variance)
        assert_allclose(found, getattr(Bernoulli(), quantity)(1, 0.7, 1.7), atol=1e-7)
    found = Softmax(3).expected_log_prob(0, np.array([-900.0, 0.0, 0.0]), np.full(3, 1e-8))
    assert_allclose(found, -900.0 - np.log(2.0), rtol=1e-10)


def test_softmax_of_five_classes_gives_a_lower_bound_and_a_close_predictive():
    rng = np.random.default_rng(5)
    mean, variance, softmax = rng.normal(size=5), rng.uniform(0.2, 1.0, 5), Softmax(5)
    draws = mean + np.sqrt(variance) * rng.normal(size=(400_000, 5))
    log_mass = draws - np.log(np.exp(draws).sum(-1, keepdims=True))
    exact, error = log_mass.mean(0), log_mass.std(0) / np.sqrt(len(draws))
    bound = np.array([float(softmax.expected_log_prob(c, mean, variance)) for c in range(5)])
    assert_allclose(bound, mean - np.log(np.exp(mean + variance / 2).sum()), rtol=1e-12)
    assert (bound < exact + 5 * error).all()
    masses = np.exp(log_mass)
    found = softmax.predictive_mean(mean, variance)
    assert_allclose(found, masses.mean(0), atol=2e-3)
    assert_allclose(jnp.sum(found), 1.0, rtol=1e-12)
    assert_allclose(softmax.predictive_log_prob(2, mean, variance), np.log(masses[:, 2].mean()), atol=1e-2)


@pytest.mark.parametrize("likelihood", [RobustMax(3), Softmax(3), Softmax(4)], ids=repr)
@pytest.mark.parametrize("quantity", ["expected_log_prob", "predictive_log_prob"])
def test_derivatives_match_finite_differences_and_are_finite_at_zero_variance(likelihood, quantity):
    classes = likelihood.num_latent
    mean, variance = jnp.linspace(-0.5, 0.7, classes), jnp.linspace(0.3, 0.9, classes)
    both = jax.jit(jax.value_and_grad(lambda m, v: getattr(likelihood, quantity)(1, m, v), argnums=(0, 1)))
    value, gradient, step = (lambda *at: both(*at)[0]), (lambda *at: both(*at)[1]), 1e-5
    found = gradient(mean, variance)
    for j in range(classes):
        move = step * np.eye(classes)[j]
        in_mean = (value(mean + move, variance) - value(mean - move, variance)) / (2 * step)
        in_variance = (value(mean, variance + move) - value(mean, variance - move)) / (2 * step)
        assert_allclose([found[0][j], found[1][j]], [in_mean, in_variance], atol=1e-7)
    for tiny in (0.0, 1e-12):
        assert np.isfinite(np.array(gradient(mean, jnp.full(classes, tiny)))).all()
        assert np.isfinite(np.array(gradient(jnp.zeros(classes), jnp.full(classes, tiny)))).all()


def test_the_mean_of_rows_is_the_probability_of_each_class(rng):
    mean, variance = rng.normal(size=(4, 3)), rng.uniform(0.1, 2.0, (4, 3))
    for likelihood in (RobustMax(3, 0.01), Softmax(3)):
        found = likelihood.predictive_mean(mean, variance)
        wanted = [np.exp(likelihood.predictive_log_prob(np.full(4, c), mean, variance)) for c in range(3)]
        assert_allclose(found, np.stack(wanted, axis=-1), rtol=1e-6)
        assert_allclose(found.sum(axis=-1), 1.0, rtol=1e-6)
