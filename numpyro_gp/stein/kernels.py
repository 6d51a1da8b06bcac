"""Kernels between particles, and the direction in which SVGD moves the particles (math.md section 8).

A kernel splits the sites into groups and gives each group a radial kernel ``g(||x - y||^2)`` of that
group's coordinates alone: a block-diagonal matrix kernel. One group of everything is the kernel of
the papers; with thousands of whitened values in a particle its distance says nothing about a
hyper-parameter, and groups of their own keep the hyper-parameters apart.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from numpyro_gp.arrays import Array, value_type
from numpyro_gp.checks import fail

__all__ = ["Block", "Forces", "Groups", "IMQ", "Kernel", "PerSite", "RBF", "forces", "svgd_direction"]

MEDIAN = "median"
EXACT = lax.Precision.HIGHEST


class Radial(Protocol):
    """A kernel ``g(r)`` of the squared distance ``r`` within one group of sites."""

    bandwidth: float | str

    def profile(self, squared: Array, h: Array) -> tuple[Array, Array, Array]:
        """``g``, ``g'`` and ``g''`` at squared distances, for bandwidth ``h``."""
        ...


class Block(NamedTuple):
    """Sites that share a distance, and the kernel of that distance."""

    sites: tuple[str, ...]
    kernel: Radial


class Kernel(Protocol):
    """What `SVGD` and `svgd_direction` take: a division of the sites into blocks."""

    def blocks(self, sites: tuple[str, ...]) -> list[Block]:
        """One block for each group of these sites; every site lies in exactly one."""
        ...


def _check_bandwidth(bandwidth: Any) -> None:
    is_number = isinstance(bandwidth, (int, float)) and not isinstance(bandwidth, bool)
    if bandwidth != MEDIAN and not (is_number and 0 < bandwidth < math.inf):
        fail("bandwidth", '"median" or a positive number', f"{bandwidth!r}", "It divides the *squared* distance.")


def _check_radial(argument: str, kernel: Any) -> None:
    if not hasattr(kernel, "profile"):
        fail(argument, "RBF or IMQ", f"{kernel!r:.60}", "Groups of sites cannot be nested.", TypeError)


def _check_known(argument: str, named: Any, sites: tuple[str, ...]) -> None:
    unknown = sorted(set(named) - set(sites))
    if unknown:
        fail(argument, f"names of latent sites among {sorted(sites)}", f"{unknown}", "Check the spelling.")


@value_type(static=("bandwidth",))
class RBF:
    """``k(x, y) = exp(-||x - y||^2 / h)``, all sites in one group.

    ``bandwidth`` is ``h``, or "median": the median of ``||x_i - x_j||^2`` over pairs ``i < j`` divided by
    ``log(n + 1)``. No gradient flows through it.

    Examples
    --------
    >>> RBF().bandwidth, RBF(0.5).bandwidth
    ('median', 0.5)
    """

    bandwidth: float | str = MEDIAN

    def __post_init__(self) -> None:
        _check_bandwidth(self.bandwidth)

    def profile(self, squared: Array, h: Array) -> tuple[Array, Array, Array]:
        """``exp(-r/h)`` and its two derivatives in ``r``."""
        value = jnp.exp(-squared / h)
        return value, -value / h, value / h**2

    def blocks(self, sites: tuple[str, ...]) -> list[Block]:
        """All sites share one distance."""
        return [Block(sites, self)]


@value_type(static=("c", "power", "bandwidth"))
class IMQ:
    """``k(x, y) = (c^2 + ||x - y||^2 / h)^power`` with ``-1 < power < 0``, all sites in one group.

    Its tails are heavier than the RBF's: far particles still repel. ``bandwidth`` as in `RBF`.
    """

    c: float = 1.0
    power: float = -0.5
    bandwidth: float | str = MEDIAN

    def __post_init__(self) -> None:
        _check_bandwidth(self.bandwidth)
        if not (isinstance(self.c, (int, float)) and self.c > 0):
            fail("c", "a positive number", f"{self.c!r}", "1.0 is usual.")
        if not (isinstance(self.power, (int, float)) and -1 < self.power < 0):
            fail("power", "between -1 and 0", f"{self.power!r}", "-0.5 is usual.")

    def profile(self, squared: Array, h: Array) -> tuple[Array, Array, Array]:
        """``(c^2 + r/h)^p`` and its two derivatives in ``r``."""
        inner, p = self.c**2 + squared / h, self.power
        return inner**p, p / h * inner ** (p - 1), p * (p - 1) / h**2 * inner ** (p - 2)

    def blocks(self, sites: tuple[str, ...]) -> list[Block]:
        """All sites share one distance."""
        return [Block(sites, self)]


