"""Integrals and averages of correlations by quadrature, in NumPy and in JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from numpyro_gp.kernels import RBF, Matern12, Matern32, Matern52
from numpyro_gp.kernels.profiles import averages, double_mean, integral, less_average, of_average, over_normal

CORRELATIONS = {
    RBF: lambda t: np.exp(-0.5 * t**2),
    Matern12: lambda t: np.exp(-t),
    Matern32: lambda t: (1 + np.sqrt(3) * t) * np.exp(-np.sqrt(3) * t),
    Matern52: lambda t: (1 + np.sqrt(5) * t + 5 * t**2 / 3) * np.exp(-np.sqrt(5) * t),
}


@pytest.mark.parametrize("kind", CORRELATIONS)
def test_integrals_and_double_means(kind):
    """The double mean over [0, 1]^2 is ``2 int_0^1 (1 - t) kappa(t / l) dt``."""
    kappa, x, l = CORRELATIONS[kind], np.array([0.0, 0.3, 2.0]), 0.13
    wanted = [quad(kappa, 0, end, epsabs=1e-13)[0] for end in x]
    np.testing.assert_allclose(integral(kind, x, np), wanted, rtol=1e-12, atol=1e-14)
    mean = quad(lambda t: 2 * (1 - t) * kappa(t / l), 0, 1, epsabs=1e-13, limit=200)[0]
    np.testing.assert_allclose(double_mean(kind, np.asarray(l), np), mean, rtol=1e-11)
    both = jax.jit(lambda x, l: (integral(kind, x), double_mean(kind, l)))(jnp.asarray(x), jnp.asarray(l))
    np.testing.assert_allclose(both[0], wanted, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(both[1], mean, rtol=1e-11)


def test_averages_under_a_normal_distribution():
    """Of the RBF kernel: ``E kappa(x - s)`` is a density of two variances, and ``b`` its average."""
    x, l, mean, sd = np.array([-1.0, 0.2]), 0.7, 0.1, 1.3
    first = np.sqrt(2 * np.pi) * l * stats.norm(mean, np.hypot(l, sd)).pdf(x) - 1
    second = np.sqrt(2 * np.pi) * l * stats.norm(0, np.sqrt(l**2 + 2 * sd**2)).pdf(0) - 1
    for xp in (np, jnp):
        a, b = over_normal(xp.asarray(x), l, mean, sd, xp)
        np.testing.assert_allclose(a, first, rtol=1e-12)
        np.testing.assert_allclose(b, second, rtol=1e-12)


def test_what_averages_take_off_is_that_of_matrices():
    """Conditioning on an average of zero, ``K - K w w^T K / w^T K w``, and a function less its average, ``P K P^T``."""
    rng = np.random.default_rng(0)
    x, w = rng.uniform(size=5), rng.dirichlet(np.ones(5))
    K = CORRELATIONS[RBF](np.abs(x[:, None] - x) / 0.7)
    P = np.eye(5) - np.outer(np.ones(5), w)
    a, c = K @ w, w @ K @ w
    for xp, tolerance in ((np, 1e-14), (jnp, 1e-13)):
        one, other, gram = (xp.asarray(value) for value in (a[:, None], a[None, :], K))
        conditioned = gram - 1 - of_average(one - 1, other - 1, c - 1)
        np.testing.assert_allclose(conditioned, K - np.outer(a, a) / c, atol=tolerance)
        np.testing.assert_allclose(less_average(gram, one, other, c), P @ K @ P.T, atol=tolerance)


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
