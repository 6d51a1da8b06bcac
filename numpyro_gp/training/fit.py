"""A fit: chunks of one compiled loop, one progress bar, a stop with a reason, checkpoints."""

import inspect
import math
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tqdm
from numpyro.infer import SVI, RenyiELBO, Trace_ELBO
from numpyro.infer.autoguide import AutoGuide

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import check_count, check_key, check_nonnegative
from numpyro_gp.guides import AutoGP
from numpyro_gp.guides.other_sites import check_renyi
from numpyro_gp.optim import check_natural_steps, usual
from numpyro_gp.programs.handler_lock import with_short_errors
from numpyro_gp.programs.set_up import abstract_trace
from numpyro_gp.rows.call import Arguments
from numpyro_gp.rows.feeds import Feed, check_guide, feed_of
from numpyro_gp.rows.model_trace import check_rows_of
from numpyro_gp.training.checkpoints import FitResult, Position, check_checkpoint, starting_position
from numpyro_gp.training.faults import check_engine, standstill
from numpyro_gp.training.first_state import SHORT, best_start, initial_state, parameters_at_start
from numpyro_gp.training.loop import Job, Renewal, end_of_particles, loop_of, non_finite, run_chunks, written

# --------------------------------------------------------------------------------------
# Before the first step of a fit: every refusal, the first state, and the program of the steps.


Prepared = tuple[Job, Position, int, bool, dict[str, object] | None]
LONGEST_CHUNK = 1000
SHARED_CHUNK = 10  # of several processes, which do not adapt it


def prepare(
    key: Array,
    engine: Any,
    feed: Feed,
    num_steps: int,
    *,
    chunk_size: int | None,
    path: Path | None,
    resume: object,
    init_params: dict[str, Any] | None,
    search: bool | None,
) -> Prepared:
    """What does not change, where it starts, the steps of a chunk, whether these grow, and a new fit's parameters."""
    state, begun = initial_state(key, engine, num_steps, init_params, feed)
    model, guide = getattr(engine, "model", None), getattr(engine, "guide", None)
    looks_itself = hasattr(guide, "inducing") or hasattr(engine, "inducing")  # as our guides and particles do
    if callable(model) and not feed.changes and not looks_itself:
        check_rows_of(model, feed.call)
    check_guide(engine, feed)
    if isinstance(engine, SVI) and isinstance(engine.loss, RenyiELBO):  # no bound for some models, under any guide
        with feed.opened(feed.arrays()) as (args, kwargs):
            check_renyi(abstract_trace(model, args, {**kwargs, **feed.call.static}))
    position = starting_position(engine, state, path, resume)
    if position.steps > num_steps:
        more = f"The run that is resumed has {position.steps} steps already, more than num_steps={num_steps}."
        warnings.warn(f"{more} Its result is returned as it is.", stacklevel=3)
    if feed.placement is not None:
        position = position._replace(state=feed.placement.placed(position.state, position.steps))
    feed.start(position.steps, position.rows)
    start, watch = parameters_at_start(engine, position.state)
    check_natural_steps(getattr(engine, "optim", None), start)
    size = 1 if feed.changes else chunk_size or LONGEST_CHUNK
    advance = loop_of(engine, feed, position.state, size, watch, num_steps)
    is_new = position.steps == 0 and init_params is None  # else it may well have begun where it should end
    if is_new and (num_steps >= SHORT if search is None else search):
        better = best_start(engine, feed, position.state, advance)
        if better is not position.state:
            position = position._replace(state=better)
            start, _ = parameters_at_start(engine, better)
    job = Job(engine, feed, advance, path, num_steps, begun, Renewal(engine, feed, num_steps, position.steps))
    # Processes must do the same steps in a chunk, and their clocks differ.
    adapts = chunk_size is None and len(job.processes) == 1
    size = size if adapts or chunk_size else min(size, SHARED_CHUNK)
    return job, position, size, adapts, start if is_new else None


