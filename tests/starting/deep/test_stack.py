"""What `stack` makes of data: means, points and priors of each layer against NumPy, and what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import numpyro_gp as ngp


@pytest.fixture
def X(rng):
    """Columns of other units than 1."""
    return rng.normal(size=(14, 3)) * np.array([1.0, 10.0, 0.1]) + np.array([0.0, 100.0, -1.0])


def standard(X):
    return (X - X.mean(0)) / X.std(0)


def medians(part):
    return np.exp(np.asarray(part.lengthscale.base_dist.loc))


def directions(H, width):
    """Top right-singular vectors, the largest entry of each positive."""
    V = np.linalg.svd(H, full_matrices=False)[2][:width].T
    return V * np.sign(V[np.abs(V).argmax(0), np.arange(width)])


def test_widths_above_and_below_the_columns(X):
    """Zeros have no scale: theirs is that of a function a priori, where `lengthscale_prior` alone refuses them."""
    Z = X[:4]
    first, second, last = ngp.deep.stack(X, [5, 2], inducing=Z, mean_inducing=6).parts
    H, U = standard(X), (Z - X.mean(0)) / X.std(0)
    np.testing.assert_allclose(first.inducing, U, rtol=1e-12)
    np.testing.assert_allclose(medians(first), np.sqrt(3) * np.ones(3), rtol=1e-12)
    np.testing.assert_array_equal(first.mean.weights, np.eye(3, 5))
    np.testing.assert_allclose(second.inducing, np.hstack([U, np.zeros((4, 2))]), rtol=1e-12)
    np.testing.assert_allclose(medians(second), np.sqrt(5) * np.ones(5), rtol=1e-12)
    W = directions(np.hstack([H, np.zeros((14, 2))]), 2)
    np.testing.assert_allclose(second.mean.weights, W, atol=1e-9)
    np.testing.assert_allclose(last.inducing, np.hstack([U, np.zeros((4, 2))]) @ W, atol=1e-9)
    np.testing.assert_allclose(medians(last), np.sqrt(2) * (np.hstack([H, np.zeros((14, 2))]) @ W).std(0), rtol=1e-9)
    assert last.mean is None
    # Points of the mean are rows, and go through the same means.
    assert all(np.abs(H - point).max(1).min() < 1e-9 for point in np.asarray(first.mean_inducing))
    np.testing.assert_allclose(second.mean_inducing[:, :3], first.mean_inducing, rtol=1e-12)
    with pytest.raises(ValueError, match="equal values in columns"):
        ngp.starting.lengthscale_prior(second.inducing)


@pytest.mark.parametrize(("width", "columns"), [(2, 2), (3, 3), (4, 4), (6, 6), (None, 5)])
def test_latent_inputs_come_after_the_columns_and_are_cut_off_first(X, width, columns):
    first, last = ngp.deep.stack(X, "LV-GP-GP", inducing=6, width=width, latent_dim=2).parts
    weights = np.asarray(first.mean.weights)
    assert weights.shape == (5, columns)
    if columns > 3:
        np.testing.assert_array_equal(weights, np.eye(5, columns))
    else:
        np.testing.assert_array_equal(weights[3:], 0)
        H = standard(X)
        np.testing.assert_allclose(weights[:3], np.eye(3) if columns == 3 else directions(H, columns), atol=1e-9)
    np.testing.assert_allclose(last.inducing, first.inducing @ weights, atol=1e-12)
    assert np.all(np.abs(np.asarray(first.inducing[:, 3:])) > 0), "latent columns of points are drawn from the prior"


def test_latent_inputs_that_are_added_bring_no_columns_and_mixing_is_along_principal_directions(X):
    layers = ngp.deep.stack(X, "LV-GP-LV-GP", inducing=6, width=4, latent="add")
    assert layers.latent_columns == (3, 4)
    assert [part.inducing.shape for part in layers.parts] == [(6, 3), (6, 4)]
    first, last = ngp.deep.stack(X, "GP-GP", inducing=6, mixing=2).parts
    np.testing.assert_allclose(first.mixing, directions(standard(X), 2), atol=1e-9)
    assert last.mixing is None


def test_constant_columns_and_targets_of_any_type():
    X = np.stack([np.arange(6.0), np.full(6, 7.0)], axis=1)
    layers = ngp.deep.stack(X, "LV-GP", inducing=3, y=np.array([0, 1, 1, 0, 1, 1]))
    np.testing.assert_array_equal(layers.parts[0].inducing[:, 1], 0)
    np.testing.assert_allclose(layers.targets.center, [2 / 3])
    np.testing.assert_allclose(layers.targets.scale, [np.sqrt(2) / 3])


def test_dtype_and_key():
    X = np.linspace(0.0, 1.0, 9, dtype=np.float32)[:, None]
    keys = (None, jax.random.key(0), jax.random.key(1))
    one, same, other = (ngp.deep.stack(X, "LV-GP-GP", 4, key=key) for key in keys)
    for part in one.parts:
        assert part.inducing.dtype == part.lengthscale.base_dist.loc.dtype == jnp.float32
    np.testing.assert_array_equal(one.parts[0].inducing, same.parts[0].inducing)
    assert np.any(one.parts[0].inducing != other.parts[0].inducing)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("GP-XP",), {}, 'layers must be of "GP" and "LV" joined by "-", the last a "GP", but got \'GP-XP\''),
        (("GP-LV",), {}, 'the last a "GP"'),
        ((3,), {}, 'layers must be a string such as "LV-GP-GP", or the widths of the inner layers, but got 3'),
        (([4, 0],), {}, "layers must be at least 1"),
        (([4],), {"width": 3}, "width must be None, since layers has the widths, but got 3"),
        (("GP-GP",), {"width": -1}, "width must be at least 1"),
        (("GP-GP", 5), {"mixing": 4}, "mixing must be at most 3, the width of the layer, but got 4"),
        (("GP", 15), {}, "inducing must be at most 14, the number of distinct rows of X, but got 15"),
        (("GP", 5), {"mean_inducing": 15}, "mean_inducing must be at most 14"),
        (("GP", np.zeros((4, 2))), {}, "inducing must be an array with 3 columns"),
        (("GP", 2.5), {}, "inducing must be an array of shape"),
        (("GP",), {"latent": "append"}, "latent must be"),
        (("GP",), {"mean": "natural"}, "mean must be"),
        (("GP", 5), {"y": np.zeros(3)}, r"y must be of shape \(N,\) or \(N, P\) with N = 14, the rows of X, but"),
        (("GP", 5), {"y": np.full(14, np.nan)}, "y must be finite"),
    ],
)
def test_bad_arguments(X, arguments, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        ngp.deep.stack(X, *arguments, **options)
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"X must be finite, but got 1 NaN .* \(first at index \(3, 1\)\)"):
        ngp.deep.stack(X, "GP-GP", inducing=5)
