"""Inducing points against a NumPy pivoted Cholesky and NumPy's steps of k-means, and the promises about duplicates."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import cdist

from numpyro_gp.kernels import RBF, Matern32
from numpyro_gp.starting import inducing as clusters
from numpyro_gp.starting.inducing import enough, greedy_variance, kmeans, random_subset
from tests.optimised import optimised
from tests.precision import x64

KEY = jax.random.key(5)


def matern32(lengthscale, variance=lambda X: jnp.ones(X.shape[0], X.dtype)):
    """A kernel of this test's own: Matern 3/2 with a variance that may depend on the input."""

    def matrix(A, B):
        r = jnp.sqrt(3.0) * jnp.sqrt(jnp.sum((A[:, None, :] - B[None, :, :]) ** 2, -1)) / lengthscale
        r = r.astype(A.dtype)
        return jnp.sqrt(variance(A)[:, None] * variance(B)[None, :]) * (1.0 + r) * jnp.exp(-r)

    return SimpleNamespace(matrix=matrix, diagonal=variance)


def varying(X):
    return 1.0 + 0.5 * jnp.sin(X[:, 0]) ** 2


def numpy_pivots(K, size):
    """Conditional variance by dense solves, from the definition: diag(K - K_SZ K_ZZ^-1 K_ZS)."""
    chosen, left = [], np.diag(K).copy()
    for _ in range(size):
        chosen.append(int(np.argmax(left)))
        left = np.diag(K - K[:, chosen] @ np.linalg.solve(K[np.ix_(chosen, chosen)], K[chosen])).copy()
        left[chosen] = -np.inf
    return chosen


@pytest.mark.parametrize("lengthscale", [0.4, 2.0])
def test_greedy_variance_equals_the_dense_definition(rng, lengthscale):
    X = rng.normal(size=(60, 2))
    kernel = matern32(lengthscale, varying)
    expected = X[numpy_pivots(np.asarray(kernel.matrix(jnp.asarray(X), jnp.asarray(X))), 15)]
    # Exact rows in this order: choosing by distance, or by prior variance, gives other rows.
    np.testing.assert_array_equal(greedy_variance(kernel, X, 15), expected)
    assert not np.array_equal(expected, X[np.argsort(-np.asarray(varying(X)))[:15]])


@pytest.mark.parametrize("tolerance", [0.2, 0.02])
def test_enough_is_the_first_number_of_the_dense_definition(rng, tolerance):
    """The share of the trace by dense solves, of the rows that a pivoted Cholesky takes; 40 ask for a second search."""
    X, kernel = rng.normal(size=(70, 2)), matern32(0.7, varying)
    K = np.asarray(kernel.matrix(jnp.asarray(X), jnp.asarray(X)))
    order = numpy_pivots(K, 69)

    def share(size):
        cut = order[:size]
        return 1 - np.trace(K[:, cut] @ np.linalg.solve(K[np.ix_(cut, cut)], K[cut])) / np.trace(K)

    expected = next(size for size in range(1, 70) if share(size) <= tolerance)
    assert enough(kernel, X, tolerance) == expected
    assert (expected > 32) == (tolerance == 0.02)


def test_enough_is_never_above_the_number_of_distinct_rows():
    X = jnp.repeat(jnp.array([[0.0], [50.0], [100.0]]), 4, axis=0)
    assert enough(matern32(1.0), X, 1e-9) == 3
    with pytest.raises(ValueError, match="tolerance must be a share, below 1"):
        enough(matern32(1.0), X, 1.0)


def test_enough_does_not_count_rows_that_rounding_alone_tells_apart():
    """In single precision nearly all of 300 inducing inputs were said to be needed for 1e-6."""
    X, kernel = np.linspace(0.0, 10.0, 300)[:, None], RBF(1.0, 1.0)
    exact = [enough(kernel, X, tolerance) for tolerance in (1e-3, 1e-6)]
    assert exact[1] < 25
    with x64(False):
        kernel = RBF(1.0, 1.0)
        assert enough(kernel, X, 1e-3) == exact[0]
        with pytest.raises(ValueError, match=r"tolerance must be at least .* is rounding in float32"):
            enough(kernel, X, 1e-6)


