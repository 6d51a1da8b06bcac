"""What a fit calls its model with: the same data at every step, or the next batch of a stream."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array, Merge, is_array, split_arrays
from numpyro_gp.checks import check_count, fail
from numpyro_gp.guides.arguments import Arguments, Reading, check_values, reading
from numpyro_gp.guides.given_rows import GivenRows, refuse_own_parameters
from numpyro_gp.guides.setup import abstract_trace
from numpyro_gp.sites import Trace, in_plate, is_latent
from numpyro_gp.training.placement import Placement
from numpyro_gp.training.programs import fingerprint

END = object()


class Part(NamedTuple):
    """What the rows of a batch stand for: name of their plate, number N of all data, number of rows in a batch."""

    plate: str
    num_data: int
    rows: int


class Data(NamedTuple):
    """What all calls of a model in a fit have in common: how arrays become arguments, and what their rows stand for."""

    merge: Merge
    part: Part | None = None
    placement: Placement | None = None

    @contextmanager
    def opened(self, arrays: list[Array]) -> Iterator[tuple[tuple, dict]]:
        """Arguments of the model; inside the block its plate of data stands for all of them."""
        args, kwargs, *count = self.merge(arrays)
        with nullcontext() if self.part is None else GivenRows(*self.part, *count):
            yield args, kwargs

    @property
    def made_of(self) -> tuple[Any, ...]:
        """What a program of these calls has built in."""
        return fingerprint(self.merge.fixed, self.part), self.merge.structure, self.placement

    def placed(self, state: Any, steps: int) -> Any:
        """The state after some steps, as copies on every device of the fit."""
        if self.placement is None:
            return state
        self.placement.check_steps(steps)
        return self.placement.copied(state)

    @property
    def processes(self) -> list[int]:
        """The processes that take these steps together."""
        return [jax.process_index()] if self.placement is None else self.placement.processes


class Whole:
    """The same arrays at every step."""

    def __init__(self, arrays: list[Array]) -> None:
        self.now = arrays

    def start(self, step: int) -> None:
        """Go to the arrays of a step."""

    def prefetch(self) -> None:
        """Have the arrays of the next step made, while the program of this one runs."""

    def arrays(self) -> list[Array]:
        """The arrays of the next step."""
        return self.now


class Stream:
    """Batches of a source: each checked against the first, filled up to its rows and put on the device.

    Parameters
    ----------
    source : iterable, or callable ``step -> iterable``
        An iterator ends where it ends, any other iterable is gone through again and again. A callable is told how
        many steps were done before, each with a batch of its own.
    args, kwargs
        What the model is called with beside the batch.
    model : callable, optional
        What checks the values of the first batch while it is traced, and of the others here.
    """

    def __init__(
        self,
        source: Any,
        args: tuple,
        kwargs: dict[str, Any],
        placement: Placement | None = None,
        model: Callable[..., Any] | None = None,
    ) -> None:
        if not (callable(source) or hasattr(source, "__iter__")) or is_array(source) or isinstance(source, Mapping):
            required = "an iterable of batches, or a function of the number of steps done that returns one"
            cure = "A batch is a tuple of arrays, the model's first arguments, or a dictionary of arrays."
            fail("batches", required, f"a {type(source).__name__}", cure, TypeError)
        fixed, merge = split_arrays((args, kwargs))
        fixed = fixed if placement is None else placement.place(fixed, [False] * len(fixed))
        self.source, self.fixed, self.placement, self.model = source, merge(fixed), placement, model
        self.reading: Reading | None = None
        self.first: Layout | None = None
        self.waiting: Exception | None = None
        self.start(0)

    def start(self, step: int) -> None:
        """Go to the batch of a step, where the source can be asked for it."""
        if self.first is None or (step and callable(self.source)):
            self.passes = passes_of(self.source, step) if callable(self.source) else self.source
            self.iterator, self.number = iter(self.passes), step
            self._take()

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
            cure = "Pass batches that go on, or fewer steps."
            fail("batches", "as many as there are steps", f"an end after {self.number} of them", cure)
        name = f"batches[{self.number}]"
        layout = layout_of(name, batch := (batch,) if is_array(batch) else batch)
        self.first = self.first or layout
        check_like_first(name, layout, self.first)
        self._check_values(name, batch)
        rows, placement = self.first.rows, self.placement
        if placement is not None:
            self._check_parts(name, layout.rows, placement)
        where = None if placement is None else placement.rows
        batch = jax.tree.map(lambda array: filled(array, rows, where), batch)
        self.rows: int = jax.tree.leaves(batch)[0].shape[0]  # copies and the parts of other processes included
        call = with_batch(name, batch, *self.fixed)
        count = on_devices(np.int32(self.rows - rows + layout.rows), None if placement is None else placement.copies)
        self.now, self.merge = split_arrays((*call, count))
        self.number += 1

    def _check_values(self, name: str, batch: Any) -> None:
        """The checks that the model makes of a batch, but of the first, which is there when the model is traced."""
        if self.model is None or self.number == 0:
            return
        call = with_batch(name, batch, *self.fixed)
        arrays = [leaf for leaf in jax.tree.leaves(call) if is_array(leaf)]
        if self.reading is None:
            merge = split_arrays(call)[1]
            found = reading(self.model, lambda arrays: Arguments(*merge(arrays)), arrays)
            fixed = {id(leaf) for leaf in jax.tree.leaves(self.fixed)}
            held = {number for number, array in enumerate(arrays) if id(array) in fixed}
            self.reading = Reading([check for check in found.checks if not held.issuperset(check.numbers)], found.rows)
        try:
            check_values(self.reading, arrays)
        except (ValueError, TypeError) as error:
            error.add_note(f"In {name}.")
            raise

    def _check_parts(self, name: str, rows: int, placement: Placement) -> None:
        """Refuse a batch, or a process's part of it, that does not fill its devices as the others do."""
        first = self.first.rows
        if self.number == 0:
            placement.check_rows("the first of the batches", first, placement.own_pieces)
            cure = "Each process gives its part of a batch: cut it equally."
            placement.check_same("the first of the batches", "of as many rows", "rows", first, cure)
        if rows < first and len(placement.processes) > 1:
            cure = "Leave the rest out, or fill it up with other rows."
            fail(name, f"of {first} rows, as the first part of this process", f"{rows} rows", cure)


