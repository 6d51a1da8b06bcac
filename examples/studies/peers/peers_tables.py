"""Tables of this library beside others, from the rows that `peers` writes: times, and peak memory."""

from examples.tools.tables import markdown

__all__ = ["memory", "table"]

TASKS = {
    "adam": "Adam step, batch 1024",
    "natural": "natural step, batch 1024",
    "predict": "predict {rows} rows",
    "latency": "one row again and again",
    "deep": "step of two layers, width {width}",
    "orthogonal": "orthogonal step, {mean_points} points of the mean",
    "predict by hand": "predict {rows} rows, by hand",
    "leapfrog, latent": "leapfrog step, 300 rows, all inducing",
    "leapfrog, marginal": "leapfrog step, 300 rows, marginal",
    "SVGD, latent": "SVGD, 10 particles, latent",
    "SVGD, marginal": "SVGD, 10 particles, marginal",
}


def name_of(row):
    size = f", M = {row['size']}" if row["size"] != "0" else ""
    return TASKS[row["task"]].format(**row) + f"{size}, {row['dtype']}"


def table(rows):
    """Medians in milliseconds, others from the fastest to the slowest; ``ratio`` is ours to that of the fastest."""
    lines = [
        [
            name_of(row),
            f"{float(row['ours']):g}",
            ", ".join(filter(None, [f"{row['other']} {float(row['others']):g}", row["slower"]])),
            row["rounds"],
            f"{float(row['ours']) / float(row['others']):.2f}",
        ]
        for row in rows
    ]
    return markdown(["milliseconds", "ours", "others", "rounds", "ratio"], lines)


def memory(rows):
    """Peak MiB of whole processes, and of what comes above their imports."""
    lines = [
        [
            name_of(row),
            *(f"{float(row[key]):.0f}" for key in ("memory", "memory_others", "above", "above_others")),
            row["other"],
        ]
        for row in rows
        if row["memory"]
    ]
    head = ["MiB at most", "ours", "the other", "above imports: ours", "above imports: the other", "other"]
    return markdown(head, lines)
