"""Data of which a bound is known: censored, in an interval, or seen only in one (mathematics.md section 7.4).

What is predicted is the value itself, not what would be seen of it. All that is given for each datum, masks and bounds,
is cut with the data: ``right[idx]`` beside ``y[idx]`` in a plate of minibatches.
"""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Bool, Float

from numpyro_gp.arrays import Array, ArrayLike, Converted, store, value_type
from numpyro_gp.checks import check_array, fail, when_known
from numpyro_gp.likelihoods.base import Likelihood, as_likelihood, like
from numpyro_gp.likelihoods.continuous import Gaussian
from numpyro_gp.likelihoods.expectations import Batch, expect, log_expect
from numpyro_gp.likelihoods.quadrature import Latent, at_points
from numpyro_gp.likelihoods.tails import before, log_mass, log_tails

Given = Converted[Likelihood, Likelihood | Callable[..., dist.Distribution]]
# The log probability of what is known of ``y`` given ``f``: (likelihood, y, f) -> (...).
Known = Callable[..., Array]


# --------------------------------------------------------------------------------------
# Masks and ends: their shapes, their order, and what rounding leaves of a width.


# Share of the width of an interval that may be lost when its ends are rounded: the probability inside loses as much.
MOST_LOST = 0.1


def shaped(argument: str, value: Array, y: Array) -> Array:
    """A mask or a bound, after a check that there is one for each datum."""
    if value.ndim and value.shape != y.shape[max(y.ndim - value.ndim, 0) :]:
        cure = f"Give each datum its own; in a plate of minibatches {argument}[idx], as y[idx]."
        fail(argument, f"of the shape of the data, {y.shape}", f"shape {value.shape}", cure)
    return value


def check_mask(argument: str, mask: ArrayLike | None) -> Array | None:
    """A boolean array, or None."""
    if mask is None:
        return None
    array = check_array(argument, mask)
    if array.dtype != bool:
        required = "boolean, true where y is the bound"
        fail(argument, required, f"dtype {array.dtype}", f"Compare: {argument}={argument} == 1.", TypeError)
    return array


def check_ends(names: tuple[str, str], lower: ArrayLike | None, upper: ArrayLike | None) -> list[Array | None]:
    """Ends of intervals, infinite ones among them: the first is not above the second, and none is NaN."""
    ends = [None if end is None else check_array(name, end) for name, end in zip(names, (lower, upper), strict=True)]
    present = [(name, end.astype(jnp.result_type(end, float))) for name, end in zip(names, ends) if end is not None]

    def check(*values: np.ndarray) -> None:
        for (name, _), value in zip(present, values):
            if np.isnan(value).any():
                cure = f"Where an end is not known pass {'-jnp.inf' if name == names[0] else 'jnp.inf'}."
                fail(name, "free of NaN", f"{np.isnan(value).sum()} NaN of {value.size}", cure)
        if len(values) == 2 and (wrong := np.broadcast_to(np.greater(*values), np.broadcast(*values).shape)).any():
            first = tuple(map(int, np.argwhere(wrong)[0]))
            pair = [f"{np.broadcast_to(value, wrong.shape)[first]:.6g}" for value in values]
            where = f"{pair[0]} above {pair[1]}" + (f" at index {first}" if first else "")
            fail(names[0], f"at most {names[1]}", where, f"Swap the two: {names[0]} comes first.")

    when_known(check, *[end for _, end in present])
    unrounded: tuple[Any, Any] = (lower, upper)
    if len(present) == 2 and not any(isinstance(end, jax.Array) for end in unrounded):  # such come rounded
        # Two ends that rounding makes equal would be a density.
        rounded = [end for _, end in present]
        with np.errstate(invalid="ignore"):  # of two infinite ends
            before, after = (np.subtract(*(np.asarray(e, float) for e in pair[::-1])) for pair in (unrounded, rounded))
            lost = np.isfinite(before) & (np.abs(after - before) > MOST_LOST * np.abs(before))
        if lost.any():
            first = tuple(map(int, np.argwhere(lost)[0]))
            pair = " and ".join(f"{float(np.broadcast_to(end, lost.shape)[first])!r}" for end in unrounded)
            cure = "Take a number near them off data and bounds, as the first of all times, or set JAX_ENABLE_X64=1."
            got = f"{pair}" + (f" at index {first}" if first else "")
            fail(names[0], f"apart from {names[1]} by as much in {rounded[0].dtype} as they are", got, cure)
    by_name = dict(present)
    return [by_name.get(name) for name in names]


