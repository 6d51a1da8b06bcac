"""A posterior at new data: predictions row by row, of conditioned processes, and functions drawn jointly."""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array
from numpyro_gp.checks import check_count, check_points, check_positive, fail, known
from numpyro_gp.kernels.functionals import Functional
from numpyro_gp.neighbours.value import JointRows, neighbours_in
from numpyro_gp.posterior import tracing
from numpyro_gp.posterior.chunks import Reused, predict_chunks, warn_of_one_piece
from numpyro_gp.posterior.fitted import Fitted
from numpyro_gp.posterior.local_functions import drawn_together
from numpyro_gp.posterior.near import joint_rows_of, refuse_old_rows
from numpyro_gp.posterior.prediction import Prediction
from numpyro_gp.posterior.sources import Source
from numpyro_gp.primitives.neighbours.local_process import LocalProcess
from numpyro_gp.primitives.process import GaussianProcess
from numpyro_gp.rows.batches import row_axes, rows_to_cut
from numpyro_gp.rows.call import Call
from numpyro_gp.rows.model_trace import Look, check_argument_values, check_row_counts
from numpyro_gp.sites import Observation, unwrap


class Plan(NamedTuple):
    """What a prediction is to compute: the look at the model, its site, its plates, and whether draws differ there.

    ``named``: arguments with one row for each datum, where they were named. ``rows``: what the model draws for single
    rows of the data. ``place``: of data with further axes that of their rows, and of the rows in one of the arrays, by
    its number.
    """

    posterior: Fitted
    named: Sequence[str] | None
    found: Look
    site: str
    plates: frozenset[str]
    is_random: bool
    rows: tracing.DrawnRows
    place: tuple[int, int, int] | None

    @property
    def has_others(self) -> bool:
        """Whether the model has other data sites: under one key their noise is another, and all else is the same."""
        return sum(isinstance(unwrap(site.get("fn")), Observation) for site in self.found.sites.values()) > 1

    def batch(self, call: Call) -> tuple[int, ...]:
        """Shape of the data of a call like the one that was looked at, with as many rows or others."""
        batch: tuple[int, ...] = unwrap(self.found.sites[self.site]["fn"]).batch_shape
        if self.place is None:
            return batch
        axis, number, own = self.place
        return (*batch[:axis], call.arrays[number].shape[own], *batch[axis + 1 :])


def plan_of(posterior: Fitted, call: Call, rows: Sequence[str] | None, site: str | None, new: Sequence[str]) -> Plan:
    """Look at the model, called with new data; refuse what it cannot predict."""
    refuse_old_rows(call)
    numbers = call.numbers(rows)  # refused before the model runs
    found = tracing.look_again(posterior, call, new)
    name = tracing.data_site(found.sites, site)
    data = tracing.new_data(posterior, call, found.sites, name, new)
    for plate in sorted(data.plates):  # a prediction has all rows, in their order
        size, held = found.sites[plate]["args"]
        if held not in (None, size):
            got = f"{held} of {size} rows at random, in plate {plate!r}"
            cure = "Pass None for the argument that sets its subsample_size, as batch=None."
            fail("args and kwargs", "arguments with which the model holds all rows", got, cure)
    check_row_counts(found, call)
    if not (batch := unwrap(found.sites[name]["fn"]).batch_shape):
        cure = 'Observe them in a plate: with numpyro.plate("data", len(X)).'
        fail(f"the data of site {name!r}", "of rows, in a plate", "one number", cure)
    axis, _, places = row_axes(call.arrays, numbers, batch)
    first = min(numbers)
    place = (axis, first, places[first]) if len(batch) > 1 and first in places else None
    return Plan(posterior, rows, found, name, *data, tracing.drawn_rows_of(found.sites, name, data.plates, new), place)


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
    posterior = plan.posterior
    check_argument_values(plan.found, call.arrays)
    index = posterior.spread(num_samples, plan.is_random)
    axis, total, places = rows_to_cut(plan.found, call, plan.named, plan.batch(call), chunk_size)
    part = {number: call.arrays[number] for number in places}
    rest = {number: array for number, array in enumerate(call.arrays) if number not in places}

    def one_draw(
        fixed: tuple[Source, dict[int, Array]], draw: tracing.Draw, part: tuple[dict[int, Array], Array]
    ) -> Observation:
        arrays = {**fixed[1], **part[0]}
        own = call.at([arrays[number] for number in range(len(arrays))])
        chunk = tracing.OfChunk(plan.rows, part[1])
        return unwrap(tracing.trace_at(posterior.at(fixed[0]), draw, own, plan.plates, chunk)[plan.site]["fn"])

    size = chunk_size if places else total  # no array has rows: in one piece
    if known is not None and not places:
        known.prepared = None  # what was made of the arrays of the call before
    if size < total and (counted := sorted(plan.rows.plates & plan.found.counted)):
        warn_of_one_piece(total, size, f"it computes with the numbers of the rows of plate {counted[0]!r}")
        size = total
    fixed, draws = (posterior.source, rest), (key, index)
    chunks = predict_chunks(one_draw, fixed, draws, part, total, size, places, first, known)
    return Prediction.of_chunks(chunks, key, axis, first, plan.site if plan.has_others else None)


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
    plates, is_random = tracing.plates_at(posterior, call)
    asked, index = tracing.AskedProcess(posterior, call, plates, gp), posterior.spread(num_samples, is_random=True)
    if neighbours_in(call.arguments) and not isinstance(X, Functional):
        if (rows := joint_rows_of(asked, key, X, index, neighbours)) is not None:
            return _local_draws(asked, key, rows, index, is_random)
    elif neighbours is not None:
        cure = "Leave it out, or pass rows of inputs and the neighbours of the fit."
        fail("neighbours", "left out where there are none among the arguments of the model", neighbours, cure)

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


def _local_draws(asked: tracing.AskedProcess, key: Array, rows: JointRows, index: np.ndarray, is_random: bool) -> Array:
    """Functions of a process by neighbours, ``(S, B)``: of draws that do not differ the blocks are factored once."""
    each = index if is_random else index[:1]

    def one(process: LocalProcess, draw: tracing.Draw, rows: JointRows) -> Array:
        return drawn_together(process, rows, tracing.key_of(draw[0], process.name), index.size // len(each))

    return asked.at_each(one, tracing.draws_of(key, each), rows).reshape(index.size, -1)
