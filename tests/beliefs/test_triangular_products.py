"""Products of triangles by halves: values, gradients and second derivatives are those of whole products."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.beliefs import triangular_products as halves
from numpyro_gp.beliefs.moments import whitened_marginals
from tests.beliefs.test_moments import bound, plain, values_of

SIZE = 40  # halves of 32 and 8 rows
LOWER, FULL, WIDE = (np.random.default_rng(n).normal(size=(SIZE, c)) for n, c in ((0, SIZE), (1, SIZE), (2, 7)))
LOWER = np.tril(LOWER)


@pytest.fixture(params=[True, False], ids=["halves", "whole"])
def cut(request, monkeypatch):
    monkeypatch.setattr(halves, "SMALLEST", 16 if request.param else 1000)
    assert halves.half_of(SIZE) == (32 if request.param else 0)


@pytest.mark.usefixtures("cut")
def test_products_and_their_transposes_are_those_of_numpy():
    def transposed(function, like, given):
        return jax.vjp(function, jnp.asarray(like))[1](jnp.asarray(given))[0]

    symmetric, triangle = 0.5 * (FULL + FULL.T), np.tril(FULL)
    lower, full, wide = map(jnp.asarray, (LOWER, FULL, WIDE))
    pairs = [
        (halves.lower_times(lower, wide), LOWER @ WIDE),
        (halves.lower_moved(lower, wide), LOWER @ WIDE),
        (transposed(lambda x: halves.lower_moved(lower, x), WIDE, WIDE), LOWER.T @ WIDE),
        (halves.moved_lower(full, jnp.asarray(triangle)), FULL @ triangle),
        (jnp.tril(transposed(lambda x: halves.moved_lower(full, x), FULL, FULL)), np.tril(FULL.T @ FULL)),
        (halves.lower_congruence(lower, jnp.asarray(symmetric)), LOWER @ symmetric @ LOWER.T),
        (halves.lower_outer_square(lower), LOWER @ LOWER.T),
        (jnp.tril(transposed(halves.lower_outer_square, LOWER, FULL)), np.tril(2 * symmetric @ LOWER)),
    ]
    # A covariance reads its gradient's two triangles alike, so only their sum is asked for.
    back, found = LOWER.T @ FULL @ LOWER, transposed(lambda x: halves.lower_congruence(lower, x), FULL, FULL)
    pairs.append((found + found.T, back + back.T))
    for found, wanted in pairs:
        np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("batch", [(), (2,)])
def test_gradients_of_the_marginals_are_those_of_the_plain_form(batch, monkeypatch, rng):
    """A block that is forgotten is an error of a tenth and more."""
    monkeypatch.setattr(halves, "SMALLEST", 16)
    Z, X = (jnp.asarray(rng.normal(size=(n, 2))) for n in (SIZE, 30))
    mean, factor = values_of(batch, size=SIZE)
    lower = lambda form: lambda a: bound(form, 1e-3, (*a[:4], jnp.tril(a[4])))  # noqa: E731
    arguments = (jnp.asarray(0.7), Z, X, mean, factor)
    both = [jax.jit(jax.value_and_grad(lower(form)))(arguments) for form in (whitened_marginals, plain)]
    for found, wanted in zip(*map(jax.tree.leaves, both), strict=True):
        assert np.abs(wanted).max() > 1e-6
        np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-9 * max(1, np.abs(wanted).max()))
