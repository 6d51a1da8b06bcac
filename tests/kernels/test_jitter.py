"""Jitter is no noise: the least that factorises, none where none is needed, and taken back in predictions."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from scipy import linalg

import numpyro_gp as ngp
from numpyro_gp.beliefs import Basis, Coupled, MeanField, Point
from numpyro_gp.beliefs.basis import marked
from numpyro_gp.kernels import RBF, CategoryDelta, Matern52
from numpyro_gp.kernels.jitter import GROWTH, jittered, least_jitter, steady


def smooth(size, dtype, extent=1.0):
    """A Gram matrix whose eigenvalues fall below rounding."""
    points = np.linspace(0, 1, size)
    return jnp.asarray(np.exp(-0.5 * ((points[:, None] - points) / extent) ** 2), dtype)


def test_jitter_is_relative_to_the_mean_diagonal_and_what_is_far_from_positive_is_nan(rng):
    root = rng.normal(size=(4, 4))
    matrix = root @ root.T + 4 * np.eye(4)
    shifted, amount = jittered(jnp.asarray(matrix), 0.5)
    np.testing.assert_allclose(amount, 0.5 * np.trace(matrix) / 4, rtol=1e-14)
    np.testing.assert_allclose(shifted, matrix + 0.5 * np.trace(matrix) / 4 * np.eye(4), rtol=1e-14)
    np.testing.assert_array_equal(jittered(jnp.asarray(matrix), 0.0)[0], matrix)
    assert jnp.isnan(steady(jnp.array([[1.0, 2.0], [2.0, 1.0]])).factor).any()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_one_row_and_a_diagonal_matrix_get_none(dtype):
    for matrix in (np.full((1, 1), 9.0), np.diag([9.0, 1.0, 0.25])):
        found = steady(jnp.asarray(matrix, dtype))
        assert found.amount == 0
        np.testing.assert_allclose(found.factor, np.sqrt(matrix), rtol=1e-6)
    labels = jnp.arange(3.0, dtype=dtype)[:, None]
    assert Basis.build(CategoryDelta(jnp.asarray(2.0, dtype)), labels).jitter == 0


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_it_begins_small_and_is_raised_until_rounding_is_below_half_of_it(dtype):
    """Of a batch each matrix gets its own; the pivots of what is found are those of exact arithmetic within a half."""
    matrices = jnp.stack([smooth(60, dtype, 0.01), smooth(60, dtype, 100.0)])
    matrices = matrices.at[1].add(-20 * least_jitter(matrices.dtype, 60) * jnp.eye(60, dtype=dtype))  # not positive
    found = steady(matrices)
    least = least_jitter(matrices.dtype, 60)
    np.testing.assert_allclose(found.amount[0], least, rtol=1e-5)
    # Pivots of eps - 20 r are half of eps from 40 r on: 10^2.
    assert np.log(float(found.amount[1]) / least) / np.log(GROWTH) == pytest.approx(4, abs=1e-3)
    pivots = np.diagonal(found.factor, axis1=1, axis2=2) ** 2
    assert np.all(pivots >= 0.5 * np.asarray(found.amount)[:, None])
    wanted = np.linalg.cholesky(np.asarray(found.matrix, float))
    np.testing.assert_allclose(found.factor, wanted, atol=2e-3 if dtype == jnp.float32 else 1e-8)
    np.testing.assert_allclose(jax.vmap(steady)(matrices).amount, found.amount)


def test_what_the_search_finds_is_a_constant_of_derivatives():
    """The derivative of ``log |K + j mean(diag K) I|``, against differences at the same ``j``."""
    points = np.linspace(0, 1, 30)[:, None]

    def half_log_det(log_lengthscale):
        found = steady(RBF(1.5, jnp.exp(log_lengthscale)).matrix(jnp.asarray(points)))
        return jnp.sum(jnp.log(jnp.diag(found.factor))), found.amount

    def by_numpy(log_lengthscale, amount):
        gram = 1.5 * np.exp(-0.5 * ((points - points.T) / np.exp(log_lengthscale)) ** 2)
        return 0.5 * np.linalg.slogdet(gram + amount * np.eye(30))[1]

    slope, amount = jax.jit(jax.grad(half_log_det, has_aux=True))(-1.0)
    wanted = (by_numpy(-1.0 + 1e-5, amount) - by_numpy(-1.0 - 1e-5, amount)) / 2e-5
    np.testing.assert_allclose(slope, wanted, rtol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("rows", [3, 12, 300])
def test_predictions_take_back_what_a_jitter_leaves(rows):
    """``k - k^T (K + j)^-1 k - j |(K + j)^-1 k|^2`` of a point; never below ``k - k^T K^-1 k``; slopes too."""
    Z, X = np.linspace(-1, 1, 70 if rows == 300 else 9)[:, None], np.linspace(-0.9, 0.83, rows)[:, None]
    kernel, jitter = Matern52(1.3, 0.8), 1e-3
    gram, cross = (np.asarray(kernel.matrix(jnp.asarray(Z), jnp.asarray(b))) for b in (Z, X))
    solved = np.linalg.solve(gram + 1.3 * jitter * np.eye(len(Z)), cross)
    plain = 1.3 - np.sum(cross * solved, axis=0)
    wanted = plain - 1.3 * jitter * np.sum(solved**2, axis=0)
    assert np.all(wanted >= 1.3 - np.sum(cross * np.linalg.solve(gram, cross), axis=0) - 1e-9)
    assert np.max(plain / wanted) > 1.5
    size = len(Z)
    scale = np.linspace(0.3, 0.9, size)
    features = linalg.solve_triangular(np.linalg.cholesky(gram + 1.3 * jitter * np.eye(size)), cross, lower=True)
    # Where data leave part of the inducing values open less is taken back: never less than without a jitter.
    root = np.linalg.cholesky(gram + 1.3 * jitter * np.eye(size))
    seen = np.linalg.solve(root.T, (1 - scale**2)[:, None] * features)
    likely = plain - 1.3 * jitter * np.sum(seen**2, axis=0) + scale**2 @ features**2
    noise = root @ np.diag(scale**2 / (1 - scale**2)) @ root.T
    assert np.all(likely >= 1.3 - np.sum(cross * np.linalg.solve(gram + noise, cross), axis=0) - 1e-9)
    beliefs = {
        "point": (Point(jnp.ones(size)), wanted),
        "coupled": (Coupled(jnp.ones(size), jnp.diag(jnp.asarray(scale))), likely),
        "mean field": (MeanField(jnp.ones(size), jnp.asarray(scale)), likely),
    }

    def at(X):
        basis = marked(Basis.build(kernel, jnp.asarray(Z), jitter), is_exact=True)
        return {name: belief.marginals(basis, X) for name, (belief, _) in beliefs.items()}

    found, slopes = jax.jit(lambda X: (at(X), jax.jvp(lambda X: at(X)["coupled"].variance, (X,), (jnp.ones_like(X),))))(
        jnp.asarray(X)
    )
    for name, (_, variance) in beliefs.items():
        np.testing.assert_allclose(found[name].variance, variance, rtol=1e-7, atol=1e-9, err_msg=name)
        np.testing.assert_allclose(found[name].mean, np.ones(size) @ features, rtol=1e-9)
    step = 1e-6
    up, down = (np.asarray(jax.jit(at)(jnp.asarray(X + sign * step))["coupled"].variance) for sign in (1, -1))
    np.testing.assert_allclose(slopes[1], (up - down) / (2 * step), rtol=1e-4, atol=1e-6)


@pytest.mark.long
def test_joint_covariances_take_back_the_same_and_wide_beliefs_nothing_where_they_are_wide():
    """In numpy: ``k(X, X) - A^T (I - S) A - (R^T D A)^T (R^T D A)``, ``D = (I - S)+``; one row as many rows."""
    size, rng, noise = 70, np.random.default_rng(0), 1e-3
    Z, X = np.linspace(-1, 1, size)[:, None], np.concatenate([np.linspace(-0.9, 2.5, 24), rng.uniform(-1, 3, 266)])
    kernel, X = RBF(1.0, 0.8), X[:, None]
    basis = marked(Basis.build(kernel, jnp.asarray(Z), 1e-4), is_exact=True)
    gram, cross, whole = (
        np.asarray(kernel.matrix(jnp.asarray(a), jnp.asarray(b))) for a, b in ((Z, Z), (Z, X), (X, X))
    )
    root = np.linalg.cholesky(gram + 1e-4 * np.eye(size))
    features = linalg.solve_triangular(root, cross, lower=True)
    lost = 1e-2 * linalg.solve_triangular(root, np.eye(size), lower=True)
    seen = features[:, 24:] @ features[:, 24:].T / noise
    outlier = 40.0 * np.outer(*2 * [features[:, 3]])  # of negative precision, as a far datum of Student's t
    covariances = {
        "narrow": np.linalg.inv(np.eye(size) + seen),
        "outlier": np.linalg.inv(np.eye(size) + seen) + outlier,
        "wide": 4.0 * np.eye(size),
        "scales": np.diag(np.where(np.arange(size) % 2, 1.7, 0.05)),
    }

    def exact(covariance):
        values, vectors = np.linalg.eigh(covariance)
        back = lost.T @ (vectors * np.maximum(1 - values, 0)) @ vectors.T @ features
        return whole - features.T @ (np.eye(size) - covariance) @ features - back.T @ back

    for name, covariance in covariances.items():
        wanted, mean, factor = exact(covariance), jnp.zeros(size), np.linalg.cholesky(covariance)
        beliefs = [Coupled(mean, jnp.asarray(factor))]
        if name in ("wide", "scales"):
            beliefs.append(MeanField(mean, jnp.asarray(np.diag(factor))))
        for belief in beliefs:
            joint = belief.joint(basis, jnp.asarray(X)).covariance
            np.testing.assert_allclose(joint, wanted, atol=1e-7, err_msg=name)
            assert np.linalg.eigvalsh(joint)[0] > -1e-7
            each = [belief.marginals(basis, jnp.asarray(rows)).variance for rows in (X, X[:20], X[:2])]
            for variance in each:  # what all inducing values leave open is kept positive by itself, which can be more
                np.testing.assert_array_less(np.diag(wanted)[: len(variance)] * (1 - 1e-6) - 1e-7, variance)
            if name != "scales":
                np.testing.assert_allclose(each[0], np.diag(wanted), rtol=0.02)
        if name == "wide":
            np.testing.assert_allclose(np.diag(wanted), 1 + 3 * np.sum(features**2, axis=0), rtol=1e-9)
            assert np.min(each[0]) > 1
    point = Point(jnp.ones(size))
    marginal, joint = point.marginals(basis, jnp.asarray(X)).variance, point.joint(basis, jnp.asarray(X)).covariance
    np.testing.assert_allclose(joint, exact(np.zeros((size, size))), atol=1e-7)
    np.testing.assert_allclose(np.diag(joint), marginal, atol=1e-7)
    plain = whole - features.T @ features
    assert np.max(np.diag(plain)[:20] / marginal[:20]) > 1.5


def gaussian_model(X, y=None, *, Z, noise):
    f = ngp.gp("f", RBF(jnp.asarray(0.5, X.dtype), jnp.asarray(1.0, X.dtype)), inducing=Z)
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(noise), obs=y)


@jax.jit
def variances(kernel, inducing, points, belief):
    """Of a point, and of a belief."""
    basis = marked(Basis.build(kernel, inducing), is_exact=True)
    return [own.marginals(basis, points).variance for own in (Point(belief.mean), belief)]


@pytest.mark.long
@pytest.mark.parametrize(("size", "rows"), [(25, 40), (70, 400)])
def test_float32_knows_a_function_as_well_as_float64(size, rows):
    """2000 rows of noise 0.03: the sd of f at the optimum was twice as large in float32, or a third where M is large."""
    X = np.linspace(-3, 3, 2000)[:, None]
    y, Z = np.sin(1.5 * X[:, 0]), np.linspace(-3, 3, size)[:, None]
    spread = {}
    for dtype in (jnp.float32, jnp.float64):
        arrays = [jnp.asarray(values, dtype) for values in (Z, X, y)]
        kernel = RBF(jnp.asarray(0.5, dtype), jnp.asarray(1.0, dtype))
        belief, _ = jax.jit(ngp.beliefs.coupled_optimum)(kernel, *arrays, jnp.asarray(0.03**2, dtype))
        posterior = ngp.Posterior.from_mcmc(gaussian_model, {"f": belief.mean[None]})
        call = {"Z": arrays[0], "noise": jnp.asarray(0.03, dtype)}
        points = arrays[1][:: 2000 // rows]
        left = posterior.predict(jax.random.key(0), points, **call).function_variance
        wanted, variance = variances(kernel, arrays[0], points, belief)
        atol = 1e-9 if dtype == jnp.float64 else 5e-5  # of a point rounding is all that is left
        np.testing.assert_allclose(left, wanted, atol=atol)
        spread[dtype] = np.sqrt(variance)
    low, high = np.mean(spread[jnp.float32]), np.mean(spread[jnp.float64])
    np.testing.assert_allclose(low, high, rtol=0.1 if size == 25 else 0.25)
