"""What follows from a belief's three methods: the distribution of its whitened values, or that it has none."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import numpyro_gp as ngp
from numpyro_gp.beliefs import (
    AdditiveBasis,
    Basis,
    BlockDiagonal,
    BlockLowRank,
    Coupled,
    Decoupled,
    DecoupledLayer,
    Hybrid,
    MeanField,
    Orthogonal,
    Structured,
)
from numpyro_gp.beliefs.components import component_covariance, whitened_blocks
from numpyro_gp.kernels import Matern32
from tests.contracts.compositions import Delegating as Delegate

RNG = np.random.default_rng(3)
X = jnp.asarray(np.sort(RNG.normal(size=(6, 2)), axis=0))


@functools.cache
def single():
    """Not where the file is read: each process of a run reads all files, and these are a second of small programs."""
    return Basis.build(Matern32(1.3, 0.8), X[:4])


@functools.cache
def added():
    kernels = {"a": Matern32(1.3, 0.8).on(0), "b": Matern32(0.7, 1.1).on(1)}
    return AdditiveBasis.build(kernels, {"a": X[:2], "b": X[1:3]}, 1e-6)


def lower(size, *batch):
    return np.tril(RNG.normal(size=(*batch, size, size)), -1) * 0.4 + np.diag(RNG.uniform(0.2, 0.9, size))


MEAN, MEANS, C, CS = RNG.normal(size=4), RNG.normal(size=(3, 4)), lower(4), lower(4, 3)
SCALES, W, BLOCKS = RNG.uniform(0.2, 1.2, size=(3, 4)), RNG.normal(size=(4, 2)), (lower(2), lower(2))
BLOCK = np.block([[BLOCKS[0], np.zeros((2, 2))], [np.zeros((2, 2)), BLOCKS[1]]])
# Belief, its basis, and S by hand.
ABOUT_VALUES = {
    "coupled": (Coupled(MEAN, C), single, C @ C.T),
    "coupled, outputs": (Coupled(MEANS, CS), single, CS @ np.swapaxes(CS, 1, 2)),
    "mean field": (MeanField(MEAN, SCALES[0]), single, np.diag(SCALES[0] ** 2)),
    "mean field, outputs": (MeanField(MEANS, SCALES), single, np.stack([np.diag(s**2) for s in SCALES])),
    "structured": (Structured(MEAN, W), single, np.linalg.inv(np.eye(4) + W @ W.T)),
    "coupled, additive": (Coupled(MEAN, C), added, C @ C.T),
    "structured, additive": (Structured(MEAN, W), added, np.linalg.inv(np.eye(4) + W @ W.T)),
    "block diagonal": (BlockDiagonal(MEAN, dict(zip("ab", BLOCKS))), added, BLOCK @ BLOCK.T),
    "block low rank": (BlockLowRank(MEAN, BLOCKS, W), added, np.linalg.inv(BLOCK @ BLOCK.T + W @ W.T)),
}
POINTS, COEFFICIENTS = X[4:] + 0.3, jnp.asarray([0.7, -0.4])
ABOUT_MORE = {
    "decoupled": Decoupled(POINTS, COEFFICIENTS, 0.3 * C),
    "hybrid": Hybrid(POINTS, COEFFICIENTS, MEAN, C),
    "layer": DecoupledLayer(POINTS, COEFFICIENTS, scale_tril=C),
    "orthogonal": Orthogonal(POINTS, COEFFICIENTS, MEAN, C),
}


@pytest.mark.long
@pytest.mark.parametrize("name", ABOUT_VALUES)
def test_three_methods_give_the_distribution_of_the_whitened_values(name):
    """Mean and covariance by hand, for the belief and for one that has its three methods only: zeros are off by > 0.1.

    Standard errors of 10000 draws are 0.01 to 0.015; independent draws, of no factor, are off by 0.1.
    """
    belief, build, covariance = ABOUT_VALUES[name]
    basis, scale = build(), np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))
    for own in (belief, Delegate(belief)):
        found = own.whitened(basis)
        np.testing.assert_allclose(found.mean, belief.mean, atol=1e-12)
        factor = np.asarray(found.scale_tril)
        np.testing.assert_allclose(factor @ np.swapaxes(factor, -1, -2), covariance, atol=1e-12)
        np.testing.assert_allclose(found.kl(), belief.kl(basis), rtol=1e-9)
        assert bool(own.is_whitened(basis))
        np.testing.assert_allclose(own.whitened_moments(basis)[1], scale, atol=1e-12)
        z = (np.asarray(own.draw_whitened(jax.random.key(1), (10000,), basis)) - np.asarray(belief.mean)) / scale
        np.testing.assert_allclose(z.mean(0), 0.0, atol=0.05)
        correlation = covariance / (scale[..., None] * scale[..., None, :])
        np.testing.assert_allclose(np.einsum("s...i,s...j->...ij", z, z) / 10000, correlation, atol=0.075)


@pytest.mark.long
@pytest.mark.parametrize("name", ABOUT_MORE)
def test_beliefs_that_say_more_are_known_by_their_divergence(name):
    """Also where their class says nothing; traced, what is refused is NaN and not a plausible number."""
    for belief in (ABOUT_MORE[name], Delegate(ABOUT_MORE[name])):
        assert not bool(belief.is_whitened(single()))
        if belief is ABOUT_MORE["orthogonal"]:  # whose m and C are those of v, and that has more besides
            np.testing.assert_array_equal(belief.whitened().mean, MEAN)
            continue
        with pytest.raises(ValueError, match=r"one over the inducing values.*of another KL divergence.*predict"):
            belief.draw_whitened(jax.random.key(0), (), single())
        with pytest.raises(ValueError, match=r"one over the inducing values.*without it"):
            belief.whitened_moments()
        assert np.isnan(jax.jit(lambda own: own.whitened(single()).mean)(belief)).all()


def test_a_belief_alone_says_what_its_whitened_values_are_or_refuses():
    """Not zeros: `Belief.mean` and `variance` of decoupled beliefs, and of those whose values follow from the site."""
    own = ngp.Belief(Coupled(MEAN, C))
    np.testing.assert_allclose(own.mean, MEAN)
    np.testing.assert_allclose(own.variance, np.diag(C @ C.T), rtol=1e-12)
    for belief in (*(ABOUT_MORE[name] for name in ("decoupled", "hybrid", "layer")), Delegate(Coupled(MEAN, C))):
        for moment in ("mean", "variance"):
            with pytest.raises(ValueError, match=f"but got a {type(belief).__name__} without it"):
                getattr(ngp.Belief(belief), moment)


@pytest.mark.long
def test_components_of_a_belief_that_nobody_knows():
    for name in ("coupled, additive", "structured, additive", "block diagonal", "block low rank"):
        belief, build, covariance = ABOUT_VALUES[name]
        basis = build()
        expected = component_covariance(belief, basis, X)
        np.testing.assert_allclose(component_covariance(Delegate(belief), basis, X), expected, atol=1e-12)
        for own in (belief, Delegate(belief)):
            for block, at in zip(whitened_blocks(own, basis), basis.slices, strict=True):
                np.testing.assert_allclose(block, covariance[at, at], atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_rounding_does_not_hide_a_belief_about_values(dtype):
    """Posterior scales down to 0.02; an orthogonal part of 0.05 prior standard deviations is still seen."""
    scales = jnp.asarray([0.02, 0.1, 0.5, 1.0], dtype)
    basis = Basis.build(Matern32(jnp.asarray(1.3, dtype), jnp.asarray(0.8, dtype)), X[:4].astype(dtype))
    belief = Delegate(MeanField(jnp.asarray(MEAN, dtype), scales))
    assert bool(belief.is_whitened(basis))
    slight = Orthogonal(POINTS.astype(dtype), 0.2 * COEFFICIENTS.astype(dtype), belief.inner.mean, jnp.diag(scales))
    assert not bool(Delegate(slight).is_whitened(basis))
