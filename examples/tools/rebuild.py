"""Rebuilds the tables of the guide's pages, and the figures that need no more, from the rows of the examples.

    python -m examples.tools.rebuild [--data DATA] [--out FOLDER] [--guide]

A table stands below a comment that names its rows, ``<!-- rows: stein_regression -->``, and is replaced as a whole.
Words around it are a person's, but for the numbers that `facts` makes. ``--data`` is wanted by what compares with
printed values. ``--guide`` also runs the pages of the guide and draws their figures. A test sees that the tables of
the pages, and the numbers in their words, are those of the rows.
"""

import argparse
import functools
import re
from pathlib import Path

import numpy as np

from examples import two_modes
from examples.papers.additive import additive_coverage, additive_numbers, additive_steps
from examples.papers.beyond import (
    after_fit,
    beyond_tables,
    how_long,
    memory,
    neighbours,
    neighbours_more,
    neighbours_peers,
    peers_tables,
)
from examples.papers.day import eleven_tasks
from examples.papers.deep import (
    decoupled_map,
    decoupled_means,
    decoupled_seconds,
    deep_defaults,
    deep_starts,
    gradient_noise,
)
from examples.papers.gam import gam_interactions_tables, gam_peers_tables
from examples.papers.hyperparameters import defaults
from examples.papers.importance import (
    importance_gradients,
    importance_weighting,
    latent_scores,
    normality,
    weights_from_fit,
)
from examples.papers.orthogonal import decoupled_convergence, equal_seconds
from examples.papers.several import long_runs
from examples.papers.stein import stein_air_quality, stein_classification, stein_regression, stein_space_time
from examples.tools import facts, guide_figures, printed_tables, run_tables, tables
from examples.tools.tables import markdown, mean_and_error, of_mean, path_of, rows_of, with_error

RESULTS = Path(__file__).parents[1]  # rows are in `results`, and in the folders of `papers`
PAGES = guide_figures.GUIDE / "papers"
TABLE = re.compile(r"(<!-- rows: (\S+?)(?:, (.+?))? -->\n)((?:\|.*\n)*)")


def number(text, digits=3):
    """A number as it stands in a table; nothing for none."""
    return f"{float(text):.{digits}f}" if text not in ("", None) else ""


def values_of(rows, key):
    return list(dict.fromkeys(row[key] for row in rows))


def plain(rows, columns):
    """A line for each row; ``columns`` are ``{head: text of a row}``."""
    return markdown(list(columns), [[text(row) for text in columns.values()] for row in rows])


def only(make, keep):
    """The table that ``make`` gives of rows, with the columns ``keep`` alone: pages have six at most."""

    def shown(rows, *more):
        cells = [[cell.strip() for cell in line[1:-1].split("|")] for line in make(rows, *more).splitlines()]
        columns = [cells[0].index(name) for name in keep]
        return markdown([cells[0][c] for c in columns], [[line[c] for c in columns] for line in cells[2:]])

    return shown


def means(rows, by, metrics):
    """A line for each group of rows: means of some columns, ``{name: digits}``, and their standard errors."""
    lines = [
        [*place, *(with_error(*own[metric], digits) for metric, digits in metrics.items())]
        for place, own in mean_and_error(rows, by, metrics).items()
    ]
    return markdown([*by, *(metric.replace("_", " ") for metric in metrics)], lines)


def pivot(rows, line, column, metric, *, best=max, digits=3, ranked=()):
    """Means by ``line`` and ``column``, the best of a line in bold; below the mean ranks over ``ranked`` lines."""
    found = {place: own[metric] for place, own in mean_and_error(rows, (line, column), [metric]).items()}
    columns, lines, ranks = values_of(rows, column), [], []
    for name in values_of(rows, line):
        own = {c: found[name, c] for c in columns if (name, c) in found}
        wanted = best(own, key=lambda c: own[c][0]) if best else None
        cells = {c: with_error(*cell, digits) for c, cell in own.items()}
        lines.append([name, *(f"**{cells[c]}**" if c == wanted else cells.get(c, "") for c in columns)])
        if name in ranked:
            order = sorted(own, key=lambda c: own[c][0], reverse=best is max)
            ranks.append([order.index(c) + 1 for c in columns])
    if ranks:
        lines.append([f"mean rank of {len(ranks)}", *(f"{rank:.2f}" for rank in np.mean(ranks, axis=0))])
    return markdown([line, *columns], lines)


