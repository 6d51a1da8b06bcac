"""``ngp.gam`` beside peers on the same splits, for the examples: rows, the summary and the figure of the first fit."""

import importlib.util
import time

import numpy as np

import numpyro_gp as ngp
from examples.tools.tables import of_mean, save

OURS = "ngp.gam"


def table(names, X, y):
    """Columns by name; the response is "y"."""
    return dict(zip(names, np.asarray(X).T, strict=True)) | {"y": y}


def rows_of(table, chosen):
    """Some rows of a table."""
    return {name: column[chosen] for name, column in table.items()}


def held_out(fit, test):
    """Log densities of the rows of a table."""
    return np.asarray(fit.predict(test).log_density(test["y"]))


def beside_peers(title, formula, family, data, tests, *, peers, out):
    """Fit a formula on each split, score it and its peers on held-out rows, save tables and figure.

    ``tests`` are masks of test rows. ``peers(train, test)`` gives names, log densities of the test rows and seconds. A
    peer's row says how far it is ahead of ours on the same test rows, with the error of that difference. Seconds are
    those of the processor, with prediction.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    rows, first = [], None
    out.mkdir(parents=True, exist_ok=True)
    for split, test in enumerate(tests):
        parts = rows_of(data, ~test), rows_of(data, test)
        start = time.process_time()
        fit = ngp.gam(formula, parts[0], family)
        density = held_out(fit, parts[1])
        found = [(OURS, density, time.process_time() - start), *peers(*parts)]
        for name, other, seconds in found:
            ahead = of_mean(other - density) if name != OURS else ("", "")
            names = ("split", "model", "held-out log density", "standard error", "seconds", "ahead", "error of ahead")
            rows.append(dict(zip(names, (split, name, *of_mean(other), seconds, *ahead), strict=True)))
            print(*rows[-1].values(), flush=True)
        first = first or fit
        save(out / f"{title}.csv", rows)
    summary = first.summary(check=False, density=False)
    print("\n", summary, sep="")
    lines = [f"{one.term.replace(', ', ':')},{one.share},{one.low},{one.high},{one.edf}" for one in summary.rows]
    with open(out / f"{title}.csv", "a") as file:
        file.write("\n".join(["component,share,5 %,95 %,edf", *lines, ""]))
    first.plot(path=out / f"{title}.png")


def optional(*names):
    """Whether optional packages are installed; says so if not."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        print(f"not installed, comparison left out: {', '.join(missing)} (pip install {' '.join(missing)})")
    return not missing
