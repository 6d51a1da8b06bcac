"""Predictions of inputs that come one after the other: one trace of the model, one program, one factorisation."""

import copy
from collections.abc import Iterator

import jax

from numpyro_gp.arrays import Array
from numpyro_gp.checks import check_count, check_key
from numpyro_gp.posterior.chunks import Reused
from numpyro_gp.posterior.fitted import Fitted
from numpyro_gp.posterior.new_data import Plan, check_parts, plan_of, predict_rows
from numpyro_gp.posterior.prediction import Prediction
from numpyro_gp.programs.trace import is_traced
from numpyro_gp.rows.batches import BatchLayout, batch_tree, layout_of, with_batch
from numpyro_gp.rows.call import Arguments, Call, call_of


class Predictor:
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
        self._posterior, self._key, self._behind = posterior, check_key("key", key), behind
        self._site, self._num_samples, self._new = site, num_samples, new
        self._size = check_count("chunk_size", chunk_size)
        self._first: BatchLayout | None = None
        self._plan: Plan | None = None
        self._call: Call | None = None
        self._reused = Reused()

    def __call__(self, *inputs: object, **named: object) -> Prediction:
        """Predict at new inputs: the model's first arguments, or any of them by name."""
        return self._at("inputs", inputs or named, 0)[0]

    def each(self, chunks: Iterator[object]) -> Iterator[Prediction]:
        """Predictions of a stream of arrays or batches, whose rows are numbered one after the other."""
        start, self._reused.is_stream = 0, True
        for number, chunk in enumerate(chunks):
            found, length = self._at(f"chunks[{number}]", batch_tree(chunk), start)
            yield found
            start += length

    def _at(self, name: str, inputs: object, start: int) -> tuple[Prediction, int]:
        if not is_traced():
            return self._now(name, inputs, start)
        # Inside a program of JAX arrays are that program's, and do not outlive it: nothing is kept.
        alone = copy.copy(self)
        alone._reused = copy.copy(self._reused)
        return alone._now(name, inputs, start)

    def _now(self, name: str, inputs: object, start: int) -> tuple[Prediction, int]:
        layout = layout_of(name, inputs, self._first)
        first, call = self._first or layout, self._call_of(name, inputs)
        rows = tuple(inputs) if isinstance(inputs, dict) else tuple(call.arguments)[: len(inputs)]
        plan = self._plan or plan_of(self._posterior, call, rows, self._site, self._new)
        if self._reused.is_stream:
            check_parts(plan, call)
        size, reused = min(self._size, first.longest), copy.copy(self._reused)
        found = predict_rows(plan, self._key, call, self._num_samples, size, start, reused)
        # Kept once it has worked: a call that is refused leaves no mark on those after it.
        self._first, self._call, self._plan, self._reused = first, call, plan, reused
        return found, layout.longest

    def _call_of(self, name: str, inputs: object) -> Call:
        """The model's call: after the first, which reads its signature, other arrays in the first places."""
        if self._call is None or isinstance(inputs, dict):
            return call_of(self._posterior.model, *with_batch(name, inputs, *self._behind))
        arrays = jax.tree.leaves(inputs)
        return self._call._replace(arrays=[*arrays, *self._call.arrays[len(arrays) :]])
