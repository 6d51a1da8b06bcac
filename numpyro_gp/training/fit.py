"""A fit: chunks of one compiled loop, one progress bar, a stop with a reason, checkpoints."""

import inspect
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tqdm

from numpyro_gp.arrays import Array
from numpyro_gp.checks import check_count, check_key, check_nonnegative, fail
from numpyro_gp.guides.fits import Fit
from numpyro_gp.optim import check_natural_steps
from numpyro_gp.rows.call import Arguments
from numpyro_gp.rows.feeds import Feed, check_data, check_guide, feed_of
from numpyro_gp.training.checkpoints import FitResult, Position, check_checkpoint, starting_position, write_checkpoint
from numpyro_gp.training.engines import check_engine, check_objective, traits_of
from numpyro_gp.training.faults import FEWEST_STEPS, explain, standstill
from numpyro_gp.training.first_state import REMEDY, initial_state, parameters_at_start
from numpyro_gp.training.loop import loop_of
from numpyro_gp.training.renewal import Renewal
from numpyro_gp.training.search import SHORT, best_start

# A chunk of no fixed size is grown until it takes about this long: often enough for a bar and a Ctrl-C.
SECONDS_PER_CHUNK = 0.5
LONGEST_CHUNK = 1000
SHARED_CHUNK = 10  # of several processes, which do not adapt it


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


