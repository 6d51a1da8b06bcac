"""From the lines of a run to tables in Markdown: what we take, what each peer takes, and the ratio to the fastest."""

import json
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

Line = dict[str, Any]
NAMES = {
    "adam": "Adam step",
    "natural": "natural step",
    "predict": "predict {rows} rows",
    "latency": "one row again and again",
    "deep": "step of two layers, width {width}",
    "orthogonal": "orthogonal step, {mean_points} points of the mean",
}
TIMED = (
    *NAMES,
    "predict by hand",
    "leapfrog, latent",
    "leapfrog, marginal",
    "SVGD, latent",
    "SVGD, marginal",
    "rows of a batch",
)
BUSY = 0.1  # cores


def name_of(line: Line) -> str:
    size = f", M = {line['size']}" if line["size"] else ""
    return NAMES.get(line["task"], line["task"]).format(**line) + f"{size}, {line['dtype']}"


def who(line: Line) -> str:
    return line["peer"] + (f" ({line['way']})" if line["way"] else "")


def grouped(lines: Iterable[Line], key: Any) -> dict[Any, list[Line]]:
    found: dict[Any, list[Line]] = {}
    for line in lines:
        found.setdefault(key(line), []).append(line)
    return found


def fastest_ways(lines: list[Line], field: str) -> dict[str, tuple[str, float]]:
    """For each peer its fastest way, and its median over the rounds; those that failed are left out."""
    ways = {
        key: median(line[field] for line in group)
        for key, group in grouped(lines, lambda l: (l["peer"], who(l))).items()
    }
    found: dict[str, tuple[str, float]] = {}
    for (peer, name), value in ways.items():
        if peer not in found or value < found[peer][1]:
            found[peer] = name, value
    return found


def ratio_of(found: dict[str, tuple[str, float]]) -> str:
    others = [value for peer, (_, value) in found.items() if peer != "ours"]
    if "ours" not in found:
        return ""
    return f"{found['ours'][1] / min(others):.2f}" if others else "no peer"


def number(value: float) -> str:
    """Three digits and no powers of ten."""
    return "never" if value == float("inf") else f"{float(f'{value:.3g}'):g}"


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows)]
    return [*lines, ""] if rows else []


def cells(found: dict[str, tuple[str, float]], failed: list[Line], scale: float) -> list[str]:
    """Ours, the peers from the fastest to the slowest and those that are missing, and the ratio."""
    others = sorted((pair for peer, pair in found.items() if peer != "ours"), key=lambda pair: pair[1])
    told = [f"{name} {number(scale * value)}" for name, value in others]
    told += sorted({f"{who(line)} {line['failed']}" for line in failed if line["peer"] != "ours"})
    own = number(scale * found["ours"][1]) if "ours" in found else "missing"
    return [own, ", ".join(told), ratio_of(found)]


def times(lines: list[Line], field: str) -> list[str]:
    rows = []
    for name, group in grouped((line for line in lines if line["task"] in TIMED), name_of).items():
        whole, failed = [l for l in group if field in l], [l for l in group if "failed" in l]
        rows.append([name, *cells(fastest_ways(whole, field), failed, 1e3)])
    return table(["milliseconds", "ours", "peers", "ratio to the fastest"], rows)


def reached(line: Line, goal: float, field: str) -> float:
    """Seconds from the start of the process until the density, looks at it left out; infinite if it was not reached."""
    column, start = (1, "start") if field == "seconds" else (2, "start_cpu")
    return next((line[start] + look[column] for look in line["curve"] if look[0] and look[3] >= goal), float("inf"))


def densities(lines: list[Line], field: str) -> list[str]:
    """Seconds until the density at which the peer ends that ends lowest; at the start those of all must agree."""
    rows = []
    for name, group in grouped((line for line in lines if line["task"] == "density"), lambda l: l["table"]).items():
        whole = [l for l in group if "curve" in l and l["curve"][-1][3] == l["curve"][-1][3]]
        failed = [{"failed": "ends in NaN"} | l for l in group if l not in whole]
        ends = fastest_ways([dict(l, end=-l["curve"][-1][3]) for l in whole], "end")
        goal = min((-value for peer, (_, value) in ends.items() if peer != "ours"), default=None)
        if goal is None:
            rows.append([name, "", "no peer", "", "", ""])
            continue
        found = fastest_ways([dict(l, reached=reached(l, goal, field)) for l in whole], "reached")
        told = ", ".join(f"{who} {-value:.3f}" for who, value in ends.values())
        starts = [l["curve"][0][3] for l in whole]
        begun = f"{min(starts):.3f} to {max(starts):.3f}"
        rows.append([f"{name}, {goal:.3f}", *cells(found, failed, 1.0), begun, told])
    head = ["seconds to a test density", "ours", "peers", "ratio to the fastest", "at the start", "at the end"]
    return table(head, rows)


