"""Grids of terms, and bands; moments against dense formulas are in test_summary."""

import dataclasses

import numpy as np
import pytest

import numpyro_gp as ngp
from numpyro_gp.additive.effects import Effects
from numpyro_gp.gam import Column, Effect


def test_a_band_of_one_value_is_that_of_each():
    one = ngp.gam.Effect("a", "re", (), (), np.zeros(1), np.ones(1), np.random.default_rng(0).normal(size=(4000, 1)))
    np.testing.assert_allclose(one.half_width(0.9, simultaneous=True), one.half_width(0.9), rtol=0.05)
    two = ngp.gam.Effect("a", "re", (), (), np.zeros(2), np.ones(2), np.random.default_rng(0).normal(size=(4000, 2)))
    wanted = 1.9488  # (2 Phi(z) - 1)^2 = 0.9
    np.testing.assert_allclose(two.half_width(0.9, simultaneous=True), wanted, rtol=0.03)
    with pytest.raises(ValueError, match="draws of an effect must be given for a band that is simultaneous"):
        dataclasses.replace(two, draws=None).half_width(0.9, simultaneous=True)


def test_a_frame_has_a_row_for_each_point_and_a_column_for_each_that_is_read():
    """Numbers, dates, levels in order, a surface row by row; "sd" of the data makes way for that of the table."""
    pandas = pytest.importorskip("pandas")
    day, site = Column("day", None, is_date=True), Column("sd", ("east", "west"))
    curve = Effect("s(day)", "s", (day,), (np.array([0.0, 365.5]),), np.array([1.0, 2.0]), np.array([0.5, 1.0]))
    surface = (np.array([0.0, 1.0]), np.arange(2.0)), np.array([[0.0, 1.0], [2.0, 3.0]]), np.full((2, 2), 0.1)
    each = {"s(day)": curve, "te(x, sd)": Effect("te(x, sd)", "te", (Column("x"), site), *surface)}
    frame, z = Effects(each).to_frame(0.9), 1.6448536269514722
    assert frame.columns.tolist() == ["term", "day", "x", "sd_", "estimate", "sd", "low", "high"]
    assert frame["term"].tolist() == ["s(day)"] * 2 + ["te(x, sd)"] * 4
    assert frame["day"][:2].tolist() == [pandas.Timestamp("1970-01-01"), pandas.Timestamp("1971-01-01 12:00")]
    assert frame[["day"]][2:].isna().all().all()
    assert frame["x"][2:].tolist() == [0.0, 0.0, 1.0, 1.0]
    assert frame["sd_"][2:].tolist() == ["east", "west"] * 2
    np.testing.assert_allclose(frame["estimate"], [1.0, 2.0, 0.0, 1.0, 2.0, 3.0])
    np.testing.assert_allclose(frame["high"], frame["estimate"] + z * frame["sd"])
    np.testing.assert_allclose(frame["low"][:2], [1 - 0.5 * z, 2 - z])
    assert list(Effects().to_frame().columns) == ["term", "estimate", "sd", "low", "high"]
