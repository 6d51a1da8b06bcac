"""How a process opens its site: the name and the plates that handlers give it, and who hears of it."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.primitives import Messenger

from numpyro_gp.arrays import Array, T, set_to
from numpyro_gp.beliefs.base import AbstractBelief, Point
from numpyro_gp.beliefs.basis import AbstractBasis
from numpyro_gp.beliefs.batch_basis import marked
from numpyro_gp.beliefs.masked import MaskedPrior
from numpyro_gp.checks import fail
from numpyro_gp.primitives.plates import Plates
from numpyro_gp.programs.private import Message
from numpyro_gp.sites import InducingPrior

AnyProcess = TypeVar("AnyProcess", bound=Any)
_recorded: ContextVar[dict[str, object] | None] = ContextVar("_recorded", default=None)
_predicting: ContextVar[bool] = ContextVar("_predicting", default=False)
_called: ContextVar[list[tuple[object, Array]] | None] = ContextVar("_called", default=None)


class _Found(Messenger):
    """Learns how the handlers around it leave a site: named ``a/f`` inside ``scope(prefix="a")``, in plates."""

    name, plates = "", Plates()

    def postprocess_message(self, msg: Message) -> None:
        if msg["type"] in ("sample", "deterministic"):  # the latter in the coordinates of `ngp.conditioned`
            self.name, self.plates = msg["name"], Plates.of(msg["cond_indep_stack"])
        if msg["type"] == "sample":
            # NumPyro's `init_to_median` samples the distribution of a site once more, and does not say what it is of.
            event = () if msg["infer"].get("numpyro_gp") == "gp" else msg["fn"].event_shape
            rows = event[-1] if event else None
            _check_members("mask", _mask_shape(msg["fn"]), rows, self)
            _check_members("scale", () if msg["scale"] is None else jnp.shape(msg["scale"]), rows, self)


def _mask_shape(fn: object) -> tuple[int, ...]:
    """Axes over which a mask lies, inside of the expansion that a plate makes too; none without a mask."""
    while not isinstance(fn, (dist.MaskedDistribution, MaskedPrior)):
        if not isinstance(fn, dist.ExpandedDistribution):
            return ()
        fn = fn.base_dist
    return fn.batch_shape


def _check_members(what: str, shape: tuple[int, ...], rows: int | None, found: _Found) -> None:
    """Refuse a mask or a scale of rows: a process is one event, and would count once for each of them.

    Axes on the left of the plates' are those of enumerated sites, unless there are as many entries as ``rows`` of data.
    """
    members = found.plates.batch or (1,)
    own, others = shape[-len(members) :], shape[: -len(members)]
    if rows in others or any(n not in (1, m) for n, m in zip(own[::-1], members[::-1])):
        has_plates = bool(found.plates.names)
        required = f"of the members of {found.plates}, {members}" if has_plates else "one number: it is one event"
        cure = f"Put handlers.{what} around ngp.observe alone; of gp_regression leave rows without data out."
        fail(f"the {what} over site {found.name!r}", required, f"shape {shape}", cure)


def check_name(argument: str, name: object) -> str:
    """Return a site name."""
    if not isinstance(name, str) or not name:
        fail(argument, "the name of a sample site", f"{name!r}", 'Pass a string, such as "f".', TypeError)
    return name


def open_site(name: str, fn: dist.Distribution, **options: object) -> tuple[str, Plates, Any]:
    """Sample a site; return its name in the whole model, the plates around it, and its value."""
    found = _Found()
    with found:
        value = numpyro.sample(check_name("name", name), fn, **options)
    return found.name, found.plates, value


def open_term(name: str, term: dist.Distribution, values: Array, of: str, plates: Plates) -> None:
    """A site that adds a term about the process ``of``: refused in plates other than its own, which would repeat it."""
    _, found, _ = open_site(name, term, obs=jnp.empty((*plates.batch, 0), values.dtype))
    if set(found.names) != set(plates.names):
        required = f"in the plates of {of!r}, {plates.names or 'none'}: it would count once for each member of others"
        fail(f"the site {name!r}", required, f"{found.names or 'none'}", f"Call it where {of!r} is opened.")


class Opened(NamedTuple):
    """A process and what it stands on: name of its site in the whole model, plates around it, value and basis."""

    name: str
    plates: Plates
    process: AbstractBelief | Point
    basis: AbstractBasis


def open_process(
    name: str, basis: AbstractBasis, shape: tuple[int, ...], level: Callable[[Plates], Array | None] | None = None
) -> Opened:
    """Sample the whitened inducing values of a basis, of ``shape`` for each member of the plates around.

    ``level`` is the mean function at the inducing inputs, with the axes of plates, for beliefs that read it.
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
    return Opened(site, plates, process, under)


def basis_under(value: AbstractBelief | Array, prior: Any, plates: Plates) -> AbstractBasis:
    """The basis that a value of a GP site stands on, with the mean function where the value reads it.

    A handler meets a belief before the site has it: what it draws there must be around the same mean function.
    """
    level_of = getattr(prior, "level_of", None)
    if level_of is not None and isinstance(value, AbstractBelief) and value.reads_basis:
        prior.level = level_of(plates)
    return prior.basis_of(value)


def record(process: AnyProcess) -> AnyProcess:
    """Add a process to those of `recorded_processes`, under the name of its site in the whole model."""
    if (recorded := _recorded.get()) is not None:
        recorded[process.name] = process
    return process


def recorded_processes() -> AbstractContextManager[dict[str, Any]]:
    """Collect the processes that a model opens inside the block, by the names of their sites."""
    return set_to(_recorded, {})


def predicting() -> AbstractContextManager[bool]:
    """Run a model for its predictions: variances are those of ``f``, without what a jitter leaves."""
    return set_to(_predicting, True)


def as_asked(basis: AbstractBasis, jitter: float | None) -> AbstractBasis:
    """The basis of a process, in predictions without what a jitter that nobody asked for leaves."""
    return marked(basis, is_exact=True) if jitter is None and _predicting.get() else basis


def record_call(process: object, inputs: Array) -> None:
    """Add a call of a process, and its inputs, to those of `recorded_calls`."""
    if (called := _called.get()) is not None:
        called.append((process, inputs))


def recorded_calls(called: list[T]) -> AbstractContextManager[list[T]]:
    """Append the calls of processes inside the block, in their order: the process and the inputs ``(..., N, D)``."""
    return set_to(_called, called)
