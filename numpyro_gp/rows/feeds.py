"""Where the arrays of a fit's steps come from: whole data, a stream of batches, or minibatches of data in pieces.

Step k has the arrays of step k, whoever resumed, and every batch fits the program of the first.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array, is_array
from numpyro_gp.checks import check_count, check_digits, fail
from numpyro_gp.neighbours.value import neighbours_in
from numpyro_gp.programs.handler_lock import turn
from numpyro_gp.programs.set_up import abstract_trace
from numpyro_gp.rows.batch_plates import BatchPlate, RowsInPieces, keyed_rows, permuted_rows, refuse_own_parameters
from numpyro_gp.rows.batches import BatchLayout, Taken, batch_tree, layout_of, put_on_device, with_batch
from numpyro_gp.rows.call import (
    Arguments,
    Call,
    argument_names,
    call_of,
    check_digits_of,
    check_not_empty,
    name_what_is_no_array,
)
from numpyro_gp.rows.devices import Placement, as_part_of_process, placement_of
from numpyro_gp.rows.model_trace import (
    Look,
    are_drawn,
    check_argument_values,
    check_behind,
    check_numbering,
    look,
    minibatch,
    plate_of,
)
from numpyro_gp.sites import in_plate, is_latent

END = object()


class BatchPart(NamedTuple):
    """What the rows of a batch stand for: name of their plate, number N of all data, number of rows in a batch."""

    plate: str
    num_data: int
    rows: int


class Feed:
    """Whole data: the same arrays at every step.

    Attributes
    ----------
    call : Call
        How the model is called with the arrays of a step, which are its first; a batch has the number of its rows
        that are data behind them, and a number of batches with the rows that they have together.
    part : BatchPart or None
        What the rows of a batch stand for.
    placement : Placement or None
        Devices that share the rows.
    """

    part: BatchPart | None = None
    # What deals out shares of a minibatch of data that all devices hold.
    shared: RowsInPieces | None = None
    # Whether each step has arrays of its own.
    changes = False

    def __init__(self, call: Call, placement: Placement | None, arrays: list[Array] | None = None) -> None:
        self.call, self.placement = call, placement
        self.now = call.arrays if arrays is None else arrays

    def start(self, step: int, rows: Sequence[int] | None = None) -> None:
        """Go to the arrays of a step; ``rows`` are those of the batches before it."""

    def rows_of(self, steps: int) -> np.ndarray | None:  # noqa: ARG002
        """Rows of the batch of each of the first steps, for a fit that goes on; None where all have the same."""
        return None

    def prefetch(self) -> None:
        """Have the arrays of the next step made, while the program of this one runs."""

    def arrays(self) -> list[Array]:
        """The arrays of the next step."""
        return self.now

    @contextmanager
    def opened(self, arrays: Sequence[Array]) -> Iterator[Arguments]:
        """Arguments of the model; inside the block its plate of data stands for all of them."""
        count = len(self.call.arrays)
        given = self.call.at(arrays[:count])
        # NumPyro's plate would deal out all numbers of large data at every step.
        keyed = keyed_rows() if neighbours_in(tuple(given)) else nullcontext()
        batch = self.shared if self.part is None else BatchPlate(*self.part, arrays[count])
        with turn, keyed, batch or nullcontext():
            try:
                yield given
            except Exception as error:  # of the user's model, whatever it is: it goes on, with a note
                name_what_is_no_array(error, self.call)
                raise


def feed_of(
    engine: object,
    key: Array,
    given: Arguments,
    batches: object = None,
    num_data: int | None = None,
    sharding: object = None,
) -> Feed:
    """Where the arrays of each step come from; refuse arguments that the engine's model would refuse."""
    model, (args, kwargs) = getattr(engine, "model", None), given
    if num_data is not None and (batches is None or "num_data" in argument_names(model)):
        kwargs = {**kwargs, "num_data": num_data}
    if batches is not None:
        return Stream(engine, batches, Arguments(args, kwargs), num_data, placement_of(sharding, (), engine))
    call = call_of(model, args, kwargs, static_of(engine))
    check_not_empty(call)
    check_digits_of(call)
    placement = placement_of(sharding, call.arrays, engine)
    return Feed(call, None) if placement is None else pieces_of(engine, key, call, placement)


def static_of(engine: object) -> dict[str, object]:
    """Keywords of the model that the engine itself adds."""
    return dict(getattr(engine, "static_kwargs", None) or {})


def check_guide(engine: Any, feed: Feed) -> None:
    """Refuse a guide that holds latent sites of single data outside of their plate: they are of the first batch."""
    if feed.part is None or not callable(getattr(engine, "guide", None)):
        return
    with feed.opened(feed.arrays()) as (args, kwargs):
        kwargs = {**kwargs, **feed.call.static}
        model, guide = (abstract_trace(function, args, kwargs) for function in (engine.model, engine.guide))
    plate = feed.part.plate
    for name in [name for name, site in model.items() if is_latent(site) and in_plate(site, plate)]:
        if name in guide and not in_plate(guide[name], plate):
            refuse_own_parameters(f"the guide at site {name!r}", "one that stands outside of it", plate)


