"""What is written for one process, mapped over several: a batch is a loop over its members."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp import beliefs as b
from numpyro_gp.beliefs.basis import BatchBasis, batch_of_bases
from numpyro_gp.beliefs.members import member_axes
from numpyro_gp.kernels import Matern32, stack
from tests.contracts.compositions import Delegating as Delegate

OWN = jnp.array([[0.1], [0.5], [0.9], [1.3]])
Z3 = jnp.array([[0.0], [0.4], [1.1]])
X2 = jnp.array([[0.2], [0.7]])


def two(*shape):
    return jnp.asarray(np.random.default_rng(sum(shape)).normal(size=(2, *shape)))


FACTORS = jnp.tril(0.2 * two(3, 3)) + 0.7 * jnp.eye(3)[None]
OF_TWO = {
    "point": b.Point(two(3)),
    "conditional": b.Conditional(two(3), FACTORS @ jnp.swapaxes(FACTORS, 1, 2)),
    "orthogonal": b.Orthogonal(OWN, two(4), two(3), FACTORS, columns=jnp.array([0, 2])),
    "decoupled": b.Decoupled(OWN, two(4), FACTORS),
    "layer": b.DecoupledLayer(OWN, two(4), mean="gp", scale_tril=FACTORS),
    "a user's own": Delegate(b.Coupled(two(3), FACTORS)),
}


def summary(belief, basis):
    """A number that depends on all that a belief says, each output with another weight."""
    (mean, variance), joint = belief.marginals(basis, X2), belief.joint(basis, X2)
    weight = jnp.arange(1.0, 5.0).reshape(2, 2) if mean.ndim == 2 else None
    kl = 0.0 if isinstance(belief, b.Point) else belief.kl(basis)
    return weight, mean, variance + joint.covariance[..., 0, :], kl


@pytest.mark.long
@pytest.mark.parametrize("name", OF_TWO)
def test_a_batch_is_a_loop_over_its_members(name):
    """Values, and derivatives in the kernels; a mean basis ``Z_...`` is shared, and inducing inputs are each one's own.

    Those that all share stand in every model of a plate: ``contracts/test_plates.py``.
    """
    belief, inducing = OF_TWO[name], jnp.stack([Z3, Z3 + 0.3])
    batch = stack([Matern32(1.3, 0.7), Matern32(0.6, 0.2)])
    members = [jax.tree.map(lambda leaf, p=p: leaf[p], batch) for p in range(2)]
    axes = member_axes(belief)
    parts = [jax.tree.map(lambda leaf, axis, p=p: leaf if axis is None else leaf[p], belief, axes) for p in range(2)]

    def whole(kernel):
        weight, mean, variance, kl = summary(belief, BatchBasis(batch_of_bases(kernel, inducing, 1e-4)))
        return jnp.sum(weight * mean + weight * variance) + kl

    def loop(kernels):
        found = [summary(part, b.Basis.build(k, z, 1e-4)) for part, k, z in zip(parts, kernels, inducing, strict=True)]
        weight = jnp.arange(1.0, 5.0).reshape(2, 2)
        return sum(jnp.sum(weight[p] * (one[1] + one[2])) + one[3] for p, one in enumerate(found))

    value, slopes = jax.jit(jax.value_and_grad(whole))(batch)
    wanted, each = jax.jit(jax.value_and_grad(loop))(members)
    np.testing.assert_allclose(value, wanted, rtol=1e-10)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-7), slopes, stack(each))
