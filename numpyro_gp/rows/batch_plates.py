"""Plates that hold some of their rows: those of a batch that stands for all data, and minibatches drawn by a key.

NumPyro's plate shuffles on a CPU, one key and one exchange a row, one after the other: for 1024 of 36 000 rows that
took as long as the rest of a small step. Here the rows are images of ``0 .. B - 1`` under a bijection of
``0 .. N - 1`` that a key chooses: a Feistel network on pairs of digits, of which there are N or a few more.
"""

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from numpyro.primitives import Messenger

from numpyro_gp.arrays import Array, ArrayLike, widened
from numpyro_gp.checks import check_count, check_key, fail, when_known
from numpyro_gp.programs.private import Message, active_handlers
from numpyro_gp.sites import in_plate

# Up to this size the whole permutation is sorted: exact, and as quick.
SORTED_SIZE = 1024
ROUNDS = 8


class BatchPlate(Messenger):
    """Handler under which the terms of a plate, for the rows of a batch, estimate those of all data without bias.

    The first of ``rows`` rows are data and the others copies: each term of a site in the plate counts as often as N
    rows have batches of so many on average, and those of copies not at all. So rows of a short batch count as those of
    the others, and over a pass all terms have the weight that they have in whole data. The plate is
    ``plate(name, rows)`` (also with a
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
    counts : Array (3,) of integers
        Rows that are data; and a number of batches, with the rows that they have together.
    """

    def __init__(self, plate: str, num_data: int, rows: int, counts: Array) -> None:
        super().__init__()
        self.plate, self.num_data, self.rows = plate, num_data, rows
        self.count, batches, of_batches = counts
        self.size, self.indices = rows, jnp.arange(rows)
        # One object for all sites: ImportanceWeightedELBO asks whether they share their scale.
        self.each_counts = float(num_data) * batches / of_batches
        self._known_scales: list[tuple[object, Array]] = []

    def process_message(self, msg: Message) -> None:
        """Choose the rows of the plate, or scale and mask a site in it, once where `inside_blocks` doubles this."""
        if msg.get("has_batch_rows"):
            return
        msg["has_batch_rows"] = True
        if msg["type"] == "plate" and msg["name"] == self.plate:
            size, held = msg["args"]
            if size != self.rows and (size, held) != (self.num_data, self.rows):
                required = (
                    f"of the {self.rows} rows of a batch, or of all {self.num_data} with subsample_size={self.rows}"
                )
                cure = f"Write plate({self.plate!r}, len(X)), in the guide as in the model."
                fail(f"the plate {self.plate!r}", required, f"size {size}, subsample_size {held}", cure)
            self.size = size
            if msg["value"] is None and size != self.rows:
                msg["value"] = jnp.arange(self.rows)
        elif msg["type"] == "sample" and in_plate(msg, self.plate):
            # What the plate has counted stays where it draws from the batch, and is ours where it stands for all.
            scale = 1.0 if msg["scale"] is None else msg["scale"]
            for known, found in self._known_scales:  # one object for all sites of one scale
                if known is scale or (isinstance(known, float) and isinstance(scale, float) and known == scale):
                    msg["scale"] = found
                    break
            else:
                before = scale / (self.size / self.rows)
                is_one = isinstance(before, float) and before == 1.0
                msg["scale"] = self.each_counts if is_one else before * self.each_counts
                self._known_scales.append((scale, msg["scale"]))
            batch = msg["fn"].batch_shape
            (axis,) = (frame.dim for frame in msg["cond_indep_stack"] if frame.name == self.plate)
            shape = [-1 if dim == axis else 1 for dim in range(-len(batch), 0)]
            msg["fn"] = msg["fn"].mask(jnp.broadcast_to((self.indices < self.count).reshape(shape), batch))

    def postprocess_message(self, msg: Message) -> None:
        """Remember the rows of the plate; refuse parameters with an entry for each of them."""
        if msg["type"] == "plate" and msg["name"] == self.plate:
            self.indices = msg["value"]
        if msg["type"] != "param" or not in_plate(msg, self.plate):
            return
        shape, event_dim = jnp.shape(msg["value"]), msg["kwargs"].get("event_dim")
        (axis,) = (frame.dim - (event_dim or 0) for frame in msg["cond_indep_stack"] if frame.name == self.plate)
        if event_dim is not None and len(shape) >= -axis and shape[axis] == self.size:
            refuse_own_parameters(f"the parameter {msg['name']!r}", f"shape {shape}", self.plate)


