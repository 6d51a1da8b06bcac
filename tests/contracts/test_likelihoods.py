"""What every likelihood of one latent function must satisfy; adding one to the registry runs them all."""

import functools
import pickle
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from models.own_likelihood import ZeroInflatedPoisson
from numpyro_gp.likelihoods import (
    Bernoulli,
    Beta,
    Binomial,
    Exponential,
    Gamma,
    Gaussian,
    Likelihood,
    NegativeBinomial,
    Ordinal,
    Poisson,
    StudentT,
)

MEAN = np.array([-0.8, 0.3, 1.1])
VARIANCE = np.array([0.15, 0.6, 1.2])


class Entry(NamedTuple):
    likelihood: Likelihood
    targets: tuple[float, float, float]
    grid: np.ndarray | None  # every value of y with visible mass (None: continuous)
    interval: tuple[float, float] = (0.0, 0.0)  # of a continuous y, in the coordinate below
    inside: str = "real"  # the coordinate x: y = x, exp(x), sinh(x) or sigmoid(x)
    log_concave: bool = True


REGISTRY = {
    "gaussian": Entry(Gaussian(0.6), (-0.8, 0.0, 2.0), None, (-15, 15)),
    "student_t": Entry(StudentT(3.5, 0.4), (-0.8, 0.0, 2.0), None, (-15, 15), "sinh", log_concave=False),
    "gamma": Entry(Gamma(2.3), (0.3, 1.0, 4.0), None, (-16, 9), "exp"),
    "exponential": Entry(Exponential(), (0.3, 1.0, 4.0), None, (-34, 9), "exp"),
    "beta_logit": Entry(Beta(4.0), (0.2, 0.5, 0.97), None, (-35, 35), "sigmoid", log_concave=False),
    "beta_probit": Entry(Beta(4.0, "probit"), (0.2, 0.5, 0.97), None, (-35, 35), "sigmoid", log_concave=False),
    "poisson": Entry(Poisson(), (0.0, 1.0, 5.0), np.arange(1500.0)),
    "own": Entry(ZeroInflatedPoisson(jnp.asarray(0.3)), (0.0, 1.0, 5.0), np.arange(1500.0), log_concave=False),
    "negative_binomial": Entry(NegativeBinomial(1.7), (0.0, 1.0, 5.0), np.arange(3000.0)),
    "bernoulli_logit": Entry(Bernoulli("logit"), (0.0, 1.0, 1.0), np.arange(2.0)),
    "bernoulli_probit": Entry(Bernoulli("probit"), (0.0, 1.0, 1.0), np.arange(2.0)),
    "binomial": Entry(Binomial(5.0), (0.0, 2.0, 4.0), np.arange(6.0)),
    "ordinal": Entry(Ordinal(np.array([-0.5, 0.4, 1.0]), 0.5), (0.0, 1.0, 3.0), np.arange(4.0)),
}
SLOW = ("beta_logit", "beta_probit", "binomial", "negative_binomial", "ordinal", "own", "student_t")
QUANTITIES = ("expected_log_prob", "predictive_log_prob")
every_likelihood = pytest.mark.parametrize("name", REGISTRY)
STEP, NARROW, GRID = 1e-4, (0.0, 1e-12), np.linspace(-5, 5, 21)
# What each row of `rows` is for: the data themselves, moved ones for differences, and the same without variance.
DATA, MEAN_UP, MEAN_DOWN, VARIANCE_UP, VARIANCE_DOWN = (slice(3 * part, 3 * part + 3) for part in range(5))
WITHOUT, ON_GRID = slice(15, 21), slice(21, None)


def rows(entry):
    """Targets, means and variances of all that is asked of a likelihood, so that one program answers it."""
    y = np.array(entry.targets)
    asked = [(y, MEAN, VARIANCE)]
    asked += [(y, MEAN + step, VARIANCE) for step in (STEP, -STEP)]
    asked += [(y, MEAN, VARIANCE + step) for step in (STEP, -STEP)]
    asked += [(y, MEAN, np.full(3, narrow)) for narrow in NARROW]
    asked += [(np.full(21, one), GRID, np.full(21, width)) for one in y for width in (1e-10, 1e-3, 1.0)]
    return [np.concatenate(part) for part in zip(*asked)]