def convergence(rows):
    """A line for each task and method: means over seeds of the iterations to 1 %, to 10 nats and to 1 nat."""

    def cell(own, key):
        values = [row[key] for row in own]
        if "" in values:
            return f"not in {own[0]['steps']}"
        return values[0] if "not recorded" in values else with_error(*of_mean([float(value) for value in values]), 0)

    lines = []
    for place in dict.fromkeys((row["task"], row["method"]) for row in rows):
        own = [row for row in rows if (row["task"], row["method"]) == place]
        lines.append([*place, str(len(own)), *(cell(own, key) for key in decoupled_convergence.REACHED)])
    return markdown(["task", "method", "seeds", "1 %", "10 nats", "1 nat"], lines)


def starts(rows):
    return plain(rows, {
        "D": lambda row: row["columns"],
        "median lengthscale at the start": lambda row: "default, of order √D" if "prior" in row["prior"] else "1",
        "1 %": lambda row: row["steps"],
        "99 % of the way": lambda row: row["way"],
        "loss per row": lambda row: number(row["loss_a_row"]),
        "test log density": lambda row: with_error(float(row["log_density"]), float(row["log_density_se"])),
    })  # fmt: skip


def gam(rows):
    """Means over splits; what a peer is ahead of ours is paired by row and split."""

    def mean(own, key):
        values = [float(row[key]) for row in own if row[key]]
        return with_error(*of_mean(values)) if values else ""

    lines = []
    for name in values_of(rows, "model"):
        own = [row for row in rows if row["model"] == name]
        seconds = np.mean([float(row["seconds"]) for row in own])
        lines.append([name, str(len(own)), mean(own, "held-out log density"), mean(own, "ahead"), f"{seconds:.0f}"])
    return markdown(["model", "splits", "held-out log density", "ahead of ngp.gam", "CPU s"], lines)


def air_quality(rows):
    """Engines on the day that all of them have."""
    return plain([row for row in rows if row["day"] == "5"], {
        "engine": lambda row: row["engine"].replace("_", ", "),
        "RMSE": lambda row: number(row["rmse"]),
        "log density": lambda row: with_error(float(row["log_density"]), float(row["log_density_se"])),
        "90 % coverage": lambda row: number(row["coverage_90"], 2),
        "seconds": lambda row: number(row["seconds"], 0),
    })  # fmt: skip


def geometry(rows):
    return plain(rows, {
        "target": lambda row: row["target"],
        "recipe": lambda row: row["recipe"],
        "bias": lambda row: number(row["bias"], 2),
        "sd": lambda row: number(row["sd"], 2),
        "correlations": lambda row: number(row["correlations"]),
    })  # fmt: skip


def regret(rows):
    cells = {(row["function"], row["method"]): f"{float(row['median']):.3f}, {float(row['worst']):.3f}" for row in rows}
    methods = values_of(rows, "method")
    lines = [[name, *(cells[name, method] for method in methods)] for name in values_of(rows, "function")]
    return markdown(["median, worst regret", *methods], lines)


def errors_of(rows, kind):
    """Mean absolute errors of regression, or accuracies on labels, by method and set: of one split, so no ± errors."""
    return pivot([row for row in rows if row["kind"] == kind], "method", "set", "error", best=None)


def letters(rows):
    shown = [row for row in rows if row["metric"] in ("log_density", "normality")]
    return pivot(shown, line="metric", column="model", metric="value", best=None)


def devices(rows):
    cells = {
        (row["inducing"], row["devices"]): [float(row[key]) for key in row if key.startswith("ms")] for row in rows
    }
    columns = values_of(rows, "devices")
    lines = [
        [
            name,
            *(
                ", ".join(
                    f"{value:#.3g}".rstrip(".") if value < 1000 else f"{value:.0f}"
                    for value in dict.fromkeys(cells[name, c])
                )
                for c in columns
            ),
        ]
        for name in values_of(rows, "inducing")
    ]
    return markdown(["inducing points", *(f"{c} device{'s' if c != '1' else ''}" for c in columns)], lines)


