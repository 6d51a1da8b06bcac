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
from numpyro.contrib.einstein import ASVGD, SteinVI
from numpyro.infer import SVI

from numpyro_gp.arrays import Array
from numpyro_gp.checks import fail
from numpyro_gp.guides.fit_registry import FitRecord, arrays_of, inducing_at_start
from numpyro_gp.programs.compiled import kept
from numpyro_gp.programs.private import sites_in_order
from numpyro_gp.programs.scheduler import compiler_options
from numpyro_gp.programs.trace import as_function, aval_of, bytes_of, is_traced, size_of, traced
from numpyro_gp.rows.devices import Placement
from numpyro_gp.rows.feeds import Feed
from numpyro_gp.rows.model_trace import without_whole_gathers
from numpyro_gp.training.checkpoints import FitResult, Position, SetUp, write_checkpoint
from numpyro_gp.training.faults import FEWEST_STEPS, all_finite, explain, traits_of
from numpyro_gp.training.first_state import REMEDY
from numpyro_gp.training.neighbour_refresh import Renewal

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
    except Exception as error:
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


def set_up_of(job: Job) -> SetUp | None:
    """What the posterior of a fit needs beside its parameters; None of an engine that has none."""
    engine, begun = job.engine, job.begun
    if not isinstance(engine, (SVI, SteinVI, ASVGD)):
        return None
    kind, owner = ("svi", engine.guide) if isinstance(engine, SVI) else ("stein", engine)
    guide = owner if begun.guide is None else begun.guide
    return SetUp(kind, engine.model, guide, begun.inducing or inducing_at_start(guide), begun.given)


def written(job: Job, position: Position) -> FitResult:
    """The result so far, written to the checkpoint if there is one; a failure to write carries it too."""
    # As the engine finds them: who asks it for those of this state gets the same bits, by which a fit is known again.
    params = job.engine.get_params(position.state)
    job.begun.arrays = arrays_of(params)
    # What a network keeps beside its parameters, as running averages, is as much of the fit as these.
    params = params | (getattr(position.state, "mutable_state", None) or {})
    rows = job.feed.rows_of(position.steps)
    result = FitResult(params, jnp.asarray(position.losses), position.state, rows, set_up_of(job))
    try:
        if job.path is not None and job.is_first:
            write_checkpoint(job.path, job.engine, position, rows)
    except OSError as error:
        error.result = result
        error.add_note(f"The checkpoint could not be written after {position.steps} steps; they are in .result.")
        raise
    return result
