"""Tables and numbers of ``ngp.gam`` beside its peers, from the rows of `examples.studies.gam.peers`."""

import numpy as np

from examples.tools.tables import direction, markdown, of_mean, told, with_error

__all__ = [
    "above_best",
    "ahead",
    "beside_ebm",
    "coverages",
    "density",
    "pairs",
    "programs",
    "rmse",
    "seconds",
    "seen",
    "smaller_error",
]
__all__ += ["many", "many_terms", "terms", "times_mgcv", "waves"]

NAMES = {
    "ngp.gam": "here",
    "ngp.gam, screen": "here, with `screen`",
    "mgcv": "mgcv",
    "mgcv, select": "mgcv, `select`",
    "pygam": "pyGAM",
    "statsmodels": "statsmodels",
    "ebm": "EBM",
    "bambi": "Bambi",
}
CURVES_ALONE = ("mgcv", "pygam", "statsmodels", "bambi")
SETS = ("yacht", "energy", "concrete", "bikehours", "blood")


def of_sets(rows, metric):
    """Values of a column, ``{fit: {set: {split: value}}}``; those that are not there are left out."""
    found = {name: {} for name in NAMES}
    for row in rows:
        if row["task"] in SETS and row[metric] != "":
            found[row["fit"]].setdefault(row["task"], {})[int(row["seed"])] = float(row[metric])
    return {name: own for name, own in found.items() if own}


def late(rows):
    """Fits that did not end, ``{(fit, set): note}``, on the first split."""
    return {
        (row["fit"], row["task"]): row["note"]
        for row in rows
        if row["task"] in SETS and not row["rmse"] and row["note"]
    }


def values(rows, metric, digits, best):
    """A line for each fit, a column for each set: the first split, the best in bold."""
    found, ended = of_sets(rows, metric), late(rows)
    first = {name: {s: own[s][0] for s in own if 0 in own[s]} for name, own in found.items()}
    cells = []
    for name in dict.fromkeys([*first, *(fit for fit, _ in ended)]):
        line = [NAMES[name]]
        for s in SETS:
            value = first.get(name, {}).get(s)
            if value is None:
                line.append("not in time" if (name, s) in ended else "")
                continue
            shown = f"{value:.{digits[s] if isinstance(digits, dict) else digits}f}"
            is_best = value == best(own[s] for own in first.values() if s in own)
            line.append(f"**{shown}**" if is_best else shown)
        cells.append(line)
    return markdown(["", *SETS], cells)


def density(rows):
    return values(rows, "log_density", 3, max)


def rmse(rows):
    return values(rows, "rmse", {s: 1 if s == "bikehours" else 3 for s in SETS}, min)


def seconds(rows):
    """Seconds of the processor on the first split."""
    found, ended = of_sets(rows, "seconds"), late(rows)
    lines = []
    for name in dict.fromkeys([*found, *(fit for fit, _ in ended)]):
        own = found.get(name, {})
        cells = {s: f"{own[s][0]:.2g}" for s in own if 0 in own[s]}
        cells |= {s: f"> {note.split()[-2]}" for (fit, s), note in ended.items() if fit == name and "not end" in note}
        lines.append([NAMES[name], *(cells.get(s, "") for s in SETS)])
    return markdown(["", *SETS], lines)


def paired(rows, other, metric="log_density"):
    """What ours is ahead of another fit by split, ``{set: differences}``."""
    found = of_sets(rows, metric)
    ours, theirs = found["ngp.gam"], found[other]
    return {s: [ours[s][k] - theirs[s][k] for k in ours[s] if k in theirs.get(s, {})] for s in SETS}


def ahead(rows):
    """Differences of log density, paired by split: means and errors over the splits that both have."""
    others = ("mgcv", "pygam")
    found = {other: paired(rows, other) for other in others}
    lines = []
    for s in SETS:
        cells = [with_error(*of_mean(found[other][s])) if found[other][s] else "" for other in others]
        lines.append([s, str(len(found["mgcv"][s])), *cells])
    return markdown(["set", "splits", *(f"ahead of {NAMES[other]}" for other in others)], lines)


def seen(rows):
    """Where a t test over splits sees ours ahead of others, and behind them."""
    signs = {other: {s: direction(own) for s, own in paired(rows, other).items()} for other in ("mgcv", "pygam")}
    return "; ".join(f"beside {NAMES[other]} {told(own)}" for other, own in signs.items())


def first_split(rows):
    """Log densities ``{fit: {set: value}}``."""
    return {name: {s: own[s][0] for s in own if 0 in own[s]} for name, own in of_sets(rows, "log_density").items()}


def above_best(rows):
    """On how many sets ours is at the best of the peers with curves alone or above, and how far below elsewhere."""
    found = first_split(rows)
    peers = [found[name] for name in CURVES_ALONE if name in found]
    gaps = {s: found["ngp.gam"][s] - max(own[s] for own in peers if s in own) for s in SETS}
    below = ", ".join(f"{s} ({-gap:.3f})" for s, gap in gaps.items() if gap < 0)
    return f"on {sum(gap >= 0 for gap in gaps.values())} of {len(SETS)} sets, and below it on {below}"


def beside_ebm(rows):
    """What ours with chosen pairs is ahead of EBM, by set, where both were run."""
    found = first_split(rows)
    ours, theirs = found["ngp.gam, screen"], found["ebm"]
    return ", ".join(f"{ours[s] - theirs[s]:+.3f} on {s}" for s in SETS if s in ours and s in theirs)


