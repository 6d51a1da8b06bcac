"""How a process opens its site: the name and the plates that handlers give it, and who hears of it."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.primitives import Messenger

from numpyro_gp.arrays import Array, T, set_to
from numpyro_gp.beliefs.base import AbstractBelief, MaskedPrior, Point
from numpyro_gp.beliefs.basis import AbstractBasis, marked
from numpyro_gp.checks import fail
from numpyro_gp.programs.private import Message
from numpyro_gp.sites import InducingPrior

# --------------------------------------------------------------------------------------
# The plates around a process: where the axes of their members stand in its value, its inputs and what it returns.


class Plates(NamedTuple):
    """The plates around a site: names, axes (counted from the right) and the batch shape that they give it.

    Rows of data have an axis of their own, the last of what the process returns. It takes the place of the last axis
    of the site where no plate has that, and comes on its right otherwise: in ``plate("group", G, dim=-2)`` and in
    ``plate("group", G)`` alike ``f(X)`` is ``(G, N)``.
    """

    names: tuple[str, ...] = ()
    dims: tuple[int, ...] = ()
    batch: tuple[int, ...] = ()

    @classmethod
    def of(cls, frames: Sequence[Any]) -> "Plates":
        """Those of NumPyro's frames around a site."""
        ordered = sorted(frames, key=lambda frame: frame.dim)
        batch = [1] * max((-frame.dim for frame in ordered), default=0)
        for frame in ordered:
            batch[frame.dim] = frame.size
        return cls(tuple(frame.name for frame in ordered), tuple(frame.dim for frame in ordered), tuple(batch))

    @property
    def lead(self) -> tuple[int, ...]:
        """Axes on the left of the rows in what the process returns."""
        return self.batch if -1 in self.dims else self.batch[:-1]

    @property
    def axes(self) -> tuple[int, ...]:
        """Where the plates stand in ``lead``, from the right."""
        return self.dims if -1 in self.dims else tuple(dim + 1 for dim in self.dims)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Members of each plate."""
        return tuple(self.batch[dim] for dim in self.dims)

    def layout(self, argument: str, shape: tuple[int, ...]) -> "PlateLayout":
        """How the axes ``(..., N)`` of inputs, without their columns, stand to those of the plates."""
        left = shape[:-1]
        shared = [axis for axis in self.axes if -axis > len(left) or left[axis] == 1]
        if any(left[axis] != self.lead[axis] for axis in self.axes if axis not in shared):
            wanted = ", ".join(map(str, self.lead))
            required = f"of shape (N, D), rows that all members share, or ({wanted}, N, D), rows of each"
            cure = f"Put the axes of {self} on their left."
            fail(argument, required, f"shape ({', '.join(map(str, shape))}, D)", cure)
        whole = np.broadcast_shapes(left, self.lead)
        of_plates = [len(whole) + axis for axis in self.axes]
        others = [axis for axis in range(len(whole)) if axis not in of_plates]
        return PlateLayout(self, whole, of_plates, others, len(shared) < len(self.axes))

    def __str__(self) -> str:
        named = ", ".join(f"{name!r} of {size}" for name, size in zip(self.names, self.sizes, strict=True))
        return f"plate{'s' * (len(self.names) > 1)} {named}" if named else "no plate"


class PlateLayout(NamedTuple):
    """Inputs and plates together.

    Attributes
    ----------
    plates : Plates
    shape : tuple of int
        Axes on the left of the rows in what the process returns.
    of_plates, others : list of int
        Axes of ``shape`` that are of plates, and the others, which have R sets of rows together.
    is_own : bool
        Whether members have inputs of their own.
    """

    plates: Plates
    shape: tuple[int, ...]
    of_plates: list[int]
    others: list[int]
    is_own: bool

    def rows(self, inputs: Array) -> Array:
        """Inputs ``(..., N, D)`` as ``(R, N, D)``, or ``(*batch, R, N, D)`` where members have their own."""
        return self.members(inputs, 2) if self.is_own else inputs.reshape(-1, *inputs.shape[-2:])

    def members(self, values: Array, tail: int) -> Array:
        """An array ``(..., *tail)``, ``tail`` being a number of axes, as ``(*batch, R, *tail)``."""
        rank = len(self.shape)
        aligned = values.reshape((1,) * (rank + tail - values.ndim) + values.shape)
        target = [self.shape[axis] if axis in self.of_plates else size for axis, size in enumerate(aligned.shape)]
        order = (*self.of_plates, *self.others, *range(rank, aligned.ndim))
        moved = jnp.transpose(jnp.broadcast_to(aligned, target), order)
        return moved.reshape(*self.plates.batch, -1, *moved.shape[rank:])

    def whole(self, values: Array) -> Array:
        """An array ``(*batch, R, *tail)`` as ``(*shape, *tail)``: the way back."""
        tail = values.shape[len(self.plates.batch) + 1 :]
        apart = values.reshape(*self.plates.sizes, *(self.shape[axis] for axis in self.others), *tail)
        order = np.argsort([*self.of_plates, *self.others])
        return jnp.transpose(apart, (*order, *range(len(order), apart.ndim))).reshape(*self.shape, *tail)

    @property
    def sets(self) -> int:
        """Number R of sets of rows."""
        return math.prod(self.shape[axis] for axis in self.others)


Opened = TypeVar("Opened", bound=Any)
_recorded: ContextVar[dict[str, object] | None] = ContextVar("_recorded", default=None)
# A model that runs for its predictions: variances are those of ``f``, without what a jitter leaves.
PREDICTING: ContextVar[bool] = ContextVar("PREDICTING", default=False)
_called: ContextVar[list[tuple[object, Array]] | None] = ContextVar("_called", default=None)


class _Around(Messenger):
    """Learns how the handlers around it leave a site: named ``a/f`` inside ``scope(prefix="a")``, in plates.

    A mask or a scale of rows is refused: a process is one event, and would count once for each of them. Axes on the
    left of the plates' are those of enumerated sites, unless there are as many entries as rows of data.
    """

    name, plates = "", Plates()

    def postprocess_message(self, msg: Message) -> None:
        if msg["type"] in ("sample", "deterministic"):  # the latter in the coordinates of `ngp.conditioned`
            self.name, self.plates = msg["name"], Plates.of(msg["cond_indep_stack"])
        if msg["type"] != "sample":
            return
        # NumPyro's `init_to_median` samples the distribution of a site once more, and does not say what it is of.
        rows = None if msg["infer"].get("numpyro_gp") == "gp" else msg["fn"].event_shape[-1:]
        fn, members = msg["fn"], self.plates.batch or (1,)
        while isinstance(fn, dist.ExpandedDistribution):  # as a plate makes it around a mask too
            fn = fn.base_dist
        mask = fn.batch_shape if isinstance(fn, (dist.MaskedDistribution, MaskedPrior)) else ()
        for what, shape in (("mask", mask), ("scale", jnp.shape(0 if msg["scale"] is None else msg["scale"]))):
            axes, others = shape[-len(members) :], shape[: -len(members)]
            if (rows and rows[0] in others) or any(n not in (1, m) for n, m in zip(axes[::-1], members[::-1])):
                required = "one number: it is one event"
                if self.plates.names:
                    required = f"of the members of {self.plates}, {members}"
                cure = f"Put handlers.{what} around ngp.observe alone; of gp_regression leave rows without data out."
                fail(f"the {what} over site {self.name!r}", required, f"shape {shape}", cure)


def check_name(argument: str, name: object) -> str:
    """Return a site name."""
    if not isinstance(name, str) or not name:
        fail(argument, "the name of a sample site", f"{name!r}", 'Pass a string, such as "f".', TypeError)
    return name


def open_site(name: str, fn: dist.Distribution, **options: object) -> tuple[str, Plates, Any]:
    """Sample a site; return its name in the whole model, the plates around it, and its value."""
    around = _Around()
    with around:
        value = numpyro.sample(check_name("name", name), fn, **options)
    return around.name, around.plates, value


def open_term(name: str, term: dist.Distribution, values: Array, of: str, plates: Plates) -> None:
    """A site that adds a term about the process ``of``: refused in plates other than its own, which would repeat it."""
    _, around, _ = open_site(name, term, obs=jnp.empty((*plates.batch, 0), values.dtype))
    if set(around.names) != set(plates.names):
        required = f"in the plates of {of!r}, {plates.names or 'none'}: it would count once for each member of others"
        fail(f"the site {name!r}", required, f"{around.names or 'none'}", f"Call it where {of!r} is opened.")


def open_process(
    name: str, basis: AbstractBasis, shape: tuple[int, ...], level: Callable[[Plates], Array | None] | None = None
) -> tuple[str, Plates, AbstractBelief | Point, AbstractBasis]:
    """Sample the whitened inducing values of a basis, of ``shape`` for each member of the plates around.

    Returns the name of the site in the whole model, the plates around it, its process and the basis of that. ``level``
    is the mean function at the inducing inputs, with the axes of plates, for beliefs that read it.
    """
    prior = InducingPrior(check_name("name", name), basis, shape)
    prior.level_of = level
    site, plates, value = open_site(name, prior, infer={"numpyro_gp": "gp"})
    under = basis_under(value, prior, plates)
    process = prior.process(value)
    if jnp.shape(value) != plates.batch + shape:
        required = f"over whitened values of shape {plates.batch + shape}, those of {plates} on the left"
        kind = "belief" if isinstance(process, AbstractBelief) else "value"
        cure = "Give every array but the inputs Z_... the axes of the plates."
        fail(f"the {kind} at site {name!r}", required, f"shape {jnp.shape(value)}", cure)
    return site, plates, process, under


def basis_under(value: AbstractBelief | Array, prior: Any, plates: Plates) -> AbstractBasis:
    """The basis that a value of a GP site stands on, with the mean function where the value reads it.

    A handler meets a belief before the site has it: what it draws there must be around the same mean function.
    """
    level_of = getattr(prior, "level_of", None)
    if level_of is not None and isinstance(value, AbstractBelief) and value.reads_basis:
        prior.level = level_of(plates)
    return prior.basis_of(value)


def record(process: Opened) -> Opened:
    """Add a process to those of `recorded_processes`, under the name of its site in the whole model."""
    if (recorded := _recorded.get()) is not None:
        recorded[process.name] = process
    return process


def recorded_processes() -> AbstractContextManager[dict[str, Any]]:
    """Collect the processes that a model opens inside the block, by the names of their sites."""
    return set_to(_recorded, {})


def as_asked(basis: AbstractBasis, jitter: float | None) -> AbstractBasis:
    """The basis of a process, in predictions without what a jitter that nobody asked for leaves."""
    return marked(basis, is_exact=True) if jitter is None and PREDICTING.get() else basis


def record_call(process: object, inputs: Array) -> None:
    """Add a call of a process, and its inputs, to those of `recorded_calls`."""
    if (called := _called.get()) is not None:
        called.append((process, inputs))


def recorded_calls(called: list[T]) -> AbstractContextManager[list[T]]:
    """Append the calls of processes inside the block, in their order: the process and the inputs ``(..., N, D)``."""
    return set_to(_called, called)
