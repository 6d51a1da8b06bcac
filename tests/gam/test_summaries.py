"""Tables in several forms, on both sides of each threshold, and of data that a fit drew: `tests.gam.summaries`.

``NUMPYRO_GP_SEEDS=500`` runs so many seeds.
"""

import os

import numpy as np
import pytest

import numpyro_gp as ngp
from numpyro_gp.criticism import leave_one_out as row_evidence
from numpyro_gp.gam.answers import effects as variance_shares
from numpyro_gp.gam.answers import report, row_densities
from numpyro_gp.gam.model import features as row_features
from numpyro_gp.gam.search import modes
from numpyro_gp.gam.search import series_evidence as evidence
from tests.gam.summaries import KINDS, Case, checked, differences, noted, told
from tests.precision import x64

SEEDS = int(os.environ.get("NUMPYRO_GP_SEEDS", "6"))
THRESHOLDS = {
    "rows of the evidence of a series": [(evidence, "MOST_ROWS")],
    "rows of which some are fitted first": [(modes, "MANY_ROWS")],
    "rows of features at once": [(row_features, "CHUNK")],
    "rows of a summary": [(report, "MOST_ROWS")],
    "rows of its correlations": [(variance_shares, "MOST_ROWS")],
    "rows of a verdict": [(row_evidence, "ROWS"), (row_densities, "LOOKED_AT")],
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


def test_a_fit_tells_nothing_of_the_order_of_its_rows():
    """Panels that are sorted by time, and by unit."""
    rng = np.random.default_rng(0)
    t, who = np.repeat(np.arange(30.0), 2), np.tile(np.arange(2), 30)
    data = {
        "t": t,
        "who": who,
        "y": np.cumsum(0.3 * rng.normal(size=30))[t.astype(int)] + who + 0.3 * rng.normal(size=60),
    }
    order = np.lexsort((t, who))
    forms = data, {name: column[order] for name, column in data.items()}
    one, other = (ngp.gam("y ~ trend(t) + factor(who)", form) for form in forms)
    new = {"t": [31.0], "who": [1]}
    np.testing.assert_allclose(one.predict(new).mean, other.predict(new).mean, rtol=1e-4)
    np.testing.assert_allclose(one.predict(new).variance, other.predict(new).variance, rtol=1e-3)
    assert one.summary().notes == other.summary().notes
