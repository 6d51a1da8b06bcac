"""The direction in which SVGD moves particles: attraction and repulsion by blocks (mathematics.md section 9.1)."""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import fail
from numpyro_gp.linalg import matmul
from numpyro_gp.stein.kernels import RBF, Moments, ParticleKernel, Radial, check_kernel

# Coordinates with the particle axis first: one array, or one for each site.
Particles = ArrayLike | Mapping[str, ArrayLike]
SiteArrays = Array | dict[str, Array]


class Forces(NamedTuple):
    """The two parts of the direction, shaped like the particles: ``phi = attraction + repulsion``."""

    attraction: SiteArrays
    repulsion: SiteArrays


def svgd_direction(particles: Particles, scores: Particles, kernel: ParticleKernel = RBF()) -> SiteArrays:  # noqa: B008
    """One step of Stein variational gradient descent: the direction that raises the target fastest for a kernel.

    ``phi_i = (1/n) sum_j [ k(x_j, x_i) s_j + grad_{x_j} k(x_j, x_i) ]`` (mathematics.md section 9.1); step *along* it.
    The second term pushes particles apart.

    Parameters
    ----------
    particles : array (n, ...) or dict of them
        Unconstrained coordinates, the particle axis first; the keys are the sites that a kernel groups.
    scores : like ``particles``
        ``grad log target`` at each.
    kernel : RBF, IMQ, PerSite, Groups or Moments

    Returns
    -------
    like ``particles``
        A particle with a coordinate or a score that is not finite is left out of every sum (the
        others move as though it were not there); its own direction is NaN at the faulty coordinates.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> x = jnp.array([[0.0], [1.0]])
    >>> phi = ngp.stein.svgd_direction(x, -x, ngp.stein.RBF(1.0))
    >>> print(bool(phi[0, 0] < 0), bool(phi[1, 0] > -0.5))
    True True
    """
    attraction, repulsion = forces(particles, scores, kernel)
    return jax.tree.map(jnp.add, attraction, repulsion)


def forces(
    particles: Particles,
    scores: Particles,
    kernel: ParticleKernel = RBF(),  # noqa: B008
    absent: Mapping[str, Array] | None = None,
) -> Forces:
    """The two parts of `svgd_direction`, to see which one moves the particles: attraction ``(1/n) K s`` and repulsion.

    Coordinates that are ``absent``, by site and shaped as one particle, are in no distance and feel no repulsion.

    Parameters
    ----------
    particles, scores, kernel
        As in `svgd_direction`.
    absent : dict, optional

    Returns
    -------
    attraction, repulsion : like ``particles``
        They add up to the direction.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> x = jnp.array([[0.0], [1.0]])
    >>> attraction, repulsion = ngp.stein.forces(x, -x, ngp.stein.RBF(1.0))
    >>> bool(repulsion[0, 0] < 0 < repulsion[1, 0])
    True
    """
    if absent is not None and isinstance(particles, Mapping):
        particles = {name: jnp.where(absent[name][None], 0, x) for name, x in particles.items()}
    tables, values = split_blocks(particles, scores, kernel)
    healthy = healthy_particles([x for x, _, _ in tables], [s for _, s, _ in tables])
    parts = [_block_forces(x, s, radial, healthy) for x, s, radial in tables]
    if isinstance(kernel, Moments):
        # Forces of ``1 + (x - m).(y - m) / v``, all blocks: ``m`` the mean, ``v`` the variance averaged over ``size``.
        size = sum(x.shape[1] for x, _, _ in tables) - sum(jnp.sum(part) for part in (absent or {}).values())
        seen, count = healthy[:, None], jnp.sum(healthy).astype(tables[0][0].dtype)
        centred = [jnp.where(seen, x - healthy_mean(x, healthy)[None], 0) for x, _, _ in tables]
        width = sum(jnp.sum(c**2) for c in centred) / (count * jnp.maximum(size, 1))
        width = lax.stop_gradient(jnp.where(width > jnp.finfo(width.dtype).tiny, width, 1.0))
        inner = sum(matmul(c, c.T) for c in centred) / width
        inner = jnp.where(seen & seen.T, 1 + inner, 0) / count
        for number, ((x, score, _), c) in enumerate(zip(tables, centred, strict=True)):
            pull, push = matmul(inner, jnp.where(seen, score, 0)), c / width
            more = [mark_faults(kernel.weight * force, x, score, healthy) for force in (pull, push)]
            parts[number] = parts[number][0] + more[0], parts[number][1] + more[1]
    return Forces(values([a for a, _ in parts]), values([r for _, r in parts]))


