"""Formulas composed at random against a dense computation: `tests.gam.formulas`."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

import numpyro_gp as ngp
from numpyro_gp.gam.collapsed import Bound, BoundParts, Data
from tests.gam.formulas import case_of, checked

# Seeds that failed once, and some of each family.
KEPT = (0, 2, 3, 12, 38)


@pytest.mark.statistical
def test_kept_seeds():
    assert not [wrong for seed in KEPT if (wrong := checked(seed))]


@pytest.mark.statistical
def test_seeds_of_the_commit():
    """Other formulas at each commit; a seed that fails is printed, and belongs to those that are kept."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    said = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    first = int(said[:7] or "0", 16)
    assert not [wrong for seed in range(first, first + 6) if (wrong := checked(seed))]


def test_the_search_ends_at_the_mode():
    """One short step of the search is not its end: 0.96 was left of the slope, and a quarter of a nat of the bound."""
    case = case_of(3)
    fit = ngp.gam(case.formula, case.data, case.family, weights=case.weights)
    bound = Bound(BoundParts.of(fit.model), Data.of(fit.model))
    assert np.abs(bound(vars(fit)["_engine_result"].in_double["auto_loc"])[1]).max() < 0.4
