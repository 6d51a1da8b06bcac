"""Numbers in the words of the results: from the rows, on a page each, and changed by the rows alone."""

import re
import shutil
from pathlib import Path

import pytest

from examples.papers.stein import stein_air_quality, stein_space_time
from examples.tools import facts, facts_deep, facts_orthogonal, facts_stein, rebuild
from examples.tools.tables import path_of, rows_of, save

PARTICLES = "stein.auto, 20 particles"
PAGES = {page: page.read_text() for page in rebuild.pages()}


def test_every_fact_is_on_a_page_and_every_mark_is_a_fact():
    named = [match[2] for text in PAGES.values() for match in facts.FACT.finditer(text)]
    assert sorted(named) == sorted(facts.FACTS)
    assert sum(text.count("<!--.-->") for text in PAGES.values()) == len(named)


def test_words_and_rows_do_not_change_alone(tmp_path):
    """A word changed by hand is put right; a row that changes turns the sentence round."""
    text = (rebuild.PAGES / "stein.md").read_text()
    assert facts.restated(text, rebuild.RESULTS) == text, "run python -m examples.tools.rebuild"
    assert "No more than 0.02 nats are missing, by 95 % intervals, on 8 of 11 sets" in text
    assert facts.restated(text.replace("intervals, on 8 of 11", "intervals, on 8 of 12"), rebuild.RESULTS) == text
    for name in (
        "stein_regression", "stein_classification", "stein_air_quality", "stein_air_quality_spread", "two_modes",
        "conditioned_particles", "stein_space_time",
    ):  # fmt: skip
        shutil.copy(path_of(rebuild.RESULTS, f"{name}.csv"), tmp_path)
    rows = rows_of(tmp_path, "stein_regression")
    rows = [row | {"log_density": "9.0"} if row["method"] == PARTICLES else row for row in rows]
    save(tmp_path / "stein_regression.csv", rows)
    found = facts.restated(text, tmp_path)
    assert "Ahead by a t test on 12 of 12 sets, behind on none" in found
    assert "No more than 0.02 nats are missing, by 95 % intervals, on 11 of 11 sets" in found


def test_a_difference_counts_by_a_t_test(tmp_path):
    """Of splits of means 1.1, 0.2 and -1.1 (errors 0.058, 0.115, 0.058); a set of two splits has no verdict."""
    gaps = {"a": (1.0, 1.1, 1.2), "b": (0.0, 0.2, 0.4), "c": (-1.0, -1.1, -1.2), "d": (5.0, 5.0)}
    rows = []
    for name, own in gaps.items():
        for split, gap in enumerate(own):
            common = {"dataset": name, "split": split, "seconds": 2.0}
            rows.append(common | {"method": PARTICLES, "log_density": gap, "seconds": 3.0})
            rows.append(common | {"method": "NUTS", "log_density": 0.0})
    save(tmp_path / "stein_regression.csv", rows)
    assert facts_stein.beyond(tmp_path, "NUTS") == "Ahead by a t test on 1 of 3 sets, behind on one"
    assert facts_stein.behind_nuts(tmp_path) == "Behind by a t test on c (1.100)"
    assert facts_stein.over_sets(tmp_path, "NUTS") == "0.067 ± 0.639 (3)"
    save(
        tmp_path / "stein_regression.csv",
        [row | {"method": row["method"].replace("NUTS", "stein.auto, 2 particles")} for row in rows],
    )
    assert (
        facts_stein.few_particles(tmp_path)
        == "Gains from 2 to 20 particles are seen by a t test on 1 of 3 sets: a (1.100)"
    )


def test_labels_are_compared_within_splits(tmp_path):
    """Gaps of 0.001 and 0.002 on one set, -0.0035 twice on the other: at most 0.004, with an error of 0.0005."""
    rows = [
        {
            "dataset": name,
            "split": split,
            "engine": engine,
            "log_density": level + gap,
            "seconds": 2 - (engine == "NUTS"),
        }
        for name, gaps in {"a": (0.001, 0.002), "b": (-0.0035, -0.0035)}.items()
        for split, (gap, level) in enumerate(zip(gaps, (-0.5, -0.25), strict=True))
        for engine, gap in ((PARTICLES, gap), ("NUTS", 0.0))
    ]
    save(tmp_path / "stein_classification.csv", rows)
    assert facts_stein.labels_and_nuts(tmp_path) == "Within 0.004 nats of NUTS on 2 sets, with errors of at most 0.001"
    assert facts_stein.times_nuts(tmp_path) == "from 2 to 2 times"


