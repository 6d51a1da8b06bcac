"""One look at a model: its sites, the values that it checks, and the arrays that it reads by the rows of a plate.

A program is traced for the shapes of its arguments, and a check of values that stands in the model is passed once. And
JAX takes the last row for every row that an array does not have. All of it is found in one trace of the model, in
which plates hold their first rows: nothing is computed and no object is changed.
"""

import operator
from collections.abc import Callable, Container, Iterable, Sequence, Set
from contextlib import suppress
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from numpyro import handlers
from numpyro.primitives import Messenger

from numpyro_gp.arrays import Model
from numpyro_gp.checks import fail, is_known, waiting_checks, when_known
from numpyro_gp.programs.handler_lock import alone, with_short_errors
from numpyro_gp.programs.private import Message, active_handlers
from numpyro_gp.programs.set_up import NEEDS_VALUES, Feasible, as_shapes
from numpyro_gp.programs.trace import as_function, needed, traced, written_out
from numpyro_gp.rows.batch_plates import BatchPlate
from numpyro_gp.rows.call import Call, note_neighbours
from numpyro_gp.rows.row_readers import Readers, RowFact
from numpyro_gp.sites import Trace


class ArgumentCheck(NamedTuple):
    """A check that a model makes of some of its arrays as they are, all rows in their order, or of what it makes of it.

    ``program`` computes that, where it follows from arrays that the model closes over, ``captured``, and these alone.
    ``passed`` has the arrays that were checked last, where there were any.
    """

    check: Callable[..., None]
    numbers: tuple[int, ...]
    program: Jaxpr | None
    captured: list[Any]
    passed: list[list[object]]

    def run(self, arrays: Sequence[object]) -> None:
        """Check other arrays than those that were looked at."""
        own, passed = [arrays[number] for number in self.numbers], self.passed
        if self.program is None:
            when_known(self.check, *own)
        elif all(map(is_known, (*own, *self.captured))):
            if passed and all(map(operator.is_, own, passed[0])):
                return
            with jax.ensure_compile_time_eval():  # numbers of known arrays, in a program that is being traced too
                made = as_function(self.program)(*self.captured, *own)
            self.check(*map(np.asarray, made))
            passed[:] = [own]  # as a whole, for other threads compare with it


class Look(NamedTuple):
    """What a model does with its arrays.

    Attributes
    ----------
    sites : dict
        Its statements by name, with their shapes.
    checks : list of ArgumentCheck
        Checks of values of its arrays.
    read : dict
        Number of an array that is read by the rows of a plate, to how many rows the plate has.
    captured : list of array
        Arrays that the model closes over and reads by the rows of a plate.
    readers : dict
        Number of an array that is read by the rows of plates, to their names.
    counted : set of str
        Plates whose rows the model takes for numbers: it computes with them, and does not only read arrays by them.
    repeated : dict
        As ``read``, without arrays that give zeros, or NaN, where there is no row, as ``jnp.take`` does.
    behind : set of int
        Numbers of arrays of which something is made that the rows of a plate read.
    looked_up : set of int
        Numbers of arrays that are read by other indices than rows, as a table is by codes.
    """

    sites: Trace
    checks: list[ArgumentCheck]
    read: dict[int, int]
    captured: list[Any]
    readers: dict[int, set[str]]
    counted: set[str]
    repeated: dict[int, int]
    behind: set[int]
    looked_up: set[int]


class FirstRows(Messenger):
    """Plates hold their first rows, 0, 1, 2, ...: these, how many, and the sizes of the plates."""

    def __init__(self, fn: Callable[..., object] | None = None) -> None:
        super().__init__(fn)
        self.held: dict[str, object] = {}
        self.indices: list[Any] = []
        self.sizes: list[int] = []
        self.names: list[str] = []
        # Where a batch stands for all data, its rows are all that a minibatch of the plate reads.
        self.is_batch = any(isinstance(handler, BatchPlate) for handler in active_handlers())

    def process_message(self, message: Message) -> None:
        if message["type"] == "plate":
            size, held = message["args"]
            held = self.held[message["name"]] = size if held is None else held
            if message["value"] is None:  # a minibatch: all others hold theirs already
                message["value"] = jnp.arange(held)
            self.indices.append(message["value"])
            self.sizes.append(held if self.is_batch else size)
            self.names.append(message["name"])


