"""All that is relied on inside NumPyro and JAX: names that are private there, and which key draws what in a step.

``tests/programs/test_private.py`` says what each is expected to do and fails when a new version changes it;
``tests/test_architecture.py`` finds a private name anywhere else.
"""

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.contrib.einstein as einstein
from jax import random
from jax._src import xla_bridge
from jaxlib import lapack
from numpyro.distributions import TransformedDistribution
from numpyro.handlers import block, seed, substitute, trace
from numpyro.infer import RenyiELBO, elbo, util
from numpyro.infer.autoguide import AutoGuide, AutoGuideList
from numpyro.infer.util import _unconstrain_reparam
from numpyro.primitives import _PYRO_STACK

from numpyro_gp.arrays import Array
from numpyro_gp.programs.handler_lock import turn

# Positional arguments of a call, and those by keyword.
Args: TypeAlias = tuple[object, ...]
Kwargs: TypeAlias = dict[str, Any]
Message: TypeAlias = dict[str, Any]  # of one statement of a model, which handlers change on its way

# ---------------------------------------------------------------------------------------- keys of a step


def keys_of_elbo_particles(state: Any, loss: object) -> list[Array]:
    """The key of each particle of ``loss`` in the step that ``SVI.update`` takes from ``state``."""
    key, count = random.split(state.rng_key)[1], getattr(loss, "num_particles", 1)
    if isinstance(loss, RenyiELBO):  # its first key draws the minibatch of all particles
        return list(random.split(random.split(key)[1], count))
    return [key] if count == 1 else list(random.split(key, count))


def key_of_stein_step(state: Any) -> Array:
    """The key of the step that ``SteinVI.update`` and ``evaluate`` take from ``state``."""
    return random.split(state.rng_key, 3)[2]


def model_and_guide_keys(key: Array) -> tuple[Array, Array]:
    """The keys with which an ELBO seeds model and guide of one particle."""
    model_key, guide_key = random.split(key)
    return model_key, guide_key


def parts_of_loop(parameters: Mapping[str, Any]) -> tuple[int, int]:
    """How many of the first inputs of a ``scan`` are constants of its body, and how many behind them are carried."""
    if "num_consts" in parameters:
        return int(parameters["num_consts"]), int(parameters["num_carry"])
    constants, carried, _ = parameters["ft_in"].unpack()  # since JAX 0.12
    return len(constants), len(carried)


def factor_in_rows(matrix: Array) -> Array:
    """The lower factor of symmetric matrices ``(..., M, M)`` on a CPU, in rows as all arrays are; NaN where none is.

    JAX asks LAPACK for the lower factor in columns, which must be transposed. The upper one in columns is the same
    numbers as the lower one in rows. It has no derivative.
    """
    prepare: Callable[..., str] = lapack.prepare_lapack_call
    name = prepare("potrf_ffi", matrix.dtype)
    result = jax.ShapeDtypeStruct(matrix.shape, matrix.dtype), jax.ShapeDtypeStruct(matrix.shape[:-2], jnp.int32)
    call = jax.ffi.ffi_call(name, result, vmap_method="broadcast_all", input_output_aliases={0: 0})
    factor, failure = call(matrix, uplo=np.uint8(ord("U")))
    return jnp.tril(jnp.where((failure == 0)[..., None, None], factor, jnp.nan))


def arguments_of_run(mcmc: object) -> tuple[Args, Kwargs] | None:
    """The arguments of the model in the last run of an ``MCMC``; None before, and of one that was pickled."""
    args, kwargs = getattr(mcmc, "_args", None), getattr(mcmc, "_kwargs", None)
    return None if args is None or kwargs is None else (args, kwargs)


def xla_has_started() -> bool:
    """Whether JAX has made a backend, for which XLA reads its flags."""
    return bool(xla_bridge.backends_are_initialized())


# ------------------------------------------------------------------------------- handlers, plates and masks


def active_handlers() -> list[object]:
    """The handlers that stand around whatever runs now, the outermost first."""
    return _PYRO_STACK


def is_density_asked() -> bool:
    """Whether a model runs for its log density at unconstrained values."""
    asked = [getattr(one, "substitute_fn", None) for one in active_handlers() if isinstance(one, substitute)]
    return any(getattr(function, "func", None) is _unconstrain_reparam for function in asked)


def is_run_by_renyi() -> bool:
    """Whether `RenyiELBO` evaluates what runs now: it alone seeds the minibatch of all its particles apart."""
    hidden = {"sample", "prng_key", "control_flow"}
    return any(isinstance(handler, seed) and set(handler.hide_types) == hidden for handler in active_handlers())


def has_values() -> bool:
    """Whether what runs now is given values by name, as an ELBO gives a guide its parameters: it starts no fit."""
    return any(isinstance(one, substitute) and (one.data or one.substitute_fn) for one in active_handlers())


def list_in_order(names: Iterable[str]) -> None:
    """Put sites of the guide into the order of the model in every trace being made: TraceMeanField_ELBO compares them.

    They are sampled in another order, because an autoguide samples all of its own sites at once.
    """
    ordered = list(names)
    for handler in active_handlers():
        if isinstance(handler, trace):
            for name in ordered:
                if name in handler.trace:
                    handler.trace.move_to_end(name)


