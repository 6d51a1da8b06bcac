"""Are the hyper-parameters of gallery models calibrated under their own engines? Simulations, 200 for each model.

    python -m examples.studies.calibration.calibration_of_gallery [--models counts ...] [--simulations 200] [--smoke]

Each data set is drawn from a model's prior at the inputs of its ``simulate``, fitted by its ``engine`` with its
``guide``, and the true hyper-parameters are ranked among draws from the fit. Rows have the mean rank (a half if
calibrated), the spread of the ranks (one if calibrated, more where the fit is too sure), how often the central 90 % of
the draws hold the true value, and the p-value of equal ranks. A guide of points has no draws, and a line that says so.
Models whose rows are there are not run again.
"""

import argparse
import importlib
import inspect
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpyro.infer.autoguide import AutoDelta

import numpyro_gp as ngp
from examples.tools.tables import read, save
from numpyro_gp.arrays import split_arrays

GALLERY = Path(__file__).parents[3] / "models"
ROWS, INDUCING, STEPS = 60, 12, 1000
MORE_STEPS = {"monotone": 3000, "latent_force": 2500, "deep": 3000, "deep_orthogonal": 3000}
DATA = ("y", "events")
POINTS = "points, nothing to rank"
WIDTH = np.sqrt(12.0)
COLUMNS = ("model", "site", "data_sets", "steps", "mean_rank", "spread", "inside_90", "p_value", "cpu", "why")


def names():
    return sorted(file.stem for file in GALLERY.glob("*.py") if file.stem != "__init__")


def inputs_of(module):
    """Arguments of a model without its data, and which of them the data are."""
    taken = inspect.signature(module.simulate).parameters
    sizes = {"num_data": ROWS} | ({"num_inducing": INDUCING} if "num_inducing" in taken else {})
    given = module.simulate(jax.random.key(0), **sizes)
    return {name: value for name, value in given.items() if name not in DATA}, [n for n in DATA if n in given]


def params_after(engine, key, kwargs, steps):
    """What an engine has found after some steps."""
    state = engine.init(key, **kwargs)
    state = lax.scan(lambda state, _: (engine.update(state, **kwargs)[0], None), state, None, steps)[0]
    return engine.get_params(state)


def fits_of(module, kwargs, steps, draws):
    """``fit(key, kwargs) -> draws``, or a reason why there is none."""
    if not hasattr(module, "guide"):
        engine = module.engine(draws)
        return lambda key, kwargs: engine.particles(params_after(engine, key, kwargs, steps))
    wanted = inspect.signature(module.guide).parameters
    guide = module.guide(**{name: kwargs[name] for name in wanted if name in kwargs})
    rest = getattr(guide, "rest", guide)
    engine = module.engine(guide)

    def fit(key, kwargs):
        params = params_after(engine, key, kwargs, steps)
        own = getattr(guide, "rest", guide)  # which a guide of ours makes in its first call
        return own.sample_posterior(jax.random.fold_in(key, 1), params, sample_shape=(draws,))

    return POINTS if isinstance(rest, AutoDelta) else fit


def calibrated(name, options):
    """Rows of one model, one for each of its hyper-parameters."""
    module, start = importlib.import_module(f"models.{name}"), time.process_time()
    given, data = inputs_of(module)
    steps = options.steps or MORE_STEPS.get(name, STEPS)
    nothing = {"model": name, "site": "", "data_sets": 0, "steps": steps}
    fit = fits_of(module, given, steps, options.draws)
    if isinstance(fit, str) or data != ["y"]:
        reason = fit if isinstance(fit, str) else "no simulator of its data"
        return [nothing | {"why": reason}]
    programs, are_points = [], []

    def once(key, model, **kwargs):  # noqa: ARG001
        arrays, merge = split_arrays(kwargs)
        if are_points:
            return {site: np.zeros((options.draws, *shape)) for site, shape in are_points[0].items()}
        if not programs:
            programs.append(jax.jit(lambda key, arrays: fit(key, merge(arrays))))
        found = programs[0](key, arrays)
        if all(np.ptp(values, axis=0).max(initial=0) == 0 for values in found.values()):
            are_points.append({site: values.shape[1:] for site, values in found.items()})
        return {site: jnp.where(jnp.isfinite(values), values, jnp.inf) for site, values in found.items()}

    sizes = {"num_simulations": options.simulations, "num_draws": options.draws}
    found = ngp.diagnose.sbc(jax.random.key(1), module.model, fit=once, **sizes, **given)
    if are_points:
        return [nothing | {"why": POINTS}]
    rows = []
    for site, ranks in found.ranks.items():
        level = (ranks + 0.5) / (options.draws + 1)
        row = {"model": name, "site": site, "data_sets": len(ranks), "steps": steps, "mean_rank": f"{level.mean():.3f}"}
        row |= {"spread": f"{level.std() * WIDTH:.2f}", "inside_90": f"{np.mean(np.abs(level - 0.5) <= 0.45):.3f}"}
        rows.append(row | {"p_value": f"{found.p_values[site]:.2g}", "cpu": f"{time.process_time() - start:.0f}"})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=names(), choices=names(), metavar="NAME")
    parser.add_argument("--simulations", type=int, default=200)
    parser.add_argument("--draws", type=int, default=63, help="draws of a fit that a rank counts")
    parser.add_argument("--steps", type=int, help="of each fit; by default what the model recommends")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "output")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    if options.smoke:
        options.models, options.simulations, options.draws, options.steps = ["exact_regression"], 10, 7, 20
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "calibration_of_gallery.csv"
    rows = [] if options.smoke else read(path)
    for name in options.models:
        if any(row["model"] == name for row in rows):
            continue
        try:
            found = calibrated(name, options)
        except Exception as error:
            found = [{"model": name, "site": "", "data_sets": 0, "why": f"{type(error).__name__}: {error}"[:200]}]
        for row in found:
            print(*row.values(), flush=True)
        rows += [{column: row.get(column, "") for column in COLUMNS} for row in found]
        save(path, rows)


if __name__ == "__main__":
    main()
