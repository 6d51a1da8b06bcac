"""Predictions of inputs that come one after the other: one trace of the model, one program, one factorisation.

Of a model called without its data, and of a process that its model conditions on them.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

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
from numpyro_gp.posterior.near import FEW_DRAWS, finder_of
from numpyro_gp.posterior.new_data import plan_of, predict_rows
from numpyro_gp.posterior.prediction import Prediction
from numpyro_gp.posterior.sources import Source
from numpyro_gp.programs.trace import is_traced
from numpyro_gp.rows.batches import BatchLayout, batch_tree, layout_of, with_batch
from numpyro_gp.rows.call import Arguments, Call, call_of
from numpyro_gp.rows.model_trace import check_behind, check_numbering
from numpyro_gp.sites import Observation


class RepeatedPredictor(ABC):
    """What the first of many calls leaves for those after it: the layout of its rows, programs and factorisations."""

    def __init__(self, key: Array, chunk_size: int) -> None:
        self._key, self._size = check_key("key", key), check_count("chunk_size", chunk_size)
        self._first: BatchLayout | None = None
        self._reused = Reused()
        self._kept: Any = None

    def each(self, chunks: Iterator[object], *others: object) -> Iterator[Prediction]:
        """Predictions of a stream of arrays or batches, made when they are asked for, with rows numbered throughout."""
        start, self._reused.is_stream = 0, True
        for number, chunk in enumerate(chunks):
            found, length = self._at(f"chunks[{number}]", batch_tree(chunk), start, *others)
            yield found
            start += length

    def _at(self, name: str, inputs: object, start: int, *others: object) -> tuple[Prediction, int]:
        layout = layout_of(name, inputs, self._first)
        first, reused = self._first or layout, copy.copy(self._reused)
        size = min(self._size, first.longest)
        found, kept = self._predicted(name, inputs, start, size, reused, *others)
        # Kept once it has worked: a call that is refused leaves no mark on those after it. Inside a program of JAX
        # arrays are that program's, and do not outlive it.
        if not is_traced():
            self._first, self._reused, self._kept = first, reused, kept
        return found, layout.longest

    @abstractmethod
    def _predicted(
        self, name: str, inputs: Any, start: int | None, size: int, reused: Reused, *others: Any
    ) -> tuple[Prediction, object]:
        """The prediction of some inputs, and what is kept for the next ones."""


class Predictor(RepeatedPredictor):
    """What `Posterior.predictor` returns: call it with new inputs, as often as you like.

    The first call looks at the model, compiles and factorises. Later ones multiply: they take inputs of the same
    types and columns, of no more rows, and predict under the same draws of the posterior. What the model reads outside
    of its arguments is as it was at the first call. All calls have one key: the same inputs give the same numbers, and
    row n of each call has the noise of row n of the others, in `Prediction.sample` too where that is given no key.
    Threads may share it: one at a time looks at the model, and later calls wait for nobody.

    Parameters
    ----------
    posterior, key
        As in `Posterior.predict`.
    behind : Arguments
        Arguments of the model behind those of each call.
    site, num_samples, chunk_size, new
        As in `Posterior.predict`.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> def model(X, y=None):
    ...     f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.5), jnp.array([[0.0], [1.0]]))
    ...     with numpyro.plate("data", len(X)):
    ...         ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)
    >>> posterior = ngp.Posterior.from_mcmc(model, {"f": jnp.zeros((3, 2))})
    >>> predictor = posterior.predictor(jax.random.key(0))
    >>> [predictor(jnp.array([[x]])).mean.tolist() for x in (0.0, 0.5)]
    [[0.0], [0.0]]
    """

    def __init__(
        self,
        posterior: Fitted,
        key: Array,
        behind: Arguments,
        site: str | None,
        num_samples: int | None,
        chunk_size: int,
        new: tuple[str, ...],
    ) -> None:
        super().__init__(key, chunk_size)
        self._posterior, self._behind = posterior, behind
        self._site, self._num_samples, self._new = site, num_samples, new

    def __call__(self, *inputs: object, **named: object) -> Prediction:
        """Predict at new inputs: the model's first arguments, or any of them by name."""
        return self._at("inputs", inputs or named, 0)[0]

    def _predicted(
        self, name: str, inputs: Any, start: int | None, size: int, reused: Reused, *_: object
    ) -> tuple[Prediction, object]:
        plan, before = self._kept or (None, None)
        if before is None or isinstance(inputs, dict):
            call = call_of(self._posterior.model, *with_batch(name, inputs, *self._behind))
        else:  # other arrays in the first places of the call before, which has read the model's signature
            arrays = jax.tree.leaves(inputs)
            call = before._replace(arrays=[*arrays, *before.arrays[len(arrays) :]])
        rows = tuple(inputs) if isinstance(inputs, dict) else tuple(call.arguments)[: len(inputs)]
        plan = plan or plan_of(self._posterior, call, rows, self._site, self._new)
        behind = [name for name in call.arguments if name not in (plan.named or ())]
        for plate in sorted(plan.rows.plates) if reused.is_stream else ():
            check_numbering(plan.found, plate, "rows that come in parts")
            check_behind(plan.found, call, behind, plate, "inputs of the stream")
        return predict_rows(plan, self._key, call, self._num_samples, size, start, reused), (plan, call)