def fit(
    key: Array,
    svi_or_stein: Any,
    num_steps: int,
    /,
    *args: object,
    chunk_size: int | None = None,
    progress: bool = True,
    checkpoint: str | os.PathLike | None = None,
    checkpoint_every: float = 30.0,
    resume: bool | str | os.PathLike | FitResult = False,
    init_params: dict[str, Any] | None = None,
    batches: Any = None,
    num_data: int | None = None,
    sharding: Any = None,
    search: bool | None = None,
    **kwargs: object,
) -> FitResult:
    """Fit a model: run SVI or SVGD for ``num_steps`` steps on ``model(*args, **kwargs)``, with a bar and checkpoints.

    Neighbours among the arguments (`ngp.neighbours`) are found anew after 15 % and 50 % of the steps, in the
    lengthscales of the fit, and their plate draws minibatches at a cost that does not grow with the data.

    Arrays among the arguments stay arguments of the compiled program (they are not copied into it
    as constants); everything else in them (ints such as ``batch=1024``, strings, functions) is
    fixed. A model that needs the *value* of an array in Python takes it by ``functools.partial``.

    Parameters
    ----------
    key
        One random key. Not used for the steps of a resumed run, whose key is in its state.
    svi_or_stein
        NumPyro's ``SVI``, ``SteinVI``, ``SVGD``, or any object with ``init(key, *args, **kwargs)``,
        ``update(state, *args, **kwargs) -> (state, loss)`` and ``get_params(state)``.
    num_steps
        Steps in all, those of a resumed run included.
    chunk_size
        Steps between two looks at the losses; None adapts it to half a second. No effect on numbers.
    progress
        Show one bar on standard error with the loss (Stein engines: the norm of the Stein force).
    checkpoint
        File (``.npz``) that is replaced atomically at most every ``checkpoint_every`` seconds, and
        at the end, at a failure and at Ctrl-C. A file that exists is refused unless it is the one resumed.
        Of several processes (``jax.distributed``) the first writes it, and all read it.
    resume
        True continues from ``checkpoint``, or starts anew where that file is not there yet (the
        same script can be started again and again); a path continues from that file; a
        :class:`FitResult` continues from it. The numbers are those of an uninterrupted run, but for neighbours, which
        are found anew where it goes on.
    init_params
        Initial values of parameters by name, for engines whose ``init`` takes them (``SVI``, which has those of model
        and guide, and mutable state: other names are refused).
    batches : iterable, or callable ``step -> iterable``
        One batch for each step, in place of data that are too large: a tuple of arrays, the model's first arguments,
        or a dictionary of arrays. NumPy arrays (memory maps too) are copied to the device while the step before
        runs. The model is called with the batch, ``plate("data", len(X))``, and each of its terms counts
        ``num_data / len(X)`` times; later batches may be shorter than the first, and none longer. The k-th batch
        of an iterator is that of step k (an interrupted fit may have taken one more). Any other iterable is used again
        from its start when it ends. A callable gets the number of steps that a resumed fit has done, and returns the
        batches from there on. Of several processes each gives its own part of every batch, all of the same number of
        rows, as to `jax.make_array_from_process_local_data`.
    num_data : int
        With ``batches``, the number N of all data; given to a model that has an argument of this name, whose plate may
        then be ``plate("data", num_data, subsample_size=len(X))``.
    sharding : NamedSharding of the first axis, optional
        Devices to share the rows among, ``NamedSharding(mesh, PartitionSpec("data"))`` of a mesh whose axes are Auto:
        the model's first array and all others of its length, or batches, lie in pieces, and all else is a copy on each
        device. Data that are already placed so need no ``sharding``. Where the data plate draws a minibatch, each
        device draws its share of its own rows, the same for the same key and number of devices.
    search
        Whether a fit by ``SVI`` of `gp_regression` starts at the best of a grid, 6 lengthscales by 4 noises around
        the start of its guide, by the loss of the first step: from medians of priors a function that changes quickly
        may end as noise. It costs as much as 24 steps. None searches in fits of 480 steps or more, True in shorter
        ones too. Nothing is searched where ``init_params``, ``init_to_value`` or a function of your own names the
        start, where the model has `gp` sites or latent inputs, and where rows are shared among devices.
    *args, **kwargs
        What the model takes. A model with an argument named like one of those above is refused, but for ``num_data``.

    Returns
    -------
    FitResult
        ``params`` by name, mutable state of model and guide included, ``losses`` of shape ``(num_steps,)``, and the
        ``state`` of the engine.

    Raises
    ------
    NonFiniteLoss
        At the first step with a loss that is not finite, or whose update leaves a parameter that
        is not finite. Names the step and the site; carries the result of the steps before it.
    FitInterrupted
        At Ctrl-C; a ``KeyboardInterrupt`` with the result so far.
    Exception
        What ``batches`` raise, or a device, and errors for batches that end or differ from the first: with the result
        of the steps before in ``error.result``, and in the checkpoint.

    Warns
    -----
    UserWarning
        Where a run that is resumed has more steps than ``num_steps``, and comes back as it is;
        where a new fit of 100 steps or more ends where it began: no parameter moved and the loss stayed at its level;
        and where some particles of `ngp.stein.SVGD` end far below the others, in the log density of whole data.

    Examples
    --------
    >>> import jax, numpyro, optax, numpyro_gp as ngp
    >>> import numpyro.distributions as dist
    >>> from numpyro.infer import SVI, Trace_ELBO
    >>> def model(y):
    ...     numpyro.sample("y", dist.Normal(numpyro.param("location", 0.0), 1.0).expand(y.shape), obs=y)
    >>> svi = SVI(model, lambda y: None, optax.sgd(0.1), Trace_ELBO())
    >>> result = ngp.fit(jax.random.key(0), svi, 200, jax.numpy.ones(3), progress=False)
    >>> print(f"{result.params['location']:.3f}", result.losses.shape)
    1.000 (200,)
    """
    num_steps = check_count("num_steps", num_steps)
    size = LONGEST_CHUNK if chunk_size is None else check_count("chunk_size", chunk_size)
    key = check_key("key", key)
    own = [name for name, one in inspect.signature(fit).parameters.items() if one.kind is one.KEYWORD_ONLY]
    check_engine(svi_or_stein, [name for name in own if name != "num_data"])
    check_nonnegative("checkpoint_every", checkpoint_every)
    if not (search is None or isinstance(search, bool)):
        fail("search", "True, False or None", f"{search!r}", "Leave it out for the rule.", TypeError)
    path = check_checkpoint(checkpoint, resume)
    try:
        feed = feed_of(svi_or_stein, key, Arguments(args, kwargs), batches, num_data, sharding)
    except TypeError as error:
        if "unexpected keyword" in str(error):
            error.add_note(f"Keywords of `fit` itself: {', '.join(own)}.")
        raise
    state, begun = initial_state(key, svi_or_stein, num_steps, init_params, feed)
    check_data(svi_or_stein, feed)
    check_guide(svi_or_stein, feed)
    check_objective(svi_or_stein, feed)
    position = starting_position(svi_or_stein, state, path, resume)
    if position.steps > num_steps:
        more = f"The run that is resumed has {position.steps} steps already, more than num_steps={num_steps}."
        warnings.warn(f"{more} Its result is returned as it is.", stacklevel=2)
    if feed.placement is not None:
        position = position._replace(state=feed.placement.placed(position.state, position.steps))
    feed.start(position.steps)
    start, watch = parameters_at_start(svi_or_stein, position.state)
    check_natural_steps(getattr(svi_or_stein, "optim", None), start)
    size = 1 if feed.changes else size
    advance = loop_of(svi_or_stein, feed, position.state, size, watch)
    is_new = position.steps == 0 and init_params is None  # else it may well have begun where it should end
    if is_new and (num_steps >= SHORT if search is None else search):
        better = best_start(svi_or_stein, feed, position.state, advance)
        if better is not position.state:
            position = position._replace(state=better)
            start, _ = parameters_at_start(svi_or_stein, better)
    job = Job(
        svi_or_stein, feed, advance, path, num_steps, begun, Renewal(svi_or_stein, feed, num_steps, position.steps)
    )
    # Processes must do the same steps in a chunk, and their clocks differ.
    adapts = chunk_size is None and len(job.processes) == 1
    pace = Pace(size if adapts or chunk_size else min(size, SHARED_CHUNK), adapts, checkpoint_every)
    done = min(position.steps, num_steps)
    with tqdm.tqdm(total=num_steps, initial=done, disable=not (progress and job.is_first), file=sys.stderr) as bar:
        position, failure = run_chunks(
            job, position, pace, lambda text: f"{traits_of(svi_or_stein).loss_name} {text}", bar
        )
    result = written(job, position)
    if failure is not None:
        raise non_finite(job, position, result, *failure)
    end = {name: result.params[name] for name in start}
    still = standstill(start, end, position.losses) if is_new else ""
    for message in filter(None, (still, end_of_particles(job, position, result))):
        warnings.warn(message, stacklevel=2)
    return result


