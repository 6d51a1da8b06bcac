"""Tables of the long runs: arithmetic by hand, the last row of each run, and versions apart."""

import csv

import numpy as np
import pytest

from examples.run_queue import COLUMNS
from examples.run_tables import groups, last_rounds, markdown, paired, plot, read


def row(method, split, density, *, name="bike", steps=2000, version="v1", flattened="yes"):
    own = {"experiment": "decoupled", "set": name, "method": method, "split": split, "seed": split, "settings": "a=1"}
    own |= {"version": version, "steps": steps, "flattened": flattened, "gain": 0.0, "gain_se": 0.0}
    return own | {
        "log_density": density,
        "rmse": -density,
        "bound": density,
        "seconds": 1.0,
        "curve": "3.0 2.0 1.5 1.2 1.1",
    }


ROWS = [
    row("OrthNat", 0, 1.0),
    row("OrthNat", 1, 3.0),
    row("CoupledNat", 0, 0.5, flattened="no"),
    row("CoupledNat", 1, 0.5),
    row("CoupledNat", 2, 9.0, version="v2"),
    row("CoupledNat", 0, 7.0, steps=1000, flattened="no"),
    row("OrthNat", 2, 8.0, version="v2"),
]


@pytest.fixture
def rows(tmp_path):
    with open(tmp_path / "rows.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(ROWS)
    return read(tmp_path / "rows.csv")


def test_differences_are_paired_by_split(rows):
    """0.5 and 2.5: mean 1.5, standard deviation sqrt(2), error 1 (from the two means' own errors it would be sqrt(1))."""
    own = groups(last_rounds(rows))["v1", "decoupled", "a=1"]
    mean, error, count, steps = paired(own, "OrthNat", "CoupledNat", "log_density")["bike"]
    np.testing.assert_allclose((mean, error, count), (1.5, 1.0, 2))
    assert steps == "2000"
    assert paired(own, "OrthNat", "Orth", "log_density") == {}
    assert paired(own, "OrthNat", "CoupledNat", "rmse")["bike"][0] == -1.5


def test_differences_are_taken_at_equal_steps():
    """Orth has 1000 and 2000 steps and still falls, OrthNat 1000 and 4000: 1000 are what both have, unless one is flat."""
    falls = [row("Orth", 0, 1.0, steps=1000, flattened="no"), row("Orth", 0, 2.0, flattened="no")]
    other = [row("OrthNat", 0, 5.0, steps=1000, flattened="no"), row("OrthNat", 0, 9.0, steps=4000, flattened="no")]
    assert paired([*falls, *other], "OrthNat", "Orth", "log_density")["bike"][0::3] == (4.0, "1000")
    flat = [falls[0], row("Orth", 0, 2.0)]
    assert paired([*flat, *other], "OrthNat", "Orth", "log_density")["bike"][0::3] == (7.0, "4000")


def test_a_run_counts_with_its_last_row(rows):
    kept = [r["steps"] for r in last_rounds(rows) if (r["method"], r["split"]) == ("CoupledNat", 0)]
    assert kept == [2000]


def test_versions_stand_in_tables_of_their_own(rows):
    first, second = markdown(rows).split("## ")[1:]
    assert first.startswith("decoupled: 2000 steps, 3 of 4 runs flat (version v1)")
    assert "| bike | 0.500 ± 0.000 (2)* | 2.000 ± 1.000 (2) |" in first
    assert "| OrthNat - CoupledNat | 1.500 ± 1.000 (2; 2000) |" in first
    assert second.startswith("decoupled: 2000 steps, 2 of 2 runs flat (version v2)")
    assert "| bike | 9.000 (1) | 8.000 (1) |" in second
    assert "| OrthNat - CoupledNat | -1.000 (1; 2000) |" in second


def test_the_figure_is_drawn(rows, tmp_path):
    plot(rows, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5000