def shows_bars(progress: bool | None) -> bool:
    """Whether a fit shows bars: as it is asked, by itself on a terminal and in a notebook."""
    return (sys.stderr.isatty() or "ipykernel" in sys.modules) if progress is None else progress


@with_short_errors
def fit(
    key: Array,
    svi_or_stein: Any,
    num_steps: int,
    /,
    *args: object,
    chunk_size: int | None = None,
    progress: bool | None = None,
    checkpoint: str | os.PathLike | None = None,
    checkpoint_every: float = 30.0,
    resume: bool | str | os.PathLike | FitResult = False,
    init_params: dict[str, object] | None = None,
    batches: object = None,
    num_data: int | None = None,
    sharding: object = None,
    search: bool | None = None,
    **kwargs: object,
) -> FitResult:
    """Fit a model: run SVI or SVGD for ``num_steps`` steps on ``model(*args, **kwargs)``, with a bar and checkpoints.

    Neighbours among the arguments (`ngp.neighbours`) are found anew after 15 % and 50 % of the steps, in the
    lengthscales of the fit, and their plate draws minibatches at a cost that does not grow with the data. They stay
    where a guide or particles hold the values of a process themselves: by others these would be another function.

    Arrays among the arguments stay arguments of the compiled program (they are not copied into it
    as constants); everything else in them (ints such as ``batch=1024``, strings, functions) is
    fixed. A model that needs the *value* of an array in Python takes it by ``functools.partial``.

    Before the first step the program of all steps is compiled, once for all fits of the same model and shapes. On a
    CPU it is optimised less where no array in it has more than 10 000 numbers and ``num_steps`` is at most 10 000: a
    second or two sooner up to jaxlib 0.9.

    Parameters
    ----------
    key
        One random key. Not used for the steps of a resumed run, whose key is in its state.
    svi_or_stein
        A model function, for ``SVI(model, ngp.AutoGP(model), optax.adam(0.02), Trace_ELBO())`` of it, and natural steps
        for pseudo-data of rows; NumPyro's ``SVI``, ``SteinVI``, ``SVGD``; or any object with ``init(key, *args,
        **kwargs)``, ``update(state, *args, **kwargs) -> (state, loss)`` and ``get_params(state)``.
    num_steps
        Steps in all, those of a resumed run included.
    chunk_size
        Steps between two looks at the losses; None adapts it to half a second. No effect on numbers.
    progress
        Show one bar on standard error with the loss (Stein engines: the norm of the Stein force). By itself on a
        terminal and in a notebook, and in no log.
    checkpoint
        File (``.npz``) that is replaced atomically at most every ``checkpoint_every`` seconds, and
        at the end, at a failure and at Ctrl-C. A file that exists is refused unless it is the one resumed.
        Of several processes (``jax.distributed``) the first writes it, and all read it.
    resume
        True continues from ``checkpoint``, or starts anew where that file is not there yet (the
        same script can be started again and again); a path continues from that file; a
        :class:`FitResult` continues from it. The numbers are those of an uninterrupted run of as many steps, but for
        neighbours, which are found anew where it goes on, and for ``batches`` that cannot be asked for the next one.
    init_params
        Initial values of parameters by name, for engines whose ``init`` takes them (``SVI``, which has those of model
        and guide, and mutable state: other names are refused).
    batches : iterable, or callable ``step -> iterable``
        One batch for each step, in place of data that are too large: a tuple of arrays, the model's first arguments,
        or a dictionary of arrays. NumPy arrays (memory maps too) are copied to the device while the step before
        runs. The model is called with the batch, ``plate("data", len(X))``; later batches may be shorter than the
        first, and none longer. Each row counts ``num_data / R`` times, those of a shorter batch too, R the mean number
        of rows of a batch: that of the whole list, or where no list is given that of all batches up to the last
        shorter one, so that such a source counts right from its second pass on. The k-th batch of an iterator is that
        of step k (an interrupted fit may have taken one more). Any other iterable is used again from its start when it
        ends; a resumed fit reads on in one that has a length, and starts others again. A callable gets the number of
        steps that a resumed fit has done, and returns the batches from there on. Of several processes each gives its
        own part of every batch, all of the same number of rows, as to `jax.make_array_from_process_local_data`.
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
        ``state`` of the engine. `FitResult.posterior` is the posterior of it.

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
    key = check_key("key", key)
    own = [name for name, one in inspect.signature(fit).parameters.items() if one.kind is one.KEYWORD_ONLY]
    path = check_checkpoint(checkpoint, resume)
    if callable(svi_or_stein) and not isinstance(svi_or_stein, (type, AutoGuide)) and not hasattr(svi_or_stein, "init"):
        svi_or_stein = SVI(svi_or_stein, AutoGP(svi_or_stein), usual(), Trace_ELBO())
    num_steps = check_count("num_steps", num_steps)
    chunk_size = None if chunk_size is None else check_count("chunk_size", chunk_size)
    check_nonnegative("checkpoint_every", checkpoint_every)
    check_engine(svi_or_stein, [name for name in own if name != "num_data"])
    try:
        feed = feed_of(svi_or_stein, key, Arguments(args, kwargs), batches, num_data, sharding)
    except TypeError as error:
        if "unexpected keyword" in str(error):
            error.add_note(f"Keywords of `fit` itself: {', '.join(own)}.")
        raise
    asked = {"chunk_size": chunk_size, "path": path, "resume": resume, "init_params": init_params, "search": search}
    return run_to_end(prepare(key, svi_or_stein, feed, num_steps, **asked), checkpoint_every, progress)


def run_to_end(
    prepared: Prepared,
    checkpoint_every: float,
    progress: bool | None,
    block: int | None = None,
    is_over: Callable[[Position], bool] = lambda _: False,
) -> FitResult:
    """Take all steps, or blocks of them until the fit is over; give what there is to say at the end."""
    job, position, size, adapts, start = prepared
    done, shows = min(position.steps, job.num_steps), shows_bars(progress) and job.is_first
    failure = None
    with tqdm.tqdm(total=job.num_steps, initial=done, disable=not shows, file=sys.stderr) as bar:
        while position.steps < job.num_steps and failure is None:
            steps = job.num_steps if block is None else min(position.steps + block, job.num_steps)
            own = job._replace(num_steps=steps)
            position, failure = run_chunks(own, position, size, adapts, checkpoint_every, bar)
            if failure is None and is_over(position):
                break
    result = written(job, position)
    if failure is not None:
        raise non_finite(job, position, result, *failure)
    still = "" if start is None else standstill(start, {name: result.params[name] for name in start}, position.losses)
    for message in filter(None, (still, end_of_particles(job, position, result))):
        warnings.warn(message, stacklevel=4)  # where the fit is called, above the frame that shortens errors
    return result


# --------------------------------------------------------------------------------------
# Fits that end where the bound no longer rises, for those who ask for no number of steps.


WINDOW = 100


def still_rises(found: ArrayLike, fewest: int) -> bool:
    """Whether the last hundred losses are better than the hundred before by more than their noise; so of few."""
    losses = np.asarray(found, float)
    if len(losses) < max(fewest, 2 * WINDOW):
        return True
    before, last = losses[-2 * WINDOW : -WINDOW], losses[-WINDOW:]
    return bool(before.mean() - last.mean() > max(0.1, last.std() / 5))


@with_short_errors
def fit_until(
    key: Array,
    engine: object,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    *,
    block: int,
    most_steps: int,
    progress: bool,
    is_over: Callable[[Position], bool] | None = None,
    search: bool | None = None,
    init_params: dict[str, Any] | None = None,
) -> FitResult:
    """Fit by blocks of steps, until one ends where the fit is over: by itself where losses no longer fall."""
    is_over = is_over or (lambda position: not still_rises(position.losses, block))
    feed = feed_of(engine, key, Arguments(args, kwargs))
    begun = prepare(
        key, engine, feed, most_steps, chunk_size=None, path=None, resume=False, init_params=init_params, search=search
    )
    return run_to_end(begun, math.inf, progress, block, is_over)
