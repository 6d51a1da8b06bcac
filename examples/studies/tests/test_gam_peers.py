"""``ngp.gam`` beside its peers: how all are judged, rows that go on where they ended, and tables that rows make."""

import csv
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from examples.studies.gam import gam_peers_tables as tables
from examples.studies.gam.peers import __main__ as gam_peers
from examples.studies.gam.peers import rivals, simulations
from examples.studies.gam.peers.programs import __main__ as programs
from examples.studies.tables import rebuild
from examples.tools.tables import rows_of

pytestmark = pytest.mark.experiments


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


def test_the_size_of_counts_is_the_likeliest():
    rng = np.random.default_rng(1)
    mean = rng.uniform(1, 20, size=300)
    y = rng.negative_binomial(4.0, 4.0 / (4.0 + mean))
    found = rivals.size_of(y, mean)
    around = [stats.nbinom(r, r / (r + mean)).logpmf(y).sum() for r in (0.99 * found, found, 1.01 * found)]
    assert around[1] == max(around)
    assert found == pytest.approx(4.0, rel=0.3)


def test_coverage_is_of_the_live_terms_in_bands_of_90_percent():
    truth = np.zeros((4, 4))
    mean = np.array([[0, 1.6, 1.7, 9], [0, -1.6, 1.7, 9], [0, 1.6, -1.7, 9], [0, -1.6, -1.7, 9]])
    assert simulations.covered(mean, np.ones((4, 4)), truth) == pytest.approx(2 / 3)


def test_terms_and_pairs_that_are_called():
    assert simulations.called([False, True, False, True]) == {"called_dead": 1, "live_kept": pytest.approx(2 / 3)}
    order = [("x1", "x2"), ("x0", "x1")]
    kept = [("x0", "x1"), ("x2", "x3")]
    assert simulations.named(order, kept) == {"pair_first": 0, "pair_kept": 1, "others_kept": 1}
    assert simulations.named(order[::-1], None) == {"pair_first": 1}


def test_the_joint_effect_has_no_curve_of_either_column():
    grid = (np.arange(400) + 0.5) / 400
    values = simulations.joint(np.stack(np.meshgrid(grid, grid)))
    assert np.abs(values.mean(0)).max() < 1e-12
    assert np.abs(values.mean(1)).max() < 1e-12
    assert values.std() == pytest.approx(2 * np.sqrt(0.5 / 3), rel=1e-4)


def test_rows_that_are_there_are_not_made_again(tmp_path, monkeypatch):
    made = []

    def fake(name, cases, options):
        for seed, table, truth in cases:
            made.append((name, seed, len(table["y"]), truth.shape))
            yield {"rmse": 0.123456}

    monkeypatch.setattr(simulations, "waves", fake)
    options = SimpleNamespace(task="waves", fits=["mgcv", "ngp.gam"], first=0, seeds=1, noise=[1.0, 2.0], rows=30)
    gam_peers.append(tmp_path / "rows.csv", gam_peers.run_simulations, options)
    assert made == [(name, 0, 30, (30, 4)) for name in ("mgcv", "mgcv", "ngp.gam", "ngp.gam")]
    made.clear()
    options.seeds = 2
    gam_peers.append(tmp_path / "rows.csv", gam_peers.run_simulations, options)
    assert [(name, seed) for name, seed, *_ in made] == [("mgcv", 1)] * 2 + [("ngp.gam", 1)] * 2
    rows = list(csv.DictReader((tmp_path / "rows.csv").read_text().splitlines()))
    assert len(rows) == 8
    assert rows[0]["rmse"] == "0.1235"


def test_lines_to_write_are_those_of_the_programs():
    """The rows are of the programs as they are now, each of which gave what was asked for when it ran."""
    rows = {row["fit"]: row for row in rows_of(rebuild.RESULTS, "gam_programs")}
    assert set(rows) == set(programs.PROGRAMS)
    for name, program in programs.PROGRAMS.items():
        assert int(rows[name]["lines"]) == programs.lines_of(program), name
        assert float(rows[name]["rmse"]) < 1.5, name


EMPTY = dict.fromkeys(gam_peers.FIELDS, "")


def of_set(fit, name, density, seconds="2", split=0, note=""):
    return EMPTY | {
        "task": name, "seed": str(split), "fit": fit, "rmse": "1", "log_density": density, "seconds": seconds,
        "note": note,
    }  # fmt: skip


def test_tables_of_sets():
    """The best in bold, what did not end, seconds beside mgcv's, and what is ahead by pairs."""
    rows = [of_set(fit, s, d) for s in tables.SETS for fit, d in (("ngp.gam", "-1.0"), ("mgcv", "-1.2"))]
    rows += [
        of_set("pygam", "yacht", "-0.5"),
        of_set("ngp.gam", "yacht", "-2", "8", 1),
        of_set("mgcv", "yacht", "-4", "4", 1),
    ]
    rows += [EMPTY | {"task": "blood", "seed": "0", "fit": "bambi", "note": "did not end in 150 s"}]
    lines = tables.density(rows).splitlines()
    assert lines[2] == "| here | -1.000 | **-1.000** | **-1.000** | **-1.000** | **-1.000** |"
    assert lines[4] == "| pyGAM | **-0.500** |  |  |  |  |"
    assert lines[5] == "| Bambi |  |  |  |  | not in time |"
    assert tables.above_best(rows) == "on 4 of 5 sets, and below it on yacht (0.500)"
    rows += [of_set("ebm", "yacht", "-0.1"), of_set("ngp.gam, screen", "yacht", "-0.05"), of_set("ebm", "blood", "-9")]
    assert tables.above_best(rows) == "on 4 of 5 sets, and below it on yacht (0.500)"
    assert tables.beside_ebm(rows) == "+0.050 on yacht"
    assert tables.ahead(rows).splitlines()[2] == "| yacht | 2 | 1.100 ± 0.900 | -0.500 |"
    rows += [of_set(fit, s, "-1", t, 1) for s in tables.SETS[1:] for fit, t in (("ngp.gam", "3"), ("mgcv", "1"))]
    assert tables.times_mgcv(rows).startswith("1.50 on yacht, 2.00 on energy")  # of 2 / 2 and 8 / 4, 2 / 2 and 3 / 1
    spent = tables.seconds(rows).splitlines()
    assert spent[2] == "| here | 2 | 2 | 2 | 2 | 2 |"
    assert spent[7] == "| Bambi |  |  |  |  | > 150 |"
