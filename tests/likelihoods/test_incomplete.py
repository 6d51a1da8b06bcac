"""Incomplete gamma and beta functions against SciPy, with derivatives that JAX's own do not have."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special as sp
from numpy.testing import assert_allclose
from scipy import stats

from numpyro_gp.likelihoods.tails import log_beta_parts, log_gamma_parts


@pytest.mark.long
def test_incomplete_functions_and_their_second_derivatives():
    """JAX's own have none in the parameters: a finite difference of SciPy stands for them."""
    a, x = np.array([0.3, 2.5, 60.0]), np.array([0.2, 4.0, 75.0])
    below, above = log_gamma_parts(jnp.asarray(a), jnp.asarray(x))
    assert_allclose(below, np.log(sp.gammainc(a, x)), rtol=1e-12)
    assert_allclose(above, np.log(sp.gammaincc(a, x)), rtol=1e-12)
    curve = jax.vmap(jax.grad(jax.grad(lambda a, x: log_gamma_parts(a, x)[1]), argnums=1))(a, x)
    h, log = 1e-4, lambda a, x: np.log(sp.gammaincc(a, x))
    steps = (log(a + h, x + h) - log(a + h, x - h) - log(a - h, x + h) + log(a - h, x - h)) / (4 * h * h)
    assert_allclose(curve, steps, rtol=1e-5)
    slope = jax.grad(lambda a: log_beta_parts(a, jnp.array(2.0), jnp.array(0.3), jnp.array(0.7))[0])(1.5)
    step = np.log(sp.betainc(1.5 + 1e-5, 2, 0.3) / sp.betainc(1.5 - 1e-5, 2, 0.3)) / 2e-5
    assert_allclose(slope, step, rtol=1e-7)


def logs(mass):
    """Logarithms of two parts of one, the larger by what the smaller leaves."""
    small = np.minimum(*mass)
    return [np.where(part == small, np.log(small), np.log1p(-small)) for part in mass]


def far_part(a, x):
    """``log P`` below ``a``, ``log Q`` above: sums that are long enough, where SciPy is wrong by the rounding of ``a``."""
    front, n = stats.gamma(a).logpdf(x) + np.log(x), np.arange(1, 4000 + 40 * np.sqrt(a))
    if x < a:
        return front - np.log(a) + np.log1p(np.sum(np.cumprod(x / (a + n))))
    rest = 0.0
    for k in n[::-1]:
        rest = k * (a - k) / (x + 2 * k + 1 - a + rest)
    return front - np.log(x + 1 - a + rest)


@pytest.mark.long
def test_large_parameters_of_the_incomplete_gamma_function():
    """They had 160 terms, and needs grow as sqrt(a): P(Y >= y) at a rate y of a million was 2 nats too low."""

    @jax.jit
    def value(a, x):
        (below, above), back = jax.vjp(log_gamma_parts, a, x)
        return below, above, *back((jnp.zeros_like(a), jnp.ones_like(a)))

    a = np.repeat([11.0, 600.0, 2e4, 1e6, 1e8], 7)
    x = a + np.tile([-4.4, -1.0, -1e-3, 0.0, 1e-3, 1.0, 4.4], 5) * np.sqrt(a)
    a, x = a[x > 0], x[x > 0]
    for dtype, limit in ((np.float64, 1e-8), (np.float32, 3e-6)):
        at, to = a.astype(dtype), x.astype(dtype)
        exact = [np.float64(part) for part in (at, to)]
        found = value(at, to)
        wanted = logs([sp.gammainc(*exact), sp.gammaincc(*exact)])
        for own, want in zip(found[:2], wanted, strict=True):
            assert_allclose(own, want, rtol=limit)
        slope = -np.exp(stats.gamma(exact[0]).logpdf(exact[1]) - wanted[1])
        assert_allclose(found[3], slope, rtol=max(limit, 1e-6) * 5)
    step = 1e-3 * np.sqrt(a)
    steps = [logs([sp.gammainc(a + sign * step, x), sp.gammaincc(a + sign * step, x)])[1] for sign in (1, -1)]
    assert_allclose(value(a, x)[2], np.subtract(*steps) / (2 * step), rtol=1e-4)
    for a, x in ((11.0, 80.0), (600.0, 200.0), (2e4, 2.5e4), (1e6, 9.7e5), (1e6, 1.03e6), (1e6, 3e5), (1e6, 3e6)):
        parts = value(np.full(len(step), a), np.full(len(step), x))[:2]
        assert_allclose(min(part[0] for part in parts), far_part(a, x), rtol=1e-8)


@pytest.mark.long
def test_large_parameters_of_the_incomplete_beta_function():
    """The fraction ended after 160 terms: half a nat was lost at a million trials."""
    a, share = np.meshgrid([11.0, 600.0, 1e5, 1e7], [0.2, 1.0, 30.0, 1e3])
    a, b = (np.repeat(part.ravel(), 7) for part in (a, np.maximum(share * a, 11.0)))
    mean = a / (a + b)
    x = mean + np.tile([-6.0, -2.0, -0.1, 0.0, 0.1, 2.0, 6.0], 16) * np.sqrt(mean * (1 - mean) / (a + b))
    double = [part[(x > 0) & (x < 0.9)] for part in (a, b, x)]
    both = jax.jit(lambda a, b, x: log_beta_parts(a, b, x, 1 - x))
    single = [np.float32(part) for part in double]
    for given in (double, single):
        a, b, x = (np.float64(part) for part in given)
        limit = 1e-8 if given is double else 3e-7 * np.sqrt(np.minimum(a, b))
        wanted = logs([sp.betainc(a, b, x), sp.betaincc(a, b, x)])
        for found, want in zip(both(*given), wanted, strict=True):
            assert np.all(np.abs(found - want) <= limit * (np.abs(want) + (given is single)))
    slope = jax.grad(lambda a: log_beta_parts(a, jnp.array(3e5), jnp.array(0.25), jnp.array(0.75))[0])(1e5)
    step = np.log(sp.betainc(1e5 + 0.1, 3e5, 0.25) / sp.betainc(1e5 - 0.1, 3e5, 0.25)) / 0.2
    assert_allclose(slope, step, rtol=1e-5)
