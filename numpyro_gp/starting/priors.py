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

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import check_floating, check_points, fail, when_known

# Standard deviation of the logarithms, and the logarithm of the median noise over the scale of the targets.
SPREAD, QUIET = 1.0, -1.0


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
        return dist.LogNormal(0.5 * jnp.log(jnp.sum(scale**2)), SPREAD)
    return dist.LogNormal(0.5 * math.log(scale.shape[0]) + jnp.log(scale), SPREAD).to_event(1)


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
    return dist.LogNormal(2 * _log_scale(y), SPREAD)


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
    return dist.LogNormal(_log_scale(y) + QUIET, SPREAD)


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
