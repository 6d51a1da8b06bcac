"""Before the first step of a fit: every refusal, the first state, and the program of the steps."""

import os
import warnings
from pathlib import Path
from typing import Any, NamedTuple

from numpyro_gp.arrays import Array
from numpyro_gp.checks import check_count, check_nonnegative, fail
from numpyro_gp.optim import check_natural_steps
from numpyro_gp.rows.feeds import Feed, check_guide
from numpyro_gp.training.checkpoints import FitResult, Position, starting_position
from numpyro_gp.training.engines import check_data, check_objective
from numpyro_gp.training.first_state import initial_state, parameters_at_start
from numpyro_gp.training.loop import loop_of
from numpyro_gp.training.renewal import Renewal
from numpyro_gp.training.search import SHORT, best_start
from numpyro_gp.training.steps import Job, Pace

LONGEST_CHUNK = 1000
SHARED_CHUNK = 10  # of several processes, which do not adapt it


class Asked(NamedTuple):
    """What a caller of `fit` asks of the run; `fit` says what each is."""

    num_steps: int
    chunk_size: int | None
    path: Path | None
    checkpoint_every: float
    resume: bool | str | os.PathLike | FitResult
    init_params: dict[str, Any] | None
    search: bool | None

    @property
    def size(self) -> int:
        """Most steps in a chunk."""
        return LONGEST_CHUNK if self.chunk_size is None else self.chunk_size

    @property
    def searches(self) -> bool:
        """Whether a new fit looks for its first point."""
        return self.num_steps >= SHORT if self.search is None else self.search

    def checked(self) -> "Asked":
        """The same, where it is right as far as no model is needed to see that."""
        count = check_count("num_steps", self.num_steps)
        size = None if self.chunk_size is None else check_count("chunk_size", self.chunk_size)
        check_nonnegative("checkpoint_every", self.checkpoint_every)
        if not (self.search is None or isinstance(self.search, bool)):
            fail("search", "True, False or None", f"{self.search!r}", "Leave it out for the rule.", TypeError)
        return self._replace(num_steps=count, chunk_size=size)


def prepare(key: Array, engine: object, feed: Feed, run: Asked) -> tuple[Job, Position, Pace, dict[str, object] | None]:
    """What does not change, where it starts, how fast it goes, and a new fit's first parameters; or a refusal."""
    state, begun = initial_state(key, engine, run.num_steps, run.init_params, feed)
    check_data(engine, feed)
    check_guide(engine, feed)
    check_objective(engine, feed)
    position = starting_position(engine, state, run.path, run.resume)
    if position.steps > run.num_steps:
        more = f"The run that is resumed has {position.steps} steps already, more than num_steps={run.num_steps}."
        warnings.warn(f"{more} Its result is returned as it is.", stacklevel=3)
    if feed.placement is not None:
        position = position._replace(state=feed.placement.placed(position.state, position.steps))
    feed.start(position.steps, position.rows)
    start, watch = parameters_at_start(engine, position.state)
    check_natural_steps(getattr(engine, "optim", None), start)
    size = 1 if feed.changes else run.size
    advance = loop_of(engine, feed, position.state, size, watch, run.num_steps)
    is_new = position.steps == 0 and run.init_params is None  # else it may well have begun where it should end
    if is_new and run.searches:
        better = best_start(engine, feed, position.state, advance)
        if better is not position.state:
            position = position._replace(state=better)
            start, _ = parameters_at_start(engine, better)
    renewal = Renewal(engine, feed, run.num_steps, position.steps)
    job = Job(engine, feed, advance, run.path, run.num_steps, begun, renewal)
    # Processes must do the same steps in a chunk, and their clocks differ.
    adapts = run.chunk_size is None and len(job.processes) == 1
    pace = Pace(size if adapts or run.chunk_size else min(size, SHARED_CHUNK), adapts, run.checkpoint_every)
    return job, position, pace, start if is_new else None
