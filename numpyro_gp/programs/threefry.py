"""A few of JAX's random numbers without a program: Threefry (Salmon et al. 2011) in NumPy, as `jax.random` has it.

Each operation of `jax.random` on new shapes compiles a program, which takes longer than a hundred draws are worth.
"""

from typing import Any

import jax
import numpy as np

from numpyro_gp.arrays import Array, is_key

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = np.uint32(0x1BD11BDA)


def _is_default() -> bool:
    """Whether JAX's settings are those by which it counts today."""
    config: Any = jax.config
    return bool(config.jax_threefry_partitionable)


def words_of(key: Array) -> np.ndarray | None:
    """The two words of a key; None of another generator than JAX's default, of an older order, and of old keys."""
    if not is_key(key):
        return None
    is_known = str(jax.random.key_impl(key)) == "threefry2x32" and _is_default()
    return np.asarray(jax.random.key_data(key)) if is_known else None


def part_of(key: Array | None, number: int) -> Array:
    """``jax.random.split(key)[number]``, of ``jax.random.key(0)`` where there is no key."""
    config: Any = jax.config
    is_plain = key is None and config.jax_default_prng_impl == "threefry2x32" and _is_default()
    words = np.zeros(2, np.uint32) if is_plain else None if key is None else words_of(key)
    if words is not None:
        return jax.random.wrap_key_data(split(words)[number], impl="threefry2x32")
    return jax.random.split(jax.random.key(0) if key is None else key)[number]


def threefry(keys: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The cipher of counters ``(n,)`` below 2^32 under keys ``(..., 2)``: two words ``(..., n, 2)`` for each."""
    words = keys[..., None, :]
    parts = (words[..., 0], words[..., 1], words[..., 0] ^ words[..., 1] ^ PARITY)
    shape = np.broadcast_shapes(parts[0].shape, counts.shape)
    x = [np.broadcast_to(parts[0], shape), np.broadcast_to(parts[1], shape) + counts.astype(np.uint32)]
    for turn in range(5):
        for distance in ROTATIONS[turn % 2]:
            total = x[0] + x[1]
            x = [total, ((x[1] << np.uint32(distance)) | (x[1] >> np.uint32(32 - distance))) ^ total]
        x = [x[0] + parts[(turn + 1) % 3], x[1] + parts[(turn + 2) % 3] + np.uint32(turn + 1)]
    return np.stack(x, axis=-1)


def split(keys: np.ndarray, count: int = 2) -> np.ndarray:
    """Keys ``(..., count, 2)``, those of ``jax.random.split``."""
    return threefry(keys, np.arange(count))


def normal(keys: np.ndarray, count: int, dtype: np.dtype) -> np.ndarray:
    """Standard normals ``(..., count)`` of each key, those of ``jax.random.normal`` but for their last digits."""
    from scipy.special import erfinv  # takes longer to import than the numbers to make

    words = threefry(keys, np.arange(count))
    if np.dtype(dtype) == np.float64:
        whole = (words[..., 0].astype(np.uint64) << np.uint64(32)) | words[..., 1].astype(np.uint64)
        unit = ((whole >> np.uint64(12)) | np.uint64(0x3FF << 52)).view(np.float64) - 1.0
    else:
        unit = (((words[..., 0] ^ words[..., 1]) >> np.uint32(9)) | np.uint32(0x3F800000)).view(np.float32) - 1
    least = np.nextafter(unit.dtype.type(-1), unit.dtype.type(0))
    between = np.maximum(least, unit * (unit.dtype.type(1) - least) + least)
    return (np.sqrt(2) * erfinv(between.astype(float))).astype(dtype)
