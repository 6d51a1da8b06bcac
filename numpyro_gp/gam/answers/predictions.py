"""New data of the named likelihoods in NumPy: moments, quantiles and draws, where ``f`` is normal at each draw."""

import copy
import warnings
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from numpyro_gp.additive.columns import Column
from numpyro_gp.arrays import Array
from numpyro_gp.checks import fail
from numpyro_gp.gam.answers.draws import Draws
from numpyro_gp.gam.model.families import NAMED, OF_RATE, row_of
from numpyro_gp.gam.model.features import ROWS
from numpyro_gp.gam.model.model import Model, offset_at
from numpyro_gp.gam.model.response_checks import check_same_rows, likelihood_at_rows, trials_at, with_trials
from numpyro_gp.gam.model.term_kernels import SMOOTH
from numpyro_gp.gam.table.layout import ReadTerm
from numpyro_gp.likelihoods import Binomial, Gaussian, Likelihood
from numpyro_gp.likelihoods.links import normal_cdf
from numpyro_gp.likelihoods.quadrature import gauss_hermite
from numpyro_gp.posterior import Prediction
from numpyro_gp.rows.batches import padded
from numpyro_gp.sites import Observation

# Nodes of an expectation over f, and draws of new data behind quantiles.
NODES, SAMPLES = 48, 2000


