"""Predictions of inputs that come one after the other: one trace of the model, one program, one factorisation.

Of a model called without its data, and of a process that its model conditions on them.
"""

import copy
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array, ArrayLike, split_arrays
from numpyro_gp.checks import check_count, check_floating, check_key, check_points, check_positive, fail, known
from numpyro_gp.guides.other_sites import data_plates
from numpyro_gp.kernels.functionals import Functional
from numpyro_gp.neighbours.value import JointRows, Neighbours, NewRows, neighbours_in
from numpyro_gp.posterior import tracing
from numpyro_gp.posterior.chunks import Reused, predict_chunks, warn_of_one_piece
from numpyro_gp.posterior.conditioned import conditioned_observation
from numpyro_gp.posterior.function_set import drawn_together
from numpyro_gp.posterior.near import FEW_DRAWS, finder_of, joint_rows_of, processes_of
from numpyro_gp.posterior.prediction import Prediction
from numpyro_gp.posterior.sources import Source
from numpyro_gp.posterior.stream import LineStream
from numpyro_gp.posterior.tracing import Fitted
from numpyro_gp.primitives.lines.value import Line, NewTimes, lines_in, with_rows
from numpyro_gp.primitives.neighbours.local_process import LocalProcess
from numpyro_gp.primitives.process import GaussianProcess
from numpyro_gp.programs.trace import is_traced
from numpyro_gp.rows.batches import BatchLayout, batch_tree, layout_of, row_axes, rows_to_cut, with_batch
from numpyro_gp.rows.call import Arguments, Call, call_of
from numpyro_gp.rows.model_trace import (
    check_argument_values,
    check_behind,
    check_numbering,
    check_row_counts,
    check_rows_of_data,
)
from numpyro_gp.sites import Observation, in_plate, in_scan, unwrap

# --------------------------------------------------------------------------------------
# A posterior at new data: predictions row by row, of conditioned processes, and functions drawn jointly.


class Plan(NamedTuple):
    """What a prediction is to compute: the look at the model, and the site that is predicted.

    ``named``: arguments with one row for each datum, where they were named. ``rows``: the plates of single rows of the
    data, and ``in_scan`` whether some of what is drawn for them is in a scan. ``place``: of data with further axes that
    of their rows, and of the rows in one of the arrays, by its number.
    """

    posterior: Fitted
    named: Sequence[str] | None
    view: tracing.View
    site: str
    rows: frozenset[str]
    in_scan: bool
    place: tuple[int, int, int] | None


def plan_of(posterior: Fitted, call: Call, rows: Sequence[str] | None, site: str | None, new: Sequence[str]) -> Plan:
    """Look at the model, called with new data; refuse what it cannot predict."""
    for argument, value in call.arguments.items():
        if isinstance(value, Neighbours):  # what is new is near to other rows
            cure = f"Pass {argument}.find(X_new, 256). Of a gp_regression call "
            cure += f"posterior.predict_at(key, X_new, {argument}, y)."
            fail(argument, "new rows where they are predicted", "the neighbours of a fit", cure, TypeError)
    numbers = call.numbers(rows)  # refused before the model runs
    plates_of = lambda sites: data_plates(sites, tracing.data_site(sites, site)) | set(new)  # noqa: E731
    view = tracing.look_again(posterior, call, plates_of, new)
    sites = view.found.sites
    name = tracing.data_site(sites, site)
    for plate in sorted(view.plates or ()):  # a prediction has all rows, in their order
        size, held = sites[plate]["args"]
        if held not in (None, size):
            got = f"{held} of {size} rows at random, in plate {plate!r}"
            cure = "Pass None for the argument that sets its subsample_size, as batch=None."
            fail("args and kwargs", "arguments with which the model holds all rows", got, cure)
    check_row_counts(view.found, call)
    if not (batch := unwrap(sites[name]["fn"]).batch_shape):
        cure = 'Observe them in a plate: with numpyro.plate("data", len(X)).'
        fail(f"the data of site {name!r}", "of rows, in a plate", "one number", cure)
    axis, _, places = row_axes(call.arrays, numbers, batch)
    first = min(numbers)
    place = (axis, first, places[first]) if len(batch) > 1 and first in places else None
    # Single rows are in the plate of the data, or in others of as many rows.
    sizes, own = {n: held["args"][0] for n, held in sites.items() if held["type"] == "plate"}, data_plates(sites, name)
    as_long = {n for n, size in sizes.items() if size in {sizes[one] for one in own} and n not in new}
    drawn = [s for s in sites.values() if tracing.is_unknown(s) and in_scan(s) and tracing.is_local(s, view.plates)]
    is_in_scan = any(in_plate(one, n) for one in drawn for n in own | as_long)
    return Plan(posterior, rows, view, name, own | as_long, is_in_scan, place)