class _Wrapped(Likelihood):
    """A likelihood around another, with what is seen of its values."""

    likelihood: Given
    ends: ClassVar[tuple[str, ...]] = ()  # fields between which the data lie
    has_density: ClassVar[bool] = False  # whether a row with ends has its density too

    def check_targets(self, y: ArrayLike) -> None:
        """Values and bounds must be possible values, in their intervals."""
        self.likelihood.check_targets(y)
        names, ends = self.ends, [getattr(self, name) for name in self.ends]

        def check(values: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
            if (wrong := (values < low) | (values > high)).any():
                cure = f"Pass a value inside for each datum: {names[1]} where it is finite, else {names[0]}."
                got = f"{float(np.broadcast_to(values, wrong.shape)[wrong].ravel()[0]):.6g} outside"
                fail("obs", f"between {names[0]} and {names[1]}", got, cure)

        if ends:
            low, high = (inf if end is None else end for end, inf in zip(ends, (-jnp.inf, jnp.inf), strict=True))
            when_known(check, y, low, high)

    @property
    def num_latent(self) -> int:
        """Number of latent functions."""
        return self.likelihood.num_latent

    @property
    def mean_function(self) -> int | None:
        return self.likelihood.mean_function

    def draw(self, key: Array, f: ArrayLike) -> Array:
        """Draw the values themselves."""
        return self.likelihood.draw(key, f)

    @property
    def uncensored(self) -> Likelihood:
        """The likelihood of the values themselves."""
        return self.likelihood.uncensored

    def conditional(self, f: ArrayLike) -> dist.Distribution:
        """``p(y | f)`` of the values themselves."""
        return self.likelihood.conditional(f)

    def _mean(self, latent: Latent) -> Array:
        return self.likelihood._mean(latent)

    def _variance(self, latent: Latent) -> Array:
        return self.likelihood._variance(latent)

    def _integral(self, known: Known, y: Batch, latent: Latent, *, is_log: bool) -> Batch:
        """``E known(f)``, or ``log E exp(known(f))``: by the composite rule where the likelihood says how it turns."""
        cuts = self._turns(y) if self.num_latent == 1 else None
        if cuts is None:
            return at_points(lambda f: known(self, y, f).astype(y.dtype), latent, self.num_latent, is_log=is_log)
        leaves, structure = jax.tree.flatten(self)

        def at(f: Array, y: Array, *leaves: Array) -> Array:
            return known(jax.tree.unflatten(structure, leaves), y, f)

        each = [like("likelihood", leaf, y) for leaf in leaves]
        return (log_expect if is_log else expect)(at, latent.mean, latent.variance, y, *each, cuts=cuts)

    def _turns(self, y: Batch) -> Float[Array, "*batch K"] | None:
        """Cuts at the ends of intervals, in place of infinite ones those at ``y``."""
        if (at_values := self.likelihood._turns(y)) is None:
            return None
        ends = [*([y] if self.has_density else []), *(getattr(self, name) for name in self.ends)]
        at_ends = [self.likelihood._turns(like("likelihood", end, y)) for end in ends if end is not None]
        finite = [jnp.where(jnp.isfinite(cuts), cuts, at_values) for cuts in at_ends if cuts is not None]
        return jnp.concatenate(finite, axis=-1) if finite else at_values


class _Hiding(_Wrapped):
    """Of some values a probability of their own is known, in place of their density."""

    @abc.abstractmethod
    def _is_hidden(self, y: Batch) -> Bool[Array, "*batch"] | None:
        """Which they are; None: none."""

    @abc.abstractmethod
    def _log_known(self, y: Array, f: Array) -> Array:
        """The log probability of what is known of them."""

    def log_prob(self, y: ArrayLike, f: ArrayLike) -> Array:
        """``log p(y | f)`` of each datum, or the log probability of what is known of it."""
        seen, target = self.likelihood.log_prob(y, f), jnp.asarray(y, jnp.asarray(f).dtype)
        hidden = self._is_hidden(target)
        return seen if hidden is None else jnp.where(hidden, self._log_known(target, jnp.asarray(f)), seen)

    def _expected(self, y: Batch, latent: Latent) -> Batch:
        return self._either(y, latent, self.likelihood._expected(y, latent), is_log=False)

    def _predictive(self, y: Batch, latent: Latent) -> Batch:
        if isinstance(self.likelihood, Gaussian):  # the variance of f adds to that of the noise, whatever is known of y
            widened, own = Gaussian(jnp.sqrt(self.likelihood._variance(latent))), cast(Any, self)
            found: Batch = dataclasses.replace(own, likelihood=widened).log_prob(y, latent.mean)
            return found
        return self._either(y, latent, self.likelihood._predictive(y, latent), is_log=True)

    def _either(self, y: Batch, latent: Latent, seen: Batch, *, is_log: bool) -> Batch:
        if (hidden := self._is_hidden(y)) is None:
            return seen
        return jnp.where(hidden, self._integral(type(self)._log_known, y, latent, is_log=is_log), seen)


@value_type()
class Censored(_Hiding):
    """Values of which some are known to lie beyond a bound, as survival times at the end of a study do.

    ``y`` holds the bound there: ``log P(Y >= y | f)`` is the term of a row that is censored on the right, and
    ``log P(Y <= y | f)`` of one that is censored on the left. Others have their density. Predictions are of the values
    themselves, and `Prediction.survival` is ``P(Y > t)``.

    Parameters
    ----------
    likelihood : Likelihood or callable ``f -> numpyro Distribution``
        Of the values, with a distribution function: all of this library but those of classes, and NumPyro's that have a
        ``cdf``. Tails are by logarithms, without underflow, for the usual ones.
    left, right : array of bool, optional
        True where the value is at most, or at least, ``y``. One for each datum.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro.distributions as dist, numpyro_gp as ngp
    >>> weibull = lambda f: dist.Weibull(jnp.exp(f), 1.5)
    >>> times = ngp.likelihoods.Censored(weibull, right=jnp.array([False, True]))
    >>> log_prob = times.log_prob(jnp.array([2.0, 2.0]), jnp.zeros(2))
    >>> round(float(log_prob[1]), 4)   # -2^1.5: nothing happened up to 2
    -2.8284
    """

    likelihood: Given
    left: ArrayLike | None = None
    right: ArrayLike | None = None

    def __post_init__(self) -> None:
        left, right = check_mask("left", self.left), check_mask("right", self.right)
        if left is not None and right is not None:

            def check(left: np.ndarray, right: np.ndarray) -> None:
                if (both := left & right).any():
                    got = f"both true for {both.sum()} of {both.size}"
                    cure = "A value between two bounds has an interval: ngp.likelihoods.Interval."
                    fail("left and right", "true for different data", got, cure)

            when_known(check, left, right)
        store(self, likelihood=as_likelihood(self.likelihood), left=left, right=right)

    def _is_hidden(self, y: Batch) -> Bool[Array, "*batch"] | None:
        masks = ("left", self.left), ("right", self.right)
        sides = [shaped(name, jnp.asarray(mask, bool), y) for name, mask in masks if mask is not None]
        return jnp.broadcast_to(sides[0] | sides[-1], y.shape) if sides else None

    def _log_known(self, y: Array, f: Array) -> Array:
        conditional = self.conditional(f)
        if self.right is None:
            return log_tails(conditional, y)[0]
        above = log_tails(conditional, before(conditional, y))[1]
        if self.left is None:
            return above
        return jnp.where(jnp.asarray(self.left, bool), log_tails(conditional, y)[0], above)


@value_type()
class Interval(_Hiding):
    """Values that are known to lie between two bounds: ages in groups, times between two visits, rounded readings.

    A row has ``log P(lower <= Y <= upper | f)``, or the density where its two ends are the same. An infinite end leaves
    the other side open. ``obs`` of `observe` is any value in the interval: that of one without width alone is read.
    Predictions are of the values themselves.

    Parameters
    ----------
    likelihood : Likelihood or callable ``f -> numpyro Distribution``
        As in `Censored`.
    lower, upper : array, optional
        The ends, one for each datum; left out where new data are predicted.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> lower, upper = jnp.array([0.0, 1.0]), jnp.array([jnp.inf, 1.0])
    >>> rounded = ngp.likelihoods.Interval(ngp.likelihoods.Gaussian(1.0), lower, upper)
    >>> log_prob = rounded.log_prob(lower, jnp.zeros(2))   # log(1/2), and the density of 1
    >>> round(float(log_prob[0]), 4), round(float(log_prob[1]), 4)
    (-0.6931, -1.4189)
    """

    likelihood: Given
    lower: ArrayLike | None = None
    upper: ArrayLike | None = None
    ends = ("lower", "upper")

    def __post_init__(self) -> None:
        lower, upper = check_ends(("lower", "upper"), self.lower, self.upper)
        if (lower is None) != (upper is None):
            missing, end = ("lower", "-jnp.inf") if lower is None else ("upper", "jnp.inf")
            fail(missing, "given with the other end", "None", f"Pass {missing}={end} for an open side.")
        store(self, likelihood=as_likelihood(self.likelihood), lower=lower, upper=upper)

    def _is_hidden(self, y: Batch) -> Bool[Array, "*batch"] | None:
        if self.lower is None or self.upper is None:
            return None
        ends = (shaped("lower", jnp.asarray(self.lower), y), shaped("upper", jnp.asarray(self.upper), y))
        return jnp.broadcast_to(jnp.less(*ends), y.shape)  # in their own precision: a width that is lost is no density

    def _log_known(self, y: Array, f: Array) -> Array:
        ends = ("lower", self.lower), ("upper", self.upper)
        return log_mass(self.conditional(f), *(shaped(name, jnp.asarray(end, y.dtype), y) for name, end in ends))


@value_type()
class Truncated(_Wrapped):
    """Values that are in the data only because they lie between two bounds: ages at death of those alive at entry.

    A row has ``log p(y | f) - log P(low <= Y <= high | f)``. ``low`` is the time of entry where times are truncated on
    the left, and 1 for counts without zeros. `Truncated` goes around `Censored` or `Interval` where both apply.
    Predictions are of values that no bound selects.

    Parameters
    ----------
    likelihood : Likelihood or callable ``f -> numpyro Distribution``
        As in `Censored`, or one of those.
    low, high : array, optional
        The bounds: one, or one for each datum. None is no bound.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> late = ngp.likelihoods.Truncated(ngp.likelihoods.Exponential(), low=1.0)
    >>> round(float(late.log_prob(3.0, 0.0)), 4)   # an exponential forgets: -(3 - 1)
    -2.0
    """

    likelihood: Given
    low: ArrayLike | None = None
    high: ArrayLike | None = None
    ends, has_density = ("low", "high"), True

    def __post_init__(self) -> None:
        low, high = check_ends(("low", "high"), self.low, self.high)
        store(self, likelihood=as_likelihood(self.likelihood), low=low, high=high)

    def log_prob(self, y: ArrayLike, f: ArrayLike) -> Array:
        """``log p(y | f)`` of each datum, given that it lies between the bounds."""
        values = jnp.asarray(f)
        return self.likelihood.log_prob(y, values) - self._log_share(jnp.asarray(y, values.dtype), values)

    def _log_share(self, y: Array, f: Array) -> Array:
        """``log P(low <= Y <= high | f)``."""
        if self.low is None and self.high is None:
            return jnp.zeros_like(y)
        low = jnp.asarray(-jnp.inf if self.low is None else shaped("low", jnp.asarray(self.low), y), y.dtype)
        high = jnp.asarray(jnp.inf if self.high is None else shaped("high", jnp.asarray(self.high), y), y.dtype)
        conditional = self.conditional(f)
        if self.high is None:
            return log_tails(conditional, before(conditional, low))[1]
        return log_tails(conditional, high)[0] if self.low is None else log_mass(conditional, low, high)

    def _expected(self, y: Batch, latent: Latent) -> Batch:
        share = self._integral(Truncated._log_share, y, latent, is_log=False)
        return self.likelihood._expected(y, latent) - share

    def _predictive(self, y: Batch, latent: Latent) -> Batch:
        return self._integral(Truncated.log_prob, y, latent, is_log=True)
