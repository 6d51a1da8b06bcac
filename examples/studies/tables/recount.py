"""Decides the verdicts of the pages of the papers anew, from the rows alone, and counts them.

    python -m examples.studies.tables.recount

It shares nothing with the programs that write tables and numbers of the pages: rows are read as they lie, paired by
split or seed here, and a difference is seen by SciPy's t test at 5 %. Of each claim a line says which parts of it the
rows must show, and whether these are all that the claim is about. All parts of a whole claim: holds. Some, or all of a
part: partly. None: does not hold. Fewer than three splits of what decides it: not measured.
"""

import csv
import functools
import re
from pathlib import Path

import numpy as np
from scipy import stats

EXAMPLES = Path(__file__).parents[2]
PAGES = EXAMPLES / "guide" / "papers"
WORDS = ("holds", "partly", "does not hold", "not measured")


@functools.cache
def table(name):
    (path,) = EXAMPLES.glob(f"**/{name}.csv")
    return list(csv.DictReader(path.read_text().split("\ncomponent,")[0].splitlines()))


def rows(name, **where):
    """Rows of a file with these values."""
    wanted = {key: (own,) if isinstance(own, str) else own for key, own in where.items()}
    return [row for row in table(name) if all(row[key] in own for key, own in wanted.items())]


def gaps(own, key, first, second, score, by=("split",)):
    """Score of the first less that of the second, where both have a row of the same split."""
    found = {}
    for row in own:
        found.setdefault(tuple(row[one] for one in by), {})[row[key]] = float(row[score])
    return [both[first] - both[second] for _, both in sorted(found.items()) if first in both and second in both]


def sign(values):
    """1 or -1 where SciPy sees that the mean is not zero, else 0."""
    if len(values) < 3 or np.ptp(values) == 0:
        return 0
    return int(np.sign(np.mean(values))) if stats.ttest_1samp(values, 0.0).pvalue < 0.05 else 0


def decided(*parts, whole=True):
    """The verdict of parts that are seen or not."""
    return "holds" if all(parts) and whole else "partly" if any(parts) else "does not hold"


def unless(count, least=3):
    """The words "not measured" where fewer splits than that were run."""
    assert count < least, f"{count} splits are enough for a verdict"
    return "not measured"


# Orthogonally decoupled posteriors.


def seconds(name, mark):
    own = rows("equal_seconds", set=name, mark=str(mark))
    return gaps(own, "method", "orthogonal", "coupled", "log_density")


def converged(first, second, score):
    """Over both tasks, differences over seeds."""
    tasks = [[row for row in rows("decoupled_convergence") if row["task"].startswith(t)] for t in ("con", "ring")]
    return [gaps(own, "method", first, second, score, ("seed",)) for own in tasks]


def nats_reached(*methods):
    """Whether all seeds of methods come within 10 nats, on both tasks."""
    return all(row["iterations_to_10_nats"] for row in rows("decoupled_convergence", method=methods))


def bases(first, second):
    return {
        name: sign(gaps(rows("larger_bases", set=name), "method", first, second, "log_density"))
        for name in ("kin40k", "protein", "bike", "keggdirected")
    }


def splits_of(name, **where):
    return len({row["split"] for row in rows(name, **where)})


