"""Rows with their nearest earlier rows: a value that is found once, before the model (mathematics.md section 16)."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard
from zlib import crc32

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array, ArrayLike, on_device, value_type, widened
from numpyro_gp.checks import check_count, check_digits, check_points, check_positive, fail, is_known
from numpyro_gp.neighbours.search import around, earlier, most_informative, nearest, squared_distances_to, twins_of
from numpyro_gp.programs.files import check_place, read_whole, write_whole

# --------------------------------------------------------------------------------------
# Checks of what neighbours are asked for.


def check_scale(lengthscale: ArrayLike, inputs: Array) -> Array:
    """Lengthscales ``(D,)``."""
    columns, scale = inputs.shape[-1], check_known_rows("lengthscale", check_positive("lengthscale", lengthscale))
    if scale.shape not in ((), (1,), (columns,)):
        cure = "Pass one lengthscale for each column of X, or a number."
        fail("lengthscale", f"a number or of shape ({columns},)", f"shape {scale.shape}", cure)
    return jnp.broadcast_to(scale, (columns,)).astype(inputs.dtype)


def check_known_rows(argument: str, value: Array) -> Array:
    """Refuse rows that are being traced: neighbours are found of numbers."""
    if not is_known(value):
        cure = "Find neighbours before the model, outside jit, and pass them as an argument."
        fail(argument, "known", "a traced array", cure, TypeError)
    return value


def check_below(argument: str, value: object, size: int) -> int:
    """A number of neighbours that other rows suffice for."""
    count = check_count(argument, value)
    if count >= size:
        cure = f"Pass {size - 1} or less. With that many the process is exact, as it is without neighbours."
        fail(argument, f"less than the number of rows, {size}", count, cure)
    return count


def check_numbers(argument: str, value: ArrayLike, size: int) -> Array:
    """Numbers of rows, each once."""
    numbers = np.asarray(value)
    is_right = numbers.ndim == 1 and numbers.size > 0 and np.issubdtype(numbers.dtype, np.integer)
    if not is_right or numbers.min() < 0 or numbers.max() >= size or len(np.unique(numbers)) < len(numbers):
        got = f"dtype {numbers.dtype}, shape {numbers.shape}, or others"
        cure = f"Pass such as jax.random.permutation(key, {size})[:1000]."
        cure = f"Pass their numbers, np.flatnonzero({argument})." if numbers.dtype == bool else cure
        fail(argument, f"different whole numbers from 0 to {size - 1}", got, cure)
    return jnp.asarray(numbers.astype(np.int32))


# --------------------------------------------------------------------------------------
# What tells rows with neighbours from others: a few numbers that are found with them, once, and go where they go.
#
# Whitened values of a process are those of one choice of neighbours, and pseudo-data those of rows in one order. By
# others both are another function, of the same shapes.


# Rows that are compared with those of a fit.
MARKED_ROWS = 32


class Mark(NamedTuple):
    """The mark of `Neighbours`: arrays, so that no program is compiled again for others.

    Attributes
    ----------
    rows : Array (R, D)
        Some of the rows, from the first to the last.
    checksum : Array (2,)
        That of the numbers of all neighbours, and how many each row has.
    """

    rows: Array
    checksum: Array


def mark_of(inputs: Array, index: np.ndarray | Array) -> Mark:
    """The mark of rows ``(N, D)`` with neighbours ``(N, K)``: 0.03 seconds for a million rows of 32."""
    places = np.unique(np.linspace(0, inputs.shape[0] - 1, MARKED_ROWS).astype(int))
    numbers = np.ascontiguousarray(index, np.int32)
    checksum = np.array([crc32(numbers.data), numbers.shape[-1]], np.uint32)
    return Mark(on_device(np.asarray(inputs)[places]), on_device(checksum))


FORMAT = "numpyro_gp neighbours 1"
KEPT = ("inputs", "index", "order", "lengthscale", "rows", "others", "candidates")


@value_type()
class NeighbourRows:
    """Some rows of `Neighbours`, those of a minibatch: what ``near[idx]`` is. It goes where inputs ``X[idx]`` go.

    Attributes
    ----------
    near : Neighbours
        All of them.
    rows : Array (B,)
        Numbers of these rows in the data.
    index : Array (B, K)
        Numbers of the rows that each is conditioned on, -1 where there is none.
    others : Array (B, K) or None
        Numbers of the nearest other rows, earlier and later, where they were asked for.
    """

    near: "Neighbours"
    rows: Array
    index: Array
    others: Array | None = None

    @property
    def inputs(self) -> Array:
        """The rows themselves, ``(B, D)``."""
        return self.near.inputs[self.rows]

    def __len__(self) -> int:
        return int(self.rows.shape[0])


@value_type()
class NewRows:
    """New rows with the nearest rows of the data: what ``near.find(X_new, K)`` is. It goes where new inputs go.

    Attributes
    ----------
    inputs : Array (B, D)
        The new rows.
    index : Array (B, K)
        Numbers of the rows of the data that are nearest to each, nearest first.
    """

    inputs: Array
    index: Array

    @property
    def size(self) -> int:
        """Number of rows."""
        return int(self.inputs.shape[0])

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, idx: slice | ArrayLike) -> "NewRows":
        """Some of them, by a slice or their numbers. One number is refused: Python and NumPy would ask for ever."""
        if not isinstance(idx, slice) and np.ndim(idx) == 0:
            fail("idx", "a slice or numbers of rows", f"{idx!r:.40}", "Pass rows[3:4] for one of them.", TypeError)
        return NewRows(jnp.asarray(self.inputs)[idx], jnp.asarray(self.index)[idx])


@value_type(static=("replicates", "candidates"))
class Neighbours:
    """Rows of data, an ordering, and for each row the nearest of those before it: what `neighbours` returns.

    It is a pytree of arrays, an argument of the model as ``X`` is. ``near[idx]`` are rows of a plate of ``near.size``.

    Attributes
    ----------
    inputs : Array (N, D)
    index : Array (N, K)
        Numbers of the rows that each is conditioned on, nearest first, -1 where there is none; ``(R, K)`` of ``rows``.
    order : Array (N,)
        Numbers of the rows, first to last.
    lengthscale : Array (D,)
        The units of the distance.
    rows : Array (R,) or None
        Rows that were searched for, where not all were.
    replicates : bool
        Whether equal rows count.
    others : Array (N, K) or None
        Numbers of the nearest other rows, earlier and later, where they were asked for; ``(R, K)`` of ``rows``.
    candidates : int or None
        Number of nearest earlier rows of which the K were chosen, where they are not the nearest themselves.
    mark : Mark or None
        What tells them from others; None of a value that was made by hand, or pickled by an older release.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> near = ngp.neighbours(jnp.array([[0.0, 0.0], [1.0, 9.0], [2.0, 0.0]]), 1, order="given")
    >>> near.index[:, 0].tolist(), near.rescaled(jnp.array([1.0, 100.0])).index[:, 0].tolist()
    ([-1, 0, 0], [-1, 0, 1])
    """

    inputs: Array
    index: Array
    order: Array
    lengthscale: Array
    rows: Array | None
    replicates: bool
    others: Array | None = None
    candidates: int | None = None
    mark: Mark | None = None

    @property
    def size(self) -> int:
        """Number N of rows: the size of their plate."""
        return int(self.inputs.shape[0])

    @property
    def count(self) -> int:
        """Number K of neighbours."""
        return int(self.index.shape[-1])

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        """Its sizes, without the arrays."""
        return f"Neighbours({self.size} rows, {self.inputs.shape[-1]} columns, {self.count} neighbours)"

    def __getitem__(self, idx: object) -> NeighbourRows:
        """Rows by the numbers that a plate of ``near.size`` deals out.

        Rows that were searched for alone stand for all, each as often as another in minibatches of two or more.
        """
        places = jnp.arange(self.size)[idx] if isinstance(idx, slice) else jnp.asarray(idx)
        if places.ndim != 1 or not jnp.issubdtype(places.dtype, jnp.integer):
            got = f"an array of {places.dtype}, shape {places.shape}"
            cure = "Index by what the plate gives: with numpyro.plate('data', near.size, subsample_size=batch) as idx."
            fail("idx", "whole numbers of rows, of shape (B,)", got, cure, TypeError)
        places = widened(places)
        if is_known(places) and places.size and (places.min() < 0 or places.max() >= self.size):
            got = f"numbers from {int(places.min())} to {int(places.max())}"
            cure = "Give the plate near.size rows: with numpyro.plate('data', near.size, subsample_size=batch) as idx."
            fail("idx", f"numbers from 0 to {self.size - 1}", got, cure)
        if self.rows is not None:
            rest = places - (self.size - self.size % (count := len(self.rows)))
            # Each row has as many numbers. Those left over follow the first of the others in the batch: a random row.
            places = jnp.where(rest < 0, places, places[jnp.argmax(rest < 0)] + rest + 1) % count
        rows = places if self.rows is None else jnp.asarray(self.rows)[places]
        others = None if self.others is None else jnp.asarray(self.others)[places]
        return NeighbourRows(self, rows, jnp.asarray(self.index)[places], others)

    def rescaled(self, lengthscale: ArrayLike) -> "Neighbours":
        """The same rows in the same order, with neighbours found anew in units of other lengthscales.

        All shapes are as they were, so that no program compiles again.
        """
        self._check_known("rescaled")
        parts = self.inputs, lengthscale, self.order, self.rows
        near = _searched(*parts, self.count, self.candidates, self.replicates, self.others is not None)
        return replace(near, mark=self.mark and near.mark)

    def find(self, X_new: ArrayLike, num_neighbours: int = 256, *, lengthscale: ArrayLike | None = None) -> NewRows:
        """New rows with the nearest of all rows of the data, for predictions: at most N of them for each.

        ``lengthscale``: other units of the distance than those of the neighbours themselves.
        """
        self._check_known("find")
        points = check_points("X_new", X_new, self.inputs.shape[-1])
        count = min(check_count("num_neighbours", num_neighbours), self.size)
        scale = np.asarray(self.lengthscale if lengthscale is None else check_scale(lengthscale, self.inputs), float)
        new = np.asarray(check_known_rows("X_new", points), float) / scale
        return NewRows(points, jnp.asarray(nearest(np.asarray(self.inputs, float) / scale, new, count)))

    def around(
        self, num_neighbours: int, *, rows: ArrayLike | None = None, lengthscale: ArrayLike | None = None
    ) -> NewRows:
        """Rows, all or some, with the nearest of all others, earlier and later: to predict data that are left out."""
        self._check_known("around")
        count = check_below("num_neighbours", num_neighbours, self.size)
        scale = np.asarray(self.lengthscale if lengthscale is None else check_scale(lengthscale, self.inputs), float)
        asked = np.arange(self.size) if rows is None else np.asarray(check_numbers("rows", rows, self.size))
        scaled = np.asarray(self.inputs, float) / scale
        return NewRows(jnp.asarray(self.inputs)[asked], jnp.asarray(nearest(scaled, scaled[asked], count, asked)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Keep rows and neighbours in one file of NumPy's format: a search of many rows need not be repeated."""
        self._check_known("save")
        arrays = {name: np.asarray(field) for name in KEPT if (field := getattr(self, name)) is not None}
        write_whole(check_place(path), format=np.asarray(FORMAT), replicates=np.asarray(self.replicates), **arrays)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> "Neighbours":
        """What `save` wrote.

        Examples
        --------
        >>> import jax.numpy as jnp, numpyro_gp as ngp
        >>> ngp.neighbours(jnp.arange(9.0)[:, None], 2).save("/tmp/near.npz")
        >>> ngp.Neighbours.load("/tmp/near.npz")
        Neighbours(9 rows, 1 columns, 2 neighbours)
        """
        cure = "Check the path, or save them anew: near.save(path)."
        near = read_whole(Path(path), "path", "a file written by Neighbours.save", cure, _of_file)
        if not isinstance(near, Neighbours):
            fail("path", f"a file of format {FORMAT!r}", f"{near!r}", cure)
        return near

    def _check_known(self, method: str) -> None:
        if not all(map(is_known, jax.tree.leaves(self))):
            cure = f"Call near.{method}(...) before the model, outside jit, and pass what it returns as an argument."
            fail(f"near of near.{method}", "known", "traced arrays", cure, TypeError)


