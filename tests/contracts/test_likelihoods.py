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
every_likelihood = pytest.mark.parametrize("entry", REGISTRY.values(), ids=REGISTRY.keys())


@functools.partial(jax.jit, static_argnames="quantity")
def evaluate(likelihood, quantity, *arguments):
    return getattr(likelihood, quantity)(*arguments)


@functools.partial(jax.jit, static_argnames="quantity")
def slopes(likelihood, quantity, y, mean, variance):
    def total(likelihood, mean, variance):
        return jnp.sum(getattr(likelihood, quantity)(y, mean, variance))

    return jax.grad(total, argnums=(0, 1, 2))(likelihood, mean, variance)


@functools.partial(jax.jit, static_argnames="quantity")
def curvatures(likelihood, quantity, y, mean, variance):
    def one(y, mean, variance):
        return jax.hessian(getattr(likelihood, quantity), argnums=(1, 2))(y, mean, variance)

    return jax.vmap(one)(y, mean, variance)


@every_likelihood
def test_jensen_orders_the_two_quantities(entry):
    y = np.array(entry.targets)
    gap = evaluate(entry.likelihood, QUANTITIES[1], y, MEAN, VARIANCE)
    gap = gap - evaluate(entry.likelihood, QUANTITIES[0], y, MEAN, VARIANCE)
    assert (np.asarray(gap) > 0).all()


@pytest.mark.long
@every_likelihood
@pytest.mark.parametrize("quantity", QUANTITIES)
def test_zero_variance_is_the_conditional_with_finite_derivatives(entry, quantity):
    y = np.array(entry.targets)
    labels = y.astype(int) if isinstance(entry.likelihood, Ordinal) else y  # NumPyro's categorical takes integers
    exact = entry.likelihood.conditional(MEAN).log_prob(labels)
    for variance in (0.0, 1e-12):
        found = evaluate(entry.likelihood, quantity, y, MEAN, np.full(3, variance))
        assert_allclose(found, exact, atol=1e-9)  # NumPyro's own density of the same parametrisation
        for part in jax.tree.leaves(slopes(entry.likelihood, quantity, y, MEAN, np.full(3, variance))):
            assert np.isfinite(part).all()
        for part in jax.tree.leaves(curvatures(entry.likelihood, quantity, y, MEAN, np.full(3, variance))):
            assert np.isfinite(part).all()
    d_mean = slopes(entry.likelihood, quantity, y, MEAN, np.zeros(3))[1]
    assert_allclose(d_mean, jax.grad(lambda f: entry.likelihood.conditional(f).log_prob(labels).sum())(MEAN), atol=1e-6)


@every_likelihood
@pytest.mark.parametrize("quantity", QUANTITIES)
def test_gradients_match_finite_differences(entry, quantity):
    y, step = np.array(entry.targets), 1e-4
    in_parameters, d_mean, d_variance = slopes(entry.likelihood, quantity, y, MEAN, VARIANCE)

    def value(mean=MEAN, variance=VARIANCE, likelihood=entry.likelihood):
        return evaluate(likelihood, quantity, y, mean, variance)

    close = functools.partial(assert_allclose, rtol=1e-5, atol=5e-6)
    close(d_mean, (value(mean=MEAN + step) - value(mean=MEAN - step)) / (2 * step))
    close(d_variance, (value(variance=VARIANCE + step) - value(variance=VARIANCE - step)) / (2 * step))
    leaves, structure = jax.tree.flatten(entry.likelihood)
    for i, found in enumerate(jax.tree.leaves(in_parameters)):
        up, down = ([leaf + s * (i == k) for k, leaf in enumerate(leaves)] for s in (step, -step))
        up, down = (value(likelihood=structure.unflatten(moved)).sum() for moved in (up, down))
        close(np.sum(found), (up - down) / (2 * step))


@every_likelihood
def test_log_concave_likelihoods_have_nonnegative_precision(entry):
    """``lambda = -2 dE/ds >= 0``: what natural-gradient steps need; also in float32 at tiny variances."""
    if not entry.log_concave:
        assert type(entry.likelihood) in (StudentT, Beta, ZeroInflatedPoisson)
        return
    mean = np.linspace(-5, 5, 21)
    for dtype in (np.float32, np.float64):
        for y in entry.targets:
            for variance in (1e-10, 1e-3, 1.0):
                full = np.full(21, variance, dtype)
                precision = -2 * slopes(entry.likelihood, QUANTITIES[0], np.full(21, y), mean.astype(dtype), full)[2]
                assert (np.asarray(precision) >= 0).all()


