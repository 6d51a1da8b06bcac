"""Features of all terms at rows, at any hyper-parameters: one program of a fixed number of rows serves every table."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array
from numpyro_gp.beliefs.additive_basis import AdditiveBasis
from numpyro_gp.gam.densities import filled
from numpyro_gp.gam.model import CONSTANT, Model
from numpyro_gp.gam.normals import Blocks
from numpyro_gp.kernels import Constant
from numpyro_gp.kernels.batches import Batch, KernelBatches
from numpyro_gp.programs.keep import kept, quickly
from numpyro_gp.programs.trace import traced

# Rows of one call; the last ones of a table are filled up.
ROWS = 512


class Seen(NamedTuple):
    """Components at rows: features ``A (M, N)`` and prior variances ``(C, N)``, both with their scales."""

    A: np.ndarray
    prior: np.ndarray


class AtRows:
    """The components of a model, with unit variance, at `ROWS` rows and at lengthscales ``(L,)``."""

    def __init__(self, model: Model) -> None:
        self.model, self.dtype = model, np.dtype(jnp.result_type(float))
        self.sizes = [*(len(model.ground.inducing[part.name]) for part in model.layout.parts), 1]
        self.blocks = Blocks.of(self.sizes)
        self.repeats = np.repeat(np.arange(len(self.sizes)), self.sizes)
        rows = np.zeros((ROWS, model.rows.X.shape[1]), self.dtype)
        lengths = np.ones(sum(len(p.term.columns) for p in model.layout.parts if p.term.kind in ("s", "te", "ti")))
        found = traced(self._unit, lengths.astype(self.dtype), rows)
        run = kept(found.program, "quickly", lambda: quickly(found.program, 1))
        self._run: Any = lambda *own: jax.tree.unflatten(found.structure, run(*found.constants, *own))

    def _unit(self, lengths: Array, X: Array) -> tuple[Array, Array, Array]:
        """Features, prior variances, and the rows of each factor ``L`` filled up to one width."""
        own, one = self.model, jnp.ones((), X.dtype)
        terms = own.ground.kernels(jnp.ones(len(self.sizes) - 1, X.dtype), lengths)
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
        """Rows of each call."""
        return [slice(low, min(low + ROWS, count)) for low in range(0, count, ROWS)]

    def __call__(self, scales: np.ndarray, lengths: np.ndarray, X: np.ndarray) -> Seen:
        """Components with standard deviations ``(C,)`` at no more than `ROWS` rows."""
        values, prior, _ = self._called(lengths, X)
        return Seen(scales[self.repeats, None] * values[:, : len(X)], scales[:, None] ** 2 * prior[:, : len(X)])

    def whole(self, scales: np.ndarray, lengths: np.ndarray, X: np.ndarray) -> Seen:
        """The same at any number of rows."""
        parts = [self(scales, lengths, X[at]) for at in self.cuts(len(X))]
        return parts[0] if len(parts) == 1 else Seen(*(np.concatenate(leaves, axis=1) for leaves in zip(*parts)))

    def factor(self, scales: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """``L (M, M)`` of all components as blocks."""
        rows = self._called(lengths, self.model.rows.X[:1])[2]
        found = np.zeros((len(rows), len(rows)))
        for first, size, scale in zip(self.blocks.first, self.sizes, scales, strict=True):
            own = slice(first, first + size)
            found[own, own] = scale * rows[own, :size]
        return found