# ------------------------------------------------------------------------------------------------ a stream


class Stream(Feed):
    """Batches of a source: each checked against the first, filled up to its rows and put on the device.

    ``source`` is an iterable, or a function of the step that returns one. An iterator ends once, any other
    iterable is used again from its start. A function gets the number of steps done before, each with a batch.
    """

    changes = True

    def __init__(
        self, engine: object, source: Any, given: Arguments, num_data: Any, placement: Placement | None
    ) -> None:
        if not (callable(source) or hasattr(source, "__iter__")) or is_array(source) or isinstance(source, Mapping):
            required = "an iterable of batches, or a function of the number of steps done that returns one"
            cure = "A batch is a tuple of arrays, the model's first arguments, or a dictionary of arrays."
            fail("batches", required, f"a {type(source).__name__}", cure, TypeError)
        self.source, self.placement, self.model = source, placement, getattr(engine, "model", None)
        self.static = static_of(engine)
        where = None if placement is None else placement.copies
        self.fixed: Arguments = jax.tree.map(lambda x: jax.device_put(x, where) if is_array(x) else x, given)
        self.first: BatchLayout | None = None
        self.waiting: Exception | None = None
        self.taken = Taken(source)
        self.look: Look | None = None
        self.own: set[str] = set()
        self.start(0)
        if not callable(self.model):
            cure, got = "The plate of its data says what a batch stands for: use SVI or SVGD.", type(engine).__name__
            fail("svi_or_stein", "an engine with a model where batches are given", got, cure, TypeError)
        if num_data is None or self.rows > check_count("num_data", num_data):
            required = f"the number of all data, {self.rows} or more"
            fail("num_data", required, num_data, "Pass num_data=N, the number of rows of all batches together.")
        self.look = look(self.model, self.call)
        self.part = BatchPart(plate_of(self.look.sites, self.rows, num_data), num_data, self.rows)
        check_numbering(self.look, self.part.plate, "batches")
        check_behind(self.look, self.call, set(self.call.owners) - self.own, self.part.plate, "batches")

    def start(self, step: int, rows: Sequence[int] | None = None) -> None:
        """Go to the batch of a step, where the source can be asked for it: a list is read on from there."""
        is_asked = callable(self.source)
        is_again = self.first is None or (step > 0 and (is_asked or hasattr(self.source, "__len__")))
        if self.first is not None and step:
            now = [] if is_again else self.taken.rows[-1:]
            self.taken = Taken(self.source, [*([self.first.rows] * step if rows is None else rows), *now])
            self.now = [*self.now[:-1], self._counts()]
        if is_again:
            self.passes = self.source(step) if is_asked else self.source
            self.iterator, self.number = iter(self.passes), step
            if step and not is_asked:
                self.iterator = islice(self.iterator, step % len(self.source), None)
            self._take()

    def rows_of(self, steps: int) -> np.ndarray | None:
        """Rows of the batch of each of the first steps."""
        return np.asarray(self.taken.rows[:steps], np.int32)

    def _counts(self) -> Array:
        copies = None if self.placement is None else self.placement.copies
        return as_part_of_process(self.taken.counts(self.others), copies)

    def prefetch(self) -> None:
        """Take the next batch, while the program of this one runs."""
        try:
            self._take()
        except Exception as error:  # whatever the source raises: the step that runs is to be finished first
            self.waiting = error

    def arrays(self) -> list[Array]:
        """The batch of the next step; what went wrong with it is raised here."""
        if self.waiting is not None:
            raise self.waiting
        return self.now

    def _take(self) -> None:
        batch = next(self.iterator, END)
        if batch is END and (again := iter(self.passes)) is not self.iterator:
            self.iterator = again
            batch = next(again, END)
        if batch is END:
            cure = "Pass a list, which is used again from its start, or take fewer steps."
            fail("batches", "one for each of the steps", f"{self.number}, and then an end", cure)
        name = f"batches[{self.number}]"
        layout = layout_of(name, batch := batch_tree(batch), self.first)
        for path, leaf in jax.tree_util.tree_leaves_with_path(batch) if self.first is None else ():
            check_digits(f"{name}{jax.tree_util.keystr(path)}", leaf)
        self.first = self.first or layout
        if self.look is not None:
            # The checks that the model makes of a batch, as it came and is not yet on the device; of the first they
            # are made where the model is traced.
            arrays = [leaf for leaf in jax.tree.leaves(with_batch(name, batch, *self.fixed)) if is_array(leaf)]
            owners = self.call.owners
            checks = [one for one in self.look.checks if not self.own.isdisjoint(owners[n] for n in one.numbers)]
            try:
                check_argument_values(self.look._replace(checks=checks), arrays)
            except (ValueError, TypeError) as error:
                error.add_note(f"In {name}.")
                raise
        rows, placement = self.first.rows, self.placement
        if placement is not None and self.number == 0:
            mine = set(map(str, placement.rows.addressable_devices_indices_map((placement.pieces,)).values()))
            placement.check_shares("the first of the batches", layout.rows, len(mine))
            cure = "Each process gives its part of a batch: cut it equally."
            placement.check_same("the first of the batches", "of as many rows", "rows", layout.rows, cure)
        if placement is not None and layout.rows < rows and len(placement.processes) > 1:
            cure = "Leave the last rows out, or fill the batch up with other rows."
            fail(name, f"of {rows} rows, as the first part of this process", f"{layout.rows} rows", cure)
        where = None if placement is None else placement.rows
        batch = jax.tree.map(lambda array: put_on_device(array, rows, where), batch)
        self.rows: int = jax.tree.leaves(batch)[0].shape[0]  # copies and the parts of other processes included
        self.call = call_of(self.model, *with_batch(name, batch, *self.fixed), self.static)
        # All batches have the structure of the first, and so its owners.
        self.own = set(batch) if isinstance(batch, dict) else {*self.call.owners[: len(jax.tree.leaves(batch))]}
        self.taken.add(layout.rows)
        self.others = self.rows - rows
        self.now = [*self.call.arrays, self._counts()]
        self.number += 1


