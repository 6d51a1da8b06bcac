"""Numbers in the words of the pages on decoupled layers and on importance weights, from the rows: a part of `facts`."""

import functools

import numpy as np
from scipy import stats

from examples.studies.deep import decoupled_map, decoupled_means, decoupled_seconds, gradient_noise
from examples.studies.importance import (
    importance_gradients,
    latent_scores,
    normality,
    weights_from_fit,
)
from examples.studies.tables import run_tables
from examples.tools.tables import (
    COUNTS,
    apart,
    direction,
    judged,
    listed,
    of_mean,
    path_of,
    rows_of,
    seen,
    told,
    with_error,
)

# Sets with the largest gains of latent inputs that the paper prints, largest first, but fertility and gas, which were
# not run, and challenger, whose rows are long runs.
LARGEST = ("solar", "bike", "keggdirected", "forest", "airfoil")


def layers_ahead(folder, method, mark, name="kin8nm", table="decoupled_seconds"):
    """By how much decoupled layers, one of them hidden, are above others at a share of the seconds or epochs."""
    rows = rows_of(folder, table)
    return judged(decoupled_seconds.apart(rows, f"{name}, hidden layers: 1", method, mark))


def steps_of_layers(folder, name):
    """Seconds of a step of decoupled layers over those of coupled ones, from their steps in equal seconds."""
    rows = [row for row in decoupled_seconds.at_mark(rows_of(folder, "decoupled_seconds"), 5) if name in row["set"]]
    steps = {way: {r["split"]: int(r["steps"]) for r in rows if r["method"] == way} for way in ("decoupled", "coupled")}
    return with_error(*of_mean([steps["coupled"][one] / own for one, own in steps["decoupled"].items()]), 2)


def decoupled_ahead(folder, name, metric="log_density", hidden=0):
    """By how much decoupled layers are above coupled ones in test log density or RMSE, at the paper's points."""
    found = run_tables.depths(run_tables.read(path_of(folder, "long_runs.csv")), metric)
    gaps = apart(found[name, "decoupled", hidden], found[name, "coupled", hidden]).values()
    return judged(gaps, 3 if metric == "log_density" else 4)


def latent_gain(folder, name, **chosen):
    """By how much LV-GP is above GP on a set, or the first of another pair above the second, by one of the scores."""
    return judged(latent_scores.gains(rows_of(folder, "latent_scores"), name, **chosen))


def latent_told(folder, names=None, pair=latent_scores.PAIRS[0]):
    """On which sets the first method of a pair is ahead of the second, by a t test."""
    rows = rows_of(folder, "latent_scores")
    found = {
        name: latent_scores.gains(rows, name, pair=pair) for name in names or dict.fromkeys(r["set"] for r in rows)
    }
    return told({name: direction(own) for name, own in found.items() if own})


def weights_deeper(folder):
    """On which sets weights gain more with two layers than with one, from the same starts."""
    rows = rows_of(folder, "latent_scores")
    both = {
        name: [latent_scores.gains(rows, name, pair=pair) for pair in latent_scores.PAIRS[:0:-2]]
        for name in dict.fromkeys(row["set"] for row in rows)
    }
    return told({name: direction(np.subtract(*own)) for name, own in both.items() if all(own)})


def long_pairs(folder, first, second):
    """Differences of test log density of the deep long runs, `run_tables.paired`."""
    rows = run_tables.at_paper_sizes(run_tables.read(path_of(folder, "long_runs.csv")), "deep")
    return run_tables.paired(rows, first, second, "log_density")


def challenger(folder, first, second):
    """How far one method is above another on challenger, where 64 inducing inputs are one for each distinct row."""
    rows = run_tables.read(path_of(folder, "long_runs.csv"))
    own = [row for row in rows if (row["experiment"], row["set"]) == ("deep", "challenger")]
    return run_tables.difference(*run_tables.paired(own, first, second, "log_density")["challenger"][:3])


