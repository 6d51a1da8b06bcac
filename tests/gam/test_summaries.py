"""Tables in several forms, on both sides of each threshold, and of data that a fit drew: `tests.gam.summaries`.

``NUMPYRO_GP_SEEDS=500`` runs so many seeds.
"""

import os

import numpy as np
import pytest

import numpyro_gp as ngp
from numpyro_gp.criticism import leave_one_out as row_evidence
from numpyro_gp.gam.answers import effects as variance_shares
from numpyro_gp.gam.answers import row_densities
from numpyro_gp.gam.answers import summary as report
from numpyro_gp.gam.model import features as row_features
from numpyro_gp.gam.search import modes
from numpyro_gp.gam.search import series_evidence as evidence
from tests.gam.summaries import KINDS, Case, checked, differences, noted, told
from tests.precision import x64

SEEDS = int(os.environ.get("NUMPYRO_GP_SEEDS", "6"))
# Rows of the evidence of a series, rows of which some are fitted first, and rows of features at once; rows of a summary,
# of its correlations, and of a verdict.
THRESHOLDS = {
    "search": [(evidence, "MOST_ROWS"), (modes, "MANY_ROWS"), (row_features, "CHUNK")],
    "answers": [(own, "MOST_ROWS") for own in (report, variance_shares)],
    "verdict": [(row_evidence, "ROWS"), (row_densities, "LOOKED_AT")],
}


@pytest.mark.statistical
def test_forms_of_a_table_say_the_same():
    assert not [wrong for seed in range(SEEDS) if (wrong := checked(seed))]


def case_at_thresholds(kind):
    rng = np.random.default_rng(4)
    x, who, t = rng.uniform(size=120), np.arange(120) % 2, np.arange(120.0)
    f = np.sin(6 * x) + who
    y = {"gaussian": f + 0.3 * rng.normal(size=120), "poisson": rng.poisson(2 * np.exp(f))}
    if kind == "series":
        walk = np.cumsum(0.5 * rng.normal(size=120)) + 0.3 * rng.normal(size=120)
        return Case("y ~ trend(t)", "gaussian", {"t": t, "y": walk}, None)
    return Case("y ~ s(x) + factor(who)", kind, {"x": x, "who": who, "y": y[kind]}, None)


@pytest.mark.long
@pytest.mark.parametrize("threshold", list(THRESHOLDS))
@pytest.mark.parametrize("kind", ["gaussian", "poisson", "series"])
def test_both_sides_of_a_threshold_agree(kind, threshold, monkeypatch):
    """The same rows, with a threshold at their number and at one less."""
    case, found = case_at_thresholds(kind), []
    for most in (120, 119):
        for owner, name in THRESHOLDS[threshold]:
            monkeypatch.setattr(owner, name, most)
        with x64(False):
            found.append(told(case))
    wrong = [one for one in differences(*found, np.arange(120)) if "The last" not in one]
    assert not [
        one for one in wrong if not one.startswith("note 'Scales, lengthscales and noise are those of the last")
    ]


@pytest.mark.statistical
@pytest.mark.parametrize("kind", KINDS)
def test_data_that_a_fit_drew_have_no_notes(kind):
    """At most 5 % of them: "unreliable for n rows" stood in 42 % of trends and in 85 % of gamma data."""
    count = max(20, SEEDS)
    assert len(noted(kind, count)) <= max(2, 0.05 * count)


@pytest.mark.parametrize("seed", [0, 1])
def test_residuals_and_calibration_count_a_row_as_often_as_its_weight_says(seed):
    """Of data with outliers; a row of weight three was one, whose copies are three."""
    rng = np.random.default_rng(seed)
    x, weights = rng.uniform(size=80), rng.integers(1, 5, 80)
    y, copies = np.sin(6 * x) + 0.3 * rng.standard_t(3, 80), np.repeat(np.arange(80), weights)
    weighed = ngp.gam("y ~ s(x)", {"x": x, "y": y}, weights=weights).summary().notes
    assert weighed
    assert weighed == ngp.gam("y ~ s(x)", {"x": x[copies], "y": y[copies]}).summary().notes
