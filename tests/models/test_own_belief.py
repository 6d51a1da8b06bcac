"""Low rank plus diagonal is `Coupled` with the same covariance: marginals, joint, divergence and their gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers

import numpyro_gp as ngp
from models import own_belief
from models.own_belief import LowRank

Z, X = np.linspace(-1.0, 1.0, 4)[:, None], np.array([[-0.7], [0.0], [0.3], [2.0], [-1.0]])


@jax.jit
def points():
    """Made by the tests and in one program, not by forty where the file is read."""
    return ngp.beliefs.Basis.build(ngp.kernels.Matern32(1.3, 0.6), jnp.asarray(Z))


def low_rank(outputs=(2,)):
    generator = np.random.default_rng(4)
    mean, factor = generator.normal(size=(*outputs, 4)), generator.normal(size=(*outputs, 4, 2))
    return LowRank(*map(jnp.asarray, (mean, generator.uniform(0.3, 1.5, mean.shape), factor)))


def coupled(belief):
    """The same distribution with a dense factor: S typed out."""
    dense = jax.vmap(jnp.diag)(belief.scale**2) + belief.factor @ jnp.swapaxes(belief.factor, 1, 2)
    return ngp.beliefs.Coupled(belief.mean, jnp.linalg.cholesky(dense))


@jax.jit
def numbers(belief):
    at = points()
    return *belief.marginals(at, jnp.asarray(X)), *belief.joint(at, jnp.asarray(X)), belief.kl(at)


def test_it_equals_a_coupled_belief_of_the_same_covariance():
    """One output, several outputs; W W^T for W^T W, or a missing determinant, would be off by more than 0.1."""
    several = low_rank()
    wanted = numbers(coupled(several))
    for got, expected in zip(numbers(several), wanted, strict=True):
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-12)
    first = numbers(jax.tree.map(lambda leaf: leaf[0], several))
    for got, expected in zip(first[:-1], wanted[:-1], strict=True):
        np.testing.assert_allclose(got, expected[0], rtol=1e-10, atol=1e-12)
    assert several.shape == (2, 4)
    np.testing.assert_array_equal(several.whitened_mean, several.mean)


def test_its_gradients_are_those_of_the_coupled_belief():
    weights = [np.random.default_rng(5).normal(size=np.shape(part)) for part in numbers(low_rank())]

    def total(belief):
        return sum(jnp.sum(weight * part) for weight, part in zip(weights, numbers(belief), strict=True))

    mine = jax.jit(jax.grad(total))(low_rank())
    theirs = jax.jit(jax.grad(lambda belief: total(coupled(belief))))(low_rank())
    for got, expected in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-8, atol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_variance_next_to_an_inducing_point_stays_positive(dtype):
    small = LowRank(jnp.zeros(4, dtype), jnp.full(4, 1e-8, dtype), jnp.zeros((4, 1), dtype))
    basis = ngp.beliefs.Basis.build(ngp.kernels.Matern32(1.3, 0.6), jnp.asarray(Z, dtype), 1e-9)
    marginals = small.marginals(basis, jnp.asarray(Z, dtype))
    assert marginals.variance.dtype == dtype
    assert np.all(np.asarray(marginals.variance) > 0)


@pytest.mark.long
def test_the_recipe_starts_off_the_saddle_and_near_the_prior():
    recipe = own_belief.low_rank(3)
    # The recipe reads shape and type of the prior of its site.
    data = {"X": jnp.asarray(X), "Z": jnp.asarray(Z)}
    with handlers.trace() as sites, handlers.seed(rng_seed=0):
        own_belief.model(**data)
    prior = sites["f"]["fn"]
    belief = handlers.seed(recipe, 0)("f", prior)
    assert belief.factor.shape == (4, 3)
    slope = jax.grad(lambda factor: LowRank(belief.mean, belief.scale, factor).kl(points()))(belief.factor)
    assert float(jnp.abs(slope).min()) > 0
    assert 0 < float(belief.kl(points())) < 0.1
