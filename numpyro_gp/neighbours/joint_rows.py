"""New rows that are drawn together: each given the nearest of the data, and of the new rows before it."""

import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array, ArrayLike, value_type
from numpyro_gp.checks import check_count, check_points
from numpyro_gp.neighbours.search import earlier, nearest, squared_distances_to
from numpyro_gp.neighbours.value import Neighbours


@value_type()
class JointRows:
    """New rows in an order, and what each is given.

    Attributes
    ----------
    inputs : Array (B, D)
    index : Array (B, K)
        Numbers of the nearest rows, of the N of the data and from N on of the new rows; -1 where there is none.
    order : Array (B,)
        Numbers of the new rows, first to last: a fixed shuffle.
    """

    inputs: Array
    index: Array
    order: Array


def joint_rows(near: Neighbours, X: ArrayLike, num_neighbours: int, lengthscale: ArrayLike) -> JointRows:
    """Find, before anything is traced, the rows that new ones are given where they are drawn together."""
    points = check_points("X", X, near.inputs.shape[-1])
    count, scale = check_count("neighbours", num_neighbours), np.asarray(lengthscale, float)
    rows, new = np.asarray(near.inputs, float) / scale, np.asarray(points, float) / scale
    size, number = len(rows), len(new)
    order = np.random.default_rng(0).permutation(number)
    found = nearest(rows, new, min(count, size))
    if number > 1:
        before = np.asarray(earlier(new, order, min(count, number - 1), None, np.arange(number)))
        found = np.concatenate([found, np.where(before >= 0, before + size, -1)], axis=1)
    distances = squared_distances_to(new, np.concatenate([rows, new]), found)
    turn = np.argsort(np.where(found >= 0, distances, np.inf), axis=1, kind="stable")[:, :count]
    kept = np.take_along_axis(found, turn, axis=1).astype(np.int32)
    return JointRows(points, jnp.asarray(kept), jnp.asarray(order.astype(np.int32)))
