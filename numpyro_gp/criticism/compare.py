"""``compare``: fits of one problem side by side, as a table that prints and as data."""

import csv
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import check_array, check_count, check_key, check_type, fail
from numpyro_gp.criticism import metrics
from numpyro_gp.criticism.fit_checks import entries
from numpyro_gp.criticism.leave_one_out import FEWEST, psis_left_out
from numpyro_gp.likelihoods import Bernoulli
from numpyro_gp.posterior.draws import TrainingDraws
from numpyro_gp.posterior.posterior import Posterior
from numpyro_gp.posterior.prediction import Prediction

LEVELS = 19
# Arguments of a fit, data included: in order, or by name.
Train = Sequence[object] | Mapping[str, object]
CallOfFit = tuple[tuple[object, ...], dict[str, Any]]


class Estimate(NamedTuple):
    """A number and its standard error, or the mean and standard deviation of a hyper-parameter.

    ``flag`` marks a number that a note of the table says not to rely on.
    """

    value: float
    error: float = math.nan
    flag: str = ""

    def __str__(self) -> str:
        if math.isnan(self.value):
            return "-" + self.flag
        text = f"{self.value:.3f}" if math.isnan(self.error) else f"{self.value:.3f} ± {self.error:.3f}"
        return text + self.flag


class Comparison:
    """What `compare` returns, a table with one row for each fit: ``print`` it, or read ``rows`` and ``columns``.

    Attributes
    ----------
    rows : dict
        Fit name to a dictionary from column names to `Estimate` (or text).
    columns : list of str
    notes : list of str
        What the table does not say: why an entry is missing, what a column means.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist, numpyro_gp as ngp
    >>> def model(X, y=None):
    ...     f = ngp.gp("f", ngp.kernels.RBF(1.0, numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0))), X[:2])
    ...     with numpyro.plate("data", len(X)):
    ...         ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)
    >>> posterior = ngp.Posterior.from_mcmc(model, {"lengthscale": jnp.ones(4), "f": jnp.zeros((4, 2))})
    >>> X, y = jnp.linspace(0.0, 1.0, 6)[:, None], jnp.zeros(6)
    >>> table = ngp.compare({"NUTS": posterior}, jax.random.key(0), X, y=y)
    >>> sorted(table.records()[0])
    ['error', 'fit', 'flag', 'quantity', 'value']
    """

    def __init__(self, rows: Mapping[str, Mapping[str, object]], notes: Sequence[str]) -> None:
        self.rows = {name: dict(row) for name, row in rows.items()}
        self.columns = list(dict.fromkeys(column for row in self.rows.values() for column in row))
        self.notes = list(dict.fromkeys(notes))

    def __getitem__(self, name: str) -> dict[str, Any]:
        return self.rows[name]

    def __repr__(self) -> str:
        return f"Comparison({list(self.rows)})"

    def __str__(self) -> str:
        """Quantities down, fits across, notes below."""
        table = [["", *self.rows]]
        table += [[column, *(str(row.get(column, "-")) for row in self.rows.values())] for column in self.columns]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join([line[0].ljust(widths[0]), *(x.rjust(w) for x, w in zip(line[1:], widths[1:], strict=True))])
            for line in table
        ]
        rule = "-" * len(lines[0])
        return "\n".join([lines[0], rule, *lines[1:], rule, *self.notes])

    def records(self) -> list[dict[str, Any]]:
        """One tidy record for each fit and quantity: ``fit, quantity, value, error, flag`` (``value`` may be text)."""
        tidy = []
        for name, row in self.rows.items():
            for quantity, entry in row.items():
                fields = entry if isinstance(entry, Estimate) else (entry, math.nan, "")
                tidy.append({"fit": name, "quantity": quantity, **dict(zip(Estimate._fields, fields, strict=True))})
        return tidy

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write `records` to a file."""
        with open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, ["fit", "quantity", *Estimate._fields])
            writer.writeheader()
            writer.writerows(self.records())


def compare(
    posteriors: Mapping[str, Posterior],
    key: Array,
    *args: object,
    y: ArrayLike,
    train: Train | None = None,
    at: ArrayLike | None = None,
    seconds: Mapping[str, float] | None = None,
    num_samples: int | None = None,
    site: str | None = None,
    rows: Sequence[str] | None = None,
    max_parameters: int = 8,
    **kwargs: object,
) -> Comparison:
    """Which fit is better: score fits on the same held-out data, and put their hyper-parameters side by side.

    Parameters
    ----------
    posteriors : dict
        Name of a fit to its `Posterior`; several engines, or several models with the same arguments.
    key : PRNG key
        All fits see the same key.
    *args, **kwargs
        Arguments of the models at the test data, without ``y``, as for `Posterior.predict`.
    y : array
        Test data.
    train : tuple or dict, optional
        Arguments of the fit, data included: positional or by name. Needed for LOO and for hyper-parameters.
    at : array (N, D), optional
        New inputs of the fits that hold their data, those of `gp_regression` models; needs ``train``. Such a
        fit is predicted by ``predict_at(key, at, *train)``, and the others by ``predict(key, *args)``.
    seconds : dict, optional
        Time that each fit took; the caller measures it.
    num_samples : int, optional
        Posterior draws; see `Posterior.predict` and `Posterior.draws`.
    site, rows
        As for `Posterior.predict`.
    max_parameters : int
        Hyper-parameters with more entries than this are left out.

    Returns
    -------
    Comparison
        Log density, RMSE, CRPS and calibration (accuracy and expected calibration error for classes), LOO
        where the draws allow it, means and standard deviations of hyper-parameters, seconds, and effective
        sample size and R-hat of Markov chains.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist, numpyro_gp as ngp
    >>> def model(X, y=None):
    ...     f = ngp.gp("f", ngp.kernels.RBF(1.0, numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0))), X[:2])
    ...     with numpyro.plate("data", len(X)):
    ...         ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)
    >>> posterior = ngp.Posterior.from_mcmc(model, {"lengthscale": jnp.ones(4), "f": jnp.zeros((4, 2))})
    >>> X, y = jnp.linspace(0.0, 1.0, 6)[:, None], jnp.zeros(6)
    >>> table = ngp.compare({"NUTS": posterior}, jax.random.key(0), X, y=y)
    >>> "log density" in table.columns, list(table.rows)
    (True, ['NUTS'])
    """
    check_key("key", key)
    y = check_array("y", y)
    check_count("max_parameters", max_parameters)
    table: dict[str, dict[str, object]] = {}
    notes = ["Log density, RMSE, CRPS, LOO: mean over data ± standard error. Hyper-parameters: mean ± sd of the draws."]
    if at is not None and train is None:
        fail("train", "given with at", "None", "Pass train=(X, y): a gp_regression model is predicted from its data.")
    if not (train is None or isinstance(train, (tuple, list, Mapping))):
        required = "a tuple of the arguments of the fit, or a dictionary of them by name"
        fail("train", required, f"a {type(train).__name__}", "Pass train=(X, y).", TypeError)
    fitted: CallOfFit = ((), dict(train)) if isinstance(train, Mapping) else (tuple(train or ()), {})
    fitted_args, fitted_kwargs = fitted
    cure = "Pass fit.posterior(); of ngp.gam fit.posterior, at fit.model.encode(table)."
    for name, posterior in posteriors.items():
        check_type(f"posteriors[{name!r}]", posterior, Posterior, "a Posterior", cure)
    for name, posterior in posteriors.items():
        if at is not None and posterior.holds_data(*fitted_args, **fitted_kwargs):
            prediction = posterior.predict_at(key, at, *fitted_args, num_samples=num_samples, gp=site, **fitted_kwargs)
        else:
            prediction = posterior.predict(key, *args, num_samples=num_samples, site=site, rows=rows, **kwargs)
        scores = held_out_scores(prediction, y)
        table[name] = {"engine": posterior.kind, "posterior draws": str(prediction.num_draws), **scores}
        if "RMSE" in scores and math.isnan(scores["RMSE"].value):
            notes.append(f"{name}: no RMSE, since new data have no finite mean: tails are too heavy at some draws.")
        if not math.isfinite(scores["log density"].value):
            notes.append(f"{name}: some test data have a density that is zero in floats.")
        if "CRPS" in scores and math.isnan(scores["CRPS"].value):
            notes.append(
                f"{name}: no CRPS, coverage and calibration error: draws of new data are too large for floats."
            )
        if train is not None:
            training, remarks = in_sample(posterior, key, fitted, num_samples, site, max_parameters)
            table[name].update(training)
            notes += [f"{name}: {remark}" for remark in remarks]
        if seconds:
            table[name]["seconds"] = Estimate(float(seconds.get(name, math.nan)))
    return Comparison(table, notes)


def held_out_scores(prediction: Prediction, y: ArrayLike) -> dict[str, Estimate]:
    """Scores on test data: of classes where the likelihood is one of classes, else of numbers."""
    data = jnp.asarray(y)
    density = prediction.log_density(data)
    is_finite = np.isfinite(density).all()
    scores = {
        "log density": _estimate(metrics.mean_log_density(density)) if is_finite else Estimate(float(density.mean()))
    }
    if isinstance(prediction.likelihood, Bernoulli) or prediction.mean.ndim > data.ndim:
        labels, probabilities = data.astype(int), prediction.mean
        if probabilities.ndim == data.ndim:  # several yes or no of a row count one by one
            labels, probabilities = labels.ravel(), probabilities.ravel()
        scores["accuracy"] = _estimate(metrics.accuracy(probabilities, labels))
        error = metrics.expected_calibration_error(probabilities, labels)
        return {**scores, "calibration error": Estimate(float(error))}
    draws = prediction.sample(1000).astype(prediction.mean.dtype)  # counts are whole numbers, their quantiles not
    has_mean = np.isfinite(prediction.mean).all()
    scores["RMSE"] = _estimate(metrics.rmse(prediction.mean, data)) if has_mean else Estimate(math.nan)
    if not np.isfinite(draws).all():
        return scores | dict.fromkeys(("CRPS", "coverage of 90%", "calibration error"), Estimate(math.nan))
    levels = jnp.linspace(0.05, 0.95, LEVELS, dtype=prediction.mean.dtype)
    lower, upper = jnp.quantile(draws, jnp.asarray([0.05, 0.95], draws.dtype), axis=0)
    # Randomised, because counts tie; the same at every call.
    error = metrics.calibration_error(levels, metrics.pit_samples(draws, data, jax.random.key(0)))
    return {
        **scores,
        "CRPS": _estimate(metrics.crps_samples(draws, data)),
        "coverage of 90%": _estimate(metrics.interval_coverage(lower, upper, data)),
        "calibration error": Estimate(float(error)),
    }


def in_sample(
    posterior: Posterior, key: Array, fitted: CallOfFit, num_samples: int | None, site: str | None, max_parameters: int
) -> tuple[dict[str, Any], list[str]]:
    """LOO, hyper-parameters, and what is known about the chains; with remarks on what is left out."""
    args, kwargs = fitted
    row: dict[str, Any] = {}
    remarks: list[str] = []
    if posterior.kind == "stein":
        remarks.append("particles are not independent draws, so LOO and the effective sample size are left out.")
    else:
        draws = posterior.draws(key, *args, num_samples=num_samples, **kwargs)
        row["LOO per datum"], remark = loo_per_datum(draws, site, posterior.num_chains)
        remarks += remark
    parameters = posterior.hyperparameters(key, *args, num_samples=num_samples, **kwargs)
    small = {name: np.asarray(x) for name, x in parameters.items() if x[0].size <= max_parameters}
    if left_out := sorted(set(parameters) - set(small)):
        remarks.append(f"these hyper-parameters are too large for the table: {left_out}.")
    each = dict(entries(small))
    if posterior.kind == "mcmc":
        count = posterior.num_chains
        chains = [x.reshape(count, -1) for x in each.values() if np.ptp(x) > 0 and x.size // count >= 8]
        if chains:
            row["smallest ESS"] = Estimate(min(float(effective_sample_size(chain)) for chain in chains))
            row["largest R-hat"] = Estimate(max(float(split_gelman_rubin(chain)) for chain in chains))
    for label, entry in each.items():
        row[label] = Estimate(float(entry.mean()), float(entry.std()) if np.ptp(entry) > 0 else 0.0)
    if posterior.kind == "svi" and any(np.ptp(x, axis=0).max() == 0 for x in small.values()):
        remarks.append("hyper-parameters with no spread are point estimates.")
    return row, remarks


def loo_per_datum(draws: TrainingDraws, site: str | None, chains: int = 1) -> tuple[Estimate, list[str]]:
    """LOO per datum, flagged where importance sampling fails, or nothing; with the reason."""
    terms = draws.terms()
    if not terms or (site is None and len(terms) > 1):
        return Estimate(math.nan), ["LOO needs one site with a pointwise log likelihood: pass site=."]
    log_density = np.asarray(terms[site or next(iter(terms))])
    if (size := len(log_density)) < FEWEST:
        return Estimate(math.nan), [f"LOO needs {FEWEST} draws, and there are {size}."]
    efficiency = 1.0
    if chains > 1:  # as dependent as the latent values are on average
        each = [np.asarray(x, float).reshape(chains, size // chains, -1) for x in draws.latent.values()]
        sizes = np.concatenate([effective_sample_size(x) for x in each])
        efficiency = float(np.where(np.isnan(sizes), size, sizes).mean() / size)  # constants have none
    left = psis_left_out(log_density.reshape(size, -1), efficiency)
    count, is_bad = left.k.size, ~(left.k <= left.good_k)
    is_reliable = np.isfinite(left.pointwise).all() and not is_bad.any()
    error = float(np.std(left.pointwise) / np.sqrt(count))
    estimate = Estimate(float(left.pointwise.mean()), error, "" if is_reliable else " !")
    if is_reliable:
        return estimate, []
    if lost := int((~np.isfinite(left.pointwise)).sum()):
        return estimate, [f"LOO marked ! is no number: the log likelihood is not finite at {lost} of {count} data."]
    reason = f"LOO marked ! is not reliable: Pareto k is above {left.good_k:.2f} at {is_bad.sum()} of {count} data"
    return estimate, [f"{reason} (largest {left.k.max():.2f})."]


def _estimate(score: metrics.Score) -> Estimate:
    return Estimate(float(score.value), float(score.standard_error))
