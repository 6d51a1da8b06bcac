"""Tables of the long runs: arithmetic by hand, the last row of each run, and versions apart."""

import numpy as np
import pytest

from examples.studies.tables import run_tables as own
from examples.tools.run_queue import COLUMNS
from examples.tools.tables import save

pytestmark = pytest.mark.experiments


def row(method, split, density, *, name="bike", steps=2000, version="v1", flattened="yes", **more):
    found = {"experiment": "decoupled", "set": name, "method": method, "split": split, "seed": split, "settings": "a=1"}
    found |= {"version": version, "steps": steps, "flattened": flattened, "gain": 0.0, "gain_se": 0.0, "seconds": 1.0}
    return found | {"log_density": density, "rmse": -density, "bound": density, "curve": "3.0 2.0 1.5 1.2 1.1"} | more


ROWS = [
    row("OrthNat", 0, 1.0),
    row("OrthNat", 1, 3.0),
    row("CoupledNat", 0, 0.5, flattened="no"),
    row("CoupledNat", 1, 0.5),
    row("CoupledNat", 2, 9.0, version="v2"),
    row("CoupledNat", 0, 7.0, steps=1000, flattened="no"),
    row("OrthNat", 2, 8.0, version="v2"),
]


def read(rows, folder):
    save(folder / "rows.csv", [{name: one[name] for name in COLUMNS} for one in rows])
    return own.read(folder / "rows.csv")


def test_differences_are_paired_by_split_and_versions_stand_in_tables_of_their_own(tmp_path):
    """0.5 and 2.5: mean 1.5, standard deviation sqrt(2), error 1 (from the two means' own errors it would be sqrt(1))."""
    rows = read(ROWS, tmp_path)
    group = own.groups(own.last_rounds(rows))["v1", "decoupled", "a=1"]
    mean, error, count, steps = own.paired(group, "OrthNat", "CoupledNat", "log_density")["bike"]
    np.testing.assert_allclose((mean, error, count), (1.5, 1.0, 2))
    assert steps == "2000"
    assert own.paired(group, "OrthNat", "Orth", "log_density") == {}
    assert own.paired(group, "OrthNat", "CoupledNat", "rmse")["bike"][0] == -1.5
    assert [r["steps"] for r in own.last_rounds(rows) if (r["method"], r["split"]) == ("CoupledNat", 0)] == [2000]
    first, second = own.markdown(rows).split("## ")[1:]
    assert first.startswith("decoupled: 2000 steps, 3 of 4 runs flat (version v1)")
    assert "| bike | 0.500 ± 0.000 (2)* | 2.000 ± 1.000 (2) |" in first
    assert "| OrthNat - CoupledNat | 1.500 ± 1.000 (2; 2000) |" in first
    assert second.startswith("decoupled: 2000 steps, 2 of 2 runs flat (version v2)")
    assert "| OrthNat - CoupledNat | -1.000 (1; 2000) |" in second


def test_differences_are_taken_at_equal_steps():
    """Orth has 1000 and 2000 steps and still falls, OrthNat 1000 and 4000: 1000 are what both have, unless one is flat."""
    falls = [row("Orth", 0, 1.0, steps=1000, flattened="no"), row("Orth", 0, 2.0, flattened="no")]
    other = [row("OrthNat", 0, 5.0, steps=1000, flattened="no"), row("OrthNat", 0, 9.0, steps=4000, flattened="no")]
    assert own.paired([*falls, *other], "OrthNat", "Orth", "log_density")["bike"][0::3] == (4.0, "1000")
    flat = [falls[0], row("Orth", 0, 2.0)]
    assert own.paired([*flat, *other], "OrthNat", "Orth", "log_density")["bike"][0::3] == (7.0, "4000")
