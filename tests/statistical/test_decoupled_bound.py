"""Properties of decoupled bounds at random parameters: below the evidence, and a KL that is the dense one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from numpyro_gp.beliefs import Basis
from numpyro_gp.beliefs.decoupled import Decoupled, Hybrid, Orthogonal
from numpyro_gp.beliefs.optimum import orthogonal_optimum
from numpyro_gp.kernels import Matern52
from numpyro_gp.likelihoods import Gaussian
from tests.oracles import oracle

SIZES = {"X": 7, "gamma": 4, "beta": 3}


def points(rng, variance, lengthscale, noise, shared):
    """Well separated inputs in a random order, and targets drawn from the model."""
    total = sum(SIZES.values())
    grid = np.linspace(-2, 2, total)[:, None] + rng.uniform(-0.05, 0.05, (total, 1))
    X, gamma, beta = np.split(rng.permutation(grid), [SIZES["X"], SIZES["X"] + SIZES["gamma"]])
    if shared:
        gamma = np.concatenate([beta[:1], gamma[1:]])
    kern = {"name": "matern52", "variance": variance, "lengthscale": np.array([lengthscale])}
    covariance = oracle.gram(kern, X) + noise * np.eye(len(X))
    return X, gamma, beta, kern, rng.multivariate_normal(np.zeros(len(X)), covariance), covariance


@jax.jit
def near_optimum(variance, lengthscale, noise, gamma, beta, X, y, spread, normals):
    """Beliefs of the three kinds around the optimum, with their KLs and bounds."""
    kernel = Matern52(variance, lengthscale)
    basis = Basis.build(kernel, beta, 1e-9)
    best, _ = orthogonal_optimum(kernel, gamma, beta, X, y, noise, jitter=1e-9)
    a = best.a + spread * normals[0]
    mean = best.mean + spread * normals[1]
    factor = best.scale_tril @ jnp.tril(jnp.eye(len(beta)) + 0.3 * spread * normals[2])
    factor = factor * jnp.sign(jnp.diagonal(factor))[None]
    projected = basis.inverse @ kernel.matrix(beta, gamma) @ a
    beliefs = (
        Decoupled(gamma, a, jnp.tril(normals[2])),
        Hybrid(gamma, a, mean - projected, factor),
        Orthogonal(gamma, a, mean, factor),
    )
    found = []
    for belief in beliefs:
        kl = belief.kl(basis)
        expected = Gaussian(jnp.sqrt(noise)).expected_log_prob(y, *belief.marginals(basis, X)).sum()
        found.append((kl, expected - kl))
    return beliefs, found


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_bounds_stay_below_the_evidence_and_the_kl_is_the_dense_one(seed):
    """At and around the optimum, where there is little room; in every second problem both bases share a point."""
    rng = np.random.default_rng(seed)
    values = rng.uniform(0.2, 4.0), rng.uniform(0.3, 1.5), rng.uniform(0.05, 1.0)
    spread, shared = (0.0, 1e-2, 0.1, 1.0)[seed // 3], seed % 2 == 1
    X, gamma, beta, kern, y, covariance = points(rng, *values, shared)
    normals = rng.normal(size=4), rng.normal(size=3), rng.normal(size=(3, 3))
    arrays = [jnp.asarray(value) for value in (gamma, beta, X, y)]
    beliefs, found = near_optimum(*values, *arrays, spread, tuple(map(jnp.asarray, normals)))
    evidence = stats.multivariate_normal(np.zeros(len(y)), covariance).logpdf(y)
    union = np.unique(np.concatenate([gamma, beta]), axis=0)
    decoupled, hybrid, orthogonal = beliefs
    root = np.linalg.cholesky(oracle.gram(kern, beta))
    whole = {"a": np.asarray(hybrid.a), "m": root @ hybrid.mean, "o": root @ orthogonal.mean}
    S = root @ np.asarray(orthogonal.scale_tril @ orthogonal.scale_tril.T) @ root.T
    B = np.asarray(decoupled.B_tril @ decoupled.B_tril.T)
    processes = [
        oracle.decoupled(kern, gamma, whole["a"], beta, B),
        oracle.hybrid(kern, gamma, beta, whole["a"], whole["m"], S),
    ]
    if not shared:  # the oracle's primal construction needs disjoint points
        processes.append(oracle.orthogonal(kern, gamma, beta, whole["a"], whole["o"], S))
    for (kl, _), q in zip(found, processes):
        np.testing.assert_allclose(kl, oracle.process_kl(kern, q, union), rtol=1e-5, atol=1e-5)
    for kl, bound in found:
        assert kl > -1e-9
        assert bound <= evidence + 1e-6 * (1 + abs(evidence))
