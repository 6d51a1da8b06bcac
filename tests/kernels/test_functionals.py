"""Rows that are functionals, and their covariances: against closed forms, quadrature and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro_gp.functionals import Values, stack
from scipy import special

import numpyro_gp as ngp
from numpyro_gp.kernels import RBF, SHO, ArcCosine, Coregion, Matern32, Matern52, Periodic, Uniform, ZeroMean
from numpyro_gp.kernels.functionals import Average, Derivative, Functional, covariance

RNG = np.random.default_rng(0)
# Two of the inputs coincide.
X = jnp.asarray([[-0.8], [0.1], [0.1], [0.7], [1.9]])
KINDS = {"rbf": RBF, "matern32": Matern32, "matern52": Matern52, "periodic": lambda v, s: Periodic(v, s, 1.7)}
KINDS["sho"] = lambda v, s: SHO(v, s, 0.8)


def profile(kind, v, s, t):
    """``k``, ``k'`` and ``-k''`` of a difference, typed out."""
    r = jnp.abs(t)
    if kind == "rbf":
        k = v * jnp.exp(-0.5 * (t / s) ** 2)
        return k, -t / s**2 * k, (1 / s**2 - t**2 / s**4) * k
    if kind == "matern32":
        a = np.sqrt(3) / s
        e = v * jnp.exp(-a * r)
        return (1 + a * r) * e, -(a**2) * t * e, a**2 * (1 - a * r) * e
    if kind == "matern52":
        a = np.sqrt(5) / s
        e = v * jnp.exp(-a * r)
        return (
            (1 + a * r + (a * r) ** 2 / 3) * e,
            -(a**2) / 3 * t * (1 + a * r) * e,
            a**2 / 3 * (1 + a * r - (a * r) ** 2) * e,
        )
    if kind == "sho":
        w, a = 2 * np.pi / s, 1 / 1.6
        b = np.sqrt(1 - a**2)
        e, c, z = v * jnp.exp(-a * w * r), jnp.cos(b * w * r), jnp.sin(b * w * r) / b
        return e * (c + a * z), -w * jnp.sign(t) * e * z, w**2 * e * (c - a * z)
    w = 2 * np.pi / 1.7
    k = v * jnp.exp(-2 * jnp.sin(0.5 * w * t) ** 2 / s**2)
    return k, -w / s**2 * jnp.sin(w * t) * k, (w**2 / s**2 * jnp.cos(w * t) - (w / s**2 * jnp.sin(w * t)) ** 2) * k


def typed_out(kind, v, s, x):
    """Covariance of values and slopes at points ``(N,)``."""
    k, first, second = profile(kind, v, s, x[:, None] - x[None, :])
    return jnp.block([[k, -first], [first, second]])


def both(points):
    return stack([points, Derivative(points, 0)])


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_values_and_slopes_have_the_covariance_of_closed_forms(kind):
    """Hyper-parameters and all inputs move too: gradients are compared, at coincident inputs as well."""
    weights = jnp.asarray(RNG.normal(size=(10, 10)))
    ours = lambda v, s, x: covariance(KINDS[kind](v, s), both(x[:, None]))  # noqa: E731
    theirs = lambda v, s, x: typed_out(kind, v, s, x)  # noqa: E731
    at = (1.3, 0.6, X[:, 0])

    def both_of(matrix):
        def total(*at):
            value = matrix(*at)
            return jnp.sum(weights * value), value

        return jax.jit(jax.grad(total, argnums=(0, 1), has_aux=True))(*at)

    (slopes, value), (wanted_slopes, wanted) = both_of(ours), both_of(theirs)
    np.testing.assert_allclose(value, wanted, atol=1e-12)
    np.testing.assert_allclose(slopes, wanted_slopes, rtol=1e-9)


@pytest.mark.long
def test_gradients_in_coincident_inputs_are_finite():
    """And right where none coincide: a rough kernel has no third derivative at zero, which is where NaN come from."""
    shared = jnp.asarray([[0.3, 1.0], [0.3, 1.0], [-0.5, 0.2]])
    kernel = Matern32(1.3, jnp.array([0.6, 1.1]))

    @jax.jit
    @jax.value_and_grad
    def total(points):
        return jnp.sum(jnp.sin(covariance(kernel, stack([points, Derivative(points, 1)]))))

    assert np.all(np.isfinite(total(shared)[1]))
    apart, step, move = np.array(shared), 1e-5, RNG.normal(size=shared.shape)
    apart[1, 0] += 0.4
    wanted = (total(apart + step * move)[0] - total(apart - step * move)[0]) / (2 * step)
    np.testing.assert_allclose(np.vdot(total(apart)[1], move), wanted, rtol=1e-7)


@pytest.mark.long
def test_averages_are_integrals_of_the_kernel():
    """By twenty nodes of Gauss in two bins: single integrals by the error function, to 1e-8 and better."""
    bins, s = np.array([[-1.0, 0.0], [0.0, 1.5]]), 0.6
    nodes, weights = np.polynomial.legendre.leggauss(20)
    half = 0.5 * np.diff(bins, axis=1)
    points = (bins.mean(1)[:, None] + half * nodes)[..., None]
    total = Average(points, half * weights)
    area = lambda edge, y: s * np.sqrt(np.pi / 2) * special.erf((edge - y) / (np.sqrt(2) * s))  # noqa: E731
    wanted = 1.3 * (area(bins[:, 1:], X.T) - area(bins[:, :1], X.T))
    np.testing.assert_allclose(covariance(RBF(1.3, s), total, X), wanted, atol=1e-10)
    slopes = covariance(RBF(1.3, s), total, Derivative(X, 0))  # the integral of a slope is a difference
    ends = [covariance(RBF(1.3, s), Values(jnp.asarray(edge)), X) for edge in (bins[:, :1], bins[:, 1:])]
    np.testing.assert_allclose(slopes, ends[0] - ends[1], atol=1e-10)
    np.testing.assert_allclose(total.of(lambda X: X[..., 0] ** 2), [1 / 3, 1.5**3 / 3], rtol=1e-12)


