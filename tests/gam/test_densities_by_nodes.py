"""Expected densities by nodes, against integrals with many of them, and slopes against differences."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from numpyro_gp.gam.model import families as own
from numpyro_gp.gam.model.families import NARROW, NODE_ROWS

RNG = np.random.default_rng(4)
# Variances over the squared distance of a singular point: on both sides of each limit of a rule, and far beyond.
RATIOS = np.array([0.0, 1e-8, *(side * limit for _, limit in NARROW[1:] for side in (0.99, 1.01)), 0.3, 2.0, 1e3])
N = len(RATIOS)
MEAN = RNG.normal(size=N)


def integral(log_density, mean, variance, cuts):
    """By 40 nodes of Gauss and Legendre in each of some hundred pieces."""
    nodes, weights = np.polynomial.legendre.leggauss(40)
    edges = np.unique(np.concatenate([np.linspace(-9, 9, 100), np.clip((cuts - mean) / np.sqrt(variance), -9, 9)]))
    half = 0.5 * np.diff(edges)[:, None]
    z = 0.5 * (edges[1:] + edges[:-1])[:, None] + half * nodes
    return np.sum(half * weights * stats.norm.pdf(z) * log_density(mean + np.sqrt(variance) * z))


def of_student_t():
    """Data within the width of their density and far away, of two heavy tails."""
    df, scale, y = np.tile([0.8, 5.0], N)[:N], 0.7, MEAN + np.tile([0.1, 0.1, 3.0], N)[:N]
    width = scale * np.sqrt(df)
    cuts = [y[n] + width[n] * np.outer([-1, 1], 10.0 ** np.arange(-3, 4)).ravel() for n in range(N)]
    variance = RATIOS * (width**2 + (MEAN - y) ** 2)
    log_density = lambda y, f, df, scale: stats.t.logpdf(y, df, f, scale)  # noqa: E731
    return lambda *given: own.student_t(*given).value, (y, MEAN, variance, df, np.full(N, scale)), log_density, cuts


def of_shares():
    """Shares of small and large concentrations, one of them next to none."""
    k, y = np.tile([0.6, 9.0, 300.0], N)[:N], np.where(np.arange(N) % 2, 0.3, 1e-4)
    log_density = lambda y, f, k: stats.beta.logpdf(y, *(np.maximum(k * expit(one), 1e-300) for one in (f, -f)))  # noqa: E731
    return own.beta_value, (y, MEAN, np.minimum(RATIOS, 3.0) * np.pi**2, k), log_density, [np.zeros(0)] * N


@pytest.mark.parametrize("case", [of_student_t, of_shares])
def test_the_value_is_the_integral_for_any_spread(case):
    function, (y, mean, variance, *numbers), log_density, cuts = case()
    wanted = []
    for n in range(N):
        given = [one[n] for one in numbers]
        log = lambda f, n=n, given=given: log_density(y[n], f, *given)  # noqa: E731
        wanted.append(integral(log, mean[n], variance[n], cuts[n]) if variance[n] else log(mean[n]))
    np.testing.assert_allclose(function(y, mean, variance, *numbers), wanted, rtol=1e-10, atol=1e-10)


def test_data_of_more_rows_than_fit_at_once_are_those_of_each():
    """Numbers of draws and rows broadcast."""
    y, mean, k = RNG.uniform(0.1, 0.9, NODE_ROWS + 5), np.array([[0.3], [-0.2]]), np.array([[2.0], [30.0]])
    found = own.beta_value(y, mean, np.full(1, 1e-3), k)
    some = [0, NODE_ROWS - 1, NODE_ROWS, -1]
    np.testing.assert_allclose(found[:, some], own.beta_value(y[some], mean, np.full(1, 1e-3), k), rtol=1e-13)
