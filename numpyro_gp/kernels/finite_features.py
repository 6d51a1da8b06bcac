"""Features of kernels of finite rank: as many functions as they have dimensions, none of them random."""

import math
from collections import Counter
from itertools import combinations_with_replacement

import jax.numpy as jnp
from jaxtyping import Float

from numpyro_gp.arrays import Array
from numpyro_gp.kernels.category import ZeroMeanCategory, around_average
from numpyro_gp.kernels.hyperparameters import per_input
from numpyro_gp.kernels.measures import mean_of
from numpyro_gp.kernels.nonstationary import Constant, Coregion, Linear, Polynomial, at_codes
from numpyro_gp.kernels.zero_mean import ZeroMeanLinear

# Each of shape (N, G, R): G independent groups, 1 where nothing is random, of R functions.
Blocks = tuple[Array, ...]


def _exact(values: Float[Array, "N R"]) -> Blocks:
    return (values[:, None, :],)


def _linear(kernel: Linear, X: Array) -> Blocks:
    return _exact(X * jnp.sqrt(per_input("variance", kernel.variance, X)))


def _line(kernel: ZeroMeanLinear, X: Array) -> Blocks:
    return _exact(jnp.sqrt(kernel.variance) * (X - mean_of(kernel.measure)))


def _constant(kernel: Constant, X: Array) -> Blocks:
    return _exact(jnp.sqrt(kernel._diagonal(X))[:, None])


def _polynomial(kernel: Polynomial, X: Array) -> Blocks:
    """Monomials of the degree in the scaled inputs and the root of the offset: the multinomial theorem."""
    inside = kernel.offset > 0
    offset = jnp.where(inside, jnp.sqrt(jnp.where(inside, kernel.offset, 1)), 0)
    terms = [*(X * jnp.sqrt(per_input("variance", kernel.variance, X))).T, jnp.full(X.shape[:1], offset)]
    found = []
    for choice in combinations_with_replacement(range(len(terms)), kernel.degree):
        orders = math.factorial(kernel.degree) // math.prod(map(math.factorial, Counter(choice).values()))
        found.append(math.sqrt(orders) * math.prod(terms[at] for at in choice))
    return _exact(jnp.stack(found, axis=1))


def _coregion(kernel: Coregion, X: Array) -> Blocks:
    has_own = kernel.diagonal_values > 0
    own = jnp.where(has_own, jnp.sqrt(jnp.where(has_own, kernel.diagonal_values, 1)), 0)
    each = jnp.eye(kernel.weights.shape[0], dtype=own.dtype) * jnp.reshape(own, (1, -1))
    return _exact(at_codes(jnp.concatenate([kernel.weights, each], axis=1), X))


def _centred(kernel: ZeroMeanCategory, X: Array) -> Blocks:
    """The covariance of the levels is ``variance`` times a projection, its own root."""
    return _exact(at_codes(jnp.sqrt(kernel.variance) * around_average(kernel.probabilities), X))


FINITE = {
    Linear: _linear,
    ZeroMeanLinear: _line,
    Constant: _constant,
    Polynomial: _polynomial,
    Coregion: _coregion,
    ZeroMeanCategory: _centred,
}
