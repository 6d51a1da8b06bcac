"""Every check says argument, requirement, fact and cure; none needs the value of a tracer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp import checks


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: checks.check_floating("X", np.arange(3)), TypeError, r"X must be floating point, but got dtype int64. Convert"),
        (lambda: checks.check_floating("X", object()), TypeError, "X must be an array of real numbers, but got an object"),
        (lambda: checks.check_floating("X", np.array([True])), TypeError, "dtype bool"),
        (lambda: checks.check_array("y", np.ones(2) + 1j), TypeError, "y must be an array of real numbers, but got dtype complex128. Pass its"),
        (lambda: checks.check_finite("X", np.array([0.0, np.nan])), ValueError, r"1 NaN or infinite entries of 2 \(first at index \(1,\)\)"),
        (lambda: checks.check_positive("scale", -1.0), ValueError, "scale must be positive, but got -1. Pass a positive number"),
        (lambda: checks.check_positive("scale", [1.0, 0.0]), ValueError, "scale must be positive"),
        (lambda: checks.check_nonnegative("jitter", -1e-6), ValueError, "jitter must be zero or positive, but got -1e-06. Pass 0"),
        (lambda: checks.check_points("X", np.zeros(3)), ValueError, r"shape \(N, D\), but got shape \(3,\). For one input dimension pass X\[:, None\]"),
        (lambda: checks.check_points("X", np.zeros((2, 3, 4))), ValueError, "Put one point in each row"),
        (lambda: checks.check_points("X", np.zeros((0, 4))), ValueError, "a non-empty array"),
        (lambda: checks.check_points("X", np.zeros((2, 4)), columns=3), ValueError, r"with 3 columns.*but got shape \(2, 4\)"),
        (lambda: checks.check_shape("W", np.zeros(3), (3, None), "weights", "Add an axis."), ValueError, r"W must be of shape \(3, any\): weights, but got shape \(3,\)"),
        (lambda: checks.check_triangle("C", np.eye(2), (3,), True), ValueError, r"C must be of shape \(3, 3\), but got shape \(2, 2\)"),
        (lambda: checks.check_triangle("B", np.ones((2, 2, 3)), (2, None), False), ValueError, r"B must be of shape \(2, M, M\), but got"),
        (lambda: checks.check_triangle("B", np.ones((2, 2)), (None,), False), ValueError, r"B must be lower triangular.*Pass jnp.tril\(B\)"),
        (lambda: checks.check_triangle("C", -np.eye(2), (2,), True), ValueError, "C must be a factor with a positive diagonal.*cholesky"),
        (lambda: checks.check_key("key", 0), TypeError, "key must be one JAX random key, but got 0. Pass jax.random.key"),
        (lambda: checks.check_key("key", jax.random.split(jax.random.key(0))), TypeError, "one JAX random key"),
        (lambda: checks.check_count("outputs", 0), ValueError, "outputs must be at least 1, but got 0"),
        (lambda: checks.check_count("outputs", 1.5), TypeError, "outputs must be a whole number, but got 1.5"),
        (lambda: checks.check_count("num_steps", np.zeros((40, 1))), TypeError, r"num_steps must be a whole number, but got an array of shape \(40, 1\)\."),
        (lambda: checks.check_choice("link", "cloglog", ("logit", "probit")), ValueError, "link must be one of 'logit', 'probit', but got 'cloglog'"),
    ],
)  # fmt: skip
def test_messages(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_good_values_pass_unchanged():
    assert checks.check_count("n", np.int64(3)) == 3
    assert checks.check_choice("link", "logit", ("logit",)) == "logit"
    np.testing.assert_array_equal(checks.check_points("X", [[1.0, 2.0]]), [[1.0, 2.0]])
    assert checks.check_points("X", np.zeros((5, 2, 3)), leading=True).shape == (5, 2, 3)
    np.testing.assert_array_equal(checks.check_triangle("B", -np.eye(3), (None,), False), -np.eye(3))
    assert checks.check_positive("variance", 1).dtype == jnp.float64
    checks.check_key("key", jax.random.key(0))
    checks.check_key("key", jax.random.PRNGKey(0))


def test_values_are_not_asked_of_tracers():
    @jax.jit
    def traced(x):
        return checks.check_positive("x", x) + checks.check_nonnegative("x", x)

    assert float(traced(jnp.array(-1.0))) == -2.0
