"""Plain steps whose derivative is the natural gradient: of a Gaussian, of coefficients of a mean basis, of additive sites."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import block_diag

from numpyro_gp.beliefs import Coupled
from numpyro_gp.beliefs.curvature_taps import Probe
from numpyro_gp.beliefs.decoupled import Orthogonal
from numpyro_gp.beliefs.members import Stacks, alike
from numpyro_gp.guides.natural import (
    block_factors,
    natural_coefficients,
    natural_low_rank,
    natural_to_mean,
    newton_coefficients,
)
from numpyro_gp.likelihoods import Bernoulli, Gaussian
from tests.oracles.additive import additive_basis_of
from tests.oracles.build import basis_of
from tests.oracles.vectors import cases


def natural_of(case):
    precision = np.linalg.inv(case["S_chol"] @ case["S_chol"].T)
    return jnp.asarray(precision @ case["m"]), jnp.asarray(precision)


@pytest.mark.parametrize("case", cases("natgrad"))
@pytest.mark.parametrize(("tag", "likelihood"), [("gaussian", None), ("bernoulli_probit", Bernoulli("probit"))])
def test_a_plain_step_is_the_oracle_natural_step(case, tag, likelihood):
    """An ordinary gradient step in these parameters (no custom rule) lands elsewhere by more than 0.1."""
    basis, X = basis_of(case), jnp.asarray(case["X"])
    likelihood = Gaussian(np.sqrt(case["noise"])) if likelihood is None else likelihood
    y = jnp.asarray(case["y"] if tag == "gaussian" else case["labels"])

    def loss(shift, precision):
        belief = Coupled(*natural_to_mean(shift, precision))
        return belief.kl(basis) - likelihood.expected_log_prob(y, *belief.marginals(basis, X)).sum()

    start = natural_of(case)
    slopes = jax.jit(jax.grad(loss, (0, 1)))(*start)
    for size in ("partial", "full"):
        step = case[f"rho_{size}"]
        mean, factor = natural_to_mean(*[p - step * g for p, g in zip(start, slopes, strict=True)])
        np.testing.assert_allclose(mean, case[f"{tag}_{size}/m"], atol=1e-6)
        np.testing.assert_allclose(factor @ factor.T, case[f"{tag}_{size}/S"], atol=1e-6)
    if tag == "gaussian":
        np.testing.assert_allclose(mean, case["titsias/m"], atol=1e-6)
        np.testing.assert_allclose(
            -loss(*[p - g for p, g in zip(start, slopes, strict=True)]), case["titsias/bound"], atol=1e-6
        )


def test_outputs_are_mapped_one_by_one_and_an_indefinite_precision_is_nan():
    case = cases("natgrad")[0]
    shift, precision = natural_of(case)
    means, factors = natural_to_mean(jnp.stack([shift, 2 * shift]), jnp.stack([precision, 3 * precision]))
    np.testing.assert_allclose(means[1], 2 / 3 * case["m"], atol=1e-10)
    np.testing.assert_allclose(factors[0], case["S_chol"], atol=1e-10)
    assert jnp.isnan(natural_to_mean(jnp.zeros(2), jnp.diag(jnp.array([1.0, -1.0])))[1]).any()


# ------------------------------------------------------------ coefficients of a mean basis


@pytest.mark.long
@pytest.mark.parametrize("case", cases("orthogonal"))
@pytest.mark.parametrize("kind", ["exact", "diagonal"])
def test_a_plain_step_on_coefficients_is_that_of_the_oracle(case, kind):
    """All blocks at once; a loss scaled by c takes the step of c rho in every block (particles of NumPyro do that)."""
    basis, X, y = basis_of(case, "Z_beta"), jnp.asarray(case["X"]), jnp.asarray(case["y"])
    likelihood = Gaussian(np.sqrt(case["noise"]))
    precision = np.linalg.inv(case["S_chol"] @ case["S_chol"].T)
    start = tuple(map(jnp.asarray, (case["a_gamma"], precision @ case["m"], precision)))

    def loss(stored, shift, precision, scale):
        a, weight, zeros, _ = natural_coefficients(stored, kind, 1.0, case["eps"] if kind == "diagonal" else 0.0)
        belief = Orthogonal(
            jnp.asarray(case["Z_gamma"]), a, *natural_to_mean(shift, precision), None, Probe(weight, zeros)
        )
        return scale * (belief.kl(basis) - likelihood.expected_log_prob(y, *belief.marginals(basis, X)).sum())

    slope_at = jax.jit(jax.grad(loss, (0, 1, 2)))
    for scale in (1.0, 0.25):
        slopes = slope_at(*start, scale)
        a, *naturals = (value - case["rho"] / scale * slope for value, slope in zip(start, slopes, strict=True))
        mean, factor = natural_to_mean(*naturals)
        np.testing.assert_allclose(a, case[f"step_{kind}/a_gamma"], rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(mean, case[f"step_{kind}/m"], rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(factor @ factor.T, case[f"step_{kind}/S"], atol=1e-8)


class Dense:
    """``H``, ``F`` and the problem of a case, for two outputs with different noise."""

    def __init__(self):
        case = cases("orthogonal")[0]
        self.basis, self.X, y = basis_of(case, "Z_beta"), jnp.asarray(case["X"]), case["y"]
        self.Z, self.noise, self.y = jnp.asarray(case["Z_gamma"]), np.array([0.1, 0.4]), np.stack([y, -y])
        self.a, self.m, self.C = (np.stack([case[key]] * 2) for key in ("a_gamma", "m", "S_chol"))
        cross, self.A = np.asarray(self.basis.features(self.Z)), np.asarray(self.basis.features(self.X))
        self.F = np.asarray(self.basis.kernel.matrix(self.Z, self.X)) - cross.T @ self.A
        self.H = np.asarray(self.basis.kernel.matrix(self.Z)) - cross.T @ cross

    def loss(self, a, probe, halves=False):
        """The negative bound; by halves of the data, whose sum it is."""
        belief = Orthogonal(self.Z, a, jnp.asarray(self.m), jnp.asarray(self.C), None, probe)
        value, likelihood = belief.kl(self.basis), Gaussian(jnp.sqrt(self.noise)[:, None])
        for rows in (slice(None, 4), slice(4, None)) if halves else (slice(None),):
            seen = belief.marginals(self.basis, self.X[rows])
            value = value - likelihood.expected_log_prob(jnp.asarray(self.y[:, rows]), *seen).sum()
        return value

    def slope(self, p):
        """``F g - H a`` at ``a``."""
        residual = self.y[p] - self.m[p] @ self.A - self.a[p] @ self.F
        return self.F @ residual / self.noise[p] - self.H @ self.a[p]


@pytest.mark.long
@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("kind", ["exact", "diagonal"])
def test_a_step_is_divided_by_the_eigenvalues_of_its_terms(kind, halves):
    """``lambda_max(Q^-1 H) + sum lambda_max(Q^-1 F Lambda F^T)``, about; scaled losses too. Without it the step is 1.8 times as long."""
    dense, eps = Dense(), 0.05

    def loss(stored):
        a, *zeros, top = natural_coefficients(stored, kind, 1.0, eps)
        return 0.25 * dense.loss(a, Probe(*zeros, top=top, eps=eps), halves)

    found = -jax.jit(jax.grad(loss))(jnp.asarray(dense.a)) / 0.25
    Q = (
        np.diag(np.diag(dense.H)) + eps * np.eye(len(dense.H))
        if kind == "diagonal"
        else dense.H + eps * np.eye(len(dense.H))
    )
    top = lambda J: np.linalg.eigvals(np.linalg.solve(Q, J)).real.max()  # noqa: E731
    parts = (slice(None, 4), slice(4, None)) if halves else (slice(None),)
    for p, noise in enumerate(dense.noise):
        limit = top(dense.H) + sum(top(dense.F[:, rows] @ dense.F[:, rows].T / noise) for rows in parts)
        assert limit > 1.5
        np.testing.assert_allclose(found[p], np.linalg.solve(Q, dense.slope(p)) / limit, rtol=0.2)


@pytest.mark.parametrize("rho", [1.0, 0.3])
def test_newton_takes_the_step_of_the_averaged_curvature(rho):
    """``Q <- (1 - rho) Q + rho J``, then ``a + rho Q^-1 slope``: at ``rho = 1`` the best ``a`` of Gaussian data."""
    dense, eps = Dense(), 1e-3
    Q = np.stack([np.eye(len(dense.H)) * scale for scale in (1.0, 3.0)])
    stored = jnp.asarray(np.einsum("pij,pj->pi", Q, dense.a)), jnp.asarray(Q)

    def loss(shift, precision):
        a, weight, zeros = newton_coefficients(shift, precision, 1.0, eps)
        return 0.25 * dense.loss(a, Probe(weight, zeros, of_data=True))

    slopes = jax.jit(jax.grad(loss, (0, 1)))(*stored)
    shift, precision = (value - rho / 0.25 * slope for value, slope in zip(stored, slopes, strict=True))
    landed = newton_coefficients(shift, precision, 1.0, eps)[0]
    for p, noise in enumerate(dense.noise):
        J = dense.H + dense.F @ dense.F.T / noise + eps * np.eye(len(dense.H))
        mean = (1 - rho) * Q[p] + rho * J
        np.testing.assert_allclose(precision[p], mean, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(landed[p], dense.a[p] + rho * np.linalg.solve(mean, dense.slope(p)), rtol=1e-6)


# ------------------------------------------------------------ beliefs of additive sites

RHO, SCALE = 0.1, 0.25


def problem():
    """A site, its data, and parameters away from the start, by the second of two outputs of noise 0.04."""
    case = cases("additive")[0]
    basis, X = additive_basis_of(case), jnp.asarray(case["X"])
    stacks = Stacks(basis.sizes, alike(basis.sizes))
    precisions = tuple(jnp.stack([jnp.eye(basis.sizes[c]) * (2.0 + c) for c in own]) for own in stacks.members)
    return case, basis, X, stacks, precisions


def above_one(matrix, slices):
    """Blocks on the diagonal with their eigenvalues raised to 1."""
    raised = np.zeros_like(matrix)
    for at in slices:
        values, vectors = np.linalg.eigh(matrix[at, at])
        raised[at, at] = vectors * np.maximum(values, 1) @ vectors.T
    return raised


def loss(belief, basis, X, y):
    seen = Gaussian(0.2).expected_log_prob(y, *belief.marginals(basis, X)).sum()
    return SCALE * (belief.kl(basis) - seen)


@pytest.mark.long
@pytest.mark.parametrize("blocks", [False, True])
def test_plain_steps_are_those_of_the_formulas(blocks):
    """Mean: Newton's step by blocks and ``W``, ``Q`` averaged first. ``W``: an iteration of its subspace, the column that a
    belief of rank 1 leaves out as well. The scale of the loss drops out."""
    case, basis, X, stacks, precisions = problem()
    y, W, mean = jnp.asarray(case["y"]), jnp.asarray(case["W"]), jnp.asarray(case["m"])
    dense = lambda parts: block_diag(*stacks.unstacked(parts))  # noqa: E731
    Q = dense(precisions)
    own = tuple(0.5 * one for one in precisions) if blocks else None

    @jax.jit
    @jax.grad
    def slopes(stored):
        return loss(natural_low_rank(stacks, 1, *stored), basis, X, y)

    stored = jnp.asarray(Q @ np.asarray(mean)), W, precisions, own
    shift, W_new, precisions_new, own_new = jax.tree.map(lambda x, g: x - RHO / SCALE * g, stored, slopes(stored))
    A = np.asarray(basis.features(X))
    J = np.eye(len(A)) + A @ A.T / 0.04
    kept = block_diag(*[np.ones((size, size)) for size in basis.sizes])
    Q_new = (1 - RHO) * Q + RHO * J * kept
    given = np.asarray(W) @ np.asarray(W).T
    P = above_one(Q - given * kept, basis.slices) + given
    top = np.linalg.eigvals(np.linalg.solve(P, J)).real.max()
    slope = A @ (np.asarray(y) - A.T @ np.asarray(mean)) / 0.04 - np.asarray(mean)
    np.testing.assert_allclose(dense(precisions_new), Q_new, rtol=1e-8, atol=1e-8)
    step = np.linalg.solve(Q_new, np.asarray(shift)) - np.asarray(mean)
    ratio = step / (RHO * np.linalg.solve(Q_new, Q @ np.linalg.solve(P, slope)))
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-6)
    assert 0.9 / max(1.0, 1 + top / 8) < ratio[0] <= 1.0 + 1e-9  # the sum of two eigenvalues, up to a tenth
    L = 0.5 * Q if blocks else np.eye(len(A))
    precision = L + np.asarray(W) @ np.asarray(W).T
    S = np.linalg.inv(precision)
    W_step = RHO * (J - precision) @ S @ np.asarray(W)
    np.testing.assert_allclose(W_new - W, W_step, rtol=1e-6, atol=1e-8)
    if blocks:
        E, wanted = S @ (J - precision) @ S, []
        for at in basis.slices:
            inner = np.linalg.inv(S[at, at])
            wanted.append(L[at, at] + RHO * inner @ E[at, at] @ inner)
        np.testing.assert_allclose(dense(own_new), block_diag(*wanted), rtol=1e-6, atol=1e-7)


def test_a_step_of_blocks_leaves_them_positive_definite():
    """``W W^T`` far above what the data say asks for 400 times a block; half of the step limit is taken, twice itself."""
    precisions, own = (jnp.eye(2)[None],), (jnp.eye(2)[None],)

    def value(precisions):
        (factor,) = block_factors(precisions, own)
        return 200.0 * jnp.sum(factor**2)

    (slope,) = jax.jit(jax.grad(value))(precisions)
    np.testing.assert_allclose(slope, 2 * jnp.eye(2)[None], atol=1e-9)