def passes_of(source: Callable[[int], Any], step: int) -> Any:
    """What a callable source returns for a step; refuse one that takes no step, or returns nothing to go through."""
    required = "a function of the number of steps done that returns an iterable of batches"
    try:
        inspect.signature(source).bind(step)
    except TypeError as error:
        fail("batches", required, f"one to which that cannot be given ({error})", "Write lambda step: ....", TypeError)
    except ValueError:  # no signature to be looked at
        pass
    passes = source(step)
    if not (hasattr(passes, "__iter__") or hasattr(passes, "__getitem__")):
        cure = "Return an iterable of tuples of arrays, or write a generator function."
        fail("batches", required, f"one that returns a {type(passes).__name__}", cure, TypeError)
    return passes


class Layout(NamedTuple):
    """What batches have in common, but for their rows: their structure, and types and columns of their arrays."""

    structure: Any
    arrays: dict[str, tuple[Any, tuple[int, ...]]]
    rows: int

    @property
    def longest(self) -> int:
        """No fewer than the rows, also where these stand behind an axis of members: ``(G, N, D)``."""
        return max([self.rows, *(columns[0] for _, columns in self.arrays.values() if len(columns) > 1)])


def layout_of(name: str, batch: Any) -> Layout:
    """The layout of a batch; refuse what is none, and arrays of no or of different rows."""
    leaves = jax.tree_util.tree_leaves_with_path(batch)
    if not isinstance(batch, (tuple, list, dict)) or not leaves or not all(is_array(leaf) for _, leaf in leaves):
        required = "a tuple of arrays, the model's first arguments, or a dictionary of arrays"
        kinds = sorted({type(leaf).__name__ for _, leaf in leaves if not is_array(leaf)})
        got = f"a {type(batch).__name__} of {', '.join(kinds) or 'nothing'}"
        fail(name, required, got, "Make NumPy arrays of numbers of what it holds.", TypeError)
    arrays = {jax.tree_util.keystr(path): leaf for path, leaf in leaves}
    rows = {place: array.shape[:1] for place, array in arrays.items()}
    if len(set(rows.values())) > 1 or () in rows.values():
        fail(name, "arrays with the same number of rows", f"rows {rows}", "Cut all of them alike.")
    if (0,) in rows.values():
        fail(name, "non-empty", "0 rows", "Leave empty batches out.")
    kinds = {place: (jnp.result_type(array), array.shape[1:]) for place, array in arrays.items()}
    return Layout(jax.tree.structure(batch), kinds, leaves[0][1].shape[0])


