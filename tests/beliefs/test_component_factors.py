"""Factors of components: how they are given, and for which sites."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.beliefs import BlockDiagonal, BlockLowRank, Coupled, Structured
from tests.oracles.additive import additive_basis_of, belief_of
from tests.oracles.vectors import cases


def test_a_belief_of_other_components_is_refused():
    case = cases("additive")[0]
    basis, X = additive_basis_of(case), jnp.asarray(case["Xs"])
    sizes = basis.sizes
    wrong_names = BlockDiagonal(jnp.zeros(sum(sizes)), {f"d{c}": jnp.eye(size) for c, size in enumerate(sizes)})
    wrong_sizes = BlockDiagonal(jnp.zeros(sum(sizes)), tuple(jnp.eye(size) for size in sizes[::-1][1:] + sizes[:1]))
    for belief in (wrong_names, wrong_sizes):
        with pytest.raises(ValueError, match="scale_trils must be one for each component of the site, in its order"):
            belief.marginals(basis, X)
    with pytest.raises(TypeError, match="the site must be an additive_gp"):
        wrong_sizes.marginals(basis.parts[0], X)
    assert isinstance(belief_of(case, "full"), Coupled)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_draws_of_what_precise_data_say_keep_their_spread(dtype):
    """Standard deviations of 1e-4 and of 1 in other directions; a product of large and small parts has 5e-2 and more."""
    rng = np.random.default_rng(0)
    directions, P = np.linalg.qr(rng.normal(size=(6, 6)))[0], np.tril(rng.normal(size=(3, 3)), -1) + 2 * np.eye(3)
    blocks, W = np.kron(np.eye(2), P), 1e4 * directions[:, :2]
    arrays = jnp.zeros(6, dtype), jnp.asarray(W, dtype)
    beliefs = {
        Structured: Structured(*arrays),
        BlockLowRank: BlockLowRank(arrays[0], (jnp.asarray(P, dtype),) * 2, arrays[1]),
    }
    for kind, belief in beliefs.items():
        own = np.eye(6) if kind is Structured else blocks @ blocks.T
        covariance = np.linalg.inv(own + W @ W.T)
        drawn = np.asarray(belief.draw_whitened(jax.random.key(1), (4000,)), float)
        np.testing.assert_allclose(drawn.std(0), np.sqrt(np.diag(covariance)), rtol=0.06)
        spread = np.sqrt(np.einsum("ij,ik,kj->j", directions[:, :2], covariance, directions[:, :2]))
        np.testing.assert_allclose((drawn @ directions[:, :2]).std(0), spread, rtol=0.06)
