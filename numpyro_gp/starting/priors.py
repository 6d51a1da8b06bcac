"""Priors of hyper-parameters in the units of the data: one default for every model, whatever its number of inputs.

Two rows of ``D`` independent columns of unit scale are ``sqrt(2 D)`` apart. Under an RBF lengthscale of one their
correlation at ``D = 13`` is ``exp(-13)``: the Gram matrix is the identity, and no gradient says in which direction to
leave it. So lengthscales start at ``sqrt(D)`` times the scale of their column: that correlation is ``exp(-1)`` at any
``D``. Log densities of held-out targets after 200 steps on 100 rows of which the first column matters, for the median
and a third and three times of it (three layers; one layer; nothing learnt is -1.42):

====  ==============  ============  ==============
D     third           the median    three times
====  ==============  ============  ==============
1     0.28;  0.21     0.44; 0.34    0.41; 0.29
8     -1.47; -1.48    -0.22; -0.28  -0.01; -0.16
13    -1.45; -1.47    -0.54; -0.35  -0.09; -0.15
30    -1.45; -1.46    -0.64; -0.60  -0.39; -0.36
====  ==============  ============  ==============

Shorter does not start; longer starts sooner with many columns, at the cost of functions of one.

The scales are those of the rows that the kernel sees, which the centres of clusters understate: those of 20 k-means
centres of these 100 rows in 30 columns are 0.8 of the rows', and with them the three layers stay at -1.44.

Priors must be the same at the fit and at the prediction, and must not look at what they are a prior of. Build them from
what both calls share: the training inputs, or inducing inputs that are some of them, never the rows to predict at; and
give ``y`` only where it is fixed outside the model.
"""

import math
from types import ModuleType
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from numpyro_gp import kernels
from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import check_floating, check_points, check_positive, fail, known, when_known

# Standard deviation of the logarithms, and the logarithm of the median noise over the scale of the targets.
WIDE, QUIET = 1.0, -1.0


def lengthscale_prior(X: ArrayLike, *, ard: bool = True) -> dist.Distribution:
    """A prior of lengthscales in the units of the inputs: log-normal with median ``sqrt(D) s_d``.

    Here ``s_d`` is the standard deviation of column ``d``.

    Parameters
    ----------
    X : array (N, D)
        Training inputs, or inducing inputs that spread as they do, in the units that the kernel sees. May be traced.
    ard : bool
        One lengthscale for each column, event shape ``(D,)``; False gives a scalar with median
        ``sqrt(sum_d s_d^2)``.

    Returns
    -------
    numpyro.distributions.Distribution
        Event shape ``(D,)``, or ``()`` with ``ard=False``.

    Raises
    ------
    ValueError
        Where a column of a known ``X`` is constant: it has no unit. (Of a traced one the prior is degenerate.)

    Examples
    --------
    >>> import numpy as np, jax.numpy as jnp, numpyro_gp as ngp
    >>> X = np.array([[0.0, 0.0], [2.0, 20.0]])
    >>> [round(float(value), 3) for value in jnp.exp(ngp.starting.lengthscale_prior(X).base_dist.loc)]
    [1.414, 14.142]
    """
    scale = _scales("X", check_points("X", X), "Drop these columns, or pass the training inputs.")
    if not ard:
        return dist.LogNormal(0.5 * jnp.log(jnp.sum(scale**2)), WIDE)
    return dist.LogNormal(0.5 * math.log(scale.shape[0]) + jnp.log(scale), WIDE).to_event(1)


def variance_prior(y: ArrayLike | None = None) -> dist.Distribution:
    """A prior of a kernel's variance in the units of ``y``: log-normal, median the variance of ``y``.

    All entries of ``y`` count as one set, such as replicates ``(R, N)``; outputs ``(N, P)`` that differ in level or
    scale have a prior each, ``variance_prior(y[:, p])``. A model that is simulated from, as in simulation-based
    calibration, must leave ``y`` out.

    Parameters
    ----------
    y : array, optional
        Targets. None stands for standardised ones, whose variance is 1.

    Returns
    -------
    numpyro.distributions.Distribution
        Event shape ``()``.

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> round(float(ngp.starting.variance_prior(np.array([-10.0, 10.0])).loc), 3)   # log(100)
    4.605
    """
    return dist.LogNormal(2 * _log_scale(y), WIDE)


