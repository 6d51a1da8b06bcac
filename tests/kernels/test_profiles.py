"""Averages of correlations over points, with derivatives that hold no matrix."""

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.kernels.profiles import averages

RNG = np.random.default_rng(0)
X, POINTS, WEIGHTS = (jnp.asarray(RNG.normal(size=size)) for size in (7, 5, 5))


def profile(gaps, lengthscale, power):
    return jnp.cos(gaps / lengthscale) ** 2 * (1 + power * gaps)


def plain(x, points, weights, *parameters):
    return profile(x[:, None] - points[None, :], *parameters) @ weights


def number(function):
    """A scalar that depends on every entry in another way."""
    return lambda *given: jnp.sum(jnp.arange(1.0, 8.0) * function(*given) ** 2)


def test_values_and_derivatives_are_those_of_the_matrix():
    given = X, POINTS, WEIGHTS, jnp.array(0.7), jnp.array(1.3)
    own = lambda *given: averages(profile, *given)  # noqa: E731
    np.testing.assert_allclose(own(*given), plain(*given), rtol=1e-13)
    every = tuple(range(5))
    found, wanted = (jax.jit(jax.grad(number(function), every))(*given) for function in (own, plain))
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-11), found, wanted)
    some = [jax.jit(jax.grad(number(function), 3))(*given) for function in (own, plain)]  # all others are constants
    np.testing.assert_allclose(*some, rtol=1e-12)


def test_second_derivatives_and_batches():
    """Of several lengthscales side by side, each with points of its own, twice differentiated."""
    lengths, points = jnp.array([0.7, 1.1, 1.9]), jnp.stack([POINTS, POINTS + 0.3, 2 * POINTS])

    def twice(function):
        def curvature(length, own):
            return jax.grad(jax.grad(lambda l: number(function)(X, own, WEIGHTS, l, jnp.array(1.3))))(length)

        return jax.jit(jax.vmap(curvature))(lengths, points)

    np.testing.assert_allclose(twice(lambda *given: averages(profile, *given)), twice(plain), rtol=1e-10)
    sum_of = lambda own: jnp.sum(jax.vmap(lambda l, s: averages(profile, X, s, WEIGHTS, l, 1.3))(own, points))  # noqa: E731
    sum_plain = lambda own: jnp.sum(jax.vmap(lambda l, s: plain(X, s, WEIGHTS, l, 1.3))(own, points))  # noqa: E731
    np.testing.assert_allclose(jax.grad(sum_of)(lengths), jax.grad(sum_plain)(lengths), rtol=1e-11)
