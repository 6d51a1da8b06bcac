"""Kernels between particles (mathematics.md section 9.2).

A kernel splits the sites into groups and gives each group a radial kernel ``g(||x - y||^2)`` of that
group's coordinates alone: a block-diagonal matrix kernel. One group of everything is the kernel of
the papers; with thousands of whitened values in a particle its distance says nothing about a
hyper-parameter, and groups of their own keep the hyper-parameters apart. Within a group of many
coordinates few particles collapse; a kernel for each coordinate keeps them apart there.

The price of a division: a block's force sees the other blocks through the scores alone. Particles in
blocks can rest where each block matches its score averaged over the others, ``E[s_b | x_b] = grad log q(x_b)``:
the condition of mean-field inference. Between blocks that are strongly correlated the
spread then comes out too narrow, however many the particles.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, cast

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array, Converted, store, value_type
from numpyro_gp.checks import fail, known

MEDIAN = "median"


class Radial(ABC):
    """A kernel ``g(r)`` of the squared distance ``r`` within one group of sites, or of each coordinate alone.

    Attributes
    ----------
    bandwidth : float or str
        ``h``, or the rule that finds it.
    per_coordinate : bool
        Whether each coordinate has a distance of its own.
    """

    bandwidth: float | str
    per_coordinate: bool

    def __post_init__(self) -> None:
        if not isinstance(self.bandwidth, str) or self.bandwidth != MEDIAN:
            cure = "Pass a positive number, which divides the *squared* distance, or leave it out."
            required = '"median" or a positive number'
            store(self, bandwidth=_number("bandwidth", self.bandwidth, 0, math.inf, required, cure))

    @abstractmethod
    def profile(self, squared: Array, h: Array) -> tuple[Array, Array, Array]:
        """``g``, ``g'`` and ``g''`` at squared distances, for bandwidth ``h``."""

    def blocks(self, sites: tuple[str, ...]) -> list["Block"]:
        """All sites share one distance."""
        return [Block(sites, self)]


class Block(NamedTuple):
    """Sites that share a distance, and the kernel of that distance."""

    sites: tuple[str, ...]
    kernel: Radial


class ParticleKernel(Protocol):
    """What `SVGD` and `svgd_direction` take: a division of the sites into blocks."""

    def blocks(self, sites: tuple[str, ...]) -> list[Block]:
        """One block for each group of these sites; every site lies in exactly one."""


def _number(argument: str, value: object, low: float, high: float, required: str, cure: str) -> float:
    """Return a number between two limits; a known array of no axes as its number, which programs take for fixed."""
    number = value
    if isinstance(value, (jax.Array, np.ndarray, np.generic)) and value.ndim == 0 and value.dtype.kind in "iuf":
        number = value if known(value) is None else value.item()
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not low < number < high:
        fail(argument, required, f"{value!r:.60}", cure)
    return number


def check_kernel(argument: str, kernel: object, method: str, required: str, cure: str) -> None:
    """Refuse what divides no sites ("blocks"), or is no kernel of a distance ("profile"): a class, above all."""
    if isinstance(kernel, type) or not hasattr(kernel, method):
        fail(argument, required, f"{kernel!r:.60}", cure, TypeError)


def _check_radial(argument: str, kernel: object) -> None:
    check_kernel(argument, kernel, "profile", "RBF or IMQ", "Call the class: RBF(). Do not nest site groups.")


def _check_known(argument: str, named: Iterable[str], sites: tuple[str, ...]) -> None:
    if unknown := sorted(set(named) - set(sites)):
        fail(argument, f"names of latent sites among {sorted(sites)}", f"{unknown}", "Check the spelling.")


@value_type(static=("bandwidth", "per_coordinate"))
class RBF(Radial):
    """The usual kernel between particles: ``k(x, y) = exp(-||x - y||^2 / h)``, all sites in one group.

    Parameters
    ----------
    bandwidth : float or "median"
        ``h``; "median" is the median of ``||x_i - x_j||^2`` over pairs ``i < j`` divided by ``log(n + 1)``. No
        gradient flows through it.
    per_coordinate : bool
        A kernel ``exp(-(x_d - y_d)^2 / h_d)`` for each coordinate ``d`` alone, with its own ``h_d``. With one distance
        over many coordinates the kernel between any two particles is about ``1 / (n + 1)``, the repulsion falls as
        ``1/d``, and particles much fewer than coordinates collapse; one coordinate at a time they do not. So take it
        for hundreds of whitened values. Its price is that of mean-field inference: the force on a coordinate sees the
        others only through the scores, so with strong correlations, and particles enough, one distance is nearer.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> ngp.stein.RBF().bandwidth, ngp.stein.RBF(0.5).bandwidth
    ('median', 0.5)
    """

    bandwidth: float | str = MEDIAN
    per_coordinate: bool = False

    def profile(self, squared: Array, h: Array) -> tuple[Array, Array, Array]:
        """``exp(-r/h)`` and its two derivatives in ``r``."""
        value = jnp.exp(-squared / h)
        return value, -value / h, value / h**2


@value_type(static=("c", "power", "bandwidth", "per_coordinate"))
class IMQ(Radial):
    """Particles that repel each other from afar: ``k(x, y) = (c^2 + ||x - y||^2 / h)^power``, all sites in one group.

    Its tails are heavier than those of `RBF`.

    Parameters
    ----------
    c : float
        Positive.
    power : float
        Between -1 and 0.
    bandwidth, per_coordinate
        As in `RBF`.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> x = jnp.array([[0.0], [1.0]])
    >>> ngp.stein.svgd_direction(x, -x, ngp.stein.IMQ(bandwidth=1.0)).shape
    (2, 1)
    """

    c: float = 1.0
    power: float = -0.5
    bandwidth: float | str = MEDIAN
    per_coordinate: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        c = _number("c", self.c, 0, math.inf, "a positive number", "Pass 1.0.")
        store(self, c=c, power=_number("power", self.power, -1, 0, "between -1 and 0", "Pass power=-0.5."))

    def profile(self, squared: Array, h: Array) -> tuple[Array, Array, Array]:
        """``(c^2 + r/h)^p`` and its two derivatives in ``r``."""
        inner, p = self.c**2 + squared / h, self.power
        return inner**p, p / h * inner ** (p - 1), p * (p - 1) / h**2 * inner ** (p - 2)