def noise_prior(y: ArrayLike | None = None) -> dist.Distribution:
    """A prior of the *standard deviation* of the noise, in the units of ``y``: log-normal.

    Its median is ``exp(-1)`` times the standard deviation of ``y``.

    It is what `likelihoods.Gaussian` takes; `gp_regression` takes its square. Several outputs: see `variance_prior`.

    Parameters
    ----------
    y : array, optional
        Targets. None stands for standardised ones.

    Returns
    -------
    numpyro.distributions.Distribution
        Event shape ``()``.

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> round(float(ngp.starting.noise_prior(np.array([-10.0, 10.0])).loc), 3)   # log(10 exp(-1))
    1.303
    """
    return dist.LogNormal(_log_scale(y) + QUIET, WIDE)


def _log_scale(y: ArrayLike | None) -> float | Array:
    if y is None:
        return 0.0
    targets = check_floating("y", y).reshape(-1, 1)
    if not targets.size:
        fail("y", "a non-empty array of targets", f"shape {jnp.shape(y)}", "Leave y out for standardised targets.")
    return jnp.log(_scales("y", targets, "Leave y out for standardised targets.")[0])


def _scales(argument: str, columns: Array, cure: str) -> Array:
    """Standard deviation of each column, ``(D,)``."""

    def check(values: np.ndarray) -> None:
        if constant := np.flatnonzero(values.max(axis=0) == values.min(axis=0)).tolist():
            fail(argument, "of values that differ, in every column", f"equal values in columns {constant}", cure)

    when_known(check, columns)
    return jnp.std(columns, axis=0)


# --------------------------------------------------------------------------------------
# A series of numbers over time: kernels of its trend, season and cycle, whose priors are in the steps of the data.
#
# One default for all series. Between two rows a series moves by its noise, and by what level, slope, season and cycle
# do in one step: so their priors are in units of the standard deviation of such steps, and wide where a part may
# vanish. Over nine series and two origins forecasts of it are as good as the best of six methods for each series,
# chosen in hindsight; the best single one of them is 0.05 nats for each point behind.


# Medians and spreads of the logarithms of priors. Of a level and a slope: by the step, and wide, as both may vanish.
LEVEL, SLOPE, OF_INNOVATIONS = 0.1, 0.01, 2.0
# Of seasons and cycles: by the standard deviation around a line; of noise by the step.
SEASON, CYCLE, NOISE, SPREAD = 0.7, 0.5, 0.4, 1.0
# The shape of a season on its circle, and for how many of its periods it is remembered.
WIGGLE, OF_WIGGLE, SEASONS = 1.0, 0.5, 30.0
# Memory and period of a cycle, in shares of the series.
MEMORY, PERIOD = 1 / 5, 1 / 15
# Standard deviations of the level amid the rows, and of a straight line over all of them: hardly a prior at all, and no
# more: in single precision noise is lost beside larger ones.
DIFFUSE, LINE = 3.0, 4.0
# Points of a period at which a season averages to zero, exact but for rounding; waves that are taken off for a step.
CIRCLE, WAVES = 32, 6


class Scales(NamedTuple):
    """What priors of a series are in units of.

    Attributes
    ----------
    gap : units of time between two rows
    count : gaps from the first row to the last
    sd, step, rest : standard deviations of ``y``, of its steps without their season, and around a straight line
    """

    gap: Any
    count: Any
    sd: Any
    step: Any
    rest: Any


