"""Forecasts from five origins of eleven series beside three methods of statsmodels; no default was chosen on ten.

    python -m examples.studies.series.series_origins            # rows of ours that are not there yet, then the table
    python -m examples.studies.series.series_origins --peers    # rows of the peers, where statsmodels is installed
    python -m examples.studies.series.series_origins --table    # the table alone

The series are data of statsmodels 0.15: monthly sea temperatures (elnino, 61 years, of which `series_forecasts` has the
last 30, and on which defaults were chosen), and quarters of the economies of the USA, Denmark and Germany; ``log`` ones
are 100 times the logarithm. Horizons are a fifteenth of the series, 4 to 24 rows, and origins one horizon apart. The
model is the same for all: ``y ~ trend(t) + cycle(t)``, and a season where the series has one. SARIMAX is
(0,1,1)(0,1,1) with a season, else the best of 12 orders by AIC; ETS has an additive trend, damped where AIC says so; UC
is a local linear trend, with a season where there is one. Log densities are means for each held-out point.
"""

import argparse
import itertools
import time
import warnings
from pathlib import Path

import numpy as np

from examples.tools.tables import markdown, read, save

HERE = Path(__file__).parent
DATA = HERE.parents[1] / "data/series_origins.csv.gz"
ROWS, PEERS = HERE / "series_origins.csv", HERE / "series_origins_peers.csv"
NUMBERS = ("log density", "coverage of 90 %", "seconds")
METHODS = ("SARIMAX", "ETS", "UC")
ORIGINS = 5
KNOWN = "elnino"  # defaults were chosen on it


def series():
    """Each series by its name: the period of its season (1: none), and values."""
    table = np.genfromtxt(DATA, delimiter=",", names=True, dtype=None, encoding="utf-8")
    found = {}
    for name in dict.fromkeys(table["series"].tolist()):
        own = table[table["series"] == name]
        found[name] = int(own["period"][0]), own["y"].astype(float)
    return found


def splits(y):
    """Rows to fit and to forecast, from each origin."""
    size = min(max(len(y) // 15, 4), 24)
    for origin in range(ORIGINS):
        end = len(y) - (ORIGINS - 1 - origin) * size
        yield origin, y[: end - size], y[end - size : end]


def of_gam(period, y, steps):
    """Log density and the 90 % band of our forecast."""
    import numpyro_gp as ngp

    formula = "y ~ trend(t) + cycle(t)" + (f" + season(t, period={period})" if period > 1 else "")
    forecast = ngp.gam(formula, {"t": np.arange(len(y)) * 1.0, "y": y}).forecast(steps)
    return lambda wanted: forecast.log_density(wanted.astype(forecast.mean.dtype)), *forecast.band(0.9)


def of_peer(method, period, y, steps):
    """The same of a method of statsmodels, whose forecasts are normal."""
    import pandas
    from scipy.stats import norm
    from statsmodels.tsa.exponential_smoothing.ets import ETSModel
    from statsmodels.tsa.statespace.sarimax import SARIMAX
    from statsmodels.tsa.statespace.structural import UnobservedComponents

    if method == "ETS":
        season = {"seasonal": "add", "seasonal_periods": period} if period > 1 else {}
        rows = pandas.Series(y)
        fits = [ETSModel(rows, trend="add", damped_trend=damped, **season).fit(disp=0) for damped in (False, True)]
        frame = min(fits, key=lambda fit: fit.aic).get_prediction(len(y), len(y) + steps - 1).summary_frame(alpha=0.1)
        mean = np.asarray(frame["mean"])
        sd = (np.asarray(frame["pi_upper"]) - mean) / norm.ppf(0.95)
    else:
        if method == "UC":
            fit = UnobservedComponents(y, "lltrend", seasonal=period if period > 1 else None).fit(disp=0)
        elif period > 1:
            fit = SARIMAX(y, order=(0, 1, 1), seasonal_order=(0, 1, 1, period)).fit(disp=0)
        else:
            orders = itertools.product((0, 1, 2), (1, 2), (0, 1))
            fits = [SARIMAX(y, order=order, trend="c" if order[1] == 1 else None).fit(disp=0) for order in orders]
            fit = min(fits, key=lambda fit: fit.aic)
        found = fit.get_forecast(steps)
        mean, sd = np.asarray(found.predicted_mean), np.asarray(found.se_mean)
    half = norm.ppf(0.95) * sd
    return lambda wanted: norm.logpdf(wanted, mean, sd), mean - half, mean + half


def run(path, methods, names=None):
    """Append what is not there yet."""
    rows = read(path, NUMBERS)
    there = {(row["series"], str(row["origin"]), row["method"]) for row in rows}
    known = series()
    for name, method in itertools.product(names or known, methods):
        period, y = known[name]
        for origin, fitted, held_out in splits(y):
            if (name, str(origin), method) in there:
                continue
            start = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                given = period, fitted, len(held_out)
                density, low, high = of_gam(*given) if method == "ngp.gam" else of_peer(method, *given)
            scores = float(np.mean(density(held_out))), float(np.mean((low <= held_out) & (held_out <= high)))
            scores += (round(time.process_time() - start, 1),)
            rows.append({"series": name, "origin": origin, "method": method} | dict(zip(NUMBERS, scores, strict=True)))
            save(path, rows)
            print(*rows[-1].values(), flush=True)
    return rows


def table(rows):
    """Mean log density of each series and method over origins, less the best peer's, and our coverage."""
    found = {}
    for row in rows:
        found.setdefault(row["series"], {}).setdefault(row["method"], []).append([row[key] for key in NUMBERS])
    lines, gaps = [], []
    for name, own in found.items():
        mean = {method: np.mean(values, axis=0) for method, values in own.items()}
        best = max(mean[method][0] for method in METHODS)
        each = (f"{mean[method][0]:.2f}" for method in ("ngp.gam", *METHODS))
        lines.append([name, *each, f"{mean['ngp.gam'][0] - best:+.2f}", f"{mean['ngp.gam'][1]:.2f}"])
        if name != KNOWN:
            gaps.append([mean[method][0] - best for method in ("ngp.gam", *METHODS)])
    means = [f"{gap:+.2f}" for gap in np.mean(gaps, axis=0)]
    lines.append([f"less the best, mean without {KNOWN}", *means, "", ""])
    return markdown(["series", "ngp.gam", *METHODS, "ours less the best", "coverage of ours"], lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--smoke", action="store_true", help="one short series, to see that it runs")
    given = parser.parse_args()
    if given.peers:
        run(given.out / PEERS.name, METHODS)
        return
    path = given.out / ROWS.name
    if given.smoke:
        given.out.mkdir(parents=True, exist_ok=True)
        run(path, ("ngp.gam",), names=("german inflation",))
        return
    rows = read(path, NUMBERS) if given.table else run(path, ("ngp.gam",))
    print(table(rows + read(PEERS, NUMBERS)))


if __name__ == "__main__":
    main()
