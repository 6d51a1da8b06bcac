"""The compiled loop of a fit: one program for chunks of any length.

The steps run in a ``while`` loop whose *length is an argument*: long chunks, the short last one and the re-run up to
the last good step are all the same program, so a resumed or repeated run gives the same bits, and nothing compiles
twice. How much a compiler optimises it depends on the size of its arrays and on the steps that are asked for in all,
which a run that was interrupted asks for again.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Jaxpr
from numpyro import handlers
from numpyro.contrib.einstein import ASVGD, SteinVI
from numpyro.infer import SVI

from numpyro_gp.arrays import Array, split_arrays
from numpyro_gp.checks import fail, is_known
from numpyro_gp.guides.fit_registry import FitRecord, arrays_of, inducing_at_start
from numpyro_gp.neighbours.value import Neighbours, are_neighbours, neighbours_in
from numpyro_gp.primitives.neighbours.local_process import shortest
from numpyro_gp.primitives.opening import recorded_processes
from numpyro_gp.programs.compiled import kept, run_quickly
from numpyro_gp.programs.private import sites_in_order
from numpyro_gp.programs.scheduler import compiler_options
from numpyro_gp.programs.trace import as_function, aval_of, bytes_of, is_traced, size_of, traced
from numpyro_gp.rows.devices import Placement
from numpyro_gp.rows.feeds import Feed
from numpyro_gp.rows.model_trace import without_whole_gathers
from numpyro_gp.training.checkpoints import FitResult, Position, SetUp, write_checkpoint
from numpyro_gp.training.faults import FEWEST_STEPS, all_finite, explain, traits_of
from numpyro_gp.training.first_state import REMEDY

# A step with no array of more numbers than this (200 rows by 50 inducing inputs) is optimised less, in half the time.
# Where that makes it slower, 20 000 steps or more lose the one or two seconds saved: longer fits get all of it.
SMALL, FEW = 10_000, 10_000


def loop_of(engine: object, feed: Feed, state: object, size: int, watch: bool, steps: int) -> Callable[..., tuple]:
    """``(state, length, arrays) -> (count, state, losses, healthy)``: up to ``length`` steps, fewer at a failure.

    The program of one step is its key: the loop is compiled once for all engines whose steps compute the same.
    ``watch``: stop as well at parameters that stop being finite. ``steps``: those of the whole fit.
    """

    def step(state: object, arrays: list[Array]) -> tuple[Any, Array, Array]:
        with sites_in_order(), feed.opened(arrays) as (args, kwargs):
            state, loss = engine.update(state, *args, **kwargs)
        if not (hasattr(loss, "shape") and loss.shape == () and jnp.issubdtype(loss.dtype, jnp.floating)):
            fail("the loss of update", "one real number", f"{loss!r:.80}", "Sum it over sites and data.", TypeError)
        healthy = jnp.isfinite(loss)
        return state, loss, healthy & all_finite(engine.get_params(state)) if watch else healthy

    found = traced(step if feed.placement is None else without_whole_gathers(step), state, feed.arrays())
    leaves, structure = jax.tree.flatten(state)
    if found.structure != jax.tree.structure((state, 0, 0)):
        got = f"{found.structure.children()[0]}"
        fail("the state of update", f"of the structure of the state of init, {structure}", got, "Return all of it.")
    count = len(found.constants)
    effort = 1 if steps <= FEW and size_of(found.program) <= SMALL else None
    extra = ("loop", size, count, len(leaves), feed.placement, effort)
    run = kept(found.program, extra, lambda: compiled_loop(found.program, size, feed.placement, effort))

    def advance(state: object, length: int, arrays: list[Array]) -> tuple:
        done, after, losses, healthy = run(found.constants, jax.tree.leaves(state), length, arrays)
        return done, jax.tree.unflatten(structure, after), losses, healthy

    return advance


def compiled_loop(
    program: Jaxpr, size: int, placement: Placement | None, effort: int | None = None
) -> Callable[..., tuple]:
    """The loop over a step that takes constants, a state and arrays, and returns a state, its loss and its health.

    The caller keeps the state it passes in (it is not donated), because a failure is answered by
    running again from there.
    """
    step, loss_type = as_function(program), aval_of(program.outvars[-2]).dtype

    def advance(constants: list[Array], state: list[Array], length: int, arrays: list[Array]) -> tuple:
        def body(carry: tuple) -> tuple:
            count, state, losses, _ = carry
            *state, loss, healthy = step(*constants, *state, *arrays)
            return count + 1, state if placement is None else placement.held(state), losses.at[count].set(loss), healthy

        start = (jnp.asarray(0), state, jnp.zeros(size, loss_type), jnp.asarray(True))
        return lax.while_loop(lambda carry: (carry[0] < length) & carry[3], body, start)

    alone = jax.jit(advance, compiler_options=compiler_options(effort, largest=bytes_of(program)))

    def run(constants: list[Array], state: list[Array], length: int, arrays: list[Array]) -> tuple:
        """Options are of a whole program: a loop that is a part of another, which is traced, has none."""
        found: tuple = (advance if is_traced() else alone)(constants, state, length, arrays)
        return found

    return run


# --------------------------------------------------------------------------------------
# Neighbours found anew while a fit runs: in the lengthscales that it has come to.
#
# They are arguments of the model, of the same shapes, so that no program compiles again. What a process is to say of
# itself is its ``units()``: the neighbours that it stands on, and lengthscales for them; and whether it `is_point`.


# Shares of the steps after which neighbours are found anew.
REFRESH_SHARES = (0.15, 0.5)


class Renewal:
    """When neighbours among the arguments of a fit are found anew, and how; of a fit without any, never.

    Parameters
    ----------
    engine, feed
        Those of the fit.
    num_steps : int
        Steps in all.
    done : int
        Steps that a resumed fit has behind it: it begins with neighbours found anew where some were found before.
    """

    def __init__(self, engine: object, feed: Feed, num_steps: int, done: int) -> None:
        self.engine, self.feed = engine, feed
        has_any = not feed.changes and bool(neighbours_in(feed.call.arguments))
        marks = sorted({int(share * num_steps) for share in REFRESH_SHARES} - {0, num_steps}) if has_any else []
        passed = [mark for mark in marks if mark <= done]
        self.marks = [*([done] if passed and done < num_steps else []), *marks[len(passed) :]]

    def steps_before(self, step: int, wanted: int) -> int:
        """No more steps than there are up to the next time."""
        return min([wanted, *(mark - step for mark in self.marks if mark > step)])

    def at(self, step: int, state: object) -> None:
        """Find neighbours anew, where it is time."""
        if not self.marks or step < self.marks[0]:
            return
        self.marks = [mark for mark in self.marks if mark > step]
        arrays = self.feed.arrays()
        given = self.feed.call.at(arrays)
        scales = run_quickly(self._lengthscales, state, arrays)
        renewed: dict[int, Neighbours] = {}
        for near, scale in zip(neighbours_in(given), scales, strict=True):
            if scale is not None and all(map(is_known, jax.tree.leaves(near))) and np.isfinite(scale).all():
                renewed[id(near)] = near.rescaled(scale)
        tree = jax.tree.map(lambda leaf: renewed.get(id(leaf), leaf), given, is_leaf=are_neighbours)
        found = split_arrays(tuple(tree))[0]
        # On the devices that were chosen; an array that JAX had placed is another program elsewhere.
        pairs = zip(found, arrays, strict=False)
        placed = [jax.device_put(new, old.sharding) if old.committed else new for new, old in pairs]
        self.feed.now = [*placed, *arrays[len(placed) :]]

    def _lengthscales(self, state: object, arrays: list[Array]) -> list[Array | None]:
        """Those of each of the neighbours among the arguments, by the processes that stand on it; None where none does.

        Of a guide at one of its draws, and of particles at their median.
        """
        with self.feed.opened(arrays) as given:
            args, kwargs, engine = given.args, {**given.kwargs, **self.feed.call.static}, self.engine
            key, params = jax.random.key(0), engine.get_params(state)
            model = handlers.seed(engine.model, key)
            if isinstance(engine, SVI):
                with handlers.block(), handlers.seed(rng_seed=key):
                    guide = handlers.substitute(engine.guide, data=params)
                    trace = handlers.trace(guide).get_trace(*args, **kwargs)
                model = handlers.replay(handlers.substitute(model, data=params), trace)
            elif hasattr(engine, "particles") and hasattr(engine, "shared"):
                middle = {name: jnp.median(x, axis=0) for name, x in engine.particles(params).items()}
                model = handlers.substitute(model, data={**middle, **engine.shared(params)})
            else:
                return [None for _ in neighbours_in(given)]
            with handlers.block(), recorded_processes() as found:
                model(*args, **kwargs)
            processes = [process for process in found.values() if hasattr(process, "units")]
            scales: list[Array | None] = []
            for near in neighbours_in(given):
                of_near = [process for process in processes if process.units()[0] is near]
                # Whitened values by other neighbours would be another function: these stay.
                stay = any(process.is_point for process in of_near)
                scales.append(None if stay else shortest([process.units()[1] for process in of_near]))
            return scales


# --------------------------------------------------------------------------------------
# The steps of a fit: chunks of one compiled loop, a stop with a reason and with all that was reached.


# A chunk of no fixed size is grown until it takes about this long: often enough for a bar and a Ctrl-C.
SECONDS_PER_CHUNK = 0.5


class NonFiniteLoss(ArithmeticError):
    """Raised by `fit` when a loss or its gradient is not finite: it says at which step, and at which site.

    The loss was not finite, *or* it was finite and its update left a parameter that is not.

    Parameters
    ----------
    message : str
    step : int
        Counted from 0.
    sites : tuple of str
        Names of the model's sites at fault, in model order; empty if none stands out.
    result : FitResult
        After the last good step.

    Examples
    --------
    >>> import jax, numpyro, optax, numpyro_gp as ngp
    >>> import numpyro.distributions as dist
    >>> def model(y):
    ...     numpyro.sample("y", dist.Normal(numpyro.param("location", 0.0), 1.0).expand(y.shape), obs=y)
    >>> svi = numpyro.infer.SVI(model, lambda y: None, optax.sgd(1e30), numpyro.infer.Trace_ELBO())
    >>> try:
    ...     ngp.fit(jax.random.key(0), svi, 200, jax.numpy.ones(3), progress=False)
    ... except ngp.NonFiniteLoss as error:
    ...     error.step < 200, sorted(error.result.params)
    (True, ['location'])
    """

    def __init__(self, message: str, step: int, sites: tuple[str, ...], result: FitResult) -> None:
        super().__init__(message)
        self.step, self.sites, self.result = step, sites, result


class FitInterrupted(KeyboardInterrupt):
    """Raised by `fit` at Ctrl-C: a ``KeyboardInterrupt`` with the result so far.

    Parameters
    ----------
    message : str
    result : FitResult
        After the last finished chunk of steps.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> try:   # ngp.fit(...), and Ctrl-C while it runs
    ...     raise ngp.FitInterrupted("stopped", ngp.FitResult({"noise": 0.1}, None, None))
    ... except ngp.FitInterrupted as error:
    ...     error.result.params
    {'noise': 0.1}
    """

    def __init__(self, message: str, result: FitResult) -> None:
        super().__init__(message)
        self.result = result


class Job(NamedTuple):
    """What does not change during a run."""

    engine: Any
    feed: Feed
    advance: Callable[..., tuple]
    path: Path | None
    num_steps: int
    begun: FitRecord
    renewal: Renewal

    @property
    def processes(self) -> list[int]:
        """The processes that take these steps together."""
        return [jax.process_index()] if self.feed.placement is None else self.feed.placement.processes

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes."""
        return self.processes[0] == jax.process_index()

    @property
    def place(self) -> str:
        """Where results are kept, for messages."""
        return "in .result" if self.path is None else f"in .result and in {self.path}"


