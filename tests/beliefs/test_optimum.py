"""Closed-form optima and their bounds against the dense oracle and the exact Gaussian process."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.beliefs import Basis
from numpyro_gp.beliefs.additive_basis import AdditiveBasis
from numpyro_gp.beliefs.gaussian_data import GaussianData
from numpyro_gp.beliefs.optimum import additive_optimum, coupled_optimum, orthogonal_optimum
from numpyro_gp.kernels import RBF, Matern32
from numpyro_gp.likelihoods import Gaussian
from tests.oracles.additive import additive_basis_of, additive_of
from tests.oracles.build import answers, basis_of, build, kernel_of
from tests.oracles.vectors import cases


def arrays(case, *names):
    return [jnp.asarray(case[name]) for name in names]


@jax.jit
def objective(belief, basis, X, y, noise):
    expected = Gaussian(jnp.sqrt(noise)).expected_log_prob(y, *belief.marginals(basis, X)).sum()
    return expected - belief.kl(basis)


coupled, orthogonal = (
    jax.jit(function, static_argnames="jitter") for function in (coupled_optimum, orthogonal_optimum)
)


@pytest.mark.long
@pytest.mark.parametrize("case", cases("orthogonal"))
def test_orthogonal_optimum(case):
    """Its bound lies between those of the coupled optima at one set of inputs, and at both."""
    kernel, noise = kernel_of(case), case["noise"]
    gamma, beta, X, y = arrays(case, "Z_gamma", "Z_beta", "X", "y")
    belief, bound = orthogonal(kernel, gamma, beta, X, y, noise, jitter=0.0)
    np.testing.assert_allclose(belief.a, case["optimal/a_gamma"], atol=1e-7, rtol=1e-7)
    np.testing.assert_allclose(belief.mean, case["optimal/m"], atol=1e-7)
    np.testing.assert_allclose(belief.scale_tril @ belief.scale_tril.T, case["optimal/S"], atol=1e-9)
    np.testing.assert_allclose(bound, case["optimal/elbo"], atol=1e-8 * max(1, abs(case["optimal/elbo"])))
    (mean, _), *_ = answers(belief, basis_of(case, "Z_beta"), jnp.asarray(case["Xs"]))
    np.testing.assert_allclose(mean, case["optimal/mean"], atol=1e-7)
    _, below = coupled(kernel, beta, X, y, noise, jitter=0.0)
    _, above = coupled(kernel, jnp.concatenate([beta, gamma]), X, y, noise, jitter=0.0)
    np.testing.assert_allclose(below, case["coupled_beta_bound"], rtol=1e-9)
    np.testing.assert_allclose(above, case["coupled_union_bound"], rtol=1e-9)
    assert below < bound < above <= case["exact_lml"]


@pytest.mark.parametrize("case", cases("collapsed"))
def test_coupled_optimum(case):
    belief, bound = coupled_optimum(kernel_of(case), *arrays(case, "Z", "X", "y"), case["noise"], jitter=0.0)
    np.testing.assert_allclose(belief.mean, case["m_opt"], atol=1e-9)
    np.testing.assert_allclose(belief.scale_tril @ belief.scale_tril.T, case["S_opt"], atol=1e-9)
    np.testing.assert_allclose(bound, case["bound"], rtol=1e-9)


@pytest.mark.parametrize("size", [4, 12, 30])
def test_the_evidence_lies_between_its_bounds(size, rng):
    """The upper one in its dense form, with unequal noise; with all inputs inducing the two are one number."""
    X, noise = rng.uniform(-3, 3, (30, 1)), rng.uniform(0.1, 0.3, 30)
    kernel = Matern32(1.3, 0.8)
    K, cross, inner = (np.asarray(kernel.matrix(a, b)) for a, b in ((X, X), (X, X[:size]), (X[:size], X[:size])))
    y = np.linalg.cholesky(K + np.diag(noise)) @ rng.normal(size=30)
    Q = cross @ np.linalg.solve(inner, cross.T)
    units = np.sqrt(np.outer(noise, noise))
    left = np.trace((K - Q) / units)
    r, S = y / np.sqrt(noise), Q / units + np.eye(30)
    constant = -0.5 * (np.log(noise).sum() + 30 * np.log(2 * np.pi))
    wanted = constant - 0.5 * np.linalg.slogdet(S)[1] - 0.5 * r @ np.linalg.solve(S + left * np.eye(30), r)
    exact = constant - 0.5 * np.linalg.slogdet(K / units + np.eye(30))[1]
    exact -= 0.5 * r @ np.linalg.solve(K / units + np.eye(30), r)

    basis = Basis.build(kernel, jnp.asarray(X[:size]), 0.0)
    data = GaussianData.build(basis, jnp.asarray(X), jnp.asarray(noise))
    upper, lower = float(data.upper_bound(jnp.asarray(r))), float(data.optimum(jnp.asarray(r))[2])
    np.testing.assert_allclose(upper, wanted, rtol=1e-8)
    assert lower <= exact + 1e-7
    assert exact <= upper + 1e-7
    assert (upper - lower < 1e-6) == (size == 30)


@pytest.mark.long
@pytest.mark.parametrize("jitter", [0.0, 1e-6, 1e-2])
def test_the_bound_is_the_objective_at_the_belief_and_no_step_improves_it(jitter, rng):
    """With one noise variance for each datum; the uncorrected bound is off by the jitter times |a|^2 / 2."""
    case = cases("orthogonal")[0]
    kernel, noise = kernel_of(case), jnp.asarray(rng.uniform(0.05, 0.4, 8))
    gamma, beta, X, y = arrays(case, "Z_gamma", "Z_beta", "X", "y")
    basis = build(Basis.build)(kernel, beta, jitter)
    for belief, bound in (
        coupled(kernel, beta, X, y, noise, jitter=jitter),
        orthogonal(kernel, gamma, beta, X, y, noise, jitter=jitter),
    ):
        np.testing.assert_allclose(bound, objective(belief, basis, X, y, noise), rtol=1e-9)
        if jitter == 0.0:
            slopes = jax.jit(jax.grad(objective, allow_int=True))(belief, basis, X, y, noise)
            for name in ("mean", "a"):
                if hasattr(belief, name):
                    np.testing.assert_allclose(getattr(slopes, name), 0.0, atol=1e-7)


@pytest.mark.long
def test_a_factorisation_that_fails_is_named():
    """Three inducing inputs at one place; a mean, of which a check of beliefs would speak, was not passed."""
    kernel, Z, X = Matern32(1.0, 1.0), jnp.zeros((3, 1)), jnp.linspace(0.0, 1.0, 5)[:, None]
    data = (X, X[:, 0], 0.1)
    for optimum in (
        lambda: coupled_optimum(kernel, Z, *data, jitter=0.0),
        lambda: orthogonal_optimum(kernel, Z, X[:1], *data, jitter=0.0),
        lambda: additive_optimum({"a": kernel}, {"a": Z}, *data, jitter=0.0, form="full"),
        lambda: additive_optimum({"a": kernel}, {"a": Z}, *data, jitter=0.0),
    ):
        with pytest.raises(ValueError, match=r"inducing inputs.* must be positive definite in float64.*larger jitter"):
            optimum()


def optimum_of(case, form, noise=None):
    kernels, inducing = additive_of(case)
    noise = case["noise"] if noise is None else noise
    return additive_optimum(kernels, inducing, case["X"], case["y"], noise, form=form, jitter=0.0)


@pytest.mark.long
@pytest.mark.parametrize("form", ["structured", "full"])
@pytest.mark.parametrize("case", cases("additive"))
def test_the_optimum_is_the_oracles(case, form):
    """Rank N reaches the exact optimum; W = A (without 1/sigma) is off by more than 0.1."""
    belief, bound = jax.jit(lambda: optimum_of(case, form))()
    _, joint, divergence = answers(belief, additive_basis_of(case), jnp.asarray(case["Xs"]))
    np.testing.assert_allclose(belief.mean, case["optimal/m"], atol=1e-8)
    np.testing.assert_allclose(belief.whitened_moments()[1] ** 2, np.diag(case["optimal/S"]), atol=1e-8)
    np.testing.assert_allclose(bound, case["optimal/elbo_gaussian"], atol=1e-7)
    np.testing.assert_allclose(divergence, case["optimal/kl"], atol=1e-7)
    np.testing.assert_allclose(joint.covariance, case["optimal/cov"], atol=1e-8)
    assert bound < case["exact_lml"]


@pytest.mark.long
def test_precise_data_in_single_precision_have_the_bound_of_their_features():
    """Noise of 1/300 of the function, more points than rows; by a factor of all rows it was 9 nats off."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (150, 2)).astype(np.float32)
    y = (np.sin(6 * X[:, 0]) + X[:, 1] ** 2 + 0.003 * rng.normal(size=150)).astype(np.float32)
    with jax.enable_x64(False):
        kernels = {name: RBF(1.0, 0.3).on(column) for column, name in enumerate("ab")}
        Z = dict.fromkeys("ab", jnp.tile(jnp.linspace(0, 1, 90)[:, None], (1, 2)))
        data = GaussianData.build(AdditiveBasis.build(kernels, Z, 1e-4), jnp.asarray(X), jnp.asarray(0.003**2))
        found = additive_optimum(kernels, Z, X, y, 0.003**2, jitter=1e-4)
    B, r, scale = np.asarray(data.features, float), y.astype(float) / 0.003, float(data.scale[0])
    S, left = np.eye(150) + B.T @ B, np.asarray(data.unexplained, float).sum()
    constant = 150 * (np.log(scale) + 0.5 * np.log(2 * np.pi))
    wanted = -0.5 * np.linalg.slogdet(S)[1] - constant - 0.5 * (r @ np.linalg.solve(S, r) + left)
    np.testing.assert_allclose(found.bound, wanted, atol=0.5)
    np.testing.assert_allclose(B.T @ np.asarray(found.belief.mean, float), r - np.linalg.solve(S, r), atol=0.3)