@value_type(static=("groups", "kernels", "rest"))
class Groups:
    """A distance and a bandwidth for each group of sites.

    Parameters
    ----------
    groups : sequence of site names, or of sequences of them
        Sites in no group form one more group together.
    kernels : RBF, IMQ, or one for each group
    rest : RBF or IMQ
        Kernel of the sites in no group.

    Examples
    --------
    >>> Groups([["lengthscale", "variance"]]).blocks(("f", "lengthscale", "variance"))[1].sites
    ('f',)
    """

    groups: Any
    kernels: Any = RBF()
    rest: Any = RBF()

    def __post_init__(self) -> None:
        if isinstance(self.groups, str) or not isinstance(self.groups, Sequence) or not self.groups:
            fail("groups", "a list of groups of site names", f"{self.groups!r}", 'E.g. [["lengthscale", "noise"]].')
        groups = tuple((group,) if isinstance(group, str) else tuple(group) for group in self.groups)
        names = [name for group in groups for name in group]
        if len(set(names)) != len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            fail("groups", "groups that share no site", f"{twice} in two of them", "Name each site once.")
        kernels = tuple(self.kernels) if isinstance(self.kernels, Sequence) else (self.kernels,) * len(groups)
        if len(kernels) != len(groups):
            fail("kernels", f"one for each of the {len(groups)} groups", f"{len(kernels)}", "Or pass one for all.")
        for kernel in (*kernels, self.rest):
            _check_radial("kernels", kernel)
        object.__setattr__(self, "groups", groups)
        object.__setattr__(self, "kernels", kernels)

    def blocks(self, sites: tuple[str, ...]) -> list[Block]:
        """The groups, and one more of the sites in none of them."""
        named = [name for group in self.groups for name in group]
        _check_known("groups", named, sites)
        blocks = [Block(group, kernel) for group, kernel in zip(self.groups, self.kernels, strict=True)]
        others = tuple(name for name in sites if name not in named)
        return [*blocks, Block(others, self.rest)] if others else blocks


@value_type(static=("kernels", "default"))
class PerSite:
    """A distance and a bandwidth for every site.

    Parameters
    ----------
    kernels : dict, optional
        Site name to `RBF` or `IMQ`.
    default : RBF or IMQ
        Kernel of the sites not named.

    Examples
    --------
    >>> [block.sites for block in PerSite({"noise": IMQ()}).blocks(("f", "noise"))]
    [('f',), ('noise',)]
    """

    kernels: Any = ()
    default: Any = RBF()

    def __post_init__(self) -> None:
        if not isinstance(self.kernels, (Mapping, tuple)):
            fail("kernels", "a dictionary of site names to kernels", f"{self.kernels!r:.60}", "{'noise': IMQ()}.")
        items = tuple(dict(self.kernels).items())
        for _, kernel in (*items, (None, self.default)):
            _check_radial("kernels", kernel)
        object.__setattr__(self, "kernels", items)

    def blocks(self, sites: tuple[str, ...]) -> list[Block]:
        """One block for each site."""
        kernels = dict(self.kernels)
        _check_known("kernels", kernels, sites)
        return [Block((name,), kernels.get(name, self.default)) for name in sites]


# ------------------------------------------------------------------------------ the direction


class Forces(NamedTuple):
    """The two parts of the direction, shaped like the particles: ``phi = attraction + repulsion``."""

    attraction: Any
    repulsion: Any


def svgd_direction(particles: Any, scores: Any, kernel: Kernel = RBF()) -> Any:  # noqa: B008
    """Direction ``phi`` that raises the target fastest in the kernel's space (math.md section 8).

    ``phi_i = (1/n) sum_j [ k(x_j, x_i) s_j + grad_{x_j} k(x_j, x_i) ]``; step *along* it. The second term
    pushes particles apart.

    Parameters
    ----------
    particles : array (n, ...) or dict of them
        Unconstrained coordinates, the particle axis first; the keys are the sites that a kernel groups.
    scores : like ``particles``
        ``grad log target`` at each.
    kernel : RBF, IMQ, PerSite or Groups

    Returns
    -------
    like ``particles``
        A particle with a coordinate or a score that is not finite is left out of every sum (the
        others move as though it were not there); its own direction is NaN at the faulty coordinates.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> x = jnp.array([[0.0], [1.0]])
    >>> phi = svgd_direction(x, -x, RBF(1.0))
    >>> print(bool(phi[0, 0] < 0), bool(phi[1, 0] > -0.5))
    True True
    """
    attraction, repulsion = forces(particles, scores, kernel)
    return jax.tree.map(jnp.add, attraction, repulsion)


def forces(particles: Any, scores: Any, kernel: Kernel = RBF()) -> Forces:  # noqa: B008
    """The attraction ``(1/n) K s`` and the repulsion, as `svgd_direction` adds them."""
    tables, values = split_blocks(particles, scores, kernel)
    healthy = jnp.all(jnp.stack([_finite_rows(x) & _finite_rows(s) for x, s, _ in tables]), axis=0)
    parts = [_block_forces(x, s, radial, healthy) for x, s, radial in tables]
    return Forces(values([a for a, _ in parts]), values([r for _, r in parts]))