def run_chunks(
    job: Job, position: Position, size: int, adapts: bool, checkpoint_every: float, bar: object
) -> tuple[Position, tuple | None]:
    """Run until the last step or the first bad one; the failure is its loss, the state after it and its data.

    Chunks have ``size`` steps, or grow up to it with their speed.
    """
    name = traits_of(job.engine).loss_name
    length, saved_at = 1 if adapts else size, time.monotonic()
    try:
        while position.steps < job.num_steps:
            job.renewal.at(position.steps, position.state)
            started = time.monotonic()
            wanted = job.renewal.steps_before(position.steps, min(length, job.num_steps - position.steps))
            arrays = job.feed.arrays()
            count, state, losses, healthy = job.advance(position.state, wanted, arrays)
            if position.steps + wanted < job.num_steps:
                job.feed.prefetch()
            losses = np.asarray(losses)[: int(count)]
            if not healthy:  # once more from the same state, one step less
                good = job.advance(position.state, len(losses) - 1, arrays)[1]
                return position.after(good, losses[:-1]), (losses[-1], state, arrays)
            position = position.after(state, losses)
            bar.set_postfix_str(f"{name} {losses[-1]:.5g}", refresh=False)
            bar.update(len(losses))
            if time.monotonic() - saved_at >= checkpoint_every:
                written(job, position)
                saved_at = time.monotonic()
            if adapts:
                in_time = SECONDS_PER_CHUNK * wanted / max(time.monotonic() - started, 1e-6)
                length = int(min(max(in_time, 1), 10 * wanted, size))
    except KeyboardInterrupt:
        raise FitInterrupted(f"The fit was interrupted {reached(job, position)}", written(job, position)) from None
    except Exception as error:  # of the batches, or of the device: whatever it is, the steps before it are kept
        if position.steps and not hasattr(error, "result"):
            keep(error, job, position, written(job, position))
        raise
    return position, None


