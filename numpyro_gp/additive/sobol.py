"""Sobol indices of additive processes: how much variance of ``f`` each component carries (mathematics.md section 6.4).

Under the product measure of its zero-mean kernels the components are orthogonal, ``Var f = sum_c D_c`` with
``D_c = int f_c^2 dnu``. The index of a component is its share; the total index of an input sums those of all components
that read it. Components without a zero-mean kernel have no such decomposition and are refused, as are two of the same
columns, which are not orthogonal; constants are left out. ``over=`` takes rows of data for the measure: then ``D_c`` is
the variance of a component over them, kernels may be of any kind, and shares are those of ``sum_c D_c``.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayLike, value_type
from numpyro_gp.beliefs.additive_basis import AdditiveBasis
from numpyro_gp.beliefs.base import AbstractBelief
from numpyro_gp.beliefs.components import whitened_blocks
from numpyro_gp.checks import check_count, check_key, check_level, check_points, fail, when_known
from numpyro_gp.kernels import CategoryDelta, Constant, Coregion, ZeroMean, ZeroMeanCategory, ZeroMeanLinear
from numpyro_gp.kernels.base import Active, Kernel, Product, Scaled
from numpyro_gp.linalg import matmul
from numpyro_gp.posterior.posterior import Posterior
from numpyro_gp.posterior.tracing import Draw, at_each_draw, draws_of, new_data_plates, trace_at
from numpyro_gp.primitives import AdditiveGP, GaussianProcess
from numpyro_gp.primitives.opening import recorded_processes
from numpyro_gp.rows.call import call_of
from numpyro_gp.rows.look import look

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


# Kernels of one column whose functions average to zero.
OneColumn = ZeroMean | ZeroMeanCategory | ZeroMeanLinear


class Squares(NamedTuple):
    """``int A_c A_c^T dnu`` ``(M_c, M_c)`` and ``int k_c(x, x) dnu`` of each component that is not constant."""

    gram: dict[str, Array]
    prior: dict[str, Array]


def one_dimensional(kernel: Kernel, columns: tuple[int, ...]) -> tuple[ArrayLike, list[tuple[int, OneColumn]]]:
    """A kernel as a factor times a product of zero-mean kernels of one column each."""
    if isinstance(kernel, Active):
        return one_dimensional(kernel.kernel, tuple(columns[dim] for dim in kernel.dims))
    if isinstance(kernel, Scaled):
        scale, factors = one_dimensional(kernel.kernel, columns)
        return kernel.factor * scale, factors
    if isinstance(kernel, Product):
        (one, first), (other, second) = (one_dimensional(part, columns) for part in (kernel.first, kernel.second))
        return one * other, first + second
    if isinstance(kernel, Constant):
        return kernel.variance, []
    if isinstance(kernel, ZeroMean):
        return kernel.kernel.variance, list(zip(columns, kernel.factors(len(columns)), strict=True))
    if isinstance(kernel, (ZeroMeanCategory, ZeroMeanLinear)) and len(columns) == 1:
        return 1.0, [(columns[0], kernel)]
    required = "built from ZeroMean or ZeroMeanCategory kernels, for an orthogonal decomposition"
    cure = "Use ZeroMean(RBF(1.0, 0.3), Uniform(0.0, 1.0)).on(0), or ngp.anova.design."
    fail("the kernel of a component", required, f"a {type(kernel).__name__} of {len(columns)} columns", cure, TypeError)


def kernel_columns(kernel: object, columns: tuple[int, ...]) -> tuple[int, ...]:
    """Columns of the inputs that a kernel reads, in order; none for a constant.

    Parameters
    ----------
    kernel : Kernel
    columns : tuple of int
        All columns there are.

    Returns
    -------
    tuple of int

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> kernel = ngp.kernels.RBF(1.0, 1.0).on(2) * ngp.kernels.RBF(1.0, 1.0).on(0)
    >>> ngp.sobol.kernel_columns(kernel, (0, 1, 2))
    (0, 2)
    """
    if isinstance(kernel, Active):
        return kernel_columns(kernel.kernel, tuple(columns[dim] for dim in kernel.dims))
    if isinstance(kernel, Constant):
        return ()
    inner = [getattr(kernel, name) for name in ("first", "second") if hasattr(kernel, name)]
    if isinstance(kernel, Scaled):
        inner = [kernel.kernel]
    return tuple(sorted({dim for part in inner for dim in kernel_columns(part, columns)})) if inner else columns


def category_columns(kernel: object, columns: tuple[int, ...]) -> set[int]:
    """Columns that a kernel reads as codes of categories."""
    if isinstance(kernel, (CategoryDelta, Coregion, ZeroMeanCategory)):
        return set(columns)
    if isinstance(kernel, Active):
        return category_columns(kernel.kernel, tuple(columns[dim] for dim in kernel.dims))
    inner = [getattr(kernel, name) for name in ("first", "second", "kernel") if hasattr(kernel, name)]
    return {column for part in inner for column in category_columns(part, columns)}


def columns_of(f: AdditiveGP) -> dict[str, tuple[int, ...]]:
    """Columns of the inputs that each component reads."""
    every = tuple(range(f.columns))
    return {name: kernel_columns(part.kernel, every) for name, part in zip(f.names, f.basis.parts, strict=True)}


def _one_integral(kernel: OneColumn, points: Array) -> tuple[Array, Array]:
    """``int k(Z, x) k(x, Z) dnu`` ``(M, M)`` and ``int k(x, x) dnu`` of a kernel of one column.

    To 1e-6 for lengthscales from a tenth of the distance between inducing inputs on (mathematics.md section 6.4).
    """
    if isinstance(kernel, ZeroMeanCategory):
        nodes, weights = kernel.quadrature()
    else:
        nodes, weights = kernel.measure.quadrature(breaks=points)  # kernels have kinks at the inducing inputs
    nodes, weights = nodes.astype(points.dtype)[:, None], weights.astype(points.dtype)
    cross = kernel.matrix(points[:, None], nodes)
    return matmul(cross * weights[None, :], cross.T), matmul(weights, kernel.diagonal(nodes))


def squares(basis: AdditiveBasis) -> Squares:
    """The integrals that every index needs, whitened: ``L_c^-1 Gamma_c L_c^-T`` (mathematics.md section 6.4)."""
    gram, prior = {}, {}
    read: dict[tuple[int, ...], str] = {}
    measures: dict[int, tuple[str, object]] = {}
    for name, part in zip(basis.names, basis.parts, strict=True):
        scale, factors = one_dimensional(part.kernel, tuple(range(part.inducing.shape[1])))
        used = [column for column, _ in factors]
        if len(set(used)) < len(used):
            cure = "Name each column once: k1.on(0) * k2.on(1)."
            fail(f"the kernel of component {name!r}", "a product over different columns", f"{used}", cure)
        if not factors:
            continue
        if (other := read.setdefault(tuple(sorted(used)), name)) != name:
            cure = "Variances of two functions of the same columns do not add up: give each set of columns one kernel."
            fail("components", "of different columns each", f"{other!r} and {name!r}, both of {sorted(used)}", cure)
        for column, kernel in factors:
            own = kernel.probabilities if isinstance(kernel, ZeroMeanCategory) else kernel.measure
            _check_measure(column, measures.setdefault(column, (name, own)), (name, own))
        integral, diagonal = scale**2, scale
        for column, kernel in factors:
            squared, trace = _one_integral(kernel, part.inducing[:, column])
            integral, diagonal = integral * squared, diagonal * trace
        gram[name] = matmul(matmul(part.inverse, integral), part.inverse.T)
        prior[name] = jnp.asarray(diagonal)
    if not gram:
        cure = "Add a main effect to the model, such as ZeroMean(RBF(1.0, 0.3), Uniform()).on(0)."
        fail("components", "at least one that is not constant", f"{list(basis.names)}", cure)
    return Squares(gram, prior)


def squares_over(basis: AdditiveBasis, X: Float[Array, "N D"]) -> Squares:
    """The same with the rows of ``X`` for the measure, around the average of each component: for kernels of any kind.

    ``prior`` is the mean of ``k_c(x_n, x_n) - |mean_n a_c(x_n)|^2``.
    """
    gram, prior = {}, {}
    every, diagonals = tuple(range(X.shape[1])), basis.diagonals(X)
    for name, part, block, diagonal in zip(basis.names, basis.parts, basis.blocks(X), diagonals, strict=True):
        if kernel_columns(part.kernel, every):
            mean = jnp.mean(block, axis=1, keepdims=True)
            gram[name] = matmul(block - mean, (block - mean).T) / X.shape[0]
            prior[name] = jnp.mean(diagonal) - jnp.sum(mean**2)
    if not gram:
        fail("components", "at least one that is not constant", f"{list(basis.names)}", "Add a main effect.")
    return Squares(gram, prior)


def _check_measure(column: int, first: tuple[str, object], second: tuple[str, object]) -> None:
    """Refuse two measures of one column: functions that average to zero under each of them are not orthogonal."""
    kinds: list[Any] = [jax.tree.structure(measure) for _, measure in (first, second)]

    def check(*leaves: np.ndarray) -> None:
        half = len(leaves) // 2
        pairs = zip(leaves[:half], leaves[half:], strict=True)
        if kinds[0] != kinds[1] or not all(a.shape == b.shape and np.allclose(a, b) for a, b in pairs):
            got = f"others for {first[0]!r} and {second[0]!r}"
            cure = "Use one measure for each column in all components, such as Uniform(0.0, 1.0)."
            fail(f"the measure of column {column}", "the same in all components", got, cure)

    # Measures of two kinds differ whatever their numbers are.
    when_known(check, *(jax.tree.leaves((first[1], second[1])) if kinds[0] == kinds[1] else ()))


def _squares_of(f: AdditiveGP, over: ArrayLike | None) -> Squares:
    if not isinstance(f, AdditiveGP):
        cure = "Pass what ngp.additive_gp returned, or ngp.sobol.sample(posterior, ...)."
        fail("f", "an additive process", f"a {type(f).__name__}", cure, TypeError)
    if f.plates.names:
        fail("f", "the process of one group", f"one for each member of {f.plates}", "Fit the group by itself.")
    return squares(f.basis) if over is None else squares_over(f.basis, check_points("over", over, f.columns))


def _indices(variance: dict[str, Array]) -> Indices:
    """Variances with their shares, which are zero where there is nothing to share."""
    total = jnp.sum(jnp.stack(list(variance.values())), axis=0)
    divisor = jnp.where(total == 0, 1.0, total)  # then every D is zero, but for rounding
    return Indices(variance, {name: value / divisor for name, value in variance.items()})


def plug_in(f: AdditiveGP, over: ArrayLike | None = None) -> Indices:
    """Sobol indices of the posterior mean, without uncertainty: ``D_c = m_c^T G_c m_c``.

    Parameters
    ----------
    f : AdditiveGP
    over : array (N, D), optional
        Rows in place of the measure: shares of the variance over the data, for kernels of any kind.

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
    integrals, process = _squares_of(f, over), f.process
    mean = process.whitened_mean if isinstance(process, AbstractBelief) else process.v
    parts = {name: mean[f.basis.slices[f.basis.component(name)]] for name in integrals.gram}
    return _indices({name: matmul(matmul(parts[name], gram), parts[name]) for name, gram in integrals.gram.items()})


