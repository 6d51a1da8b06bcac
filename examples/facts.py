"""Numbers that stand in the words of the guide's pages of results, each from the rows that it is about.

In a page ``<!--=NAME-->WORDS<!--.-->`` is shown as WORDS, which ``python -m examples.rebuild`` replaces by what `FACTS`
says of NAME; a test compares them, so neither the words nor the rows change alone.
"""

import functools
import re

import numpy as np

from examples import (
    additive_numbers,
    decoupled_map,
    decoupled_seconds,
    facts_orthogonal,
    facts_stein,
    gam_interactions_tables,
    gam_peers_tables,
    importance_gradients,
    importance_weighting,
    latent_scores,
    run_tables,
)
from examples.tables import COUNTS, apart, means, of_mean, rows_of, with_error

FACT = re.compile(r"(<!--=([\w(), ]+)-->)(.*?)(<!--\.-->)", re.S)


def coverage(folder, belief, metric):
    """Of a belief over simulated data sets: share in bands, error of effects, or nats below a full covariance."""
    rows = rows_of(folder, "additive_coverage")
    full = {row["simulation"]: float(row["bound"]) for row in rows if row["belief"] == "full"}
    own = [row | {"below": full[row["simulation"]] - float(row["bound"])} for row in rows]
    own = [row for row in own if row["belief"].startswith(belief)]
    return with_error(*of_mean([float(row[metric]) for row in own]))


def below_optimum(folder, belief, inputs, metric="below"):
    """Nats that a belief is below the optimum of a full covariance, trained or at best, over seeds."""
    rows = [row for row in rows_of(folder, "additive_numbers") if (row["belief"], row["inputs"]) == (belief, inputs)]
    return with_error(*of_mean([float(row[metric]) for row in rows]))


def dead_input(folder):
    rows = rows_of(folder, "gam_peers")
    found = [float(row["dead_term"]) for row in rows if row["dead_term"] and row["fit"] == "ngp.gam"]
    return f"{len(found)} data sets the Sobol index of the dead input is at most {max(found):.4f}"


def peers(folder, number):
    """A number of ``ngp.gam`` beside its peers."""
    return number(rows_of(folder, "gam_peers"))


def engines(folder, engine):
    """Standard deviations of the hyper-parameters of the main job over those of NUTS."""
    rows = {(row["engine"], row["quantity"]): float(row["value"]) for row in rows_of(folder, "compare_engines")}
    names = [f"{name}_sd" for name in ("lengthscale", "variance", "noise")]
    first, second, last = (f"{rows[engine, name] / rows['NUTS', name]:.2f}" for name in names)
    return f"{first}, {second} and {last}"


def ahead(folder, name, model):
    return with_error(*of_mean([float(row["ahead"]) for row in rows_of(folder, name) if row["model"] == model]))


def airfoil(folder, model, other):
    """By how much a model is above another on the same splits of airfoil."""
    rows = gam_interactions_tables.read(folder / "gam_interactions.csv")
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        found.setdefault(row["model"], {})[row["split"]] = float(row["log_density"])
    return with_error(*of_mean(list(apart(found[model], found[other]).values())), 2)


def layers_ahead(folder, method, mark, name="kin8nm"):
    """By how much decoupled layers, one of them hidden, are above others at a share of the seconds."""
    rows = rows_of(folder, "decoupled_seconds")
    return with_error(*decoupled_seconds.apart(rows, f"{name}, hidden layers: 1", method, mark))


def without_hidden(folder, name):
    """By how much a decoupled layer alone is above a coupled one in test log density, at the paper's points."""
    found = run_tables.depths(run_tables.read(folder / "long_runs.csv"))
    return with_error(*of_mean(list(apart(found[name, "decoupled", 0], found[name, "coupled", 0]).values())))


def latent_gain(folder, name, **chosen):
    """By how much LV-GP is above GP on a set, or the first of another pair above the second, by one of the scores."""
    return with_error(*latent_scores.gains(rows_of(folder, "latent_scores"), name, **chosen))


def samples_apart(folder, name, first, second):
    """By how much more importance samples raise the test log density of LV-GP, paired by split."""
    best = run_tables.by_number_of_samples(run_tables.read(folder / "long_runs.csv"))[name]
    return with_error(*of_mean(run_tables.of_samples(best, first, second)))


