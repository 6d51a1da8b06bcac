"""Features of the terms at rows, with their slopes in the lengthscales: the part of a fit that JAX compiles.

A component with variance ``s^2`` has ``s`` times the features of unit variance. The program gives these, and the rest
of a bound is linear algebra with a few hundred rows and columns, which NumPy does without compiling (`gam.bounds`).
Rows go through the program in chunks of a few sizes: data of another length find it compiled.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array
from numpyro_gp.beliefs.additive_basis import AdditiveBasis
from numpyro_gp.gam.hyperparameters import Opened, most_lengths, names_of, opened, sites_of, with_slopes
from numpyro_gp.gam.model import CONSTANT, Model
from numpyro_gp.kernels import Constant
from numpyro_gp.programs.keep import kept, quickly
from numpyro_gp.programs.trace import traced

# Rows of one call of the program at most; fewer are filled up to one of four sizes between two powers of two.
CHUNK = 8192
# Numbers in the features of a chunk up to which all fits of some rows run for less time than the compiler would save.
SMALL = 100_000


class Features(NamedTuple):
    """Of ``C`` components with ``M`` inducing inputs at ``N`` rows, all with unit variance.

    Attributes
    ----------
    values : array (M, N)
        ``L^-1 k(Z, X)``, one component after the other.
    variances : array (C, N)
        ``k_c(x_n, x_n)``.
    slopes : array (P, M, N)
        Of the values in the ``p``-th lengthscale of their own component.
    variance_slopes : array (P, C, N)
    """

    values: Any
    variances: Any
    slopes: Any
    variance_slopes: Any

    def first(self, rows: int) -> "Features":
        """Those of the first rows."""
        return Features(*(leaf[..., :rows] for leaf in self))


class Seen(NamedTuple):
    """What the program says at hyper-parameters ``(d,)``: their meaning with its slopes ``(K, d)``, the start ``(d,)``,
    ``L^-1 (M, M)`` of unit variance, and features.
    """

    opened: Opened
    opened_slopes: Any
    start: Any
    inverse: Any
    features: Features


def size_near(rows: int) -> int:
    """The number of rows of the program: the next of ``4, 5, 6, 7`` times a power of two."""
    unit = max(1, 2 ** (int(rows - 1).bit_length() - 3)) if rows > 1 else 1
    return -(-rows // unit) * unit


def filled(values: np.ndarray, size: int) -> np.ndarray:
    """Rows up to a size, the last one again and again."""
    return np.concatenate([values, np.repeat(values[-1:], size - len(values), axis=0)])


class Programs:
    """The programs of a model: its features at rows, and the expected log density of its likelihood."""

    def __init__(self, model: Model) -> None:
        self.model, self.sites = model, sites_of(model)
        self.sizes = np.array([len(model.ground.inducing.get(name, [0])) for name in names_of(model)])
        self._found: dict[Any, Callable[..., Any]] = {}

    def seen(self, free: np.ndarray, X: np.ndarray) -> Iterator[tuple[slice, Seen]]:
        """Chunks of rows, and what the program says of each."""
        whole = len(X) <= CHUNK
        size = size_near(len(X)) if whole else CHUNK
        for low in range(0, len(X), size):
            rows = slice(low, min(low + size, len(X)))
            part = filled(X[rows], size)
            found = self._called("features", self._features, free.astype(self.sites.dtype), part)
            yield (
                rows,
                found._replace(features=found.features.first(rows.stop - low), inverse=self._blocks(found.inverse)),
            )

    def _blocks(self, rows: np.ndarray) -> np.ndarray:
        """Rows of the inverse of each component as the blocks of one matrix."""
        found, ends = np.zeros((len(rows), len(rows))), np.cumsum(self.sizes)
        for size, end in zip(self.sizes, ends, strict=True):
            found[end - size : end, end - size : end] = rows[end - size : end, :size]
        return found

    def expected(
        self, free: np.ndarray, y: np.ndarray, mean: np.ndarray, variance: np.ndarray, weights: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
        """Expected log density of all rows, and its slopes in hyper-parameters, means and variances."""
        named = isinstance(self.model.family.given, str)  # a likelihood of the user's may have a number for each row
        size = size_near(len(y)) if named else len(y)
        rows = [filled(one.astype(self.sites.dtype), size) for one in (y, mean, variance)]
        mass = np.concatenate([weights, np.zeros(size - len(y))]).astype(self.sites.dtype)
        value, slopes = self._called("expected", self._expected, free.astype(self.sites.dtype), *rows, mass)
        of_free, of_mean, of_variance = (np.asarray(one, float) for one in slopes)
        return float(value), of_free, of_mean[: len(y)], of_variance[: len(y)]

    def _called(self, name: str, function: Callable[..., Any], *arguments: np.ndarray) -> Any:
        kind = name, tuple(one.shape for one in arguments)
        if kind not in self._found:
            found = traced(function, *arguments)
            effort = 0 if self.sizes.sum() * arguments[-1].shape[0] <= SMALL else 1
            run = kept(found.program, ("quickly", effort), lambda: quickly(found.program, effort))
            self._found[kind] = lambda *own: jax.tree.unflatten(found.structure, run(*found.constants, *own))
        return jax.tree.map(np.asarray, self._found[kind](*arguments))

    def _features(self, free: Array, X: Array) -> Seen:
        def numbers(one: Array) -> tuple[Opened, Array]:
            found, _, start = opened(self.model, self.sites, one)
            return found, start

        found, slopes, start = with_slopes(numbers, free)
        shape = found.lengths.shape
        (values, variances), push, inverse = jax.linearize(lambda one: self._at(one, X), found.lengths, has_aux=True)
        moved = [push(jnp.zeros(shape, X.dtype).at[:, slot].set(1.0)) for slot in range(most_lengths(self.model))]
        if moved:
            value_slopes, variance_slopes = (jnp.stack(leaves) for leaves in zip(*moved, strict=True))
        else:
            value_slopes, variance_slopes = jnp.zeros((0, *values.shape)), jnp.zeros((0, *variances.shape))
        return Seen(found, slopes, start, inverse, Features(values, variances, value_slopes, variance_slopes))

    def _at(self, lengths: Array, X: Array) -> tuple[tuple[Array, Array], Array]:
        """Features and prior variances of components with unit variance, and beside them the rows of each ``L^-1``."""
        own, one = self.model, jnp.ones((), X.dtype)
        pairs = zip(own.layout.parts, lengths, strict=False)
        kernels = {part.name: own.ground.kernel(part, one, values[: len(part.term.columns)]) for part, values in pairs}
        basis = AdditiveBasis.build(kernels | {CONSTANT: Constant(one)}, own.inducing(X.dtype), own.jitter)
        inverses = [group.basis.inverse if group.columns else group.basis.inverse[None] for group in basis.groups]
        most = max(one.shape[-1] for one in inverses)
        wide = [jnp.pad(one, ((0, 0), (0, 0), (0, most - one.shape[-1]))) for one in inverses]
        return (basis.features(X), basis.diagonals(X)), basis.stacks.together(wide)

    def _expected(self, free: Array, y: Array, mean: Array, variance: Array, weights: Array) -> tuple[Array, Any]:
        def total(free: Array, mean: Array, variance: Array) -> Array:
            likelihood = opened(self.model, self.sites, free)[1]
            found: Array = jnp.sum(weights * likelihood.expected_log_prob(y, mean, variance))
            return found

        return jax.value_and_grad(total, (0, 1, 2))(free, mean, variance)