class _Ordered(set[Any]):
    """A set whose members come in the order of their names."""

    def __iter__(self) -> Iterator[Any]:
        return iter(sorted(super().__iter__(), key=str))

    def union(self, *others: Iterable[object]) -> "_Ordered":
        return _Ordered(set(self).union(*others))  # NumPyro calls it as a function, of plain sets too


@contextmanager
def _in_place(module: Any, name: str, value: object, of_python: object = None) -> Iterator[None]:
    """Another value of a name in a module, while this thread has its turn; ``of_python`` is what Python has there."""
    with turn:
        before = getattr(module, name, of_python)
        setattr(module, name, value)
        try:
            yield
        finally:
            setattr(module, name, before)


def sites_in_order() -> AbstractContextManager[None]:
    """NumPyro's bounds add the densities of sites in the order of a set of names, another one in every process.

    So two processes would sum to other last bits, and compile programs that are not the same text: JAX's cache on
    disk would never find the loop of a fit. In here the sets of that module are gone through in order.
    """
    return _in_place(elbo, "set", _Ordered, set)


def one_try() -> AbstractContextManager[None]:
    """NumPyro's search for a start ends after one try in this block, which has no loop then, and no draws inside of it.

    What it finds is what its loop would, where the first start is a good one.
    """
    # The first part of its state counts tries.
    return _in_place(util, "while_loop", lambda _, step, state: state if state[0] else step(state))


def set_plates(guide: AutoGuide, frames: Mapping[str, object], full_sizes: Mapping[str, int]) -> None:
    """Tell an autoguide the plates of its model: frames by name, and their sizes without minibatches."""
    guide._prototype_frames, guide._prototype_frame_full_sizes = frames, full_sizes


def make_plates(guide: AutoGuide, args: Args, kwargs: Kwargs) -> dict[str, Any]:
    """The plates of one call of an autoguide, by name: those of its ``create_plates``, and those it was told."""
    return guide._create_plates(*args, **kwargs)


@contextmanager
def shared_plates(guide: AutoGuide, plates: Mapping[str, object]) -> Iterator[None]:
    """An autoguide that stands in these plates, by name, and makes none of its own.

    Its ``create_plates`` would not do: what it gives must be of NumPyro's class of plates, and `TraceEnum_ELBO`
    has plates of funsor's class made instead.
    """
    guide._create_plates = lambda *args, **kwargs: dict(plates)  # noqa: ARG005
    try:
        yield
    finally:
        del guide._create_plates


def unused(guide: AutoGuide) -> AutoGuide:
    """A copy of an autoguide that has not seen its model, parts of a list too.

    A shallow copy: a deep one would copy what the model holds, and a compiled function cannot copy a key.
    """
    fresh = copy.copy(guide)
    fresh.prototype_trace = None
    set_plates(fresh, {}, {})
    if isinstance(fresh, AutoGuideList):
        fresh._guides = [unused(part) if isinstance(part, AutoGuide) else part for part in guide._guides]
    return fresh


def starts_well(guide: AutoGuide) -> Array:
    """Whether the log density that an autoguide was set up with, and its gradient, are finite where it starts."""
    start = dict(guide._init_locs)
    for name, loc in start.items():  # repeated to the size of whole plates, where the log density is of a minibatch
        site = guide.prototype_trace[name]
        for frame in site["cond_indep_stack"]:
            axis = jnp.ndim(loc) + frame.dim - site["fn"].event_dim
            loc = jnp.take(loc, jnp.arange(frame.size), axis=axis)
        start[name] = loc
    with block():
        value, slope = jax.value_and_grad(guide._potential_fn)(start)
    finite = [jnp.all(jnp.isfinite(leaf)) for leaf in (value, *jax.tree.leaves(slope))]
    return jnp.all(jnp.stack(finite))


def is_validated(fn: object) -> bool:
    """Whether NumPyro is to check the parameters and values of a distribution."""
    return bool(getattr(fn, "_validate_args", False))


def mask_of(fn: object) -> Any:
    """The mask that ``handlers.mask`` or ``Distribution.mask`` left on a distribution; True where there is none.

    One inside of a transformed distribution does not hide the density of the transform.
    """
    while hasattr(fn, "base_dist") and not isinstance(fn, TransformedDistribution):
        if hasattr(fn, "_mask"):
            return fn._mask
        fn = fn.base_dist
    return True


# ---------------------------------------------------------------------------------------- Stein engines


def declared_parameters(guide: AutoGuide, key: Array, args: Args, kwargs: Kwargs) -> dict[str, Any]:
    """The ``param`` sites that a guide declares when it first sees its model; the guide itself stays as it was."""
    sites = trace(seed(unused(guide), key)).get_trace(*args, **kwargs)
    return {name: site for name, site in sites.items() if site["type"] == "param"}


class SteinHooks(einstein.SVGD):
    """NumPyro's SVGD, with the private method that it starts with and that `ngp.stein.SVGD` fills."""

    @abstractmethod
    def start_particles(self, key: Array, guide: AutoGuide, args: Args, kwargs: Kwargs) -> dict[str, Array]:
        """Constrained parameters of a guide that has seen no data, with the particle axis first."""

    def _find_init_params(
        self, particle_seed: Array, inner_guide: AutoGuide, model_args: Args, model_kwargs: Kwargs
    ) -> dict[str, Array]:
        return self.start_particles(particle_seed, inner_guide, model_args, {**model_kwargs, **self.static_kwargs})
