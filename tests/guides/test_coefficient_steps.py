"""Steps in the coefficients of a mean basis, against the dense oracle and against formulas typed out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.beliefs.curvature_taps import Probe
from numpyro_gp.beliefs.decoupled import Orthogonal
from numpyro_gp.guides.natural import natural_coefficients, natural_to_mean, newton_coefficients
from numpyro_gp.likelihoods import Gaussian
from tests.oracles.build import basis_of
from tests.oracles.vectors import cases


@pytest.mark.parametrize("case", cases("orthogonal"))
@pytest.mark.parametrize("kind", ["exact", "diagonal"])
def test_a_plain_step_is_the_oracle_natural_step(case, kind):
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
