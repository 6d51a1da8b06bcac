"""New data of the named likelihoods in NumPy: moments, quantiles and draws, where ``f`` is normal at each draw."""

import copy
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from numpyro_gp.additive.columns import Column, keys_of
from numpyro_gp.arrays import Array
from numpyro_gp.checks import check_level, fail
from numpyro_gp.gam.answers.draws import Dense, Draws
from numpyro_gp.gam.model.column_kernels import Curve, averages_over, deviations, distances
from numpyro_gp.gam.model.families import NAMED, OF_RATE, parameters_of, row_of
from numpyro_gp.gam.model.family import check_same_rows, log_ratio, trials_at, with_trials
from numpyro_gp.gam.model.features import ROWS, fixed_matrices, inducing_inputs_of
from numpyro_gp.gam.model.model import Model, offset_at
from numpyro_gp.gam.model.term_kernels import SMOOTH, composed, count_lengthscales
from numpyro_gp.gam.table.layout import ReadTerm, is_difference
from numpyro_gp.gam.table.terms import TIME
from numpyro_gp.kernels.profiles import of_average
from numpyro_gp.likelihoods import Gaussian, Likelihood, StudentT
from numpyro_gp.likelihoods.links import mean_of, normal_cdf
from numpyro_gp.likelihoods.quadrature import gauss_hermite
from numpyro_gp.posterior import Prediction
from numpyro_gp.rows.batches import padded
from numpyro_gp.sites import Observation

# Nodes of an expectation over f, and draws of new data behind quantiles.
NODES, SAMPLES = 48, 2000


def formulas_of(likelihood: Likelihood) -> tuple[Any, str, list[np.ndarray]]:
    """The row of a likelihood whose new data need no program, its link, and parameters ``(S, 1)`` or ``(S, N)``."""
    row = row_of(type(likelihood))
    if row is None or row.draw is None:
        cure = "Take fit.predict(data), which knows all likelihoods."
        required = f"one of {sorted(one.kind.__name__ for one in (*NAMED.values(), OF_RATE) if one.draw)}"
        fail("the likelihood of a fit with a predictor", required, type(likelihood).__name__, cure)
    return row, getattr(likelihood, "link", row.link), parameters_of(likelihood, 2)


