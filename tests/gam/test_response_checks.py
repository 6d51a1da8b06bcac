"""Responses that no term can explain; what is refused of them stands in `test_refusals.py`."""

import numpy as np

import numpyro_gp as ngp


def test_counts_that_are_all_one_have_a_model():
    ngp.gam.model("y ~ s(x)", {"x": np.linspace(0.0, 1.0, 12), "y": np.ones(12)}, "poisson")
