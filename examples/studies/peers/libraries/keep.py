"""Rows of a file of results from the lines of runs: for each job ours, and the fastest of the others."""

from pathlib import Path
from statistics import median
from typing import Any

from examples.studies.peers import peers_tables
from examples.studies.peers.libraries.report import Line, fastest_ways, grouped, number, who
from examples.tools.tables import read, save

KEY = ("task", "size", "dtype", "rows", "mean_points", "width")


def row_of(lines: list[Line], machine: str, field: str) -> dict[str, Any] | None:
    """Milliseconds and MiB of a job; nothing where we or all others are missing."""
    whole = [line for line in lines if "seconds" in line and not line["quick"]]
    found = fastest_ways(whole, field)
    if "ours" not in found or len(found) == 1:
        return None
    own = found.pop("ours")
    (other, seconds), *slower = sorted(found.values(), key=lambda pair: pair[1])
    row = {key: str(lines[0][key]) for key in KEY}
    row |= dict(ours=number(1e3 * own[1]), other=other, others=number(1e3 * seconds), machine=machine)
    row["slower"] = ", ".join(f"{name} {number(1e3 * value)}" for name, value in slower)
    row |= dict(rounds=str(1 + max(line["round"] for line in whole)), busy=f"{max(l['others'] for l in whole):.2f}")
    for name, end in ((own[0], ""), (other, "_others")):
        held = [line for line in whole if who(line) == name]
        apart = lines[0]["task"] in ("adam", "predict")  # in a process of its own
        row[f"memory{end}"] = f"{median(l['memory'] for l in held):.0f}" if apart else ""
        row[f"above{end}"] = f"{median(l['memory'] - l['memory_imported'] for l in held):.0f}" if apart else ""
    return row


def keep(lines: list[Line], path: Path, machine: str, field: str = "seconds") -> int:
    """Put rows in the place of those of the same jobs, and others at the end; how many."""
    held = {tuple(row[key] for key in KEY): row for row in read(path)}
    known = (line for line in lines if line["task"] in peers_tables.TASKS)
    jobs = grouped(known, lambda line: tuple(str(line[key]) for key in KEY))
    made = {key: row for key, own in jobs.items() if (row := row_of(own, machine, field)) is not None}
    save(path, list((held | made).values()))
    return len(made)