class RowsInPieces(Messenger):
    """Handler under which devices share the rows of a minibatch, where all of them hold all data.

    Rows with neighbours read others than those of the batch, so that data cannot lie in pieces.
    """

    def __init__(self, batch: int, where: NamedSharding) -> None:
        super().__init__()
        self.batch, self.where = batch, where

    def postprocess_message(self, msg: Message) -> None:
        if msg["type"] == "plate" and jnp.shape(msg["value"]) == (self.batch,):
            msg["value"] = lax.with_sharding_constraint(msg["value"], self.where)


def refuse_own_parameters(what: str, got: str, plate: str) -> None:
    """Refuse what a stream cannot fit: the same entries would serve other rows in every batch."""
    cure = "Give latent inputs of a stream to ngp.guides.amortised(), or fit the whole data."
    fail(what, f"without an entry for each row of plate {plate!r}, as the rows change with each batch", got, cure)


@contextmanager
def inside_blocks() -> Iterator[None]:
    """Inside ``handlers.block()``: the `BatchPlate` that stand outside of it, and that it hides."""
    with ExitStack() as stack:
        for handler in [handler for handler in active_handlers() if isinstance(handler, BatchPlate)]:
            stack.enter_context(handler)
        yield


# ------------------------------------------------------------------------------------- minibatches by a key


def permuted_rows(key: Array, size: int, positions: ArrayLike) -> Array:
    """Rows of a random order, without writing the order out: those at given positions, the same for the same key.

    The order is one of ``0 .. size - 1``. No position costs more than another, so one key serves a whole epoch:
    positions ``0 .. B - 1`` in its first step, ``B .. 2 B - 1`` in the second, and each row comes once. For up to
    1024 rows every order is equally likely. Beyond, each row is, and sets of rows are as likely as a keyed hash of
    eight rounds makes them.

    Parameters
    ----------
    key : PRNG key
    size : int
        Number N of rows.
    positions : array of integers below ``size``

    Returns
    -------
    Array like ``positions``

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro_gp as ngp
    >>> order = ngp.guides.permuted_rows(jax.random.key(0), 5000, jnp.arange(5000))
    >>> bool((jnp.sort(order) == jnp.arange(5000)).all())
    True
    """
    check_key("key", key)
    places = jnp.asarray(positions)
    if not jnp.issubdtype(places.dtype, jnp.integer):
        fail("positions", "whole numbers", f"dtype {places.dtype}", "Pass jnp.arange(batch).", TypeError)
    places = widened(places)

    def check(places: np.ndarray) -> None:
        """Refuse positions behind the last row, and before the first: other rows would come twice."""
        if places.size and (places.min() < 0 or places.max() >= size):
            cure = f"Leave out those of the last step that are {size} or more."
            fail("positions", f"from 0 to {size - 1}", f"{places.min()} to {places.max()}", cure)

    when_known(check, places)
    if check_count("size", size) <= SORTED_SIZE:
        return jax.random.permutation(key, size).astype(places.dtype)[places]
    words = jax.random.bits(key, (1 + ROUNDS,), jnp.uint32)  # one draw: each split is as much to compile as the network
    walked = _network(words[1:], size, places.astype(jnp.uint32))
    return jnp.remainder(words[0] % size + walked, size).astype(places.dtype)