class ProcessPredictor(RepeatedPredictor):
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
        super().__init__(key, chunk_size)
        if isinstance(neighbours, str) and neighbours != "auto":
            cure = "Pass neighbours='auto', or a number such as 256."
            fail("neighbours", "a number or 'auto'", repr(neighbours), cure)
        is_count = neighbours not in (None, "auto")
        self._neighbours = check_count("neighbours", neighbours) if is_count else neighbours
        plates, is_random = tracing.plates_at(posterior, call)
        self._asked = tracing.AskedProcess(posterior, call, plates, gp, conditioned=True)
        few = FEW_DRAWS if is_random and num_samples is None and neighbours_in(call.arguments) else num_samples
        self._index = posterior.spread(few, is_random)

    def __call__(self, X: ArrayLike) -> Prediction:
        """Predict new data at rows ``X`` ``(N, D)``."""
        return self.predict(X) if is_traced() else self._at("X", (X,), 0)[0]

    def predict(
        self,
        X: Functional | NewRows | ArrayLike,
        noise_variance: ArrayLike | None = None,
        offset: ArrayLike | Sequence[ArrayLike | None] | None = None,
    ) -> Prediction:
        """Predict all rows that are asked for, once."""
        return self._predicted("X", (X,), None, self._size, Reused(), noise_variance, offset)[0]

    def _predicted(
        self,
        name: str,
        inputs: Any,
        start: int | None,
        size: int,
        reused: Reused,
        noise_variance: ArrayLike | None = None,
        offset: ArrayLike | Sequence[ArrayLike | None] | None = None,
    ) -> tuple[Prediction, object]:
        if not isinstance(inputs, tuple) or len(inputs) != 1:
            cure = "Make it give the new rows alone: (X for X, _ in batches)."
            fail(name, "one array of new rows", f"a {type(inputs).__name__} of {len(inputs)}", cure, TypeError)
        asked, (X,) = self._asked, inputs
        X = X if isinstance(X, (Functional, NewRows)) else check_points("X", X, leading=True)
        # Neighbours are found before anything is traced.
        (finder,) = self._kept or (finder_of(asked, self._key, X, self._index, self._neighbours),)
        X = X if finder is None else finder(X)
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
        if reused.of_chunks is None:
            reused.axis = len(jax.eval_shape(lambda: one_draw(fixed, first, (rows, 0))).batch_shape) - 1
        draws = self._key, self._index
        chunks = predict_chunks(one_draw, fixed, draws, rows, total, size, axes, start, reused)
        return Prediction.of_chunks(chunks, self._key, reused.axis, start, asked.name), (finder,)


def _of_each_row(offset: ArrayLike | Sequence[ArrayLike | None], shape: tuple[int, ...]) -> Array:
    """An offset for each new row, or one of each latent function on the last axis."""
    if isinstance(offset, (tuple, list)):
        return jnp.stack([_of_each_row(0.0 if one is None else one, shape) for one in offset], axis=-1)
    given = check_floating("offset", offset)
    if given.shape not in ((), shape):
        cure = "Pass one number for each row of X."
        fail("offset", f"a number or of shape {shape}", f"shape {given.shape}", cure)
    return jnp.broadcast_to(given, shape)
