"""Where a fit takes the arrays of its steps from: whole data, a stream of batches, or minibatches of data in pieces."""

from typing import Any, NamedTuple

from numpyro_gp.arrays import Array, Merge
from numpyro_gp.checks import fail
from numpyro_gp.sites import Trace, is_latent
from numpyro_gp.training.batches import Data, Stream, Whole, data_part, minibatch_of, model_trace, with_static
from numpyro_gp.training.calls import argument_names, bind, split_arguments
from numpyro_gp.training.placement import Drawn, Placement, placement_of


class Given(NamedTuple):
    """What a fit was given for its model: arguments, the number of all data of a stream, and where rows are to lie."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    num_data: int | None
    sharding: Any


def feed_of(engine: Any, batches: Any, key: Array, given: Given) -> tuple[Stream | Drawn | Whole, Data]:
    """Where the arrays of each step come from, and how the model is called with them."""
    args, kwargs, num_data, sharding = given
    if num_data is not None and (batches is None or "num_data" in argument_names(getattr(engine, "model", None))):
        kwargs = {**kwargs, "num_data": num_data}
    if batches is not None:
        placement = placement_of(sharding, (), engine)
        stream = Stream(batches, args, kwargs, placement, getattr(engine, "model", None))
        args, kwargs, _ = stream.merge(stream.arrays())
        check_call(engine, args, kwargs)
        return stream, Data(stream.merge, data_part(engine, args, kwargs, stream.rows, num_data), placement)
    check_call(engine, args, kwargs)
    arrays, merge = split_arguments(args, kwargs)
    placement = placement_of(sharding, arrays, engine)
    if placement is None:
        return Whole(arrays), Data(merge)
    return pieces_of(engine, key, arrays, merge, placement)


def pieces_of(
    engine: Any, key: Array, arrays: list[Array], merge: Merge, placement: Placement
) -> tuple[Drawn | Whole, Data]:
    """Data in pieces: all of them at every step, or the minibatch of the model's own plate."""
    rows = arrays[0].shape[0] if arrays and arrays[0].ndim else 0
    placement.check_rows("the data", rows)
    with_rows = [array.shape[:1] == (rows,) for array in arrays]
    args, kwargs = merge(arrays)
    trace = model_trace(engine, args, kwargs)
    batch = minibatch_of(trace, rows) if placement.cuts else None
    if batch is None:
        return Whole(placement.place(arrays, with_rows)), Data(merge, placement=placement)
    drawn = Drawn(key, (args, kwargs), with_rows, batch, placement)
    args, kwargs, _ = drawn.merge(drawn.arrays())
    if latent_shapes(trace) != latent_shapes(model_trace(engine, args, kwargs)):
        cure = "Only data may be as long as the first array: give inducing inputs of their own to the model."
        fail("the data", f"all that has {rows} rows, where the model draws minibatches", "sites of that length", cure)
    return drawn, Data(drawn.merge, data_part(engine, args, kwargs, batch, rows), placement)


def latent_shapes(trace: Trace) -> dict[str, tuple[int, ...]]:
    """Shapes of the latent sites outside of every plate."""
    found = {name: site for name, site in trace.items() if is_latent(site) and not site["cond_indep_stack"]}
    return {name: tuple(site["fn"].shape()) for name, site in found.items()}


def check_call(engine: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuse arguments that the engine's model would refuse."""
    model = getattr(engine, "model", None)
    if argument_names(model):
        bind(model, args, with_static(engine, kwargs))