SMOOTH = {
    "zero_mean": lambda: ZeroMean(Matern52(1.0, 0.5), Uniform(-3.0, 3.0)),
    "network": lambda: ArcCosine(1.0, 0.7, 1.0, 1),
    "callable": lambda: lambda A, B: jnp.exp(-0.5 * jnp.sum((A[:, None] - B[None]) ** 2, -1)),
    "groups": lambda: RBF(1.0, 0.7).on(0) * Coregion(jnp.array([[0.5], [1.0]]), 0.3).on(1),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", SMOOTH)
def test_other_kernels_agree_with_finite_differences(kind):
    """Also a category beside the column of the slope; two sets of points that do not coincide."""
    kernel, step = ngp.kernels.as_kernel(SMOOTH[kind]()), 1e-4
    A, B = (jnp.asarray(np.c_[RNG.normal(size=3), [0.0, 1.0, 1.0]]) for _ in range(2))
    e = jnp.array([[step, 0.0]])
    at = jax.jit(kernel.matrix)
    mixed = [[at(A + a * e, B + b * e) for b in (-1, 1)] for a in (-1, 1)]
    wanted = (mixed[1][1] - mixed[0][1] - mixed[1][0] + mixed[0][0]) / (4 * step**2)
    found = jax.jit(covariance)(kernel, Derivative(A, 0), Derivative(B, 0))
    np.testing.assert_allclose(found, wanted, atol=2e-6 * float(jnp.abs(found).max() + 1))


def test_mixed_rows_are_positive_definite_symmetric_and_have_their_diagonal():
    points = jnp.asarray(RNG.normal(size=(5, 2)))
    average = Average(jnp.asarray(RNG.normal(size=(3, 4, 2))))
    rows = stack([points, Derivative(points, 0), Derivative(points, 1), average, average[:2] - Values(points[:2])])
    matrix = np.asarray(jax.jit(covariance)(Matern32(1.0, 0.7) + RBF(0.5, 1.5), rows))
    np.testing.assert_array_equal(matrix, matrix.T)
    assert np.linalg.eigvalsh(matrix[:18, :18])[0] > 1e-3
    contrast = np.zeros((2, 20))
    contrast[[0, 1], [15, 16]], contrast[[0, 1], [0, 1]] = 1, -1
    np.testing.assert_allclose(matrix[18:], contrast @ matrix, atol=1e-12)


RNG = np.random.default_rng(0)


def test_rows_are_indexed_added_and_scaled():
    points = jnp.asarray(RNG.normal(size=(4, 3)))
    slopes = Derivative(points, 2)
    cube = lambda X: jnp.sum(X**3, axis=-1)  # noqa: E731
    assert (slopes.shape, slopes.ndim, len(slopes)) == ((4, 3), 2, 4)
    np.testing.assert_allclose(slopes[jnp.array([2, 0])].of(cube), 3 * points[jnp.array([2, 0]), 2] ** 2)
    np.testing.assert_array_equal(slopes[..., 1:].rows, slopes[1:].rows)
    sums = 2.0 * slopes - Values(points)
    np.testing.assert_allclose(sums.of(cube), 6 * points[:, 2] ** 2 - cube(points), rtol=1e-12)
    assert (sums.slopes, Values(points).slopes) == ((2,), ())
    general = Functional(points[:, None], jnp.ones(1), jnp.broadcast_to(jnp.array([0.0, 1.0, 0.0]), (4, 1, 3)))
    np.testing.assert_allclose(general.of(cube), cube(points) + 3 * points[:, 1] ** 2, rtol=1e-12)
    assert general.slopes == (1,)
    single = jax.tree.leaves(Derivative(points.astype(jnp.float32), 0))
    assert [leaf.dtype for leaf in single] == [jnp.float32]


def test_rows_end_when_one_goes_over_them():
    """JAX clamps numbers beyond the last row: Python's own way over them, and NumPy's, did not end."""
    L = Derivative(np.arange(3.0)[:, None], 0)
    assert [row.rows.tolist() for row in L] == L.rows.tolist()


def test_numpy_may_stand_on_the_left():
    """It took a functional for an array of points, and told the user to pass points."""
    X = np.arange(3.0)[:, None]
    slope, square = Derivative(X, 0), lambda X: X[..., 0] ** 2
    for left in (X, jnp.asarray(X)):
        np.testing.assert_allclose((left - slope).of(square), X[:, 0] ** 2 - 2 * X[:, 0])
        np.testing.assert_allclose((left + slope).of(square), X[:, 0] ** 2 + 2 * X[:, 0])
    for factor in (np.float64(3.0), np.array([1.0, 2.0, 3.0])):
        np.testing.assert_allclose((factor * slope).of(square), factor * 2 * X[:, 0])