@pytest.mark.long
def test_the_key_of_greedy_variance_decides_ties_only(rng):
    X, unique = jnp.asarray(rng.normal(size=(40, 2))), matern32(1.0, varying)  # no ties: any order, the same points
    np.testing.assert_array_equal(greedy_variance(unique, X, 10, KEY), greedy_variance(unique, X, 10))
    starts = {tuple(np.asarray(greedy_variance(matern32(1.0), X, 1, jax.random.key(s))[0])) for s in range(4)}
    assert len(starts) > 1  # a stationary kernel ties every first row


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_that_a_kernel_cannot_tell_apart_are_different_and_far(dtype):
    X = np.linspace(0.0, 1.0, 100, dtype=dtype)[:, None]
    rbf = SimpleNamespace(
        matrix=lambda A, B: jnp.exp(-0.5 * (A - B.T) ** 2), diagonal=lambda A: jnp.ones(A.shape[0], A.dtype)
    )
    Z = greedy_variance(rbf, np.concatenate([X, X]), 60)  # numerical rank about 10, every row twice
    assert len(np.unique(np.asarray(Z))) == 60
    assert Z.dtype == dtype
    # Beyond the rank, here one, it takes the farthest points: 1, 0, the middle, the quarters.
    linear = SimpleNamespace(matrix=lambda A, B: A @ B.T, diagonal=lambda A: jnp.sum(A**2, 1))
    Z = np.asarray(greedy_variance(linear, np.linspace(0.0, 1.0, 50, dtype=dtype)[:, None], 5))[:, 0]
    np.testing.assert_allclose([*Z[:3], *np.sort(Z[3:])], [1.0, 0.0, 0.5, 0.25, 0.75], atol=0.02)


@pytest.mark.long
def test_kmeans_finds_separated_clusters(rng):
    centres = 100.0 * np.stack([np.arange(6.0), np.arange(6.0) % 3, np.arange(6.0) % 2], axis=1) + 1e4
    X = np.repeat(centres, 30, axis=0) + rng.normal(size=(180, 3))
    expected = X.reshape(6, 30, 3).mean(1)
    for seed in range(5):
        Z = np.asarray(kmeans(jax.random.key(seed), rng.permutation(X), 6))
        # Means of the clusters; a row of X would be wrong by about 1.
        np.testing.assert_allclose(Z[np.argsort(Z[:, 0])], expected, rtol=1e-12)
    rows = rng.normal(size=(150, 2))  # of no clusters it ends where each centre is the mean of its rows
    Z = np.asarray(kmeans(KEY, rows, 8, num_iterations=500))
    labels = nearest(rows, Z).argmin(1)
    np.testing.assert_allclose(Z, [rows[labels == m].mean(0) for m in range(8)], rtol=1e-10)


@pytest.mark.long
def test_duplicates_far_from_zero_are_seen_as_users_compile():
    """With all optimisations: a subtraction that was fused into distances told 7 of 30 such sets apart."""
    assert optimised("tests.starting.test_inducing", "sets_of_duplicates_taken_for_more", 30) == 0


def sets_of_duplicates_taken_for_more(count):
    rng, taken = np.random.default_rng(0), 0
    for number in range(count):
        rows = rng.normal(size=(5, 1 + number % 4)).astype(np.float32 if number % 2 else np.float64)
        X = np.repeat(rows * 10 ** rng.uniform(-3, 3) + rng.normal() * 100, 7, axis=0)
        try:
            kmeans(jax.random.key(number), X, 6)
        except ValueError:
            continue
        taken += 1
    return taken


@pytest.mark.long
def test_random_subset_is_uniform_and_without_replacement():
    X = jnp.arange(5.0)[:, None]
    keys = jax.random.split(KEY, 400)
    draws = np.stack([np.asarray(random_subset(k, X, 2))[:, 0] for k in keys])
    assert np.all(draws[:, 0] != draws[:, 1])
    counts = np.bincount(draws.astype(int).ravel(), minlength=5)
    # Each row is in 2/5 of the draws; 4.5 standard deviations. The first rows only would give 400.
    assert np.all(np.abs(counts - 160) < 4.5 * np.sqrt(400 * 0.4 * 0.6))
    np.testing.assert_array_equal(np.sort(np.asarray(random_subset(KEY, X, 5))[:, 0]), np.arange(5.0))