def test_a_mark_without_a_fact_is_an_error():
    with pytest.raises(KeyError):
        facts.restated("<!--=no such fact-->1<!--.-->", rebuild.RESULTS)


def test_bands_are_compared_on_the_same_patterns(tmp_path):
    """Of two patterns: NUTS covers more by 0.1 and 0.3; nodes and bins are 0.02 apart in one."""
    ways = {"SVI": (0.8, 0.6), "SVI, bins": (0.8, 0.62), "NUTS": (0.9, 0.9)}
    rows = [{"seed": seed, "way": way, "covered": own} for way, both in ways.items() for seed, own in enumerate(both)]
    save(tmp_path / "functionals_cox.csv", rows)
    assert facts.beside_nuts(tmp_path, "SVI") == "0.200 ± 0.100 (2)"
    assert facts.nodes_and_bins(tmp_path) == "0.02"
    assert facts.of_way(tmp_path, "functionals_cox", "NUTS", "covered") == "0.90"


def test_repairs_name_tests_that_are_there():
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", (rebuild.RESULTS / "results" / "faults.md").read_text())
    assert len(named) > 30
    missing = [(file, test) for file, test in named if f"def {test}(" not in (Path(__file__).parent / file).read_text()]
    assert not missing


def test_days_of_air_quality_are_paired(tmp_path):
    """Of gaps 1, 2 and 3 (error 0.577) on the days that both engines have; a day of one engine counts in nothing."""
    rows = []
    for day, gap in ((5, 1.0), (12, 2.0), (19, 3.0)):
        rows += [{"engine": "stein_auto", "day": day, "log_density": gap - 9.0 * day}]
        rows += [{"engine": "NUTS", "day": day, "log_density": -9.0 * day}]
    save(tmp_path / "stein_air_quality.csv", [*rows, {"engine": "NUTS", "day": 20, "log_density": 1.0}])
    assert facts_stein.days_apart(tmp_path) == "2.000 ± 0.577 (3)"
    table = stein_air_quality.days_table(rows_of(tmp_path, "stein_air_quality")).splitlines()
    assert table[0] == "| test log density | day 5 | day 12 | day 19 | mean over days |"
    assert table[-1] == "| difference | 1.000 | 2.000 | 3.000 | 2.000 ± 0.577 |"
    spread = [{"engine": "stein_auto", "day": 5, "coordinate": "noise", "apart": gap} for gap in (-0.3, 0.1)]
    save(tmp_path / "stein_air_quality_spread.csv", [*spread, spread[0] | {"engine": "stein", "apart": 7.0}])
    assert facts_stein.days_spread(tmp_path, "apart") == "0.10 to 0.30"


def test_months_of_air_quality_are_paired(tmp_path):
    """Means half a standard deviation of the chains apart, and spreads of 0.8 and 1.2 of theirs."""
    rows = []
    for month, ratio in ((54, 0.8), (108, 1.2)):
        for engine, mean, sd in (("20 particles", 2.0, 4.0 * ratio), ("NUTS, 2 chains", 4.0, 4.0)):
            own = {f"mean of {name}": mean for name in stein_space_time.NAMES}
            own |= {f"sd of {name}": sd for name in stein_space_time.NAMES}
            own |= {"day": month, "engine": engine, "log_density": mean * ratio, "r_hat": "", "inducing": 300}
            rows.append(own | ({"r_hat": 1.0 + ratio} if engine.startswith("NUTS") else {}))
    save(tmp_path / "stein_space_time.csv", [*rows, rows[0] | {"day": 162}])
    assert facts_stein.months_apart(tmp_path) == "-2.0000 ± 0.4000 (2)"
    assert facts_stein.months_spread(tmp_path, 0) == "0.50 to 0.50"
    assert facts_stein.months_spread(tmp_path, 1) == "0.80 to 1.20"
    assert facts_stein.most(tmp_path, "r_hat") == "2.200"
    found = rows_of(tmp_path, "stein_space_time")
    assert stein_space_time.table(found).splitlines()[-1] == "| difference | -1.600 | -2.400 | -2.000 ± 0.400 |"
    assert stein_space_time.beside_chains(found).splitlines()[-1] == "| variance | -0.50, -0.50 | 0.80, 1.20 |"
    assert stein_space_time.known(found, "20 particles", {"day": 162, "inducing": 300})
    assert not stein_space_time.known(found, "NUTS, 2 chains", {"day": 162, "inducing": 300})