def new_moments(likelihood: Likelihood, mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance ``(N,)`` of the mixture over draws of new data, ``f`` normal with ``(S, N)`` at each."""
    row, link, parameters = formulas_of(likelihood)
    if isinstance(likelihood, Gaussian):
        return over_draws(mean, variance + parameters[0] ** 2)
    nodes, weights = gauss_hermite(NODES)
    f, p = mean[..., None] + np.sqrt(variance)[..., None] * nodes, [one[..., None] for one in parameters]
    values = row.mean_at(link, f, *p)
    if isinstance(likelihood, StudentT):  # as its class has it
        values = np.where(p[0] > 1, values, np.nan)
    means = values @ weights
    spread = row.variance(link, f, *p) + (values - means[..., None]) ** 2
    return over_draws(means, spread @ weights)


def new_quantiles(
    likelihood: Likelihood, mean: np.ndarray, variance: np.ndarray, levels: np.ndarray, num_samples: int = SAMPLES
) -> np.ndarray:
    """Quantiles ``(levels, N)`` of the same mixture: of normal data exact, else from draws, the same for the same rows.

    They are NaN where ``mean`` is.
    """
    if (lost := np.isnan(mean).any(axis=0)).any():  # generators take numbers alone
        known = np.where(lost, 0.0, mean), np.where(lost, 1.0, variance)
        return np.where(lost, np.nan, new_quantiles(likelihood, *known, levels, num_samples))
    row, link, parameters = formulas_of(likelihood)
    if isinstance(likelihood, Gaussian):
        return mixture_quantiles(mean, np.sqrt(variance + parameters[0] ** 2), levels)
    rng, each = np.random.default_rng(0), -(-num_samples // len(mean))
    f = mean[..., None] + np.sqrt(variance)[..., None] * rng.normal(size=(*mean.shape, each))
    draws = row.draw(rng, link, f, *(one[..., None] for one in parameters))
    flat = np.moveaxis(draws, 1, 0).reshape(mean.shape[1], -1)
    # A count or a label, and no mean of two.
    return np.quantile(flat, levels, axis=1, method="lower" if row.is_discrete else "linear")


def check_levels(levels: float | Sequence[float]) -> np.ndarray:
    """Levels of quantiles as an array."""
    wanted = np.atleast_1d(np.asarray(levels, float))
    if not wanted.size or not np.all((wanted > 0) & (wanted < 1)):
        fail("levels", "one or more numbers between 0 and 1", f"{levels}", "Pass [0.05, 0.5, 0.95].")
    return wanted


def mixture_quantiles(mean: np.ndarray, scale: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Quantiles ``(levels, N)`` of a mixture of normal distributions ``(S, N)``, by bisection."""
    ends = (mean - 10 * scale).min(axis=0), (mean + 10 * scale).max(axis=0)
    low, high = (np.broadcast_to(end, (len(levels), mean.shape[1])) for end in ends)
    for _ in range(50):
        middle = 0.5 * (low + high)
        below = normal_cdf((middle[:, None] - mean) / scale).mean(axis=1) < levels[:, None]
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return 0.5 * (low + high)


def over_draws(means: np.ndarray, variances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of a mixture of draws ``(S, N)``."""
    return means.mean(axis=0), variances.mean(axis=0) + means.var(axis=0)


# --------------------------------------------------------------------------------------
# Predictions of new rows without the library's posterior: the same mixture over the same draws, by NumPy.


# Steps of the precision of JAX at the level of the data, in parts of the noise, above which the level is kept apart.
FINE = 1e-3


def latent(draws: Draws, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance ``(S, N)`` of ``f`` at rows, at each draw."""
    offset, means, variances = offset_at(draws.model, X), [], []
    if (exact := draws.exact) is not None:
        mean, variance = zip(*exact.at(X, is_split=False), strict=True)
        return offset + np.stack(mean), np.stack(variance)
    least = 4 * np.finfo(float).eps
    for term_posterior, (A, prior, _) in draws.at(X):
        means.append(offset + term_posterior.mean @ A)
        whole = prior.sum(axis=0)
        variances.append(np.maximum(whole - np.sum(A**2, axis=0) + term_posterior.row_variances(A), least * whole))
    return np.stack(means), np.stack(variances)


def in_parts(draws: Draws, X: np.ndarray) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """At most `ROWS` rows at a time, with mean and variance ``(S, N)`` of ``f`` there."""
    for at in draws.cuts(len(X)):
        mean, variance = latent(draws, X[at])
        for low in range(0, mean.shape[1], ROWS):
            own = slice(low, min(low + ROWS, mean.shape[1]))
            yield slice(at.start + low, at.start + own.stop), mean[:, own], variance[:, own]


def predicted(draws: Draws, X: np.ndarray, key: Array) -> Prediction:
    """The mixture over all draws of what each says of new data at encoded rows."""
    chunks, sizes, model = [], [], draws.model
    count, dtype = len(model.rows.y), draws.term_features.dtype
    check_same_rows(draws.likelihood, len(X), count)
    offset, is_location = np.broadcast_to(offset_at(model, X), len(X)), model.family.link == "identity"
    lost = np.isnan(X).any(axis=1)
    step = float(np.abs(offset[~lost]).max(initial=0.0) * jnp.finfo(dtype).eps)
    level = offset if is_location and step > FINE * float(model.start.noise) else None
    if lost.any():
        level = np.where(lost, np.nan, 0.0 if level is None else level)
    for rows, mean, variance in in_parts(draws, X):
        own = mean if level is None else mean - level[rows]
        mean, variance = (padded(one, 0, ROWS, axis=1).astype(dtype) for one in (own, variance))
        places = padded(np.arange(rows.start, rows.stop), 0, ROWS)
        likelihood = draws.likelihood_at(X[places], places)
        own = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), (mean, likelihood))
        # Its shapes are those of one draw; leaves have the draws on their first axis.
        of_one = jax.eval_shape(lambda f, likelihood: Observation(dist.Normal(f, jnp.ones_like(f)), likelihood), *own)
        chunk: Observation = copy.copy(of_one)
        chunk.mean_latent, chunk.variance_latent = jnp.asarray(mean), jnp.asarray(variance)
        chunk.likelihood = jax.tree.map(jnp.asarray, likelihood)
        chunks.append(chunk)
        sizes.append(rows.stop - rows.start)
    quantiles = None if model.family.named is None else quantiles_of_rows
    response = model.layout.response_column
    labels = response if response.is_category else None
    return Prediction(chunks, sizes, key, quantiles=quantiles, level=level, labels=labels)


