"""Real series on `ngp.line`: weeks of CO2, years of sunspots, a star of Kepler; and a million rows of a sensor.

    python -m examples.studies.series.line_series            # ten minutes; rows that are there are not made again
    python -m examples.studies.series.line_series --smoke    # a few steps of few rows

Hyper-parameters are those of ``ngp.fit(key, model, 400, line, error, y)`` in single precision, of 60 steps for the
sensor. CO2 is weekly at Mauna Loa, 1958 to 2001, once with a slope that walks, and once also with a memory of years, as
in the book of Rasmussen and Williams. Sunspots are square roots of yearly numbers. The star is KIC 1430163 in two
quarters of 90 days, half an hour apart, in parts per million: a rotation, two oscillations, and a granulation. What is
held out is the end, a tenth of the sensor's rows at random, or twelve days of the star at random, each as a whole. Log
densities are means for each held-out point, and the gain is over a normal of the mean and the variance of the fitted
rows. Seconds are of the processor, with compiling, while other programs shared its cores. Where tinygp is installed and
has the kernels, its log marginal likelihood of all fitted rows stands beside ours at the hyper-parameters of the fit.
"""

import argparse
import importlib.util
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer.util import log_density

import numpyro_gp as ngp
from examples.studies.series.series_forecasts import series
from examples.tools.tables import markdown, read, save
from numpyro_gp.kernels import SHO, Constant, IntegratedWiener, Linear, Matern12, Matern32, Matern52

DATA = Path(__file__).parents[2] / "data"
ROWS = Path(__file__).parent / "line_series.csv"
SCORES = ("log density", "gain", "coverage of 90 %", "period", "seconds of fit", "seconds of predictions")
NUMBERS = ("rows", "rows held out", *SCORES, "log likelihood", "in single precision", "of tinygp")
CASES = (
    "co2, last tenth",
    "co2 and years, last tenth",
    "sunspots, last 30",
    "star, last tenth",
    "star, days",
    "sensor, random tenth",
)


