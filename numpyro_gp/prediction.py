"""``Prediction``: the equal mixture over posterior draws of the predictive distribution of each datum."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp, ndtr

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import check_count, fail
from numpyro_gp.likelihoods import Gaussian
from numpyro_gp.sites import Observation

__all__ = ["Prediction"]


class Prediction:
    """Mixture over S posterior draws (math.md sections 8 and 9.4).

    Attributes
    ----------
    mean, variance : Array (N, ...)
        Of new data ``y``: average of the draws' means, average of their variances plus variance of their means.
    function_mean, function_variance : Array (N, ...)
        The same of the latent function, without the observation noise.
    """

    def __init__(self, chunks: list[Observation], sizes: list[int], key: Array) -> None:
        self._chunks, self._sizes, self._key = chunks, sizes, key
        self.mean, self.variance = self._moments(lambda o: (o.predictive_mean, o.predictive_variance))
        self.function_mean, self.function_variance = self._moments(lambda o: (o.mean_latent, o.variance_latent))

    def __repr__(self) -> str:
        return f"Prediction(rows={sum(self._sizes)}, draws={self.num_draws})"

    @property
    def num_draws(self) -> int:
        """Number S of draws in the mixture."""
        return self._chunks[0].mean_latent.shape[0]

    def _each(self, function: Callable[..., Any], *rows: Array) -> Any:
        """Apply to each draw of each chunk, draws on the first axis, and join the rows."""
        parts, start = [], 0
        for chunk, size in zip(self._chunks, self._sizes, strict=True):
            own = [row[start : start + size] for row in rows]
            parts.append(jax.jit(jax.vmap(lambda o, own=own: function(o, *own)))(chunk))
            start += size
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=1), *parts)

    def _moments(self, function: Callable[[Observation], tuple[Array, Array]]) -> tuple[Array, Array]:
        means, variances = self._each(function)
        return means.mean(0), variances.mean(0) + means.var(0)

    def _check(self, y: ArrayLike) -> Array:
        data = jnp.asarray(y)
        wanted = self.mean.shape if self._chunks[0].event_dim else self.mean.shape[:1]
        if data.shape != wanted:
            fail(
                "y",
                f"of shape {wanted}, one value for each predicted row",
                f"shape {data.shape}",
                "Pass y[:, 0] for a column.",
            )
        return data

    def log_density(self, y: ArrayLike) -> Array:
        """``log (1/S) sum_s p(y_n | draw s)`` for each datum, shape ``(N,)``.

        With few draws the log of the mixture is biased low (Jensen); `num_draws` says how many there are.
        """
        each = self._each(lambda o, own: o.predictive_log_prob(own), self._check(y))
        return logsumexp(each, axis=0) - math.log(each.shape[0])

    def sample(self, num_samples: int = 1000, key: Array | None = None) -> Array:
        """Draws of new data, shape ``(num_samples, N, ...)``; each takes one draw of the posterior in turn."""
        count = check_count("num_samples", num_samples)
        key = jax.random.fold_in(self._key, 1) if key is None else key
        times = -(-count // self.num_draws)
        parts = []
        for number, chunk in enumerate(self._chunks):
            keys = jax.random.split(jax.random.fold_in(key, number), self.num_draws)
            draws = jax.jit(jax.vmap(lambda o, k: o.sample(k, (times,))))(chunk, keys)
            parts.append(draws.reshape((-1,) + draws.shape[2:]))
        joined = jnp.concatenate(parts, axis=1)
        order = jax.random.permutation(jax.random.fold_in(key, len(parts)), joined.shape[0])
        return joined[order[:count]]

    def quantiles(self, levels: ArrayLike, num_samples: int = 2000) -> Array:
        """Quantiles of new data, shape ``(levels, N, ...)``.

        Exact for a Gaussian likelihood (the mixture's distribution function is inverted by bisection);
        otherwise from ``num_samples`` draws.
        """
        probabilities = jnp.atleast_1d(jnp.asarray(levels, self.mean.dtype))
        if not bool(jnp.all((probabilities > 0) & (probabilities < 1))):
            fail("levels", "between 0 and 1", f"{levels}", "E.g. [0.05, 0.5, 0.95].")
        if not isinstance(self._chunks[0].likelihood, Gaussian):
            return jnp.quantile(self.sample(num_samples), probabilities, axis=0)
        means, variances = self._each(lambda o: (o.predictive_mean, o.predictive_variance))
        return jax.vmap(lambda level: _mixture_quantile(level, means, jnp.sqrt(variances)))(probabilities)


@jax.jit
def _mixture_quantile(level: Array, means: Array, scales: Array) -> Array:
    """Invert ``(1/S) sum_s Phi((q - m_s) / s_s) = level`` by 60 bisections, for each datum."""

    def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = 0.5 * (low + high)
        below = ndtr((middle[None] - means) / scales).mean(0) < level
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    low, high = (means - 10 * scales).min(0), (means + 10 * scales).max(0)
    low, high = jax.lax.fori_loop(0, 60, halve, (low, high))
    return 0.5 * (low + high)
