"""Densities of named families at draws of the function, in NumPy: what a summary asks of them compiles nothing.

Formulas are those of `families.py`; likelihoods that have none there are compiled.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.distributions import constraints

from numpyro_gp.arrays import Array, on_device
from numpyro_gp.criticism.evidence import Fact, FitEvidence, lower_end
from numpyro_gp.criticism.leave_one_out import ROWS as LOOKED_AT
from numpyro_gp.criticism.leave_one_out import cannot_leave_out, judged, smoothed
from numpyro_gp.criticism.weights import Weights
from numpyro_gp.gam.answers.draws import Draws
from numpyro_gp.gam.answers.effects import Shares
from numpyro_gp.gam.model.censoring import censored_row, sides_at
from numpyro_gp.gam.model.families import NAMED, FamilyRow, parameters_of, row_of
from numpyro_gp.gam.model.features import ROWS, factored
from numpyro_gp.gam.model.model import Model, offset_at
from numpyro_gp.likelihoods import Gaussian, Likelihood
from numpyro_gp.likelihoods.links import normal_cdf
from numpyro_gp.likelihoods.tails import KNOWN, log_tails
from numpyro_gp.programs.compiled import compiled
from numpyro_gp.programs.handler_lock import alone
from numpyro_gp.rows.batches import padded, some_rows


def row_of_formulas(likelihood: Likelihood) -> FamilyRow | None:
    """The row of a likelihood whose densities need no program; its link is that of the row."""
    row = row_of(type(likelihood))
    has_formulas = row is not None and row.until is not None and (row.value or row.expected) is not None
    return row if row and has_formulas and getattr(likelihood, "link", row.link) == row.link else None


# --------------------------------------------------------------------------------------
# What a fit says of its own rows: log densities with each row left out, importance weights, evidence for a verdict.


# Draws of the whitened values by whose weights a fit is judged, and expected log densities for that, at most.
WEIGHED, MOST_EXPECTED = 400, 500_000
# Inducing inputs of all terms up to which rows are left out in closed form, and numbers in the features of all draws.
MOST_JOINT, MOST_LEFT_OUT = 1500, 240_000_000
# Standard deviations of the response below which a spread is rounding, and a floor of the noise.
ROUNDED = 1e-4


class RowDraws(NamedTuple):
    """What densities are found from, at ``N`` rows.

    Attributes
    ----------
    mean, variance : array (S, N)
        Of ``f``, at each draw of the hyper-parameters.
    points, left : array (S, K', N), (S, N)
        Mean and variance of ``f`` at the first draws of the whitened values, by whose weights a fit is judged.
    f : array (S, K, N)
        Drawn from these.
    prior : array (S,)
        Prior variance of the terms without the constant, averaged over the rows.
    open : array (S, C)
        What inducing inputs leave open of that of each component, averaged over the rows.
    log_ratio : array (S, K)
        Log density of the whitened values under the prior, less that under the fit.
    without : pair of arrays (S, N), optional
        Mean and variance of each datum from all others, where `GaussianLeftOut` knows them.
    """

    mean: np.ndarray
    variance: np.ndarray
    points: np.ndarray
    left: np.ndarray
    f: np.ndarray
    prior: np.ndarray
    open: np.ndarray
    log_ratio: np.ndarray
    without: tuple[np.ndarray, np.ndarray] | None = None


class GaussianLeftOut:
    """Mean and variance of each datum from all others, at each draw of the hyper-parameters: of Gaussian noise.

    Pseudo-data belong to the noise that they were found at: at a draw with less of it residuals would be huge. So the
    data say at each draw what they say at its noise. What inducing inputs leave open of a row is noise of ``f`` there.
    A row of weight two is two rows, of which one is left out; rows that are equal share their ``f``.
    """

    def __init__(self, draws: Draws, places: np.ndarray) -> None:
        model, rows, self.draws, self.places = draws.model, draws.model.rows, draws, places
        _, self.first, place = np.unique(rows.X, axis=0, return_index=True, return_inverse=True)
        self.place, self.offset = place.reshape(-1), offset_at(model, rows.X)
        self.rest, self.mass = rows.y - self.offset, rows.mass
        assert isinstance(draws.likelihood, Gaussian)
        scale: np.ndarray = np.asarray(draws.likelihood.scale, np.float64).reshape(draws.size, -1)
        self.noise = np.broadcast_to(scale**2, (draws.size, len(rows.y)))
        self.mean, self.variance = np.empty((2, draws.size, len(places)))
        self.is_whole = len(places) == len(rows.y)
        self.columns = np.argsort(places)[self.first] if self.is_whole else None  # where `places` has these rows

    @classmethod
    def of(cls, draws: Draws, places: np.ndarray) -> "GaussianLeftOut | None":
        """That of rows of a fit with these numbers, where noise is Gaussian and features of all rows are not many."""
        M = len(draws.term_features.repeats)
        is_observed = draws.model.layout.censored is None
        is_small = M <= MOST_JOINT and draws.size * M * len(draws.model.rows.y) <= MOST_LEFT_OUT
        return cls(draws, places) if is_small and is_observed and isinstance(draws.likelihood, Gaussian) else None

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance ``(S, N)``."""
        if not self.is_whole:  # `row_draws` has gone over some of the rows alone
            for number, (_, scaled) in enumerate(self.draws.at(self.draws.model.rows.X[self.first])):
                self.add(number, scaled.A, scaled.prior)
        return self.mean, self.variance

    def add(self, number: int, A: np.ndarray, prior: np.ndarray) -> None:
        """Those at one draw, from features ``(M, U)`` and prior variances ``(C, U)`` of the different rows."""
        noise, place = self.noise[number], self.place
        left = np.maximum(prior.sum(axis=0) - np.sum(A**2, axis=0), 0)
        rate = np.bincount(place, self.mass / noise)
        total = np.bincount(place, self.mass / noise * self.rest)
        of_place, y = 1 / (left + 1 / rate), total / rate  # what the rows of one place say of the features there
        half = A * np.sqrt(of_place)
        seen = factored(np.eye(len(A)) + half @ half.T)[1] @ half
        share = np.minimum(np.sum(seen**2, axis=0), 1 - 1e-12)  # of what is known of a place, what it says itself
        fitted = (seen @ (np.sqrt(of_place) * y)) @ seen / np.sqrt(of_place)
        centre = ((fitted - share * y) / (1 - share))[place]
        spread = (share / (of_place * (1 - share)) + left)[place]
        others = np.maximum(rate[place] - 1 / noise, 0)  # the other rows of the same place
        of_others = np.where(others > 1e-9 * rate[place], total[place] - self.rest / noise, 0.0)
        self.mean[number] = (self.offset + (centre + spread * of_others) / (1 + spread * others))[self.places]
        self.variance[number] = (spread / (1 + spread * others) + noise)[self.places]


def row_draws(
    draws: Draws,
    X: np.ndarray,
    drawn: Iterable[np.ndarray],
    rng: np.random.Generator,
    shares: Shares | None = None,
    without: GaussianLeftOut | None = None,
) -> RowDraws:
    """Those at encoded rows, with draws ``(M, K)`` of the whitened values at each draw of the hyper-parameters.

    What of the table goes over all draws, too, is added to ``shares``, and rows are left out of the fit ``without``.
    """
    offset, first, each = offset_at(draws.model, X), draws.term_features.blocks.first, list[tuple[Any, ...]]()
    weighed = max(1, min(WEIGHED, MOST_EXPECTED // len(X)) // draws.size)
    for s, ((term_posterior, scaled), values) in enumerate(zip(draws.at(X), drawn, strict=True)):
        of_each = scaled.prior - np.add.reduceat(scaled.A**2, first, axis=0)
        left = np.maximum(of_each.sum(axis=0), 0)
        mean, variance = offset + term_posterior.mean @ scaled.A, left + term_posterior.row_variances(scaled.A)
        points = offset + values.T @ scaled.A
        f = points + np.sqrt(left) * rng.standard_normal(points.shape)
        prior, is_open = np.mean(scaled.prior[:-1].sum(axis=0)), np.mean(of_each, axis=1)
        ratio = -0.5 * np.sum(values**2, axis=0) - 0.5 * len(values) * np.log(2 * np.pi)
        ratio -= term_posterior.log_density(values)
        each.append((mean, variance, points[:weighed].copy(), left, f, prior, is_open, ratio))
        if shares is not None:
            shares.add(term_posterior, scaled, of_each, values)
        if without is not None and without.is_whole:
            without.add(s, scaled.A[:, without.columns], scaled.prior[:, without.columns])
    stacked: list[Any] = [np.stack(own) for own in zip(*each, strict=True)]
    result = RowDraws(*stacked)
    return result if without is None else result._replace(without=without.moments())


class Densities(NamedTuple):
    """At rows: the expected response ``(N,)``, log densities ``(S, K, N)`` at ``f``, sums ``(S, K')`` of expected ones.

    The last are those of the first ``K'`` draws of the whitened values, over rows by their weights.
    """

    fitted: np.ndarray
    log_density: np.ndarray
    expected: np.ndarray


def densities(draws: Draws, at: RowDraws, places: np.ndarray) -> Densities:
    """Those of the response at rows of the fit with these numbers ``(N,)``, as many at a time as predictions."""
    (S, K, N), model, own = at.f.shape, draws.model, draws.model.rows
    mass, base = own.mass[places], shift_of(model, own.X[places])
    fitted, density, expected = np.zeros(N), np.empty((S, K, N)), np.zeros(at.points.shape[:2])
    if (named := row_of_formulas(draws.likelihood)) is not None:
        likelihood = draws.likelihood_at(own.X[places], places)
        y, parameters = own.y[places], parameters_of(likelihood.uncensored, 3)
        sides = sides_at(model.layout, own.X[places])
        named = named if sides is None else censored_row(named, sides)
        for s in range(S):  # what belongs to one draw stays in the cache
            given = [one[s] for one in parameters]
            fitted += named.mean(at.mean[s], at.variance[s], *(one[0] for one in given)) / S
            density[s] = named.log_prob(y, at.f[s], *given)
            expected[s] = named.expect(y, at.points[s], at.left[s], *given) @ mass
        return Densities(fitted, density, expected)
    for low in range(0, N, ROWS):
        rows = slice(low, min(low + ROWS, N))
        numbers = (at.mean - base, at.variance, at.f - base, at.points - base, at.left)
        parts = [padded(x, low, ROWS, axis=x.ndim - 1) for x in numbers]
        full, count = padded(places, low, ROWS), rows.stop - low
        arrays = [x.astype(draws.term_features.dtype) for x in (own.y[full] - padded(base, low, ROWS), *parts)]
        likelihood = draws.likelihood_at(own.X[full], full)
        found = _densities(likelihood, *arrays)
        means, logs, terms = (np.asarray(one, float)[..., :count] for one in found)
        fitted[rows], density[..., rows] = means.mean(axis=0) + base[rows], logs
        expected += terms @ mass[rows]
    return Densities(fitted, density, expected)


def shift_of(model: Model, X: np.ndarray) -> np.ndarray:
    """What is taken off data and functions ``(N,)`` before they are rounded, where only their differences count."""
    return np.broadcast_to(offset_at(model, X) if model.family.link == "identity" else 0.0, len(X))


def to_leave_out(draws: Draws, at: RowDraws, found: Densities, places: np.ndarray) -> np.ndarray:
    """Log densities ``(S', N)`` by whose weights rows are left out: of each from all others where these are known."""
    if at.without is None:
        return found.log_density.reshape(-1, len(places))
    mean, variance = at.without
    return NAMED["gaussian"].log_prob(draws.model.rows.y[places], mean, np.sqrt(variance))


def are_known(draws: Draws, at: RowDraws) -> bool:
    """Whether each datum follows from all others, as on a line: then rounding decides how probable it is."""
    return at.without is not None and bool(np.sqrt(at.without[1].max()) < ROUNDED * float(draws.model.start.size))


@compiled
def _densities(
    likelihood: Likelihood, y: Array, mean: Array, variance: Array, f: Array, points: Array, left: Array
) -> tuple[Array, Array, Array]:
    def one(
        own: Likelihood, mean: Array, variance: Array, f: Array, points: Array, left: Array
    ) -> tuple[Array, Array, Array]:
        expected = jax.vmap(lambda point: own.expected_log_prob(y, point, left))(points)
        fitted = own.predictive_mean(mean, variance)
        fitted = fitted if fitted.shape == mean.shape else jnp.full_like(mean, jnp.nan)  # of labels each class has one
        return fitted, jax.vmap(lambda one: own.log_prob(y, one))(f), expected

    return jax.vmap(one)(likelihood, mean, variance, f, points, left)


def weights_of(draws: Draws, log_ratio: np.ndarray, expected: np.ndarray) -> Weights | None:
    """Importance weights ``p(y, theta, v) / q(theta, v)`` of a variational fit, from what was found at all its rows."""
    if draws.log_ratio is None:
        return None
    logs = (expected + log_ratio[:, : expected.shape[1]] + draws.log_ratio[:, None]).ravel()
    return Weights(logs, float(smoothed(logs[:, None]).k[0]))


def expected_at_all(draws: Draws, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """``log_ratio`` and ``expected`` of `weights_of` from all rows of the fit, some at a time."""
    X, terms = draws.model.rows.X, []
    drawn = [term_posterior.sample(rng, 1) for term_posterior in draws.term_posteriors]
    for rows in draws.cuts(len(X)):
        at = row_draws(draws, X[rows], drawn, rng)
        terms.append(densities(draws, at, np.arange(rows.start, rows.stop)).expected)
    return at.log_ratio, np.sum(terms, axis=0)


def evidence_of(draws: Draws, at: RowDraws, found: Densities, places: np.ndarray) -> FitEvidence:
    """What a verdict judges, from rows of the fit with these ``places``, each of them at one draw of the terms."""
    model, sites = draws.model, {}
    few = some_rows(len(places), LOOKED_AT)
    if model.rows.weights is not None:  # each row as often as it counts, in order; of many so many at random
        until = np.cumsum(model.rows.mass[places])
        if until[-1] <= LOOKED_AT:
            few = np.repeat(np.arange(len(places)), np.diff(np.floor(until + 0.5), prepend=0).astype(int))
        else:
            few = np.searchsorted(until, until[-1] * np.sort(np.random.default_rng(0).uniform(size=LOOKED_AT)))
    base, X, rows = shift_of(model, model.rows.X[places]), model.rows.X, places[few]
    without = None if at.without is None else (at.without[0] - base, at.without[1])
    at = at._replace(mean=at.mean - base, points=at.points - base, f=at.f[:, :1] - base, without=without)
    likelihood = draws.likelihood_at(X[rows], rows)
    if (own := _seen(draws, likelihood, at, found, model.rows.y[rows] - base[few], few)) is not None:
        judgement = judged(own, len(few), isinstance(draws.likelihood, Gaussian))
        if are_known(draws, at) or (at.without is None and cannot_leave_out(to_leave_out(draws, at, found, places))):
            judgement = judgement._replace(pit=np.zeros(0), z=np.zeros(0))
        sites["y"] = judgement._replace(rows=rows[: len(judgement.rows)], num_rows=len(X))
    prior = np.maximum(at.prior, np.finfo(float).tiny)  # of the constant alone nothing is left open
    left, gap = at.left.mean(axis=1) * (at.prior > 0), np.full(draws.size, np.nan)
    # Features of the terms are in double precision: none of it is by a jitter of note.
    fact = Fact(left, prior, 0 * left, None, None, gap, sum(model.sizes), (), is_exact=False)
    return FitEvidence(sites, {"f": fact}, draws.values, {}, lower_ends(model), X, draws.log_ratio is not None)


def _seen(
    draws: Draws, likelihood: Likelihood, at: RowDraws, found: Densities, own: np.ndarray, few: np.ndarray
) -> dict[str, Any] | None:
    """Moments of some rows, how probable what is below each is, and its log density, at each draw."""
    term, shape = found.log_density[:, 0, few], (draws.size, len(few))
    if isinstance(likelihood, Gaussian):
        scale = np.asarray(likelihood.scale, float).reshape(draws.size, -1)
        mean, variance = at.points[:, 0, few], at.left[:, few] + scale**2
        if at.without is not None:
            mean, variance = at.without[0][:, few], at.without[1][:, few]
        normal, noise = NAMED["gaussian"], np.sqrt(np.mean(scale**2, axis=1))
        below, term = normal_cdf((own - mean) / np.sqrt(variance)), normal.log_prob(own, mean, np.sqrt(variance))
    else:
        f, dtype, named = at.f[:, 0, few], np.dtype(jnp.result_type(float)), row_of_formulas(likelihood)
        if named is None:  # then the probability of what is below a datum may be known to the library
            if likelihood.uncensored is not likelihood:
                return None
            conditional = jax.vmap(lambda own, f: own.conditional(f))
            given: dist.Distribution = jax.eval_shape(conditional, likelihood, jnp.zeros(shape))
            has_rule = (
                isinstance(given, tuple(kind for kind, _ in KNOWN)) or type(given).cdf is not dist.Distribution.cdf
            )
            if not (has_rule or given.support is constraints.boolean):  # a support may need numbers, and comes last
                return None
        mean, variance, noise = at.mean[:, few], at.variance[:, few], None
        # Data that tie lie anywhere among their equals, by numbers of no seed that made a column.
        ties = np.random.default_rng([*b"ties"]).uniform(size=len(few))
        if named is None:
            below = np.asarray(
                _probability_below(likelihood, *(on_device(x.astype(dtype)) for x in (own, f, ties))), float
            )
        else:
            assert named.until is not None
            below = named.until(own, f, *parameters_of(likelihood, 2))
            below = below - (1 - ties) * np.exp(term) if named.is_discrete else below
    kept = {"y": own, "seen": np.ones(len(few), bool), "mean": mean, "variance": variance, "below": below, "term": term}
    return {name: np.broadcast_to(values, shape) for name, values in kept.items()} | {"noise": noise}


@compiled
def _probability_below(likelihood: Likelihood, y: Array, f: Array, ties: Array) -> Array:
    """``P(Y < y_n | f_n)`` at each draw, and a share of ``P(Y = y_n | f_n)``: ``(S, N)``."""

    def one(own: Likelihood, f: Array) -> Array:
        conditional = own.conditional(f)
        if conditional.support is constraints.boolean:
            none = jnp.exp(conditional.log_prob(jnp.zeros_like(y)))
            return jnp.where(y > 0, none + ties * (1 - none), ties * none)
        until = jnp.exp(log_tails(conditional, y)[0])
        if not conditional.support.is_discrete:
            return until
        before = jnp.exp(log_tails(conditional, y - 1)[0])
        return before + ties * (until - before)

    return jax.vmap(one)(likelihood, f)


@alone
def lower_ends(model: Model) -> dict[str, float]:
    """Lower ends above zero of the priors of a likelihood's parameters. Those of families with a name have none."""
    if model.family.named is not None:
        return {}
    with handlers.block(), handlers.trace() as trace, handlers.seed(rng_seed=0):
        model.family.likelihood(model.start)
    ends = {name: lower_end(site) for name, site in trace.items() if site["type"] == "sample"}
    return {name: low for name, low in ends.items() if low > 0}
