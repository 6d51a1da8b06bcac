"""Coupled and mean-field beliefs against the dense oracle."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.beliefs import Coupled, MeanField
from tests.oracles.build import basis_of
from tests.oracles.vectors import cases

TOLERANCE = 1e-9  # a missing 1/2 in the KL, or C C^T for C^T C, is off by more than 1e-2


def belief_of(case):
    return Coupled(jnp.asarray(case["m"]), jnp.asarray(case["S_chol"]))


@pytest.mark.parametrize("case", cases("svgp"))
def test_marginals_joint_and_kl(case):
    basis, belief, X = basis_of(case), belief_of(case), jnp.asarray(case["Xs"])
    mean, variance = belief.marginals(basis, X)
    np.testing.assert_allclose(mean, case["mean"], atol=TOLERANCE)
    np.testing.assert_allclose(variance, case["var"], atol=TOLERANCE)
    joint = belief.joint(basis, X)
    np.testing.assert_allclose(joint.mean, case["mean"], atol=TOLERANCE)
    np.testing.assert_allclose(joint.covariance, case["cov"], atol=TOLERANCE)
    np.testing.assert_allclose(belief.kl(basis), case["kl"], atol=TOLERANCE)
    assert abs(float(belief.kl(basis)) - 0.5 * case["kl"]) > 100 * TOLERANCE


@pytest.mark.long
@pytest.mark.parametrize("case", cases("svgp"))
def test_float32_stays_close(case):
    basis = basis_of(case, jitter=1e-5, dtype=jnp.float32)
    belief = Coupled(jnp.asarray(case["m"], jnp.float32), jnp.asarray(case["S_chol"], jnp.float32))
    mean, variance = belief.marginals(basis, jnp.asarray(case["Xs"], jnp.float32))
    assert mean.dtype == variance.dtype == belief.kl(basis).dtype == jnp.float32
    np.testing.assert_allclose(mean, case["mean"], atol=5e-3)
    np.testing.assert_allclose(variance, case["var"], atol=5e-3)


@pytest.mark.parametrize("case", cases("svgp"))
def test_jitter_moves_the_result_by_at_most_ten_thousand_times_itself(case):
    basis = basis_of(case, jitter=1e-8)
    np.testing.assert_allclose(belief_of(case).marginals(basis, jnp.asarray(case["Xs"])).mean, case["mean"], atol=1e-4)


def test_outputs_are_stacked(rng):
    case = cases("svgp")[0]
    basis, X = basis_of(case), jnp.asarray(case["Xs"])
    means = jnp.asarray(rng.normal(size=(2, 5)))
    factors = jnp.stack([jnp.asarray(case["S_chol"]), 0.3 * jnp.eye(5)])
    both = Coupled(means, factors)
    singles = [Coupled(means[p], factors[p]) for p in range(2)]
    np.testing.assert_allclose(both.kl(basis), sum(one.kl(basis) for one in singles), rtol=1e-13)
    for p, one in enumerate(singles):
        for got, wanted in zip(both.marginals(basis, X), one.marginals(basis, X), strict=True):
            np.testing.assert_allclose(got[p], wanted, rtol=1e-12)
        for got, wanted in zip(both.joint(basis, X), one.joint(basis, X), strict=True):
            np.testing.assert_allclose(got[p], wanted, rtol=1e-12)


def test_mean_field_is_coupled_with_a_diagonal_factor(rng):
    case = cases("svgp")[1]
    basis, X = basis_of(case), jnp.asarray(case["Xs"])
    for shape in ((5,), (2, 5)):
        mean, scale = jnp.asarray(rng.normal(size=shape)), jnp.asarray(rng.uniform(0.2, 1.5, shape))
        diagonal = MeanField(mean, scale)
        full = Coupled(mean, jnp.zeros((*shape, 5)) + scale[..., None] * jnp.eye(5)[(None,) * (len(shape) - 1)])
        np.testing.assert_allclose(diagonal.kl(basis), full.kl(basis), rtol=1e-12)
        for got, wanted in zip(diagonal.marginals(basis, X), full.marginals(basis, X), strict=True):
            np.testing.assert_allclose(got, wanted, atol=1e-12)
        for got, wanted in zip(diagonal.joint(basis, X), full.joint(basis, X), strict=True):
            np.testing.assert_allclose(got, wanted, atol=1e-12)


def test_prior_belief_has_no_kl_and_prior_variance():
    case = cases("svgp")[0]
    basis, X = basis_of(case), jnp.asarray(case["Xs"])
    prior = Coupled(jnp.zeros(5), jnp.eye(5))
    np.testing.assert_allclose(prior.kl(basis), 0.0, atol=1e-14)
    np.testing.assert_allclose(prior.marginals(basis, X).variance, case["variance"], rtol=1e-12)


def test_draws_of_whitened_values_have_the_moments_of_the_belief():
    """20000 draws: standard error of a covariance entry is below 0.01; independent draws (no factor) are off by 0.1."""
    case = cases("svgp")[0]
    belief = belief_of(case)
    draws = belief.draw_whitened(jax.random.key(0), (20000,))
    assert draws.shape == (20000, 5)
    factor = case["S_chol"]
    np.testing.assert_allclose(draws.mean(0), case["m"], atol=0.04)
    np.testing.assert_allclose(np.cov(draws.T), factor @ factor.T, atol=0.05)
    np.testing.assert_allclose(belief.whitened_scale, np.sqrt(np.diag(factor @ factor.T)), rtol=1e-12)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Coupled(jnp.zeros(3), jnp.eye(2)), r"scale_tril must be of shape \(3, 3\)"),
        (lambda: Coupled(jnp.zeros(2), jnp.ones((2, 2))), "lower triangular"),
        (lambda: Coupled(jnp.zeros(2), -jnp.eye(2)), "positive diagonal"),
        (lambda: Coupled(jnp.zeros(()), jnp.eye(1)), r"mean must be of shape \(M,\), or \(P, M\)"),
        (lambda: Coupled(jnp.array([0.0, jnp.nan]), jnp.eye(2)), "mean must be finite"),
        (lambda: MeanField(jnp.zeros(2), jnp.array([1.0, 0.0])), "scale must be positive"),
        (lambda: MeanField(jnp.zeros(2), jnp.ones(3)), r"scale must be of shape \(2,\)"),
    ],
)
def test_bad_beliefs(build, message):
    with pytest.raises(ValueError, match=message):
        build()
