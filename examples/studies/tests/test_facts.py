"""Numbers in the words of the results: from the rows, on a page each, and changed by the rows alone."""

import csv
import re
import shutil
from pathlib import Path

import pytest

from examples.studies.tables import facts, rebuild
from examples.tools.tables import path_of, rows_of, save
from numpyro_gp.programs import scheduler

ROOT = Path(__file__).parents[3]
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
    assert "ahead on 6 of 10 sets" in text
    assert facts.restated(text.replace("ahead on 6 of 10", "ahead on 8 of 10"), rebuild.RESULTS) == text
    for name in (
        "stein_regression", "stein_classification", "stein_air_quality", "stein_air_quality_spread", "two_modes",
        "conditioned_particles", "stein_space_time", "stein_paper_model",
    ):  # fmt: skip
        shutil.copy(path_of(rebuild.RESULTS, f"{name}.csv"), tmp_path)
    rows = rows_of(tmp_path, "stein_regression")
    rows = [row | {"log_density": "9.0"} if row["method"] == "stein.auto, 20 particles" else row for row in rows]
    save(tmp_path / "stein_regression.csv", rows)
    found = facts.restated(text, tmp_path)
    assert "ahead on 10 of 10 sets, behind on none" in found


def test_a_mark_without_a_fact_is_an_error():
    with pytest.raises(KeyError):
        facts.restated("<!--=no such fact-->1<!--.-->", rebuild.RESULTS)


def test_repairs_name_tests_that_are_there():
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", (rebuild.RESULTS / "results" / "faults.md").read_text())
    assert len(named) > 30
    missing = [(file, test) for file, test in named if f"def {test}(" not in (ROOT / "tests" / file).read_text()]
    assert not missing


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