def predict_rows(
    plan: Plan,
    key: Array,
    call: Call,
    num_samples: int | None,
    chunk_size: int,
    first: int | None = None,
    known: Reused | None = None,
) -> Prediction:
    """Predict the data site of a model called without its data; the arguments are those of `Posterior.predict`.

    ``first``: of rows that are a part of more, how many come before; ``known``: what their parts share.
    """
    posterior, found = plan.posterior, plan.view.found
    check_argument_values(found, call.arrays)
    index = posterior.spread(num_samples, plan.view.is_random)
    batch = unwrap(found.sites[plan.site]["fn"]).batch_shape
    if plan.place is not None:  # as many rows as were looked at, or others
        at, number, row_axis = plan.place
        batch = (*batch[:at], call.arrays[number].shape[row_axis], *batch[at + 1 :])
    axis, total, places = rows_to_cut(found, call, plan.named, batch, chunk_size)
    frames = found.sites[plan.site]["cond_indep_stack"]
    check_rows_of_data(found, call, {frame.name for frame in frames if frame.dim == axis - len(batch)}, total)
    part = {number: call.arrays[number] for number in places}
    rest = {number: array for number, array in enumerate(call.arrays) if number not in places}

    def one_draw(
        fixed: tuple[Source, dict[int, Array]], draw: tracing.Draw, part: tuple[dict[int, Array], Array]
    ) -> Observation:
        arrays = {**fixed[1], **part[0]}
        own = call.at([arrays[number] for number in range(len(arrays))])
        chunk = tracing.OfChunk(plan.rows, plan.in_scan, part[1])
        return unwrap(tracing.trace_at(posterior.at(fixed[0]), draw, own, plan.view.plates, chunk)[plan.site]["fn"])

    size = chunk_size if places else total  # no array has rows: in one piece
    if known is not None and not places:
        known.prepared = None  # what was made of the arrays of the call before
    if size < total and (counted := sorted(plan.rows & found.counted)):
        warn_of_one_piece(total, size, f"it computes with the numbers of the rows of plate {counted[0]!r}")
        size = total
    fixed, draws = (posterior.source, rest), (key, index)
    chunks = predict_chunks(one_draw, fixed, draws, part, total, size, places, first, known)
    # Under one key the noise of other data sites is another, and all else is the same.
    has_others = sum(isinstance(unwrap(site.get("fn")), Observation) for site in found.sites.values()) > 1
    return Prediction.of_chunks(chunks, key, axis, first, plan.site if has_others else None)


FEWEST_DRAWS, MOST_DRAWS, DATA_OF_EACH_ROW = 100, 10_000, 8