def times_mgcv(rows):
    """Our seconds over mgcv's, the median over the splits that both have, by set: a busy machine delays some fits."""
    ours, theirs = (of_sets(rows, "seconds")[name] for name in ("ngp.gam", "mgcv"))
    both = {s: [k for k in ours[s] if k in theirs[s]] for s in SETS if s in ours and s in theirs}
    ratios = {s: np.median([ours[s][k] / theirs[s][k] for k in own]) for s, own in both.items()}
    return ", ".join(f"{ratio:.2f} on {s}" for s, ratio in ratios.items())


# Simulations.


def waves_of(rows, noise, fit, task="waves"):
    """Rows of fits that ended."""
    own = [row for row in rows if (row["task"], row["noise"], row["fit"]) == (task, noise, fit)]
    return [row for row in own if not row["note"].startswith("stopped")]


def mean(rows, key, digits=2):
    """Mean and error of a column; nothing where the fit has no such number."""
    own = [float(row[key]) for row in rows if row[key] != ""]
    return with_error(*of_mean(own), digits) if own else ""


def median(rows, key):
    return np.median([float(row[key]) for row in rows if row[key] != ""])


def waves(rows):
    """Error and coverage of the true terms by noise and fit, and the median of seconds."""
    lines = []
    for noise in ("1", "2", "4"):
        for name, shown in NAMES.items():
            own = waves_of(rows, noise, name)
            if own:
                cells = [mean(own, "rmse", 3), mean(own, "coverage"), f"{median(own, 'seconds'):.2f}"]
                lines.append([noise, shown, str(len(own)), *cells])
    return markdown(["noise", "fit", "simulations", "RMSE", "coverage", "seconds"], lines)


def coverages(rows):
    """Our coverage and mgcv's by noise, on the simulations that both have."""
    parts = []
    for noise in ("1", "2", "4"):
        both = [{row["seed"]: row["coverage"] for row in waves_of(rows, noise, name)} for name in ("ngp.gam", "mgcv")]
        ours, theirs = (np.mean([float(own[seed]) for seed in both[0] if seed in both[1]]) for own in both)
        parts.append(f"{ours:.3f} beside {theirs:.3f} at noise {noise}")
    return ", ".join(parts)


def smaller_error(rows, other="mgcv", noises=("1", "2", "4")):
    """In how many simulations our error is smaller than another's, by noise."""
    parts = []
    for noise in noises:
        ours, theirs = (
            {row["seed"]: float(row["rmse"]) for row in waves_of(rows, noise, name)} for name in ("ngp.gam", other)
        )
        seeds = [seed for seed in ours if seed in theirs]
        parts.append(f"{sum(ours[seed] < theirs[seed] for seed in seeds)} of {len(seeds)}")
    return ", ".join(parts)


def terms(rows):
    """Share of simulations in which the dead term is called negligible, and of live terms that are not."""
    lines = []
    for noise in ("1", "2", "4"):
        for name, shown in NAMES.items():
            own = [row for row in waves_of(rows, noise, name) if row["called_dead"] != ""]
            if own:
                lines.append([noise, shown, str(len(own)), mean(own, "called_dead"), mean(own, "live_kept")])
    return markdown(["noise", "fit", "simulations", "dead term called negligible", "live terms kept"], lines)


def pairs(rows):
    """Share of simulations in which the true pair comes first, and is kept; other pairs that are kept in each."""
    lines = []
    for name, shown in NAMES.items():
        own = [row for row in waves_of(rows, "2", name, "pairs") if row["pair_first"] != ""]
        if own:
            cells = [mean(own, key) for key in ("pair_first", "pair_kept", "others_kept")]
            lines.append([shown, str(len(own)), *cells, f"{median(own, 'seconds'):.1f}"])
    return markdown(["fit", "simulations", "true pair first", "true pair kept", "others kept", "seconds"], lines)


def many(rows):
    """Four curves on 100 000 rows."""
    own = [row for row in rows if row["task"] == "many"]
    shown = {"ngp.gam": "here, first fit", "ngp.gam, second fit": "here, second fit"}
    lines = [[shown.get(row["fit"], f"mgcv, `{row['fit']}`"), row["seconds"], row["log_density"]] for row in own]
    return markdown(["100 000 rows", "seconds", "log density"], lines)


def many_terms(rows):
    """A step, a whole fit and what comes after it, for three numbers of curves on 50 000 rows."""
    lines = []
    for row in rows:
        fit = f"{row['fit_seconds']} ({row['steps']})"
        looks = f"{row['summary_seconds']}; {row['figure_seconds']}"
        lines.append([row["terms"], row["step_ms"], fit, looks, row["prediction_seconds"], row["peak_mb"]])
    heads = ["curves", "a step, ms", "fit, s (steps)", "summary; figure, s", "1000 predictions, s", "most memory, MB"]
    return markdown(heads, lines)


def programs(rows):
    """Lines of one program for each library, and what it gave."""
    lines = [[NAMES[row["fit"]], row["lines"], row["rmse"], row["in_interval"], row["seconds"]] for row in rows]
    return markdown(["program", "lines to write", "RMSE", "in the 90 % interval", "seconds, all"], lines)
