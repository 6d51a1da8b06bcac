"""What no likelihood is made of, and no data are: parameters by the registry of the contracts, all else by a table."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from numpyro_gp import likelihoods as L
from numpyro_gp.likelihoods.quadrature import gauss_hermite
from numpyro_gp.likelihoods.tails import log_tails, moments_of
from tests.contracts.test_likelihoods import MEAN, REGISTRY, VARIANCE

GAUSSIAN, TWO, ENDS = L.Gaussian(1.0), (np.zeros(2), np.ones(2)), ([-1.0, -np.inf, 0.4], [-0.5, 2.0, 0.4])
TRUE, Y = np.array([True, False, False]), np.array([-0.8, 2.0, 0.4])


class Bare(dist.Distribution):
    support, arg_constraints = dist.constraints.real, {}


TABLE = [
    (lambda: L.as_likelihood(L.Poisson(), 2), "one of 2 latent functions, but got Poisson with 1"),
    (lambda: L.as_likelihood(lambda f, g: f, 3), "a callable of 3 latent functions, but got one with 2 arg"),
    (
        lambda: L.as_likelihood(lambda f: f).expected_log_prob(0.0, 0.0, 1.0),
        "returns a NumPyro distribution.*Return for",
    ),
    (
        lambda: L.as_likelihood(lambda f: dist.Normal(f, 1.0).to_event(1)).conditional(jnp.zeros(3)),
        r"a callable that returns a distribution of scalars, but got one of event shape \(3,\)",
    ),
    (lambda: GAUSSIAN.expected_log_prob(Y, *TWO), r"functions' batch shape \(2,\), but got shape \(3,\)"),
    (
        lambda: GAUSSIAN.predictive_mean(*TWO, covariance=np.eye(2)),
        "covariance must be None for Gaussian, which has one",
    ),
    (lambda: L.HeteroscedasticGaussian().expected_log_prob(0.0, 0.0, 1.0), r"mean must be of shape \(..., 2\): Hetero"),
    (lambda: L.HeteroscedasticGaussian().check_targets([np.inf]), "obs must be finite"),
    (
        lambda: L.Softmax(3).expected_log_prob(0, *TWO),
        r"mean must be of shape \(..., 3\): Softmax has 3 .*Make the proc",
    ),
    (
        lambda: L.Softmax(2).expected_log_prob(0, *TWO, covariance=np.eye(3)),
        r"covariance must be of shape \(..., 2, 2\)",
    ),
    (lambda: L.RobustMax(2).expected_log_prob(0, *TWO, covariance=np.eye(2)), "None for RobustMax, which needs indep"),
    (lambda: L.RobustMax(3, 0.0), "epsilon must be between 0 and 1, but got 0. Pass epsilon=1e-3"),
    (lambda: L.Softmax(2.5), r"classes must be a whole number, but got 2.5 \(float\)"),
    (lambda: L.RobustMax(3).check_targets(np.array([0, 3])), "obs must be labels 0 to 2, but got 3. Number"),
    (lambda: L.Beta(1.0, "log"), "link must be one of 'logit', 'probit', but got 'log'"),
    (lambda: L.Binomial(2.5), "trials must be whole numbers from 1 on, but got 2.5"),
    (lambda: L.Binomial(np.array([3, 0])), "trials must be whole numbers from 1 on, but got 0"),
    (lambda: L.Binomial(3).check_targets([4.0]), "obs must be whole numbers from 0 to the trials, 3, but got 4"),
    (lambda: L.Binomial(np.array([3, 9])).check_targets([4.0, 4.0]), "numbers from 0 to the trials, but got 4"),
    (lambda: L.Binomial(3).check_targets([0.5]), "obs must be whole .* got 0.5. y counts successes: multiply shares"),
    (lambda: L.Censored(GAUSSIAN, TRUE, TRUE), "left and right must be true for different data"),
    (lambda: L.Censored(GAUSSIAN, right=[0, 1, 0]), "right must be boolean"),
    (lambda: L.Censored(GAUSSIAN, left=[np.nan, 1.0]), "left must be boolean"),
    (
        lambda: L.Censored(GAUSSIAN, right=np.zeros(4, bool)).log_prob(Y, MEAN),
        r"right must be of the shape of the data, \(3,\), but got shape \(4,\). .*right\[idx\]",
    ),
    (lambda: L.Interval(GAUSSIAN, 0.5, -1.0), "lower must be at most upper, but got"),
    (lambda: L.Interval(GAUSSIAN, [np.nan], [1.0]), "lower must be free of NaN"),
    (lambda: L.Interval(GAUSSIAN, lower=Y), "upper must be given with the other end"),
    (
        lambda: L.Interval(GAUSSIAN, *ENDS).check_targets(Y + 9),
        "obs must be between lower and upper, but got 8.2 outside",
    ),
    (lambda: L.Truncated(GAUSSIAN, low=3.0).check_targets(Y), "obs must be between low and high"),
    (
        lambda: L.Censored(L.Bernoulli(), right=TRUE).log_prob(0 * Y, MEAN),
        "a distribution function, but got a Bernoulli",
    ),
    (lambda: moments_of(Bare()), r"likelihood must be one whose moments can be found, but got a Bare\. Give"),
    (lambda: log_tails(Bare(), jnp.zeros(())), "one with a distribution function, but got a Bare"),
    (lambda: gauss_hermite(0), "num must be at least 1, but got 0"),
]


@pytest.mark.parametrize(("call", "message"), TABLE, ids=[message[:40] for _, message in TABLE])
def test_refusals(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


# The likelihood, what is not among its data, and what it says of that.
TARGETS = [
    ("gamma", 0.0, "positive, but got 0. Use another likelihood"),
    ("exponential", -2.0, "positive, but got -2"),
    ("beta_logit", 1.0, "strictly between 0 and 1, but got 1. Move exact zeros"),
    ("poisson", -1.0, "non-negative whole numbers, but got -1. Counts are 0"),
    ("poisson", 0.5, "non-negative whole numbers, but got 0.5. Counts are 0"),
    ("negative_binomial", -3, "non-negative whole numbers, but got -3. Counts are 0"),
    ("bernoulli_logit", -1, r"labels 0 or 1, but got -1. Recode labels a and b as \(y == b\)"),
    ("bernoulli_probit", 0.5, "labels 0 or 1, but got 0.5"),
    ("ordinal", 4, "labels 0 to 3, but got 4. Number the classes from 0"),
]


@pytest.mark.parametrize(("name", "wrong", "message"), TARGETS)
def test_targets_outside_of_the_data_of_a_likelihood(name, wrong, message):
    own, targets, *_ = REGISTRY[name]
    with pytest.raises(ValueError, match="obs must be " + message):
        own.check_targets(np.array([*targets, wrong]))


@pytest.mark.parametrize("name", [name for name in REGISTRY if name != "own"])
def test_parameters_are_positive_and_of_the_shape_of_the_data(name):
    own, y, *_ = REGISTRY[name]
    for field in (field.name for field in dataclasses.fields(own) if isinstance(getattr(own, field.name), jax.Array)):
        value = np.asarray(getattr(own, field))
        for bad, required in ((np.nan * value, "finite|whole"), (-value, "positive|in increasing order|whole numbers")):
            with pytest.raises(ValueError, match=f"{field} must be ({required})"):
                dataclasses.replace(own, **{field: bad})
        if value.ndim == 0:
            with pytest.raises(ValueError, match=rf"{field} must be a scalar or broadcastable.*\(3,\), but got shape"):
                dataclasses.replace(own, **{field: np.full(4, value)}).expected_log_prob(np.array(y), MEAN, VARIANCE)