def letters_apart(folder, first, second):
    """Paired difference of test log density on letters, over splits."""
    return with_error(*importance_weighting.differences(rows_of(folder, "importance_weighting"))[first, second])


def signal(folder, gradient):
    rows = [row for row in rows_of(folder, "importance_gradients") if row["gradient"] == gradient]
    by = {k: [float(row["ratio"]) for row in rows if row["samples"] == k] for k in ("1", "5", "50")}
    return ", ".join(with_error(*of_mean(own)) for own in by.values())


def signal_falls(folder, by):
    return with_error(*importance_gradients.fall(rows_of(folder, "importance_gradients"), "plain", by))


def stations(folder):
    found = means(rows_of(folder, "stations"), "station", "pooling", "log_density")
    return f"{np.mean([gap > 0 for gap in apart(found['partial'], found['none']).values()]):.0%}".replace("%", " %")


def rates(folder):
    found = means(rows_of(folder, "decoupled_rates"), "depth", "method", "ms_per_step")
    ratios = [found["decoupled"][depth] / found["coupled"][depth] for depth in found["coupled"]]
    return f"{min(ratios):.1f} to {max(ratios):.1f} times the time"


def on_the_map(folder, batch):
    """Time of a decoupled step over that of a coupled one, at the paper's points and width, by hidden layers."""
    rows = [row for row in decoupled_map.at_paper(rows_of(folder, "decoupled_map")) if row["batch"] == batch]
    rows = [row for row in rows if row["width"] == "10" or row["hidden"] == "0"]
    found = {int(row["hidden"]): decoupled_map.ratio_and_error(row) for row in rows}
    return ", ".join(f"{found[hidden]} with {COUNTS[hidden]}" for hidden in sorted(found))


def ways_apart(folder, first, second, metric):
    """By how much one way to hold a decoupled layer is above another, "mean, covariance", paired by seed."""
    rows, digits = rows_of(folder, "decoupled_means"), 2
    found = {
        way: {row["seed"]: float(row[metric]) for row in rows if f"{row['mean']}, {row['covariance']}" == way}
        for way in (first, second)
    }
    return with_error(*of_mean(list(apart(found[first], found[second]).values())), digits)


# Data as people have them.


def of_way(folder, name, way, column, digits=2):
    """The mean of a column over the rows of one way."""
    rows = [float(row[column]) for row in rows_of(folder, name) if row["way"] == way]
    return f"{np.mean(rows):.{digits}f}"


def beside_nuts(folder, way):
    """By how much bands of a way cover less than those of NUTS on the same patterns."""
    rows = rows_of(folder, "functionals_cox")
    own, other = ({row["seed"]: float(row["covered"]) for row in rows if row["way"] == one} for one in (way, "NUTS"))
    return with_error(*of_mean([other[seed] - own[seed] for seed in own]))


def nodes_and_bins(folder):
    """The farthest that coverage of a pattern by nodes is from that by bins, of the same belief."""
    rows = rows_of(folder, "functionals_cox")
    own, other = ({r["seed"]: float(r["covered"]) for r in rows if r["way"] == way} for way in ("SVI", "SVI, bins"))
    return f"{max(abs(own[seed] - other[seed]) for seed in own):.2f}"


