"""What beliefs stand on: one factorisation for each kernel and set of inducing inputs, placed in plates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.beliefs.basis import Basis, batch_of_bases, in_plates
from numpyro_gp.kernels import RBF, stack

Z = jnp.array([[0.0], [0.4], [1.1]])
KERNELS = [RBF(1.3, 0.7), RBF(0.6, 0.2)]


@pytest.mark.parametrize("own", [False, True], ids=["shared inputs", "own inputs"])
def test_members_are_built_as_single_ones(own):
    points = [Z, Z + 0.3] if own else [Z, Z]
    batch = batch_of_bases(stack(KERNELS), jnp.stack(points) if own else Z, 1e-4)
    for g in range(2):
        single = Basis.build(KERNELS[g], points[g], 1e-4)
        np.testing.assert_allclose(batch.factor[g], single.factor, rtol=1e-12)
        np.testing.assert_allclose(batch.inducing[g], single.inducing)


def test_kernels_broadcast_against_inducing_inputs():
    """Two kernels and three sets of inputs: (2, 1) and (3,) make (2, 3)."""
    kernels = jax.tree.map(lambda leaf: leaf[:, None], stack(KERNELS))
    sets = jnp.stack([Z, Z + 0.3, Z - 0.2])
    batch = batch_of_bases(kernels, sets)
    np.testing.assert_allclose(batch.factor[1, 2], Basis.build(KERNELS[1], sets[2]).factor, rtol=1e-12)


def test_axes_of_kernels_are_placed_in_those_of_plates():
    """Without the axis of data where that is free; an axis that kernels lack is that of members that share one."""
    values = jnp.arange(2.0)
    np.testing.assert_array_equal(in_plates(values, (2,), (2,), "f"), values)
    np.testing.assert_array_equal(in_plates(values, (2,), (2, 1), "f"), values[:, None])
    np.testing.assert_array_equal(in_plates(values, (2,), (3, 2), "f"), jnp.stack([values] * 3))
    np.testing.assert_array_equal(in_plates(values[:, None], (2, 1), (2, 3), "f"), jnp.stack([values] * 3, 1))
    with pytest.raises(
        ValueError, match=r"of site 'f' must be a batch of the plates around it, \(3,\), but got leading axes"
    ):
        in_plates(values, (2,), (3,), "f")