def _network(keys: Array, size: int, places: Array) -> Array:
    """A bijection of ``0 .. size - 1``: one of a few numbers more, where what lands on those goes on to their images.

    A loop until all are below would take as many turns as chance has it, and a GPU would have to ask before each.
    """
    radices = _radices(size)
    found = _feistel(places, keys, radices)
    if (excess := math.prod(radices) - size) == 0:
        return found

    def gone_on(x: Array, images: Array) -> Array:
        return jnp.where(x >= size, images.at[x - size].get(mode="clip"), x)

    # Each turn goes twice as far, and no way passes a number twice. Written out they would be found for every place.
    images = _feistel(jnp.arange(size, size + excess, dtype=jnp.uint32), keys, radices)
    return gone_on(found, lax.fori_loop(0, excess.bit_length(), lambda _, own: gone_on(own, own), images))


@cache
def _radices(size: int) -> tuple[int, int]:
    """Two numbers, apart by a factor of four at most, with the least product from ``size`` on: the nearest of such."""
    root = math.isqrt(size - 1) + 1
    return min(((one, -(-size // one)) for one in range(root, max(2, root // 2) - 1, -1)), key=math.prod)


def _feistel(value: Array, keys: Array, radices: tuple[int, int]) -> Array:
    """Two digits, to which a hash of the other is added in turn: each round is undone by itself."""
    digits = [value // radices[1], value % radices[1]]
    for number in range(ROUNDS):
        own, radix = number % 2, jnp.uint32(radices[number % 2])
        # The finaliser of MurmurHash3, with a key on either side of its first product.
        other = (digits[1 - own] ^ keys[number]) * jnp.uint32(0x9E3779B1) + keys[number]
        other = (other ^ (other >> 16)) * jnp.uint32(0x85EBCA6B)
        other = (other ^ (other >> 13)) * jnp.uint32(0xC2B2AE35)
        raised = digits[own] + lax.rem(other ^ (other >> 16), radix)
        digits[own] = jnp.where(raised >= radix, raised - radix, raised)
    return digits[0] * jnp.uint32(radices[1]) + digits[1]


def _subsample(size: int, subsample_size: int, rng_key: Array | None = None) -> Array:
    """What a plate calls for the rows of its minibatch."""
    if rng_key is None:
        cure = "Minibatches are for SVI and SVGD; give HMC and NUTS all rows, without subsample_size."
        fail("a plate with subsample_size", "run with a random key, as SVI and SVGD do", "no key", cure)
    return permuted_rows(rng_key, size, jnp.arange(subsample_size))


class HeldRows(Messenger):
    """Handler that refuses a plate of more rows than there are: NumPyro would weigh the data by less than 1."""

    def process_message(self, msg: Message) -> None:
        """Changes nothing."""
        if msg["type"] == "plate" and all(isinstance(number, (int, np.integer)) for number in msg["args"]):
            size, held = msg["args"]
            if held > size:
                cure = "Give the fit a smaller batch=, or None for all rows."
                fail(f"subsample_size of plate {msg['name']!r}", f"at most its {size} rows", held, cure)


class keyed_rows(HeldRows):
    """Handler under which every `numpyro.plate` draws the rows of its minibatch by `permuted_rows`.

    `AutoGP` and `ngp.stein.SVGD` stand under it already. Put it around a guide of your own, which opens the plates
    first, or around a model that is run without one.

    Parameters
    ----------
    fn : callable, optional
        Model or guide; without it the handler is a context manager.

    Examples
    --------
    >>> import numpyro, numpyro_gp as ngp
    >>> with numpyro.handlers.seed(rng_seed=0), ngp.guides.keyed_rows():
    ...     with numpyro.plate("data", 1000, subsample_size=4) as rows:
    ...         rows.shape
    (4,)
    """

    def process_message(self, msg: Message) -> None:
        """Leaves plates alone that hold all their rows, or rows that someone else chose."""
        super().process_message(msg)
        if msg["type"] == "plate" and msg["value"] is None:
            msg["fn"] = _subsample
