"""Numbers of a mixture over draws: moments, log densities, quantiles, survival, each as one program."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp, ndtr

from numpyro_gp.arrays import Array
from numpyro_gp.likelihoods import Censored
from numpyro_gp.likelihoods.tails import log_tails
from numpyro_gp.programs.compiled import compiled
from numpyro_gp.sites import Observation

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
def mixture_density(chunk: Observation, y: Array) -> Array:
    """``log p(y_n)`` of each datum."""
    each = _each_draw(lambda o, own: o.predictive_log_prob(own), chunk, y)
    return logsumexp(each, axis=0) - math.log(each.shape[0])


@compiled
def log_density_error(chunk: Observation, y: Array) -> Array:
    """Standard error of `mixture_density` over the draws; infinite of one."""
    each = _each_draw(lambda o, own: o.predictive_log_prob(own), chunk, y)
    count, share = each.shape[0], jax.nn.softmax(each, axis=0)
    if count == 1:
        return jnp.full(each.shape[1:], jnp.inf)
    return jnp.sqrt(jnp.maximum(count * jnp.sum(share**2, axis=0) - 1, 0) / (count - 1))


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


def quantiles_of_draws(draws: Array, probabilities: Array, is_whole: bool) -> Array:
    """Of draws ``(S, ...)``: of whole numbers one of them, which the mean of two that are next to each other is not."""
    return jnp.quantile(draws, probabilities, axis=0, method="lower" if is_whole else "linear")


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
