"""Shapes of functions: the factor of each row, and what draws under it do. ``test_lifted.py`` has rows themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers
from numpyro_gp.functionals import Values
from scipy import integrate, special, stats

import numpyro_gp as ngp
from numpyro_gp.beliefs import Coupled
from numpyro_gp.kernels import RBF, Matern32
from numpyro_gp.kernels.functionals import Derivative
from numpyro_gp.primitives.functionals import convex, monotone, positive

RNG = np.random.default_rng(2)
Z = jnp.linspace(-1.0, 1.0, 5)[:, None]
AT = jnp.asarray([[-0.7], [0.1], [0.9]])
BELIEF = Coupled(jnp.asarray(RNG.normal(size=5)), 0.3 * jnp.eye(5))


def term(say, value=BELIEF, **options):
    """The term of a shape where the site holds a value, and the process."""

    @jax.jit
    def found(value):
        with handlers.trace() as trace, handlers.substitute(data={"f": value}), handlers.seed(rng_seed=0):
            f = ngp.gp("f", Matern32(1.3, 0.6), Z, **options)
            say(f)
        return trace["shape"]["fn"].log_prob(trace["shape"]["value"]), f

    return found(value)


def expected(normal, unit):
    """``E log Phi`` by SciPy."""

    def one(mean, variance, unit):
        sd = np.sqrt(variance)
        integrand = lambda z: special.log_ndtr((mean + sd * z) / unit) * stats.norm.pdf(z)  # noqa: E731
        return integrate.quad(integrand, -9, 9, points=[-mean / sd], limit=200)[0]

    return sum(map(one, np.asarray(normal.loc), np.asarray(normal.variance), unit))


@pytest.mark.long
@pytest.mark.parametrize("tolerance", [0.5, 0.01])
def test_the_term_is_the_expected_log_probit_of_each_row(tolerance):
    """By SciPy's quadrature, of a belief and of a point; a slope of Matern 3/2 has the variance 3 v / l^2."""
    sd = np.sqrt(3 * 1.3) / 0.6
    for value in (BELIEF, BELIEF.mean)[: 1 + (tolerance < 0.1)]:
        found, f = term(lambda f: monotone("shape", f, AT, tolerance=tolerance), value)
        np.testing.assert_allclose(found, expected(f(Derivative(AT, 0)), [tolerance * sd] * 3), rtol=1e-5)
        falls, _ = term(lambda f: monotone("shape", f, AT, increasing=False, tolerance=tolerance), value)
        np.testing.assert_allclose(falls, expected(f(-Derivative(AT, 0)), [tolerance * sd] * 3), rtol=1e-5)


@pytest.mark.long
def test_a_bend_is_a_difference_of_slopes_and_a_bound_a_value():
    found, f = term(lambda f: convex("shape", f, AT))
    bends = Derivative(AT[1:], 0) - Derivative(AT[:-1], 0)
    prior = ngp.functionals.covariance(Matern32(1.3, 0.6), bends)
    np.testing.assert_allclose(found, expected(f(bends), 0.01 * np.sqrt(np.diag(prior))), rtol=1e-5)
    hollow, _ = term(lambda f: convex("shape", f, AT, convex=False))
    assert abs(hollow - found) > 1
    above, _ = term(lambda f: positive("shape", f, AT, tolerance=0.1))
    np.testing.assert_allclose(above, expected(f(AT), [0.1 * np.sqrt(1.3)] * 3), rtol=1e-5)


def test_a_shape_of_what_has_none_is_refused():
    with handlers.seed(rng_seed=0):
        f, g = ngp.gp("f", RBF(1.0, 1.0), Z), ngp.gp("g", RBF(1.0, 1.0), Z, outputs=2)
        for say, message in (
            (lambda: monotone("a", f, AT, column=1), "column must be less than 1, the number of columns of X, but got"),
            (lambda: monotone("a", g, AT), r"f must be of one output, but got outputs=2\. Open a process for each"),
            (lambda: convex("a", f, AT[::-1]), r"rows on a line, rising in column 0 alone, but got others\. Sort"),
            (lambda: convex("a", f, AT[:1]), r"X must be of two or more rows, but got shape \(1, 1\)"),
            (lambda: positive("a", f, AT, tolerance=0.0), "tolerance must be positive, but got 0"),
            (
                lambda: positive("a", f(AT), Values(AT)),
                r"f must be a process, as gp\(\) returns it, but got an? Normal",
            ),
        ):
            with pytest.raises((ValueError, TypeError), match=message):
                say()
