"""Products of triangles in bands: values, gradients and second derivatives are those of whole products."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.beliefs import products as bands
from numpyro_gp.beliefs.coupled import whitened_marginals
from tests.beliefs.test_moments import bound, plain, values_of

SIZE = 40  # bands of 16, 16 and 8 rows
LOWER, FULL, WIDE = (np.random.default_rng(n).normal(size=(SIZE, c)) for n, c in ((0, SIZE), (1, SIZE), (2, 7)))
LOWER = np.tril(LOWER)


@pytest.fixture(params=["bands", "few bands", "whole"])
def cut(request, monkeypatch):
    monkeypatch.setattr(bands, "SMALLEST_TRIANGLE", 1000 if request.param == "whole" else 16)
    monkeypatch.setattr(bands, "LARGE", 1000 if request.param == "few bands" else 16)
    assert bands.bands_of(SIZE) == ([(0, 40)] if request.param == "whole" else [(0, 16), (16, 32), (32, 40)])


@pytest.mark.usefixtures("cut")
def test_products_and_their_transposes_are_those_of_numpy():
    def transposed(function, like, given):
        return jax.vjp(function, jnp.asarray(like))[1](jnp.asarray(given))[0]

    symmetric, triangle = 0.5 * (FULL + FULL.T), np.tril(FULL)
    lower, full, even, wide = map(jnp.asarray, (LOWER, FULL, symmetric, WIDE))
    pairs = [
        (bands.lower_times(lower, wide), LOWER @ WIDE),
        (bands.lower_moved(lower, wide), LOWER @ WIDE),
        (transposed(lambda x: bands.lower_moved(lower, x), WIDE, WIDE), LOWER.T @ WIDE),
        (bands.symmetric_moved(even, jnp.asarray(triangle)), symmetric @ triangle),
        (jnp.tril(transposed(lambda x: bands.symmetric_moved(even, x), FULL, FULL)), np.tril(symmetric @ FULL)),
        (jnp.tril(bands.lower_congruence(lower, even)), np.tril(LOWER @ symmetric @ LOWER.T)),
        (bands.lower_outer_square(lower), LOWER @ LOWER.T),
        (jnp.tril(transposed(bands.lower_outer_square, LOWER, FULL)), np.tril(2 * symmetric @ LOWER)),
        (bands.outer_square_in_forms(lower), 0 * FULL),
        (jnp.tril(transposed(bands.outer_square_in_forms, LOWER, symmetric)), np.tril(2 * symmetric @ LOWER)),
        (bands.quadratic_forms(full, wide), np.sum(WIDE * (FULL @ WIDE), axis=0)),
        (transposed(lambda x: bands.quadratic_forms(x, wide), FULL, WIDE[0]), WIDE * WIDE[0] @ WIDE.T),
    ]
    # A covariance reads its gradient's two triangles alike, so only their sum is asked for.
    back, found = LOWER.T @ triangle @ LOWER, transposed(lambda x: bands.lower_congruence(lower, x), FULL, triangle)
    pairs.append((found + found.T, back + back.T))
    for found, wanted in pairs:
        np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-11)


@pytest.mark.long
def test_two_derivatives_of_the_marginals_are_those_of_the_plain_form(monkeypatch, rng):
    """A block that is forgotten is an error of a tenth and more."""
    monkeypatch.setattr(bands, "SMALLEST_TRIANGLE", 16)
    Z, X = (jnp.asarray(rng.normal(size=(n, 2))) for n in (SIZE, 30))
    arguments = (jnp.asarray(0.7), Z, X, *values_of((2,), size=SIZE))

    def along(form, arguments, change):
        """Value, gradient, and how both change along one direction."""
        lower = lambda a: bound(form, 1e-3, (*a[:4], jnp.tril(a[4])))  # noqa: E731
        return jax.jvp(jax.value_and_grad(lower), (arguments,), (change,))

    change = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape)), arguments)
    both = [jax.jit(along, static_argnums=0)(form, arguments, change) for form in (whitened_marginals, plain)]
    for found, wanted in zip(*map(jax.tree.leaves, both), strict=True):
        assert np.abs(wanted).max() > 1e-6
        np.testing.assert_allclose(found, wanted, rtol=1e-7, atol=1e-9 * max(1, np.abs(wanted).max()))