def check_like_first(name: str, layout: Layout, first: Layout) -> None:
    """Refuse a batch that the program of the first one cannot take."""
    cure = "All batches share one compiled program: give them the structure, types and columns of the first."
    if layout.structure != first.structure:
        fail(name, f"of the structure of the first batch, {first.structure}", layout.structure, cure, TypeError)
    for place, (dtype, columns) in first.arrays.items():
        if layout.arrays[place] != (dtype, columns):
            required = f"of {dtype} with rows of shape {columns}, as in the first batch"
            got = "{} with rows of shape {}".format(*layout.arrays[place])
            fail(f"{name}{place}", required, got, cure, TypeError)
    if layout.rows > first.rows:
        cure = "Begin with a full batch; only later ones may be shorter."
        fail(name, f"of at most {first.rows} rows, as the first batch", f"{layout.rows} rows", cure)


def filled(array: Any, rows: int, where: Any = None) -> Array:
    """An array on the devices with ``rows`` rows of this process: copies of the last one where it has fewer."""
    missing = rows - array.shape[0]
    # An array of this process alone is its part, as a NumPy array is.
    is_whole = where is None or getattr(array, "is_fully_addressable", True) == where.is_fully_addressable
    if isinstance(array, jax.Array) and is_whole and not missing:
        return jax.device_put(array, where)
    # A copy in any case: a source may write its next batch where this one stands, while a step reads it.
    return on_devices(np.concatenate([array, np.repeat(array[-1:], missing, axis=0)]), where)


def on_devices(values: Any, where: Any) -> Array:
    """Values of this process as its part of an array; one process has all of them."""
    return jax.device_put(values) if where is None else jax.make_array_from_process_local_data(where, values)


def with_batch(name: str, batch: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Arguments of the model: a tuple stands before the others, a dictionary among the keywords."""
    if not isinstance(batch, dict):
        return (*batch, *args), kwargs
    if twice := sorted(set(batch) & set(kwargs)):
        fail(name, "free of arguments that are given beside it", f"{twice}", "Leave them out of one of the two.")
    return args, {**kwargs, **batch}


# ------------------------------------------------------------------------------------- the plate of the data


def with_static(engine: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Keywords of a call of the model or guide, those that the engine itself adds included."""
    return {**kwargs, **(getattr(engine, "static_kwargs", None) or {})}


def model_trace(engine: Any, args: tuple, kwargs: dict[str, Any]) -> Trace:
    """Sites of an engine's model, none where it has no model."""
    model = getattr(engine, "model", None)
    return abstract_trace(model, args, with_static(engine, kwargs)) if callable(model) else {}


def data_part(engine: Any, args: tuple, kwargs: dict[str, Any], rows: int, num_data: int) -> Part:
    """The plate of the model that holds the rows of a batch: the one called "data", or the only one."""
    if not callable(getattr(engine, "model", None)):
        cure = "The plate of its data says what a batch stands for: use SVI, or ngp.stein.SVGD."
        fail("svi_or_stein", "an engine with a model where batches are given", type(engine).__name__, cure, TypeError)
    if rows > check_count("num_data", num_data):
        fail("num_data", f"the number of all data, {rows} or more", num_data, "Count the rows of all batches.")
    trace = model_trace(engine, args, kwargs)
    plates = {name: site["args"] for name, site in trace.items() if site["type"] == "plate"}
    found = [name for name, (size, held) in plates.items() if size == rows or (size, held) == (num_data, rows)]
    if len(found) != 1 and "data" not in found:
        required = f"one with a plate of the {rows} rows of a batch, called 'data' where there are others of that size"
        cure = 'Write numpyro.plate("data", len(X)); in a stream X is the batch.'
        fail("the model", required, f"plates {plates} (size, subsample_size)", cure)
    return Part("data" if "data" in found else found[0], num_data, rows)


def minibatch_of(trace: Trace, rows: int) -> int | None:
    """Rows of the minibatch that a model draws of its data; None where it takes them all."""
    sizes = [site["args"] for site in trace.values() if site["type"] == "plate"]
    drawn = {held for size, held in sizes if size == rows and held not in (None, size)}
    if len(drawn) > 1:
        fail("the model", "one with one size of minibatches", f"those of {sorted(drawn)} rows", "Use one data plate.")
    return next(iter(drawn), None)


def check_guide(engine: Any, data: Data, arrays: list[Array]) -> None:
    """Refuse a guide that holds latent sites of single data outside of their plate: they are of the first batch."""
    if data.part is None or not callable(getattr(engine, "guide", None)):
        return
    with data.opened(arrays) as (args, kwargs):
        kwargs = with_static(engine, kwargs)
        traces = [abstract_trace(function, args, kwargs) for function in (engine.model, engine.guide)]
    plate = data.part.plate
    local = [name for name, site in traces[0].items() if is_latent(site) and in_plate(site, plate)]
    for name in local:
        if name in traces[1] and not in_plate(traces[1][name], plate):
            refuse_own_parameters(f"the guide at site {name!r}", "one that stands outside of it", plate)
