"""Features of all terms at rows, at any hyper-parameters, as the engine saw them: in NumPy, so nothing is compiled."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from numpyro_gp.beliefs.members import Stacks
from numpyro_gp.gam.hyperparameters import places_of_lengths
from numpyro_gp.gam.model import Model
from numpyro_gp.gam.row_features import RowFeatures

# Rows of one call of a program that computes densities; the last ones of a table are filled up.
ROWS = 512
# Rows whose features are held at once, and numbers in them, at most.
MANY, MANY_NUMBERS = 4096, 600 * 4096


class ScaledFeatures(NamedTuple):
    """Components at rows: features ``A (M, N)`` and prior variances ``(C, N)``, and the factor ``L (M, M)`` in blocks.

    All have their scales.
    """

    A: np.ndarray
    prior: np.ndarray
    factor: np.ndarray


class TermFeatures:
    """The components of a model at rows, in double precision.

    Whitened values belong to the factors of an engine, and so to its jitter: by itself that of programs of JAX.
    """

    def __init__(self, model: Model, is_of_programs: bool = True) -> None:
        self.model, self.dtype, self.is_of_programs = model, np.dtype(jnp.result_type(float)), is_of_programs
        self.sizes = model.sizes
        self.blocks = Stacks.of_sizes(self.sizes)
        self.repeats = np.repeat(np.arange(len(self.sizes)), self.sizes)
        self.step = int(np.clip(MANY_NUMBERS // len(self.repeats), ROWS, MANY))
        self._places = places_of_lengths(model)
        self._first = RowFeatures(model, model.rows.X[:1], False, is_of_programs)
        self.slices = self._first.slices

    def _by_component(self, lengths: np.ndarray) -> np.ndarray:
        """Lengthscales ``(L,)`` by component ``(C, P)``, with ones where one has fewer."""
        return np.append(lengths, 1.0)[self._places]

    def cuts(self, count: int) -> list[slice]:
        """Rows that are held at once."""
        return [slice(low, min(low + self.step, count)) for low in range(0, count, self.step)]

    def at(self, X: np.ndarray) -> Callable[[np.ndarray, np.ndarray], ScaledFeatures]:
        """The components at these rows, from standard deviations ``(C,)`` and lengthscales ``(L,)``."""
        row_features = RowFeatures(self.model, X, False, self.is_of_programs)

        def features_at(scales: np.ndarray, lengths: np.ndarray) -> ScaledFeatures:
            (values, variances, *_), _ = row_features(self._by_component(lengths))
            own = scales[self.repeats, None]
            return ScaledFeatures(own * values, scales[:, None] ** 2 * variances, own * row_features.factor)

        return features_at

    def whitening(self, scales: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """``s_c L_c^-1 (M, M)`` as blocks: features are these times kernels of unit variance."""
        return scales[self.repeats, None] * self._first(self._by_component(lengths))[1]

    def factor(self, scales: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """``L (M, M)`` of all components as blocks."""
        self._first(self._by_component(lengths))
        return scales[self.repeats, None] * self._first.factor
