"""The additive model written out beside the one of a formula: the same components."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import numpyro_gp as ngp
from models import additive, additive_by_hand
from tests.gam.known import kernel_of_term


@pytest.mark.long
def test_the_components_are_those_of_the_formula():
    """Lengthscales of a formula are in standard deviations of a column; curves average to zero over the rows."""
    data = additive_by_hand.simulate(jax.random.key(0), num_data=30)
    X, scales, lengthscales = data["X"], jnp.array([0.7, 1.3, 0.4]), jnp.array([0.5, 0.3, 0.6, 0.9])
    gam = ngp.gam.model(additive.FORMULA, {"x0": X[:, 0], "x1": X[:, 1], "y": data["y"]})
    found = additive_by_hand.kernels_of(scales, lengthscales, data["measures"])
    spread, inputs = np.std(X, axis=0), gam.arguments[0]
    own = iter(lengthscales)
    for part, scale, (name, columns) in zip(
        gam.layout.read_terms, scales, additive_by_hand.COMPONENTS.items(), strict=True
    ):
        lengths = [next(own) / spread[d] for d in columns]
        wanted = kernel_of_term(gam, part, scale**2, lengths).matrix(inputs, inputs)
        np.testing.assert_allclose(found[name].matrix(X, X), wanted, atol=1e-8)
    assert abs(np.mean(found["x0"].matrix(X, X))) < 1e-8