def _block_forces(x: Array, score: Array, kernel: Radial, healthy: Array) -> tuple[Array, Array]:
    """Both forces on the particles ``(n, d)`` of one block."""
    both = healthy[None, :] & healthy[:, None]

    def of_one_distance(x: Array, score: Array) -> tuple[Array, Array]:
        count = jnp.sum(healthy).astype(x.dtype)
        # The forces do not depend on the origin; centred coordinates keep the difference below accurate.
        centred = jnp.where(healthy[:, None], x - healthy_mean(x, healthy)[None], 0)
        squared = particle_distances(centred)
        h = bandwidth(kernel, squared, healthy)
        value, slope, _ = kernel.profile(squared, h)
        weight, push = jnp.where(both, value, 0) / count, jnp.where(both, -2 * slope, 0) / count
        attraction = matmul(weight, jnp.where(healthy[:, None], score, 0))
        repulsion = jnp.sum(push, axis=1, keepdims=True) * centred - matmul(push, centred)
        return mark_faults(attraction, x, score, healthy), mark_faults(repulsion, x, score, healthy)

    parts = jax.vmap(of_one_distance)(by_distance(kernel, x), by_distance(kernel, score))
    attraction, repulsion = (jnp.moveaxis(part, 0, 1).reshape(x.shape) for part in parts)
    return attraction, repulsion


def by_distance(kernel: Radial, table: Array) -> Array:
    """What shares a distance, on the first axis: ``(1, n, d)``, or ``(d, n, 1)`` for a kernel of single coordinates."""
    return table.T[:, :, None] if kernel.per_coordinate else table[None]


def particle_distances(x: Array) -> Array:
    """``||x_i - x_j||^2`` of ``(n, d)`` by differences: fused by the compiler, and exact for near particles."""
    return jnp.sum((x[:, None] - x[None]) ** 2, axis=-1)


def bandwidth(kernel: Radial, squared: Array, healthy: Array | None = None) -> Array:
    """The kernel's ``h``: its number, or the median rule of mathematics.md section 9.2; 1 for a single particle.

    Where more than half of the pairs coincide the mean takes the median's place, and 1 where all
    do: any positive ``h`` is a valid kernel, zero is not.
    """
    unit = jnp.ones((), squared.dtype)
    if not isinstance(kernel.bandwidth, str):
        return unit * kernel.bandwidth
    size = squared.shape[0]
    if size == 1:
        return unit
    rows, columns = np.triu_indices(size, 1)
    healthy = jnp.ones(size, bool) if healthy is None else healthy
    valid = healthy[rows] & healthy[columns]
    pairs = squared[rows, columns]
    middle = jnp.nanmedian(jnp.where(valid, pairs, jnp.nan))
    h = jnp.where(middle > 0, middle, healthy_mean(pairs, valid)) / jnp.log(jnp.sum(healthy) + unit)
    return lax.stop_gradient(jnp.where(h > jnp.finfo(h.dtype).tiny, h, unit))


