"""Expected log densities and their slopes: against integrals by SciPy, and differences."""

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.special import expit

import numpyro_gp as ngp
from numpyro_gp.gam import densities as own
from numpyro_gp.gam.hyperparameters import vector_layout_of

RNG = np.random.default_rng(8)
ROWS = 5
MEAN, VARIANCE, WEIGHTS = RNG.normal(size=ROWS), RNG.uniform(0.1, 1, ROWS), RNG.uniform(0.5, 2, ROWS)
COUNTS, LABELS = np.array([0.0, 1, 4, 2, 9]), np.array([0.0, 1, 1, 0, 1])
POSITIVE, SHARES = RNG.uniform(0.1, 3.0, ROWS), RNG.uniform(0.1, 0.9, ROWS)


def nb(y, f, r):
    return stats.nbinom.logpmf(y, r, r / (r + np.exp(f)))


def beta(y, f, k):
    return stats.beta.logpdf(y, k * expit(f), k * expit(-f))


CASES = {
    "bernoulli": (LABELS, lambda y, f: stats.bernoulli.logpmf(y, expit(f))),
    "poisson": (COUNTS, lambda y, f: stats.poisson.logpmf(y, np.exp(f))),
    "negative_binomial": (COUNTS, nb),
    "gamma": (POSITIVE, lambda y, f, a: stats.gamma.logpdf(y, a, scale=np.exp(f) / a)),
    "exponential": (POSITIVE, lambda y, f: stats.expon.logpdf(y, scale=np.exp(f))),
    "beta": (SHARES, beta),
}


def case(family):
    y, log_density = CASES[family]
    model = ngp.gam.model("y ~ linear(x)", {"x": np.arange(5.0), "y": y}, family)
    vector_layout = vector_layout_of(model)
    own_place = [at[0] for name, at in vector_layout.places.items() if name != "f_scale"]
    return y, log_density, vector_layout, own_place, own.density_of(model, vector_layout)


@pytest.mark.parametrize("family", CASES)
def test_the_value_is_the_integral(family):
    """And of a family that is compiled, where rows fill up to eight without a weight."""
    y, log_density, vector_layout, places, density = case(family)
    free = 0.3 * np.ones(vector_layout.size)
    given = [np.exp(free[at]) for at in places]

    def expected(target, mean, variance):
        sd = np.sqrt(variance)
        return quad(
            lambda f: log_density(target, f, *given) * stats.norm.pdf(f, mean, sd), mean - 9 * sd, mean + 9 * sd
        )[0]

    wanted = sum(w * expected(*row) for w, *row in zip(WEIGHTS, y, MEAN, VARIANCE, strict=True))
    np.testing.assert_allclose(density(free, y, MEAN, VARIANCE, WEIGHTS).value, wanted, rtol=1e-6)


@pytest.mark.parametrize("family", CASES)
def test_slopes_are_differences(family):
    y, _, vector_layout, _, density = case(family)
    free, step = 0.3 * np.ones(vector_layout.size), 1e-5
    found = density(free, y, MEAN, VARIANCE, WEIGHTS)

    def slope(at, of):
        move = step * np.eye(len(at))[of]
        parts = [[np.array(one) for one in (free, y, MEAN, VARIANCE, WEIGHTS)] for _ in range(2)]
        for part, sign in zip(parts, (1, -1), strict=True):
            next(one for one in part if np.array_equal(one, at))[:] += sign * move
        return (density(*parts[0]).value - density(*parts[1]).value) / (2 * step)

    for at, slopes in ((free, found.of_free), (MEAN, found.of_mean), (VARIANCE, found.of_variance)):
        np.testing.assert_allclose(slopes, [slope(at, of) for of in range(len(at))], rtol=1e-5, atol=1e-6)


def test_few_sizes_hold_all_numbers_of_rows():
    sizes = [own.padded_size(rows) for rows in range(1, 3000)]
    assert all(size >= rows and size <= max(1.25 * rows, rows + 1) for rows, size in enumerate(sizes, 1))
    assert len(set(sizes)) < 50
    assert own.padded_size(1000) == own.padded_size(963) == 1024
