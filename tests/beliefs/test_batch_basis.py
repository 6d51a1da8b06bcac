"""Bases of members in plates."""

import jax
import numpy as np

from numpyro_gp.beliefs.basis import Basis, BatchBasis, batch_of_bases, first_member, placed
from numpyro_gp.kernels import stack
from tests.beliefs.test_basis import KERNELS, Z


def test_one_factorisation_serves_all_members_that_share_a_kernel():
    single = Basis.build(KERNELS[0], Z)
    basis = placed(single, (3, 1), "f")
    assert isinstance(basis, BatchBasis)
    assert (basis.own, basis.axes, basis.size) == (False, 2, 3)
    assert basis.members is single
    assert first_member(basis) is single
    np.testing.assert_array_equal(basis.features(Z), single.features(Z))


def test_the_first_member_of_shapes_is_a_shape():
    batch = BatchBasis(batch_of_bases(stack(KERNELS), Z), (2,))
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), batch)
    assert first_member(shapes).factor.shape == (3, 3)
    np.testing.assert_array_equal(first_member(batch).factor, batch.members.factor[0])