@functools.partial(jax.jit, static_argnames="quantities")
def evaluate(likelihood, quantities, *arguments):
    return [getattr(likelihood, quantity)(*arguments) for quantity in quantities]


@functools.partial(jax.jit, static_argnames="quantity")
def sloped(likelihood, quantity, y, mean, variance):
    """Slopes of the sum of all rows in likelihood, mean and variance, and the values of the rows."""

    def total(*given):
        values = getattr(given[0], quantity)(y, *given[1:])
        return jnp.sum(values), values

    slopes, values = jax.grad(total, (0, 1, 2), has_aux=True)(likelihood, mean, variance)
    return *slopes, values


@functools.partial(jax.jit, static_argnames="quantity")
def curved(likelihood, quantity, y, mean, variance):
    """What `sloped` says, and the curvature of each row along the sum of its directions: NaN of one is NaN here."""
    along = jnp.ones_like(mean), jnp.ones_like(variance)
    slopes, bent = jax.jvp(lambda *at: sloped(likelihood, quantity, y, *at), (mean, variance), along)
    return slopes, bent[1:3]


@jax.jit
def moments(likelihood, mean, variance):
    return likelihood.predictive_mean(mean, variance), likelihood.predictive_variance(mean, variance)


@functools.cache
def known(name):
    """Values of both quantities in double precision."""
    return np.asarray(evaluate(REGISTRY[name].likelihood, QUANTITIES, *rows(REGISTRY[name])))


def labels_of(entry):
    """NumPyro's categorical takes integers."""
    y = np.array(entry.targets)
    return y.astype(int) if isinstance(entry.likelihood, Ordinal) else y


def check_slopes(name, quantity, found, **close):
    """Slopes against differences of values in double precision; they are finite without a variance, too."""
    entry, values = REGISTRY[name], known(name)[QUANTITIES.index(quantity)]
    d_likelihood, d_mean, d_variance, _ = found
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))
    assert_allclose(d_mean[DATA], (values[MEAN_UP] - values[MEAN_DOWN]) / (2 * STEP), **close)
    assert_allclose(d_variance[DATA], (values[VARIANCE_UP] - values[VARIANCE_DOWN]) / (2 * STEP), **close)
    leaves, structure = jax.tree.flatten(entry.likelihood)
    for i, slope in enumerate(jax.tree.leaves(d_likelihood)):
        moved = [structure.unflatten([leaf + s * (i == k) for k, leaf in enumerate(leaves)]) for s in (STEP, -STEP)]
        up, down = (evaluate(one, QUANTITIES, *rows(entry))[QUANTITIES.index(quantity)] for one in moved)
        assert_allclose(np.sum(slope), np.sum(up - down) / (2 * STEP), **close)
    if quantity == QUANTITIES[0] and entry.log_concave:  # ``lambda = -2 dE/ds >= 0``, which natural steps need
        assert (d_variance[ON_GRID] <= 0).all()


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name in SLOW)) for name in REGISTRY])
def test_expectations_of_the_density_and_their_slopes(name):
    """Jensen's order, NumPyro's own density without variance, copies; slopes in single precision are differences."""
    entry = REGISTRY[name]
    expected, predictive = known(name)
    assert (predictive[DATA] > expected[DATA]).all()
    exact = entry.likelihood.conditional(MEAN).log_prob(labels_of(entry))
    for values in (expected, predictive):
        assert_allclose(values[WITHOUT], np.tile(exact, 2), atol=1e-9)
    assert entry.log_concave != isinstance(entry.likelihood, StudentT | Beta | ZeroInflatedPoisson)
    y, *at = rows(entry)
    found = sloped(entry.likelihood, QUANTITIES[0], y, *(part.astype(np.float32) for part in at))
    assert found[-1].dtype == found[1].dtype == found[2].dtype == np.float32
    assert_allclose(found[-1][DATA], expected[DATA], rtol=2e-5, atol=1e-5)
    check_slopes(name, QUANTITIES[0], found, rtol=1e-3, atol=1e-4)
    leaves, structure = jax.tree.flatten(entry.likelihood)
    for copy in (structure.unflatten(leaves), pickle.loads(pickle.dumps(entry.likelihood))):
        assert jax.tree.structure(copy) == structure
        np.testing.assert_array_equal(evaluate(copy, QUANTITIES, *rows(entry)), known(name))
    structure.unflatten([object()] * len(leaves))  # no check runs when JAX rebuilds a value