def scales_of(t: Any, y: Any, periods: tuple[float, ...] = ()) -> Scales:
    """Those of rows at times ``t (N,)``, in any order; rows may be missing, and several may be of one time."""
    xp: ModuleType = np if isinstance(t, np.ndarray) else jnp
    order = xp.argsort(t)
    t, y = t[order] - t[order[0]], y[order]  # in days since 1970 the phases of waves would be lost in float32
    gaps, moves, middles = xp.diff(t), xp.diff(y), 0.5 * (t[1:] + t[:-1])
    apart = gaps > 1e-6 * (t[-1] - t[0])
    gap = xp.nanmedian(xp.where(apart, gaps, np.nan))
    # Longer gaps count less: of a random walk their squares grow as they do.
    weights = xp.where(apart, gap / xp.where(apart, gaps, 1.0), 0.0)
    # A period that is seen less than twice, where times are known, is no season of the steps.
    is_known = isinstance(t, np.ndarray)
    seen = [period for period in periods if not is_known or t[-1] - t[0] >= 2 * period]
    turns = [2 * math.pi * wave * middles / period for period in seen for wave in range(1, WAVES + 1)]
    waves = xp.stack([xp.ones_like(middles), *[f(turn) for turn in turns for f in (xp.cos, xp.sin)]], axis=1)
    left = moves - _least_squares(xp, waves, moves, weights)
    step = xp.sqrt(xp.sum(weights * left**2) / xp.sum(weights))
    sd = xp.std(y)
    rest = y - _least_squares(xp, xp.stack([xp.ones_like(t), (t - t.mean()) / xp.std(t)], axis=1), y, xp.ones_like(t))
    least = 1e-3 * sd  # of a series that is a line, or hardly moves
    return Scales(gap, (t[-1] - t[0]) / gap, sd, xp.maximum(step, least), xp.maximum(xp.std(rest), least))


def _least_squares(xp: ModuleType, design: Any, y: object, weights: Any) -> Any:
    """What weighted least squares says of ``y``, with a ridge: waves of few rows are one another."""
    gram = (design * weights[:, None]).T @ design
    ridge = 1e-6 * xp.trace(gram) * xp.eye(len(gram), dtype=design.dtype)
    return design @ xp.linalg.solve(gram + ridge, (design * weights[:, None]).T @ y)


def _series(X: ArrayLike, y: ArrayLike, periods: tuple[float, ...]) -> tuple[Scales, Any, Any]:
    """Scales, the middle of the rows and their type; a ``period`` that is no number is refused."""
    for period in periods:
        if not isinstance(period, (int, float)) or isinstance(period, bool):
            cure = "Pass a number, in the units of X: period=12 for months."
            fail("period", "a number", f"a {type(period).__name__}", cure, TypeError)
        check_positive("period", float(period))
    rows, targets = check_points("X", X), check_floating("y", y)
    if rows.shape[1] != 1:
        cure = "Pass its column, X[:, [0]], and choose it with kernel.on(0)."
        fail("X", "one column, the time", f"shape {rows.shape}", cure)
    if targets.shape != rows.shape[:1] or len(rows) < 4:
        cure = "Give y at every row of X, and leave rows without one out of both."
        fail("y", f"of shape ({max(len(rows), 4)},), four rows or more", f"shape {targets.shape}", cure)
    both: tuple[Any, Any] = known(rows), known(targets)
    t, own = (rows, targets) if any(one is None for one in both) else both
    return scales_of(t[:, 0].astype(own.dtype), own, tuple(map(float, periods))), t[:, 0].mean(), targets.dtype


def _log_normal(site: str, median: object, spread: float) -> Array:
    return numpyro.sample(site, dist.LogNormal(jnp.log(jnp.asarray(median)), spread))