def data(name):
    """Times, values, variances of their errors, and which rows are held out."""
    kind, held = name.split(", ")
    error = 0.0
    if kind.startswith("co2"):
        table = np.genfromtxt(DATA / "co2_weekly.csv.gz", delimiter=",", skip_header=1, dtype=None, encoding="utf-8")
        text = np.char.mod("%d", table["f0"])
        days = np.array([f"{one[:4]}-{one[4:6]}-{one[6:]}" for one in text], "datetime64[D]")
        t, y = (days - days[0]).astype(float) / 365.25, table["f1"].astype(float)
    elif kind == "sunspots":
        _, t, y = series()["sunspots"]  # roots of the numbers
    elif kind == "star":
        _, t, y, error = np.genfromtxt(DATA / "kepler_1430163.csv.gz", delimiter=",", skip_header=1).T
    else:
        rng = np.random.default_rng(0)
        t = np.cumsum(rng.exponential(0.02, 1_000_000))
        y = np.sin(t) + 0.5 * np.sin(t / 30) + 0.3 * rng.normal(size=len(t))
    if held == "days":
        starts = np.random.default_rng(0).choice(t[(t > t[0] + 1) & (t < t[-1] - 1)], 12, replace=False)
        is_held = np.any((t[:, None] >= starts) & (t[:, None] < starts + 1), axis=1)
    elif held == "random tenth":
        is_held = np.random.default_rng(1).random(len(t)) < 0.1
    else:
        is_held = np.arange(len(t)) >= len(t) - (30 if held == "last 30" else len(t) // 10)
    return t, y, np.square(error) * np.ones_like(y), is_held


def kernels(kind):
    """Priors of what is not known, in units of the data; and the kernel of their values."""
    if kind.startswith("co2"):  # years
        priors = {"period": (1.0, 0.001), "size": (2.0, 0.5), "quality": (100.0, 1.0), "wander": (0.4, 1.0)}
        priors |= {"memory": (0.3, 0.7), "forgets": (0.15, 1.0), "noise": (0.25, 0.7)}
        if kind == "co2 and years":
            priors |= {"wander": (0.05, 0.7), "of years": (0.7, 0.5), "years": (1.2, 0.5)}

        def kernel(v):
            cycle = SHO(v["size"] ** 2, v["period"], v["quality"])
            half = SHO(0.2 * v["size"] ** 2, v["period"] / 2, v["quality"])
            trend = IntegratedWiener(v["wander"] ** 2, origin=-1.0) + Linear(4.0) + Constant(100.0)
            whole = cycle + half + trend + Matern12(v["memory"] ** 2, v["forgets"])
            return whole + Matern32(v["of years"] ** 2, v["years"]) if "years" in v else whole

        return priors, kernel
    if kind == "sunspots":  # years
        priors = {"period": (11.0, 0.2), "size": (3.0, 0.7), "quality": (3.0, 0.8), "noise": (0.4, 1.0)}
        return priors, lambda v: SHO(v["size"] ** 2, v["period"], v["quality"]) + Matern32(1.0, 40.0)
    if kind == "star":  # days
        priors = {"period": (4.0, 0.5), "size": (200.0, 0.7), "quality": (3.0, 1.0), "half": (0.5, 0.7)}
        priors |= {"grain": (50.0, 0.7), "grains": (1.0, 1.0), "noise": (20.0, 0.7)}
        return (
            priors,
            lambda v: (
                SHO(v["size"] ** 2, v["period"], 0.5 + v["quality"])
                + SHO(v["half"] * v["size"] ** 2, v["period"] / 2, 0.5 + 0.5 * v["quality"])
                + SHO(v["grain"] ** 2, v["grains"], 2**-0.5)
            ),
        )
    return {"lengthscale": (1.0, 1.0), "noise": (0.5, 1.0)}, lambda v: Matern52(1.0, v["lengthscale"])


def model_of(kind, mean):
    priors, kernel = kernels(kind)

    def model(line, error, y=None):
        values = {name: numpyro.sample(name, dist.LogNormal(np.log(at), by)) for name, (at, by) in priors.items()}
        return ngp.gp_regression("y", kernel(values), line, error + values["noise"] ** 2, mean=mean, obs=y)

    return model


def of_tinygp(kernel, t, y, variance):
    """The log marginal likelihood of tinygp's quasiseparable kernels, of the values of ours."""
    from tinygp import GaussianProcess
    from tinygp.kernels import quasisep

    def translated(kernel):
        if hasattr(kernel, "first"):
            return translated(kernel.first) + translated(kernel.second)
        sigma = jnp.sqrt(kernel.variance)
        if isinstance(kernel, SHO):
            return quasisep.SHO(omega=2 * np.pi / kernel.period, quality=kernel.quality, sigma=sigma)
        return quasisep.Matern32(scale=kernel.lengthscale, sigma=sigma)

    return float(GaussianProcess(translated(kernel), jnp.asarray(t), diag=jnp.asarray(variance)).log_probability(y))


def likelihoods(kind, values, t, y, error):
    """Log marginal likelihood at these hyper-parameters: ours in double and in single precision, and tinygp's."""
    found = []
    for is_double in (True, False):
        with jax.enable_x64(is_double):
            own = {name: jnp.asarray(value, float) for name, value in values.items()}
            kernel, noise = kernels(kind)[1](own), jnp.asarray(error) + own["noise"] ** 2

            def plain(kernel=kernel, noise=noise):
                ngp.gp_regression("y", kernel, ngp.line(t), noise, obs=jnp.asarray(y))

            found.append(float(log_density(plain, (), {}, {})[0]))
            if is_double:
                there = importlib.util.find_spec("tinygp") is not None and kind in ("sunspots", "star")
                beside = of_tinygp(kernel, t, y, noise) if there else np.nan
    return *found, beside


def row_of(name, steps=400, thin=1):
    """Scores of a fit of what is not held out."""
    kind = name.split(", ")[0]
    t, y, error, is_held = (one[::thin] for one in data(name))
    seen, key, start = ~is_held, jax.random.key(0), time.process_time()
    steps = min(steps, 60) if kind == "sensor" else steps
    line, targets, given = ngp.line(t[seen]), jnp.asarray(y[seen], jnp.float32), jnp.asarray(error[seen], jnp.float32)
    model = model_of(kind, float(y[seen].mean()))
    posterior = ngp.fit(key, model, steps, line, given, targets, progress=False).posterior()
    values = posterior.hyperparameters(key, line, given, targets)
    medians = {name: float(jnp.median(values[name])) for name in kernels(kind)[0]}
    fitted = time.process_time()
    noise = jnp.asarray(error[is_held] + medians["noise"] ** 2, jnp.float32)
    prediction = posterior.predict_at(key, t[is_held], line, given, targets, noise_variance=noise)
    low, high = (np.asarray(one) for one in prediction.quantiles([0.05, 0.95]))
    wanted = y[is_held]
    density = float(np.mean(prediction.log_density(jnp.asarray(wanted, jnp.float32))))
    plain = float(np.mean(dist.Normal(y[seen].mean(), y[seen].std()).log_prob(wanted)))
    print({name: float(f"{value:.4g}") for name, value in medians.items()}, flush=True)
    scores = (
        density,
        density - plain,
        float(np.mean((low <= wanted) & (wanted <= high))),
        medians.get("period", np.nan),
        round(fitted - start, 1),
        round(time.process_time() - fitted, 1),
    )
    beside = likelihoods(kind, medians, t[seen], y[seen] - y[seen].mean(), error[seen])
    return {"series": name} | dict(zip(NUMBERS, (int(seen.sum()), int(is_held.sum()), *scores, *beside), strict=True))


def run(path=ROWS, names=CASES, **effort):
    """Append the series that are not there yet."""
    rows = read(path, NUMBERS)
    for name in names:
        if name not in {row["series"] for row in rows}:
            rows.append(row_of(name, **effort))
            save(path, rows)
            print(*rows[-1].values(), flush=True)
    return rows


def table(rows):
    """One line for each series: what is held out, scores, and seconds of the fit and of predictions."""
    lines = []
    for row in rows:
        score = {name: float(row[name]) for name in SCORES}
        density = f"{score['log density']:.2f} ({score['gain']:+.2f})"
        period = "" if np.isnan(score["period"]) else f"{score['period']:.3g}"
        seconds = f"{score['seconds of fit']:.0f} + {score['seconds of predictions']:.0f}"
        count = f"{int(float(row['rows'])):,} + {int(float(row['rows held out'])):,}".replace(",", " ")
        lines.append([row["series"], count, density, f"{score['coverage of 90 %']:.2f}", period, seconds])
    head = ["series, held out", "rows + held out", "log density (gain)", "coverage of 90 %", "period", "CPU s"]
    return markdown(head, lines)


def beside(rows):
    """Log marginal likelihoods where tinygp has the kernel."""
    kept = [row for row in rows if not np.isnan(float(row["of tinygp"]))]
    shown = {"log likelihood": 6, "of tinygp": 6, "in single precision": 2}
    lines = [[row["series"], *(f"{float(row[name]):.{n}f}" for name, n in shown.items())] for row in kept]
    return markdown(["series, held out", "double precision", "tinygp", "single precision"], lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROWS.parent)
    parser.add_argument("--smoke", action="store_true", help="a few steps of few rows")
    given = parser.parse_args()
    effort = {"names": CASES[2:3], "steps": 3, "thin": 3} if given.smoke else {}
    print(table(run(given.out / ROWS.name, **effort)))


if __name__ == "__main__":
    main()