def expected(f: AdditiveGP, over: ArrayLike | None = None) -> Indices:
    """Sobol indices by expected variances, the numbers to report where one number is wanted.

    ``E D_c = m_c^T G_c m_c + int k_c dnu - tr((I - S_cc) G_c)``, and their shares.

    Parameters
    ----------
    f : AdditiveGP
    over : array (N, D), optional
        Rows in place of the measure: shares of the variance over the data, for kernels of any kind.

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
    integrals, means = _squares_of(f, over), plug_in(f, over).variance
    blocks = dict(zip(f.basis.names, whitened_blocks(f.process, f.basis), strict=True))
    variance = {}
    for name, gram in integrals.gram.items():
        variance[name] = means[name] + integrals.prior[name] - jnp.trace(gram) + jnp.sum(blocks[name] * gram)
    return _indices(variance)


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
        Rows in place of the measure: shares of the variance over the data, for kernels of any kind.

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
    integrals, process = _squares_of(f, over), f.process
    if isinstance(process, AbstractBelief):
        values = process.draw_whitened(key, (num_samples,), f.basis)
    else:
        values = jnp.broadcast_to(process.v, (num_samples, *process.v.shape))
    variance = {}
    for name, gram in integrals.gram.items():
        part = values[:, f.basis.slices[f.basis.component(name)]]
        rest = integrals.prior[name] - jnp.trace(gram)
        variance[name] = jnp.sum(matmul(part, gram) * part, axis=1) + jnp.maximum(rest, 0)
    return _indices(variance)


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
    for name, columns in columns_of(f).items():
        for column in columns:
            readers.setdefault(column, []).append(indices.index[name])
    return {column: jnp.sum(jnp.stack(shares), axis=0) for column, shares in sorted(readers.items())}


# ------------------------------------------------------------------------- from a posterior


def _check_posterior(posterior: object) -> None:
    if not isinstance(posterior, Posterior):
        cure = "Use Posterior.from_svi, .from_mcmc or .from_stein, or ngp.sobol.draws(f, key) of one process."
        fail("posterior", "an ngp.Posterior", f"a {type(posterior).__name__}", cure, TypeError)


def each_draw(
    posterior: Posterior,
    key: Array,
    function: Callable[[AdditiveGP, Array], Any],
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
        All stored draws, or 100 (1 where hyper-parameters are points).
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
    _check_posterior(posterior)
    call = call_of(posterior.model, args, kwargs)
    plates = new_data_plates(posterior, call, look(posterior.fitted_model, call).sites)
    index = posterior.spread(num_draws, posterior.source.is_random)

    def one(own: Posterior, draw: Draw, arrays: list[Array]) -> Any:
        key_model, key_function = jax.random.split(draw[0])
        with recorded_processes() as processes:
            trace_at(own, (key_model, draw[1]), call.at(arrays), plates)
        return function(_additive(processes, site), key_function)

    return at_each_draw(one, posterior, draws_of(key, index), call.arrays)


def _additive(processes: Mapping[str, GaussianProcess], site: str | None) -> AdditiveGP:
    """The additive process of a name, or the only one."""
    found = {name: process for name, process in processes.items() if isinstance(process, AdditiveGP)}
    if site is None and len(found) == 1:
        return next(iter(found.values()))
    if site not in found:
        fail("site", f"one additive_gp site of the model: {list(found)}", repr(site), "Name one of them: site='f'.")
    return found[site]


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
        Rows in place of the measure: shares of the variance over the data, for kernels of any kind.

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
    _check_posterior(posterior)
    check_count("num_samples", num_samples)
    each = math.ceil(num_samples / posterior.spread(num_draws, posterior.source.is_random).size)
    call: dict[str, Any] = dict(num_draws=num_draws, site=site, **kwargs)
    drawn = each_draw(posterior, key, lambda f, key: draws(f, key, each, over), *args, **call)
    indices: Indices = jax.tree.map(lambda leaf: leaf.reshape(-1), drawn)
    return indices