def orthogonal():
    late, early = seconds("kin40k, 860 seconds", 5), seconds("kin40k", 5)
    natural, points = bases("CoupledNat(400)", "Coupled(400)"), bases("Orth", "Coupled(400)")
    adaptive = [row["iterations_to_10_nats"] for row in rows("decoupled_convergence", method=["Orth", "Coupled"])]
    far = [row["iterations_to_1_percent"] for row in rows("decoupled_convergence", method="Decoupled")]
    steps = [
        np.mean([float(r["seconds"]) / float(r["steps"]) for r in rows("equal_seconds", set=n, method=m, mark="5")])
        for n in ("kin40k, points / 4", "kin40k, 860 seconds")
        for m in ("orthogonal", "coupled")
    ]
    curvature = [b**2 * (3 - b**2) / (1 + b**2) ** 3 for b in (1.7, 1.8)]
    no_divisor = converged("Orth, no divisor", "Hybrid", "final_bound")
    hybrid = converged("Hybrid", "Decoupled", "final_bound")
    sizes = sum("beta=300" in row["settings"] for row in rows("long_runs", experiment=["decoupled", "classes"]))
    return {
        "better than a coupled": decided(sign(early) > 0, sign(late) > 0),
        "the same after": decided(sign(late) > 0, whole=False),
        "the orthogonal basis": decided(*(sign(own) > 0 for own in converged("Orth", "Coupled", "optimum"))),
        "natural steps need": decided(nats_reached("OrthNat", "CoupledNat"), not any(adaptive)),
        "the same with the": decided(nats_reached("OrthNat, Adam", "OrthNat, exact", "OrthNat, diagonal")),
        "orthogonal before hybrid before decoupled, it": decided(*(sign(own) > 0 for own in no_divisor + hybrid)),
        "a divisor": decided(*(sign(own) > 0 for own in converged("Orth", "Orth, no divisor", "final_bound"))),
        "Decoupled has not": decided(not any(far), whole=False),
        "natural before": decided(*(own > 0 for own in [*natural.values(), *bases("OrthNat", "Orth").values()])),
        "OrthNat has": unless(sizes),
        "the same order in MAE": unless(sizes),
        "the same order on": unless(sizes),
        "ahead of networks": unless(splits_of("long_runs", method="Selu")),
        "points of the mean": decided(*(own > 0 for own in points.values()), whole=False),
        "orthogonal before hybrid before decoupled, te": unless(splits_of("long_runs", method="Hybrid")),
        "points for the mean": decided(steps[0] / steps[1] > steps[2] / steps[3], whole=False),
        "the decoupled objective": decided(curvature[0] > 0 > curvature[1]),
        "the order of six": unless(splits_of("long_runs", set="3droad")),
    }


# Decoupled deep processes.


def depth(name, hidden, score):
    own = [r for r in rows("long_runs", experiment="depth", set=name) if r["method"].endswith(f" {hidden}")]
    own = [row for row in own if row["settings"].startswith("coupled=200 mean=500")]
    code = max({row["version"] for row in own}, key=[row["version"] for row in own].count)
    last = {}
    for row in own:
        if row["version"] == code:
            place = row["method"].split()[0], row["split"]
            last[place] = max(last.get(place, row), row, key=lambda one: int(one["steps"]))
    own = [row | {"kind": kind} for (kind, _), row in last.items()]
    found = {kind: np.mean([float(r[score]) for r in own if r["kind"] == kind]) for kind in ("coupled", "decoupled")}
    return gaps(own, "kind", "decoupled", "coupled", score), found


def layers(name, other, mark, file="decoupled_seconds"):
    own = [row for row in rows(file, mark=str(mark)) if row["set"].startswith(name)]
    return gaps(own, "method", "decoupled", other, "log_density")


def ways(first, second, count):
    own = [row | {"way": f"{row['mean']}, {row['covariance']}"} for row in rows("decoupled_means", rows=str(count))]
    return gaps(own, "way", first, second, "log_density", ("seed",))


def decoupled_deep():
    sets, hidden = ("kin8nm", "protein_raw"), range(1, 5)
    least = lambda row, kind: min(float(ms) for ms in row[f"{kind}_ms"].split())  # noqa: E731
    own = rows("decoupled_map", batch="6553", coupled="200", mean="500", covariance="100")
    faster = {(r["hidden"], r["width"]): least(r, "decoupled") < least(r, "coupled") for r in own}
    density = [sign(depth(name, count, "log_density")[0]) > 0 for name in sets for count in hidden]
    errors = [sign(depth(name, count, "rmse")[0]) < 0 for name in sets for count in hidden]
    alone = [sign(depth(name, 0, "log_density")[0]) > 0 for name in sets]
    alone += [sign(depth(name, 0, "rmse")[0]) < 0 for name in sets]
    printed = {"kin8nm": ((1.32, 1.38, 1.36, 1.36), (1.34, 1.37, 1.37, 1.38))}
    printed["protein_raw"] = ((-2.81, -2.76, -2.75, -2.73), (-2.77, -2.71, -2.69, -2.68))
    near = [
        depth(name, count, "log_density")[1][kind] > printed[name][place][count - 1] - 0.03
        for name in sets
        for count in hidden
        for place, kind in enumerate(("coupled", "decoupled"))
    ]
    exception = depth("kin8nm", 2, "log_density")[0]
    noise = [
        {r["seed"]: (float(r["noise"]), float(r["noise"]) / float(r["size"])) for r in own}
        for own in (
            rows("gradient_noise", mean=m, steps="600", **{"gradient of": "coefficients"}) for m in ("cb", "gpcent")
        )
    ]
    louder = [sign([np.log(noise[0][s][k] / noise[1][s][k]) for s in noise[0]]) > 0 for k in (0, 1)]
    return {
        "a step is": decided(*(own for (count, _), own in faster.items() if count != "0")),
        "and slower": decided(not faster["0", "8"]),
        "better with hidden layers, in test": decided(*density),
        "behind with two": "not measured" if sign(exception) == 0 else decided(sign(exception) < 0),
        "better without": decided(*alone),
        "densities as": decided(*near),
        "the same at": unless(len(layers("kin8nm", "coupled", 5, "decoupled_epochs"))),
        "better in the same seconds": decided(
            *(sign(layers(n[:6], "coupled", m)) > 0 for n in sets for m in range(1, 6))
        ),
        "orthogonal layers": decided(*(sign(layers(name[:6], "orthogonal", 5)) < 0 for name in sets)),
        "as good or better on molecules": unless(len(layers("molecules", "coupled", 5))),
        "better with hidden layers, in RMSE": decided(*errors),
        "better in the same seconds with": unless(
            len([r for r in rows("decoupled_seconds") if "layers: 3" in r["set"]])
        ),
        "means by Cheng": decided(*(sign(ways("cb, gp", "gpcent, gp", count)) < 0 for count in (500, 6553))),
        "the other ways": decided(*(sign(ways("gp, gp", "gpcent, gp", count)) == 0 for count in (500, 6553))),
        "gradients of CB": decided(*louder),
    }


