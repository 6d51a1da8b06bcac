"""Decoupled, hybrid and orthogonal beliefs against the dense oracle."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.beliefs import Basis, Coupled
from numpyro_gp.beliefs.curvature_taps import Probe, largest_eigenvalue
from numpyro_gp.beliefs.decoupled import Decoupled, Hybrid, Orthogonal
from numpyro_gp.kernels import RBF
from numpyro_gp.likelihoods import Bernoulli, Gaussian
from tests.oracles.build import answers_and_fitted, basis_of, kernel_of
from tests.oracles.vectors import cases

TOLERANCE = 1e-9  # a missing 1/2, or m for m - R a, is off by more than 1e-2


def decoupled_of(case, dtype=jnp.float64, columns=None):
    return Decoupled(*(jnp.asarray(case[key], dtype) for key in ("Z_alpha", "a", "B_chol")), columns)


def pair_of(kind, case, dtype=jnp.float64, columns=None):
    return kind(*(jnp.asarray(case[key], dtype) for key in ("Z_gamma", "a_gamma", "m", "S_chol")), columns)


def every_case():
    found = [("decoupled", decoupled_of, case) for case in cases("decoupled")]
    found += [("hybrid", lambda *a, **k: pair_of(Hybrid, *a, **k), case) for case in cases("hybrid")]
    return found + [("orthogonal", lambda *a, **k: pair_of(Orthogonal, *a, **k), case) for case in cases("orthogonal")]


CASES = every_case()
NAMES = [f"{name}-{number}" for number, (name, *_) in enumerate(CASES)]


@pytest.mark.parametrize(("name", "build", "case"), CASES, ids=NAMES)
def test_marginals_joint_and_kl(name, build, case):
    """And the bounds of Gaussian data and of labels, which are in the oracle too."""
    (mean, variance), joint, divergence, fitted = answers_and_fitted(build(case), basis_of(case, "Z_beta"), case)
    np.testing.assert_allclose(mean, case["mean"], atol=TOLERANCE)
    np.testing.assert_allclose(variance, case["var"], atol=TOLERANCE)
    np.testing.assert_allclose(joint[0], case["mean"], atol=TOLERANCE)
    np.testing.assert_allclose(joint[1], case["cov"], atol=TOLERANCE)
    np.testing.assert_allclose(divergence, case["kl"], atol=TOLERANCE * max(1, case["kl"]))
    for likelihood, y, tag, atol in (
        (Gaussian(np.sqrt(case["noise"])), "y", "gaussian", TOLERANCE * max(1, abs(case["elbo_gaussian"]))),
        (Bernoulli("probit"), "labels", "bernoulli_probit", 1e-6),
    ):
        bound = likelihood.expected_log_prob(jnp.asarray(case[y]), *fitted).sum() - divergence
        np.testing.assert_allclose(bound, case[f"elbo_{tag}"], atol=atol)


@pytest.mark.parametrize("case", cases("orthogonal"))
def test_column_sampling_is_the_residual_form(case):
    """The plain form differs from it by more than 1e-3 on these vectors."""
    belief = pair_of(Orthogonal, case, columns=jnp.asarray(case["columns"].astype(int)))
    got = belief.kl(basis_of(case, "Z_beta"))
    np.testing.assert_allclose(got, case["kl_columns_residual"], atol=TOLERANCE * max(1, abs(float(got))))
    assert abs(float(got) - case["kl_columns_plain"]) > 1e-3


@pytest.mark.long
@pytest.mark.parametrize("number", [0, 2, 5])
def test_column_sampling_is_unbiased_and_so_are_its_gradients(number):
    """Mean over every index set, not a sample of them; a rival scale |J|/M is off by far more."""
    _, build, case = CASES[number]
    belief = build(case)
    Z, *rest = jax.tree.leaves(belief)

    def kl(Z, a, lengthscale, columns):
        kernel = kernel_of({**case, "lengthscale": lengthscale})
        basis = Basis.build(kernel, jnp.asarray(case["Z_beta"]), 0.0)
        structure = jax.tree.structure(build(case, columns=columns))
        leaves = [Z, a, *rest[1:]] + ([] if columns is None else [columns])
        return jax.tree.unflatten(structure, leaves).kl(basis)

    arguments = (Z, rest[0], jnp.asarray(case["lengthscale"]))
    exact = jax.value_and_grad(kl, (0, 1, 2))(*arguments, None)
    sets = jnp.asarray(list(itertools.combinations(range(Z.shape[0]), 2)))
    sampled = jax.jit(jax.vmap(jax.value_and_grad(kl, (0, 1, 2)), (None, None, None, 0)))(*arguments, sets)
    for got, wanted in zip(jax.tree.leaves(sampled), jax.tree.leaves(exact), strict=True):
        np.testing.assert_allclose(got.mean(0), wanted, rtol=1e-9, atol=1e-9)
    assert np.std(sampled[0]) > 0.1


def test_a_gamma_point_on_an_inducing_point_adds_nothing():
    """There H has a zero row: the direction is redundant, and stays finite."""
    case = cases("orthogonal")[0]
    basis, X = basis_of(case, "Z_beta"), jnp.asarray(case["Xs"])
    belief = Orthogonal(basis.inducing[:1], jnp.array([2.0]), jnp.asarray(case["m"]), jnp.asarray(case["S_chol"]))
    coupled = Coupled(belief.mean, belief.scale_tril)
    np.testing.assert_allclose(belief.kl(basis), coupled.kl(basis), atol=1e-10)
    np.testing.assert_allclose(belief.marginals(basis, X).mean, coupled.marginals(basis, X).mean, atol=1e-10)


def test_the_curvature_is_seen_through_the_joint_as_through_the_marginals():
    """``dL/dOmega = F (dL/dSigma) F^T`` with F typed in NumPy: an objective on `joint` had none of it."""
    case = cases("orthogonal")[1]
    basis, X, kernel = basis_of(case, "Z_beta"), jnp.asarray(case["X"]), kernel_of(case)
    leaves = jax.tree.leaves(pair_of(Orthogonal, case))

    def moment(omega, method, X, weights):
        q = Orthogonal(*leaves, None, Probe(jnp.zeros(()), omega, True))
        return jnp.sum(weights * getattr(q, method)(basis, X)[1])

    slope = jax.jit(jax.grad(moment), static_argnums=1)
    weights = np.random.default_rng(0).normal(size=(len(X), len(X)))
    K = lambda one, other: np.asarray(kernel.matrix(jnp.asarray(one), jnp.asarray(other)))  # noqa: E731
    gamma, beta = case["Z_gamma"], case["Z_beta"]
    F = K(gamma, X) - K(gamma, beta) @ np.linalg.solve(K(beta, beta), K(beta, X))
    omega = jnp.zeros((5, 5))
    np.testing.assert_allclose(slope(omega, "joint", X, weights), F @ weights @ F.T, atol=1e-8)
    one = X[:1]
    of_joint, of_marginals = (slope(omega, method, one, jnp.ones(())) for method in ("joint", "marginals"))
    np.testing.assert_allclose(of_joint, of_marginals, rtol=1e-10)
    assert float(jnp.abs(of_joint).max()) > 1e-3


POINTS = jnp.linspace(0.0, 1.0, 5)[:, None]
ON_A_LINE = Orthogonal(POINTS, jnp.zeros(5), jnp.zeros(3), jnp.eye(3))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Orthogonal(POINTS[:, 0], jnp.zeros(5), jnp.zeros(3), jnp.eye(3)), r"pass Z_gamma\[:, None"),
        (lambda: Hybrid(POINTS, jnp.zeros((2, 5)), jnp.zeros(3), jnp.eye(3)), "as many outputs as a"),
        (lambda: Orthogonal(POINTS, jnp.zeros(5, int), jnp.zeros(3), jnp.eye(3)), "a must be floating"),
        (lambda: Decoupled(POINTS, jnp.zeros(5), jnp.ones((3, 3))), "B_tril must be lower triangular"),
        (lambda: Decoupled(POINTS, jnp.zeros(5), jnp.zeros((3, 2))), "B_tril must be of shape"),
        (lambda: Decoupled(POINTS, jnp.zeros(5), jnp.zeros((3, 3)), jnp.zeros(2)), "whole numbers"),
        (lambda: Decoupled(POINTS, jnp.zeros(5), jnp.zeros((3, 3)), jnp.arange(6)), "1 to 5 indices"),
        (lambda: Decoupled(POINTS, jnp.zeros(5), jnp.zeros((3, 3)), jnp.array([5])), "from 0 to 4"),
        (lambda: Decoupled(POINTS, jnp.zeros(5), jnp.zeros((3, 3)), jnp.array([1, 1])), "without replacem"),
        (lambda: ON_A_LINE.kl(object()), "single Gaussian process"),
        (lambda: ON_A_LINE.kl(Basis.build(RBF(1.0, 1.0), jnp.eye(3)[:, :2])), "with 2 columns"),
    ],
)
def test_bad_beliefs(build, message):
    with pytest.raises((ValueError, TypeError), match=message):
        build()


def test_power_iterations_are_a_limit_for_operators_of_either_sign(rng):
    turn = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    matrix = jnp.asarray(turn @ np.diag([-5.0, 2.0, 1.0, 0.5, 0.1, 0.0]) @ turn.T)
    np.testing.assert_allclose(largest_eigenvalue(lambda x: matrix @ x, 6, jnp.float64), 5.0, rtol=1e-3)
    assert largest_eigenvalue(lambda x: 0 * x, 6, jnp.float64) == 0


@pytest.mark.long
def test_a_probe_changes_no_value_and_its_gradient_is_the_curvature():
    case = cases("orthogonal")[1]
    basis, X, y = basis_of(case, "Z_beta"), jnp.asarray(case["X"]), jnp.asarray(case["y"])
    plain, likelihood = pair_of(Orthogonal, case), Gaussian(np.sqrt(case["noise"]))
    leaves = jax.tree.leaves(plain)

    def loss(a, probe):
        q = Orthogonal(leaves[0], a, *leaves[2:], None, probe)
        return 3.0 * (q.kl(basis) - likelihood.expected_log_prob(y, *q.marginals(basis, X)).sum())

    for shape, of_data in (((5,), False), ((5, 5), False), ((5, 5), True)):
        probe = Probe(jnp.zeros(()), jnp.zeros(shape), of_data)
        without = loss(leaves[1], None)
        slopes = jax.grad(loss, 1)(leaves[1], probe)
        np.testing.assert_array_equal(loss(leaves[1], probe), without)
        np.testing.assert_allclose(slopes.weight, 3.0)
        hessian = jax.hessian(lambda a: loss(a, None))(leaves[1]) if of_data else None
        prior = jax.hessian(lambda a: 3.0 * Orthogonal(leaves[0], a, *leaves[2:]).kl(basis))(leaves[1])
        wanted = hessian if of_data else prior if len(shape) == 2 else jnp.diagonal(prior)
        np.testing.assert_allclose(2 * slopes.covariance, wanted, rtol=1e-8, atol=1e-9)
