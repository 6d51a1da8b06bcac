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


@functools.partial(jax.jit, static_argnames="sloped")
def both(likelihood, weights, y, mean, variance, sloped):
    """Values of the rows of both quantities, and slopes of weighted sums of some in likelihood, mean and variance."""

    def total(likelihood, mean, variance, quantity):
        values = getattr(likelihood, quantity)(y, mean, variance)
        return jnp.sum(weights * values), values

    given = likelihood, mean, variance
    slopes = jax.grad(total, (0, 1, 2), has_aux=True)
    return {name: slopes(*given, name) if name in sloped else ((), total(*given, name)[1]) for name in QUANTITIES}


def answers(likelihood, entry, dtype="float64", at=slice(None)):
    """By quantity; only rows ``at`` count in the slopes. In single precision the predictive density has none."""
    y, mean, variance = rows(entry)
    weights = np.zeros(len(y), dtype)
    weights[at] = 1
    sloped = QUANTITIES if dtype == "float64" else QUANTITIES[:1]
    return jax.tree.map(np.asarray, both(likelihood, weights, y, mean.astype(dtype), variance.astype(dtype), sloped))


@functools.cache
def known(name, dtype="float64"):
    return answers(REGISTRY[name].likelihood, REGISTRY[name], dtype)


@functools.partial(jax.jit, static_argnames="quantity")
def evaluate(likelihood, quantity, *arguments):
    return getattr(likelihood, quantity)(*arguments)


@jax.jit
def moments(likelihood, mean, variance):
    return likelihood.predictive_mean(mean, variance), likelihood.predictive_variance(mean, variance)


@functools.partial(jax.jit, static_argnames="quantity")
def curvature(likelihood, quantity, y, mean, variance):
    """Along the sum of all directions: NaN of one of them is NaN here."""
    slopes = jax.grad(lambda *moments: jnp.sum(getattr(likelihood, quantity)(y, *moments)), (0, 1))
    return jax.jvp(slopes, (mean, variance), (jnp.ones_like(mean), jnp.ones_like(variance)))[1]


@every_likelihood
def test_jensen_orders_the_two_quantities(name):
    expected, predictive = (known(name)[quantity][1][DATA] for quantity in QUANTITIES)
    assert (predictive > expected).all()


@every_likelihood
def test_gradients_match_finite_differences(name):
    entry, close = REGISTRY[name], functools.partial(assert_allclose, rtol=1e-5, atol=5e-6)
    for (_, d_mean, d_variance), values in known(name).values():
        close(d_mean[DATA], (values[MEAN_UP] - values[MEAN_DOWN]) / (2 * STEP))
        close(d_variance[DATA], (values[VARIANCE_UP] - values[VARIANCE_DOWN]) / (2 * STEP))
    leaves, structure = jax.tree.flatten(entry.likelihood)
    slopes = answers(entry.likelihood, entry, at=DATA)
    for i in range(len(leaves)):
        moved = [[leaf + s * (i == k) for k, leaf in enumerate(leaves)] for s in (STEP, -STEP)]
        up, down = (answers(structure.unflatten(part), entry) for part in moved)
        for quantity in QUANTITIES:
            difference = np.sum(up[quantity][1][DATA] - down[quantity][1][DATA]) / (2 * STEP)
            close(np.sum(jax.tree.leaves(slopes[quantity][0][0])[i]), difference)


@every_likelihood
def test_zero_variance_is_the_conditional_with_finite_slopes(name):
    entry = REGISTRY[name]
    exact = entry.likelihood.conditional(MEAN).log_prob(labels_of(entry))
    for slopes, values in known(name).values():
        assert_allclose(values[WITHOUT], np.tile(exact, 2), atol=1e-9)  # NumPyro's own density
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))


def labels_of(entry):
    """NumPyro's categorical takes integers."""
    y = np.array(entry.targets)
    return y.astype(int) if isinstance(entry.likelihood, Ordinal) else y


@pytest.mark.long
@every_likelihood
@pytest.mark.parametrize("quantity", QUANTITIES)
def test_zero_variance_has_the_slope_of_the_conditional_and_a_finite_curvature(name, quantity):
    entry = REGISTRY[name]
    log_prob = jax.grad(lambda f: entry.likelihood.conditional(f).log_prob(labels_of(entry)).sum())
    assert_allclose(known(name)[quantity][0][1][WITHOUT][:3], log_prob(MEAN), atol=1e-6)
    for narrow in NARROW:
        found = curvature(entry.likelihood, quantity, np.array(entry.targets), MEAN, np.full(3, narrow))
        assert np.isfinite(found).all()


@every_likelihood
def test_log_concave_likelihoods_have_nonnegative_precision(name):
    """``lambda = -2 dE/ds >= 0``: what natural-gradient steps need; also in float32 at tiny variances."""
    entry = REGISTRY[name]
    assert entry.log_concave != isinstance(entry.likelihood, StudentT | Beta | ZeroInflatedPoisson)
    for dtype in ("float32", "float64") if entry.log_concave else ():
        assert (known(name, dtype)[QUANTITIES[0]][0][2][ON_GRID] <= 0).all()


@every_likelihood
def test_float32_keeps_its_dtype_and_stays_close(name):
    low, high = known(name, "float32"), known(name)
    for quantity in QUANTITIES:
        assert low[quantity][1].dtype == np.float32
        assert_allclose(low[quantity][1][DATA], high[quantity][1][DATA], rtol=2e-5, atol=1e-5)
    slopes = (found[QUANTITIES[0]][0][2][DATA] for found in (low, high))
    assert_allclose(*slopes, rtol=1e-3, atol=1e-4)


@every_likelihood
def test_pytree_and_pickle_round_trips(name):
    entry = REGISTRY[name]
    leaves, structure = jax.tree.flatten(entry.likelihood)
    for copy in (structure.unflatten(leaves), pickle.loads(pickle.dumps(entry.likelihood))):
        assert jax.tree.structure(copy) == structure
        jax.tree.map(np.testing.assert_array_equal, answers(copy, entry), known(name))
    structure.unflatten([object()] * len(leaves))  # no check runs when JAX rebuilds a value


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
        mass = np.exp(evaluate(entry.likelihood, QUANTITIES[1], y, *full)) * jacobian
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