def split_blocks(
    particles: Particles, scores: Particles, kernel: ParticleKernel
) -> tuple[list[tuple[Array, Array, Radial]], Callable[[list[Array]], SiteArrays]]:
    """Tables ``(n, d)`` of coordinates and scores for each block, and the function that undoes the division."""
    single = not isinstance(particles, Mapping)
    trees = (tree if isinstance(tree, Mapping) else {"particles": tree} for tree in (particles, scores))
    x, s = ({name: jnp.asarray(leaf) for name, leaf in tree.items()} for tree in trees)
    for name, array in (*x.items(), *s.items()):
        if not jnp.issubdtype(array.dtype, jnp.floating):  # a direction of whole numbers would be zero
            fail(name, "floating point", f"dtype {array.dtype}", f"Convert it: {name}.astype(float).", TypeError)
    required = "RBF, IMQ, PerSite, Groups or Moments"
    check_kernel("kernel", kernel, "blocks", required, "Call the class: stein.RBF().")
    if set(x) != set(s) or any(jnp.shape(x[name]) != jnp.shape(s[name]) for name in x):
        shapes = [{name: jnp.shape(leaf) for name, leaf in tree.items()} for tree in (x, s)]
        fail("scores", f"of the shapes of the particles, {shapes[0]}", f"{shapes[1]}", "Pass one for each coordinate.")
    sizes = {name: jnp.shape(leaf)[:1] for name, leaf in x.items()}
    if len(set(sizes.values())) != 1 or () in sizes.values():
        fail("particles", "arrays with one common first axis", f"{sizes}", "Put the axis of the particles first.")
    blocks = kernel.blocks(tuple(x))

    def table(tree: Mapping[str, Array], names: tuple[str, ...]) -> Array:
        return jnp.concatenate([tree[name].reshape(tree[name].shape[0], -1) for name in names], 1)

    def join(parts: list[Array]) -> SiteArrays:
        joined = {}
        for block, part in zip(blocks, parts, strict=True):
            widths = [math.prod(jnp.shape(x[name])[1:]) for name in block.sites]
            cut = jnp.split(part, np.cumsum(widths)[:-1], axis=1)
            for name, piece in zip(block.sites, cut, strict=True):
                joined[name] = piece.reshape(x[name].shape).astype(x[name].dtype)
        return joined["particles"] if single else {name: joined[name] for name in x}

    return [(table(x, block.sites), table(s, block.sites), block.kernel) for block in blocks], join


def healthy_particles(particles: object, scores: object) -> Array:
    """Which particles have a finite position and a finite score everywhere, (n,); the particle axis is the first."""
    leaves = jax.tree.leaves((particles, scores))
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(x.reshape(x.shape[0], -1)), axis=1) for x in leaves]), axis=0)


def healthy_mean(values: Array, healthy: Array) -> Array:
    """Mean over the healthy entries of the first axis; zero where there are none."""
    mask = healthy.reshape((-1,) + (1,) * (values.ndim - 1))
    return jnp.sum(jnp.where(mask, values, 0), axis=0) / jnp.maximum(jnp.sum(healthy), 1).astype(values.dtype)


def mark_faults(force: Array, x: Array, score: Array, healthy: Array) -> Array:
    """The force on the healthy particles; on the others NaN at the coordinates at fault, and zero elsewhere."""
    fault = jnp.where(jnp.isfinite(score) & jnp.isfinite(x), 0.0, jnp.nan).astype(x.dtype)
    return jnp.where(healthy[:, None], force, fault)


# ------------------------------------------------------------------------ particles as rows of a table


def to_rows(tree: Mapping[str, Array]) -> Array:
    """Values by name, the particle axis first, as a table ``(n, d)``."""
    return jax.vmap(lambda particle: ravel_pytree(particle)[0])(dict(tree))


def named_of_rows(rows: Array, like: Mapping[str, Array]) -> dict[str, Array]:
    """A table as values by name, shaped as ``like``."""
    return jax.vmap(of_row(like))(rows)


def of_row(like: Mapping[str, Array]) -> Callable[[Array], dict[str, Array]]:
    """The function from one row of such a table to the values of one particle by name."""
    return ravel_pytree(jax.tree.map(lambda leaf: leaf[0], dict(like)))[1]
