"""Responses that no term can explain."""

import numpy as np
import pytest

import numpyro_gp as ngp


def test_a_response_that_never_differs_is_refused_where_its_spread_is_learnt():
    x = np.linspace(0.0, 1.0, 12)
    with pytest.raises(ValueError, match="response 'y' must be of values that differ, but got 3 in all 12 rows"):
        ngp.gam.model("y ~ s(x)", {"x": x, "y": np.full(12, 3.0)})
    ngp.gam.model("y ~ s(x)", {"x": x, "y": np.ones(12)}, "poisson")
