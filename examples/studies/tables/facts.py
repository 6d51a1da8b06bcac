"""Numbers that stand in the words of the guide's pages of results, each from the rows that it is about.

In a page ``<!--=NAME-->WORDS<!--.-->`` is shown as WORDS. ``python -m examples.studies.tables.rebuild`` replaces it by
what `FACTS` says of NAME; a test compares them, so neither the words nor the rows change alone.
"""

import functools
import re

import numpy as np

from examples.studies.additive import additive_numbers, additive_steps
from examples.studies.gam import gam_interactions_tables, gam_peers_tables
from examples.studies.neighbours import neighbours
from examples.studies.stein import stein_space_time
from examples.studies.tables import facts_deep, facts_orthogonal, facts_stein
from examples.tools.tables import apart, judged, means, of_mean, path_of, rows_of, with_error

FACT = re.compile(r"(<!--=([\w(), ]+)-->)(.*?)(<!--\.-->)", re.S)


def coverage(folder, belief, metric):
    """Of a belief over simulated data sets: share in bands, error of effects, or nats below a full covariance."""
    rows = rows_of(folder, "additive_coverage")
    full = {row["simulation"]: float(row["bound"]) for row in rows if row["belief"] == "full"}
    own = [row | {"below": full[row["simulation"]] - float(row["bound"])} for row in rows]
    own = [float(row[metric]) for row in own if row["belief"].startswith(belief)]
    return judged(own) if metric == "below" else f"{with_error(*of_mean(own))} ({len(own)})"


def below_optimum(folder, belief, inputs, metric="below"):
    """Nats that a belief is below the optimum of a full covariance, trained or at best, over seeds."""
    rows = [row for row in rows_of(folder, "additive_numbers") if (row["belief"], row["inputs"]) == (belief, inputs)]
    return judged([float(row[metric]) for row in rows])


def steps_over(folder, other):
    """Time of a structured step over that of another belief, by the number of components."""
    rows = rows_of(folder, "additive_steps")
    found = {int(row["components"]): additive_steps.ratio(rows, row["components"], other) for row in rows}
    return ", ".join(f"{found[components]} with {components}" for components in sorted(found))


def peers(folder, number, **chosen):
    """A number of ``ngp.gam`` beside its peers."""
    return number(rows_of(folder, "gam_peers"), **chosen)


def engines(folder, engine):
    """Standard deviations of the hyper-parameters of the main job over those of NUTS."""
    rows = {(row["engine"], row["quantity"]): float(row["value"]) for row in rows_of(folder, "compare_engines")}
    names = [f"{name}_sd" for name in ("lengthscale", "variance", "noise")]
    first, second, last = (f"{rows[engine, name] / rows['NUTS', name]:.2f}" for name in names)
    return f"{first}, {second} and {last}"


def ahead(folder, name, model):
    return judged([float(row["ahead"]) for row in rows_of(folder, name) if row["model"] == model])


def airfoil(folder, model, other):
    """By how much a model is above another on the same splits of airfoil."""
    rows = gam_interactions_tables.read(path_of(folder, "gam_interactions.csv"))
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        found.setdefault(row["model"], {})[row["split"]] = float(row["log_density"])
    return judged(apart(found[model], found[other]).values(), 2)


def beside_mgcv(folder, name):
    """By how much ``ngp.gam`` is above mgcv on a set, paired by split."""
    return judged(gam_peers_tables.paired(rows_of(folder, "gam_peers"), "mgcv")[name])


def stations(folder):
    found = means(rows_of(folder, "stations"), "station", "pooling", "log_density")
    return f"{np.mean([gap > 0 for gap in apart(found['partial'], found['none']).values()]):.0%}".replace("%", " %")


# Data as people have them.


def of_way(folder, name, way, column, digits=2):
    """The mean of a column over the rows of one way."""
    rows = [float(row[column]) for row in rows_of(folder, name) if row["way"] == way]
    return f"{np.mean(rows):.{digits}f}"


def beside_nuts(folder, way):
    """By how much bands of a way cover less than those of NUTS on the same patterns."""
    rows = rows_of(folder, "functionals_cox")
    own, other = ({row["seed"]: float(row["covered"]) for row in rows if row["way"] == one} for one in (way, "NUTS"))
    return judged([other[seed] - own[seed] for seed in own])


def nodes_and_bins(folder):
    """The farthest that coverage of a pattern by nodes is from that by bins, of the same belief."""
    rows = rows_of(folder, "functionals_cox")
    own, other = ({r["seed"]: float(r["covered"]) for r in rows if r["way"] == way} for way in ("SVI", "SVI, bins"))
    return f"{max(abs(own[seed] - other[seed]) for seed in own):.2f}"


def fresh(folder, name):
    """Of test rows that repeat none of the fit by neighbours, over splits in single precision."""
    rows = [r for r in rows_of(folder, "neighbours") if (r["set"], r["type"]) == (name, "float32")]
    return with_error(*of_mean(neighbours.by_split(rows, "fresh")))


def core_hours(folder, name, digits=1, **chosen):
    """Hours of one core that the rows of a table took, by the seconds in them, of those with values in ``chosen``."""
    rows = [row for row in rows_of(folder, name) if all(row[key] in own for key, own in chosen.items())]
    return f"{sum(float(row['seconds'] or 0) for row in rows) / 3600:.{digits}f}"


