"""Processes at functionals: against dense algebra, a data set of slopes and averages, and derivatives of draws."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density
from numpyro_gp.functionals import Values, stack
from scipy import stats

import numpyro_gp as ngp
from numpyro_gp.kernels import RBF, Matern12, Matern32, Matern52
from numpyro_gp.kernels.functionals import Average, Derivative

RNG = np.random.default_rng(3)
covariance = jax.jit(ngp.functionals.covariance)
Z, X = jnp.asarray(RNG.uniform(-1, 1, (5, 2))), jnp.asarray(RNG.uniform(-1, 1, (3, 2)))
ROWS = stack([X, Derivative(X, 1), Average(jnp.asarray(RNG.uniform(-1, 1, (2, 4, 2))))])
KERNEL = Matern32(1.3, jnp.array([0.7, 1.1]))
V = jnp.asarray(RNG.normal(size=5))


def trend(X):
    return X[..., 0] * X[..., 1]


def opened(value, make=lambda: ngp.gp("f", KERNEL, Z, mean=trend, jitter=1e-10)):
    """A process whose site holds this value."""
    with handlers.substitute(data={"f": value}), handlers.seed(rng_seed=0):
        return make()


def dense(kernel, inducing, rows, jitter=1e-10):
    """Features and prior covariance in NumPy."""
    gram = np.asarray(covariance(kernel, inducing))
    factor = np.linalg.cholesky(gram + jitter * np.diag(np.diag(gram)))
    return np.linalg.solve(factor, np.asarray(covariance(kernel, inducing, rows))), np.asarray(covariance(kernel, rows))


@pytest.mark.long
@pytest.mark.parametrize("inducing", [Z, ROWS[:5]], ids=["values", "functionals"])
def test_marginals_and_joint_are_those_of_dense_algebra(inducing):
    """Mean function included: ``x0 x1`` has the slope ``x0``. Values and slopes have a jitter in their own units."""
    f = opened(V, lambda: ngp.gp("f", KERNEL, inducing, mean=trend, jitter=1e-10))
    A, prior = dense(KERNEL, inducing, ROWS)
    mean = A.T @ V + np.asarray(ROWS.of(trend))
    np.testing.assert_allclose(ROWS.of(trend)[3:6], X[:, 0], rtol=1e-12)
    rest = prior - A.T @ A
    marginals, joint = f(ROWS), f.joint(ROWS)
    np.testing.assert_allclose(marginals.loc, mean, atol=1e-6)
    np.testing.assert_allclose(marginals.variance, np.diag(rest), atol=1e-6)
    np.testing.assert_allclose(joint.covariance_matrix, rest + 1e-10 * np.diag(np.diag(prior)), atol=1e-6)
    np.testing.assert_allclose(f(X).loc, marginals.loc[:3], atol=1e-12)
    if inducing is not Z:
        np.testing.assert_allclose(f.at_inducing().loc, f(inducing[:]).loc, atol=1e-7)


@pytest.mark.long
def test_inducing_functionals_that_determine_the_data_give_the_exact_process():
    """The collapsed bound at them is the marginal likelihood of the data, that of a covariance in NumPy."""
    y = jnp.asarray(RNG.normal(size=8))

    def model(inducing=None):
        return ngp.gp_regression("y", KERNEL, ROWS, 0.1, mean=trend, inducing=inducing, obs=y, jitter=1e-10)

    matrix = np.asarray(covariance(KERNEL, ROWS))
    wanted = stats.multivariate_normal(np.asarray(ROWS.of(trend)), matrix + 0.1 * np.eye(8)).logpdf(y)
    at = stack([Derivative(Z, 0), Z])

    @jax.jit
    def found():
        return [log_density(model, (own,), {}, {})[0] for own in (None, ROWS, Values(X))], model()(at).loc

    (exact, at_rows, at_values), mean = found()
    np.testing.assert_allclose([exact, at_rows], wanted, rtol=1e-7)
    assert at_values < wanted - 0.1  # values alone do not determine slopes
    gain = np.linalg.solve(matrix + 0.1 * np.eye(8), np.asarray(covariance(KERNEL, ROWS, at)))
    np.testing.assert_allclose(mean, gain.T @ (y - ROWS.of(trend)) + at.of(trend), atol=1e-7)


@pytest.mark.long
@pytest.mark.parametrize("inducing", [Z, ROWS[:5]], ids=["values", "functionals"])
def test_components_add_up(inducing):
    """A component knows that its slope in a column that it does not read is zero."""
    kernels = {"a": RBF(1.0, 0.7).on(0), "b": Matern52(1.0, 0.7).on(1), "c": RBF(0.5, 1.0).on([0, 1])}
    points = {"a": inducing, "b": Z, "c": Z}
    f = opened(jnp.asarray(RNG.normal(size=15)), lambda: ngp.additive_gp("f", kernels, points, mean=trend))
    parts = f.components(ROWS)
    np.testing.assert_allclose(sum(p.loc for p in parts.values()) + ROWS.of(trend), f(ROWS).loc, atol=1e-9)
    np.testing.assert_allclose(parts["a"].loc[3:6], 0, atol=1e-100)
    np.testing.assert_allclose(parts["a"].scale[3:6], 0, atol=1e-100)
    np.testing.assert_allclose(jnp.sum(f.component_covariance(ROWS), (-1, -2)), f(ROWS).variance, rtol=1e-6)
    np.testing.assert_allclose(f(X).loc, f(ROWS).loc[:3], atol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("inducing", [Z, ROWS[:5]], ids=["values", "functionals"])
def test_functions_drawn_have_slopes_and_averages(inducing):
    """What a function says of a functional is that functional of it; at inducing functionals it has their values."""
    f = opened(V, lambda: ngp.gp("f", KERNEL, inducing, mean=trend, jitter=1e-10))
    with handlers.seed(rng_seed=1):
        draw = f.function("draw", num_features=20)
        assert f.draw("values", ROWS).shape == (8,)
    found = draw(ROWS)
    np.testing.assert_allclose(found[:3], draw(X), atol=1e-9)
    np.testing.assert_allclose(found[3:6], draw.gradient(X)[:, 1], atol=1e-9)
    nodes = Values(ROWS[6:].terms.points).of(draw)
    np.testing.assert_allclose(found[6:], nodes.mean(-1), atol=1e-9)
    if inducing is not Z:
        np.testing.assert_allclose(draw(inducing), f.at_inducing().loc, atol=1e-3)


def test_what_a_process_cannot_say_is_refused():
    f = opened(V, lambda: ngp.gp("f", Matern12(1.0, 1.0), Z))
    with pytest.raises(ValueError, match="the kernel of a slope in column 1 must be one whose functions have a slope"):
        f(ROWS)
    assert np.all(np.isfinite(f(Average(X[:, None])).loc))  # averages need none
    with pytest.raises(ValueError, match="X must be functionals of 2 columns"):
        f(Derivative(X[:, :1], 0))
    with pytest.raises(ValueError, match="inducing must be functionals of 2 columns"):
        ngp.gp_regression("y", KERNEL, X, 0.1, inducing=Values(X[:, :1]))


@pytest.mark.long
def test_outputs_members_and_rows_of_one_member_each():
    """Each member is the process alone; levels count by the sum of the weights of a row."""
    values = jnp.asarray(RNG.normal(size=(3, 5)))
    alone = jnp.stack([opened(v, lambda: ngp.gp("f", KERNEL, Z))(ROWS).loc for v in values])
    several = opened(values, lambda: ngp.gp("f", KERNEL, Z, outputs=3))
    np.testing.assert_allclose(several(ROWS).mean, alone.T, atol=1e-9)
    assert several.joint(ROWS).batch_shape == (3,)
    levels = jnp.array([1.0, 2.0, 4.0])

    def members():
        with numpyro.plate("group", 3):
            return ngp.gp("f", KERNEL, Z, mean=levels)

    f, weights = opened(values, members), np.array([1.0, 1, 1, 0, 0, 0, 1, 1])
    np.testing.assert_allclose(f(ROWS).loc, alone + np.outer(levels, weights), atol=1e-9)
    codes = jnp.array([2, 0, 1, 1, 2, 0, 0, 2])
    np.testing.assert_allclose(f.at(codes, ROWS).loc, f(ROWS).loc[codes, jnp.arange(8)], atol=1e-9)
