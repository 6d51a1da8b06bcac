"""Expected log densities and their slopes: against sums of densities by SciPy, and differences."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

import numpyro_gp as ngp
from numpyro_gp.gam.model import families as own
from numpyro_gp.gam.search.bound import BoundParts, Data
from numpyro_gp.likelihoods.links import WIDE
from tests.gam.known import log_density
from tests.likelihoods.grids import expected

RNG = np.random.default_rng(8)
ROWS = 5
MEAN, VARIANCE, WEIGHTS = RNG.normal(size=ROWS), RNG.uniform(0.1, 1, ROWS), RNG.uniform(0.5, 2, ROWS)
COUNTS, LABELS = np.array([0.0, 1, 4, 2, 9]), np.array([0.0, 1, 1, 0, 1])
POSITIVE, SHARES = RNG.uniform(0.1, 3.0, ROWS), RNG.uniform(0.1, 0.9, ROWS)


def test_softplus_is_the_integral_for_any_spread():
    """On both sides of each limit of a rule, with its slopes: by a trapezoidal rule of 800 nodes."""
    limits = [0.0, *(limit * np.pi**2 for _, limit in own.FEW_NODES[1:]), WIDE, 9.0]
    variance = np.array([side * limit for limit in limits for side in (0.99, 1.01)])
    nodes = np.linspace(-12, 12, 801)
    weights = stats.norm.pdf(nodes) * (nodes[1] - nodes[0])
    for mean in (-3.0, 0.2, 9.0):
        p = expit(f := mean + np.sqrt(variance) * nodes[:, None])
        wanted = [weights @ one for one in (np.logaddexp(0, f), p, p * (1 - p))]
        each = np.stack([own.softplus(mean, one) for one in variance], axis=1)  # the widest row decides on the nodes
        for found in (each, own.softplus(mean, variance)):
            for one, other, atol in zip(found, wanted, (1e-10, 3e-10, 3e-9), strict=True):
                np.testing.assert_allclose(one, other, rtol=0, atol=atol)


CASES = {"bernoulli": LABELS, "poisson": COUNTS, "negative_binomial": COUNTS, "beta": SHARES}
CASES |= {"student_t": 3 * RNG.normal(size=ROWS), "gamma": POSITIVE, "exponential": POSITIVE}


@pytest.mark.parametrize("family", CASES)
def test_the_value_is_the_integral_and_slopes_are_differences(family):
    """And all of them are those of the library."""
    y = CASES[family]
    model = ngp.gam.model("y ~ linear(x)", {"x": np.arange(5.0), "y": y}, family)
    parts, data = BoundParts(model), Data.of(model)._replace(weights=WEIGHTS)
    numbers = [np.exp(0.3)] * (len(parts.vector_layout.places) - 1)  # all but the scale of the term
    given = [0.3 * np.ones(len(parts.evaluator.start)), data, MEAN, VARIANCE]
    found = parts.density(*given)
    wanted = WEIGHTS @ expected(lambda f: log_density(family, y, f, *numbers), MEAN, VARIANCE)
    np.testing.assert_allclose(found.value, wanted, rtol=1e-6)
    for at, slopes in ((0, found.of_free), (2, found.of_mean), (3, found.of_variance)):
        moved = []
        for move in 1e-5 * np.eye(len(given[at])):
            up, down = ([*given[:at], given[at] + sign * move, *given[at + 1 :]] for sign in (1, -1))
            moved.append((parts.density(*up).value - parts.density(*down).value) / 2e-5)
        np.testing.assert_allclose(slopes, moved, rtol=1e-5, atol=1e-6)
    for one, other in zip(found, parts.compiled_density(*given), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-9)