def quantiles_of_rows(chunk: Observation, rows: int, levels: np.ndarray, num_samples: int) -> np.ndarray:
    """Quantiles ``(levels, N)`` of a named family for the first rows of a chunk of predictions, by NumPy."""
    # Parameters (S,), and trials (S, N).
    cut = (slice(None), slice(rows))
    likelihood = jax.tree.map(lambda leaf: np.asarray(leaf)[cut[: np.ndim(leaf)]], chunk.likelihood.uncensored)
    mean, variance = (np.asarray(one, float)[:, :rows] for one in (chunk.mean_latent, chunk.variance_latent))
    return new_quantiles(likelihood, mean, variance, levels, num_samples)


def mean_interval(draws: Draws, X: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """The interval ``(N,), (N,)`` that holds so much of the mean of new data at encoded rows: noise is not in it.

    The mean rises with ``f``, so that its quantiles are those of ``f``; of `Gamma` of ``f`` and ``log shape``.
    """
    likelihood, parts = draws.likelihood, []
    if draws.model.family.link == "none":
        cure = "Take fit.quantiles(data), which are of new data, or moments of f: fit.predict(data).function_mean."
        fail("the family of an interval", "one whose mean is a known function of f", type(likelihood).__name__, cure)
    check_same_rows(likelihood, len(X), len(draws.model.rows.y))
    shift = log_ratio(likelihood)
    for rows, mean, variance in in_parts(draws, X):
        own = shift[:, rows] if shift.shape[1] > 1 else shift
        parts.append(ends_of_mean(draws.model, X[rows], mean + own, variance, level))
    low, high = np.concatenate(parts, axis=1)
    return low, high


def ends_of_mean(model: Model, X: np.ndarray, mean: np.ndarray, variance: np.ndarray, level: float) -> np.ndarray:
    """The interval ``(2, N)`` of the mean of new data, of moments ``(S, N)`` of what it rises with."""
    ends = np.array([0.5 - level / 2, 0.5 + level / 2])
    found = mean_of(model.family.link, mixture_quantiles(mean, np.sqrt(variance), ends))
    trials = trials_at(model.layout, X)
    return found if trials is None else trials * found


# --------------------------------------------------------------------------------------
# Rows to predict outside of those of the fit: there most curves return to their mean, which is no forecast.


# How far beyond the ends of a column a row may lie, in ranges of it: of a random split some rows always do.
PART_BEYOND = 0.05
# How far gaps of a series may be from whole multiples of the least one.
EVEN = 1e-3


def warn_missing(X: np.ndarray, stacklevel: int) -> None:
    """One warning of encoded rows ``(N, D)`` with NaN, which miss a value."""
    if count := int(np.isnan(X).any(axis=1).sum()):
        text = f"Rows with missing values are predicted as NaN: {count} of {len(X)}."
        warnings.warn(text, UserWarning, stacklevel=stacklevel)


def warn_outside(model: Model, X: np.ndarray, stacklevel: int) -> None:
    """One warning of encoded rows ``(N, D)`` outside of those of the fit: each term and each column once.

    ``warnings.filterwarnings("ignore", "Terms return to their mean")`` silences it: the first words are always these.
    """
    X = X[~np.isnan(X).any(axis=1)]
    # A term returns to its mean outside of a column of numbers; a line or a trend beside it, as is advised, goes on.
    goes_on = {part.columns[0] for part in model.layout.read_terms if part.term.kind in ("linear", "trend")}
    readers: dict[int, list[ReadTerm]] = {}
    for part in model.layout.read_terms:
        for at in part.columns if part.term.kind in SMOOTH and not part.term.cyclic else ():
            if not model.layout.columns[at].is_category and at not in goes_on:
                readers.setdefault(at, []).append(part)
    said, columns, times = [], [], []
    parts: dict[str, ReadTerm] = {}
    for at, own in readers.items():
        low, high, column = model.rows.X[:, at].min(), model.rows.X[:, at].max(), model.layout.columns[at]
        beyond = np.maximum(X[:, at] - high, low - X[:, at])
        if rows := int((beyond > PART_BEYOND * (high - low)).sum()):
            furthest = float(column.decode(X[int(np.argmax(beyond)), at]))
            ends = f"beyond {_written(column, column.low)} to {_written(column, column.high)}"
            said.append(f"{rows} of {len(X)} rows have {column.name} up to {_written(column, furthest)}, {ends}")
            columns.append(column.name)
            # In order, none twice, and at whole multiples of a step, as the times of a series are.
            gaps = np.diff(model.rows.X[:, at])
            steps = gaps / gaps.min() if len(gaps) and gaps.min() > 0 else np.array([0.5])
            times.append(column.is_date or bool(np.abs(steps - np.round(steps)).max() < EVEN))
            parts |= {part.name: part for part in own}
    if said:
        text = "Terms return to their mean outside of the rows of the fit, which is no forecast: "
        text += f"{', '.join(parts)}. {'; '.join(said)}."
        is_curve = any(len(part.columns) == 1 for part in parts.values())
        line = f"linear({columns[0]}) beside the {'curve' if is_curve else 'surface'}"
        if is_curve and times[0]:
            text += f" Write trend({columns[0]}) for a series over time, or {line}."
        else:
            text += f" Take what is predicted there for a guess, as its variance says, or write {line}, which goes on."
        warnings.warn(text, UserWarning, stacklevel=stacklevel)


def _written(column: Column, value: float) -> str:
    """A number, or a date, as people write it."""
    if not column.is_date:
        return f"{value:.6g}"
    return str(np.datetime64(0, "D") + np.timedelta64(round(value), "D"))


# --------------------------------------------------------------------------------------
# Kernels of the terms between one row and all inducing inputs, at all draws of the lengthscales at once.
#
# What depends on inducing inputs alone is found when they are made, so that a row costs a few products.


# A kernel of unit variance at a row is an array ``(S, M_c + 1)``, or one ``(1, M_c + 1)`` for all draws: ``k(Z, x)``,
# and ``k(x, x)`` as its last column.


class CurveAtRow:
    """A `Curve` at draws of its lengthscale ``(S,)``, whose averages ``a (S, M)``, ``b (S, 1)`` are found once."""

    def __init__(self, kind: type, given: object, lengths: np.ndarray, Z: np.ndarray) -> None:
        self.curve, self.lengths = Curve(kind, given, Z, Z[:0]), lengths
        kind, gaps = self.curve.kind, self.curve.gaps
        found = [self.curve.average(one, deviations(kind, gaps, one, is_sloped=False)) for one in map(float, lengths)]
        self.a, self.b = np.stack([a.value for a, _ in found]), np.array([[b.value] for _, b in found])

    def at(self, x: float) -> np.ndarray:
        """At one value of the column."""
        curve, size = self.curve, len(self.curve.weights)
        gaps = distances(x, curve.columns, curve.period)
        d = deviations(curve.kind, gaps, self.lengths[:, None], is_sloped=False).value
        if size:
            a = d[:, :size] @ curve.weights[:, None]
        else:
            point = np.array([x])
            each = (averages_over(curve.kind, curve.measure, float(length), point)[0] for length in self.lengths)
            a = np.stack([one.value for one in each])
        return np.concatenate([d[:, size:] - of_average(a, self.a, self.b), -of_average(a, a, self.b)], axis=1)


class TermAtRow:
    """A term at draws of its lengthscales ``(S, P)``."""

    def __init__(self, model: Model, part: ReadTerm, lengths: np.ndarray) -> None:
        self.term, self.columns, self.count = part.term, list(part.columns), count_lengthscales(part)
        self.given, self.Z = model.kernel_data.column_data(part), inducing_inputs_of(model, part)
        if part.term.kind in TIME:
            cure = "Take fit.predict(data), which knows all terms."
            fail("terms of a fit with a predictor", "curves, surfaces, lines and levels", part.name, cure)
        kind, every = part.term.kernel, range(self.count)
        self.curves = [CurveAtRow(kind, self.given[at], lengths[:, at], self.Z[:, at]) for at in every]
        of_levels = "factor" if is_difference(part, model.layout.read_terms) else "re" if part.term.by else ""
        self.levels = of_levels if self.curves else part.term.kind

    def at(self, row: np.ndarray) -> Any:
        """At an encoded row ``(D,)``."""
        read, fixed = row[self.columns], None
        if self.levels:  # what no lengthscale moves
            of_row = self.given[self.count :], self.Z[:, self.count :], read[None, self.count :]
            fixed = fixed_matrices(self.levels, *of_row).value[:, -1][None]
        if not self.curves:
            return fixed
        return composed(self.term, [curve.at(x) for curve, x in zip(self.curves, read, strict=False)], fixed)


# --------------------------------------------------------------------------------------
# A fit as a service: predictions of a row in NumPy, with all that depends on no row found before.
#
# At each draw of the hyper-parameters ``E f = m^T A`` and ``var f = k - |R A|^2`` with features ``A = W k(Z, x)`` and
# ``R^T R = 1 - S``, where S is the covariance of the whitened values: R has a row for each direction that the data
# know.


# Directions of 1 - S that are left out: the variance of f is at least (1 - LEFT_OUT_PART) of that in one of them, and
# so no variance is off by more than this part of it.
LEFT_OUT_PART = 1e-6


class RowPrediction:
    """What `TableRowPredictor` returns.

    Attributes
    ----------
    mean, variance : array (N,)
        Of new data.
    function_mean, function_variance : array (N,)
        Of ``f``, on the scale of the link.
    """

    def __init__(
        self, likelihood: Likelihood, mean: np.ndarray, variance: np.ndarray, model: Model, X: np.ndarray
    ) -> None:
        self._likelihood, self._latent, self._rows = likelihood, (mean, variance), (model, X)
        self.mean, self.variance = new_moments(likelihood, mean, variance)
        self.function_mean, self.function_variance = over_draws(mean, variance)

    def quantiles(self, levels: float | Sequence[float] = (0.05, 0.5, 0.95)) -> np.ndarray:
        """Quantiles of new data ``(levels, N)``: exact where noise is normal, else from 2000 draws."""
        return new_quantiles(self._likelihood, *self._latent, check_levels(levels))

    def interval(self, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Ends ``(N,), (N,)`` of an interval of the mean of new data, as `Fit.interval` has it."""
        mean, variance = self._latent
        low, high = ends_of_mean(*self._rows, mean + log_ratio(self._likelihood), variance, check_level(level))
        return low, high


class TableRowPredictor:
    """Predictions of a row, or of a few: the mixture of `Fit.predict`, by a few products for each row.

    It does not warn of rows far outside of those of the fit, as `Fit.predict` does.
    """

    def __init__(self, draws: Draws) -> None:
        self.model, self.layout, term_features = draws.model, draws.model.layout, draws.term_features
        self.likelihood = draws.likelihood
        if any(one.shape[1] > 1 for one in formulas_of(self.likelihood)[2]):
            cure = "Take fit.terms(data), which needs none."
            fail("the likelihood of a fit with a predictor", "of one number for all rows", "one for each row", cure)
        counts = [count_lengthscales(part) for part in self.layout.read_terms]
        each = np.split(draws.lengths, np.cumsum(counts, dtype=int), axis=1)  # nothing is behind the last
        pairs = zip(self.layout.read_terms, each, strict=False)
        self.terms = [TermAtRow(self.model, part, lengths) for part, lengths in pairs]
        self.places, self.squares = term_features.slices, draws.scales**2
        turned, self.weights = [], np.empty((draws.size, len(term_features.repeats)))
        for at, posterior in enumerate(draws.term_posteriors):
            if not isinstance(posterior, Dense):
                required = "one with all covariances, of up to 600 inducing inputs"
                cure = "Take fit.predict(data), which knows fits of many terms too."
                fail("a fit with a predictor", required, "one of low rank", cure)
            values, vectors = np.linalg.eigh(np.eye(len(posterior.mean)) - posterior.half.T @ posterior.half)
            known = values > LEFT_OUT_PART
            root = np.sqrt(values[known])[:, None] * vectors[:, known].T
            W = term_features.roots(draws.scales[at], draws.lengths[at])[1]
            self.weights[at] = posterior.mean @ W
            turned.append(root @ W)
        most = max(map(len, turned))
        self.directions = np.stack([np.pad(one, ((0, most - len(one)), (0, 0))) for one in turned])

    def __call__(self, data: Any) -> RowPrediction:
        """Predict a row, ``{"age": 60, "site": "west"}``, one of a table, or the rows of a small table."""
        columns = {name: data[key] for name, key in keys_of(data).items()}
        if any(np.ndim(value) == 0 for value in columns.values()):
            data = {name: np.atleast_1d(value) if np.ndim(value) == 0 else value for name, value in columns.items()}
        X = self.layout.encode(data)
        mean, variance = np.stack([self._latent(row) for row in X], axis=-1)
        likelihood = self.likelihood
        if (trials := trials_at(self.layout, X)) is not None:
            likelihood = with_trials(likelihood, np.broadcast_to(trials, mean.shape))
        return RowPrediction(likelihood, mean + offset_at(self.model, X), variance, self.model, X)

    def _latent(self, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean, without offsets, and variance of ``f`` at each draw ``(S,)``."""
        kernels = np.empty(self.weights.shape)
        prior = np.zeros(len(kernels))
        every = [*(term.at(row) for term in self.terms), np.ones((1, 2))]
        for at, (place, found) in enumerate(zip(self.places, every, strict=True)):
            kernels[:, place] = found[:, :-1]
            prior += self.squares[:, at] * found[:, -1]
        explained = np.matmul(self.directions, kernels[:, :, None])[..., 0]
        variance = prior - np.sum(explained**2, axis=1)
        mean = np.sum(self.weights * kernels, axis=1)
        return mean, np.maximum(variance, 4 * np.finfo(float).eps * prior)
