"""Grids of terms, and bands; moments against dense formulas are in test_summary."""

import dataclasses

import numpy as np
import pytest

import numpyro_gp as ngp


def test_a_band_of_one_value_is_that_of_each():
    one = ngp.gam.Effect("a", "re", (), (), np.zeros(1), np.ones(1), np.random.default_rng(0).normal(size=(4000, 1)))
    np.testing.assert_allclose(one.half_width(0.9, simultaneous=True), one.half_width(0.9), rtol=0.05)
    two = ngp.gam.Effect("a", "re", (), (), np.zeros(2), np.ones(2), np.random.default_rng(0).normal(size=(4000, 2)))
    wanted = 1.9488  # (2 Phi(z) - 1)^2 = 0.9
    np.testing.assert_allclose(two.half_width(0.9, simultaneous=True), wanted, rtol=0.03)
    with pytest.raises(ValueError, match="draws of an effect must be given for a band that is simultaneous"):
        dataclasses.replace(two, draws=None).half_width(0.9, simultaneous=True)
