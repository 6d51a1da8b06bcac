"""Features of all terms at rows, at any hyper-parameters, as the engine saw them.

The default fit computes features in NumPy, in double precision, and so does what is asked of it later (`InDouble`). The
other engines run the model in JAX: their whitened values belong to its factors, and so one program of a fixed number of
rows serves every table (`TermFeatures`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array
from numpyro_gp.beliefs.additive_basis import AdditiveBasis
from numpyro_gp.gam.densities import filled
from numpyro_gp.gam.hyperparameters import most_lengths
from numpyro_gp.gam.model import CONSTANT, Model
from numpyro_gp.gam.row_features import RowFeatures
from numpyro_gp.gam.term_kernels import count_lengthscales
from numpyro_gp.gam.term_posteriors import Blocks
from numpyro_gp.kernels import Constant
from numpyro_gp.kernels.batches import Batch, KernelBatches
from numpyro_gp.programs.keep import kept, quickly
from numpyro_gp.programs.trace import traced

# Rows of one call of a program; the last ones of a table are filled up.
ROWS = 512
# Rows whose features are held at once in double precision.
MANY = 4096


class ScaledFeatures(NamedTuple):
    """Components at rows: features ``A (M, N)`` and prior variances ``(C, N)``, both with their scales."""

    A: np.ndarray
    prior: np.ndarray


# Components at the rows that it was made for, from standard deviations ``(C,)`` and lengthscales ``(L,)``.
FeatureFunction = Callable[[np.ndarray, np.ndarray], ScaledFeatures]


class TermFeatures:
    """The components of a model at rows, by a JAX program of `ROWS` rows and lengthscales ``(L,)``."""

    step = ROWS

    def __init__(self, model: Model) -> None:
        self.model, self.dtype = model, np.dtype(jnp.result_type(float))
        self.sizes = [*(len(model.kernel_data.inducing[part.name]) for part in model.layout.read_terms), 1]
        self.blocks = Blocks.of(self.sizes)
        self.repeats = np.repeat(np.arange(len(self.sizes)), self.sizes)
        self._set_up()

    def _set_up(self) -> None:
        rows = np.zeros((ROWS, self.model.rows.X.shape[1]), self.dtype)
        lengths = np.ones(sum(map(count_lengthscales, self.model.layout.read_terms)))
        found = traced(self._unit, lengths.astype(self.dtype), rows)
        run = kept(found.program, "quickly", lambda: quickly(found.program, 1))
        self._run: Any = lambda *own: jax.tree.unflatten(found.structure, run(*found.constants, *own))

    def _unit(self, lengths: Array, X: Array) -> tuple[Array, Array, Array]:
        """Features, prior variances, and the rows of each factor ``L`` filled up to one width."""
        own, one = self.model, jnp.ones((), X.dtype)
        terms = own.kernel_data.kernels(jnp.ones(len(self.sizes) - 1, X.dtype), lengths)
        kernels = KernelBatches((*terms.names, CONSTANT), (*terms.batches, Batch((CONSTANT,), (), Constant(one))))
        basis = AdditiveBasis.build(kernels, own.inducing(X.dtype), own.jitter)
        factors = [group.basis.factor if group.columns else group.basis.factor[None] for group in basis.groups]
        most = max(one.shape[-1] for one in factors)
        wide = [jnp.pad(one, ((0, 0), (0, 0), (0, most - one.shape[-1]))) for one in factors]
        return basis.features(X), basis.diagonals(X), basis.stacks.together(wide)

    def _called(self, lengths: np.ndarray, X: np.ndarray) -> tuple[np.ndarray, ...]:
        found = self._run(lengths.astype(self.dtype), filled(X, ROWS).astype(self.dtype))
        return tuple(np.asarray(one, float) for one in found)

    def cuts(self, count: int) -> list[slice]:
        """Rows that are seen at once."""
        return [slice(low, min(low + self.step, count)) for low in range(0, count, self.step)]

    def at(self, X: np.ndarray) -> FeatureFunction:
        """What sees these rows, as often as it is asked."""

        def features_at(scales: np.ndarray, lengths: np.ndarray) -> ScaledFeatures:
            parts = [
                [leaf[:, : len(X[own])] for leaf in self._called(lengths, X[own])[:2]] for own in self.cuts(len(X))
            ]
            values, prior = parts[0] if len(parts) == 1 else (np.concatenate(leaves, axis=1) for leaves in zip(*parts))
            return self._scaled(scales, values, prior)

        return features_at

    def _scaled(self, scales: np.ndarray, values: np.ndarray, prior: np.ndarray) -> ScaledFeatures:
        return ScaledFeatures(scales[self.repeats, None] * values, scales[:, None] ** 2 * prior)

    def __call__(self, scales: np.ndarray, lengths: np.ndarray, X: np.ndarray) -> ScaledFeatures:
        """Components with standard deviations ``(C,)`` at any number of rows."""
        return self.at(X)(scales, lengths)

    def factor(self, scales: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """``L (M, M)`` of all components as blocks."""
        rows = self._called(lengths, self.model.rows.X[:1])[2]
        found = np.zeros((len(rows), len(rows)))
        for first, size, scale in zip(self.blocks.first, self.sizes, scales, strict=True):
            own = slice(first, first + size)
            found[own, own] = scale * rows[own, :size]
        return found


class InDouble(TermFeatures):
    """The same in NumPy, with the features that the default fit has seen: nothing is compiled."""

    step = MANY

    def _set_up(self) -> None:
        counts = [*map(count_lengthscales, self.model.layout.read_terms), 0]
        self._filled = np.arange(most_lengths(self.model)) < np.array(counts)[:, None]
        self._first = RowFeatures(self.model, self.model.rows.X[:1], is_sloped=False)

    def _each(self, lengths: np.ndarray) -> np.ndarray:
        """Lengthscales ``(L,)`` by component ``(C, P)``, with ones where one has fewer."""
        found = np.ones(self._filled.shape)
        found[self._filled] = lengths
        return found

    def at(self, X: np.ndarray) -> FeatureFunction:
        row_features = RowFeatures(self.model, X, is_sloped=False)

        def features_at(scales: np.ndarray, lengths: np.ndarray) -> ScaledFeatures:
            features, _ = row_features(self._each(lengths))
            return self._scaled(scales, features.values, features.variances)

        return features_at

    def factor(self, scales: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        found: np.ndarray = scales[self.repeats, None] * self._first.factors(self._each(lengths))
        return found
