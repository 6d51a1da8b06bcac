"""Columns that a belief of low rank can do without, against dense divergences and the dense optimum."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import block_diag

from numpyro_gp.beliefs import BlockLowRank, Structured, truncate
from numpyro_gp.likelihoods import Gaussian
from tests.oracles.additive import additive_basis_of
from tests.oracles.vectors import cases


def precision_of(belief):
    factors = getattr(belief, "precision_trils", None)
    own = np.eye(belief.size) if factors is None else block_diag(*[np.asarray(P) @ np.asarray(P).T for P in factors])
    return own + np.asarray(belief.W) @ np.asarray(belief.W).T


def lost(belief, kept):
    """KL between Gaussians of one mean, by determinants and a trace."""
    ratio = precision_of(belief) @ np.linalg.inv(precision_of(kept))
    return 0.5 * (np.trace(ratio) - len(ratio) - np.linalg.slogdet(ratio)[1])


@pytest.mark.parametrize("blocks", [False, True])
def test_what_is_lost_is_within_the_limit_and_one_column_less_would_exceed_it(blocks, rng):
    """The first kept column decides: a limit a little above what it loses too leaves it out."""
    W = rng.normal(size=(7, 5)) * np.array([9.0, 2.0, 0.7, 0.4, 0.2])
    factors = tuple(np.tril(0.3 * rng.normal(size=(n, n))) + 2 * np.eye(n) for n in (3, 4))
    belief = BlockLowRank(np.zeros(7), factors, W) if blocks else Structured(np.zeros(7), W)
    kept = truncate(belief, 0.5)
    size, loss = kept.W.shape[-1], lost(belief, kept)
    assert 1 < size < 5
    assert 0 < loss < 0.5
    fewer = truncate(kept, 1e3)
    assert fewer.W.shape[-1] == 1
    each = np.linalg.svd(np.linalg.solve(block_diag(*factors), W) if blocks else W, compute_uv=False) ** 2
    each = 0.5 * (each - np.log1p(each))
    np.testing.assert_allclose(loss, each[size:].sum(), rtol=1e-9)
    assert truncate(belief, each[size - 1 :].sum() * 1.001).W.shape[-1] == size - 1
    assert truncate(belief, each[size - 1 :].sum() * 0.999).W.shape[-1] == size


@pytest.mark.long
def test_the_bound_falls_by_no_more_than_was_said():
    """Below the dense optimum of Gaussian data, at its mean."""
    case = cases("additive")[0]
    basis, X, y = additive_basis_of(case), jnp.asarray(case["X"]), jnp.asarray(case["y"])
    A, likelihood = np.asarray(basis.features(X)), Gaussian(np.sqrt(case["noise"]))
    J = np.eye(len(A)) + A @ A.T / case["noise"]
    values, vectors = np.linalg.eigh(J)
    mean = np.linalg.solve(J, A @ case["y"] / case["noise"])
    full = Structured(mean, vectors * np.sqrt(np.maximum(values - 1, 0)))
    kept = truncate(full, 0.5)
    assert kept.W.shape[-1] < len(J)
    bound = jax.jit(lambda q: likelihood.expected_log_prob(y, *q.marginals(basis, X)).sum() - q.kl(basis))(kept)
    below = case["optimal/elbo_gaussian"] - bound
    np.testing.assert_allclose(below, lost(full, kept), atol=1e-5)
    assert 1e-4 < below < 0.5


def test_members_of_plates_share_a_rank():
    """One member needs two columns, and none are lost to the other, which needs one."""
    W = np.zeros((2, 4, 3))
    W[0, :3] = np.diag([5.0, 3.0, 0.1])
    W[1, :3] = np.diag([4.0, 0.2, 0.1])
    kept = truncate(Structured(np.zeros((2, 4)), W))
    assert kept.W.shape == (2, 4, 2)
    np.testing.assert_allclose(np.linalg.norm(kept.W, axis=1), [[5.0, 3.0], [4.0, 0.2]], rtol=1e-12)