AnyNeighbours = Neighbours | NeighbourRows


def are_neighbours(leaf: object) -> TypeGuard[Neighbours]:
    """Whether a part of a tree is neighbours as a whole: ``is_leaf`` of JAX's functions of trees."""
    return isinstance(leaf, Neighbours)


def neighbours_in(tree: object) -> list[Neighbours]:
    """All of them that a tree holds, such as the arguments of a model."""
    return [leaf for leaf in jax.tree.leaves(tree, is_leaf=are_neighbours) if are_neighbours(leaf)]


def neighbours(
    X: ArrayLike,
    num_neighbours: int = 32,
    *,
    lengthscale: ArrayLike = 1.0,
    replicates: bool = False,
    order: str | ArrayLike = "random",
    rows: ArrayLike | None = None,
    others: bool = False,
    candidates: int | None = None,
) -> Neighbours:
    """Find the nearest earlier rows of each row of data, once, before the model (mathematics.md section 16.1).

    Rows have an order, and each is conditioned on the K nearest of those before it: ``p(y) ~ prod_i p(y_i | y_N(i))``,
    a proper density for every choice of ``N(i)``, and that of the exact process for ``K = N - 1``. Pass the value to
    the model in place of ``X``: to `gp_regression`, whole or as ``near[idx]`` in the plate of the data.

    NumPy and SciPy search, by a tree where columns are few for the number of rows and by all distances elsewhere: on
    one core 36 000 rows of 8 columns take 3 seconds, and a million of 3 columns half a minute.

    Parameters
    ----------
    X : array (N, D)
        Inputs of the data.
    num_neighbours : int
        K, below N. 16 or 32 are enough for a fit; predictions ask for more by themselves.
    lengthscale : number or array (D,)
        Units of the distance. `ngp.fit` searches again in those of the fit.
    replicates : bool
        Whether equal rows are neighbours. Without them data that repeat rows together with their targets cannot pull
        the noise to zero; True is for designs that measure each row several times.
    order : str or array (N,)
        "random" is a fixed shuffle, "given" the order of the rows; or the numbers of the rows, first to last.
    rows : array (R,), optional
        Search for these rows alone, to spare time where a fit visits few of very many. They then stand for all in
        minibatches, so draw them at random.
    others : bool
        Whether to search for the nearest of all other rows as well, earlier and later, which takes as long again.
        ``ngp.gp("f", kernel, near[idx])``, for likelihoods that are not Gaussian, reads them.
    candidates : int, optional
        Choose the K out of so many nearest earlier rows, by what they tell together: 4 K halve what the approximation
        loses on most data, for a search that takes two to eight times as long and holds N x candidates numbers. Take it
        where hyper-parameters are what you want to know, as under NUTS. Without it they are the nearest.

    Returns
    -------
    Neighbours

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> near = ngp.neighbours(jnp.array([[0.0], [1.0], [1.1], [4.0]]), 2, order="given")
    >>> near.size, near.index.tolist()
    (4, [[-1, -1], [0, -1], [1, 0], [2, 1]])
    """
    check_digits("X", X)
    points = check_points("X", X)
    if (size := points.shape[0]) < 2:
        fail("X", "of two rows or more", "one", "Pass X itself in place of near: one row has no neighbours.")
    count = check_below("num_neighbours", num_neighbours, size)
    cures = {"replicates": "to let equal rows count", "others": "to search for later rows as well"}
    for name, value in (("replicates", replicates), ("others", others)):
        if not isinstance(value, (bool, np.bool_)):
            fail(name, "True or False", repr(value), f"Pass {name}=True {cures[name]}.", TypeError)
    asked = None if rows is None else check_numbers("rows", rows, size)
    check_known_rows("X", points)
    if candidates is not None:
        candidates = check_count("candidates", candidates, count)
    if isinstance(order, str):
        if order not in ("random", "given"):
            fail("order", "'random', 'given' or the numbers of the rows", repr(order), "Check the spelling.")
        order = np.random.default_rng(0).permutation(size) if order == "random" else np.arange(size)
    numbers = np.asarray(order)
    if numbers.shape != (size,) or not np.array_equal(np.sort(numbers), np.arange(size)):
        got, cure = f"shape {numbers.shape}", f"Pass jax.random.permutation(key, {size})."
        fail("order", f"the numbers from 0 to {size - 1}, each once", got, cure)
    parts = points, lengthscale, jnp.asarray(numbers.astype(np.int32)), asked
    return _searched(*parts, count, candidates, bool(replicates), bool(others))


