"""What every kernel must satisfy. Add an entry to the registry and all of it runs."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from models.own_kernel import Wendland
from numpyro_gp.kernels import (
    RBF,
    SHO,
    ArcCosine,
    CategoryDelta,
    Centred,
    Constant,
    Coregion,
    Cosine,
    Empirical,
    Gaussian,
    IntegratedOU,
    IntegratedWiener,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    Polynomial,
    RationalQuadratic,
    SpectralMixture,
    Uniform,
    Wiener,
    ZeroMean,
)

LENGTHS = np.array([0.4, 0.7, 1.3])


def plain_function(X1, X2):
    """A kernel that is only a function (at module level: pickle finds it by name)."""
    return jnp.exp(-jnp.sum((X1[:, None, :] - X2[None, :, :]) ** 2, axis=-1))


def mixture():
    means, scales = np.array([[0.3, 0.1, 0.0], [0.8, 0.2, 0.5]]), np.array([[0.2, 0.3, 0.1], [0.1, 0.5, 0.4]])
    return SpectralMixture(np.array([0.5, 0.9]), means, scales)


def coregion():
    return Coregion(np.array([[0.5, 0.1], [1.0, -0.3], [-0.4, 0.8]]), np.array([0.2, 0.1, 0.3]))


# All read three columns: two continuous ones in [0, 1] and codes 0, 1, 2.
SMOOTH = {
    "rbf": lambda: RBF(1.3, LENGTHS),
    "matern12": lambda: Matern12(0.7, LENGTHS),
    "matern32": lambda: Matern32(0.7, LENGTHS),
    "matern52": lambda: Matern52(0.7, LENGTHS),
    "rational_quadratic": lambda: RationalQuadratic(0.7, LENGTHS, 1.5),
    "periodic": lambda: Periodic(0.7, LENGTHS, np.array([0.8, 1.5, 4.1])),
    "cosine": lambda: Cosine(0.7, np.array([0.8, 1.5, 4.1])),
    "sho": lambda: SHO(0.7, 1.5, 2.0).on(0),
    "sho_slow": lambda: SHO(0.7, 1.5, 0.3).on(0),
    "linear": lambda: Linear(np.array([0.3, 0.5, 0.1])),
    "polynomial": lambda: Polynomial(np.array([0.3, 0.5, 0.1]), 0.7, 3),
    "constant": lambda: Constant(0.6),
    "arc_cosine_0": lambda: ArcCosine(0.6, LENGTHS, 0.5, order=0),
    "arc_cosine_1": lambda: ArcCosine(0.6, LENGTHS, 0.5, order=1),
    "arc_cosine_2": lambda: ArcCosine(0.6, LENGTHS, 0.5, order=2),
    "spectral_mixture": mixture,
    "product": lambda: Matern52(1.3, LENGTHS) * Periodic(0.4, 1.2, 0.9),
    "active": lambda: Matern32(1.3, LENGTHS[:2]).on((1, 0)),
    "nested": lambda: 0.3 * (RBF(1.0, 0.5).on(0) + Matern52(1.0, 0.5).on(1) * Linear(0.7)).on((2, 0)) + Constant(0.1),
    "zero_mean_rbf": lambda: ZeroMean(RBF(1.3, 0.6), Uniform(-0.2, 1.5)).on((0, 1)),
    "zero_mean_short": lambda: ZeroMean(Matern32(1.3, np.array([0.05, 0.4])), Uniform()).on((0, 1)),
    "zero_mean_matern12": lambda: ZeroMean(Matern12(1.3, 0.6), Uniform()).on(0),
    "zero_mean_matern52": lambda: ZeroMean(Matern52(1.3, 0.3), Uniform()).on(1),
    "zero_mean_gaussian": lambda: 1.5 * ZeroMean(RBF(1.3, 0.6), Gaussian(0.3, np.array([0.5, 0.7]))).on((0, 1)),
    "wiener": lambda: Wiener(0.7, 0.4).on(0),
    "integrated_wiener": lambda: IntegratedWiener(3.0, 0.4).on(1),
    "integrated_ou": lambda: IntegratedOU(0.7, 0.3, 0.4).on(0),
    "centred": lambda: Centred(Linear(0.7) + Wiener(0.2), Empirical(np.array([0.1, 0.5, 0.9]))).on(0),
    "own": lambda: Wendland(jnp.asarray(0.7), jnp.asarray(1.5 * LENGTHS)),
    "function_sum": lambda: plain_function + RBF(0.5, 0.7),
}
CATEGORICAL = {
    "category_delta": lambda: CategoryDelta(0.7).on(2),
    "coregion": lambda: coregion().on(2),
    "coregion_product": lambda: RBF(1.3, 0.5).on(0) * coregion().on(2),
}
REGISTRY = SMOOTH | CATEGORICAL
EVERY = pytest.mark.parametrize("name", REGISTRY)


def points(seed: int, count: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    X = generator.uniform(0, 1, (count, 3))
    X[:, 2] = np.arange(count) % 3
    return X


X1, X2 = points(0, 7), points(1, 5)


@jax.jit
def evaluate(kernel, A, B):
    return kernel.matrix(A, B), kernel.matrix(A), kernel.diagonal(A)


@EVERY
def test_gram_is_symmetric_positive_and_agrees_with_cross_and_diagonal(name):
    kernel = REGISTRY[name]()
    with_copies = np.concatenate([X1[:5], X1[:2]])
    cross, gram, diagonal = evaluate(kernel, with_copies, with_copies[:5])
    assert gram.shape == (7, 7)
    np.testing.assert_array_equal(gram, gram.T)
    # A jitter left on the diagonal (1e-6) would show; the rounding of exp and a product does not.
    np.testing.assert_allclose(np.diag(gram), diagonal, rtol=4e-16, atol=1e-15)
    # The cross form of the same points may differ by rounding: sqrt(eps) for kernels with a kink at zero.
    np.testing.assert_allclose(gram[:, :5], cross, rtol=1e-6, atol=2e-7)
    assert np.linalg.eigvalsh(gram).min() > -1e-13 * np.trace(gram)
    backwards, _, _ = evaluate(kernel, np.concatenate([X2, X1[:2]]), with_copies[:5])
    forwards, _, _ = evaluate(kernel, with_copies, X2)
    np.testing.assert_allclose(forwards[:5], backwards[:5].T, rtol=1e-12, atol=1e-13)


@pytest.mark.long
@EVERY
def test_gradient_agrees_with_finite_differences(name):
    kernel = REGISTRY[name]()
    theta, rebuild = ravel_pytree(kernel)
    weights = np.random.default_rng(2).normal(size=(7, 12))
    wanted = (0, 1, 2) if name in SMOOTH else (0,)  # codes have no derivative

    def value(theta, X1, X2):
        k = rebuild(theta)
        return jnp.sum(weights * jnp.concatenate([k.matrix(X1, X2), k.matrix(X1)], axis=1))

    both = jax.jit(jax.value_and_grad(value, wanted))
    gradients = both(theta, X1, X2)[1]
    generator = np.random.default_rng(3)
    for which, gradient in zip(wanted, gradients):
        arguments = [theta, X1, X2]
        direction = generator.normal(size=gradient.shape)
        ends = []
        for step in (1e-5, -1e-5):
            moved = list(arguments)
            moved[which] = arguments[which] + step * direction
            ends.append(float(both(*moved)[0]))
        expected = (ends[0] - ends[1]) / 2e-5
        # A missing factor of 2 or a wrong sign is an error of order one.
        np.testing.assert_allclose(np.sum(gradient * direction), expected, rtol=2e-6, atol=2e-6)


@pytest.mark.long
@EVERY
def test_gradients_are_finite_at_coincident_points(name):
    kernel = REGISTRY[name]()
    twice = np.concatenate([X1[:2], X1[:2]])

    def value(k, X):
        return jnp.sum(k.matrix(X) ** 2) + jnp.sum(k.matrix(X, X1[:2]) ** 2)

    @jax.jit
    def derivatives(X):
        return jax.jvp(lambda A: jax.grad(value, (0, 1))(kernel, A), (X,), (jnp.ones_like(X),))

    first, second = derivatives(twice)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves((first, second)))


@EVERY
def test_pytree_and_pickle_round_trips(name):
    kernel = REGISTRY[name]()
    leaves, structure = jax.tree.flatten(kernel)
    expected = evaluate(kernel, X1, X2)[0]
    assert type(jax.tree.unflatten(structure, leaves)) is type(kernel)
    jax.tree.unflatten(structure, [object() for _ in leaves])  # no check runs when JAX rebuilds a value
    np.testing.assert_array_equal(evaluate(pickle.loads(pickle.dumps(kernel)), X1, X2)[0], expected)
    with pytest.raises(AttributeError):
        kernel.variance = 1.0


# Rounding of the squared distance, 1e-7, under a root at the kinks of two kernels.
FLOAT32 = {"matern12": 1e-5, "arc_cosine_0": 1e-4, "zero_mean_short": 1e-5}


@EVERY
def test_float32_is_kept_and_close_to_float64(name):
    kernel = REGISTRY[name]()
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), kernel)
    low_points = [X.astype(np.float32) for X in (X1, X2)]
    high_values = evaluate(kernel, *(X.astype(np.float64) for X in low_points))
    for low, high in zip(evaluate(single, *low_points), high_values):
        assert low.dtype == jnp.float32
        np.testing.assert_allclose(low, high, rtol=0, atol=FLOAT32.get(name, 3e-6) * float(jnp.max(jnp.abs(high))))
    # Python numbers take the precision of the inputs; float64 arrays keep theirs.
    is_literal = all(leaf.weak_type for leaf in jax.tree.leaves(kernel))
    shaped = jax.eval_shape(evaluate, kernel, *low_points)
    assert {value.dtype for value in shaped} == {jnp.dtype(jnp.float32 if is_literal else jnp.float64)}
