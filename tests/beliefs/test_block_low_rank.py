"""Limits of the belief with a covariance for each component and one of low rank between them."""

import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.beliefs import BlockDiagonal, BlockLowRank
from tests.oracles.additive import additive_basis_of, belief_of
from tests.oracles.vectors import cases


@pytest.mark.parametrize("case", cases("additive"))
def test_special_cases_of_block_low_rank(case):
    """W = 0 is mean field, P_c = I is structured."""
    basis, X = additive_basis_of(case), jnp.asarray(case["Xs"])
    whole, structured = belief_of(case, "blocklowrank"), belief_of(case, "structured")
    identity = tuple(jnp.eye(size) for size in basis.sizes)
    no_columns = BlockLowRank(whole.mean, whole.precision_trils, jnp.zeros_like(whole.W))
    inverse = [np.linalg.cholesky(np.linalg.inv(P @ P.T)) for P in whole.precision_trils]
    pairs = [
        (BlockLowRank(whole.mean, identity, whole.W), structured),
        (no_columns, BlockDiagonal(whole.mean, tuple(map(jnp.asarray, inverse)))),
    ]
    for one, other in pairs:
        np.testing.assert_allclose(one.kl(basis), other.kl(basis), rtol=1e-9)
        for got, wanted in zip(one.marginals(basis, X), other.marginals(basis, X), strict=True):
            np.testing.assert_allclose(got, wanted, atol=1e-9)
