"""Numbers in the words of the results: from the rows, on a page each, and changed by the rows alone."""

import csv
import re
import shutil
from pathlib import Path

import pytest

from examples.studies.tables import facts, facts_deep, facts_stein, rebuild
from examples.tools.tables import path_of, rows_of, save
from numpyro_gp.programs import scheduler

ROOT = Path(__file__).parents[3]
PARTICLES = "stein.auto, 20 particles"
PAGES = {page: page.read_text() for page in rebuild.pages()}


def test_every_fact_is_on_a_page_and_every_mark_is_a_fact():
    named = [match[2] for text in PAGES.values() for match in facts.FACT.finditer(text)]
    assert sorted(named) == sorted(facts.FACTS)
    assert sum(text.count("<!--.-->") for text in PAGES.values()) == len(named)
    for page, text in PAGES.items():
        assert facts.restated(text, rebuild.RESULTS) == text, (
            f"{page.name}: run python -m examples.studies.tables.rebuild"
        )


def test_words_and_rows_do_not_change_alone(tmp_path):
    """A word changed by hand is put right; a row that changes turns the sentence round."""
    text = (rebuild.PAGES / "stein.md").read_text()
    assert facts.restated(text, rebuild.RESULTS) == text, "run python -m examples.studies.tables.rebuild"
    assert "Ahead by a t test on 7 of 12 sets" in text
    assert facts.restated(text.replace("test on 7 of 12", "test on 8 of 12"), rebuild.RESULTS) == text
    for name in (
        "stein_regression", "stein_classification", "stein_air_quality", "stein_air_quality_spread", "two_modes",
        "conditioned_particles", "stein_space_time", "stein_paper_model",
    ):  # fmt: skip
        shutil.copy(path_of(rebuild.RESULTS, f"{name}.csv"), tmp_path)
    rows = rows_of(tmp_path, "stein_regression")
    rows = [row | {"log_density": "9.0"} if row["method"] == PARTICLES else row for row in rows]
    save(tmp_path / "stein_regression.csv", rows)
    found = facts.restated(text, tmp_path)
    assert "Ahead by a t test on 12 of 12 sets, behind on none" in found


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
    assert facts_stein.over_sets(tmp_path, "NUTS") == "0.067 ± 0.639 (3)"
    paper = [row | {"method": row["method"].replace("stein.auto", "stein")} for row in rows[6:]]
    auto = [row | {"log_density": 9.0} for row in rows if row["method"] == PARTICLES]
    save(tmp_path / "stein_paper_model.csv", paper + auto)  # the recipe alone counts
    assert facts_stein.recipe_of_paper(tmp_path, "NUTS") == "-0.450 ± 0.650 (2), by set seen on c"
    hours = [
        {"way": way, "seconds": seconds} for way, seconds in (("a", "1800"), ("b", "900"), ("a", ""), ("c", "9000"))
    ]
    save(tmp_path / "hours.csv", hours)
    assert facts.core_hours(tmp_path, "hours", digits=2, way=["a", "b"]) == "0.75"
    save(
        tmp_path / "stein_regression.csv",
        [row | {"method": row["method"].replace("NUTS", "stein.auto, 2 particles")} for row in rows],
    )
    assert (
        facts_stein.few_particles(tmp_path)
        == "Gains from 2 to 20 particles are seen by a t test on 1 of 3 sets: a (1.100)"
    )


def test_a_mark_without_a_fact_is_an_error():
    with pytest.raises(KeyError):
        facts.restated("<!--=no such fact-->1<!--.-->", rebuild.RESULTS)


def test_repairs_name_tests_that_are_there():
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", (rebuild.RESULTS / "results" / "faults.md").read_text())
    assert len(named) > 30
    missing = [(file, test) for file, test in named if f"def {test}(" not in (ROOT / "tests" / file).read_text()]
    assert not missing


def test_engines_of_the_main_job_are_beside_nuts(tmp_path):
    widths = {"NUTS": (2.0, 4.0, 5.0), "SVI": (1.0, 4.4, 5.0), "SVGD": (2.0, 1.0, 1.0)}
    rows = [
        {"engine": engine, "quantity": f"{name}_sd", "value": width}
        for engine, own in widths.items()
        for name, width in zip(("lengthscale", "variance", "noise"), own, strict=True)
    ]
    save(tmp_path / "compare_engines.csv", rows)
    assert facts.engines(tmp_path, "SVI") == "0.50, 1.10 and 1.00"


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


def test_the_results_say_how_often_it_stopped():
    """Rows of the benchmark `stops`: the chosen scheduler never, the default of jaxlib 0.10.2 often."""
    with (ROOT / "examples" / "studies" / "speed" / "stops.csv").open() as file:
        rows = {row["how"]: row for row in csv.DictReader(file)}
    assert int(rows["imported"]["stopped"]) == 0
    assert int(rows["imported"]["runs"]) >= 200
    assert {scheduler.can_stop(row["jaxlib"]) for row in rows.values()} == {True}
    page = " ".join((ROOT / "examples" / "guide" / "papers" / "machines.md").read_text().split())
    counts = {how: f"{row['stopped']} of {row['runs']}" for how, row in rows.items()}
    plain, imported = counts["plain"], counts["imported"]
    assert f"stopped in {plain} runs of JAX alone. With the library imported it stopped in {imported}." in page
