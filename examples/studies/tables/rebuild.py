"""Rebuilds the tables of the guide's pages, and the figures that need no more, from the rows of the examples.

    python -m examples.studies.tables.rebuild [--data DATA] [--out FOLDER] [--guide]

A table stands below a comment that names its rows, ``<!-- rows: stein_regression -->``, and is replaced as a whole.
Words around it are a person's, but for the numbers that `facts` makes. ``--data`` is wanted by what compares with
printed values. ``--guide`` also runs the pages of the guide and draws their figures. A test sees that the tables of
the pages, and the numbers in their words, are those of the rows.
"""

import argparse
import functools
import re
from pathlib import Path

from examples import two_modes
from examples.studies.additive import additive_coverage, additive_numbers, additive_steps
from examples.studies.deep import (
    decoupled_map,
    decoupled_means,
    decoupled_seconds,
    deep_defaults,
    gradient_noise,
)
from examples.studies.eleven_tasks import eleven_tasks
from examples.studies.gam import gam_interactions_tables, gam_peers_tables
from examples.studies.hyperparameters import defaults
from examples.studies.importance import (
    importance_gradients,
    importance_weighting,
    latent_scores,
    normality,
    weights_from_fit,
)
from examples.studies.neighbours import neighbours, neighbours_chosen, neighbours_more, neighbours_peers
from examples.studies.orthogonal import decoupled_convergence, equal_seconds, larger_bases
from examples.studies.peers import beyond_tables, peers_tables
from examples.studies.series import line_series
from examples.studies.side_by_side import long_runs
from examples.studies.speed import after_fit, how_long, line_speed, small_fits, step_floor, step_kernels
from examples.studies.stein import stein_air_quality, stein_classification, stein_regression, stein_space_time
from examples.studies.tables import facts, printed_tables, run_tables
from examples.studies.tables.page_tables import (
    calibrated,
    convergence,
    covered,
    devices,
    gam,
    geometry,
    here,
    letters,
    means,
    on_a_gpu,
    only,
    pivot,
    regret,
    starts,
    versions,
)
from examples.tools import guide_figures, tables
from examples.tools.tables import mean_and_error, path_of, rows_of

RESULTS = Path(__file__).parents[2]  # rows are in `results`, and in the folders of `studies`
PAGES = guide_figures.GUIDE / "papers"
TABLE = re.compile(r"(<!-- rows: (\S+?)(?:, (.+?))? -->\n)((?:\|.*\n)*)")


# Tables that take numbers as numbers.
READERS = {
    "eleven_tasks": lambda path: tables.read(path, eleven_tasks.NUMBERS),
    "importance_weighting": tables.read,
    "gam_interactions": gam_interactions_tables.read,
    "beyond": beyond_tables.read,
    "long_runs": run_tables.read,
}
# The tables: rows, or rows and what is shown of them.
TABLES = {
    "bayesian_optimisation": regret,
    "calibration_of_gallery": calibrated,
    "additive_coverage": additive_coverage.table,
    "additive_numbers": additive_numbers.table,
    "additive_steps": additive_steps.table,
    "censored_coverage": covered,
    "decoupled_convergence": convergence,
    "decoupled_map": decoupled_map.table,
    "decoupled_map, points": decoupled_map.points_table,
    "decoupled_epochs": decoupled_seconds.by_epochs,
    "decoupled_means": decoupled_means.table,
    "decoupled_means, whole": functools.partial(decoupled_means.table, count=decoupled_means.WHOLE),
    "gradient_noise": gradient_noise.table,
    "deep_defaults": deep_defaults.table,
    "defaults": defaults.table,
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
    "importance_gradients": importance_gradients.table,
    "importance_weighting": importance_weighting.table,
    "importance_weighting, pairs": importance_weighting.pairs,
    "larger_bases": larger_bases.table,
    "lengthscale_starts": starts,
    "line_series": line_series.table,
    "line_series, tinygp": line_series.beside,
    "line_speed": line_speed.table,
    "long_runs, depth": run_tables.by_depth,
    "long_runs, depth gains": run_tables.gains_by_depth,
    **{
        f"decoupled_seconds, {name}": functools.partial(decoupled_seconds.table, data_set=name)
        for name in ("kin8nm", "protein_raw")
    },
    "latent_scores, starts": latent_scores.by_start,
    "neighbours": neighbours.table,
    "normality, ways": normality.ways_table,
    "neighbours_chosen": neighbours_chosen.table,
    "neighbours_more": neighbours_more.table,
    "neighbours_peers": neighbours_peers.table,
    "noisy_coverage": covered,
    "peers": peers_tables.table,
    "peers, memory": peers_tables.memory,
    "scale": only(devices, ("inducing points", "1 device", "4 devices", "16 devices", "64 devices")),
    "scale_here": here,
    "small_fits": small_fits.table,
    "stations": functools.partial(means, by=("pooling",), metrics={"log_density": 3, "squared_error": 3}),
    "step_floor": step_floor.table,
    "step_kernels": step_kernels.table,
    "stein_air_quality, days": stein_air_quality.days_table,
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
    "stein_paper_model, recipe": lambda rows: stein_regression.paired_table(stein_regression.one_kernel(rows)),
    "two_modes": two_modes.table,
    "versions": versions,
    "weights_from_fit": weights_from_fit.table,
    "weights_from_fit, pairs": weights_from_fit.pairs,
}  # fmt: skip
SHOWN = ("set", "ours", "best printed GP", "verdict", "gain over linear: ours", "printed")  # of the table `beyond`
# Tables with printed values, which are not here: rows and the folder of data.
PRINTED = {
    "beyond": only(beyond_tables.table, SHOWN),
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
    run_tables.draw_depths(rows, options.figures / "long_runs_depth.png")
    print("figures", ", ".join([*figures(options.out, options.data), "long_runs_depth.png"]))
    for page in guide_figures.with_figures() if options.guide else ():
        print(page.name, *guide_figures.draw(page))


if __name__ == "__main__":
    main()