# Stein particles.

AUTO, RECIPE, CHAINS = "stein.auto, 20 particles", "stein, 20 particles", "NUTS"
POINT, NORMAL = "maximum likelihood", "variational"


def particles(first, second, file="stein_regression"):
    """By set, signs over splits, and the means."""
    found = {name: gaps(rows(file, dataset=name), "method", first, second, "log_density")
             for name in dict.fromkeys(row["dataset"] for row in rows(file))}  # fmt: skip
    found = {name: own for name, own in found.items() if len(own) > 2}
    return {name: sign(own) for name, own in found.items()}, [np.mean(own) for own in found.values()]


def on_labels(second, score):
    names = dict.fromkeys(row["dataset"] for row in rows("stein_classification"))
    return {n: gaps(rows("stein_classification", dataset=n), "engine", AUTO, second, score) for n in names}


def mean_of(file, key, value, score, by):
    found = {}
    for row in rows(file, **{key: value}):
        found.setdefault(row[by], []).append(float(row[score]))
    return {name: np.mean(own) for name, own in found.items()}


def stein():
    paper = "stein_paper_model"
    months = gaps(rows("stein_space_time"), "engine", "20 particles", "NUTS, 2 chains", "log_density", ("day",))
    days = gaps(rows("stein_air_quality"), "engine", "stein_auto", CHAINS, "log_density", ("day",))
    near = [stats.t.interval(0.95, len(own) - 1, np.mean(own), stats.sem(own))[0] > -0.02
            for own in on_labels(CHAINS, "log_density").values()]  # fmt: skip
    correct = [  # the claim is of five sets
        sum(np.mean(own) > -1e-9 for own in on_labels(one, "accuracy").values()) >= 5 for one in (NORMAL, CHAINS)
    ]
    ours, chains, point = (
        mean_of("stein_regression", "method", m, "seconds", "dataset") for m in (AUTO, CHAINS, POINT)
    )
    faster = [ours[name] < chains[name] for name in chains if name in ours]
    orders = [np.log10(ours[name] / point[name]) for name in ours]
    modes = {float(row["mass"]) for row in rows("two_modes", method="share of particles")}
    grid = float(rows("two_modes", method="grid")[0]["mass"])
    weights = [abs(float(row["mass"]) - grid) < 0.02 for row in rows("two_modes", method="weights of particles")]
    spread = [float(row["sd_over_nuts"]) > 0.9 for row in rows("conditioned_particles")]
    named = ("airfoil", "challenger", "concreteslump")
    other = ("servo", "machine", "autompg", "housing")
    best = [particles(AUTO, one)[0][name] > 0 for one in (POINT, NORMAL) for name in named]
    level = [particles(AUTO, POINT, paper)[0][name] == 0 for name in other]
    calibration = sign(on_labels(NORMAL, "calibration_error")["mammographic"])
    kept = {row["steps"] for row in rows("stein_regression", method=[POINT, NORMAL, "stein, 2 particles"])}
    test = (EXAMPLES.parent / "tests/stein/test_direction.py").read_text()
    behind = sign(particles(RECIPE, CHAINS, paper)[1]) < 0
    return {
        "better than maximum": decided(
            sign(particles(RECIPE, POINT, paper)[1]) > 0, *(s > 0 for s in particles(AUTO, POINT)[0].values())
        ),
        "better than variational": decided(
            sign(particles(RECIPE, NORMAL, paper)[1]) > 0, *(s > 0 for s in particles(AUTO, NORMAL)[0].values())
        ),
        "best on": decided(*best, whole=False),
        "no difference": decided(*level, whole=False),
        "better than two": decided(*(s > 0 for s in particles(AUTO, "variational, 2 starts")[0].values())),
        "few particles": decided(
            *(s <= 0 for s in particles(AUTO, "stein.auto, 2 particles")[0].values()), whole=False
        ),
        "as good as sampling, reg": decided(not behind, sign(particles(AUTO, CHAINS, paper)[1]) == 0),
        "auto is": decided(
            sign(particles(AUTO, RECIPE, paper)[1]) > 0, *(s > 0 for s in particles(AUTO, RECIPE)[0].values())
        ),
        "as good as sampling, lab": decided(*near),
        "accuracy": decided(*correct),
        "better calibrated": "not measured" if calibration == 0 else decided(calibration < 0),
        "particles stand": decided(all(0 < mass < 1 for mass in modes), whole=False),
        "cheaper": decided(*faster),
        "two particles": "not measured" if kept == {"300"} else "holds",
        "20 particles": decided(np.median(orders) < 1.5),
        "comparable": decided(sign(months) == 0, whole=False),
        "the same on fewer": decided(sign(days) == 0, whole=False),
        "the same with 800": unless(len(rows("stein_space_time", inducing="800"))),
        "every step": decided("def test_each_step_lowers_the_divergence_of_normal_particles" in test),
        "weights tell": decided(*weights, whole=False),
        "particles have": decided(*spread, whole=False),
    }


