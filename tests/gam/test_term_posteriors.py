"""Each distribution of the whitened values against its mean and covariance written out."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from numpyro_gp.beliefs.members import Stacks
from numpyro_gp.gam.answers.draws import BlocksAndLowRank, Dense, OfPseudoData

SIZES = [2, 3, 2, 1]
RNG = np.random.default_rng(0)
M = sum(SIZES)
A, MEAN = RNG.normal(size=(M, 5)), RNG.normal(size=M)
BLOCKS = Stacks.of_sizes(SIZES)
OF = np.repeat(np.arange(4), SIZES)


def dense():
    half = RNG.normal(size=(M, M)) + 2 * np.eye(M)
    return Dense(MEAN, half), half.T @ half


def low_rank():
    factors = [np.tril(RNG.uniform(size=own.shape + own.shape[1:])) + 2 * np.eye(own.shape[1]) for own in BLOCKS.places]
    W, precision = RNG.normal(size=(M, 2)), np.zeros((M, M))
    for own, stack in zip(BLOCKS.places, factors, strict=True):
        for at, P in zip(own, stack, strict=True):
            precision[np.ix_(at, at)] = P @ P.T
    return BlocksAndLowRank(MEAN, factors, W, BLOCKS), np.linalg.inv(precision + W @ W.T)


@pytest.mark.parametrize("make", [dense, low_rank, lambda: (Dense.point(MEAN), np.zeros((M, M)))])
def test_moments_are_those_of_the_covariance(make):
    normal, S = make()
    np.testing.assert_allclose(normal.row_variances(A), np.einsum("in,ij,jn->n", A, S, A), atol=1e-12)
    blocks = BLOCKS.in_order([np.trace(one, axis1=1, axis2=2) for one in normal.block_covariances(BLOCKS)])
    np.testing.assert_allclose(blocks, [np.trace(S[np.ix_(c == OF, c == OF)]) for c in range(4)], atol=1e-12)
    own = [
        [np.einsum("in,ij,jn->n", A[c == OF], S[np.ix_(c == OF, e == OF)], A[e == OF]) for e in range(4)]
        for c in range(4)
    ]
    np.testing.assert_allclose(normal.component_covariances(A, BLOCKS), np.mean(own, axis=-1), atol=1e-12)
    drawn = normal.sample(np.random.default_rng(1), 40_000)
    np.testing.assert_allclose(drawn.mean(axis=1), MEAN, atol=5 * np.sqrt(S.max() / 40_000) + 1e-12)
    np.testing.assert_allclose(np.cov(drawn), S, atol=0.05 * S.max() + 1e-12)


@pytest.mark.parametrize("make", [dense, low_rank])
def test_densities_are_those_of_scipy(make):
    normal, S = make()
    values = RNG.normal(size=(M, 3))
    wanted = stats.multivariate_normal(MEAN, S).logpdf(values.T)
    np.testing.assert_allclose(normal.log_density(values), wanted, rtol=1e-9)


def test_pseudo_data_give_the_posterior_of_regression():
    """Rows ``u_i + e`` with noise 0.5 of values ``u = L v``, by the formulas of linear regression."""
    L, y = np.tril(RNG.normal(size=(M, M))) + 2 * np.eye(M), RNG.normal(size=M)
    hyper = SimpleNamespace(scales=[1.0], lengths=[1.0])
    found = OfPseudoData(None, hyper, y / 0.25, np.eye(M) / 0.25).at(0, L)
    S = np.linalg.inv(np.eye(M) + L.T @ L / 0.25)
    np.testing.assert_allclose(found.half.T @ found.half, S, atol=1e-12)
    np.testing.assert_allclose(found.mean, S @ L.T @ y / 0.25, atol=1e-12)