def here(rows):
    return plain(rows, {
        "inducing points": lambda row: row["inducing"],
        "cores": lambda row: row["devices"],
        "predicted, ms": lambda row: number(1000 * float(row["predicted"]), 0),
        "measured, ms": lambda row: number(1000 * float(row["measured"]), 0),
    })  # fmt: skip


def on_a_gpu(rows):
    """Milliseconds in double precision and single, and GPyTorch's."""
    names = {"adam": "Adam", "natural": "natural", "predict": "predict", "neighbours": "32 neighbours,"}
    cells = {(row["task"], row["size"], row["unit"], row["dtype"]): row for row in rows}

    def cell(key, dtype):
        row = cells.get((*key, dtype))
        both = [f"{float(row[name]):#.3g}".rstrip(".") for name in ("ours", "gpytorch") if row[name]] if row else []
        return ", ".join(both) or "not timed"

    lines = []
    for key in dict.fromkeys((task, size, unit) for task, size, unit, _ in cells):
        task, size, unit = key
        many = {"chain": f"{size} rows", "neighbours": f"{size} rows per batch"}.get(task, f"M = {size}")
        what = f"{names[task]} {unit}, {many}" if task != "chain" else f"leapfrog step, exact, {many}"
        lines.append([what, cell(key, "float64"), cell(key, "float32")])
    return markdown(["ms: ours, GPyTorch's", "float64", "float32"], lines)


def covered(rows):
    """The share of simulations in which 90 % intervals held each quantity, a line for each way."""
    names = [key for key in rows[0] if key.endswith("_covered")]
    shares = {way: [row for row in rows if row["way"] == way] for way in values_of(rows, "way")}
    lines = [
        [way, *(f"{np.mean([int(row[name]) for row in own]):.2f}" for name in names)] for way, own in shares.items()
    ]
    return markdown(["held by 90 % intervals", *(name.removesuffix("_covered") for name in names)], lines)


# Tables that take numbers as numbers.
READERS = {
    "eleven_tasks": lambda path: tables.read(path, eleven_tasks.NUMBERS),
    "importance_weighting": tables.read,
    "gam_interactions": gam_interactions_tables.read,
    "beyond": beyond_tables.read,
    "long_runs": run_tables.read,
}


# The tables: rows, or rows and what is shown of them.
def calibrated(rows):
    """Of each model with distributions of its hyper-parameters, how often 90 % intervals hold the true values."""
    lines = []
    for name in values_of([row for row in rows if row["site"]], "model"):
        shares = [float(row["inside_90"]) for row in rows if row["model"] == name]
        lines.append([name, str(len(shares)), f"{min(shares):.2f}", f"{max(shares):.2f}"])
    return markdown(["model", "hyper-parameters", "least covered", "most covered"], lines)