# ----------------------------------------------------------------------------------------- data in pieces


def pieces_of(engine: Any, key: Array, call: Call, placement: Placement) -> Feed:
    """Data in pieces: all of them at every step, or the minibatch of the model's own plate."""
    rows = call.arrays[0].shape[0] if call.arrays and call.arrays[0].ndim else 0
    placement.check_shares("the data", rows)
    with_rows = [array.shape[:1] == (rows,) for array in call.arrays]
    found = look(engine.model, call) if callable(getattr(engine, "model", None)) else None
    batch = minibatch(found.sites, rows) if found is not None and placement.rows.spec else None
    if found is None or batch is None:
        return Feed(call, placement, placement.place(call.arrays, with_rows))
    if neighbours_in(call.arguments):
        placement.check_shares("the minibatch", batch)
        feed = Feed(call, placement, placement.place(call.arrays, [False] * len(with_rows)))
        feed.shared = RowsInPieces(batch, placement.rows)
        return feed
    drawn = Drawn(key, call, are_drawn(found, call, with_rows), batch, placement)
    seen = look(engine.model, call._replace(arrays=drawn.now[:-1]))
    shapes = [
        {name: site["fn"].shape() for name, site in sites.items() if is_latent(site) and not site["cond_indep_stack"]}
        for sites in (found.sites, seen.sites)
    ]
    if shapes[0] != shapes[1]:  # of latent sites outside of every plate
        cure = "Only data may be as long as the first array: give inducing inputs of their own to the model."
        fail("the data", f"all that has {rows} rows, where the model draws minibatches", "sites of that length", cure)
    drawn.part = BatchPart(plate_of(seen.sites, batch, rows), rows, batch)
    check_numbering(seen, drawn.part.plate, "data in pieces")
    return drawn


class Drawn(Feed):
    """Minibatches of data in pieces: at each step every device draws its share of its own rows, with no exchange.

    Rows come without replacement, each of a piece as likely as another (`ngp.guides.permuted_rows`), so that the terms
    of a batch, counted ``N / B`` times, are an unbiased estimate. Step k has the rows that the key of the fit has for
    step k: a resumed fit under the same key continues with them.
    """

    changes = True

    def __init__(self, key: Array, call: Call, with_rows: Sequence[bool], batch: int, placement: Placement) -> None:
        placement.check_shares("the minibatch", batch)
        self.call, self.placement = call, placement
        self.key, self.with_rows, self.batch = key, (*with_rows, False), batch
        self.whole = placement.place([*call.arrays, jnp.asarray([batch, 1, batch], np.int32)], self.with_rows)
        self.start(0)

    def start(self, step: int, rows: Sequence[int] | None = None) -> None:  # noqa: ARG002
        """Draw the minibatch of a step."""
        self.step = step
        cut = [array for array, has in zip(self.whole, self.with_rows, strict=True) if has]
        drawn = iter(_drawn_rows(cut, self.key, step, self.batch, self.placement))
        self.now = [next(drawn) if has else array for array, has in zip(self.whole, self.with_rows, strict=True)]

    def prefetch(self) -> None:
        """Draw the next minibatch, while the program of this one runs."""
        self.start(self.step + 1)


@partial(jax.jit, static_argnames=("batch", "placement"))
def _drawn_rows(arrays: list[Array], key: Array, step: Array, batch: int, placement: Placement) -> list[Array]:
    pieces = placement.pieces
    size, share = arrays[0].shape[0] // pieces, batch // pieces
    keys = jax.random.split(jax.random.fold_in(key, step), pieces)
    rows = jax.vmap(lambda key: permuted_rows(key, size, jnp.arange(share)))(keys)
    rows = jax.lax.with_sharding_constraint(rows, placement.rows)

    def of_each(array: Array) -> Array:
        taken = jax.vmap(lambda piece, rows: piece[rows])(array.reshape(pieces, size, *array.shape[1:]), rows)
        return jnp.asarray(jax.lax.with_sharding_constraint(taken.reshape(batch, *array.shape[1:]), placement.rows))

    return [of_each(array) for array in arrays]