def reached(job: Job, position: Position) -> str:
    """How far a fit came and where its steps are, for messages."""
    return f"after {position.steps} of {job.num_steps} steps. They are {job.place}."


def keep(error: object, job: Job, position: Position, result: FitResult) -> None:
    """Give an error the result of the steps before it."""
    error.result = result
    error.add_note(f"This happened {reached(job, position)}")


def end_of_particles(job: Job, position: Position, result: FitResult) -> str:
    """What the target says of particles at the end of a fit of whole data; nothing of the first steps of one."""
    judged, feed = traits_of(job.engine).judged, job.feed
    if judged is None or feed.part is not None or feed.placement is not None:
        return ""
    try:
        with feed.opened(feed.arrays()) as (args, kwargs):
            message = judged(job.engine, position.state, args, kwargs)
    except KeyboardInterrupt:
        raise FitInterrupted(f"The fit was interrupted {reached(job, position)}", result) from None
    except Exception as error:  # of the model, or of the device: it goes on, with the result of all steps
        keep(error, job, position, result)
        raise
    return message if position.steps >= FEWEST_STEPS else ""


def non_finite(
    job: Job, position: Position, result: FitResult, loss: np.ndarray, after: object, arrays: list[Array]
) -> NonFiniteLoss:
    """What a step that failed raises: which it was, and at which sites."""
    reason, sites = explain(job.engine, position.state, loss, after, arrays, job.feed)
    message = f"Step {position.steps} of {job.num_steps} (counted from 0): {reason} {REMEDY}"
    return NonFiniteLoss(f"{message} The last good state is {job.place}.", position.steps, sites, result)


def written(job: Job, position: Position) -> FitResult:
    """The result so far, written to the checkpoint if there is one; a failure to write carries it too."""
    # As the engine finds them: who asks it for those of this state gets the same bits, by which a fit is known again.
    engine, begun = job.engine, job.begun
    params = engine.get_params(position.state)
    begun.arrays = arrays_of(params)
    # What a network keeps beside its parameters, as running averages, is as much of the fit as these.
    params = params | (getattr(position.state, "mutable_state", None) or {})
    rows, set_up = job.feed.rows_of(position.steps), None
    if isinstance(engine, (SVI, SteinVI, ASVGD)):  # what its posterior needs beside the parameters
        kind, owner = ("svi", engine.guide) if isinstance(engine, SVI) else ("stein", engine)
        guide = owner if begun.guide is None else begun.guide
        set_up = SetUp(kind, engine.model, guide, begun.inducing or inducing_at_start(guide), begun.given)
    result = FitResult(params, jnp.asarray(position.losses), position.state, rows, set_up)
    try:
        if job.path is not None and job.is_first:
            write_checkpoint(job.path, engine, position, rows)
    except OSError as error:
        error.result = result
        error.add_note(f"The checkpoint could not be written after {position.steps} steps; they are in .result.")
        raise
    return result