# Additive processes.


def below(belief, inputs, column="below"):
    return np.mean([float(row[column]) for row in rows("additive_numbers", belief=belief, inputs=inputs)])


def additive():
    held = {name: np.mean([float(r["coverage"]) for r in rows("additive_coverage", belief=name)])
            for name in ("structured, rank 24", "mean field", "full")}  # fmt: skip
    wrong = [float(r["coverage"]) - 0.9 for r in rows("additive_coverage", belief="mean field")]
    batches = [float(r["nats_below"]) for r in rows("defaults") if r["kind"] == "batches, 1200 steps: structured(40)"]
    dead = [float(r["called_dead"]) for r in rows("gam_peers", task="waves", noise="1", fit="ngp.gam")]
    least = {(r["components"], r["belief"]): min(map(float, r["ms"].split())) for r in rows("additive_steps")}
    belief = next(one for _, one in least if one.startswith("structured"))
    cheaper = [least[count, belief] < 0.99 * least[count, "full"] for count in ("9", "16")]
    lead = [
        [float(r["ahead"]) for r in rows(f, model=m)]
        for f, m in (("gam_binary", "pyGAM LogisticGAM"), ("gam_counts", "statsmodels GLMGam"))
    ]
    keep = [r | {"log_density": float(r["log_density"])} for r in rows("gam_interactions")]
    paired = lambda first, second: gaps(keep, "model", first, second, "log_density")  # noqa: E731
    chosen = "ngp.gam, chosen pairs"
    ratio = int(rows("additive_numbers", belief="structured(40)")[0]["numbers"]) / 10_585
    return {
        "bands hold": decided(abs(held["structured, rank 24"] - 0.9) < 0.02),
        "those of mean": decided(sign(wrong) < 0),
        "the structured": decided(*(below("structured(40)", one) < 0.1 for one in ("uniform", "correlated"))),
        "it does so": decided(ratio < 1, below("structured(40)", "correlated") < 0.1),
        "mean field": decided(
            below("mean field", "correlated", "at_best") > 10 * below("mean field", "uniform", "at_best")
        ),
        "it trains": decided(len(batches) > 2, *(one < 1 for one in batches)),
        "components": decided(np.mean(dead) == 1, len(dead) == 200),
        "its step": decided(*cheaper),
        "as good as established GAMs, labels": decided(abs(np.mean(lead[0])) < 0.02, whole=False),
        "as good as established GAMs, counts": decided(np.mean(lead[1]) < 0.02, whole=False),
        "chosen": decided(sign(paired(chosen, "ngp.gam, main effects")) > 0, whole=False),
        "as good as established GAMs with": decided(
            sign(paired(chosen, "pyGAM, the same pairs")) > 0,
            sign(paired(chosen, "EBM, its own pairs")) >= 0,
            whole=False,
        ),
    }