@pytest.mark.long
@every_likelihood
def test_float32_keeps_its_dtype_and_stays_close(entry):
    y, single = np.array(entry.targets), [part.astype(np.float32) for part in (MEAN, VARIANCE)]
    for quantity in QUANTITIES:
        found = evaluate(entry.likelihood, quantity, y, *single)
        assert found.dtype == jnp.float32
        assert_allclose(found, evaluate(entry.likelihood, quantity, y, MEAN, VARIANCE), rtol=2e-5, atol=1e-5)
    for quantity in ("predictive_mean", "predictive_variance"):
        found = evaluate(entry.likelihood, quantity, *single)
        assert found.dtype == jnp.float32
        assert_allclose(found, evaluate(entry.likelihood, quantity, MEAN, VARIANCE), rtol=1e-4)
    gradient = slopes(entry.likelihood, QUANTITIES[0], y, *single)
    assert_allclose(gradient[2], slopes(entry.likelihood, QUANTITIES[0], y, MEAN, VARIANCE)[2], rtol=1e-3, atol=1e-4)


@every_likelihood
def test_pytree_and_pickle_round_trips(entry):
    leaves, structure = jax.tree.flatten(entry.likelihood)
    y = np.array(entry.targets)
    exact = evaluate(entry.likelihood, QUANTITIES[0], y, MEAN, VARIANCE)
    for copy in (structure.unflatten(leaves), pickle.loads(pickle.dumps(entry.likelihood))):
        assert jax.tree.structure(copy) == structure
        assert_allclose(evaluate(copy, QUANTITIES[0], y, MEAN, VARIANCE), exact, rtol=0)
    structure.unflatten([object()] * len(leaves))  # no check runs when JAX rebuilds a value


@pytest.mark.long
@every_likelihood
def test_predictive_density_integrates_to_one_with_the_stated_moments(entry):
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
    for mean, variance in zip(shrink * MEAN, shrink * VARIANCE, strict=True):
        full = np.full(y.shape, mean), np.full(y.shape, variance)
        mass = np.exp(evaluate(entry.likelihood, QUANTITIES[1], y, *full)) * jacobian
        first = np.sum(mass * y)
        second = np.sum(mass * (y - first) ** 2)
        assert_allclose(mass.sum(), 1.0, atol=2e-5)
        assert_allclose(first, evaluate(entry.likelihood, "predictive_mean", mean, variance), rtol=1e-3, atol=1e-5)
        assert_allclose(second, evaluate(entry.likelihood, "predictive_variance", mean, variance), rtol=2e-2)


@pytest.mark.long
@every_likelihood
def test_draws_of_the_conditional_have_the_predictive_moments(entry):
    """50 000 draws; each mean within 5 standard errors (six in ten million by chance), variances for bounded errors.

    Five standard errors are 2 % of a standard deviation: a moment with half of the latent variance is off by more.
    """
    count = 50_000
    key_f, key_y = jax.random.split(jax.random.key(7))
    f = MEAN + np.sqrt(VARIANCE) * np.asarray(jax.random.normal(key_f, (count, 3)))
    y = np.asarray(entry.likelihood.conditional(jnp.asarray(f)).sample(key_y), float)
    mean = evaluate(entry.likelihood, "predictive_mean", MEAN, VARIANCE)
    variance = evaluate(entry.likelihood, "predictive_variance", MEAN, VARIANCE)
    assert (np.abs(y.mean(0) - mean) < 5 * np.sqrt(variance / count)).all()
    fourth = np.mean((y - y.mean(0)) ** 4, axis=0)
    if not isinstance(entry.likelihood, StudentT):  # df = 3.5 has no fourth moment
        assert (np.abs(y.var(0) - variance) < 6 * np.sqrt(fourth / count)).all()


@every_likelihood
def test_good_targets_pass_and_nan_is_refused(entry):
    entry.likelihood.check_targets(np.array(entry.targets))
    jax.jit(lambda y: entry.likelihood.check_targets(y))(jnp.array([jnp.nan]))
    with pytest.raises(ValueError, match="obs must be finite"):
        entry.likelihood.check_targets(np.array([np.nan]))
