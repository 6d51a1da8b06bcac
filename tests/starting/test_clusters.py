"""Steps of k-means against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import cdist

from numpyro_gp.starting import inducing as clusters
from numpyro_gp.starting.inducing import kmeans

KEY = jax.random.key(5)


def test_kmeans_ends_at_a_fixed_point_of_numpy_lloyd(rng):
    X = rng.normal(size=(150, 2))
    Z = np.asarray(kmeans(KEY, X, 8, num_iterations=500))
    labels = ((X[:, None, :] - Z[None, :, :]) ** 2).sum(-1).argmin(1)
    np.testing.assert_allclose(Z, [X[labels == m].mean(0) for m in range(8)], rtol=1e-10)


def nearest(X, Z):
    return cdist(np.asarray(X, float), np.asarray(Z, float), "sqeuclidean")


PLACES = {
    "years": lambda rng: np.stack([rng.uniform(2000, 2020, 900), rng.uniform(0, 0.1, 900)], axis=1),
    "metres": lambda rng: 5e6 + rng.uniform(0, 2000, (900, 2)),
    "two places": lambda rng: np.repeat([[0.0, 0.0], [1e4, -1e4]], 450, axis=0) + rng.normal(size=(900, 2)),
    "many columns": lambda rng: 3e3 * (np.arange(900) % 2)[:, None] + rng.normal(size=(900, 40)),
}


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


def test_blocks_do_not_change_the_answer(rng, monkeypatch):
    X = jnp.asarray(rng.normal(size=(103, 2)))
    centres = X[:7]
    whole = clusters.assign(X, centres)
    monkeypatch.setattr(clusters, "BLOCK_ROWS", 10)  # ten blocks and one of three rows
    for got, expected in zip(clusters.assign(X, centres), whole, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13)
    assert float(whole[1].sum()) == 103.0


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
