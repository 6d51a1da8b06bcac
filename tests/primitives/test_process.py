"""A process in a model: predictions from points and beliefs, joints and draws, shapes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density

import numpyro_gp as ngp


def process(value, kernel, Z, **options):
    """The process that a model sees when its site holds ``value``."""
    with handlers.seed(rng_seed=0), handlers.substitute(data={"f": value}):
        return ngp.gp("f", kernel, Z, **options)


def test_as_many_values_of_a_mean_as_outputs_are_no_values_of_as_many_rows():
    """Levels of three outputs, at three rows, were one for each row; what has a value for each row stays that."""
    Z, X, kernel, levels = jnp.eye(4)[:, :2], jnp.arange(6.0).reshape(3, 2), ngp.kernels.RBF(1.0, 1.0), jnp.arange(3.0)
    at = functools.partial(process, jnp.zeros((3, 4)), kernel, Z, outputs=3)
    with pytest.raises(ValueError, match=r"mean must be a function .* of as many rows as outputs.*Constant\(levels\)"):
        at(mean=lambda X: levels)(X)
    with pytest.raises(
        ValueError, match=r"whose value at X of shape \(3, 2\) has shape \(3, 3\), but got shape \(3, 2\)"
    ):
        at(mean=lambda X: X)(X)
    np.testing.assert_array_equal(at(mean=ngp.means.Constant(levels))(X).mean, jnp.tile(levels, (3, 1)))
    by_rows = jax.jit(lambda X: at(mean=lambda x: x[..., 0])(X).mean)(X)
    np.testing.assert_array_equal(by_rows, jnp.repeat(X[:, :1], 3, axis=1))


def at_own_inputs(value, **options):
    """A process at its inducing inputs, eager and compiled, with the jitter; and their Gram matrix."""
    Z = jnp.asarray(np.random.default_rng(0).normal(size=(5, 2)))
    kernel = ngp.kernels.Matern52(1.3, 0.7)
    at = functools.partial(process, value, kernel, jitter=1e-2, **options)
    noisy = lambda Z: moments(at(Z).at_inducing(with_jitter=True))  # noqa: E731
    return [noisy(Z), jax.jit(noisy)(Z)], np.asarray(kernel.matrix(Z)) + 1.3e-2 * np.eye(5)


def moments(f):
    return jnp.stack([f.mean, f.variance])


POINTS = [(jnp.arange(5.0), {"mean": lambda x: x[..., 0]}), (jnp.arange(10.0).reshape(2, 5), {"outputs": 2})]


@pytest.mark.parametrize(("value", "options"), POINTS)
def test_a_point_at_inducing_is_known_and_has_the_jitter_in_its_kernel(value, options):
    """``u = L v`` of ``K + eps I``, with the mean; f(Z) is off by 1e-2, a factor transposed by 1."""
    named, gram = at_own_inputs(value, **options)
    values = np.asarray(value) @ np.linalg.cholesky(gram).T
    values = values.T
    if "mean" in options:
        values = values + np.random.default_rng(0).normal(size=(5, 2))[:, 0]
    for mean, variance in named:
        np.testing.assert_allclose(mean, values, atol=1e-12)
        np.testing.assert_array_equal(variance, np.zeros_like(values))


def test_a_belief_at_inducing_is_that_of_noisy_values():
    """``L S L^T`` on the diagonal, of ``K + eps I``: without the jitter it is off by 1e-3 and more."""
    named, gram = at_own_inputs(ngp.beliefs.Coupled(jnp.arange(5.0), 0.5 * jnp.eye(5)))
    factor = np.linalg.cholesky(gram)
    for mean, variance in named:
        np.testing.assert_allclose(mean, factor @ np.arange(5.0), atol=1e-12)
        np.testing.assert_allclose(variance, 0.25 * np.diag(gram), atol=1e-12)


def noise_of(f, X, value):
    with handlers.seed(rng_seed=0), handlers.substitute(data={"e": value}):
        return f.draw("e", X)


@pytest.mark.long
def test_at_inducing_the_posterior_is_that_of_a_model_written_by_hand():
    """Density and gradients of labels, whitened values and hyper-parameters, without quadrature, to 1e-10."""
    rng = np.random.default_rng(0)
    X, y, v = jnp.asarray(rng.normal(size=(6, 2))), jnp.asarray(rng.integers(0, 2, 6)), jnp.asarray(rng.normal(size=6))

    def model():
        scale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0))
        f = ngp.gp("f", ngp.kernels.RBF(1.3, scale), X, jitter=1e-4)
        with numpyro.plate("data", 6):
            ngp.observe("y", f.at_inducing(with_jitter=True), ngp.likelihoods.Bernoulli(), obs=y)

    def hand():
        scale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0))
        v = numpyro.sample("f", dist.Normal(0.0, 1.0).expand([6]).to_event(1))
        squares = jnp.sum((X[:, None] - X[None]) ** 2, axis=-1)
        gram = 1.3 * jnp.exp(-0.5 * squares / scale**2) + 1.3e-4 * jnp.eye(6)
        with numpyro.plate("data", 6):
            numpyro.sample("y", dist.Bernoulli(logits=jnp.linalg.cholesky(gram) @ v), obs=y)

    def density(model, at):
        return log_density(model, (), {}, {"lengthscale": at[0], "f": at[1]})[0]

    at = (jnp.array(0.8), v)
    found, wanted = (jax.jit(jax.value_and_grad(lambda at, m=m: density(m, at)))(at) for m in (model, hand))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)
    found, wanted = (jax.jit(jax.hessian(lambda x, m=m: density(m, (x, v))))(at[0]) for m in (model, hand))
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


@pytest.mark.long
def test_draw_is_independent_over_the_data_and_joint_over_axes_left_of_it(rng):
    """Same inputs on the left axis must give the same value: an independent draw (the classic bug) would not."""
    Z, X = rng.normal(size=(5, 1)), rng.normal(size=(4, 1))
    belief = ngp.beliefs.Coupled(jnp.asarray(rng.normal(size=5)), 0.4 * jnp.eye(5))
    f = process(belief, ngp.kernels.Matern52(1.0, 0.6), Z, jitter=1e-10)
    marginal = f(X)
    e = jnp.asarray(rng.normal(size=4))
    np.testing.assert_allclose(noise_of(f, X, e), marginal.loc + marginal.scale * e, rtol=1e-9)
    twice = jnp.stack([jnp.asarray(X), jnp.asarray(X)])
    values = noise_of(f, twice, jnp.asarray(rng.normal(size=(2, 4))))
    np.testing.assert_allclose(values[0], values[1], atol=1e-3)
    apart = jnp.stack([jnp.asarray(X), jnp.asarray(X) + 0.3])
    noise = jnp.asarray(rng.normal(size=(2, 4)))
    drawn = noise_of(f, apart, noise)
    for n in range(4):
        joint = f.joint(apart[:, n])
        dense = joint.loc + np.linalg.cholesky(joint.covariance_matrix) @ noise[:, n]
        np.testing.assert_allclose(drawn[:, n], dense, atol=1e-6)