def trend(name: str, X: ArrayLike, y: ArrayLike, *, period: float | None = None) -> kernels.Kernel:
    """The kernel of a trend that goes on in a forecast: a level and a slope, both of which may wander.

    ``constant + line + Wiener(level^2) + IntegratedWiener(slope^2)``, from the middle of the rows. Level and line are
    free; how much level and slope wander from one row to the next has wide priors, and may be nothing. It opens the
    sites ``name_level`` and ``name_slope``, in units of ``y`` for each gap between rows.

    Parameters
    ----------
    name : str
    X : array (N, 1)
        Times of the rows of the fit; in the model they may be traced.
    y : array (N,)
        Targets of the fit: prior scales are theirs. The same at fit and prediction.
    period : float, optional
        Of a season that another part has, in the units of X: steps are those without it.

    Returns
    -------
    Kernel
        Of one column, for `gp_regression`, which is exact. With fewer inducing inputs than rows the bound shrinks what
        wanders from row to row. Where noise is below some thousandth of the range of a long series it needs double
        precision, JAX_ENABLE_X64=1: `ngp.fit` stops and says so.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> X = jnp.arange(24.0)[:, None]
    >>> y = jnp.sin(X[:, 0])
    >>> with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.trace() as trace:
    ...     kernel = ngp.starting.trend("trend", X, y)
    >>> list(trace), kernel.matrix(X).shape
    (['trend_level', 'trend_slope'], (24, 24))
    """
    scales, middle, _ = _series(X, y, () if period is None else (period,))
    level = _log_normal(f"{name}_level", LEVEL * scales.step, OF_INNOVATIONS)
    slope = _log_normal(f"{name}_slope", SLOPE * scales.step, OF_INNOVATIONS)
    line = LINE * scales.sd / (scales.count * scales.gap)
    # Variances of the kernels are for a unit of time, priors for a gap between rows.
    return (
        kernels.Constant((DIFFUSE * scales.sd) ** 2)
        + kernels.ZeroMeanLinear(line**2, kernels.Empirical(jnp.reshape(jnp.asarray(middle), (1,))))
        + kernels.Wiener(level**2 / scales.gap, middle)
        + kernels.IntegratedWiener(slope**2 / scales.gap**3, middle)
    )


def season(name: str, X: ArrayLike, y: ArrayLike, *, period: float) -> kernels.Kernel:
    """The kernel of a season: it averages to zero over each period, and changes slowly from one to the next.

    ``sd^2 ZeroMean(Periodic(wiggle, period)) Matern32(memory)``. Sites: ``name_sd``; ``name_wiggle``, the
    lengthscale on the unit circle; ``name_memory``, in the units of X.

    Parameters
    ----------
    name : str
    X : array (N, 1)
    y : array (N,)
        As of `trend`.
    period : float
        In the units of X.

    Returns
    -------
    Kernel

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> X = jnp.arange(24.0)[:, None]
    >>> with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.trace() as trace:
    ...     kernel = ngp.starting.season("month", X, jnp.sin(X[:, 0]), period=12)
    >>> list(trace)
    ['month_sd', 'month_wiggle', 'month_memory']
    """
    scales, _, dtype = _series(X, y, (period,))
    own = float(period)
    sd = _log_normal(f"{name}_sd", SEASON * scales.rest, SPREAD)
    wiggle = _log_normal(f"{name}_wiggle", jnp.asarray(WIGGLE, dtype), OF_WIGGLE)
    memory = _log_normal(f"{name}_memory", jnp.asarray(SEASONS * own, dtype), SPREAD)
    circle = kernels.Empirical(jnp.asarray(own * np.arange(CIRCLE) / CIRCLE, dtype))
    return sd**2 * (kernels.ZeroMean(kernels.Periodic(1.0, wiggle, own), circle) * kernels.Matern32(1.0, memory))


def cycle(name: str, X: ArrayLike, y: ArrayLike, *, period: float | None = None) -> kernels.Kernel:
    """The kernel of ups and downs of no fixed length, as business or the sun have: a wave that is forgotten.

    ``sd^2 Matern32(memory) Cosine(period)``. Where the memory is shorter than the period it is a stationary function
    that returns to zero. Sites: ``name_sd``, ``name_memory`` and ``name_period``, both in the units of X.

    Parameters
    ----------
    name : str
    X : array (N, 1)
    y : array (N,)
        As of `trend`.
    period : float, optional
        Of a season that another part has.

    Returns
    -------
    Kernel

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> X = jnp.arange(24.0)[:, None]
    >>> with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.trace() as trace:
    ...     kernel = ngp.starting.cycle("cycle", X, jnp.sin(X[:, 0]))
    >>> list(trace)
    ['cycle_sd', 'cycle_memory', 'cycle_period']
    """
    scales, _, _ = _series(X, y, () if period is None else (period,))
    whole = scales.count * scales.gap
    sd = _log_normal(f"{name}_sd", CYCLE * scales.rest, SPREAD)
    memory = _log_normal(f"{name}_memory", MEMORY * whole, SPREAD)
    wave = _log_normal(f"{name}_period", PERIOD * whole, SPREAD)
    return sd**2 * (kernels.Matern32(1.0, memory) * kernels.Cosine(1.0, wave))
