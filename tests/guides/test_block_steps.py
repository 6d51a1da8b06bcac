"""Steps in beliefs of additive sites, against formulas typed out with dense matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import block_diag

from numpyro_gp.beliefs.members import Stacks, alike
from numpyro_gp.guides.natural import block_factors, natural_low_rank
from numpyro_gp.likelihoods import Gaussian
from tests.oracles.additive import additive_basis_of
from tests.oracles.vectors import cases

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