# Importance weights.


def best(name, method, starts):
    """The row of each split with the highest bound."""
    found = {}
    for row in rows("latent_scores", set=name, method=method):
        if (row["split"], row["start"]) in starts:
            old = found.get(row["split"], row)
            found[row["split"]] = max(old, row, key=lambda one: float(one["bound"] or "-inf"))
    return found


def latent(name, first, second):
    places = [{(r["split"], r["start"]) for r in rows("latent_scores", set=name, method=m)} for m in (first, second)]
    both = places[0] & places[1] if "LV" in first and "LV" in second else places[0] | places[1]
    own = [best(name, method, both) for method in (first, second)]
    return [float(own[0][s]["weighted"]) - float(own[1][s]["weighted"]) for s in sorted(own[0]) if s in own[1]]


def ahead(first, second, names):
    return [sign(latent(name, first, second)) > 0 for name in names]


def letters(first, second):
    return sign(gaps(rows("importance_weighting"), "way", first, second, "log_density"))


LARGE = ("solar", "bike", "keggdirected", "forest", "airfoil")
COMMON = ("autompg", "energy", "housing", "yacht")
TWO_LAYERS = ("forest", "solar", "airfoil", "power", "bike")


def not_normal(name):
    """Whether more than 5 % of the rows of a set are seen to have a belief that is not normal."""
    return sign([float(row["share"]) - 0.05 for row in rows("normality", set=name, way="LV-GP")]) > 0


def added_is_behind(name):
    """Whether a latent input as noise that is added is seen behind one as a column."""
    return sign(gaps(rows("normality", set=name), "way", "LV-GP, added", "LV-GP", "log_density")) < 0


def long_run(name, first, second):
    """Whether a model is seen ahead in the last rows of the long runs of version 0.1.0."""
    own = rows("long_runs", experiment="deep", version="0.1.0-c128c0c-H100", set=name)
    own = [row for row in own if row["settings"].startswith("inducing=128 batch=512")]
    last = {(row["split"], row["method"]): row for row in sorted(own, key=lambda row: int(row["steps"]))}
    return sign(gaps(last.values(), "method", first, second, "log_density")) > 0


def latent_inputs():
    """Claims on latent inputs and depth."""
    printed = {"power": 0.26, "airfoil": 0.35}
    shares = [np.mean(latent(name, "LV-GP VI", "GP VI")) / gain for name, gain in printed.items()]
    both = ("bike", "keggdirected")
    return {
        "latent inputs help where": decided(
            letters("LV-GP, VI", "GP, VI") > 0, *ahead("LV-GP VI", "GP VI", ("forest", "solar", "bike"))
        ),
        "the largest": decided(*ahead("LV-GP VI", "GP VI", LARGE), whole=False),
        "where latent": decided(*map(not_normal, ("forest", "power", "bike", "solar", "autompg"))),
        "latent inputs are": decided(*map(added_is_behind, ("forest", "autompg"))),
        "the printed gains": decided(*(share > 0.1 for share in shares)),
        "latent inputs help: LV": decided(*ahead("LV-GP VI", "GP VI", COMMON)),
        "latent inputs help at": decided(*ahead("LV-GP-GP VI", "GP-GP VI", ("forest", "power", "bike"))),
        "depth helps: GP": decided(*(long_run(name, "GP-GP VI", "GP VI") for name in COMMON)),
        "depth alone": decided(*(not one for one in ahead("GP-GP VI", "GP VI", ("forest", "power")))),
        "depth helps more": unless(splits_of("latent_scores", set=["kin40k", "sml"])),
        "latent inputs and": decided(*ahead("LV-GP VI", "GP VI", both), *ahead("GP-GP VI", "GP VI", both)),
        "three layers": unless(splits_of("latent_scores", method=["LV-GP-GP-GP VI", "LV-GP-GP-GP IW"])),
        "depth helps above": decided(*ahead("LV-GP-GP VI", "LV-GP VI", TWO_LAYERS)),
        "conditional VAE": unless(splits_of("latent_scores", method="CVAE")),
    }


def gains_of_depth(after):
    """Signs of what weights gain with two layers less what they gain with one; of airfoil the first is ``after`` VI."""
    one, two = ("LV-GP IW", "LV-GP VI"), ("LV-GP-GP IW", "LV-GP-GP VI")
    gains = {name: latent(name, *two) for name in ("forest", "solar", "power")} | {"airfoil": after}
    return [sign(np.subtract(own, latent(name, *one))) for name, own in gains.items()]


