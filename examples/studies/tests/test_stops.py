"""What a page says of programs that stop for ever, from the rows."""

import csv
from pathlib import Path

from numpyro_gp.programs import scheduler

EXAMPLES = Path(__file__).parents[2]


def test_the_results_say_how_often_it_stopped():
    """Rows of the benchmark `stops`: the chosen scheduler never, the default of jaxlib 0.10.2 often."""
    with (EXAMPLES / "studies" / "speed" / "stops.csv").open() as file:
        rows = {row["how"]: row for row in csv.DictReader(file)}
    assert int(rows["imported"]["stopped"]) == 0
    assert int(rows["imported"]["runs"]) >= 200
    assert {scheduler.can_stop(row["jaxlib"]) for row in rows.values()} == {True}
    page = " ".join((EXAMPLES / "guide" / "papers" / "machines.md").read_text().split())
    counts = {how: f"{row['stopped']} of {row['runs']}" for how, row in rows.items()}
    plain, imported = counts["plain"], counts["imported"]
    assert f"stopped in {plain} runs of JAX alone. With the library imported it stopped in {imported}." in page
