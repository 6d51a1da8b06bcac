"""Default priors: medians typed out in NumPy, units, traced inputs, and a deep kernel that is not the identity."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import numpyro_gp as ngp
from numpyro_gp.starting import lengthscale_prior, noise_prior, variance_prior


def median(prior):
    return np.exp(np.asarray(getattr(prior, "base_dist", prior).loc))


@pytest.mark.parametrize("columns", [1, 13])
def test_median_lengthscale_is_root_d_times_the_scale_of_its_column(columns, rng):
    """Without the root it would be a factor of ``sqrt(D)`` less; with the variance, of ``s_d``."""
    units = np.linspace(0.1, 20.0, columns)
    X = 5.0 + units * rng.normal(size=(40, columns))
    prior = lengthscale_prior(X)
    assert prior.event_shape == (columns,)
    assert prior.batch_shape == ()
    np.testing.assert_allclose(median(prior), np.sqrt(columns) * X.std(0), rtol=1e-12)
    expected = scipy.stats.lognorm(1.0, scale=np.sqrt(columns) * X.std(0)).logpdf(2.0).sum()
    np.testing.assert_allclose(prior.log_prob(jnp.full(columns, 2.0)), expected, rtol=1e-12)
    shared = lengthscale_prior(X, ard=False)
    assert shared.event_shape == ()
    np.testing.assert_allclose(median(shared), np.sqrt((X.std(0) ** 2).sum()), rtol=1e-12)


def test_priors_of_targets_are_in_their_units(rng):
    y = 100.0 + 7.0 * rng.normal(size=300)
    np.testing.assert_allclose(median(variance_prior(y)), y.var(), rtol=1e-12)
    np.testing.assert_allclose(median(noise_prior(y)), y.std() * np.exp(-1.0), rtol=1e-12)
    assert median(variance_prior()) == 1.0
    assert median(noise_prior()) == pytest.approx(np.exp(-1.0), rel=1e-12)
    replicates = y.reshape(3, 100)
    np.testing.assert_allclose(median(variance_prior(replicates)), y.var(), rtol=1e-12)


def test_traced_and_numpy_inputs_give_the_same_prior_in_their_precision(rng):
    X = rng.normal(size=(9, 3)).astype(np.float32)
    eager = lengthscale_prior(X).base_dist.loc
    traced = jax.jit(lambda A: lengthscale_prior(A).base_dist.loc)(X)
    assert eager.dtype == traced.dtype == jnp.float32
    np.testing.assert_allclose(traced, eager, rtol=0, atol=1e-6)
    mapped = jax.vmap(lambda y: noise_prior(y).loc)(jnp.asarray(X.T))
    np.testing.assert_allclose(np.exp(mapped), X.std(0) * np.exp(-1.0), rtol=1e-5)
    # A column that is constant is seen only where it is known.
    assert not np.all(np.isfinite(jax.jit(lambda A: lengthscale_prior(A).base_dist.loc)(np.ones((3, 2)))))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: lengthscale_prior(np.array([[1.0, 0.1, 2.0], [2.0, 0.1, 2.0]])),
            r"X must be of values that differ, in every column, but got equal values in columns \[1, 2\]. Drop these",
        ),
        (lambda: lengthscale_prior(np.ones((1, 1))), "equal values in columns .0.. .*pass the training inputs"),
        (lambda: lengthscale_prior(np.ones(3)), r"X must be an array of shape \(N, D\)"),
        (lambda: noise_prior(np.full(4, 0.1)), "y must be of values that differ.*Leave y out for standardised"),
        (
            lambda: noise_prior(np.zeros((0, 1))),
            r"y must be a non-empty array of targets, but got shape \(0, 1\). Leave y",
        ),
        (lambda: variance_prior(np.arange(3)), "y must be floating point"),
    ],
)
def test_bad_arguments(build, message):
    with pytest.raises((ValueError, TypeError), match=message):
        build()


@pytest.mark.parametrize("columns", [1, 8, 13, 30])
def test_correlation_of_two_rows_does_not_fall_with_their_number_of_columns(columns, rng):
    """At the median two rows have correlation ``exp(-1)``, however many columns; at lengthscale 1, ``exp(-D)``.

    In the logarithm of the lengthscales the evidence has a slope, with noise 0.1; at one, and many columns, none.
    """
    X = rng.normal(size=(200, columns))
    gram = np.asarray(ngp.kernels.RBF(1.0, median(lengthscale_prior(X))).matrix(X))
    assert np.exp(-1.3) < np.median(gram[np.triu_indices(200, 1)]) < np.exp(-0.4)
    X = X[:40]
    y = np.sin(2 * X[:, 0])

    def slope(lengthscale):
        change = 1e-4
        high, low = (
            scipy.stats.multivariate_normal(cov=np.asarray(gram) + 0.01 * np.eye(40)).logpdf(y)
            for gram in (ngp.kernels.RBF(1.0, lengthscale * np.exp(sign * change)).matrix(X) for sign in (1, -1))
        )
        return abs(high - low) / (2 * change)

    assert slope(median(lengthscale_prior(X))) > 0.1
    if columns == 30:
        assert slope(np.ones(30)) < 1e-3