@alone
def look(model: Model, call: Call) -> Look:
    """What ``model`` does with the arguments of a call."""
    sites: dict[str, Any] = {}
    checks: list[Callable[..., None]] = []
    plates = FirstRows()

    def run(arrays: Sequence[object]) -> tuple[list[Any], list[Any]]:
        with waiting_checks() as waiting, handlers.block(), handlers.seed(rng_seed=0), Feasible(), plates:
            sites.update(as_shapes(call.run(handlers.trace(model).get_trace, arrays)))
        checks.extend(check for check, _ in waiting)
        indices, plates.indices = plates.indices, []  # no tracer is left behind
        return [values for _, values in waiting], indices

    try:
        closed, shapes = jax.make_jaxpr(run, return_shape=True)(list(call.arrays))
    except AttributeError as error:
        note_neighbours(error)
        raise
    program = written_out(closed)
    # The last results are the rows of plates, in their order.
    own = zip(plates.sizes, plates.names, strict=True)
    rows = dict(zip(reversed(program.jaxpr.outvars), reversed([*own]), strict=False))
    captured = range(-len(program.consts), 0)
    facts = Readers({var: plate for var, plate in rows.items() if not isinstance(var, Literal)})
    known = map(RowFact, (*captured, *range(len(call.arrays))))
    _, found = facts.follow(program.jaxpr, dict(zip((*program.jaxpr.constvars, *program.jaxpr.invars), known)))
    numbers = jax.tree.unflatten(jax.tree.structure(shapes), [fact.array for fact in found])[0]
    values, kept = iter(program.jaxpr.outvars), list[ArgumentCheck]()
    for check, of in zip(checks, numbers, strict=True):
        made = [next(values) for _ in of]
        if all(number is not None and number >= 0 for number in of):
            kept.append(ArgumentCheck(check, tuple(of), None, [], []))
        elif getattr(check, "follows", False) and (computed := _derived(program, made, rows)) is not None:
            kept.append(ArgumentCheck(check, *computed, []))
    read = {number: size for number, size in facts.read.items() if number >= 0}
    outside = [program.consts[number] for number in facts.read if number < 0]
    repeated = {number: size for number, size in facts.repeated.items() if number >= 0}
    read_by = needed(program.jaxpr, [var for var in facts.made if not isinstance(var, Literal)]).invars
    behind = {number for number, var in enumerate(program.jaxpr.invars) if var in read_by}
    return Look(sites, kept, read, outside, facts.readers, facts.counted, repeated, behind, facts.looked_up)


def _derived(
    closed: ClosedJaxpr, results: Sequence[object], rows: Container[object]
) -> tuple[tuple[int, ...], Jaxpr, list[Any]] | None:
    """Numbers of the arrays that some results follow from, and how; None where they follow from none of them.

    Nor where they depend on random numbers, as values of latent sites do here, or on which rows a plate holds.
    """
    program = closed.jaxpr
    part = needed(program, results)
    made = {var for equation in part.eqns for var in equation.outvars}
    names = [equation.primitive.name for equation in part.eqns]
    numbers = tuple(n for n, var in enumerate(program.invars) if var in part.invars)
    is_random = any("random" in name or "threefry" in name for name in names)
    if not numbers or is_random or any(var in rows for var in (*made, *part.invars)):
        return None
    captured = [value for var, value in zip(program.constvars, closed.consts, strict=True) if var in part.invars]
    return numbers, part, captured


# ---------------------------------------------------------------------------------------------- questions


def check_argument_values(found: Look, arrays: Sequence[object]) -> None:
    """The checks that the model makes of its arrays, of other values than it was traced with."""
    for check in found.checks:
        check.run(arrays)


def check_numbering(found: Look, plate: str, where: str) -> None:
    """Refuse a model that computes with the number of a row, where rows come in parts that are numbered anew."""
    if plate in found.counted:
        got, cure = "one that computes with the numbers of rows", "Pass the numbers as an array that has them by row."
        fail(f"the model of {where}", f"one that only reads arrays by the rows of plate {plate!r}", got, cure)


def check_behind(found: Look, call: Call, behind: Iterable[str], plate: str, where: str) -> None:
    """Refuse arrays beside a stream that the plate of its rows reads: every part of it would read the first rows."""
    for name in behind:
        numbers = [number for number, owner in enumerate(call.owners) if owner == name]
        if any(plate in found.readers.get(number, ()) for number in numbers):
            required = f"an array of {where}, as plate {plate!r} reads it by its rows"
            fail(name, required, "one argument for all of them", f"Put its rows into each of the {where}.")


