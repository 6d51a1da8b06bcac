"""What the papers print of the runs in `long_runs.csv`: the same sets, methods and depths.

The numbers are those of the published tables beside the data sets, ``DATA/published``. Names are turned into ours:
boston is housing, and IWVI is IW.
"""

import csv
import re

from examples.studies.tables.run_tables import at_paper_sizes
from examples.tools.tables import markdown

__all__ = ["by_depth", "printed"]

FILES = {
    "depth": "seed001_dgp_results.csv",
    "deep": "seed004_table1_test_loglik.csv",
}
SETS = {"boston": "housing", "protein": "protein_raw"}  # the second in the paper of decoupled layers alone
DEPTH = re.compile(r"DGP L=(\d) (?:full|(decoupled))")


def ours(experiment, name, method):
    """Our name of a set and of a method that a paper prints."""
    if experiment == "depth":
        found = DEPTH.match(method)
        return SETS.get(name, name), f"{found[2] or 'coupled'} {found[1]}"
    return SETS.get(name, name), method.replace("IWVI", "IW")


def printed(folder, experiment):
    """Test log densities as printed, ``{(set, method): value}`` under our names."""
    path, found = folder / "published" / FILES[experiment], {}
    for row in csv.DictReader(path.read_text().splitlines()):
        if row["value"] and row["metric"] == "test_loglik":
            found[ours(experiment, row["dataset"], row["method"])] = float(row["value"])
    return found


def sets_of(rows, experiment):
    """Sets of an experiment with rows at the paper's sizes."""
    return sorted({row["set"] for row in at_paper_sizes(rows, experiment)})


def by_depth(rows, folder):
    """Test log densities as printed by hidden layers, those of `run_tables.by_depth`."""
    found = printed(folder, "depth")
    columns = [(name, kind) for name in sets_of(rows, "depth") for kind in ("coupled", "decoupled")]
    lines = [[str(depth), *(f"{found[name, f'{kind} {depth}']:.2f}" for name, kind in columns)] for depth in range(5)]
    return markdown(["hidden layers, as printed", *(f"{name}, {kind}" for name, kind in columns)], lines)