def long_told(folder, first, second):
    return told({name: seen(*own[:3]) for name, own in long_pairs(folder, first, second).items()})


def long_apart(folder, name, first, second):
    return run_tables.difference(*long_pairs(folder, first, second)[name][:3])


def splits_ahead(folder, name, first, second):
    """Splits of a set on which one method is ahead of another, and how likely so many are by chance."""
    rows = run_tables.last_rounds(run_tables.at_paper_sizes(run_tables.read(path_of(folder, "long_runs.csv")), "deep"))
    own = {way: {r["split"]: r["log_density"] for r in rows if (r["set"], r["method"]) == (name, way)}
           for way in (first, second)}  # fmt: skip
    gaps = [*apart(own[first], own[second]).values()]
    count = sum(gap > 0 for gap in gaps)
    return f"{count} of {len(gaps)} splits (sign test, p {stats.binomtest(count, len(gaps)).pvalue:.3f})"


def after_the_fit(folder, pair, metric="log_density"):
    """Two layers on airfoil from the fit by VI: the first of two ways less the second, paired by split."""
    return judged(weights_from_fit.differences(rows_of(folder, "weights_from_fit"), metric)[pair])


def not_normal(folder):
    """On which sets a test sees more predictive densities that are not normal than it does by chance."""
    rows = rows_of(folder, "normality")
    found = {name: direction(normality.more_than_chance(rows, name)) for name in dict.fromkeys(r["set"] for r in rows)}
    signs = {sign: [name for name, own in found.items() if own == sign] for sign in (1, 0)}
    return f"on {listed(signs[1])}" + (f", not seen on {listed(signs[0])}" if signs[0] else "")


def signal_gain(folder):
    """Signal over noise of the doubly reparametrised gradient less that of the plain one, by samples."""
    rows = rows_of(folder, "importance_gradients")
    found = {(row["gradient"], row["samples"], row["split"]): float(row["ratio"]) for row in rows}
    plain, doubly = importance_gradients.KINDS
    splits = sorted({row["split"] for row in rows})
    by = [[found[doubly, k, one] - found[plain, k, one] for one in splits] for k in ("1", "5", "50")]
    return ", ".join(judged(own) for own in by)


def signal_falls(folder, by, kind="plain"):
    return judged(importance_gradients.fall(rows_of(folder, "importance_gradients"), kind, by))


def on_the_map(folder, batch):
    """Time of a decoupled step over that of a coupled one, at the paper's points and width, by hidden layers."""
    rows = [row for row in decoupled_map.at_paper(rows_of(folder, "decoupled_map")) if row["batch"] == batch]
    rows = [row for row in rows if row["width"] == "10" or row["hidden"] == "0"]
    found = {int(row["hidden"]): decoupled_map.ratio_and_error(row) for row in rows}
    return ", ".join(f"{found[hidden]} with {COUNTS[hidden]}" for hidden in sorted(found))


def ways_apart(folder, first, second, count, metric="log_density"):
    """By how much one way to hold a decoupled layer is above another, "mean, covariance", paired by seed."""
    rows = decoupled_means.trained_on(rows_of(folder, "decoupled_means"), count)
    found = {
        way: {row["seed"]: float(row[metric]) for row in rows if f"{row['mean']}, {row['covariance']}" == way}
        for way in (first, second)
    }
    return judged(apart(found[first], found[second]).values(), 2)


def gradient_noise_apart(folder, key):
    """Powers of ten that noise of "cb" coefficients is above that of "gpcent", as it is or over signal, by seed."""
    rows = rows_of(folder, "gradient_noise")
    own, other = (np.log10(gradient_noise.by_seed(rows, mean, "600", "coefficients", key)) for mean in ("cb", "gpcent"))
    return judged(own - other, 2)


