"""A posterior at new data: predictions row by row, of conditioned processes, and functions drawn jointly."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from numpyro_gp.arrays import Array, ArrayLike, is_array
from numpyro_gp.checks import check_count, check_key, check_points, check_positive, fail
from numpyro_gp.guides.arguments import check_values, reading
from numpyro_gp.posterior.chunks import predict_chunks
from numpyro_gp.posterior.prediction import Prediction
from numpyro_gp.posterior.rows import find_rows, row_axes
from numpyro_gp.posterior.tracing import (
    Draw,
    at_each_draw,
    conditioned_observation,
    data_site,
    draws_of,
    has_local,
    new_data_plates,
    process_at,
    trace_at,
)
from numpyro_gp.primitives.programs import traced
from numpyro_gp.sites import Observation, Trace, unwrap
from numpyro_gp.training.batches import check_like_first, layout_of, with_batch
from numpyro_gp.training.calls import Call, bind, row_arrays
from numpyro_gp.training.programs import fingerprint, keep_program

# What `keeper` returns: ``keep(name, build)``.
Keep = Callable[[str, Callable[[], Any]], Any]


def predict_rows(
    posterior: Any,
    key: Array,
    call: Call,
    rows: Sequence[str] | None,
    site: str | None,
    num_samples: int | None,
    chunk_size: int,
    new: Sequence[str] = (),
    first: int | None = None,
) -> Prediction:
    """Predict the data site of a model called without its data; the arguments are those of `Posterior.predict`.

    ``first``: of rows that are a part of more, how many come before.
    """
    key = check_key("key", key)
    check_count("chunk_size", chunk_size)
    cut = row_arrays(call, rows)
    keep = keeper(posterior, call, str(key.dtype), site, rows, chunk_size, new)

    def look() -> tuple[str, frozenset[str], bool, tuple[int, ...]]:
        trace = call.sites(posterior.fitted_model)
        name, plates = data_site(trace, site), new_data_plates(posterior, call, trace, new)
        check_all_rows(trace, plates)
        return name, plates, has_local(trace, plates), unwrap(trace[name]["fn"]).batch_shape

    name, plates, is_local, batch = keep("site", look)
    check_call(posterior, call, keep)
    index = posterior.spread(num_samples, posterior.source.is_random or is_local)
    axis, total, places = row_axes(call.arrays, cut, batch)
    if not places:  # no array has rows: in one piece
        cut, rows, chunk_size = frozenset(), (), total
    size = max(chunk_size, min(2, total - 1))

    def one_draw(fixed: Any, draw: Draw, part: tuple[dict[int, Array], Array]) -> Observation:
        arrays = {**fixed[1], **part[0]}
        bound = call.at([arrays[number] for number in range(len(arrays))])
        return unwrap(trace_at(posterior.at(fixed[0]), draw, bound, plates, part[1])[name]["fn"])

    def program(cut: frozenset[int]) -> Any:
        def one(source: object, arrays: dict[int, Array]) -> Observation:
            return one_draw((source, {}), (key, jnp.asarray(0)), (arrays, jnp.asarray(0)))

        shapes = [list(x.shape) for x in call.arrays]
        for number in cut:
            shapes[number][places[number]] = size
        empty = [jax.ShapeDtypeStruct(shape, x.dtype) for shape, x in zip(shapes, call.arrays, strict=True)]
        return traced(one, posterior.source, dict(enumerate(empty)))[:2]

    if rows is None and total > chunk_size:
        known = cut
        cut = keep("rows", lambda: find_rows(program, call.arrays, call.owners, places, known, size))
    part = dict(enumerate(call.arrays))
    rest = {number: part.pop(number) for number in set(part) - cut}
    fixed, draws = (posterior.source, rest), (key, index)
    chunks = predict_chunks(one_draw, fixed, draws, part, total, chunk_size, keep, first, places)
    return Prediction(chunks, chunks.sizes, jax.random.fold_in(key, first) if first else key, axis)


def check_call(posterior: Any, call: Call, keep: Keep) -> None:
    """The checks that the model makes of its arguments, which a program is traced with once."""
    check_values(keep("reading", lambda: reading(posterior.fitted_model, call.at, call.arrays)), call.arrays)


def check_all_rows(trace: Trace, plates: frozenset[str]) -> None:
    """Refuse minibatches of new data: a prediction has all rows, in their order."""
    for name in sorted(plates):
        size, held = trace[name]["args"]
        if held not in (None, size):
            got = f"{held} of {size} rows at random, in plate {name!r}"
            fail("args and kwargs", "arguments with which the model holds all rows", got, "Leave out batch=.")


def predict_stream(
    posterior: Any, key: Array, stream: Iterator[Any], args: tuple, kwargs: dict, chunk_size: int, **options: Any
) -> Iterator[Prediction]:
    """Predict the rows of a stream, a chunk at a time, by one program and under the same draws of the posterior."""
    start, first = 0, None
    for number, chunk in enumerate(stream):
        name = f"chunks[{number}]"
        layout = layout_of(name, chunk := (chunk,) if is_array(chunk) else chunk)
        first = first or layout
        check_like_first(name, layout, first)
        call = bind(posterior.model, *with_batch(name, chunk, args, kwargs))
        rows = tuple(chunk) if isinstance(chunk, dict) else tuple(call.arguments)[: len(chunk)]
        options["chunk_size"] = min(chunk_size, first.longest)
        yield predict_rows(posterior, key, call, rows, first=start, **options)
        start += layout.longest


def predict_conditioned(
    posterior: Any,
    key: Array,
    X: ArrayLike,
    call: Call,
    gp: str | None,
    noise: Array | None,
    num_samples: int | None,
    chunk_size: int,
) -> Prediction:
    """Predict new data of a process that its model conditions; the arguments are those of `Posterior.predict_at`."""
    key = check_key("key", key)
    rows = {"X": check_points("X", X, leading=True)}
    if noise is not None:
        rows["noise"] = jnp.broadcast_to(check_positive("noise", noise), rows["X"].shape[:-1])
    shapes = {name: row.shape for name, row in rows.items()}
    keep = keeper(posterior, call, str(key.dtype), gp, shapes, rows["X"].dtype, check_count("chunk_size", chunk_size))
    plates = keep("plates", lambda: new_data_plates(posterior, call))
    check_call(posterior, call, keep)
    index = posterior.spread(num_samples, posterior.source.is_random)

    def one_draw(fixed: Any, draw: Draw, part: tuple[dict[str, Array], Any]) -> Observation:
        process = process_at(posterior.at(fixed[0]), draw, call.at(fixed[1]), plates, gp)
        return conditioned_observation(process, **part[0])

    def look() -> tuple[int, ...]:
        first = (key, jnp.asarray(0))
        return jax.eval_shape(lambda: one_draw((posterior.source, call.arrays), first, (rows, 0))).batch_shape

    axis, place = len(keep("batch", look)) - 1, rows["X"].ndim - 2
    fixed, draws, axes = (posterior.source, call.arrays), (key, index), dict.fromkeys(rows, place)
    chunks = predict_chunks(one_draw, fixed, draws, rows, rows["X"].shape[place], chunk_size, keep, axes=axes)
    return Prediction(chunks, chunks.sizes, key, axis)


def draw_functions(posterior: Any, key: Array, X: Array, call: Call, gp: str | None, num_samples: int | None) -> Array:
    """Functions drawn jointly at the rows of ``X``; the arguments are those of `Posterior.function_draws`."""
    plates, index = new_data_plates(posterior, call), posterior.spread(num_samples, is_random=True)

    def one(own: Any, draw: Draw, X: Array, arrays: list[Array]) -> Array:
        process = process_at(own, draw, call.at(arrays), plates, gp)
        drawn = process.joint(X).sample(jax.random.fold_in(draw[0], 1))
        return drawn if process.outputs is None else jnp.swapaxes(drawn, -1, -2)

    return at_each_draw(one, posterior, draws_of(key, index), check_points("X", X, leading=True), call.arrays)


def keeper(posterior: Any, call: Call, *options: Any) -> Keep:
    """``keep(name, build)``: what a model was traced for, not traced again while all that it is made of is the same.

    That is the model, the guide, the options, and the shapes and types of draws and data; see `fingerprint`.
    """
    arrays, structure = jax.tree.flatten((posterior.source, call.arrays))
    shapes = tuple((jnp.shape(x), jnp.result_type(x), getattr(x, "weak_type", False)) for x in arrays)
    names = tuple(call.arguments)
    made_of = fingerprint(posterior.model, posterior.guide, call.rest.fixed, names, options)
    key = made_of, call.rest.structure, structure, shapes, jnp.result_type(float)
    store = keep_program(posterior.model, key, lambda _: {})

    def keep(name: str, build: Callable[[], Any]) -> Any:
        if name not in store:
            store[name] = build()
        return store[name]

    return keep