FACTS = {
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
    "below, structured": functools.partial(coverage, belief="structured", metric="below"),
    "below, mean field": functools.partial(coverage, belief="mean field", metric="below"),
    "error, full": functools.partial(coverage, belief="full", metric="error"),
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
    "dead input": dead_input,
    "peers, best": functools.partial(peers, number=gam_peers_tables.above_best),
    "peers, EBM": functools.partial(peers, number=gam_peers_tables.beside_ebm),
    "peers, coverage": functools.partial(peers, number=gam_peers_tables.coverages),
    "peers, error": functools.partial(peers, number=gam_peers_tables.smaller_error),
    "peers, seconds": functools.partial(peers, number=gam_peers_tables.times_mgcv),
    "ahead, counts": functools.partial(ahead, name="gam_counts", model="statsmodels GLMGam"),
    "ahead, labels": functools.partial(ahead, name="gam_binary", model="pyGAM LogisticGAM"),
    "airfoil, pairs": functools.partial(airfoil, model=gam_interactions_tables.CHOSEN, other="ngp.gam, main effects"),
    "airfoil, pyGAM": functools.partial(airfoil, model=gam_interactions_tables.CHOSEN, other="pyGAM, the same pairs"),
    "airfoil, EBM": functools.partial(airfoil, model="EBM, its own pairs", other=gam_interactions_tables.CHOSEN),
    "alone, kin8nm": functools.partial(without_hidden, name="kin8nm"),
    "alone, protein": functools.partial(without_hidden, name="protein_raw"),
    "layers, early": functools.partial(layers_ahead, method="coupled", mark=2),
    "layers, end": functools.partial(layers_ahead, method="coupled", mark=5),
    "layers on protein, early": functools.partial(layers_ahead, method="coupled", mark=2, name="protein_raw"),
    "layers on protein, end": functools.partial(layers_ahead, method="coupled", mark=5, name="protein_raw"),
    "layers on protein, orthogonal end": functools.partial(
        layers_ahead, method="orthogonal", mark=5, name="protein_raw"
    ),
    "layers, orthogonal early": functools.partial(layers_ahead, method="orthogonal", mark=1),
    "layers, orthogonal end": functools.partial(layers_ahead, method="orthogonal", mark=5),
    **{
        f"latent, {name}": functools.partial(latent_gain, name=name)
        for name in (*latent_scores.SETS, "autompg", "energy", "housing", "yacht")
    },
    **{
        f"weights, {name}": functools.partial(latent_gain, name=name, pair=(2, 1))
        for name in ("forest", "solar", "airfoil", "power", "autompg", "energy", "housing")
    },
    **{
        f"{gain}, {name}": functools.partial(latent_gain, name=name, pair=pair)
        for gain, pair in (("depth", (3, 1)), ("weights above", (4, 3)))
        for name in ("forest", "solar", "airfoil", "power", "bike")
    },
    **{
        f"latent estimate, {name}": functools.partial(latent_gain, name=name, score="estimate", starts=["usual"])
        for name in ("forest", "solar", "bike")
    },
    **{
        f"samples, {first} over {second}{'' if name == 'autompg' else f', {name}'}": functools.partial(
            samples_apart, name=name, first=first, second=second
        )
        for name in ("autompg", "energy", "housing")
        for first, second in ((5, 1), (20, 5))
    },
    "letters, depth": functools.partial(letters_apart, first="LV-GP-GP, VI", second="LV-GP, VI"),
    "letters, latent inputs": functools.partial(letters_apart, first="LV-GP, VI", second="GP, VI"),
    "letters, IW over VI": functools.partial(letters_apart, first="LV-GP, IW", second="LV-GP, VI"),
    "letters, IW over VI, two layers": functools.partial(letters_apart, first="LV-GP-GP, IW", second="LV-GP-GP, VI"),
    "letters, independent over VI": functools.partial(
        letters_apart, first="LV-GP-GP, independent draws", second="LV-GP-GP, VI"
    ),
    "signal, plain": functools.partial(signal, gradient="plain"),
    "signal, fall": functools.partial(signal_falls, by="median"),
    "signal, fall of sizes": functools.partial(signal_falls, by="size"),
    "signal, doubly": functools.partial(signal, gradient="doubly reparametrised"),
    "engines, SVI": functools.partial(engines, engine="SVI"),
    "engines, Stein": functools.partial(engines, engine="SVGD"),
    "stations": stations,
    "rates": rates,
    "map, all rows": functools.partial(on_the_map, batch="6553"),
    "ways, CB mean": functools.partial(ways_apart, first="cb, gp", second="gpcent, gp", metric="log_density"),
    "ways, gp mean": functools.partial(ways_apart, first="gp, gp", second="gpcent, gp", metric="log_density"),
    "ways, CB covariance": functools.partial(ways_apart, first="gpcent, cb", second="gpcent, gp", metric="log_density"),
    "ways, gp mean, CB covariance": functools.partial(
        ways_apart, first="gp, cb", second="gpcent, cb", metric="log_density"
    ),
    "ways, gp mean, loss": functools.partial(ways_apart, first="gp, gp", second="gpcent, gp", metric="loss_end"),
    "map, 1000 rows": functools.partial(on_the_map, batch="1000"),
}
FACTS |= facts_orthogonal.FACTS | facts_stein.FACTS


def restated(text, folder):
    """The text with its facts as the rows have them."""
    return FACT.sub(lambda match: f"{match[1]}{FACTS[match[2]](folder)}{match[4]}", text)