def _of_file(stored: dict[str, np.ndarray]) -> Neighbours | str:
    """The value in a file; of a file of something else its format."""
    if (form := str(stored.pop("format"))) != FORMAT:
        return form
    check_digits("the file of neighbours", stored["inputs"])
    candidates = int(stored.pop("candidates")) if "candidates" in stored else None
    arrays: dict[str, Any] = {"rows": None} | {name: jnp.asarray(array) for name, array in stored.items()}
    arrays["mark"] = mark_of(arrays["inputs"], arrays["index"])
    return Neighbours(**arrays | {"replicates": bool(stored["replicates"])}, candidates=candidates)


def _searched(
    inputs: Array,
    lengthscale: ArrayLike,
    order: Array,
    rows: Array | None,
    count: int,
    candidates: int | None,
    replicates: bool,
    has_others: bool,
) -> Neighbours:
    """Search for the neighbours, by arguments that are checked."""
    scale, raw = check_scale(lengthscale, inputs), np.asarray(inputs, float)
    asked = np.arange(len(raw)) if rows is None else np.asarray(rows)
    twins = None if replicates else twins_of(raw)
    scaled = raw / np.asarray(scale, float)
    index = earlier(scaled, np.asarray(order), min(candidates or count, len(raw) - 1), twins, asked)
    if candidates is not None:
        index = most_informative(scaled, asked, index, count)
    others = jnp.asarray(around(scaled, count, twins, asked)) if has_others else None
    parts = inputs, jnp.asarray(index), order, scale, rows, replicates, others, candidates
    return Neighbours(*parts, mark_of(inputs, index))


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
    index = nearest(rows, new, min(count, size))
    if number > 1:
        before = np.asarray(earlier(new, order, min(count, number - 1), None, np.arange(number)))
        index = np.concatenate([index, np.where(before >= 0, before + size, -1)], axis=1)
    distances = squared_distances_to(new, np.concatenate([rows, new]), index)
    turn = np.argsort(np.where(index >= 0, distances, np.inf), axis=1, kind="stable")[:, :count]
    kept = np.take_along_axis(index, turn, axis=1).astype(np.int32)
    return JointRows(points, jnp.asarray(kept), jnp.asarray(order.astype(np.int32)))