class NewResponses:
    """The mixture over draws of new data, ``f`` normal with mean and variance ``(S, N)`` at each."""

    def __init__(self, likelihood: Likelihood) -> None:
        kind = type(likelihood)
        row = row_of(kind)
        if row is None or row.draw is None or row.variance is None:
            cure = "Take fit.predict(data), which knows all likelihoods."
            required = f"one of {sorted(one.kind.__name__ for one in (*NAMED.values(), OF_RATE) if one.draw)}"
            fail("the likelihood of a fit with a predictor", required, kind.__name__, cure)
        self.row, self.draw, self.variance, self.is_normal = row, row.draw, row.variance, kind is Gaussian
        self.link, leaves = getattr(likelihood, "link", row.link), jax.tree.leaves(likelihood)
        parameters = [np.asarray(leaf, float) for leaf in leaves]
        if any(value.ndim > 1 for value in parameters):
            cure = "Take fit.terms(data), which needs none."
            fail("the likelihood of a fit with a predictor", "of one number for all rows", "one for each row", cure)
        self.parameters = [value[:, None] for value in parameters]
        self.nodes, self.weights = gauss_hermite(NODES)

    def of_trials(self, trials: np.ndarray | None) -> "NewResponses":
        """Successes among these trials ``(N,)`` of new rows; None: of no trials."""
        if trials is None:
            return self
        found = copy.copy(self)
        found.parameters = [trials[None]]
        return found

    def moments(self, mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance ``(N,)``."""
        if self.is_normal:
            return over_draws(mean, variance + self.parameters[0] ** 2)
        f, p = mean[..., None] + np.sqrt(variance)[..., None] * self.nodes, [one[..., None] for one in self.parameters]
        values = self.row.mean_at(self.link, f, *p)
        means = values @ self.weights
        spread = self.variance(self.link, f, *p) + (values - means[..., None]) ** 2
        return over_draws(means, spread @ self.weights)

    def quantiles(
        self, mean: np.ndarray, variance: np.ndarray, levels: np.ndarray, num_samples: int = SAMPLES
    ) -> np.ndarray:
        """Quantiles ``(levels, N)``: of normal data exact, of others from draws, the same ones for the same rows."""
        if self.is_normal:
            return _normal_quantiles(mean, np.sqrt(variance + self.parameters[0] ** 2), levels)
        rng, each = np.random.default_rng(0), -(-num_samples // len(mean))
        f = mean[..., None] + np.sqrt(variance)[..., None] * rng.normal(size=(*mean.shape, each))
        draws = self.draw(rng, self.link, f, *(one[..., None] for one in self.parameters))
        flat = np.moveaxis(draws, 1, 0).reshape(mean.shape[1], -1)
        # A count or a label, and no mean of two.
        return np.quantile(flat, levels, axis=1, method="lower" if self.row.is_discrete else "linear")


def check_levels(levels: float | Sequence[float]) -> np.ndarray:
    """Levels of quantiles as an array."""
    wanted = np.atleast_1d(np.asarray(levels, float))
    if not wanted.size or not np.all((wanted > 0) & (wanted < 1)):
        fail("levels", "one or more numbers between 0 and 1", f"{levels}", "Pass [0.05, 0.5, 0.95].")
    return wanted


def over_draws(means: np.ndarray, variances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of a mixture of draws ``(S, N)``."""
    return means.mean(axis=0), variances.mean(axis=0) + means.var(axis=0)


def _normal_quantiles(means: np.ndarray, scales: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Those of a mixture of normal distributions, by bisection."""
    ends = (means - 10 * scales).min(axis=0), (means + 10 * scales).max(axis=0)
    low, high = (np.broadcast_to(end, (len(levels), means.shape[1])) for end in ends)
    for _ in range(50):
        middle = 0.5 * (low + high)
        below = normal_cdf((middle[:, None] - means) / scales).mean(axis=1) < levels[:, None]
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return 0.5 * (low + high)


# --------------------------------------------------------------------------------------
# Predictions of new rows without the library's posterior: the same mixture over the same draws, by NumPy.


# Steps of the precision of JAX at the level of the data, in parts of the noise, above which the level is kept apart.
FINE = 1e-3


def latent(draws: Draws, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance ``(S, N)`` of ``f`` at rows, at each draw."""
    offset, means, variances = offset_at(draws.model, X), [], []
    least = 4 * np.finfo(float).eps
    for term_posterior, (A, prior, _) in draws.at(X):
        means.append(offset + term_posterior.mean @ A)
        whole = prior.sum(axis=0)
        variances.append(np.maximum(whole - np.sum(A**2, axis=0) + term_posterior.row_variances(A), least * whole))
    return np.stack(means), np.stack(variances)


def in_parts(draws: Draws, X: np.ndarray) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """At most `ROWS` rows at a time, with mean and variance ``(S, N)`` of ``f`` there."""
    for at in draws.term_features.cuts(len(X)):
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
    step = float(np.abs(offset).max() * jnp.finfo(dtype).eps)
    level = offset if is_location and step > FINE * float(model.start.noise) else None
    for rows, mean, variance in in_parts(draws, X):
        own = mean if level is None else mean - level[rows]
        mean, variance = (padded(one, 0, ROWS, axis=1).astype(dtype) for one in (own, variance))
        places = padded(np.arange(rows.start, rows.stop), 0, ROWS)
        likelihood = likelihood_at_rows(draws.likelihood, model.layout, X[places], places, count)
        chunks.append(observation(likelihood, mean, variance))
        sizes.append(rows.stop - rows.start)
    return Prediction(chunks, sizes, key, quantiles=quantiles_of_rows if has_draws(model) else None, level=level)


def has_draws(model: Model) -> bool:
    """Whether quantiles of the family need no program."""
    return model.family.named is not None and model.family.named.draw is not None


def quantiles_of_rows(chunk: Observation, rows: int, levels: np.ndarray, num_samples: int) -> np.ndarray:
    """`quantiles_at` for the first rows of a chunk of predictions."""
    likelihood, trials = jax.tree.map(np.asarray, chunk.likelihood), None
    if isinstance(likelihood, Binomial):  # trials of draws and rows, the same at each draw
        every = np.asarray(likelihood.trials)
        likelihood, trials = with_trials(likelihood, every[:, 0]), every[0, :rows]
    mean, variance = (np.asarray(one, float)[:, :rows] for one in (chunk.mean_latent, chunk.variance_latent))
    return NewResponses(likelihood).of_trials(trials).quantiles(mean, variance, levels, num_samples)


def quantiles_at(draws: Draws, X: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Quantiles ``(levels, N)`` of new data of a named family at encoded rows, by NumPy, which compiles nothing."""
    new_data, layout, found = NewResponses(draws.likelihood), draws.model.layout, []
    for rows, mean, variance in in_parts(draws, X):
        found.append(new_data.of_trials(trials_at(layout, X[rows])).quantiles(mean, variance, levels))
    return np.concatenate(found, axis=1).astype(float)


def observation(likelihood: Likelihood, mean: np.ndarray, variance: np.ndarray) -> Observation:
    """New data at each draw, which all leaves have on their first axis; their shapes are those of one draw."""

    def one(likelihood: Likelihood, mean: Array) -> Observation:
        return Observation(dist.Normal(mean, jnp.ones_like(mean)), likelihood)

    own = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), (likelihood, mean))
    found: Observation = copy.copy(jax.eval_shape(one, *own))
    found.mean_latent, found.variance_latent = jnp.asarray(mean), jnp.asarray(variance)
    found.likelihood = jax.tree.map(jnp.asarray, likelihood)
    return found


# --------------------------------------------------------------------------------------
# Rows to predict outside of those of the fit: there most curves return to their mean, which is no forecast.


# How far beyond the ends of a column a row may lie, in ranges of it: of a random split some rows always do.
NEAR = 0.05
# How far gaps of a series may be from whole multiples of the least one.
EVEN = 1e-3


def _returning(model: Model, part: ReadTerm) -> list[int]:
    """Columns outside of which a term returns to its mean: not of a circle, a line, a trend or levels.

    Nor of a column of which a line or a trend stands beside it, as the warning advises: to that it returns.
    """
    if part.term.kind not in SMOOTH or part.term.cyclic:
        return []
    goes_on = {other.columns[0] for other in model.layout.read_terms if other.term.kind in ("linear", "trend")}
    return [at for at in part.columns if not model.layout.columns[at].is_category and at not in goes_on]


def warn_outside(model: Model, X: np.ndarray, stacklevel: int) -> None:
    """One warning of encoded rows ``(N, D)`` outside of those of the fit: each term and each column once.

    ``warnings.filterwarnings("ignore", "Terms return to their mean")`` silences it: the first words are always these.
    """
    readers: dict[int, list[ReadTerm]] = {}
    for part in model.layout.read_terms:
        for at in _returning(model, part):
            readers.setdefault(at, []).append(part)
    said, columns, times = [], [], []
    parts: dict[str, ReadTerm] = {}
    for at, own in readers.items():
        low, high, column = model.rows.X[:, at].min(), model.rows.X[:, at].max(), model.layout.columns[at]
        beyond = np.maximum(X[:, at] - high, low - X[:, at])
        if rows := int((beyond > NEAR * (high - low)).sum()):
            furthest = float(column.decode(X[int(np.argmax(beyond)), at]))
            ends = f"beyond {_written(column, column.low)} to {_written(column, column.high)}"
            said.append(f"{rows} of {len(X)} rows have {column.name} up to {_written(column, furthest)}, {ends}")
            columns.append(column.name)
            times.append(column.is_date or _is_series(model.rows.X[:, at]))
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


def _is_series(x: np.ndarray) -> bool:
    """Whether values stand in order, none of them twice, at whole multiples of a step, as those of a series do."""
    gaps = np.diff(x)
    if not len(gaps) or gaps.min() <= 0:
        return False
    steps = gaps / gaps.min()
    return bool(np.abs(steps - np.round(steps)).max() < EVEN)


def _written(column: Column, value: float) -> str:
    """A number, or a date, as people write it."""
    if not column.is_date:
        return f"{value:.6g}"
    return str(np.datetime64(0, "D") + np.timedelta64(round(value), "D"))
