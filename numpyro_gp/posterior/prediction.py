"""``Prediction``: the equal mixture over posterior draws of the predictive distribution of each datum."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp, ndtr

from numpyro_gp.arrays import Array, ArrayLike, on_device
from numpyro_gp.checks import check_array, check_count, check_floating, check_key, fail, is_known, known
from numpyro_gp.likelihoods import CallableLikelihood, Censored, Gaussian, Likelihood
from numpyro_gp.likelihoods.tails import log_tails
from numpyro_gp.posterior.chunks import Chunks
from numpyro_gp.posterior.storage import Absent, to_pickle
from numpyro_gp.posterior.tracing import key_of
from numpyro_gp.programs.compiled import compiled
from numpyro_gp.rows.batches import padded
from numpyro_gp.sites import Observation

# --------------------------------------------------------------------------------------
# Numbers of a mixture over draws: moments, log densities, quantiles, survival, each as one program.


# Rows times draws whose numbers are found at once.
ROWS_TOGETHER = 2**16


def _each_draw(function: Callable[..., object], chunk: Observation, *extra: Array) -> Any:
    """Apply to each draw, some at a time: quadrature needs many numbers for each row and draw."""
    size = max(1, ROWS_TOGETHER // chunk.mean_latent[0].size)
    if size >= chunk.mean_latent.shape[0]:
        return jax.vmap(lambda own: function(own, *extra))(chunk)
    return jax.lax.map(lambda own: function(own, *extra), chunk, batch_size=size)


@compiled
def moments(chunk: Observation) -> tuple[Array, ...]:
    """Mean and variance of new data, then of the latent function."""
    means, variances = _each_draw(lambda o: (o.mean, o.variance), chunk)
    mean, spread = _mixture_of_draws(means, variances)
    return mean, spread, *_mixture_of_draws(chunk.mean_latent, chunk.variance_latent)


def _mixture_of_draws(means: Array, variances: Array) -> tuple[Array, Array]:
    """Mean and variance of a mixture of draws; from the first one, so that sums of large numbers round nothing."""
    away = means - means[:1]
    return means[0] + away.mean(0), variances.mean(0) + away.var(0)


@compiled
def mixture_density(chunk: Observation, y: Array) -> tuple[Array, Array]:
    """``log p(y_n)`` of each datum, and its standard error over the draws, infinite of one."""
    each = _each_draw(lambda o, own: o.predictive_log_prob(own), chunk, y)
    count, share = each.shape[0], jax.nn.softmax(each, axis=0)
    squares = jnp.maximum(count * jnp.sum(share**2, axis=0) - 1, 0)
    error = jnp.sqrt(squares / (count - 1)) if count > 1 else jnp.full(each.shape[1:], jnp.inf)
    return logsumexp(each, axis=0) - math.log(count), error


@compiled
def mixture_sample(chunk: Observation, keys: Array, *, times: int) -> Array:
    """Draws ``(S, times, rows, ...)``."""
    return jax.vmap(lambda o, key: o.sample(key, (times,)))(chunk, keys)


@compiled
def mixture_survival(chunk: Observation, times: Array) -> Array:
    """``P(Y > t)``, ``(rows, ..., T)``: by the quadrature of data that are censored on the right."""

    def one(o: Observation, time: Array) -> Array:
        values, shape = o.likelihood.uncensored, o.batch_shape + o.event_shape
        zero = jnp.zeros(o.mean_latent.shape, time.dtype)
        is_discrete = values.conditional(zero).support.is_discrete
        bound = jnp.broadcast_to(jnp.floor(time) + 1 if is_discrete else time, shape)
        mean, variance, covariance = o.latent
        return jnp.exp(Censored(values, right=True).predictive_log_prob(bound, mean, variance, covariance=covariance))

    def at(time: Array) -> Array:
        return _each_draw(lambda o: one(o, time), chunk).mean(0)

    return jnp.moveaxis(jax.lax.map(at, times), 0, -1)


@compiled
def survival_draws(chunk: Observation, keys: Array, times: Array, *, each: int) -> Array:
    """Draws ``(S each, T, rows, ...)``."""

    def of_draw(o: Observation, key: Array) -> Array:
        drawn = o.draw_latent(key, (each,))

        def at(f: Array, time: Array) -> Array:
            conditional = o.likelihood.conditional(f)
            return jnp.exp(log_tails(conditional, jnp.broadcast_to(time, conditional.batch_shape))[1])

        return jax.vmap(lambda f: jax.vmap(lambda time: at(f, time))(times))(drawn)

    draws = jax.vmap(of_draw)(chunk, keys)
    return draws.reshape(-1, *draws.shape[2:])


def is_discrete(chunk: Observation) -> bool:
    """Whether data are counts or labels, by the support that their likelihood has; their draws may be floats."""
    found: list[bool] = []

    def one(o: Observation) -> Array:
        given = o.likelihood.uncensored.conditional(jnp.zeros(o.mean_latent.shape))
        found.append(bool(given.support.is_discrete))
        return jnp.zeros(())

    jax.eval_shape(jax.vmap(one), chunk)
    return found[0]


@jax.jit
def gaussian_quantiles(chunk: Observation, probabilities: Array) -> Array:
    """Quantiles ``(rows, ..., levels)`` of the mixture."""
    means, variances = _each_draw(lambda o: (o.mean, o.variance), chunk)
    found = jax.lax.map(lambda level: _mixture_quantile(level, means, jnp.sqrt(variances)), probabilities)
    return jnp.moveaxis(found, 0, -1)


@jax.custom_jvp
def _mixture_quantile(level: Array, means: Array, scales: Array) -> Array:
    """Invert ``(1/S) sum_s Phi((q - m_s) / s_s) = level`` by 60 bisections, for each datum.

    Its derivative is that of the equation it solves: the one of the bisections is that of the ends they start from.
    """

    def halve(_: object, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = 0.5 * (low + high)
        below = ndtr((middle[None] - means) / scales).mean(0) < level
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    low, high = (means - 10 * scales).min(0), (means + 10 * scales).max(0)
    low, high = jax.lax.fori_loop(0, 60, halve, (low, high))
    return 0.5 * (low + high)


@_mixture_quantile.defjvp
def _mixture_quantile_change(primals: tuple[Array, ...], changes: tuple[Array, ...]) -> tuple[Array, Array]:
    """``dq = sum_s w_s (dm_s + z_s ds_s) + dlevel / p(q)``, ``w_s`` the share of draw s in the density ``p`` at ``q``.

    By logarithms: between draws that lie far apart there is no density, and the shares are still known.
    """
    level, means, scales = primals
    d_level, d_means, d_scales = changes
    q = _mixture_quantile(level, means, scales)
    z = (q[None] - means) / scales
    logs = -0.5 * z**2 - jnp.log(scales) - math.log(math.sqrt(2 * math.pi) * means.shape[0])
    most = math.log(jnp.finfo(means.dtype).max) - 1
    flatness = jnp.exp(jnp.minimum(-logsumexp(logs, axis=0), most))
    return q, jnp.sum(jax.nn.softmax(logs, axis=0) * (d_means + z * d_scales), axis=0) + flatness * d_level


# Quantiles ``(levels, rows)`` of the first rows of a chunk, from so many draws, where a likelihood needs no program:
# ``(chunk, rows, levels, num_samples)``.
QuantilesOfRows = Callable[[Observation, int, np.ndarray, int], np.ndarray]


class Labels(Protocol):
    """The two levels that a response of labels has, and their codes ``(N,)``; what is no level has a greater one."""

    @property
    def levels(self) -> tuple[Any, ...] | None: ...

    def encode(self, values: np.ndarray) -> np.ndarray: ...


class Prediction:
    """What a fit predicts for new data: a mixture over S posterior draws (mathematics.md section 11.1).

    It is a pytree: a compiled function may return it, ``jax.jit(posterior.predictor(key))(X)``. It pickles, too. A
    likelihood that is a ``lambda`` or a function inside the model stays behind, with a warning: the four moments are
    kept, and all else needs `Posterior.predict` again.

    Attributes
    ----------
    mean, variance : Array (N, ...), or (G, N, ...) of data in a plate of groups
        Of new data ``y``: average of the draws' means, average of their variances plus variance of their means.
    function_mean, function_variance : Array, of the same shape
        The same of the latent function, without the observation noise.
    num_draws : int
        Number S of draws in the mixture.
    level : array (N,), optional
        Of data with a location whose level is so large that the precision of JAX has no digits for the rest: programs
        see data and functions less this level, and it is added to what they return by NumPy, in double precision. It is
        NaN for a row of a table that misses a value, and so is what is predicted for it.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> def model(X, y=None):
    ...     f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.5), jnp.array([[0.0], [1.0]]))
    ...     with numpyro.plate("data", len(X)):
    ...         ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)
    >>> posterior = ngp.Posterior.from_mcmc(model, {"f": jnp.zeros((3, 2))})
    >>> prediction = posterior.predict(jax.random.key(0), jnp.zeros((4, 1)))
    >>> prediction.mean.shape, prediction.log_density(jnp.zeros(4)).shape, prediction.quantiles([0.05, 0.95]).shape
    ((4,), (4,), (2, 4))
    """

    _labels: Labels | None = None  # of pickles of before, too

    def __init__(
        self,
        chunks: Sequence[Observation],
        sizes: Sequence[int],
        key: Array,
        axis: int = 0,
        quantiles: QuantilesOfRows | None = None,
        level: np.ndarray | None = None,
        labels: Labels | None = None,
    ) -> None:
        self._held: Sequence[Observation] | Absent = chunks
        self._labels = labels
        self._by_numpy, self.level = quantiles, level
        self._sizes, self._key, first = tuple(sizes), key, chunks[0]
        self._axis = axis % len(first.batch_shape)  # of rows, among those of plates
        self.num_draws, self._data_axes = first.mean_latent.shape[0], len(first.batch_shape) + first.event_dim
        mean, self.variance, function_mean, self.function_variance = self._reduce(moments)
        self.mean, self.function_mean = self._lifted(mean), self._lifted(function_mean)

    @classmethod
    def of_chunks(cls, chunks: Chunks, key: Array, axis: int, start: int | None, name: str | None) -> "Prediction":
        """That of rows behind ``start`` others of a stream; its noise is of its own for the data site of a name."""
        key = key if name is None else key_of(key, name)
        return cls(chunks, chunks.sizes, jax.random.fold_in(key, start) if start else key, axis)

    def __repr__(self) -> str:
        return f"Prediction(rows={sum(self._sizes)}, draws={self.num_draws})"

    def __getstate__(self) -> dict[str, object]:
        cure = "Predict again: posterior.predict(...)."
        own = to_pickle("likelihood", self.likelihood, "Means and variances are in the pickle", cure)
        return vars(self) | ({"_held": own} if isinstance(own, Absent) else {})

    def __copy__(self, memo: object = None) -> "Prediction":
        found = object.__new__(Prediction)
        vars(found).update(vars(self))
        return found

    __deepcopy__ = __copy__  # nothing in it changes

    @property
    def _chunks(self) -> Sequence[Observation]:
        return self._held() if isinstance(self._held, Absent) else self._held

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood, its parameters with the draws on the first axis."""
        return self._chunks[0].likelihood

    def _lifted(self, values: Any) -> Any:
        """Values with rows on the last axis, and their level."""
        return values if self.level is None else np.asarray(values, float) + self.level

    def _reduce(self, function: Callable[..., object], *rows: Array, key: Array | None = None, lead: int = 0) -> Any:
        """Apply ``function(chunk, *rows of the chunk)`` to one chunk at a time, and join the rows of the results.

        With a key: ``function(chunk, keys of its draws, *rows)``. Results have so many ``lead`` axes before their rows.
        """
        parts, start = [], 0
        for number, size in enumerate(self._sizes):
            chunk = self._chunks[number]
            length = chunk.mean_latent.shape[1 + self._axis]
            own = [] if key is None else [jax.random.split(jax.random.fold_in(key, number), self.num_draws)]
            parts.append(function(chunk, *own, *[padded(row, start, length, self._axis) for row in rows]))
            start += size
        # The rows of all chunks, without their padding; by NumPy, since a program would be one for each number of
        # rows.
        sizes, axis = self._sizes, lead + self._axis
        leaves = jax.tree.leaves(parts)
        if len(parts) == 1 and all(leaf.shape[axis] == sizes[0] for leaf in leaves):
            return parts[0]
        package = jnp if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves) else np
        cut = [
            jax.tree.map(lambda leaf, size=size: _first(package.asarray(leaf), size, axis), part)
            for part, size in zip(parts, sizes, strict=True)
        ]
        return jax.tree.map(lambda *own: on_device(package.concatenate(own, axis=axis)), *cut)

    def _check(self, y: ArrayLike) -> Array:
        if self._labels is not None and is_known(y):  # labels as 0 and 1, by name as the data of the fit had them
            labels, levels = np.asarray(y), self._labels.levels or ()
            is_coded = labels.dtype.kind in "fiub" and all(isinstance(level, str) for level in levels)
            codes = labels if is_coded else self._labels.encode(labels.ravel()).reshape(labels.shape)
            if not is_coded and (bad := codes == len(levels)).any():
                others = sorted({repr(one) for one in labels[bad].tolist()})
                fail("y", f"of the labels {levels}", f"{', '.join(others[:3])}", "Leave out rows with other labels.")
            y = codes
        data, given = check_array("y", y), known(y)
        if self.level is not None and given is not None and given.shape == self.level.shape:
            data = jnp.asarray((given - np.nan_to_num(self.level)).astype(self.variance.dtype))
        wanted = self.mean.shape[: self._data_axes]
        if data.shape != wanted:
            cure = "Pass y[:, 0] for a column."
            fail("y", f"of shape {wanted}, one value for each predicted row", f"shape {data.shape}", cure)
        if given is not None and given.dtype.kind == "f" and np.isnan(given).any():
            fail("y", "free of NaN", f"{np.isnan(given).sum()} NaN of {given.size}", "Leave out rows without targets.")
        values = self.likelihood.uncensored
        if not isinstance(values, CallableLikelihood):  # the support of these may be another at each draw
            values.check_targets(data)
        return data

    def log_density(self, y: ArrayLike) -> Array:
        """``log (1/S) sum_s p(y_n | draw s)`` for each datum, shape ``(N,)``.

        With few draws the log of the mixture is biased low (Jensen); `log_density_error` says how far off it may be.
        With latent inputs and small noise it is low by many nats: `conditional_density.log_density`.
        """
        return self._reduce(mixture_density, self._check(y))[0]

    def log_density_error(self, y: ArrayLike) -> Array:
        """Monte-Carlo standard error of `log_density` of each datum in nats, ``(N,)``; infinite for a single draw.

        It is that of an average over draws, divided by the average (mathematics.md section 11.1). `log_density` is low
        by about half of its square.
        """
        return self._reduce(mixture_density, self._check(y))[1]

    def sample(self, num_samples: int = 1000, key: Array | None = None) -> Array:
        """Draws of new data, shape ``(num_samples, N, ...)``; each takes one draw of the posterior in turn.

        Without a key the noise is that of the prediction's own: the same at every call, and in row n of all predictions
        under one key. Pass a key where such draws are to be independent, as rows predicted one by one and then added.
        """
        count = check_count("num_samples", num_samples)
        # By a name, and not by a number: those are of the draws of the posterior, under the same key.
        key = key_of(self._key if key is None else check_key("key", key), "sample")
        every = -(-count // self.num_draws) * self.num_draws
        order = jax.random.permutation(jax.random.fold_in(key, len(self._sizes)), every)
        return self._lifted(self._reduce(lambda chunk, keys: self._draws(chunk, keys, order)[:count], key=key, lead=1))

    def _draws(self, chunk: Observation, keys: Array, order: Array) -> Array:
        """Draws for one chunk; the same order of posterior draws in each, so that a row of draws is of one of them."""
        draws = mixture_sample(chunk, keys, times=order.size // self.num_draws)
        return draws.reshape((-1, *draws.shape[2:]))[order]

    def quantiles(self, levels: ArrayLike | Sequence[float], num_samples: int = 2000) -> Array:
        """Quantiles of new data, shape ``(levels, N, ...)``.

        Exact for a Gaussian likelihood (the mixture's distribution function is inverted by bisection);
        otherwise from ``num_samples`` draws. Those of counts and labels are values that were drawn, and whole.
        """
        array, given = check_array("levels", cast("ArrayLike", levels)), known(levels)
        count = check_count("num_samples", num_samples)
        if not array.size or (given is not None and not np.all((given > 0) & (given < 1))):
            fail("levels", "one or more numbers between 0 and 1", f"{levels}", "Pass [0.05, 0.5, 0.95].")
        if self._by_numpy is not None and given is not None and is_known(self.mean):
            wanted = np.atleast_1d(np.asarray(given, float))
            of_rows = [self._by_numpy(*own, wanted, count) for own in zip(self._chunks, self._sizes, strict=True)]
            found = np.concatenate(of_rows, axis=1)
            return self._lifted(found if self.level is not None else jnp.asarray(found.astype(self.mean.dtype)))
        probabilities = jnp.atleast_1d(array).astype(self.variance.dtype)
        if isinstance(self.likelihood.uncensored, Gaussian):
            rows = self._reduce(partial(gaussian_quantiles, probabilities=probabilities))
            return self._lifted(jnp.moveaxis(rows, -1, 0))
        key = key_of(self._key, "quantiles")
        order = jnp.arange(-(-count // self.num_draws) * self.num_draws)
        # Of whole numbers one of the draws, which the mean of two that are next to each other is not.
        method = "lower" if is_discrete(self._chunks[0]) else "linear"

        def of_chunk(chunk: Observation, keys: Array) -> Array:
            return jnp.quantile(self._draws(chunk, keys, order), probabilities, axis=0, method=method)

        return self._lifted(self._reduce(of_chunk, key=key, lead=1))

    def survival(self, times: ArrayLike) -> Array:
        """``P(Y > t)`` of new data at each of some times, shape ``(T, N, ...)``; any real values serve as times.

        It is of the values themselves where they were censored in the fit. ``1 - survival`` is the distribution
        function.

        Parameters
        ----------
        times : array (T,)
        """
        found, rows = self._times(times)
        values = self._reduce(lambda chunk, *own: mixture_survival(chunk, own[0].T if own else found), *rows)
        return jnp.moveaxis(values, -1, 0)

    def survival_draws(self, times: ArrayLike, num_samples: int = 200, key: Array | None = None) -> Array:
        """``P(Y > t | f)`` at draws of the function and of all else, shape ``(num_samples, T, N, ...)``.

        Their mean is `survival`, and their quantiles say how well the curve is known: `ngp.plots.survival` draws them.
        """
        (found, rows), count = self._times(times), check_count("num_samples", num_samples)
        key = key_of(self._key if key is None else check_key("key", key), "survival")
        each = -(-count // self.num_draws)

        def of_chunk(chunk: Observation, keys: Array, *own: Array) -> Array:
            return survival_draws(chunk, keys, own[0].T if own else found, each=each)

        order = jax.random.permutation(jax.random.fold_in(key, len(self._sizes)), each * self.num_draws)
        return self._reduce(of_chunk, *rows, key=key, lead=2)[order[:count]]

    def _times(self, times: ArrayLike) -> tuple[Array, tuple[Array, ...]]:
        """Times ``(T,)``; where rows have a level also ``(N, T)``, less the level of each row."""
        found = check_array("times", times)
        if found.ndim != 1 or not found.size:
            fail("times", "of shape (T,), one or more", f"shape {found.shape}", "Pass jnp.linspace(0.0, 10.0, 50).")
        found = check_floating("times", found.astype(self.variance.dtype))
        if self.level is None:
            return found, ()
        return found, (jnp.asarray((np.asarray(times, float) - self.level[:, None]).astype(self.variance.dtype)),)


# What a prediction holds, as the pytree that it is: arrays, and what is fixed.
ARRAYS = ("_held", "_key", "level", "mean", "variance", "function_mean", "function_variance")
STATIC_FIELDS = ("_sizes", "_axis", "num_draws", "_data_axes", "_by_numpy", "_labels")


def _parts_of_prediction(prediction: Prediction) -> tuple[tuple[object, ...], tuple[object, ...]]:
    held = vars(prediction) | {"_held": list(prediction._chunks)}
    return tuple(held[name] for name in ARRAYS), tuple(getattr(prediction, name) for name in STATIC_FIELDS)


def _prediction_of(fixed: tuple[Any, ...], arrays: tuple[Any, ...]) -> Prediction:
    found = object.__new__(Prediction)
    vars(found).update(zip(ARRAYS + STATIC_FIELDS, (*arrays, *fixed), strict=True))
    return found


jax.tree_util.register_pytree_node(Prediction, _parts_of_prediction, _prediction_of)


def _first(values: Any, size: int, axis: int) -> Any:
    """The first of an axis."""
    return values[(slice(None),) * axis + (slice(size),)]