# ------------------------------------------------------------------------------------------ the run


class Job(NamedTuple):
    """What does not change during a run."""

    engine: Any
    feed: Feed
    advance: Callable[..., tuple]
    path: Path | None
    num_steps: int
    begun: Fit
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


class Pace(NamedTuple):
    """Most steps in a chunk, whether chunks grow up to it with their speed, and seconds between checkpoints."""

    size: int
    adapts: bool
    checkpoint_every: float

    def following(self, steps: int, seconds: float) -> int:
        """Length of the chunk after one of ``steps`` that took ``seconds``."""
        wanted = SECONDS_PER_CHUNK * steps / max(seconds, 1e-6)
        return int(min(max(wanted, 1), 10 * steps, self.size)) if self.adapts else self.size


def run_chunks(
    job: Job, position: Position, pace: Pace, describe_loss: Callable, bar: Any
) -> tuple[Position, tuple | None]:
    """Run until the last step or the first bad one; the failure is its loss, the state after it and its data."""
    length, saved_at = 1 if pace.adapts else pace.size, time.monotonic()
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
            bar.set_postfix_str(describe_loss(f"{losses[-1]:.5g}"), refresh=False)
            bar.update(len(losses))
            if time.monotonic() - saved_at >= pace.checkpoint_every:
                written(job, position)
                saved_at = time.monotonic()
            length = pace.following(wanted, time.monotonic() - started)
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


def keep(error: Any, job: Job, position: Position, result: FitResult) -> None:
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
    job: Job, position: Position, result: FitResult, loss: np.ndarray, after: Any, arrays: list[Array]
) -> NonFiniteLoss:
    """What a step that failed raises: which it was, and at which sites."""
    reason, sites = explain(job.engine, position.state, loss, after, arrays, job.feed)
    message = f"Step {position.steps} of {job.num_steps} (counted from 0): {reason} {REMEDY}"
    return NonFiniteLoss(f"{message} The last good state is {job.place}.", position.steps, sites, result)


def written(job: Job, position: Position) -> FitResult:
    """The result so far, written to the checkpoint if there is one; a failure to write carries it too."""
    params = job.engine.get_params(position.state)
    job.begun.ends(params)
    # What a network keeps beside its parameters, as running averages, is as much of the fit as these.
    params = params | (getattr(position.state, "mutable_state", None) or {})
    result = FitResult(params, jnp.asarray(position.losses), position.state)
    try:
        if job.path is not None and job.is_first:
            write_checkpoint(job.path, job.engine, position)
    except OSError as error:
        error.result = result
        error.add_note(f"The checkpoint could not be written after {position.steps} steps; they are in .result.")
        raise
    return result