def predict_within(tolerance: float, predict: Callable[[int], Prediction], most: int | None) -> Prediction:
    """Predict with as many draws as the error of the log density asks for (mathematics.md section 11.1), at ``most``.

    The error is the root of its mean square over rows and data that are drawn from the prediction itself.
    """
    check_positive("tolerance", tolerance)
    most = MOST_DRAWS if most is None else check_count("num_samples", most)
    count = min(FEWEST_DRAWS, most)
    while True:
        prediction = predict(count)
        errors = [prediction.log_density_error(y) for y in prediction.sample(DATA_OF_EACH_ROW)]
        error = float(jnp.sqrt(jnp.mean(jnp.stack(errors) ** 2)))
        draws = prediction.num_draws  # fewer than were asked for where no more are stored, or nothing is random
        if error <= tolerance:
            return prediction
        wanted = math.ceil(draws * min(error / tolerance, 100) ** 2)
        if draws < count or count == most:
            message = f"The log density of a datum has a standard error of {error:.2g} nats with {draws} draws, above "
            cure = f"tolerance={tolerance}. About {wanted} draws would do: pass num_samples=, or sample longer chains."
            warnings.warn(message + cure, stacklevel=3)
            return prediction
        count = min(max(wanted + wanted // 10, 2 * count), 16 * count, most)


def draw_functions(
    posterior: Fitted,
    key: Array,
    X: object,
    call: Call,
    gp: str | None,
    num_samples: int | None,
    neighbours: int | None = None,
) -> Array:
    """Functions drawn jointly at the rows of ``X``; the arguments are those of `Posterior.function_draws`."""
    view = tracing.plates_at(posterior, call)
    asked, index = tracing.AskedProcess(posterior, call, view.plates, gp), posterior.spread(num_samples, is_random=True)
    if neighbours_in(call.arguments) and not isinstance(X, Functional):
        if (rows := joint_rows_of(asked, key, X, index, neighbours)) is not None:
            each = index if view.is_random else index[:1]  # of draws that do not differ blocks are factored once
            times = index.size // len(each)

            def local(process: LocalProcess, draw: tracing.Draw, rows: JointRows) -> Array:
                return drawn_together(process, rows, tracing.key_of(draw[0], process.name), times)

            return asked.at_each(local, tracing.draws_of(key, each), rows).reshape(index.size, -1)
    elif neighbours is not None:
        cure = "Leave it out, or pass rows of inputs and the neighbours of the fit."
        fail("neighbours", "left out where there are none among the arguments of the model", neighbours, cure)

    if not isinstance(X, Functional) and (on_line := _line_of(asked, key, index)) is not None:
        if isinstance(X, NewRows):
            fail("X", "times", f"a {type(X).__name__}", "Pass the times themselves.", TypeError)
        new = np.asarray(X)

        def along(process: LocalProcess, draw: tracing.Draw, rows: NewRows, both: Line) -> Array:
            drawn: Array = process.data.drawn(tracing.key_of(draw[0], process.name), rows, both)
            return drawn

        found: Array = asked.at_each(along, tracing.draws_of(key, index), on_line.find(new), with_rows(on_line, new))
        _refuse_before_origin(found)
        return found

    def one(process: GaussianProcess, draw: tracing.Draw, X: Functional | Array) -> Array:
        drawn = process.sample_jointly(tracing.key_of(draw[0], process.name), X)
        return drawn if process.outputs is None else jnp.swapaxes(drawn, -1, -2)

    X = X if isinstance(X, Functional) else check_points("X", X, leading=True)
    drawn: Array = asked.at_each(one, tracing.draws_of(key, index), X)
    values = known(drawn)
    if values is not None and (lost := int(np.isnan(values).reshape(len(values), -1).any(axis=1).sum())):
        got = f"{lost} of {len(values)} draws that are no number at {X.shape[-2]} inputs in {drawn.dtype}"
        cure = "Take posterior.functions(key, ...), which factorises nothing there, fewer inputs, or float64."
        fail("X", "of inputs at which the posterior covariance has a Cholesky factor", got, cure)
    return drawn


class Predictor:
    """What `Posterior.predictor` returns: call it with new inputs, as often as you like.

    The first call looks at the model, compiles and factorises, and of a process by neighbours keeps what finds them.
    Later ones multiply: they take inputs of the same types and columns, of no more rows, and predict under the same
    draws of the posterior. What the model reads outside of its arguments is as it was at the first call. All calls have
    one key: the same inputs give the same numbers, and row n of each call has the noise of row n of the others, in
    `Prediction.sample` too where that is given no key. Threads may share it: one at a time looks at the model, and
    later calls wait for nobody.

    Parameters
    ----------
    key, chunk_size
        As in `Posterior.predict`.
    predict : callable
        Of the key, what it left at the call before, a name for the inputs and these, how many rows come before them,
        rows of a chunk, and what chunks share: the prediction, and what it leaves for the next call.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> def model(X, y=None):
    ...     f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.5), jnp.array([[0.0], [1.0]]))
    ...     with numpyro.plate("data", len(X)):
    ...         ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)
    >>> posterior = ngp.Posterior.from_mcmc(model, {"f": jnp.zeros((3, 2))})
    >>> predictor = posterior.predictor(jax.random.key(0))
    >>> [predictor(jnp.array([[x]])).mean.tolist() for x in (0.0, 0.5)]
    [[0.0], [0.0]]
    """

    def __init__(
        self,
        key: Array,
        chunk_size: int,
        predict: Callable[..., tuple[Prediction, object]],
        follow: Callable[[Array], LineStream] | None = None,
    ) -> None:
        self._key, self._size = check_key("key", key), check_count("chunk_size", chunk_size)
        self._predict, self._reused, self._follow = predict, Reused(), follow
        self._first: BatchLayout | None = None
        self._kept: object = None

    def __call__(self, *inputs: object, **named: object) -> Prediction:
        """Predict at new inputs: the model's first arguments, or any of them by name; of a process its rows.

        Of a process ``noise_variance`` and ``offset`` are those of `predict_at`. On a line a time may be given alone.
        """
        if self._follow is not None:  # lists and numbers, too, which a batch of arrays has none of
            inputs = tuple(np.atleast_1d(X) if isinstance(X, (list, tuple)) or np.isscalar(X) else X for X in inputs)
        return self._at("inputs", inputs, 0, **named)[0] if inputs else self._at("inputs", named, 0)[0]

    def observe(self, t: ArrayLike, y: ArrayLike, noise_variance: ArrayLike | None = None) -> LineStream:
        """Go on with later data of a `gp_regression` on a line, each in constant time, and predict what is behind them.

        That is of what is returned: this predictor filters all rows of the fit, at every call. Draws of the
        hyper-parameters stay as they are.
        """
        if self._follow is None:
            cure = "Fit with more rows, or condition on them: predict_at(key, X_new, *all_data)."
            fail("a predictor that takes data", "one of a gp_regression on a line", "another one", cure, TypeError)
        return self._follow(self._key).observe(t, y, noise_variance)

    def once(self, *inputs: object, **others: object) -> Prediction:
        """Predict inputs without a trace of other calls, and leave none."""
        return self._predict(self._key, None, "inputs", inputs, None, self._size, Reused(), **others)[0]

    def each(self, chunks: Iterator[object], **others: object) -> Iterator[Prediction]:
        """Predictions of a stream of arrays or batches, made when they are asked for, with rows numbered throughout."""
        start, self._reused.is_stream = 0, True
        for number, chunk in enumerate(chunks):
            found, length = self._at(f"chunks[{number}]", batch_tree(chunk), start, **others)
            yield found
            start += length

    def _at(self, name: str, inputs: object, start: int, **others: object) -> tuple[Prediction, int]:
        layout = layout_of(name, inputs, None if is_traced() else self._first)
        first, reused = self._first or layout, copy.copy(self._reused)
        size = min(self._size, first.longest)
        found, kept = self._predict(self._key, self._kept, name, inputs, start, size, reused, **others)
        # Kept once it has worked: a call that is refused leaves no mark on those after it. Inside a program of JAX
        # arrays are that program's, and do not outlive it.
        if not is_traced():
            self._first, self._reused, self._kept = first, reused, kept
        return found, layout.longest


def predictor_of_model(
    posterior: Fitted,
    key: Array,
    behind: Arguments,
    site: str | None,
    num_samples: int | None,
    chunk_size: int,
    new: tuple[str, ...],
) -> Predictor:
    """Of a model called without its data: ``behind`` are its arguments behind those of each call."""

    def predict(
        key: Array, kept: Any, name: str, inputs: Any, start: int | None, size: int, reused: Reused, **named: object
    ) -> tuple[Prediction, object]:
        if named:
            cure = "Name all of them: predictor(X=X_new, exposure=exposure)."
            fail(name, "all in their places or all named", f"{sorted(named)} beside others in their places", cure)
        plan, before = kept or (None, None)
        if before is None or isinstance(inputs, dict):
            call = call_of(posterior.model, *with_batch(name, inputs, *behind))
        else:  # other arrays in the first places of the call before, which has read the model's signature
            arrays = jax.tree.leaves(inputs)
            call = before._replace(arrays=[*arrays, *before.arrays[len(arrays) :]])
        rows = tuple(inputs) if isinstance(inputs, dict) else tuple(call.arguments)[: len(inputs)]
        plan = plan or plan_of(posterior, call, rows, site, new)
        others = [name for name in call.arguments if name not in (plan.named or ())]
        for plate in sorted(plan.rows) if reused.is_stream else ():
            check_numbering(plan.view.found, plate, "rows that come in parts")
            check_behind(plan.view.found, call, others, plate, "inputs of the stream")
        return predict_rows(plan, key, call, num_samples, size, start, reused), (plan, call)

    return Predictor(key, chunk_size, predict)


def predictor_of_process(
    posterior: Fitted,
    key: Array,
    call: Call,
    gp: str | None,
    num_samples: int | None,
    chunk_size: int,
    neighbours: int | str | None,
) -> Predictor:
    """Of a process that its model, called with its data, conditions on them: what `Posterior.predict_at` says."""
    if neighbours not in (None, "auto"):
        if isinstance(neighbours, str):
            fail(
                "neighbours", "a number or 'auto'", repr(neighbours), "Pass neighbours='auto', or a number such as 256."
            )
        neighbours = check_count("neighbours", neighbours)
    view = tracing.plates_at(posterior, call)
    asked = tracing.AskedProcess(posterior, call, view.plates, gp, conditioned=True)
    few = FEW_DRAWS if view.is_random and num_samples is None and neighbours_in(call.arguments) else num_samples
    index = posterior.spread(few, view.is_random)
    on_line = _line_of(asked, key, index)

    def predict(
        key: Array,
        kept: Any,
        name: str,
        inputs: Any,
        start: int | None,
        size: int,
        reused: Reused,
        noise_variance: ArrayLike | None = None,
        offset: ArrayLike | Sequence[ArrayLike | None] | None = None,
    ) -> tuple[Prediction, object]:
        inputs = (inputs["X"],) if isinstance(inputs, dict) and set(inputs) == {"X"} else inputs
        if not isinstance(inputs, tuple) or len(inputs) != 1:
            cure = "Make it give the new rows alone: (X for X, _ in batches)."
            fail(name, "one array of new rows", f"a {type(inputs).__name__} of {len(inputs)}", cure, TypeError)
        (X,) = inputs
        if not isinstance(X, (Functional, NewRows)):
            X = check_points("X", X, leading=True) if on_line is None else on_line.find(X)
        elif isinstance(X, NewTimes) and on_line is not None:
            on_line.check_found(X)
        # Neighbours are found before anything is traced.
        finder, before = kept or (finder_of(asked, key, X, index, neighbours), None)
        X = X if finder is None else finder(X)
        # Of rows without neighbours the program itself finds them.
        start, reused = (None, Reused()) if is_traced() else (start, reused)
        # Rows of functionals are cut as those of inputs are, and so are the neighbours of rows.
        arrays, whole = split_arrays(X)
        rows = {f"X{number}": array for number, array in enumerate(arrays)}
        places, shape = tuple(rows), arrays[0].shape[:-1]
        if noise_variance is not None:
            rows["noise_variance"] = jnp.broadcast_to(check_positive("noise_variance", noise_variance), shape)
        if offset is not None:
            rows["offset"] = _of_each_row(offset, shape)
        if before != (given := tuple(rows)):
            reused.of_chunks = reused.prepared = None  # the program of a call that was given others

        def one_draw(
            fixed: tuple[Source, list[Array]], draw: tracing.Draw, part: tuple[dict[str, Array], object]
        ) -> Observation:
            process = asked.at(posterior.at(fixed[0]), draw, fixed[1])
            own = whole([part[0][place] for place in places])
            return conditioned_observation(process, own, part[0].get("noise_variance"), part[0].get("offset"))

        fixed, axes = (posterior.source, call.arrays), dict.fromkeys(rows, len(shape) - 1)
        chunks = predict_chunks(one_draw, fixed, (key, index), rows, shape[-1], size, axes, start, reused)
        prediction = Prediction.of_chunks(chunks, key, -1, start, gp)
        _refuse_before_origin(prediction.function_mean if isinstance(X, NewTimes) else None)
        return prediction, (finder, given)

    follow = None if on_line is None else partial(LineStream.behind, asked, index, on_line)
    return Predictor(key, chunk_size, predict, follow)


def _line_of(asked: tracing.AskedProcess, key: Array, index: np.ndarray) -> Line | None:
    """The line among the arguments of a model on which a process stands, None without; new rows of several are refused.

    The model may have other processes, on inputs or on lines of their own.
    """
    lines, posterior, call = lines_in(asked.call.arguments), asked.posterior, asked.call
    if not lines:
        return None
    draw = jax.tree.map(lambda leaf: leaf[0], tracing.draws_of(key, index[:1]))
    found = list[int]()

    def note(arrays: list[Array]) -> None:
        for process in processes_of(asked.at(posterior, draw, arrays)):
            near = process.data.near if isinstance(process, LocalProcess) else None
            places = [n for n, array in enumerate(arrays) if isinstance(near, Line) and array is near.order]
            same = [n for n, line in enumerate(lines) if any(call.arrays[place] is line.order for place in places)]
            found.extend(same[:1] if same or not isinstance(near, Line) else range(len(lines)))

    jax.eval_shape(note, call.arrays)
    if len(of := sorted(set(found))) > 1:
        got, cure = f"{len(of)}", "Give each line a model of its own, or name a process: gp='f'."
        fail("the lines on which the process stands", "one, where new rows are predicted", got, cure)
    return lines[of[0]] if of else None


def _refuse_before_origin(values: ArrayLike | None) -> None:
    """Refuse times before the origin of a walk on a line, and codes of no series, of which a kernel gives no number."""
    found = None if values is None else known(values)
    if found is not None and np.isnan(found).any():
        cure = (
            "Pass codes of the fit, later times or an earlier origin= to the kernel; in single precision try float64."
        )
        required = "at or behind the origin of the kernel, and of series that it has"
        fail("X", required, "rows whose moments are no numbers", cure)


def _of_each_row(offset: ArrayLike | Sequence[ArrayLike | None], shape: tuple[int, ...]) -> Array:
    """An offset for each new row, or one of each latent function on the last axis."""
    if isinstance(offset, (tuple, list)):
        return jnp.stack([_of_each_row(0.0 if one is None else one, shape) for one in offset], axis=-1)
    given = check_floating("offset", offset)
    if given.shape not in ((), shape):
        cure = "Pass one number for each row of X."
        fail("offset", f"a number or of shape {shape}", f"shape {given.shape}", cure)
    return jnp.broadcast_to(given, shape)
