"""Coordinates in which a posterior is about as wide in every direction (mathematics.md section 9.3).

A kernel of distances takes every direction for as wide as every other. Where the posterior is a hundred times as wide
along one as along the next, particles that are far apart in the first are the only ones that the kernel can tell
apart, and they collapse in the second. So particles move in ``z`` with ``x = origin + root z``, where
``root root^T`` is about the covariance of the posterior, and there the same kernels serve.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from numpyro_gp.arrays import Array, value_type
from numpyro_gp.checks import check_count, check_finite, fail, when_known
from numpyro_gp.linalg import matmul
from numpyro_gp.stein.direction import healthy_mean, named_of_rows, of_row, to_rows

Named = Mapping[str, Array]
# Rounds in which rows come to one size: the logarithm of what is left halves in each.
BALANCED = 6


@value_type(static=("every", "memory"))
class Curvature:
    """Coordinates from the curvature of the target, measured as the particles go: its inverse, averaged over them.

    The absolute eigenvalues of each particle count, so that it is positive definite everywhere. It costs ``d``
    gradients per particle, for ``d`` coordinates, at every ``every``-th step, and nothing between; on minibatches it is
    that of the minibatch of its step, and values that stand outside of it, or under a mask, keep theirs. Far from the
    posterior it says little: start at draws of a fitted guide, as `auto` does, or `Around` a MAP,
    found by a run of one particle.

    Parameters
    ----------
    every : int
        Steps from one measurement to the next; the first step measures.
    memory : float
        Weight in ``[0, 1)`` of what was measured before: noise of minibatches needs more than the default.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> ngp.stein.Curvature(every=50).memory
    0.5
    """

    every: int = 50
    memory: float = 0.5

    def __post_init__(self) -> None:
        check_count("every", self.every)
        if not isinstance(self.memory, (int, float)) or isinstance(self.memory, bool) or not 0 <= self.memory < 1:
            fail("memory", "a number from 0 to below 1", f"{self.memory!r:.60}", "Pass memory=0.5.")


@value_type()
class Spread:
    """Coordinates from draws of the latent sites, of a fitted guide or of a short chain: their covariance.

    Parameters
    ----------
    draws : dict
        Every latent site to *constrained* values ``(S, ...)``, more draws than coordinates and none the same for all
        draws: e.g. ``guide.sample_posterior(key, params, sample_shape=(1000,))`` of a guide with a width for every
        site, or ``mcmc.get_samples()``. Other names are left out.

    Examples
    --------
    >>> import numpy as np, numpyro, numpyro.distributions as dist, optax, numpyro_gp as ngp
    >>> def model():
    ...     numpyro.sample("noise", dist.LogNormal(0.0, 1.0))
    >>> draws = {"noise": np.exp(np.random.default_rng(0).normal(size=50))}
    >>> svgd = ngp.stein.SVGD(model, optax.adam(0.01), metric=ngp.stein.Spread(draws))
    """

    draws: Any

    def covariance(self, particles: Named, transforms: Mapping[str, tuple[str, object]]) -> Array:
        """Covariance ``(d, d)`` in the unconstrained coordinates of the particles, by parameter; see `Moving.start`."""
        sites = sorted(site for site, _ in transforms.values())
        if not set(sites) <= set(self.draws):
            fail("draws", f"draws of the latent sites {sites}", f"{sorted(self.draws)}", "Pass an array for each site.")
        free = {}
        for name, (site, transform) in transforms.items():
            free[name] = jnp.asarray(transform.inv(jnp.asarray(self.draws[site])), particles[name].dtype)
            if free[name].shape[1:] != particles[name].shape[1:]:
                wanted, cure = f"of shape (S, *{particles[name].shape[1:]})", "The first axis is that of the draws."
                fail(f"draws[{site!r}]", wanted, f"{free[name].shape}", cure)
            check_finite(f"draws[{site!r}], unconstrained,", free[name])
            when_known(functools.partial(_check_draws_differ, site), free[name])
        rows = to_rows(free)
        if rows.shape[0] <= rows.shape[1]:
            cure = "Draw more: guide.sample_posterior(..., sample_shape=(1000,))."
            fail("draws", f"more than the {rows.shape[1]} coordinates", f"{rows.shape[0]} of them", cure)
        centred = rows - jnp.mean(rows, axis=0, keepdims=True)
        return matmul(centred.T, centred) / rows.shape[0]


def _check_draws_differ(site: str, values: np.ndarray) -> None:
    if np.any(np.all(values == values[:1], axis=0)):
        cure = "Fit a guide with a width for each site: AutoGP(model, rest=AutoNormal)."
        fail(f"draws[{site!r}]", "different among the draws", "the same values in all", cure)


# ------------------------------------------------------------------------------------------ coordinates


def symmetric_power(matrix: Array, power: float) -> Array:
    """Symmetric matrix to a power, of the absolute values of its eigenvalues: positive definite.

    Those below ``eps^(2/3)`` of the largest, which rounding made, count as that.
    """
    values, vectors = jnp.linalg.eigh(0.5 * (matrix + matrix.T))
    size = jnp.abs(values)
    size = jnp.maximum(size, jnp.finfo(size.dtype).eps ** (2 / 3) * jnp.max(size))
    return matmul(vectors * size[None, :] ** power, vectors.T)


def _in_units(matrix: Array) -> tuple[Array, Array]:
    """Units ``u (d,)``, powers of two, and the matrix over ``u u^T``, whose rows have a largest entry near 1."""
    sizes, units = jnp.abs(0.5 * (matrix + matrix.T)), jnp.ones_like(matrix[0])
    for _ in range(BALANCED):
        largest = jnp.max(sizes / units[:, None] / units[None], axis=1)
        units = units * jnp.exp2(jnp.round(0.5 * jnp.log2(jnp.where(largest == 0, 1, largest))))
    return units, matrix / units[:, None] / units[None]


def root_of_absolute(matrix: Array) -> Array:
    """``R`` with ``R R^T`` the absolute matrix."""
    units, balanced = _in_units(matrix)
    return units[:, None] * symmetric_power(balanced, 0.5)


def inverse_root_of(matrix: Array) -> Array:
    """``R`` with ``R R^T`` the inverse of the absolute matrix: the inverse of the transposed `root_of_absolute`."""
    units, balanced = _in_units(matrix)
    return symmetric_power(balanced, -0.5) / units[:, None]


def in_coordinates(root: Array | None, particles: Named, scores: Named) -> tuple[dict, dict]:
    """Particles ``z = root^-1 x`` and scores ``root^T s`` by name, from those of ``x``; as they are without a root."""
    if root is None:
        return dict(particles), dict(scores)
    z = jnp.linalg.solve(root, to_rows(particles).T).T
    slopes = matmul(to_rows(scores), root)
    return named_of_rows(z, particles), named_of_rows(slopes, particles)


def average_curvature(log_target: Callable[[dict[str, Array]], Array], particles: Named) -> tuple[Array, Array, Array]:
    """Mean of ``|-Hessian|`` ``(d, d)`` over the particles where it is finite, and whether it is so anywhere.

    Between them which coordinates ``(d,)`` have none, as values outside of a minibatch and those that a mask hides:
    their rows and columns are zero.
    """
    unravel = of_row(particles)

    def size(row: Array) -> tuple[Array, Array]:
        density = log_target(unravel(row))
        hessian = jax.jacfwd(jax.grad(lambda row: log_target(unravel(row))))(row)
        is_flat = jnp.all(hessian == 0, axis=1)
        # The matrix of absolute eigenvalues, in units of its own.
        units, balanced = _in_units(jnp.where(jnp.isfinite(density), hessian, jnp.nan))
        return units[:, None] * symmetric_power(balanced, 1.0) * units[None], is_flat

    sizes, flat = lax.map(size, to_rows(particles))
    healthy = jnp.isfinite(sizes).all((1, 2))
    is_flat = jnp.all(flat | ~healthy[:, None], axis=0)
    return jnp.where(is_flat[:, None] | is_flat[None], 0, healthy_mean(sizes, healthy)), is_flat, healthy.any()


class Moved(NamedTuple):
    """State of `Moving`.

    Attributes
    ----------
    inner
        State of the user's optimiser, which moves ``z`` and the parameters that particles share.
    origin : dict
        ``x - root z`` by name, for the particles alone, (n, ...).
    root : Array (d, d)
    curvature : Array (d, d)
        The running average that the root comes from.
    step : Array ()
    """

    inner: Any
    origin: dict[str, Array]
    root: Array
    curvature: Array
    step: Array


class Moving:
    """An optimiser of ``z`` that shows ``x = origin + root z``.

    When the root changes, the origin does so that ``x`` stays: ``z``, its moments and the optimiser's count continue.
    """

    def __init__(self, inner: object, metric: Curvature | Spread) -> None:
        self.inner, self.metric = inner, metric

    def start(self, inner_state: object, transforms: Mapping[str, tuple[str, object]]) -> Moved:
        """From a state of the inner optimiser at ``x``; site and transform by parameter, for the particles alone."""
        params = self.inner.get_params(inner_state)
        particles = {name: params[name] for name in sorted(transforms)}
        rows = to_rows(particles)
        identity, origin = jnp.eye(rows.shape[1], dtype=rows.dtype), jax.tree.map(jnp.zeros_like, particles)
        moved = Moved(inner_state, origin, identity, jnp.zeros_like(identity), jnp.zeros((), int))
        if not isinstance(self.metric, Spread):
            return moved
        return self.turned(moved, root_of_absolute(self.metric.covariance(particles, transforms)))

    def get_params(self, state: Moved) -> dict[str, Array]:
        """Particles ``x``, and what they share."""
        params, shift = self.inner.get_params(state.inner), self._turned(state, state.root)
        return {**params, **{name: state.origin[name] + part for name, part in shift.items()}}

    def update(self, gradients: dict[str, Array], state: Moved, value: Array | None = None) -> Moved:
        """A step by gradients in ``z``."""
        return state._replace(inner=self.inner.update(gradients, state.inner, value=value), step=state.step + 1)

    def turned(self, state: Moved, root: Array) -> Moved:
        """The same particles in other coordinates."""
        shift = self._turned(state, state.root - root)
        return state._replace(origin=jax.tree.map(jnp.add, state.origin, shift), root=root)

    def _turned(self, state: Moved, root: Array) -> dict[str, Array]:
        """``root z`` by name."""
        params = self.inner.get_params(state.inner)
        z = {name: params[name] for name in state.origin}
        return named_of_rows(matmul(to_rows(z), root.T), z)

    def measured(self, state: Moved, log_target: Callable[[dict[str, Array], dict[str, Array]], Array]) -> Moved:
        """The same particles in coordinates measured anew, where it is time; ``log_target(particle, shared)``.

        Where no particle has a finite curvature the coordinates stay.
        """
        if not isinstance(self.metric, Curvature):
            return state

        def again(state: Moved) -> Moved:
            params = self.get_params(state)
            particles = {name: params.pop(name) for name in state.origin}
            average, is_flat, is_found = average_curvature(lambda particle: log_target(particle, params), particles)
            # ``memory`` of what was measured before with what was found. Coordinates without curvature keep theirs, or
            # 1: taken for flat, as wide as rounding lets them be, they would run away at the next step.
            is_first, identity = ~jnp.any(state.curvature), jnp.eye(*average.shape, dtype=average.dtype)
            before = jnp.where(is_first, identity, state.curvature)
            kept_share = jnp.where(is_first, 0.0, self.metric.memory).astype(before.dtype)
            side = jnp.sqrt(jnp.where(is_flat, 1, kept_share))  # on both sides: the sum stays positive definite
            curvature = side[:, None] * before * side[None] + (1 - kept_share) * average
            root = inverse_root_of(jnp.where(is_found, curvature, identity))
            new = self.turned(state, root)
            kept = functools.partial(jnp.where, is_found)
            origin = jax.tree.map(kept, new.origin, state.origin)
            measured = {"root": kept(new.root, state.root), "curvature": kept(curvature, state.curvature)}
            return state._replace(origin=origin, **measured)

        return lax.cond(state.step % self.metric.every == 0, again, lambda state: state, state)
