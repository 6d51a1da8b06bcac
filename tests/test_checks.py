"""Every check says argument, requirement, fact and cure; none needs the value of a tracer."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro import handlers
from numpyro.infer import MCMC, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoDelta

import numpyro_gp as ngp
from numpyro_gp import checks
from tests.precision import x64


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: checks.check_floating("X", np.arange(3)), TypeError, r"X must be floating point, but got dtype int64. Convert"),
        (lambda: checks.check_floating("X", object()), TypeError, "X must be an array of real numbers, but got an object"),
        (lambda: checks.check_floating("X", np.array([True])), TypeError, "dtype bool"),
        (lambda: checks.check_points("X", np.array([["a", "1"]])), TypeError, r"X must be an array of real numbers, but got an ndarray of dtype <U1. Make numbers of its text first: X.astype\(float\), or codes"),
        (lambda: checks.check_points("X", np.array([["a", 1]], object)), TypeError, "X must be an array of real numbers, but got an ndarray of dtype object. Make numbers of its text"),
        (lambda: checks.check_points("X", np.array([["2020-01-01"]], "M8[D]")), TypeError, r"but got an ndarray of dtype datetime64\[D\]. Make days of it: \(X - X.min\(\)\) / np.timedelta64\(1, 'D'\)"),
        (lambda: checks.check_array("y", np.ma.array([0.0, 1.0], mask=[0, 1])), TypeError, r"but got a MaskedArray of dtype float64. Leave rows that are masked out of all arguments: y.compressed\(\), and X"),
        (lambda: checks.check_array("y", np.ones(2) + 1j), TypeError, "y must be an array of real numbers, but got dtype complex128. Pass its"),
        (lambda: checks.check_finite("X", np.array([0.0, np.nan])), ValueError, r"1 NaN or infinite entries of 2 \(first at index \(1,\)\)"),
        (lambda: checks.check_positive("scale", -1.0), ValueError, "scale must be positive, but got -1. Pass a positive number"),
        (lambda: checks.check_positive("scale", [1.0, 0.0]), ValueError, "scale must be positive"),
        (lambda: checks.check_nonnegative("jitter", -1e-6), ValueError, "jitter must be zero or positive, but got -1e-06. Pass 0"),
        (lambda: checks.check_points("X", np.zeros(3)), ValueError, r"shape \(N, D\), but got shape \(3,\). For one input dimension pass X\[:, None\], for one row X\[None\]"),
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


def regression(X, y=None):
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0))
    ngp.gp_regression("y", ngp.kernels.Matern52(1.0, lengthscale), X, 0.01, obs=y)


def fitted(X, y):
    svi = SVI(regression, AutoDelta(regression), optax.adam(0.01), Trace_ELBO())
    ngp.fit(jax.random.key(0), svi, 1, X, y, search=False)


def sampled(X, y):
    MCMC(ngp.NUTS(regression), num_warmup=1, num_samples=1, progress_bar=False).run(jax.random.key(0), X, y)


ENTRIES = {
    "fit": fitted,
    "NUTS": sampled,
    "neighbours": lambda X, y: ngp.neighbours(X, 2),
    "design": lambda X, y: ngp.anova.design(X),
    "model": lambda X, y: handlers.seed(regression, 0)(X, y),
}
DAYS = np.linspace(0.0, 60.0, 9)


@pytest.mark.parametrize("entry", [pytest.param(one, marks=[pytest.mark.long] * (one == "NUTS")) for one in ENTRIES])
def test_dates_that_lose_digits_in_single_precision_are_warned_of(entry):
    """A fit of Julian dates was one of dates that are rounded to a quarter of a day, without a word."""
    X, y = 2460000.03 + DAYS[:, None], np.sin(DAYS)
    lost = np.abs(X - X.astype(np.float32)).max()
    message = f"X loses digits in single precision: numbers in column 0 of standard deviation {DAYS.std():.3g}"
    with x64(False):
        with pytest.warns(UserWarning, match=f"{message} are rounded by up to {lost:.3g}. Subtract a number"):
            ENTRIES[entry](X, y)
        ENTRIES[entry](DAYS[:, None], y)
    if entry == "neighbours":
        ENTRIES[entry](X, y)


def test_only_what_is_rounded_is_warned_of():
    with x64(False):
        for fine in (
            2020.0 + DAYS / 30,  # years
            np.full(5, 0.1) + np.array([0.0, 1e-17, 0.0, 2e-17, 0.0]),  # a constant, but for rounding
            np.array([1_700_000_001, 1_700_000_002]),  # numbers of rows, which stay whole
            (2460000.03 + DAYS).astype(np.float32),
            np.array([np.nan, 2460000.03, 2460000.04]),
            np.zeros((0, 2)),
            3,
        ):
            checks.check_digits("X", fine)
        with pytest.warns(UserWarning, match="X loses digits in single precision: numbers in column 1 of"):
            checks.check_digits("X", np.array([[1, 1_700_000_001], [2, 1_700_000_002]]))
        with pytest.warns(UserWarning, match="y loses digits in single precision: numbers of standard deviation"):
            checks.check_digits("y", 2460000.03 + DAYS)


def test_whole_numbers_that_would_wrap_are_refused():
    """Milliseconds since 1970 became seconds of some 25 days, forwards and backwards."""
    X, message = 1_700_000_000_000 + np.arange(9)[:, None], "X must be of whole numbers from -2147483648 to 2147483647"
    with x64(False), pytest.raises(ValueError, match=message):
        fitted(X, np.zeros(9))
