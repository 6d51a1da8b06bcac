"""Rows of a minibatch without replacement, at the cost of the batch and not of the data.

NumPyro's plate shuffles on a CPU, one key and one exchange a row, one after the other: for 1024 of 36 000 rows that
took as long as the rest of a small step. Here the rows are images of ``0 .. B - 1`` under a bijection of
``0 .. N - 1`` that a key chooses: a Feistel network on the next power of two, walked until it lands below N.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from numpyro.primitives import Messenger

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import check_count, check_key, fail

# Up to this size the whole permutation is sorted: exact, and as quick.
SORTED_SIZE = 1024
ROUNDS = 8


def permuted_rows(key: Array, size: int, positions: ArrayLike) -> Array:
    """The rows that stand at these positions of a random order of ``0 .. size - 1``: the same order for the same key.

    No position costs more than another and the order is never written out, so one key serves a whole epoch:
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
    >>> import jax, jax.numpy as jnp
    >>> order = permuted_rows(jax.random.key(0), 5000, jnp.arange(5000))
    >>> bool((jnp.sort(order) == jnp.arange(5000)).all())
    True
    """
    check_key("key", key)
    places = jnp.asarray(positions)
    if not jnp.issubdtype(places.dtype, jnp.integer):
        fail("positions", "whole numbers", f"dtype {places.dtype}", "Pass jnp.arange(batch).", TypeError)
    if check_count("size", size) <= SORTED_SIZE:
        return jax.random.permutation(key, size).astype(places.dtype)[places]
    key_shift, key_rounds = jax.random.split(key)
    shift = jax.random.randint(key_shift, (), 0, size, places.dtype)
    return (shift + _walk(key_rounds, size, places.astype(jnp.uint32)).astype(places.dtype)) % size


def _walk(key: Array, size: int, places: Array) -> Array:
    """A bijection of ``0 .. size - 1``: one of the next power of two, again wherever it lands above."""
    bits = max(2, (size - 1).bit_length())
    keys = jax.random.bits(key, (ROUNDS,), jnp.uint32)
    network = lambda x: _feistel(x, keys, bits)  # noqa: E731
    return lax.while_loop(lambda x: jnp.any(x >= size), lambda x: jnp.where(x >= size, network(x), x), network(places))


def _feistel(value: Array, keys: Array, bits: int) -> Array:
    """Halves that are added into each other in turn, through a hash: each round is undone by itself."""
    low = bits // 2
    widths = (bits - low, low)
    left, right = value >> low, value & jnp.uint32((1 << low) - 1)
    for number in range(ROUNDS):
        mask = jnp.uint32((1 << widths[number % 2]) - 1)
        left, right = right, (left ^ _hashed(right, keys[number])) & mask
    return (left << low) | right


def _hashed(value: Array, key: Array) -> Array:
    """The finaliser of MurmurHash3, with a key on either side of its first product."""
    value = (value ^ key) * jnp.uint32(0x9E3779B1) + key
    value = (value ^ (value >> 16)) * jnp.uint32(0x85EBCA6B)
    value = (value ^ (value >> 13)) * jnp.uint32(0xC2B2AE35)
    return value ^ (value >> 16)


def _subsample(size: int, subsample_size: int, rng_key: Array | None = None) -> Array:
    """What a plate calls for the rows of its minibatch."""
    if rng_key is None:
        cure = "Minibatches are for SVI and SVGD; give HMC and NUTS all rows, without subsample_size."
        fail("a plate with subsample_size", "run with a random key, as SVI and SVGD do", "no key", cure)
    return permuted_rows(rng_key, size, jnp.arange(subsample_size))


class keyed_rows(Messenger):
    """Handler under which every `numpyro.plate` draws the rows of its minibatch by `permuted_rows`.

    `AutoGP` and `ngp.stein.SVGD` stand under it already. Put it around a guide of your own, which opens the plates
    first, or around a model that is run without one.

    Parameters
    ----------
    fn : callable, optional
        Model or guide; without it the handler is a context manager.

    Examples
    --------
    >>> import numpyro
    >>> with numpyro.handlers.seed(rng_seed=0), keyed_rows(), numpyro.plate("data", 1000, subsample_size=4) as rows:
    ...     rows.shape
    (4,)
    """

    def process_message(self, msg: dict[str, Any]) -> None:
        """Leaves plates alone that hold all their rows, or rows that someone else chose."""
        if msg["type"] == "plate" and msg["value"] is None:
            msg["fn"] = _subsample
