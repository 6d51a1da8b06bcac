"""A data plate that stands for all data and holds the rows that it is given: a batch of a stream, filled up or not."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import jax.numpy as jnp
from numpyro.primitives import Messenger

from numpyro_gp.arrays import Array
from numpyro_gp.checks import fail
from numpyro_gp.guides.internals import active_handlers
from numpyro_gp.sites import in_plate


class GivenRows(Messenger):
    """Handler under which the terms of a plate, for the rows of a batch, estimate those of all data without bias.

    The first ``count`` of ``rows`` rows are data and the others copies: each term of a site in the plate counts
    ``num_data / count`` times, and those of copies not at all. The plate is ``plate(name, rows)`` (also with a
    minibatch of these rows), or ``plate(name, num_data, subsample_size=rows)``, whose rows are then those given,
    in their order, and not drawn.

    Parameters
    ----------
    plate : str
        Name of the plate in model and guide.
    num_data : int
        Number N of all data.
    rows : int
        Rows of the arrays that the model is called with.
    count : Array () of integers
        Rows that are data.
    """

    def __init__(self, plate: str, num_data: int, rows: int, count: Array) -> None:
        super().__init__()
        self.plate, self.num_data, self.rows, self.count = plate, num_data, rows, count
        self.size, self.indices = rows, jnp.arange(rows)
        # One object for all sites: ImportanceWeightedELBO asks whether they share their scale.
        self.each_counts = float(num_data) / count

    def process_message(self, msg: dict[str, Any]) -> None:
        """Choose the rows of the plate, or scale and mask a site in it, once where `given_rows_again` doubles this."""
        if msg.get("has_given_rows"):
            return
        msg["has_given_rows"] = True
        if msg["type"] == "plate" and msg["name"] == self.plate:
            self._choose(msg)
        elif msg["type"] == "sample" and in_plate(msg, self.plate):
            self._weigh(msg)

    def _choose(self, msg: dict[str, Any]) -> None:
        size, held = msg["args"]
        if size != self.rows and (size, held) != (self.num_data, self.rows):
            required = f"of the {self.rows} rows of a batch, or of all {self.num_data} with subsample_size={self.rows}"
            cure = f"Write plate({self.plate!r}, len(X)), in the guide as in the model."
            fail(f"the plate {self.plate!r}", required, f"size {size}, subsample_size {held}", cure)
        self.size = size
        if msg["value"] is None and size != self.rows:
            msg["value"] = jnp.arange(self.rows)

    def postprocess_message(self, msg: dict[str, Any]) -> None:
        """Remember the rows of the plate; refuse parameters with an entry for each of them."""
        if msg["type"] == "plate" and msg["name"] == self.plate:
            self.indices = msg["value"]
        if msg["type"] != "param" or not in_plate(msg, self.plate):
            return
        shape, event_dim = jnp.shape(msg["value"]), msg["kwargs"].get("event_dim")
        axis = self._frame(msg).dim - (event_dim or 0)
        if event_dim is not None and len(shape) >= -axis and shape[axis] == self.size:
            refuse_own_parameters(f"the parameter {msg['name']!r}", f"shape {shape}", self.plate)

    def _frame(self, msg: dict[str, Any]) -> Any:
        return next(frame for frame in msg["cond_indep_stack"] if frame.name == self.plate)

    def _weigh(self, msg: dict[str, Any]) -> None:
        # What the plate itself has counted stays where it draws from the batch, and is ours where it stands for all.
        before = (1.0 if msg["scale"] is None else msg["scale"]) / (self.size / self.rows)
        is_one = isinstance(before, float) and before == 1.0
        msg["scale"] = self.each_counts if is_one else before * self.each_counts
        batch, axis = msg["fn"].batch_shape, self._frame(msg).dim
        shape = [-1 if dim == axis else 1 for dim in range(-len(batch), 0)]
        msg["fn"] = msg["fn"].mask(jnp.broadcast_to((self.indices < self.count).reshape(shape), batch))


def refuse_own_parameters(what: str, got: str, plate: str) -> None:
    """Refuse what a stream cannot fit: the same entries would serve other rows in every batch."""
    cure = "Give latent inputs of a stream to ngp.guides.amortised(), or fit the whole data."
    fail(what, f"without an entry for each row of plate {plate!r}, as the rows change with each batch", got, cure)


@contextmanager
def given_rows_again() -> Iterator[None]:
    """Inside ``handlers.block()``: the `GivenRows` that stand outside of it, and that it hides."""
    with ExitStack() as stack:
        for handler in [handler for handler in active_handlers() if isinstance(handler, GivenRows)]:
            stack.enter_context(handler)
        yield
