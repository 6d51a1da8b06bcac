"""Where deep models start: linear means against the oracle, inducing inputs through them, mixing matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.starting.deep import initial_layers, latent_columns, mix, principal_directions
from tests.oracles.vectors import cases


@pytest.mark.parametrize("case", cases("linear_mean"))
def test_projection_is_onto_the_top_singular_vectors(case):
    """Not centred; rows of V^T taken for columns would be another projector."""
    first, last = initial_layers(case["X"], case["X"][:5], widths=[2])
    W = np.asarray(first.mean.weights)
    np.testing.assert_allclose(W @ W.T, case["projector"], atol=1e-9)
    directions = np.asarray(principal_directions(case["X"], 2))
    np.testing.assert_allclose(directions @ directions.T, case["projector"], atol=1e-9)
    np.testing.assert_allclose(last.inducing, case["X"][:5] @ W, atol=1e-12)


def test_inducing_inputs_follow_the_means(rng):
    X = rng.normal(size=(20, 3)).astype(np.float32)
    layers = initial_layers(X, X[:6], widths=[3, 5])
    assert {layer.inducing.dtype for layer in layers} == {jnp.dtype("float32")}
    np.testing.assert_array_equal(principal_directions(X, 3), np.eye(3))
    assert layers[0].inducing.shape == (6, 3)
    np.testing.assert_allclose(layers[1].inducing, X[:6], rtol=1e-6)
    np.testing.assert_allclose(layers[2].inducing, np.hstack([X[:6], np.zeros((6, 2))]), rtol=1e-6)
    assert (layers[-1].mean, layers[-1].scale, layers[0].scale) == (None, 1.0, 1e-2)
    (single,) = initial_layers(X, X[:6], widths=[])
    assert single.mean is None


def test_mixing_gives_correlated_outputs(rng):
    """``P g`` at each row (mathematics.md section 5.3), over any leading axes."""
    P, g = jnp.asarray(rng.normal(size=(3, 2))), jnp.asarray(rng.normal(size=(2, 4, 5, 2)))
    np.testing.assert_allclose(mix(g, P), np.einsum("dp,abcp->abcd", P, g), rtol=1e-12)


def test_latent_columns_are_standard_normal():
    Z = latent_columns(jax.random.key(0), np.zeros((4000, 2), np.float32), 3)
    assert (Z.shape, Z.dtype) == ((4000, 5), jnp.float32)
    np.testing.assert_array_equal(Z[:, :2], 0)
    np.testing.assert_allclose(Z[:, 2:].mean(0), 0, atol=0.08)
    np.testing.assert_allclose(Z[:, 2:].std(0), 1, atol=0.06)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: initial_layers(np.zeros((3, 2)), np.zeros((3, 1)), []), "inducing must be an array with 2 columns"),
        (lambda: latent_columns(0, np.zeros((3, 2))), "key must be one JAX random key"),
    ],
)
def test_bad_arguments(build, message):
    with pytest.raises((ValueError, TypeError), match=message):
        build()