def memory(lines: list[Line]) -> list[str]:
    rows = []
    for name, group in grouped(lines, name_of).items():
        held = [l for l in group if "failed" not in l and l["dtype"] == "float64" and l["size"] in (512, 2048)]
        held = [dict(l, above=l["memory"] - l["memory_imported"]) for l in held if l["task"] in ("adam", "predict")]
        if held:
            rows.append([name, *cells(fastest_ways(held, "above"), [], 1.0)])
    return table(["MiB at most, above those of imports", "ours", "peers", "ratio to the least"], rows)


def starts(lines: list[Line]) -> list[str]:
    """From the start of the process to the first step, and the first block of steps with all that it compiles."""
    rows = []
    steps = [l for l in lines if l["task"] == "adam" and l["size"] == 512 and l["dtype"] == "float64" and "start" in l]
    for name, group in grouped(steps, who).items():
        rows.append([name, *(f"{median(l[field] for l in group):.1f}" for field in ("start", "first"))])
    return table(["start-up, seconds (Adam, M = 512)", "to the first step", "first block"], rows)


def programs(lines: list[Line]) -> list[str]:
    rows = []
    for line in lines:
        if "kernels" in line:
            name = f"{NAMES[line['program']].format(rows=8192)}, M = {line['size']}, {line['dtype']}"
            numbers = (f"{line['temporary']:.1f}", f"{line['largest']:.2f}", f"{1e3 * line['floor']:.2f}")
            rows.append([name, *(str(line[field]) for field in ("kernels", "floating", "copies")), *numbers])
    head = ["kernels", "in floating point", "copies", "temporary MiB", "largest array / (rows x M)"]
    return table(["our programs", *head, "ms by products alone"], rows)


def floors(lines: list[Line], field: str) -> list[str]:
    """What single operations take, for M inducing inputs or data, and N rows."""
    rows = []
    of_size = lambda l: (l["peer"], l["size"], l["rows"], l["dtype"])  # noqa: E731
    known = [l for l in lines if l["task"] == "floor" and field in l]
    for (name, size, count, dtype), group in grouped(known, of_size).items():
        rows.append([f"{name}, M = {size}" + (f", N = {count}" if "N" in name else "") + f", {dtype}"])
        rows[-1].append(number(1e3 * median(l[field] for l in group)))
    return table(["one operation alone", "milliseconds"], rows)


def told(lines: list[Line]) -> list[str]:
    """What a reader must know before reading: versions, rounds, failures of ours, and whether the machine was quiet."""
    versions = {", ".join(f"{name} {found}" for name, found in line.get("versions", {}).items()) for line in lines}
    rounds = 1 + max((line["round"] for line in lines), default=0)
    found = [f"Rounds: {rounds}. Versions: {'; '.join(sorted(versions - {''}))}.", ""]
    others = max((line["others"] for line in lines if "others" in line), default=0.0)
    if others > BUSY:
        found += [f"The machine was busy: others kept up to {others:.1f} cores. Times of the processor: --cpu.", ""]
    if any(line["quick"] for line in lines):
        found += ["A quick run of small sizes: its numbers mean nothing.", ""]
    found += [f"Failed, {who(l)}, {name_of(l)}: {l['failed']}" for l in lines if l["peer"] == "ours" and "failed" in l]
    return found


def lines_in(files: list[Path]) -> list[Line]:
    return [json.loads(text) for file in files for text in file.read_text().splitlines()]


def report(files: list[Path], cpu: bool = False) -> str:
    lines = lines_in(files)
    field = "cpu" if cpu else "seconds"
    tables = [
        times(lines, field),
        floors(lines, field),
        densities(lines, field),
        starts(lines),
        memory(lines),
        programs(lines),
    ]
    return "\n".join([*told(lines), *(line for part in tables for line in part)])