def gradients_of_inputs(folder, mean):
    """Size of the mean gradient of inducing inputs over that of coefficients, over seeds and marks."""
    rows = rows_of(folder, "gradient_noise")
    shares = [gradient_noise.shares(rows, mean, steps) for steps in dict.fromkeys(row["steps"] for row in rows)]
    return f"{np.min(shares):.2f} to {np.max(shares):.2f}"


FACTS = {
    "gradients of inputs, cb": functools.partial(gradients_of_inputs, mean="cb"),
    "gradients of CB, noise": functools.partial(gradient_noise_apart, key="noise"),
    "gradients of CB, over signal": functools.partial(gradient_noise_apart, key="over"),
    "alone, kin8nm": functools.partial(decoupled_ahead, name="kin8nm"),
    "alone, protein": functools.partial(decoupled_ahead, name="protein_raw"),
    "alone, kin8nm, RMSE": functools.partial(decoupled_ahead, name="kin8nm", metric="rmse"),
    "two hidden, kin8nm": functools.partial(decoupled_ahead, name="kin8nm", hidden=2),
    "layers on protein, end": functools.partial(layers_ahead, method="coupled", mark=5, name="protein_raw"),
    "layers on protein, orthogonal end": functools.partial(
        layers_ahead, method="orthogonal", mark=5, name="protein_raw"
    ),
    "layers, orthogonal end": functools.partial(layers_ahead, method="orthogonal", mark=5),
    "layers on protein, steps": functools.partial(steps_of_layers, name="protein_raw"),
    "map, all rows": functools.partial(on_the_map, batch="6553"),
    **{
        f"ways{where}, {name}": functools.partial(ways_apart, first=first, second=second, count=count)
        for where, count in (("", 500), (" of whole", decoupled_means.WHOLE))
        for name, first, second in (("CB mean", "cb, gp", "gpcent, gp"), ("gp mean", "gp, gp", "gpcent, gp"))
    },
    "ways of whole, CB covariance": functools.partial(
        ways_apart, first="gpcent, cb", second="gpcent, gp", count=decoupled_means.WHOLE
    ),
    "epochs, end": functools.partial(layers_ahead, method="coupled", mark=5, table="decoupled_epochs"),
    "latent, largest gains": functools.partial(latent_told, names=LARGEST),
    "latent, common sets": functools.partial(latent_told, names=("autompg", "energy", "housing", "yacht")),
    "weights, sets": functools.partial(latent_told, pair=(2, 1)),
    "depth, sets": functools.partial(latent_told, pair=(3, 1)),
    "weights above, sets": functools.partial(latent_told, pair=(4, 3)),
    "latent, challenger": functools.partial(challenger, first="LV-GP VI", second="GP VI"),
    "latent, yacht, ten splits": functools.partial(long_apart, name="yacht", first="LV-GP VI", second="GP VI"),
    "weights after the fit": functools.partial(after_the_fit, pair=("IW", "VI")),
    "not normal": not_normal,
    "weights, energy, usual start": functools.partial(long_apart, name="energy", first="LV-GP IW", second="LV-GP VI"),
    "weights, deeper": weights_deeper,
    **{
        f"latent in two layers, {name}": functools.partial(latent_gain, name=name, pair=(3, 5))
        for name in ("forest", "power", "bike")
    },
    **{
        f"latent estimate, {name}": functools.partial(latent_gain, name=name, score="estimate", starts=["usual"])
        for name in ("forest", "solar", "bike")
    },
    "weights, autompg, usual start": functools.partial(latent_gain, name="autompg", pair=(2, 1), starts=["usual"]),
    "depth alone, sets": functools.partial(long_told, first="GP-GP VI", second="GP VI"),
    "depth alone, yacht": functools.partial(splits_ahead, name="yacht", first="GP-GP VI", second="GP VI"),
    "signal, gain": signal_gain,
    "signal, fall": functools.partial(signal_falls, by="median"),
    "signal, fall of the other": functools.partial(signal_falls, by="median", kind=[*importance_gradients.KINDS][1]),
    "signal, fall of sizes": functools.partial(signal_falls, by="size"),
}