TABLES = {
    "bayesian_optimisation": regret,
    "calibration_of_gallery": calibrated,
    "additive_coverage": additive_coverage.table,
    "additive_numbers": additive_numbers.table,
    "additive_steps": additive_steps.table,
    "censored_coverage": covered,
    "decoupled_comparison, MAE": functools.partial(errors_of, kind="regression"),
    "decoupled_comparison, accuracy": functools.partial(errors_of, kind="classification"),
    "decoupled_convergence": convergence,
    "decoupled_map": decoupled_map.table,
    "decoupled_map, points": decoupled_map.points_table,
    "decoupled_means": decoupled_means.table,
    "gradient_noise": gradient_noise.table,
    "deep_defaults": deep_defaults.table,
    "defaults": defaults.table,
    "deep_starts": only(
        deep_starts.table,
        ("start", "yacht: test log density", "housing: test log density", "energy: test log density"),
    ),
    "dgp_letters": letters,
    "eleven_tasks": eleven_tasks.table,
    "equal_seconds": equal_seconds.table,
    "functionals_cox": functools.partial(means, by=("way",), metrics={"covered": 2, "width": 2, "rmse": 2}),
    "functionals_eight": functools.partial(means, by=("way",), metrics={"log_density": 2, "rmse": 2}),
    "functionals_eight_gpytorch": functools.partial(means, by=("way",), metrics={"log_density": 2, "rmse": 2}),
    "functionals_monotone": functools.partial(
        means,
        by=("shape", "engine"),
        metrics={"worst_fall": 3, "rmse_where_flat": 2, "rmse_where_steep": 2, "covered": 2},
    ),
    "gam_binary": gam,
    "gam_counts": gam,
    "gam_interactions": only(
        gam_interactions_tables.compare,
        ("model", "pairs", "log density", "in the 90 % band", "log density above chosen", "CPU s"),
    ),
    "gam_peers, log density": gam_peers_tables.density,
    "gam_peers, error": gam_peers_tables.rmse,
    "gam_peers, seconds": gam_peers_tables.seconds,
    "gam_peers, ahead": gam_peers_tables.ahead,
    "gam_peers, simulations": gam_peers_tables.waves,
    "gam_peers, terms": gam_peers_tables.terms,
    "gam_peers, pairs": gam_peers_tables.pairs,
    "gam_peers, many": gam_peers_tables.many,
    "gam_many_terms": gam_peers_tables.many_terms,
    "gam_programs": gam_peers_tables.programs,
    "gpu": on_a_gpu,
    "after_fit": after_fit.table,
    "how_long": how_long.table,
    "memory": memory.table,
    "importance_gradients": importance_gradients.table,
    "importance_weighting": importance_weighting.table,
    "importance_weighting, pairs": importance_weighting.pairs,
    "lengthscale_starts": starts,
    "long_runs, decoupled": functools.partial(run_tables.by_method, experiment="decoupled"),
    "long_runs, decoupled pairs": functools.partial(run_tables.by_pair, experiment="decoupled"),
    "long_runs, labels pairs": functools.partial(run_tables.by_pair, experiment="classes"),
    "long_runs, deep": functools.partial(run_tables.by_method, experiment="deep"),
    "long_runs, deep pairs": functools.partial(run_tables.by_pair, experiment="deep"),
    "long_runs, depth": run_tables.by_depth,
    "long_runs, depth gains": run_tables.gains_by_depth,
    **{
        f"decoupled_seconds, {name}": functools.partial(decoupled_seconds.table, data_set=name)
        for name in ("kin8nm", "protein_raw")
    },
    "latent_scores, starts": latent_scores.by_start,
    "long_runs, K": run_tables.by_samples,
    "neighbours": neighbours.table,
    "normality, ways": normality.ways_table,
    "neighbours_more": neighbours_more.table,
    "neighbours_peers": neighbours_peers.table,
    "noisy_coverage": covered,
    "peers": peers_tables.table,
    "peers, memory": peers_tables.memory,
    "scale": only(devices, ("inducing points", "1 device", "4 devices", "16 devices", "64 devices")),
    "scale_here": here,
    "stations": functools.partial(means, by=("pooling",), metrics={"log_density": 3, "squared_error": 3}),
    "stein_air_quality, days": stein_air_quality.days_table,
    "stein_air_quality_800": air_quality,
    "stein_classification": functools.partial(pivot, line="dataset", column="engine", metric="log_density", best=None),
    "stein_classification, accuracy": functools.partial(
        pivot, line="dataset", column="engine", metric="accuracy", best=None
    ),
    "stein_geometry": geometry,
    "stein_space_time": stein_space_time.table,
    "stein_space_time, start": stein_space_time.start_table,
    "stein_space_time, spread": stein_space_time.beside_chains,
    "stein_regression, auto": only(
        stein_regression.paired_table,
        ("dataset", "stein, 20 particles", "maximum likelihood", "variational", "variational, 2 starts", "NUTS"),
    ),
    "stein_regression, one kernel": only(
        lambda rows: stein_regression.paired_table(stein_regression.one_kernel(rows)),
        ("dataset", "stein, 2 particles", "maximum likelihood", "variational", "variational, 2 starts", "NUTS"),
    ),
    "stein_regression, seconds": only(
        stein_regression.seconds_table,
        ("seconds", "stein.auto, 20 particles", "stein, 2 particles", "maximum likelihood", "variational", "NUTS"),
    ),
    "stein_paper_model": stein_regression.paired_table,
    "two_modes": two_modes.table,
    "weights_from_fit": weights_from_fit.table,
    "weights_from_fit, pairs": weights_from_fit.pairs,
}  # fmt: skip
SHOWN = ("set", "ours", "best printed GP", "verdict", "gain over linear: ours", "printed")  # of the table `beyond`
# Tables with printed values, which are not here: rows and the folder of data.
PRINTED = {
    "beyond": only(beyond_tables.table, SHOWN),
    "long_runs, decoupled printed": functools.partial(printed_tables.by_pair, experiment="decoupled"),
    "long_runs, labels printed": functools.partial(printed_tables.by_pair, experiment="classes"),
    "long_runs, deep printed": functools.partial(printed_tables.by_pair, experiment="deep"),
    "latent_scores": latent_scores.table,
    "latent_scores, levels": latent_scores.levels,
    "latent_scores, pairs": latent_scores.pairs,
    "latent_scores, depth alone": functools.partial(latent_scores.pairs, shown=latent_scores.DEPTH_ALONE),
    "normality": normality.table,
    "long_runs, depth printed": printed_tables.by_depth,
}


