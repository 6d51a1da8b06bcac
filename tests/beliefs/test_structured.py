"""Additive beliefs against the dense oracle and against each other: components, factors, and the rank they need."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import block_diag

from numpyro_gp.beliefs import (
    AdditiveBasis,
    Basis,
    BlockDiagonal,
    BlockLowRank,
    Coupled,
    MeanField,
    Point,
    Structured,
    truncate,
)
from numpyro_gp.beliefs.components import component_covariance, component_marginals, whitened_blocks
from numpyro_gp.kernels import RBF, Constant, Linear
from numpyro_gp.kernels.base import as_kernel
from numpyro_gp.likelihoods import Gaussian
from numpyro_gp.sites import InducingPrior
from tests.oracles.additive import POSTERIORS, additive_basis_of, belief_of
from tests.oracles.build import answers_and_fitted
from tests.oracles.vectors import cases

TOLERANCE = 1e-9  # a dropped cross term E_c^T E_e, or a missing 1/2 in the KL, is off by more than 1e-2


@pytest.mark.long
@pytest.mark.parametrize("tag", POSTERIORS)
@pytest.mark.parametrize("case", cases("additive"))
def test_predictor_kl_and_bound(case, tag):
    (mean, variance), joint, divergence, fitted = answers_and_fitted(
        belief_of(case, tag), additive_basis_of(case), case
    )
    np.testing.assert_allclose(mean, case[f"{tag}/mean"], atol=TOLERANCE)
    np.testing.assert_allclose(variance, np.diag(case[f"{tag}/cov"]), atol=TOLERANCE)
    np.testing.assert_allclose(joint[0], case[f"{tag}/mean"], atol=TOLERANCE)
    np.testing.assert_allclose(joint[1], case[f"{tag}/cov"], atol=TOLERANCE)
    np.testing.assert_allclose(divergence, case[f"{tag}/kl"], atol=TOLERANCE)
    expected = Gaussian(np.sqrt(case["noise"])).expected_log_prob(jnp.asarray(case["y"]), *fitted).sum()
    np.testing.assert_allclose(expected - divergence, case[f"{tag}/elbo_gaussian"], rtol=1e-9)
    assert case[f"{tag}/elbo_gaussian"] < case["exact_lml"]


def test_outputs_are_refused():
    """With as many outputs as inducing inputs products of the wrong axes had shapes that fit."""
    belief = Structured(jnp.zeros((3, 3)), jnp.ones((3, 3, 1)))
    f = InducingPrior("f", Basis.build(RBF(1.0, 1.0), jnp.linspace(0.0, 1.0, 3)[:, None]), (3, 3))
    with pytest.raises(ValueError, match=r"mean of Structured must be of shape \(M,\) at a site without outputs"):
        f.log_prob(belief)
    with pytest.raises(ValueError, match="mean of Structured must be"):
        belief.marginals(f.basis, jnp.zeros((2, 1)))


@jax.jit
def moments(belief, basis, X):
    """Of the components, and of their sum."""
    return (component_marginals(belief, basis, X), component_covariance(belief, basis, X), belief.marginals(basis, X))


# Beliefs of two components with blocks and columns hold what the others hold.
FEW = [
    (case, tag) for at, case in enumerate(cases("additive")) for tag in POSTERIORS if at == 2 or tag == "blocklowrank"
]


@pytest.mark.parametrize(("case", "tag"), FEW)
def test_components_are_the_oracles(case, tag):
    """A wrong sign of E_c^T E_e, or a forgotten |A_c|^2, is off by more than 1e-2."""
    basis, belief, X = additive_basis_of(case), belief_of(case, tag), jnp.asarray(case["Xs"])
    (mean, variance), covariance, total = moments(belief, basis, X)
    wanted = case[f"{tag}/component_cov_same_point"]
    np.testing.assert_allclose(mean, case[f"{tag}/component_mean"], atol=TOLERANCE)
    np.testing.assert_allclose(covariance, wanted, atol=TOLERANCE)
    np.testing.assert_allclose(variance, np.diagonal(wanted, axis1=1, axis2=2).T, atol=TOLERANCE)
    off_diagonal = wanted * (1 - np.eye(len(wanted[0])))
    assert (np.abs(off_diagonal).max() < 1e-12) == (tag == "meanfield")
    np.testing.assert_allclose(covariance.sum((1, 2)), total.variance, atol=TOLERANCE)
    np.testing.assert_allclose(mean.sum(0), total.mean, atol=TOLERANCE)


def mixed(scales, points):
    """Kernels and inducing inputs: two groups of two that stand in one another, two single components."""
    kernels = {
        "a": RBF(scales[0], 0.3).on(0),
        "b": scales[1] * RBF(1.0, 0.4).on(1) * Linear(0.3).on(0),
        "c": RBF(scales[2], 0.5).on(2),
        "d": Constant(scales[3]),
        "e": scales[4] * RBF(0.7, 0.4).on(2) * Linear(0.3).on(1),
        "g": as_kernel(lambda X1, X2: 1.0 + scales[0] * X1 @ X2.T),
    }
    return kernels, {name: points[c] for c, name in enumerate(kernels)}


@pytest.mark.long
def test_groups_are_the_components_one_by_one(rng):
    """Values and gradients in hyper-parameters, inducing inputs and rows, against a basis for each component."""
    X, scales = jnp.asarray(rng.uniform(size=(4, 3))), jnp.asarray(rng.uniform(0.5, 1.5, 5))
    points = [jnp.asarray(rng.uniform(size=(2, 3))) for _ in range(6)]
    kernels, inducing = mixed(scales, points)
    basis = AdditiveBasis.build(kernels, inducing)
    assert [group.members for group in basis.groups] == [(0, 2), (1, 4), (3,), (5,)]

    def one_by_one(scales, points, X):
        kernels, inducing = mixed(scales, points)
        parts = [Basis.build(kernels[name], inducing[name]) for name in kernels]
        features = [part.features(X) for part in parts]
        return jnp.concatenate(features), sum(part.matrix(X) for part in parts), features

    def in_groups(scales, points, X):
        basis = AdditiveBasis.build(*mixed(scales, points))
        return basis.features(X), basis.matrix(X), [part.features(X) for part in basis.parts]

    def values_and_slopes(function):
        def summed(*arguments):
            values = function(*arguments)
            return sum(jnp.sum(jnp.sin(1 + 3 * value)) for value in values[:2]), values

        return jax.jit(jax.grad(summed, (0, 1, 2), has_aux=True))(scales, points, X)

    found = [jax.tree.leaves(values_and_slopes(function)) for function in (in_groups, one_by_one)]
    for got, wanted in zip(*found, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-10)
    for part, (name, kernel) in zip(basis.parts, kernels.items(), strict=True):
        assert jax.tree.structure(part.kernel) == jax.tree.structure(kernel)
        assert part.inducing is inducing[name]


@pytest.mark.parametrize("case", cases("additive"))
def test_mean_field_and_points_are_special_cases_of_full(case):
    basis, X, mean = additive_basis_of(case), jnp.asarray(case["Xs"]), jnp.asarray(case["m"])
    scale = jnp.linspace(0.3, 1.4, len(mean))
    tiny = 1e-8 * jnp.eye(len(mean))
    for special, full in [(MeanField(mean, scale), Coupled(mean, jnp.diag(scale))), (Point(mean), Coupled(mean, tiny))]:
        np.testing.assert_allclose(
            component_covariance(special, basis, X), component_covariance(full, basis, X), atol=1e-10
        )
        for one, other in zip(whitened_blocks(special, basis), whitened_blocks(full, basis), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-12)


def test_a_belief_of_other_components_is_refused():
    case = cases("additive")[0]
    basis, X = additive_basis_of(case), jnp.asarray(case["Xs"])
    sizes = basis.sizes
    wrong_names = BlockDiagonal(jnp.zeros(sum(sizes)), {f"d{c}": jnp.eye(size) for c, size in enumerate(sizes)})
    wrong_sizes = BlockDiagonal(jnp.zeros(sum(sizes)), tuple(jnp.eye(size) for size in sizes[::-1][1:] + sizes[:1]))
    for belief in (wrong_names, wrong_sizes):
        with pytest.raises(ValueError, match="scale_trils must be one for each component of the site, in its order"):
            belief.marginals(basis, X)
    with pytest.raises(TypeError, match="the site must be an additive_gp"):
        wrong_sizes.marginals(basis.parts[0], X)
    assert isinstance(belief_of(case, "full"), Coupled)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_draws_of_what_precise_data_say_keep_their_spread(dtype):
    """Standard deviations of 1e-4 and of 1 in other directions; a product of large and small parts has 5e-2 and more."""
    rng = np.random.default_rng(0)
    directions, P = np.linalg.qr(rng.normal(size=(6, 6)))[0], np.tril(rng.normal(size=(3, 3)), -1) + 2 * np.eye(3)
    blocks, W = np.kron(np.eye(2), P), 1e4 * directions[:, :2]
    arrays = jnp.zeros(6, dtype), jnp.asarray(W, dtype)
    beliefs = {
        Structured: Structured(*arrays),
        BlockLowRank: BlockLowRank(arrays[0], (jnp.asarray(P, dtype),) * 2, arrays[1]),
    }
    for kind, belief in beliefs.items():
        own = np.eye(6) if kind is Structured else blocks @ blocks.T
        covariance = np.linalg.inv(own + W @ W.T)
        drawn = np.asarray(belief.draw_whitened(jax.random.key(1), (4000,)), float)
        np.testing.assert_allclose(drawn.std(0), np.sqrt(np.diag(covariance)), rtol=0.06)
        spread = np.sqrt(np.einsum("ij,ik,kj->j", directions[:, :2], covariance, directions[:, :2]))
        np.testing.assert_allclose((drawn @ directions[:, :2]).std(0), spread, rtol=0.06)


def precision_of(belief):
    factors = getattr(belief, "precision_trils", None)
    own = np.eye(belief.size) if factors is None else block_diag(*[np.asarray(P) @ np.asarray(P).T for P in factors])
    return own + np.asarray(belief.W) @ np.asarray(belief.W).T


def lost(belief, kept):
    """KL between Gaussians of one mean, by determinants and a trace."""
    ratio = precision_of(belief) @ np.linalg.inv(precision_of(kept))
    return 0.5 * (np.trace(ratio) - len(ratio) - np.linalg.slogdet(ratio)[1])


@pytest.mark.parametrize("blocks", [False, True])
def test_what_is_lost_is_within_the_limit_and_one_column_less_would_exceed_it(blocks, rng):
    """The first kept column decides: a limit a little above what it loses too leaves it out."""
    W = rng.normal(size=(7, 5)) * np.array([9.0, 2.0, 0.7, 0.4, 0.2])
    factors = tuple(np.tril(0.3 * rng.normal(size=(n, n))) + 2 * np.eye(n) for n in (3, 4))
    belief = BlockLowRank(np.zeros(7), factors, W) if blocks else Structured(np.zeros(7), W)
    kept = truncate(belief, 0.5)
    size, loss = kept.W.shape[-1], lost(belief, kept)
    assert 1 < size < 5
    assert 0 < loss < 0.5
    fewer = truncate(kept, 1e3)
    assert fewer.W.shape[-1] == 1
    each = np.linalg.svd(np.linalg.solve(block_diag(*factors), W) if blocks else W, compute_uv=False) ** 2
    each = 0.5 * (each - np.log1p(each))
    np.testing.assert_allclose(loss, each[size:].sum(), rtol=1e-9)
    assert truncate(belief, each[size - 1 :].sum() * 1.001).W.shape[-1] == size - 1
    assert truncate(belief, each[size - 1 :].sum() * 0.999).W.shape[-1] == size


@pytest.mark.long
def test_the_bound_falls_by_no_more_than_was_said():
    """Below the dense optimum of Gaussian data, at its mean."""
    case = cases("additive")[0]
    basis, X, y = additive_basis_of(case), jnp.asarray(case["X"]), jnp.asarray(case["y"])
    A, likelihood = np.asarray(basis.features(X)), Gaussian(np.sqrt(case["noise"]))
    J = np.eye(len(A)) + A @ A.T / case["noise"]
    values, vectors = np.linalg.eigh(J)
    mean = np.linalg.solve(J, A @ case["y"] / case["noise"])
    full = Structured(mean, vectors * np.sqrt(np.maximum(values - 1, 0)))
    kept = truncate(full, 0.5)
    assert kept.W.shape[-1] < len(J)
    bound = jax.jit(lambda q: likelihood.expected_log_prob(y, *q.marginals(basis, X)).sum() - q.kl(basis))(kept)
    below = case["optimal/elbo_gaussian"] - bound
    np.testing.assert_allclose(below, lost(full, kept), atol=1e-5)
    assert 1e-4 < below < 0.5


def test_members_of_plates_share_a_rank():
    """One member needs two columns, and none are lost to the other, which needs one."""
    W = np.zeros((2, 4, 3))
    W[0, :3] = np.diag([5.0, 3.0, 0.1])
    W[1, :3] = np.diag([4.0, 0.2, 0.1])
    kept = truncate(Structured(np.zeros((2, 4)), W))
    assert kept.W.shape == (2, 4, 2)
    np.testing.assert_allclose(np.linalg.norm(kept.W, axis=1), [[5.0, 3.0], [4.0, 0.2]], rtol=1e-12)