SELECTORS = {
    "kmeans": lambda X, size: kmeans(KEY, X, size),
    "greedy_variance": lambda X, size: greedy_variance(matern32(1.0), X, size),
    "random_subset": lambda X, size: random_subset(KEY, X, size),
}


@pytest.mark.long
@pytest.mark.parametrize("select", SELECTORS.values(), ids=SELECTORS.keys())
def test_common_contract(select, rng):
    X = rng.normal(size=(30, 2))
    ordered = lambda Z: np.asarray(Z)[np.argsort(np.asarray(Z)[:, 0])]  # noqa: E731
    for dtype in (np.float32, np.float64):
        Z = select(X.astype(dtype), 7)
        assert (Z.shape, Z.dtype, len(np.unique(np.asarray(Z), axis=0))) == ((7, 2), dtype, 7)
    np.testing.assert_allclose(ordered(select(X, 30)), ordered(X), rtol=1e-12)
    repeated = np.repeat(X[:4], 5, axis=0)
    np.testing.assert_allclose(ordered(select(repeated, 4)), ordered(X[:4]), rtol=1e-12)
    match = r"num_inducing must be at most the number of distinct rows of X, 4, because X has duplicates, but got 5"
    with pytest.raises(ValueError, match=match):
        select(repeated, 5)