def pages(*folders):
    """The pages that show rows, of the guide and the results: tables below a mark, or numbers in their words."""
    folders = folders or (guide_figures.GUIDE, RESULTS / "results")
    texts = {page: page.read_text() for folder in folders for page in sorted(folder.rglob("*.md"))}
    return [page for page, text in texts.items() if TABLE.search(text) or facts.FACT.search(text)]


def rebuilt(text, folder, data=None):
    """The text with its tables and `facts` made anew; those of other data's printed values stay without ``data``."""

    def table(match):
        name, shown = match[2], match[2] if match[3] is None else f"{match[2]}, {match[3]}"
        if shown in PRINTED and data is None:
            return match[0]
        rows = READERS[name](path_of(folder, f"{name}.csv")) if name in READERS else rows_of(folder, name)
        made = PRINTED[shown](rows, data) if shown in PRINTED else TABLES[shown](rows)
        return f"{match[1]}{made}\n"

    return TABLE.sub(table, facts.restated(text, folder))


def figures(folder, data):
    """The figures that rows alone make, by name, each beside its rows."""
    labels = mean_and_error(
        rows_of(folder, "stein_classification"), ("dataset", "engine"), stein_classification.METRICS
    )
    surface = path_of(folder, "gam_interactions_surface.csv")
    drawn = {
        "stein_regression": lambda at, to: stein_regression.figure(tables.read(at), to),
        "stein_classification": lambda _, to: stein_classification.figure(labels, to),
        "gam_interactions": lambda at, to: gam_interactions_tables.figure(READERS["gam_interactions"](at), surface, to),
    }
    for module in (
        additive_coverage, decoupled_convergence, decoupled_map, decoupled_seconds, equal_seconds,
        importance_gradients, importance_weighting,
    ):  # fmt: skip
        drawn[module.__name__.split(".")[-1]] = lambda at, to, draw=module.figure: draw(tables.read(at), to)
    if data:
        drawn["beyond"] = lambda at, to: beyond_tables.figure(beyond_tables.read(at), data, to)
    for name, draw in drawn.items():
        rows = path_of(folder, f"{name}.csv")
        draw(rows, rows.with_suffix(".png"))
        yield f"{name}.png"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of data sets with the papers' printed values")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the rows")
    parser.add_argument("--pages", type=Path, nargs="+", default=[], help="folders of the pages")
    parser.add_argument("--figures", type=Path, default=guide_figures.GUIDE / "figures", help="folder of their figures")
    parser.add_argument("--guide", action="store_true", help="run the pages of the guide and draw their figures, too")
    options = parser.parse_args()
    for page in pages(*options.pages):
        before = page.read_text()
        page.write_text(rebuilt(before, options.out, options.data))
        changed = "changed" if page.read_text() != before else "unchanged"
        print(f"{page.name}: {len(TABLE.findall(before))} tables, {changed}")
    kept = path_of(options.out, "long_runs.csv")
    long_runs.rebuild(kept.parent)
    rows = READERS["long_runs"](kept)
    print("figures", ", ".join([*figures(options.out, options.data), *run_tables.figures(rows, options.figures)]))
    for page in guide_figures.with_figures() if options.guide else ():
        print(page.name, *guide_figures.draw(page))


if __name__ == "__main__":
    main()
