"""Factorisations against NumPy and SciPy, and their derivatives against finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
import scipy.linalg
from scipy import stats

import numpyro_gp as ngp
from numpyro_gp.linalg import (
    IN_ROWS,
    add_to_diagonal,
    cholesky,
    congruence,
    factor_of,
    factorise,
    half_log_det,
    inverse_factor,
    inverse_lower,
    lower_product,
    lower_square,
    materialised,
    outer_square,
    product,
    small_cholesky,
)
from numpyro_gp.primitives.regression import gaussian_log_density


def positive_definite(rng, size, batch=()):
    root = rng.normal(size=(*batch, size, size))
    return root @ np.swapaxes(root, -1, -2) + size * np.eye(size)


def test_factors_their_inverses_and_determinants(rng):
    """What is not positive definite gives NaN, and no repair."""
    matrix = positive_definite(rng, 7, (3,))
    factor, inverse = factorise(jnp.asarray(matrix))
    np.testing.assert_allclose(factor, np.linalg.cholesky(matrix), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(inverse @ factor, np.broadcast_to(np.eye(7), (3, 7, 7)), atol=1e-12)
    half = half_log_det(cholesky(jnp.asarray(matrix[0])))
    np.testing.assert_allclose(half, 0.5 * np.linalg.slogdet(matrix[0])[1], rtol=1e-13)
    other = inverse_factor(jnp.asarray(matrix[1]))
    np.testing.assert_allclose(other @ other.T, np.linalg.inv(matrix[1]), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(np.triu(other, 1), 0)
    slope = jax.grad(lambda m: sum(jnp.sum(part) for part in factorise(m)))(jnp.asarray(matrix[2]))
    np.testing.assert_allclose(slope, slope.T, atol=1e-14)
    bad = jnp.array([[1.0, 2.0], [2.0, 1.0]])
    assert jnp.isnan(cholesky(bad)).any()
    assert jnp.isnan(factorise(bad)[1]).any()


@pytest.mark.long
@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_derivative_of_the_factorisation(rng, mode):
    base, direction = positive_definite(rng, 5), rng.normal(size=(5, 5))
    direction = direction + direction.T
    left, right = rng.normal(size=(5, 5)), rng.normal(size=(5, 5))

    def loss(t):
        factor, inverse = factorise(jnp.asarray(base) + t * direction)
        return jnp.sum(left * factor) + jnp.sum(right * inverse)

    def dense(t):
        factor = np.linalg.cholesky(base + t * direction)
        return np.sum(left * factor) + np.sum(right * np.linalg.inv(factor))

    step = 1e-5
    expected = (dense(step) - dense(-step)) / (2 * step)
    slope = jax.grad(loss)(0.0) if mode == "reverse" else jax.jacfwd(loss)(0.0)
    np.testing.assert_allclose(slope, expected, rtol=1e-7)
    curvature = (dense(1e-3) - 2 * dense(0.0) + dense(-1e-3)) / 1e-6
    np.testing.assert_allclose(jax.hessian(loss)(0.0), curvature, rtol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("size", [1, 5, 17])
def test_small_factors(rng, size):
    matrix = positive_definite(rng, size, (3, 2))
    np.testing.assert_allclose(small_cholesky(jnp.asarray(matrix)), np.linalg.cholesky(matrix), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_large_factors_come_in_rows_alone_in_batches_and_mapped(dtype, rng):
    """On a CPU nothing as large is transposed: XLA does so number by number."""
    size = IN_ROWS + 4
    matrices = positive_definite(rng, size, (2,)).astype(dtype)
    matrices[1, -1, -1] = -1.0  # the second has no factor
    wanted = np.linalg.cholesky(matrices[0].astype("float64"))
    one = jax.jit(factor_of)
    for found in (factor_of(jnp.asarray(matrices)), jax.vmap(factor_of)(jnp.asarray(matrices))):
        np.testing.assert_allclose(found[0], wanted, rtol=1e-5 if dtype == "float32" else 1e-12, atol=1e-4)
        assert found.dtype == dtype
        assert not jnp.triu(found[0], 1).any()
        assert jnp.isnan(found[1][jnp.tril_indices(size)]).all()
        np.testing.assert_array_equal(found[0], one(matrices[0]))
    text = one.lower(matrices[0]).compile().as_text()
    assert "potrf" in text
    assert f"{size}]{{0,1}}" not in text
    assert not jax.grad(lambda scale: jnp.sum(factor_of(scale * matrices[0])))(1.0)


@pytest.mark.long
def test_gaussian_log_density_and_its_gradient(rng):
    covariance, residual = positive_definite(rng, 6), rng.normal(size=6)
    expected = stats.multivariate_normal(np.zeros(6), covariance).logpdf(residual)
    np.testing.assert_allclose(
        gaussian_log_density(jnp.asarray(residual), jnp.asarray(covariance)), expected, rtol=1e-12
    )
    direction = rng.normal(size=(6, 6))
    direction = direction + direction.T

    def along(t):
        return gaussian_log_density(residual + t * jnp.arange(6.0), covariance + t * direction)

    def dense(t):
        return stats.multivariate_normal(np.zeros(6), covariance + t * direction).logpdf(residual + t * np.arange(6.0))

    np.testing.assert_allclose(jax.grad(along)(0.0), (dense(1e-5) - dense(-1e-5)) / 2e-5, rtol=1e-7)
    np.testing.assert_allclose(jax.hessian(along)(0.0), (dense(1e-3) - 2 * dense(0.0) + dense(-1e-3)) / 1e-6, rtol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("size", [1, 6, 75])
def test_a_product_with_a_factor_and_its_derivatives(rng, size):
    """``L v`` with a derivative in ``K`` of its own, against JAX's of the factorisation, with rows in one and two
    halves; a running sum that holds the whole of the last term is off by 1e-2."""
    matrix, direction, other = (jnp.asarray(positive_definite(rng, size)) for _ in range(3))
    v, weights = jnp.asarray(rng.normal(size=size)), jnp.asarray(rng.normal(size=size))

    def at(t, product):
        return jnp.sum(jnp.sin(product(matrix + 0.1 * (t[0] * direction + t[1] * other), v + t[1] * weights)) * weights)

    own = lambda t: at(t, lambda K, v: lower_product(K, v, *factorise(K)))  # noqa: E731
    plain = lambda t: at(t, lambda K, v: jnp.linalg.cholesky(K) @ v)  # noqa: E731
    t = jnp.array([0.2, -0.1])
    for derivative in (lambda f: f, jax.grad, jax.jacfwd, jax.hessian):
        found, wanted = (jax.jit(derivative(f))(t) for f in (own, plain))
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-10)
    lanes = jax.jit(jax.vmap(jax.grad(own)))(jnp.stack([t, 2 * t]))
    np.testing.assert_allclose(lanes[0], jax.grad(plain)(t), rtol=1e-10)


def test_a_square_with_its_derivative(rng):
    root, weights = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 3, 3))
    np.testing.assert_allclose(outer_square(jnp.asarray(root)), root @ np.swapaxes(root, 1, 2), rtol=1e-14)
    slope = jax.grad(lambda C: jnp.sum(outer_square(C) * weights))(jnp.asarray(root))
    np.testing.assert_allclose(slope, (weights + np.swapaxes(weights, 1, 2)) @ root, rtol=1e-12)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_what_waits_for_its_derivative_is_unchanged(shape, rng):
    values = jnp.asarray(rng.normal(size=shape))
    function, plain = (lambda x: jnp.sum(jnp.sin(materialised(x)) * x)), (lambda x: jnp.sum(jnp.sin(x) * x))
    for derivative in (lambda f: f, jax.grad, jax.hessian):
        np.testing.assert_allclose(derivative(function)(values), derivative(plain)(values), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize(("size", "batch"), [(1, ()), (64, ()), (65, ()), (150, ()), (97, (3,))])
def test_the_inverse_by_halves_is_that_of_scipy(rng, size, batch):
    """Above 64 rows the inverse is put together from blocks, of unequal sizes too."""
    factor = np.linalg.cholesky(positive_definite(rng, size, batch))
    wanted = np.stack(
        [scipy.linalg.solve_triangular(one, np.eye(size), lower=True) for one in factor.reshape(-1, size, size)]
    )
    found = jax.jit(inverse_lower)(factor)
    np.testing.assert_allclose(found, wanted.reshape(factor.shape), rtol=1e-10, atol=1e-12)
    assert np.all(np.triu(found, 1) == 0)


@pytest.mark.long
@pytest.mark.parametrize("name", ["product", "congruence"])
def test_products_in_their_fast_form_have_the_derivatives_of_plain_ones(rng, name):
    """First and second derivatives in both operands, batched: a transpose at the wrong place shows in one of them."""
    left, right = (jnp.asarray(rng.normal(size=(2, 4, 4))) for _ in range(2))
    weights = jnp.asarray(rng.normal(size=(2, 4, 4)))
    turned = lambda a: jnp.swapaxes(a, -1, -2)  # noqa: E731
    fast, plain = {
        "product": (product, lambda a, b: a @ b),
        "congruence": (congruence, lambda a, b: a @ (0.5 * (b + turned(b))) @ turned(a)),
    }[name]
    losses = [lambda a, b, f=f: jnp.sum(weights * jnp.sin(f(a, b))) for f in (fast, plain)]
    for derivative in (jax.grad, jax.hessian):
        found, wanted = (derivative(loss, argnums=(0, 1))(left, right) for loss in losses)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11), found, wanted)
    mapped = jax.vmap(jax.grad(lambda a, b: jnp.sum(jnp.sin(fast(a, b)))))(left, right)
    each = [jax.grad(lambda a, b: jnp.sum(jnp.sin(plain(a, b))))(a, b) for a, b in zip(left, right)]
    np.testing.assert_allclose(mapped, jnp.stack(each), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("size", [1, 7, 40])
def test_square_of_a_triangle_and_a_diagonal(size, rng):
    triangle, values = np.tril(rng.normal(size=(size, size))), rng.normal(size=size)
    np.testing.assert_allclose(lower_square(jnp.asarray(triangle)), triangle.T @ triangle, rtol=1e-12, atol=1e-12)
    summed = add_to_diagonal(jnp.asarray(triangle), jnp.asarray(values))
    np.testing.assert_array_equal(summed, triangle + np.diag(values))
    slope = jax.grad(lambda v: jnp.sum(add_to_diagonal(jnp.asarray(triangle), v) ** 2))(jnp.asarray(values))
    np.testing.assert_allclose(slope, 2 * (np.diagonal(triangle) + values), rtol=1e-14)
    promoted = add_to_diagonal(jnp.asarray(triangle, jnp.float32), jnp.asarray(values))
    np.testing.assert_array_equal(promoted, triangle.astype(np.float32).astype(float) + np.diag(values))


@pytest.mark.long
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_half_precision_is_refused_in_words(dtype):
    """JAX says ``Unsupported dtype float16.``; inducing inputs in float32 are enough."""
    X = jnp.asarray(np.linspace(0.0, 1.0, 3), dtype)[:, None]
    try:
        jax.jit(lambda x: x.astype(jnp.float32) + 1)(X)
    except jax.errors.JaxRuntimeError:  # on processors that cannot convert such numbers, as SSE4.2 alone
        pytest.skip("XLA does not compile half precision for this processor")
    with pytest.raises(
        TypeError, match=r"factorised must be of float32 or float64 numbers, but got .*float16\. Pass the"
    ):
        ngp.gp_regression("y", ngp.kernels.RBF(1.0, 0.5), X, 0.1, obs=X[:, 0])

    def model(X, Z):
        f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.5), Z)
        with numpyro.plate("data", 3):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=X[:, 0].astype(jnp.float32))

    values = {"f": jnp.zeros(3, jnp.float32)}
    density = lambda X: numpyro.infer.util.log_density(model, (X, X.astype(jnp.float32)), {}, values)[0]  # noqa: E731
    np.testing.assert_allclose(density(X), density(X.astype(jnp.float32)), rtol=1e-5)


@pytest.mark.long
def test_the_inverse_by_halves_loses_no_more_of_float32_than_a_solve():
    """An ill-conditioned Gram matrix with the jitter of float32: the residual |W L - I| is that of one solve."""
    X = jnp.linspace(0.0, 1.0, 200)
    gram = jnp.exp(-((X[:, None] - X[None, :]) ** 2) / 0.5) + 1e-4 * jnp.eye(200)
    factor = jnp.linalg.cholesky(gram).astype(jnp.float32)
    exact = factor.astype(jnp.float64)
    eye = jnp.eye(200, dtype=jnp.float32)
    solved = jax.lax.linalg.triangular_solve(factor, eye, left_side=True, lower=True)
    residual = [jnp.max(jnp.abs(W.astype(jnp.float64) @ exact - eye)) for W in (inverse_lower(factor), solved)]
    assert residual[0] < 4 * residual[1]