def check_row_counts(found: Look, call: Call) -> None:
    """Refuse an array that a model reads by the rows of a plate and that has fewer, or more than the data observed."""
    for number, count in found.repeated.items():
        held = jnp.shape(call.arrays[number])[0]
        if held < count:
            cure = "Pass one row for each datum: JAX would repeat the last one."
            required = f"of {count} rows or more, as the plate that reads it"
            fail(call.owners[number], required, f"{held} rows", cure)
    observed = (site for site in found.sites.values() if site["type"] == "sample" and site["is_observed"])
    check_rows_of_data(found, call, {frame.name for site in observed for frame in site["cond_indep_stack"]})


def check_rows_of_data(found: Look, call: Call, plates: Set[str], total: int | None = None) -> None:
    """Refuse an array that plates of data read by their rows alone and that has more: which of them is not said.

    The plates have ``total`` rows, by default those that were looked at.
    """
    for number, size in found.read.items():
        names, held = found.readers[number], jnp.shape(call.arrays[number])[0]
        is_known = number in found.looked_up or names & found.counted  # as by a model of differences, ``y[rows + 1]``
        if names & plates and not is_known and held > (size if total is None else total):
            required = f"of {size if total is None else total} rows, as the plate that reads it"
            cure = "Pass one row for each datum, those of other data left out."
            fail(call.owners[number], required, f"{held} rows", cure)


def are_drawn(found: Look, call: Call, as_long: Sequence[bool]) -> list[bool]:
    """Which arrays have the rows of the minibatch: all as long as the data, but tables that codes read stay whole.

    One that rows of a plate read too, or what is made of it, is refused.
    """
    tables = {number for number in found.looked_up if number >= 0 and as_long[number]}
    if both := tables & (found.read.keys() | found.behind):
        required = "read by rows of the plate alone, or by other indices alone, where it is as long as the data"
        cure = "Give the model the rows that it looks up as an array of their own, or the table a row more."
        fail(call.owners[min(both)], required, "an array that is read by both", cure)
    return [is_long and number not in tables for number, is_long in enumerate(as_long)]


@with_short_errors
def check_rows_of(model: Model, call: Call) -> None:
    """Refuse arguments with other rows than their plates, for a model that is about to run, unless it needs values."""
    with suppress(*NEEDS_VALUES):
        check_row_counts(look(model, call), call)


def plate_of(sites: Trace, rows: int, num_data: int) -> str:
    """The plate of a model that holds the rows of a batch: the one called "data", or the only one."""
    plates = {name: site["args"] for name, site in sites.items() if site["type"] == "plate"}
    found = [name for name, (size, held) in plates.items() if size == rows or (size, held) == (num_data, rows)]
    if len(found) != 1 and "data" not in found:
        required = f"one with a plate of the {rows} rows of a batch, called 'data' where there are others of that size"
        cure = 'Write numpyro.plate("data", len(X)); in a stream X is the batch.'
        fail("the model", required, f"plates {plates} (size, subsample_size)", cure)
    return "data" if "data" in found else found[0]


def minibatch(sites: Trace, rows: int) -> int | None:
    """Rows of the minibatch that a model draws of its data; None where it takes them all."""
    sizes = [site["args"] for site in sites.values() if site["type"] == "plate"]
    drawn = {held for size, held in sizes if size == rows and held not in (None, size)}
    if len(drawn) > 1:
        cure = "Put all data into one plate."
        fail("the model", "one with one size of minibatches", f"those of {sorted(drawn)} rows", cure)
    return next(iter(drawn), None)


def without_whole_gathers(function: Callable[..., object]) -> Callable[..., object]:
    """The same function, without the gathers of all rows of an array in their order.

    A model that indexes its data by its plate does so too where the plate holds all that it is given. The compiler does
    not see that this changes nothing, and for data in pieces on several devices it sends all rows to all of them.
    """

    def run(*arguments: object) -> Any:
        found = traced(function, *arguments)
        program, _ = Readers({}).follow(found.program, {})
        results = as_function(program)(*found.constants, *jax.tree.leaves(arguments))
        return jax.tree.unflatten(found.structure, results)

    return run