def weights():
    """Claims on importance weights beside the variational bound."""
    after = gaps(rows("weights_from_fit"), "way", "IW", "VI", "log_density")  # before it airfoil had not arrived
    usual = gaps(rows("latent_scores", set="autompg", start="usual"), "method", "LV-GP IW", "LV-GP VI", "weighted")
    one = ahead("LV-GP IW", "LV-GP VI", ("forest", "solar", "airfoil", "power", "autompg", "energy", "housing"))
    two = ahead("LV-GP-GP IW", "LV-GP-GP VI", TWO_LAYERS)
    deeper, independent = gains_of_depth(after), letters("LV-GP-GP, independent draws", "LV-GP-GP, IW")
    return {
        "IW over VI: LV-GP": decided(letters("LV-GP, IW", "LV-GP, VI") > 0, *one),
        "IW over VI: LV-GP-GP": decided(letters("LV-GP-GP, IW", "LV-GP-GP, VI") > 0, *two),
        "IW over VI: three": unless(splits_of("latent_scores", method="LV-GP-GP-GP IW")),
        "IW gains more": decided(*deeper) if any(deeper) else "not measured",
        "the same as printed": decided(sign(after) > 0, two[TWO_LAYERS.index("airfoil")]),
        "IW is less": decided(sign(usual) > 0, long_run("energy", "LV-GP IW", "LV-GP VI")),
        "the gain survives": decided(letters("LV-GP-GP, IW", "LV-GP-GP, VI") > 0, independent <= 0),
        "more samples": unless(splits_of("latent_scores", method="LV-GP IW, K = 20")),
    }


def gradients():
    """Claims on the noise of gradients, over splits."""
    own = {(row["gradient"], row["samples"], row["split"]): row for row in rows("importance_gradients")}
    ratio = {place: float(row["ratio"]) for place, row in own.items()}
    sizes = {place: float(row["size_of_mean"]) / float(row["size_of_noise"]) for place, row in own.items()}
    splits = sorted({split for *_, split in own})
    clearer = [
        sign([ratio["doubly reparametrised", count, split] - ratio["plain", count, split] for split in splits]) > 0
        for count in ("1", "5", "50")
    ]
    falls = [
        sign([of["plain", "1", split] - of["plain", "50", split] for split in splits]) > 0 for of in (ratio, sizes)
    ]
    return {"the doubly": decided(*clearer, whole=False), "the signal": decided(*falls, whole=False)}


def importance_weighted():
    return latent_inputs() | weights() | gradients()


PAPERS = (orthogonal, decoupled_deep, stein, additive, importance_weighted)


def claims(name):
    """What the page says: ``[(claim, verdict)]``."""
    table = (PAGES / f"{name}.md").read_text().split("| claim | verdict | why |\n")[1].split("\n\n")[0]
    return [tuple(line.strip("| ").split(" | ")[:2]) for line in table.splitlines()[1:]]


def recounted(paper):
    """Claims of a page with its verdict and that of the rows: each claim by the longest beginning that fits it."""
    found, lines = paper(), []
    for claim, verdict in claims(paper.__name__):
        fits = [start for start in found if claim.startswith(start)]
        lines.append((claim, verdict, found[max(fits, key=len)] if fits else "no rule"))
    return lines


def counts(lines):
    """Columns of the index: how many of the paper's claims have each verdict of the rows, and how many of ours hold."""
    ours = [verdict for claim, _, verdict in lines if claim.endswith("(ours)")]
    paper = [verdict for claim, _, verdict in lines if not claim.endswith("(ours)")]
    shown = f"{ours.count('holds')} of {len(ours)}" if ours else "none"
    return " | ".join([*(str(paper.count(word)) for word in WORDS), shown])


def main():
    index, apart = (PAGES / "index.md").read_text(), 0
    for paper in PAPERS:
        lines = recounted(paper)
        for claim, said, found in lines:
            print(f"{'  ' if said == found else '! '}{found:13} {said:13} {claim}")
            apart += said != found
        listed = re.search(rf"\]\({paper.__name__}\.md\) \| (.*) \|", index)[1]
        print(f"{paper.__name__}: {counts(lines)}, on the index {listed}\n")
    print(f"{apart} verdicts of the pages are not those of the rows")


if __name__ == "__main__":
    main()
