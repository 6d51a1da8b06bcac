"""Responses that no term can explain; what is refused of them stands in `test_refusals.py`."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import numpyro_gp as ngp


def test_counts_that_are_all_one_have_a_model():
    ngp.gam.model("y ~ s(x)", {"x": np.linspace(0.0, 1.0, 12), "y": np.ones(12)}, "poisson")


def test_a_function_of_f_says_which_responses_it_can_have():
    family = lambda: lambda f: dist.Poisson(jnp.exp(f))  # noqa: E731
    data = {"x": np.arange(6.0), "y": np.array([1.0, 2.0, 0.0, 3.0, 2.0, 1.0])}
    assert ngp.gam.model("y ~ linear(x)", data, family).family.name == "function"
    with pytest.raises(ValueError, match=r"response 'y' of family 'function': obs must be in the support .*got -3"):
        ngp.gam.model("y ~ linear(x)", data | {"y": data["y"] - 6 * (data["y"] == 3)}, family)