@pytest.mark.parametrize("select", SELECTORS.values(), ids=SELECTORS.keys())
def test_wrong_arguments_are_named(select, rng):
    """Of each; more of k-means in ``contracts/misuses_after.py``."""
    X = rng.normal(size=(6, 2))
    for rows, size, message in (
        (X, 7, r"at most the number of rows of X, 6, but got 7.*num_inducing=6"),
        (X, 2.0, "num_inducing must be a whole number"),
        (np.where(np.arange(12).reshape(6, 2) == 5, np.nan, X), 2, r"X must be finite, but got 1 NaN .*index \(2, 1\)"),
        (X[:, 0], 2, r"For one input dimension pass X\[:, None\]"),
        (np.ones((6, 2), bool), 2, "X must be floating point, but got dtype bool"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            select(rows, size)
    with pytest.raises(TypeError, match="X must be known, but got a traced array"):
        jax.jit(lambda X: select(X, 2))(X)


def test_wrong_kernel_is_named(rng):
    with pytest.raises(ValueError, match="kernel must be finite at X, but got NaN"):
        greedy_variance(matern32(jnp.nan), rng.normal(size=(6, 2)), 2)


@pytest.mark.long
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kmeans_leaves_codes_as_they_are(dtype):
    """Means of codes are codes of nothing: 73 % of the rows had a category that no centre had, and twice the error."""
    random = np.random.default_rng(0)
    X = np.column_stack([random.normal(size=(300, 2)), random.integers(0, 6, 300)]).astype(dtype)
    Z = np.asarray(kmeans(jax.random.key(0), X, 24, categorical=[2]))
    assert Z.dtype == dtype
    assert set(Z[:, 2]) == set(range(6))
    assert len(np.unique(Z, axis=0)) == 24
    codes = np.asarray(kmeans(jax.random.key(0), X[:, 1:] * dtype([0, 1]), 6, categorical=[1]))
    np.testing.assert_array_equal(np.sort(codes, axis=0), np.column_stack([np.zeros(6), np.arange(6)]))
    near = ((X[:, None, :2] - Z[:, :2]) ** 2).sum(-1) + (X[:, None, 2] != Z[:, 2])
    lone = random.permutation(300)[:24]
    rival = ((X[:, None, :2] - X[lone, :2]) ** 2).sum(-1) + (X[:, None, 2] != X[lone, 2])
    assert near.min(1).sum() < 0.8 * rival.min(1).sum()
    for wrong in ([3], [], [2, 2]):
        with pytest.raises(ValueError, match="categorical must be different columns of X, 0 to 2"):
            kmeans(jax.random.key(0), X, 24, categorical=wrong)


@pytest.mark.parametrize("place", [np.array([2000.0, 0.0]), np.array([4e5, 5e6])])
def test_greedy_variance_in_single_precision_far_from_zero_is_the_dense_one_in_double(place, rng):
    """By what is left of the trace: equal variances may be rounded to either side."""
    X = (place + rng.uniform(0, 20, size=(200, 2)) * np.array([1.0, 5.0])).astype(np.float32)
    with jax.enable_x64(False):
        kernel = Matern32(2.0, jnp.array([4.0, 20.0]))
        chosen = np.asarray(greedy_variance(kernel, X, 25), float)
    rows = X.astype(float)
    scaled = (rows[:, None] - rows[None]) / np.array([4.0, 20.0])
    r = np.sqrt(3 * (scaled**2).sum(-1))
    K = 2.0 * (1 + r) * np.exp(-r)
    numbers = [int(np.abs(rows - row).sum(1).argmin()) for row in chosen]
    best = numpy_pivots(K, 25)
    left = [np.trace(K - K[:, own] @ np.linalg.solve(K[np.ix_(own, own)], K[own])) for own in (numbers, best)]
    assert len(set(numbers)) == 25
    np.testing.assert_allclose(*left, rtol=1e-3)


def nearest(X, Z):
    return cdist(np.asarray(X, float), np.asarray(Z, float), "sqeuclidean")


PLACES = {
    "years": lambda rng: np.stack([rng.uniform(2000, 2020, 900), rng.uniform(0, 0.1, 900)], axis=1),
    "metres": lambda rng: 5e6 + rng.uniform(0, 2000, (900, 2)),
    "two places": lambda rng: np.repeat([[0.0, 0.0], [1e4, -1e4]], 450, axis=0) + rng.normal(size=(900, 2)),
    "many columns": lambda rng: 3e3 * (np.arange(900) % 2)[:, None] + rng.normal(size=(900, 40)),
}


@pytest.mark.long
@pytest.mark.parametrize("place", PLACES)
def test_in_single_precision_rows_belong_to_the_centres_that_distances_in_double_say(place, rng):
    """By the product form most rows of two places far apart belonged to other centres than the nearest."""
    X = PLACES[place](rng).astype(np.float32)
    with jax.enable_x64(False):
        centred, _ = clusters.centred(jnp.asarray(X))
        start = centred[clusters.plus_plus(KEY, centred, 30)[0]]
        _, counts, distances = jax.jit(clusters.assign)(centred, start)
        ends = clusters.lloyd(centred, start, 300)
    exact = nearest(centred, start)
    np.testing.assert_allclose(distances, exact.min(1), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(counts, np.bincount(exact.argmin(1), minlength=30))
    rows, Z = np.asarray(centred, float), np.asarray(start, float)
    for _ in range(300):
        labels = nearest(rows, Z).argmin(1)
        Z = np.array([rows[labels == m].mean(0) if (labels == m).any() else Z[m] for m in range(30)])
    np.testing.assert_allclose(nearest(rows, ends).min(1).sum(), nearest(rows, Z).min(1).sum(), rtol=0.01)


def test_empty_cluster_restarts_at_the_farthest_row():
    X = jnp.asarray([[0.0], [1.0], [10.0]])
    start = jnp.asarray([[0.4], [50.0], [60.0]])  # the last two own nothing after the first owns all
    moved = np.sort(np.asarray(clusters.lloyd(X, start, 10))[:, 0])
    np.testing.assert_allclose(moved, [0.0, 1.0, 10.0])


def test_plus_plus_prefers_far_rows():
    # 1000 rows near zero and one at 100: uniform choice would find it in 3 of 1001 draws.
    X = jnp.concatenate([jnp.linspace(0.0, 0.1, 1000), jnp.asarray([100.0])])[:, None]
    found = [float(kmeans(jax.random.key(s), X, 3, num_iterations=0).max()) for s in range(10)]
    np.testing.assert_allclose(found, 100.0)


def test_blocks_do_not_change_the_answer(rng, monkeypatch):
    X = jnp.asarray(rng.normal(size=(103, 2)))
    centres = X[:7]
    whole = clusters.assign(X, centres)
    monkeypatch.setattr(clusters, "BLOCK_ROWS", 10)  # ten blocks and one of three rows
    for got, expected in zip(clusters.assign(X, centres), whole, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13)
    assert float(whole[1].sum()) == 103.0
