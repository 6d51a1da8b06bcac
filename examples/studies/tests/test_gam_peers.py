"""``ngp.gam`` beside its peers: how all are judged, rows that go on where they ended, and tables that rows make."""

import numpy as np
import pytest
from scipy import stats

from examples.studies.gam.peers import rivals, simulations
from examples.studies.gam.peers.programs import __main__ as programs
from examples.studies.tables import rebuild
from examples.tools.tables import rows_of


def test_the_uncertainty_of_the_link_is_in_the_density():
    """Normal data have a closed form: variances add up; without them the density would be another."""
    y, mean, error = np.array([0.3, -1.0, 2.0]), np.array([0.0, -0.5, 1.0]), np.array([0.5, 0.2, 1.0])
    found = rivals.judged("gaussian", y, mean, error, 0.7)
    exact = stats.norm(mean, np.sqrt(0.7 + error**2)).logpdf(y).mean()
    assert found["log_density"] == pytest.approx(exact, abs=1e-6)
    assert abs(stats.norm(mean, np.sqrt(0.7)).logpdf(y).mean() - exact) > 0.01
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((mean - y) ** 2)))


def test_labels_and_counts_are_judged_on_the_scale_of_their_link():
    f = np.array([-1.0, 0.4, 2.0])
    labels = rivals.judged("bernoulli", np.array([0.0, 1.0, 1.0]), f, 0.0, 1.0)
    p = 1 / (1 + np.exp(-f))
    assert labels["log_density"] == pytest.approx(np.log([1 - p[0], p[1], p[2]]).mean())
    counts = rivals.judged("negative_binomial", np.array([0.0, 2.0, 9.0]), f, 0.0, 3.0)
    # Mean m and size r: the variance is m + m^2 / r, so the probability of success is r / (r + m).
    exact = stats.nbinom(3.0, 3.0 / (3.0 + np.exp(f))).logpmf([0, 2, 9]).mean()
    assert counts["log_density"] == pytest.approx(exact)
    wide = rivals.judged("bernoulli", np.array([1.0]), np.array([1.0]), np.array([2.0]), 1.0)
    draws = 1 + 2 * np.random.default_rng(0).normal(size=200_000)
    assert wide["log_density"] == pytest.approx(np.log(np.mean(1 / (1 + np.exp(-draws)))), abs=0.01)


def test_coverage_is_of_the_live_terms_in_bands_of_90_percent():
    truth = np.zeros((4, 4))
    mean = np.array([[0, 1.6, 1.7, 9], [0, -1.6, 1.7, 9], [0, 1.6, -1.7, 9], [0, -1.6, -1.7, 9]])
    assert simulations.covered(mean, np.ones((4, 4)), truth) == pytest.approx(2 / 3)


def test_lines_to_write_are_those_of_the_programs():
    """The rows are of the programs as they are now, each of which gave what was asked for when it ran."""
    rows = {row["fit"]: row for row in rows_of(rebuild.RESULTS, "gam_programs")}
    assert set(rows) == set(programs.PROGRAMS)
    for name, program in programs.PROGRAMS.items():
        assert int(rows[name]["lines"]) == programs.lines_of(program), name
        assert float(rows[name]["rmse"]) < 1.5, name
