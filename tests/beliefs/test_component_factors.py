"""Factors of components: how they are given, and for which sites."""

import jax.numpy as jnp
import pytest

from numpyro_gp.beliefs import BlockDiagonal, Coupled
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