# Runs of the table of core hours in `results/papers.md`, and their rows.
SPENT = {
    "steps of the paper": (
        "decoupled_convergence",
        {"method": [f"OrthNat, {w}" for w in ("Adam", "exact", "diagonal")]},
    ),
    "draws without steps": ("stein_space_time", {"engine": [stein_space_time.STARTS]}),
    "weights from the fit": ("weights_from_fit", {}),
    "depth alone": ("latent_scores", {"method": ["GP-GP VI"]}),
    "keggdirected": ("latent_scores", {"set": ["keggdirected"], "start": ["targets"]}),
    "weights from the usual start": (
        "latent_scores",
        {"set": ["autompg"], "method": ["LV-GP IW"], "start": ["usual"]},
    ),
    "not normal": ("normality", {}),
    "small sets": ("stein_regression", {"version": ["0.3.0-7896021a"]}),
    "labels": ("stein_classification", {}),
    "model of the paper": ("stein_paper_model", {}),
    "larger bases": ("larger_bases", {}),
    "epochs of the paper": ("decoupled_epochs", {"mark": ["5"]}),
    "all of kin8nm": ("decoupled_means", {"rows": ["6553"]}),
}


FACTS = {
    **{
        f"spent, {run}": functools.partial(core_hours, name=name, digits=2, **chosen)
        for run, (name, chosen) in SPENT.items()
    },
    "neighbours, fresh winewhite": functools.partial(fresh, name="winewhite"),
    "neighbours, fresh protein": functools.partial(fresh, name="protein"),
    "Cox, from anywhere": functools.partial(
        of_way, name="functionals_cox", way="SVI, 400 steps from anywhere", column="covered"
    ),
    "Cox, from anywhere, longer": functools.partial(
        of_way, name="functionals_cox", way="SVI, 1200 steps from anywhere", column="covered"
    ),
    "Cox, SVI": functools.partial(of_way, name="functionals_cox", way="SVI", column="covered"),
    "Cox, beside NUTS": functools.partial(beside_nuts, way="SVI"),
    "Cox, nodes and bins": nodes_and_bins,
    "eight, seconds": functools.partial(
        of_way, name="functionals_eight", way="values and gradients", column="cpu_seconds", digits=0
    ),
    "eight, seconds of GPyTorch": functools.partial(
        of_way,
        name="functionals_eight_gpytorch",
        way="GPyTorch, values and gradients",
        column="cpu_seconds",
        digits=0,
    ),
    "coverage, structured": functools.partial(coverage, belief="structured", metric="coverage"),
    "coverage, full": functools.partial(coverage, belief="full", metric="coverage"),
    "coverage, mean field": functools.partial(coverage, belief="mean field", metric="coverage"),
    "below, mean field": functools.partial(coverage, belief="mean field", metric="below"),
    "error, structured": functools.partial(coverage, belief="structured", metric="error"),
    **{
        f"{belief}, {inputs}": functools.partial(below_optimum, belief=belief, inputs=inputs)
        for belief in ("structured(20)", "structured(40)")
        for inputs in additive_numbers.INPUTS
    },
    **{
        f"mean field at best, {inputs}": functools.partial(
            below_optimum, belief="mean field", inputs=inputs, metric="at_best"
        )
        for inputs in additive_numbers.INPUTS
    },
    "steps over full": functools.partial(steps_over, other="full"),
    "steps over mean field": functools.partial(steps_over, other="mean field"),
    "peers, best": functools.partial(peers, number=gam_peers_tables.above_best),
    "peers, EBM": functools.partial(peers, number=gam_peers_tables.beside_ebm),
    "peers, coverage": functools.partial(peers, number=gam_peers_tables.coverages),
    "peers, error": functools.partial(peers, number=gam_peers_tables.smaller_error),
    "peers, error beside select": functools.partial(
        peers, number=gam_peers_tables.smaller_error, other="mgcv, select", noises=("2", "4")
    ),
    "peers, seen": functools.partial(peers, number=gam_peers_tables.seen),
    "peers, mgcv on blood": functools.partial(beside_mgcv, name="blood"),
    "peers, seconds": functools.partial(peers, number=gam_peers_tables.times_mgcv),
    "ahead, counts": functools.partial(ahead, name="gam_counts", model="statsmodels GLMGam"),
    "ahead, labels": functools.partial(ahead, name="gam_binary", model="pyGAM LogisticGAM"),
    "airfoil, pairs": functools.partial(airfoil, model=gam_interactions_tables.CHOSEN, other="ngp.gam, main effects"),
    "airfoil, pyGAM": functools.partial(airfoil, model=gam_interactions_tables.CHOSEN, other="pyGAM, the same pairs"),
    "airfoil, EBM": functools.partial(airfoil, model="EBM, its own pairs", other=gam_interactions_tables.CHOSEN),
    "engines, SVI": functools.partial(engines, engine="SVI"),
    "engines, Stein": functools.partial(engines, engine="SVGD"),
    "stations": stations,
}
FACTS |= facts_deep.FACTS | facts_orthogonal.FACTS | facts_stein.FACTS


def restated(text, folder):
    """The text with its facts as the rows have them."""
    return FACT.sub(lambda match: f"{match[1]}{FACTS[match[2]](folder)}{match[4]}", text)
