"""Predictions at new rows of a process that its model conditions: once, row after row, and in streams."""

from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp

from numpyro_gp.arrays import Array, ArrayLike, split_arrays
from numpyro_gp.checks import check_count, check_floating, check_key, check_points, check_positive, fail
from numpyro_gp.kernels.functionals import Functional
from numpyro_gp.neighbours.value import NewRows, neighbours_in
from numpyro_gp.posterior import tracing
from numpyro_gp.posterior.chunks import Reused, predict_chunks
from numpyro_gp.posterior.conditioned import conditioned_observation
from numpyro_gp.posterior.fitted import Fitted
from numpyro_gp.posterior.near import FEW_DRAWS, RowFinder, check_neighbours, finder_of
from numpyro_gp.posterior.prediction import Prediction
from numpyro_gp.posterior.sources import Source
from numpyro_gp.programs.trace import is_traced
from numpyro_gp.rows.batches import BatchLayout, batch_tree, layout_of
from numpyro_gp.rows.call import Call
from numpyro_gp.sites import Observation


class RowPredictor:
    """What `Posterior.predictor` returns of a process by neighbours: call it with new rows, as often as you like.

    The first call looks at the model, compiles, and keeps what finds neighbours. Later ones take inputs of the same
    types and columns, of no more rows, and predict under the same draws of the posterior: what `Posterior.predict_at`
    says.

    Parameters
    ----------
    posterior, key, call, gp, num_samples, chunk_size, neighbours
        As in `Posterior.predict_at`.
    """

    def __init__(
        self,
        posterior: Fitted,
        key: Array,
        call: Call,
        gp: str | None,
        num_samples: int | None,
        chunk_size: int,
        neighbours: int | str | None,
    ) -> None:
        self._key, self._size = check_key("key", key), check_count("chunk_size", chunk_size)
        self._neighbours = check_neighbours(neighbours)
        plates, is_random = tracing.plates_at(posterior, call)
        self._asked = tracing.AskedProcess(posterior, call, plates, gp, conditioned=True)
        few = FEW_DRAWS if is_random and num_samples is None and neighbours_in(call.arguments) else num_samples
        self._index = posterior.spread(few, is_random)
        self._finder: RowFinder | None = None
        self._is_searched = False
        self._first: BatchLayout | None = None
        self._reused = Reused()

    def __call__(self, X: ArrayLike) -> Prediction:
        """Predict new data at rows ``X`` ``(N, D)``."""
        return self._part("X", X, 0)

    def each(self, chunks: Iterator[object], noise_variance: ArrayLike | None = None) -> Iterator[Prediction]:
        """Predictions of a stream of rows, each made when it is asked for."""
        self._reused.is_stream, start = True, 0
        for number, chunk in enumerate(chunks):
            rows = _only(f"chunks[{number}]", batch_tree(chunk))
            yield self._part(f"chunks[{number}]", rows, start, noise_variance)
            start += len(rows)

    def _part(self, name: str, X: ArrayLike, start: int, noise_variance: ArrayLike | None = None) -> Prediction:
        if is_traced():  # arrays are those of that program, and do not outlive it
            return self.predict(X, noise_variance)
        layout = layout_of(name, (X,), self._first)
        first = self._first or layout
        found = self.predict(X, noise_variance, None, min(self._size, first.longest), start, self._reused)
        self._first = first  # kept once it has worked
        return found

    def predict(
        self,
        X: Functional | NewRows | ArrayLike,
        noise_variance: ArrayLike | None = None,
        offset: ArrayLike | Sequence[ArrayLike | None] | None = None,
        size: int | None = None,
        start: int | None = None,
        known: Reused | None = None,
    ) -> Prediction:
        """Predict rows: all that are asked for, or a part of more behind ``start``, as `predict_chunks` has it."""
        asked = self._asked
        X = self._with_neighbours(X if isinstance(X, (Functional, NewRows)) else check_points("X", X, leading=True))
        # Rows of functionals are cut as those of inputs are, and so are the neighbours of rows.
        arrays, whole = split_arrays(X)
        rows = {f"X{number}": array for number, array in enumerate(arrays)}
        places = tuple(rows)
        if noise_variance is not None:
            variance = check_positive("noise_variance", noise_variance)
            rows["noise_variance"] = jnp.broadcast_to(variance, arrays[0].shape[:-1])
        if offset is not None:
            rows["offset"] = _of_each_row(offset, arrays[0].shape[:-1])

        def one_draw(
            fixed: tuple[Source, list[Array]], draw: tracing.Draw, part: tuple[dict[str, Array], object]
        ) -> Observation:
            process = asked.at(asked.posterior.at(fixed[0]), draw, fixed[1])
            own = whole([part[0][place] for place in places])
            return conditioned_observation(process, own, part[0].get("noise_variance"), part[0].get("offset"))

        fixed, first = (asked.posterior.source, asked.call.arrays), (self._key, jnp.asarray(0))
        place = arrays[0].ndim - 2
        axes, total = dict.fromkeys(rows, place), arrays[0].shape[place]
        draws, size = (self._key, self._index), self._size if size is None else size
        known = known or Reused()
        if known.of_chunks is None:
            known.axis = len(jax.eval_shape(lambda: one_draw(fixed, first, (rows, 0))).batch_shape) - 1
        chunks = predict_chunks(one_draw, fixed, draws, rows, total, size, axes, start, known)
        key = self._key if asked.name is None else tracing.key_of(self._key, asked.name)  # noise of its own
        key = jax.random.fold_in(key, start) if start else key
        return Prediction(chunks, chunks.sizes, key, known.axis)

    def _with_neighbours(self, X: Functional | NewRows | Array) -> Functional | NewRows | Array:
        """New rows with those of the data that are nearest, found before anything is traced."""
        finder = self._finder
        if not self._is_searched:
            finder = finder_of(self._asked, self._key, X, self._index, self._neighbours)
            if not is_traced():
                self._finder, self._is_searched = finder, True
        return X if finder is None else finder(X)


def _only(name: str, batch: object) -> Array:
    """The rows of a batch, which has no other arrays."""
    if not isinstance(batch, tuple) or len(batch) != 1:
        cure = "Make it give the new rows alone: (X for X, _ in batches)."
        number = len(batch) if isinstance(batch, (tuple, dict)) else 1
        fail(name, "one array of new rows", f"a {type(batch).__name__} of {number}", cure, TypeError)
    return batch[0]


def _of_each_row(offset: ArrayLike | Sequence[ArrayLike | None], shape: tuple[int, ...]) -> Array:
    """An offset for each new row, or one of each latent function on the last axis."""
    if isinstance(offset, (tuple, list)):
        return jnp.stack([_of_each_row(0.0 if one is None else one, shape) for one in offset], axis=-1)
    given = check_floating("offset", offset)
    if given.shape not in ((), shape):
        cure = "Pass one number for each row of X."
        fail("offset", f"a number or of shape {shape}", f"shape {given.shape}", cure)
    return jnp.broadcast_to(given, shape)