@pytest.mark.long
@every_likelihood
@pytest.mark.parametrize("quantity", QUANTITIES)
def test_slopes_in_double_precision_and_curvature_without_variance(name, quantity):
    """Without variance the slope is that of the conditional; single precision has the predictive density as well."""
    entry = REGISTRY[name]
    found, bent = curved(entry.likelihood, quantity, *rows(entry))
    check_slopes(name, quantity, found, rtol=1e-5, atol=5e-6)
    assert all(np.isfinite(part[WITHOUT]).all() for part in bent)
    log_prob = jax.grad(lambda f: entry.likelihood.conditional(f).log_prob(labels_of(entry)).sum())
    assert_allclose(found[1][WITHOUT][:3], log_prob(MEAN), atol=1e-6)
    y, *at = rows(entry)
    if quantity == QUANTITIES[1]:
        (low,) = evaluate(entry.likelihood, (quantity,), y, *(part.astype(np.float32) for part in at))
        assert low.dtype == np.float32
        assert_allclose(low[DATA], found[-1][DATA], rtol=2e-5, atol=1e-5)


@pytest.mark.long
@every_likelihood
def test_predictive_density_integrates_to_one_with_the_stated_moments(name):
    entry = REGISTRY[name]
    if entry.grid is not None:
        y, jacobian = entry.grid, np.ones_like(entry.grid)
    else:
        x = np.linspace(*entry.interval, 6001)
        width = x[1] - x[0]
        sigmoid = 1 / (1 + np.exp(-x))
        y = {"real": x, "exp": np.exp(x), "sinh": np.sinh(x), "sigmoid": sigmoid}[entry.inside]
        derivative = {"real": 0 * x + 1, "exp": y, "sinh": np.cosh(x), "sigmoid": sigmoid * (1 - sigmoid)}
        jacobian = width * derivative[entry.inside]
    # A beta puts visible mass within rounding of 0 and 1 where its mean is near them: keep the mean inside.
    shrink = 0.1 if entry.inside == "sigmoid" else 1.0
    wanted = moments(entry.likelihood, shrink * MEAN, shrink * VARIANCE)
    for low, high in zip(moments(entry.likelihood, *(np.float32(shrink * own) for own in (MEAN, VARIANCE))), wanted):
        assert low.dtype == np.float32
        assert_allclose(low, high, rtol=1e-4)
    for mean, variance, *stated in zip(shrink * MEAN, shrink * VARIANCE, *wanted, strict=True):
        full = np.full(y.shape, mean), np.full(y.shape, variance)
        mass = np.exp(evaluate(entry.likelihood, QUANTITIES[1:], y, *full)[0]) * jacobian
        first = np.sum(mass * y)
        second = np.sum(mass * (y - first) ** 2)
        assert_allclose(mass.sum(), 1.0, atol=2e-5)
        assert_allclose(first, stated[0], rtol=1e-3, atol=1e-5)
        assert_allclose(second, stated[1], rtol=2e-2)


@every_likelihood
def test_good_targets_pass_and_nan_is_refused(name):
    entry = REGISTRY[name]
    entry.likelihood.check_targets(np.array(entry.targets))
    jax.jit(lambda y: entry.likelihood.check_targets(y))(jnp.array([jnp.nan]))
    with pytest.raises(ValueError, match="obs must be finite"):
        entry.likelihood.check_targets(np.array([np.nan]))
