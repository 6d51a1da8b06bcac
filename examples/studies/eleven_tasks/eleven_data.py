"""Tables of eleven tasks that a new user has: what is fitted and what is held out. Simulated, or in `examples/data`."""

import numpy as np

from examples.studies.series.series_forecasts import series
from examples.tools.datasets import load

KEYS = {"concrete": "cement slag ash water plasticiser coarse fine age", "blood": "recency times volume months"}


def cut(table, rows):
    """Rows of a table."""
    return {name: column[rows] for name, column in table.items()}


def parted(table, count):
    """The first rows to fit, the others to predict."""
    return cut(table, slice(count)), cut(table, slice(count, None))


def houses():
    """Prices by income, age and one of five regions; the noise is 25."""
    rng, size = np.random.default_rng(7), 1500
    income, age = rng.gamma(3, 1.3, size), rng.uniform(1, 52, size)
    levels = {"bay": 60.0, "central": -30.0, "desert": -50.0, "north": -10.0, "south": 25.0}
    region = rng.choice(list(levels), size, p=[0.3, 0.25, 0.1, 0.1, 0.25])
    price = 90 + 67.5 * np.log1p(income) + 12 * np.sin(age / 8) + np.array([levels[one] for one in region])
    table = {"income": income, "age": age, "region": region, "price": price + rng.normal(0, 25, size)}
    return *parted(table, 1200), "price"


def birds():
    """Counts by elevation and canopy, in surveys of half an hour to four hours."""
    rng, size = np.random.default_rng(8), 500
    elevation, canopy = rng.uniform(0, 2500, size), 100 * rng.beta(2, 2, size)
    hours = rng.choice([0.5, 1.0, 2.0, 4.0], size)
    mean = hours * np.exp(0.2 + np.exp(-(((elevation - 1200) / 500) ** 2)) + 0.012 * canopy)
    seen = rng.negative_binomial(3, 3 / (3 + mean))
    return *parted({"elevation": elevation, "canopy": canopy, "hours": hours, "birds": seen}, 400), "birds"


def from_file(name, target):
    """The first split of a data set of `examples/data`."""
    X, y, masks = load(name)
    table = dict(zip([*KEYS[name].split(), target], [*X.T, y], strict=True))
    return cut(table, ~masks[:, 0]), cut(table, masks[:, 0]), target


def blood():
    """Who gave blood in March, by what was given before."""
    return from_file("blood", "gave")


def concrete():
    """Strength by seven ingredients and age."""
    return from_file("concrete", "strength")


def co2():
    """Months of carbon dioxide on Mauna Loa; the last four years are the forecast."""
    _, t, y = series()["co2"]
    return *parted({"month": t, "co2": y}, len(y) - 48), "co2"


def soil():
    """Acidity at places."""
    rng, size = np.random.default_rng(9), 300
    lon, lat = rng.uniform(5, 15, size), rng.uniform(45, 50, size)
    ph = 8 + 2 * np.sin(lon / 1.3) * np.cos(lat / 0.8) + 0.5 * (lat - 47) + rng.normal(0, 0.4, size)
    return *parted({"lon": lon, "lat": lat, "ph": ph}, 240), "ph"


def lakes():
    """Chlorophyll by depth in 14 lakes of 60 to three rows; twenty others of each are held out."""
    rng, fitted, held = np.random.default_rng(10), [], []
    for lake, size in enumerate((60, 45, 40, 30, 30, 20, 15, 12, 10, 8, 6, 5, 4, 3)):
        level, slope = rng.normal(0, 1.0), rng.normal(0, 0.04)
        for rows, count in ((fitted, size), (held, 20)):
            depth = rng.uniform(0, 30, count)
            noise = rng.normal(0, 0.5, count)
            chlorophyll = 3 + 1.5 * np.sin(depth / 5) + level + slope * (depth - 15) + noise
            rows.append((np.full(count, f"lake{lake:02d}"), depth, chlorophyll))
    tables = (
        dict(zip(("lake", "depth", "chl"), map(np.concatenate, zip(*rows, strict=True)), strict=True))
        for rows in (fitted, held)
    )
    return *tables, "chl"


def trial():
    """Months to an event, 40 % of them open; of those held out the whole time is known."""
    rng, size = np.random.default_rng(11), 500
    age, dose, arm = rng.uniform(30, 80, size), rng.uniform(0, 10, size), rng.integers(0, 2, size)
    scale = np.exp(3.0 - 0.03 * (age - 55) + 0.8 * np.sin(dose / 2) + 0.5 * arm)
    whole, end = scale * rng.weibull(1.4, size), rng.uniform(5, 60, size)
    is_open = (whole > end) & (np.arange(size) < 400)
    table = {"age": age, "dose": dose, "arm": arm, "months": np.where(is_open, end, whole), "open": is_open}
    return *parted(table, 400), "months"


def big():
    """200 000 rows of six columns, with an interaction of two."""
    rng, size = np.random.default_rng(12), 204_000
    X = rng.normal(size=(size, 6))
    X[:, 1] = 0.6 * X[:, 0] + 0.8 * X[:, 1]
    y = 2 + np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] ** 2 - X[:, 2] + 0.8 * X[:, 3] * np.tanh(X[:, 4])
    table = dict(zip("abcdef", X.T, strict=True)) | {"y": y + rng.normal(0, 0.5, size)}
    return *parted(table, 200_000), "y"


def sunspots():
    """The root of 120 years of sunspots, forty of them held out at random."""
    _, t, y = series()["sunspots"]
    rows = np.random.default_rng(13).permutation(120)
    table = {"year": t[-120:][rows], "spots": np.sqrt(y[-120:][rows])}
    return *parted(table, 80), "spots"
