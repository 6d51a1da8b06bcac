"""How a process opens its site: its place in NumPyro's handlers, its name and its plates."""

import jax.numpy as jnp
import numpyro
import pytest

import numpyro_gp as ngp
from tests.primitives.test_process import process


def test_values_of_other_plates_are_named():
    kernel, Z = ngp.kernels.RBF(1.0, 1.0), jnp.linspace(0.0, 1.0, 4)[:, None]
    with numpyro.plate("group", 3):
        with pytest.raises(
            ValueError,
            match=r"the belief at site 'f' must be over whitened values of shape \(3, 4\), those of plate 'group' of 3 on "
            r"the left, but got shape \(4,\)",
        ):
            process(ngp.beliefs.Coupled(jnp.zeros(4), jnp.eye(4)), kernel, Z)
        with pytest.raises(ValueError, match=r"the value at site 'f' must be .* \(3, 4\), .* but got shape \(2, 4\)"):
            process(jnp.zeros((2, 4)), kernel, Z)
