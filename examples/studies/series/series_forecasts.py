"""Forecasts of twelve series by ``ngp.gam``, two origins each, beside the methods of statsmodels and a naive one.

    python -m examples.studies.series.series_forecasts                 # rows that are not there yet, then the table
    python -m examples.studies.series.series_forecasts --table         # the table alone

The model is the same for all: ``y ~ trend(t) + cycle(t)``, and a season where the series has one. Horizons are a tenth
of the series. Rows of peers (``results/series_peers.csv``) were made once, by statsmodels 0.15: UC are its
`UnobservedComponents`; SARIMAX is (0,1,1)(0,1,1) with a season, else the best of 12 orders by AIC. Three series, NEW,
were added after every default was fixed. Log densities are means for each held-out point, of `y` in its own units.
"""

import argparse
import time
from pathlib import Path

import numpy as np

import numpyro_gp as ngp
from examples.tools.tables import markdown, read, save

HERE = Path(__file__).parent
DATA = HERE.parents[1] / "data/series.csv.gz"
ROWS, PEERS = HERE / "series.csv", HERE / "series_peers.csv"
NUMBERS = ("log density", "coverage of 90 %", "rmse")
NEW = ("airline", "lynx", "beer")
GAM = "ngp.gam"


def series():
    """Each series by its name: the period of its season (1: none), times in steps, and values."""
    table = np.genfromtxt(DATA, delimiter=",", names=True, dtype=None, encoding="utf-8")
    found = {}
    for name in dict.fromkeys(table["series"].tolist()):
        own = table[table["series"] == name]
        found[name] = int(own["period"][0]), own["t"].astype(float), own["y"].astype(float)
    return found


def splits(t, y):
    """Origin, and rows to fit and to forecast: the last tenth, and the tenth before it."""
    size = max(round(0.1 * len(y)), 1)
    for origin, end in enumerate((len(y) - size, len(y))):
        cut = end - size
        yield origin, (t[:cut], y[:cut]), (t[cut:end], y[cut:end])


def forecast(period, fitted, held_out):
    """Scores of the forecast of one origin."""
    (t, y), (new, wanted), start = fitted, held_out, time.process_time()
    formula = "y ~ trend(t) + cycle(t)" + (f" + season(t, period={period})" if period > 1 else "")
    prediction = ngp.gam(formula, {"t": t, "y": y}).predict({"t": new})
    low, high = (np.asarray(one) for one in prediction.quantiles([0.05, 0.95]))
    scores = (
        float(np.mean(np.asarray(prediction.log_density(wanted.astype(prediction.mean.dtype))))),
        float(np.mean((low <= wanted) & (wanted <= high))),
        float(np.sqrt(np.mean((np.asarray(prediction.mean) - wanted) ** 2))),
    )
    return dict(zip(NUMBERS, scores, strict=True)) | {"seconds": round(time.process_time() - start, 1)}


def run(path=ROWS, names=None):
    """Append what is not there yet, of all series or of those with these names."""
    rows = read(path, NUMBERS)
    there = {(row["series"], str(row["origin"])) for row in rows}
    known = series()
    for name, (period, t, y) in ((one, known[one]) for one in names or known):
        for origin, fitted, held_out in splits(t, y):
            if (name, str(origin)) not in there:
                row = {"series": name, "origin": origin, "method": GAM} | forecast(period, fitted, held_out)
                rows.append(row)
                save(path, rows)
                print(*row.values(), flush=True)
    return rows


def means(rows, key):
    """Mean over the origins, ``{series: {method: value}}``."""
    found = {}
    for row in rows:
        found.setdefault(row["series"], {}).setdefault(row["method"], []).append(row[key])
    return {name: {method: float(np.mean(v)) for method, v in own.items()} for name, own in found.items()}


def table(rows, peers):
    """Log densities less the best peer's of each series, and our coverage; then means over old and new series."""
    density, coverage = means(rows + peers, NUMBERS[0]), means(rows + peers, NUMBERS[1])
    methods = list(dict.fromkeys(row["method"] for row in peers))
    lines, gaps = [], {}
    for name, own in density.items():
        best = max(own[method] for method in methods)
        gaps[name] = [own[GAM] - best, *(own[method] - best for method in methods), coverage[name][GAM]]
        first = name + (" (new)" if name in NEW else "")
        lines.append([first, f"{best:.2f}", *(f"{gap:+.2f}" for gap in gaps[name][:-1]), f"{coverage[name][GAM]:.2f}"])
    for title, some in (("mean of nine", [n for n in gaps if n not in NEW]), ("mean of three new", list(NEW))):
        values = np.mean([gaps[name] for name in some], axis=0)
        lines.append([title, "", *(f"{gap:+.2f}" for gap in values[:-1]), f"{values[-1]:.2f}"])
    return markdown(["series", "best peer", GAM, *methods, "coverage of ours"], lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--smoke", action="store_true", help="one short series, to see that it runs")
    given = parser.parse_args()
    path = given.out / ROWS.name
    if given.smoke:
        given.out.mkdir(parents=True, exist_ok=True)
        run(path, names=("beer",))
        return
    rows = read(path, NUMBERS) if given.table else run(path)
    print(table(rows, read(PEERS, NUMBERS)))


if __name__ == "__main__":
    main()
