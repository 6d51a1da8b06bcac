"""Sobol indices of additive processes: how much variance of ``f`` each component carries (mathematics.md section 6.4).

Under the product measure of its zero-mean kernels the components are orthogonal, ``Var f = sum_c D_c`` with
``D_c = int f_c^2 dnu``. The index of a component is its share; the total index of an input sums those of all components
that read it. Components without a zero-mean kernel have no such decomposition and are refused, as are two of the same
columns, which are not orthogonal; constants are left out. ``over=`` takes rows of data for the measure: then ``D_c`` is
the variance of a component over them, kernels may be of any kind, and shares are those of ``sum_c D_c``.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from numpyro_gp.additive.anova import design_of
from numpyro_gp.additive.component_kernels import (
    Squares,
    kernel_columns,
    shares_of,
    squares_over,
    squares_over_measure,
)
from numpyro_gp.arrays import Array, ArrayLike, value_type
from numpyro_gp.beliefs.base import AbstractBelief
from numpyro_gp.beliefs.components import whitened_blocks
from numpyro_gp.checks import check_count, check_key, check_level, check_points, check_type, fail
from numpyro_gp.posterior.posterior import Posterior
from numpyro_gp.posterior.tracing import Draw, at_each_draw, draws_of, key_of, plates_at, trace_at
from numpyro_gp.primitives.gp import AdditiveGP
from numpyro_gp.primitives.opening import recorded_processes
from numpyro_gp.rows.call import call_of

__all__ = ["Indices", "draws", "each_draw", "expected", "intervals", "kernel_columns", "plug_in", "sample", "totals"]


@value_type()
class Indices:
    """How much of a function's variance each component has: variances ``D_c`` and shares ``D_c / sum D``.

    Of a function without variance, such as a posterior mean of zero, all shares are zero; else they sum to one.

    Attributes
    ----------
    variance, index : dict of Array
        By component: ``()``, or ``(S,)`` of draws.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> def process():
    ...     kernel, Z = ngp.kernels.ZeroMean(ngp.kernels.RBF(1.0, 0.3), ngp.kernels.Uniform()), jnp.eye(3)[:, :2]
    ...     return ngp.additive_gp("f", {"a": kernel.on(0), "b": kernel.on(1)}, {"a": Z, "b": Z})
    >>> f = numpyro.handlers.seed(process, 0)()
    >>> sorted(ngp.sobol.expected(f).index)
    ['a', 'b']
    """

    variance: dict[str, Array]
    index: dict[str, Array]


def _integrals_of(f: AdditiveGP, over: ArrayLike | None) -> dict[str, tuple[Squares, slice]]:
    """Of each component its integrals, and where its whitened values stand."""
    cure = "Pass what ngp.additive_gp returned, or ngp.sobol.sample(posterior, ...)."
    check_type("f", f, AdditiveGP, "an additive process", cure)
    if f.plates.names:
        fail("f", "the process of one group", f"one for each member of {f.plates}", "Fit the group by itself.")
    if over is None:
        squares = squares_over_measure(f.basis)
    else:
        squares = squares_over(f.basis, check_points("over", over, f.columns))
    return {name: (one, f.basis.slices[f.basis.component(name)]) for name, one in squares.items()}


def _indices(variance: dict[str, Array]) -> Indices:
    """Variances with their shares."""
    shares = shares_of(jnp.stack(list(variance.values())))
    return Indices(variance, dict(zip(variance, shares, strict=True)))


def _mean_of(f: AdditiveGP) -> Array:
    return f.process.whitened_mean if isinstance(f.process, AbstractBelief) else f.process.v


def plug_in(f: AdditiveGP, over: ArrayLike | None = None) -> Indices:
    """Sobol indices of the posterior mean, without uncertainty: ``D_c = m_c^T G_c m_c``.

    Parameters
    ----------
    f : AdditiveGP
    over : array (N, D), optional
        Rows in place of the measure, as the process reads them (of a design ``design.map(X)``): shares of the variance
        over the data, for kernels of any kind.

    Returns
    -------
    Indices
        ``()`` for each component.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> def process():
    ...     kernel, Z = ngp.kernels.ZeroMean(ngp.kernels.RBF(1.0, 0.3), ngp.kernels.Uniform()), jnp.eye(3)[:, :2]
    ...     return ngp.additive_gp("f", {"a": kernel.on(0), "b": kernel.on(1)}, {"a": Z, "b": Z})
    >>> f = numpyro.handlers.seed(process, 0)()
    >>> ngp.sobol.plug_in(f).variance["a"].shape
    ()
    """
    mean, parts = _mean_of(f), _integrals_of(f, over)
    return _indices({name: squares.of_values(mean[at, None])[0] for name, (squares, at) in parts.items()})


def expected(f: AdditiveGP, over: ArrayLike | None = None) -> Indices:
    """Sobol indices by expected variances, the numbers to report where one number is wanted.

    ``E D_c = m_c^T G_c m_c + int k_c dnu - tr((I - S_cc) G_c)``, and their shares.

    Parameters
    ----------
    f : AdditiveGP
    over : array (N, D), optional
        Rows in place of the measure, as the process reads them (of a design ``design.map(X)``): shares of the variance
        over the data, for kernels of any kind.

    Returns
    -------
    Indices
        ``()`` for each component.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> def process():
    ...     kernel, Z = ngp.kernels.ZeroMean(ngp.kernels.RBF(1.0, 0.3), ngp.kernels.Uniform()), jnp.eye(3)[:, :2]
    ...     return ngp.additive_gp("f", {"a": kernel.on(0), "b": kernel.on(1)}, {"a": Z, "b": Z})
    >>> f = numpyro.handlers.seed(process, 0)()
    >>> round(float(sum(ngp.sobol.expected(f).index.values())), 4)
    1.0
    """
    parts, mean = _integrals_of(f, over), _mean_of(f)
    blocks = dict(zip(f.basis.names, whitened_blocks(f.process, f.basis), strict=True))
    return _indices({name: squares.expected(mean[at], blocks[name]) for name, (squares, at) in parts.items()})


def draws(f: AdditiveGP, key: Array, num_samples: int = 1000, over: ArrayLike | None = None) -> Indices:
    """Sobol indices with their uncertainty, from draws of the whitened values.

    ``D_c = v_c^T G_c v_c + int k_c dnu - tr G_c``.

    What the inducing values leave open, ``int k_c dnu - tr G_c``, enters by its expectation, so that the
    variances average to `expected`. The mean of the shares is *not* the share of the means.

    Parameters
    ----------
    f : AdditiveGP
    key : PRNG key
    num_samples : int
        Number S of draws.
    over : array (N, D), optional
        Rows in place of the measure, as the process reads them (of a design ``design.map(X)``): shares of the variance
        over the data, for kernels of any kind.

    Returns
    -------
    Indices
        ``(S,)`` for each component.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> def process():
    ...     kernel, Z = ngp.kernels.ZeroMean(ngp.kernels.RBF(1.0, 0.3), ngp.kernels.Uniform()), jnp.eye(3)[:, :2]
    ...     return ngp.additive_gp("f", {"a": kernel.on(0), "b": kernel.on(1)}, {"a": Z, "b": Z})
    >>> f = numpyro.handlers.seed(process, 0)()
    >>> ngp.sobol.draws(f, jax.random.key(1), 10).index["a"].shape
    (10,)
    """
    check_key("key", key)
    check_count("num_samples", num_samples)
    parts, process = _integrals_of(f, over), f.process
    if isinstance(process, AbstractBelief):
        values = process.draw_whitened(key, (num_samples,), f.basis)
    else:
        values = jnp.broadcast_to(process.v, (num_samples, *process.v.shape))
    return _indices({name: squares.drawn(values[:, at].T) for name, (squares, at) in parts.items()})


def intervals(indices: Indices, level: float = 0.9) -> dict[str, tuple[Array, Array]]:
    """Credible intervals of Sobol indices, from draws.

    Parameters
    ----------
    indices : Indices
        Of `draws` or `sample`.
    level : float

    Returns
    -------
    dict of pairs of Array ()
        Lower and upper end by component; the interval is central.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> shares = jnp.linspace(0.0, 1.0, 11)
    >>> found = ngp.sobol.intervals(ngp.sobol.Indices({"a": shares}, {"a": shares}), level=0.8)
    >>> [round(float(end), 4) for end in found["a"]]
    [0.1, 0.9]
    """
    half = check_level(level) / 2
    tails = jnp.asarray([0.5 - half, 0.5 + half])
    return {name: tuple(jnp.quantile(value, tails)) for name, value in indices.index.items()}


def totals(f: AdditiveGP, indices: Indices) -> dict[int, Array]:
    """How much each input column matters: the sum of the indices of all components that read it.

    Parameters
    ----------
    f : AdditiveGP
    indices : Indices

    Returns
    -------
    dict of Array
        By column.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> def process():
    ...     kernel, Z = ngp.kernels.ZeroMean(ngp.kernels.RBF(1.0, 0.3), ngp.kernels.Uniform()), jnp.eye(3)[:, :2]
    ...     return ngp.additive_gp("f", {"a": kernel.on(0), "b": kernel.on(1)}, {"a": Z, "b": Z})
    >>> f = numpyro.handlers.seed(process, 0)()
    >>> sorted(ngp.sobol.totals(f, ngp.sobol.plug_in(f)))
    [0, 1]
    """
    readers: dict[int, list[Array]] = {}
    every = tuple(range(f.columns))
    for name, part in zip(f.names, f.basis.parts, strict=True):
        for column in kernel_columns(part.kernel, every):
            readers.setdefault(column, []).append(indices.index[name])
    return {column: jnp.sum(jnp.stack(shares), axis=0) for column, shares in sorted(readers.items())}


def each_draw(
    posterior: Posterior,
    key: Array,
    function: Callable[[AdditiveGP, Array], object],
    *args: object,
    num_draws: int | None = None,
    site: str | None = None,
    **kwargs: object,
) -> Any:
    """Any quantity of an additive process with its uncertainty: ``function(f, key)`` at each posterior draw.

    Parameters
    ----------
    posterior : Posterior
        Of any engine. Where nothing but the belief is random, there is one draw.
    key : PRNG key
    function : callable
        Takes the `AdditiveGP` of a draw and a key; returns arrays.
    *args, **kwargs
        Arguments of the model, as for `Posterior.predict`.
    num_draws : int, optional
        All stored draws, or 100 (1 where hyper-parameters are points and the model draws nothing).
    site : str, optional
        Name of the additive site, where there are several.

    Returns
    -------
    like what ``function`` returns
        With the draws on the first axis.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> def model(X, y=None):
    ...     kernel, Z = ngp.kernels.ZeroMean(ngp.kernels.RBF(1.0, 0.3), ngp.kernels.Uniform()), jnp.eye(3)[:, :2]
    ...     f = ngp.additive_gp("f", {"a": kernel.on(0), "b": kernel.on(1)}, {"a": Z, "b": Z})
    ...     with numpyro.plate("data", len(X)):
    ...         ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)
    >>> posterior = ngp.Posterior.from_mcmc(model, {"f": jax.random.normal(jax.random.key(0), (5, 6))})
    >>> X = jnp.array([[0.0, 0.0], [0.5, 1.0], [1.0, 0.5]])
    >>> found = ngp.sobol.each_draw(posterior, jax.random.key(1), lambda f, key: ngp.sobol.plug_in(f).index["a"], X)
    >>> found.shape
    (5,)
    """
    return _with_count(posterior, key, lambda f, own, _: function(f, own), args, kwargs, num_draws, site)


def _with_count(
    posterior: Posterior,
    key: Array,
    function: Callable[[AdditiveGP, Array, int], object],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    num_draws: int | None,
    site: str | None,
) -> Any:
    """Do `each_draw` of a function that is told the number of draws, too."""
    cure = "Use Posterior.from_svi, .from_mcmc or .from_stein, or ngp.sobol.draws(f, key) of one process."
    check_type("posterior", posterior, Posterior, "an ngp.Posterior", cure)
    call = call_of(posterior.model, args, kwargs)
    view = plates_at(posterior, call)
    index = posterior.spread(num_draws, view.is_random)

    def at_draw(source: Posterior, draw: Draw, arrays: list[Array]) -> Any:
        key_model, key_function = jax.random.split(draw[0])
        with recorded_processes() as processes:
            trace_at(source, (key_model, draw[1]), call.at(arrays), view.plates)
        additive = {name: process for name, process in processes.items() if isinstance(process, AdditiveGP)}
        name = next(iter(additive), None) if site is None and len(additive) == 1 else site
        if name not in additive:
            required = f"one additive_gp site of the model: {list(additive)}"
            fail("site", required, repr(site), "Name one of them: site='f'.")
        f = additive[name]
        return function(f, key_of(key_function, f.name), index.size)  # the noise of one process is not that of another

    return at_each_draw(at_draw, posterior, draws_of(key, index), call.arrays)


def sample(
    posterior: Posterior,
    key: Array,
    *args: object,
    num_samples: int = 1000,
    num_draws: int | None = None,
    site: str | None = None,
    over: ArrayLike | None = None,
    **kwargs: object,
) -> Indices:
    """Sobol indices under the whole posterior, hyper-parameters included.

    Each posterior draw gives the same number of draws of its belief; for points it gives one.

    Parameters
    ----------
    posterior : Posterior
    key : PRNG key
    *args, **kwargs
        Arguments of the model, as for `Posterior.predict`.
    num_samples : int
        Number S of draws, at least.
    num_draws, site
        As in `each_draw`.
    over : array (N, D), optional
        Rows in place of the measure: shares of the variance over the data, for kernels of any kind. They are raw ones
        for the model of a design, as its inputs are, and for another model rows as its process reads them.

    Returns
    -------
    Indices
        ``(S,)`` for each component.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> def model(X, y=None):
    ...     kernel, Z = ngp.kernels.ZeroMean(ngp.kernels.RBF(1.0, 0.3), ngp.kernels.Uniform()), jnp.eye(3)[:, :2]
    ...     f = ngp.additive_gp("f", {"a": kernel.on(0), "b": kernel.on(1)}, {"a": Z, "b": Z})
    ...     with numpyro.plate("data", len(X)):
    ...         ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)
    >>> posterior = ngp.Posterior.from_mcmc(model, {"f": jax.random.normal(jax.random.key(0), (5, 6))})
    >>> X = jnp.array([[0.0, 0.0], [0.5, 1.0], [1.0, 0.5]])
    >>> ngp.sobol.sample(posterior, jax.random.key(1), X, num_samples=5).index["a"].shape
    (5,)
    """
    check_count("num_samples", num_samples)
    if over is not None and (layout := design_of(getattr(posterior, "model", None))) is not None:
        over = layout.map(over)

    some = lambda f, own, count: draws(f, own, math.ceil(num_samples / count), over)  # noqa: E731
    drawn = _with_count(posterior, key, some, args, kwargs, num_draws, site)
    return jax.tree.map(lambda leaf: leaf.reshape(-1), drawn)