@value_type(static=("kernel", "weight"))
class Moments:
    """Particles with the right mean and covariance: a kernel plus the linear ``weight (1 + (x - m).(y - m) / v)``.

    Here ``m`` is the particles' mean and ``v`` their variance averaged over coordinates; no gradient through either.

    The linear part adds one affine map of all particles. It is at its fixed point where ``mean s = 0`` and
    ``mean s (x - m)^T = -I``: identities that hold for the target, and that give a normal target its exact mean and
    covariance once there are more particles than coordinates. The kernel alone understates them; it keeps the particles
    of such a set apart and gives them the shape. Take it with a ``metric``, in whose coordinates the two parts have one
    scale. Far from its fixed point it overshoots: for a normal target an optimiser that forgets the first, large forces
    (``optax.adam(rate, b2=0.9)``) settles.

    Parameters
    ----------
    kernel : RBF, IMQ, PerSite or Groups
    weight : float
        Positive: the larger, the closer the two identities hold.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> ngp.stein.Moments().kernel == ngp.stein.IMQ()
    True
    """

    kernel: ParticleKernel = IMQ()
    weight: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.kernel, (type, Moments)) or not hasattr(self.kernel, "blocks"):
            got, cure = f"{self.kernel!r:.60}", "Call the class: IMQ()."
            fail("kernel", "RBF, IMQ, PerSite or Groups", got, cure, TypeError)
        store(self, weight=_number("weight", self.weight, 0, math.inf, "a positive number", "Pass 1.0."))

    def blocks(self, sites: tuple[str, ...]) -> list[Block]:
        """Those of the kernel; the linear part knows no division."""
        return self.kernel.blocks(sites)


@value_type(static=("groups", "kernels", "rest"))
class Groups:
    """A distance and a bandwidth for each group of sites: strongly correlated sites belong in one.

    Sites that are strongly correlated belong in one group: across groups the spread is that of mean field.

    Parameters
    ----------
    groups : sequence of site names, or of sequences of them
        Sites in no group form one more group together.
    kernels : RBF, IMQ, or one for each group
    rest : RBF or IMQ
        Kernel of the sites in no group.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> kernel = ngp.stein.Groups([["lengthscale", "variance"]])
    >>> [block.sites for block in kernel.blocks(("f", "lengthscale", "variance"))]
    [('lengthscale', 'variance'), ('f',)]
    """

    groups: Converted[tuple[tuple[str, ...], ...], Sequence[str | Sequence[str]]]
    kernels: Converted[tuple[Radial, ...], Radial | Sequence[Radial]] = cast("Any", RBF())
    rest: Radial = RBF()

    def __post_init__(self) -> None:
        groups = tuple((group,) if isinstance(group, str) else tuple(group) for group in self.groups)
        names = [name for group in groups for name in group]
        if not all(groups):
            fail("groups", "groups of at least one site", f"{self.groups!r}", "Leave the empty group out.")
        if len(set(names)) != len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            fail("groups", "groups that share no site", f"{twice} in two of them", "Name each site in one group only.")
        kernels = tuple(self.kernels) if isinstance(self.kernels, Sequence) else (self.kernels,) * len(groups)
        if len(kernels) != len(groups):
            cure = "Pass as many, or one for all."
            fail("kernels", f"one for each of the {len(groups)} groups", f"{len(kernels)}", cure)
        for kernel in kernels:
            _check_radial("kernels", kernel)
        _check_radial("rest", self.rest)
        store(self, groups=groups, kernels=kernels)

    def blocks(self, sites: tuple[str, ...]) -> list[Block]:
        """The groups, and one more of the sites in none of them."""
        named = [name for group in self.groups for name in group]
        _check_known("groups", named, sites)
        blocks = [Block(group, kernel) for group, kernel in zip(self.groups, self.kernels, strict=True)]
        others = tuple(name for name in sites if name not in named)
        return [*blocks, Block(others, self.rest)] if others else blocks


@value_type(static=("kernels", "default"))
class PerSite:
    """A distance and a bandwidth for every site: right for sites that are nearly independent.

    Correlated ones come out too narrow, as under mean field. It is for models of many small sites, over all of which
    one distance is so large that particles do not see each other.

    Parameters
    ----------
    kernels : dict, optional
        Site name to `RBF` or `IMQ`.
    default : RBF or IMQ
        Kernel of the sites not named.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> [block.sites for block in ngp.stein.PerSite({"noise": ngp.stein.IMQ()}).blocks(("f", "noise"))]
    [('f',), ('noise',)]
    """

    kernels: Converted[tuple[tuple[str, Radial], ...], Mapping[str, Radial] | tuple[()]] = cast("Any", ())
    default: Radial = RBF()

    def __post_init__(self) -> None:
        items = tuple(dict(self.kernels).items())
        for _, kernel in items:
            _check_radial("kernels", kernel)
        _check_radial("default", self.default)
        store(self, kernels=items)

    def blocks(self, sites: tuple[str, ...]) -> list[Block]:
        """One block for each site."""
        kernels = dict(self.kernels)
        _check_known("kernels", kernels, sites)
        return [Block((name,), kernels.get(name, self.default)) for name in sites]