def _block_forces(x: Array, score: Array, kernel: Radial, healthy: Array) -> tuple[Array, Array]:
    """Both forces on the particles ``(n, d)`` of one block."""
    count = jnp.sum(healthy).astype(x.dtype)
    # The forces do not depend on the origin; centred coordinates keep the difference below accurate.
    clean = jnp.where(healthy[:, None], x, 0)
    centred = jnp.where(healthy[:, None], x - jnp.sum(clean, axis=0, keepdims=True) / jnp.maximum(count, 1), 0)
    squared = squared_distances(centred)
    h = bandwidth(kernel, squared, healthy)
    value, slope, _ = kernel.profile(squared, h)
    weight = jnp.where(healthy[None, :] & healthy[:, None], value, 0) / count
    push = jnp.where(healthy[None, :] & healthy[:, None], -2 * slope, 0) / count
    attraction = jnp.matmul(weight, jnp.where(healthy[:, None], score, 0), precision=EXACT)
    repulsion = jnp.sum(push, axis=1, keepdims=True) * centred - jnp.matmul(push, centred, precision=EXACT)
    fault = jnp.where(jnp.isfinite(score) & jnp.isfinite(x), 0.0, jnp.nan).astype(x.dtype)
    return jnp.where(healthy[:, None], attraction, fault), jnp.where(healthy[:, None], repulsion, fault)


def squared_distances(x: Array) -> Array:
    """``||x_i - x_j||^2`` of ``(n, d)`` by differences: fused by the compiler, and exact for near particles."""
    return jnp.sum((x[:, None] - x[None]) ** 2, axis=-1)


def bandwidth(kernel: Radial, squared: Array, healthy: Array | None = None) -> Array:
    """The kernel's ``h``: its number, or the median rule of math.md section 8; 1 for a single particle.

    Where more than half of the pairs coincide the mean takes the median's place, and 1 where all
    do: any positive ``h`` is a valid kernel, zero is not.
    """
    one = jnp.ones((), squared.dtype)
    if kernel.bandwidth != MEDIAN:
        return one * kernel.bandwidth
    size = squared.shape[0]
    if size == 1:
        return one
    rows, columns = np.triu_indices(size, 1)
    healthy = jnp.ones(size, bool) if healthy is None else healthy
    valid = healthy[rows] & healthy[columns]
    pairs = jnp.where(valid, squared[rows, columns], jnp.nan)
    middle = jnp.nanmedian(pairs)
    average = jnp.sum(jnp.where(valid, pairs, 0)) / jnp.maximum(jnp.sum(valid), 1)
    h = jnp.where(middle > 0, middle, average) / jnp.log(jnp.sum(healthy) + one)
    return lax.stop_gradient(jnp.where(h > jnp.finfo(h.dtype).tiny, h, one))


def split_blocks(particles: Any, scores: Any, kernel: Kernel) -> tuple[list[tuple[Array, Array, Radial]], Any]:
    """Tables ``(n, d)`` of coordinates and scores for each block, and the function that undoes the division."""
    single = not isinstance(particles, Mapping)
    x = {"particles": particles} if single else dict(particles)
    s = {"particles": scores} if single else dict(scores)
    if not hasattr(kernel, "blocks") or isinstance(kernel, type):
        fail("kernel", "RBF, IMQ, PerSite or Groups", f"{kernel!r:.60}", "Call the class: RBF().", TypeError)
    if set(x) != set(s) or any(jnp.shape(x[name]) != jnp.shape(s[name]) for name in x):
        shapes = [{name: jnp.shape(leaf) for name, leaf in tree.items()} for tree in (x, s)]
        fail("scores", f"of the shapes of the particles, {shapes[0]}", f"{shapes[1]}", "One score a coordinate.")
    sizes = {name: jnp.shape(leaf)[:1] for name, leaf in x.items()}
    if len(set(sizes.values())) != 1 or () in sizes.values():
        fail("particles", "arrays with one common first axis", f"{sizes}", "Put the particle axis first.")
    blocks = kernel.blocks(tuple(x))

    def table(tree: Mapping[str, Array], names: tuple[str, ...]) -> Array:
        return jnp.concatenate([jnp.asarray(tree[name]).reshape(jnp.shape(tree[name])[0], -1) for name in names], 1)

    def join(parts: list[Array]) -> Any:
        found = {}
        for block, part in zip(blocks, parts, strict=True):
            widths = [math.prod(jnp.shape(x[name])[1:]) for name in block.sites]
            cut = jnp.split(part, np.cumsum(widths)[:-1], axis=1)
            for name, piece in zip(block.sites, cut, strict=True):
                found[name] = piece.reshape(jnp.shape(x[name])).astype(jnp.result_type(x[name]))
        return found["particles"] if single else {name: found[name] for name in x}

    return [(table(x, block.sites), table(s, block.sites), block.kernel) for block in blocks], join


def _finite_rows(x: Array) -> Array:
    return jnp.all(jnp.isfinite(x), axis=1)
