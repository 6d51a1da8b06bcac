"""The stacked basis: what it stacks and what it sums."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.beliefs import AdditiveBasis
from numpyro_gp.beliefs.basis import Basis
from numpyro_gp.kernels import RBF, Constant, Linear
from numpyro_gp.kernels.base import as_kernel


def mixed(scales, points):
    """Kernels and inducing inputs: two groups of two that stand in one another, two single components."""
    kernels = {
        "a": RBF(scales[0], 0.3).on(0),
        "b": scales[1] * RBF(1.0, 0.4).on(1) * Linear(0.3).on(0),
        "c": RBF(scales[2], 0.5).on(2),
        "d": Constant(scales[3]),
        "e": scales[4] * RBF(0.7, 0.4).on(2) * Linear(0.3).on(1),
        "g": as_kernel(lambda X1, X2: 1.0 + scales[0] * X1 @ X2.T),
    }
    return kernels, {name: points[c] for c, name in enumerate(kernels)}


@pytest.mark.long
def test_groups_are_the_components_one_by_one(rng):
    """Values and gradients in hyper-parameters, inducing inputs and rows, against a basis for each component."""
    X, scales = jnp.asarray(rng.uniform(size=(4, 3))), jnp.asarray(rng.uniform(0.5, 1.5, 5))
    points = [jnp.asarray(rng.uniform(size=(2, 3))) for _ in range(6)]
    kernels, inducing = mixed(scales, points)
    basis = AdditiveBasis.build(kernels, inducing)
    assert [group.members for group in basis.groups] == [(0, 2), (1, 4), (3,), (5,)]

    def one_by_one(scales, points, X):
        kernels, inducing = mixed(scales, points)
        parts = [Basis.build(kernels[name], inducing[name]) for name in kernels]
        features = [part.features(X) for part in parts]
        return jnp.concatenate(features), sum(part.matrix(X) for part in parts), features

    def in_groups(scales, points, X):
        basis = AdditiveBasis.build(*mixed(scales, points))
        return basis.features(X), basis.matrix(X), [part.features(X) for part in basis.parts]

    def values_and_slopes(function):
        def summed(*arguments):
            values = function(*arguments)
            return sum(jnp.sum(jnp.sin(1 + 3 * value)) for value in values[:2]), values

        return jax.jit(jax.grad(summed, (0, 1, 2), has_aux=True))(scales, points, X)

    found = [jax.tree.leaves(values_and_slopes(function)) for function in (in_groups, one_by_one)]
    for got, wanted in zip(*found, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-10)
    for part, (name, kernel) in zip(basis.parts, kernels.items(), strict=True):
        assert jax.tree.structure(part.kernel) == jax.tree.structure(kernel)
        assert part.inducing is inducing[name]