def test_engines_of_the_main_job_are_beside_nuts(tmp_path):
    widths = {"NUTS": (2.0, 4.0, 5.0), "SVI": (1.0, 4.4, 5.0), "SVGD": (2.0, 1.0, 1.0)}
    rows = [
        {"engine": engine, "quantity": f"{name}_sd", "value": width}
        for engine, own in widths.items()
        for name, width in zip(("lengthscale", "variance", "noise"), own, strict=True)
    ]
    save(tmp_path / "compare_engines.csv", rows)
    assert facts.engines(tmp_path, "SVI") == "0.50, 1.10 and 1.00"


def test_a_set_is_faster_by_the_mean_over_its_splits(tmp_path):
    """Particles take 3 seconds beside 4 on one set, 5 beside 4 on the other; sets with fewer splits do not count."""
    rows = [
        {"dataset": name, "method": method, "split": split, "seconds": seconds, "log_density": 0.0}
        for name, splits, both in (("yacht", 3, (3.0, 4.0)), ("servo", 3, (5.0, 4.0)), ("gas", 1, (1.0, 4.0)))
        for split in range(splits)
        for method, seconds in zip(("stein.auto, 20 particles", "NUTS"), both, strict=True)
    ]
    save(tmp_path / "stein_regression.csv", rows)
    assert facts_stein.faster_than_nuts(tmp_path) == f"{facts_stein.COUNTS[1]} of 2"


def test_iterations_are_those_of_a_set(tmp_path):
    """A method that did not arrive with one seed has no mean; bounds are apart within a seed: by 3 and 5 nats."""
    common = {"steps": "1000", "optimum": "10.0"}
    rows = [
        common | {"task": task, "seed": seed, "method": "Orth", "iterations_to_10_nats": own, "final_bound": end}
        for task, seed, own, end in (
            ("ringnorm, Bernoulli", 0, "7", "4.0"),
            ("ringnorm, Bernoulli", 1, "9", "2.0"),
            ("concrete, Gaussian", 0, "7", "4.0"),
            ("concrete, Gaussian", 1, "", "2.0"),
        )
    ]
    other = [row | {"method": "Hybrid", "final_bound": end} for row, end in zip(rows[:2], ("1.0", "-3.0"), strict=True)]
    save(tmp_path / "decoupled_convergence.csv", [*rows, *other])
    key = "iterations_to_10_nats"
    assert facts_orthogonal.iterations(tmp_path, ("Orth",), key, "ringnorm") == "Orth 8 ± 1"
    assert facts_orthogonal.iterations(tmp_path, ("Orth",), key) == "Orth not in 1000"
    assert facts_orthogonal.bounds_apart(tmp_path, "Orth", "Hybrid", "ringnorm") == "4.0 ± 1.0 (2)"


def test_sets_are_told_by_a_t_test_and_splits_by_a_sign_test(tmp_path):
    """Five splits of yacht gain 1 each but one that loses 9: no t test sees that, and 4 of 5 signs have p = 12 / 32."""
    common = {"experiment": "deep", "settings": "inducing=128 batch=512", "version": "1", "seed": 0, "steps": 10}
    common |= {"flattened": "yes", "rmse": 0.0, "bound": 0.0, "seconds": 1.0, "curve": "1.0"}
    gains = {"yacht": (1.0, 1.0, 1.0, 1.0, -9.0), "housing": (1.0, 1.1, 1.2, 1.0, 1.1), "energy": (-1.0, -1.1, -1.2)}
    rows = [
        common | {"set": name, "split": split, "method": method, "log_density": gap if method == "GP-GP VI" else 0.0}
        for name, own in gains.items()
        for split, gap in enumerate(own)
        for method in ("GP VI", "GP-GP VI")
    ]
    save(tmp_path / "long_runs.csv", rows)
    pair = {"first": "GP-GP VI", "second": "GP VI"}
    assert facts_deep.long_told(tmp_path, **pair) == "ahead on housing, behind on energy, not seen on yacht"
    assert facts_deep.long_apart(tmp_path, "yacht", **pair) == "-1.000 ± 2.000 (5)"
    assert facts_deep.splits_ahead(tmp_path, "yacht", **pair) == "4 of 5 splits (sign test, p 0.375)"
