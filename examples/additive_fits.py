"""Fits of additive models, for the examples: a belief with natural steps, hyper-parameters as points with Adam."""

import importlib.util
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpyro import handlers
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp
from examples.tables import of_mean
from numpyro_gp.plots.additive import draw_effects


def fit(model, recipe, X, y, *, steps, batch=None, natural=0.1, adam=0.02, seed=0, progress=False):
    """Fit with natural steps on the belief and Adam elsewhere; guide, parameters and seconds."""
    guide = ngp.AutoGP(model, {"f": recipe})
    schedule = ngp.optim.ramp(natural / 30, natural, max(1, steps // 4))
    svi = SVI(model, guide, ngp.optim.natural_gradient(optax.adam(adam), schedule), Trace_ELBO())
    start = time.perf_counter()
    batch = None if batch is None or batch >= len(X) else batch
    key = jax.random.key(seed)
    result = ngp.fit(key, svi, steps, jnp.asarray(X), jnp.asarray(y), batch=batch, progress=progress)
    return guide, result.params, time.perf_counter() - start


def hold(model, guide, params):
    """The model with its hyper-parameters fixed at their fitted points, and these points."""
    values = guide.global_values(jax.random.key(0), params)
    points = {name: value for name, value in values.items() if name != "f"}
    return handlers.condition(model, data=points), points


def held_out(posterior, X, y):
    """Log densities of test data."""
    prediction = posterior.predict(jax.random.key(7), jnp.asarray(X))
    return np.asarray(prediction.log_density(jnp.asarray(y)))


def show(rows, columns):
    """Print a table and return its lines as comma-separated text."""
    print("  ".join(f"{name:>22s}" for name in columns))
    for row in rows:
        cells = [f"{value:22.4f}" if isinstance(value, float) else f"{value!s:>22s}" for value in row]
        print("  ".join(cells))
    return "\n".join(",".join(map(str, row)) for row in [columns, *rows]) + "\n"


def gam(title, layout, model, X, y, tests, *, peers, steps, batch, out, response):
    """Fit a GAM on each split, score it and its peers on held-out rows, save table and figure, and print a diagnosis.

    ``model`` makes the model from training targets, ``tests`` are masks of test rows ``(splits, N)``. A peer's row
    says how far it is ahead of the GP on the same test rows, with the error of that difference. Effects and Sobol
    indices are those of the first split.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    rows, first = [], None
    for split, test in enumerate(tests):
        train = ~test
        # A narrow start: at the prior's own variance the exponential of a log link makes gradients that Adam's
        # running scale forgets only after a thousand steps.
        recipe, own = ngp.guides.coupled(natural=True, scale=0.1), model(y[train])
        seen = X[train], y[train]
        guide, params, seconds = fit(own, recipe, *seen, steps=steps, batch=batch, adam=0.05, progress=True)
        posterior = ngp.Posterior.from_svi(own, guide, params)
        density = held_out(posterior, X[test], y[test])
        rows.append([split, "numpyro_gp additive", *of_mean(density), seconds, "", ""])
        for name, other, spent in peers(*seen, X[test], y[test]):
            rows.append([split, name, *of_mean(other), spent, *of_mean(other - density)])
        first = first or (posterior, X[train])
    columns = ["split", "model", "held-out log density", "standard error", "seconds", "ahead", "error of ahead"]
    text = show(rows, columns)
    posterior, X_train = first
    found = ngp.effects(posterior, jax.random.key(1), X_train, design=layout)
    drawn = ngp.sobol.sample(posterior, jax.random.key(2), X_train, num_samples=1000)
    limits = ngp.sobol.intervals(drawn)
    shares = [[name, float(np.median(drawn.index[name])), *map(float, limits[name])] for name in drawn.index]
    text += show(shares, ["component", "Sobol index", "5 %", "95 %"])
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{title}.csv").write_text(text)
    heading = f"{title.replace('_', ' ')}: effects on {response}, 90 % bands"
    figure = draw_effects(found, drawn, X_train, design=layout, title=heading, response=response, columns=3)
    figure.savefig(out / f"{title}.png", dpi=130)
    models = list(dict.fromkeys(row[1] for row in rows))
    best = max(models, key=lambda name: np.mean([row[2] for row in rows if row[1] == name]))
    print(f"\nDiagnosis: best held-out log density: {best}; {len(tests)} splits. Figure and table: {out}/{title}.*")
    print("Distrust the effects where the rug is thin, and inputs that go together: their bands then widen together.")


def optional(*names):
    """Whether optional packages are installed; says so if not."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        print(f"not installed, comparison left out: {', '.join(missing)} (pip install {' '.join(missing)})")
    return not missing
