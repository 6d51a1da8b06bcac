"""What no kernel is made of: hyper-parameters by the registry of the contracts, all else by a table."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp import kernels as k
from numpyro_gp.kernels.functionals import Average, Derivative, covariance
from numpyro_gp.kernels.members import batch_shape, form_and_columns
from tests.contracts.test_kernels import REGISTRY, X1

X, RBF, WEIGHTS = np.ones((5, 2)), k.RBF(1.0, 1.0), np.array([[0.5, 0.1], [1.0, -0.3], [-0.4, 0.8]])
SLOPES, LINE = Derivative(X, 0), k.Empirical(np.ones(3))
MIXTURE = np.array([0.5, 0.9]), np.ones((2, 2)), np.ones((2, 2))
PLACES = [k.RBF(1.0, 1.0)] * 3
TABLE = [
    (lambda: form_and_columns(RBF.on(2), (0, 1)), "dims must be less than 2, the number of columns of the inputs"),
    (lambda: RBF.matrix(X[:, 0]), r"X1 must be an array of shape \(N, D\).*pass X1\[:, None\]"),
    (lambda: k.RBF(1.0, np.ones((3, 1))), r"plate\(..., dim=-2\) has an axis for rows: take lengthscale\[..., 0\]"),
    (lambda: k.CategoryDelta(1.0).matrix(X * 2.5), "category codes, whole numbers, but got 2.5. Give .*categorical"),
    (lambda: k.Coregion(WEIGHTS, np.ones(2)), r"diagonal must be a scalar or of shape \(3,\), but got shape \(2,\)"),
    (lambda: k.Coregion(WEIGHTS, -1.0), "diagonal must be zero or positive"),
    (lambda: k.Coregion(WEIGHTS, 1.0).matrix(X), r"one column of category codes, but got"),
    (lambda: k.Coregion(WEIGHTS, 1.0).matrix(3 * X[:, :1]), "codes 0, 1, …, 2, but got 3. Number the categories from"),
    (lambda: k.Coregion(WEIGHTS, 1.0).diagonal(0.5 * X[:, :1]), "but got 0.5. Give the column of codes as it is"),
    (lambda: k.ZeroMeanCategory(1.0, [1.0]), r"probabilities must be of shape \(C,\)"),
    (lambda: k.ZeroMeanCategory(1.0, [0.5, 0.5]).matrix(3 * X[:, :1]), "category codes 0, 1, …, 1"),
    (lambda: k.SpectralMixture(1.0, *MIXTURE[1:]), r"weights must be of shape \(Q,\)"),
    (lambda: k.SpectralMixture(MIXTURE[0], np.ones(2), MIXTURE[2]), r"means must be of shape \(2, D\).*means\[:, None"),
    (lambda: k.SpectralMixture(*MIXTURE[:2], np.ones((1, 2))), "scales must be of shape .2, 2., as means"),
    (lambda: k.SpectralMixture(*MIXTURE).matrix(X[:, :1]), r"means must be of shape \(Q, 1\), one frequency for each"),
    (lambda: k.ZeroMean(k.Periodic(1.0, 1.0, 1.0), k.Uniform()), "but got a Periodic. Give it an Empirical measure"),
    (lambda: k.ZeroMean(k.Matern32(1.0, 1.0), k.Gaussian()), "Uniform or Empirical for Matern kernels, but got Gaus"),
    (lambda: k.ZeroMeanLinear(1.0, "uniform"), "must be Uniform.* but got a str"),
    (lambda: k.ZeroMeanLinear(1.0, LINE).matrix(X), "inputs of ZeroMeanLinear must be one column"),
    (lambda: k.ZeroMean(k.RBF(1.0, np.ones(3)), k.Uniform()).factors(2), r"lengthscale must be a scalar or of shape"),
    (lambda: k.ZeroMean(RBF, k.Uniform(np.zeros(3), 1.0)).matrix(X), r"low must be a scalar or of shape \(2,\)"),
    (lambda: k.Uniform(np.zeros((2, 2)), 1.0), r"low must be a scalar or one value for each input.*\(2, 2\)"),
    (lambda: k.Gaussian(0.0, -1.0), "sd must be positive"),
    (lambda: k.Gaussian(np.nan, 1.0), "mean must be finite"),
    (lambda: k.Empirical(jnp.array(1.0)), r"points must be of shape \(Q,\) or \(D, Q\)"),
    (lambda: k.Empirical(jnp.ones(2), jnp.array([0.5, 0.6])), "weights must be a distribution that sums to 1"),
    (lambda: k.Empirical(jnp.ones(2), jnp.ones(3) / 3), r"weights must be of shape \(2,\), as points"),
    (lambda: k.Empirical.of(np.ones((3, 1))), r"column must be of shape \(N,\)"),
    (lambda: k.Empirical.of(np.ones(3), np.zeros(3)), "weights must be of shape .* and not all zero"),
    (lambda: jax.jit(lambda x: k.Empirical.of(x).points)(jnp.arange(3.0)), "column must be known, but got"),
    (lambda: k.stack(RBF), "kernels must be a list of kernels"),
    (lambda: k.stack([RBF, k.Matern32(1.0, 1.0)]), "of one form, with hyper-parameters of the same shapes, but got"),
    (lambda: k.stack([RBF, k.RBF(1.0, jnp.ones(2))]), "of one form, with hyper-parameters of the same shapes, but got"),
    (lambda: batch_shape(k.stack([RBF] * 2) + RBF), "a batch of kernels must be of one size throughout"),
    (lambda: k.Wiener(1.0).matrix(X), r"inputs of Wiener must be one column.*kernel.on\(column\)"),
    (lambda: k.Centred(RBF, k.Uniform()), r"measure of Centred must be Empirical\(points\), but got a Uniform"),
    (lambda: k.Centred(RBF, k.Empirical(np.ones((2, 3)))), r"of one column, but got points of shape \(2, 3\)"),
    (lambda: k.Centred(RBF, LINE).diagonal(X), "inputs of Centred must be"),
    (lambda: k.Modulated(RBF, lambda X: X).matrix(X), r"amplitude\(X\) must be of shape \(5,\), but got"),
    (lambda: k.change_points(PLACES[1:], [0.0, 1.0], 0.1), r"locations must be 1 places, one less than kernels, but"),
    (lambda: k.change_points(PLACES, [1.0, 0.0], 0.1), r"locations must be in ascending order, but got \[1.0, 0.0\]"),
    (lambda: k.change_points(PLACES[1:], 0.0, 0.1, column=2).matrix(X), "column must be less than 2"),
    (lambda: k.change_points(PLACES[1:], 0.0, -0.1), "width must be positive"),
    (lambda: Derivative(X, 2), r"column must be less than 2, the number of columns of X, but got 2\. Count"),
    (lambda: Average(X[:, None], [-1.0]), r"weights must be zero or positive, but got -1\. For"),
    (lambda: Average(X[:, None], np.ones(2)), r"weights must be of shape \(5, 1\), or \(1,\) for all rows"),
    (lambda: Average(X), r"points must be a non-empty array of shape \(..., N, Q, D\)"),
    (lambda: np.asarray(SLOPES), "inputs must be an array of points, but got a Functional of 5 rows"),
    (lambda: covariance(RBF, X, X[:, :1]), "second must be of 2 columns, as the first"),
    (lambda: covariance(2.0 * k.Matern12(1.0, 1.0), SLOPES), "one whose functions have a slope, but got Matern12"),
    (lambda: covariance(k.ArcCosine(1.0, order=0), SLOPES), "ArcCosine, of order 0, whose functions are steps"),
    (lambda: covariance(k.Coregion(WEIGHTS, 1.0).on(0), SLOPES), "which reads codes of categories"),
    (lambda: covariance(k.Modulated(k.Matern12(1.0, 1.0), len), SLOPES), "Matern12, whose functions are too rough"),
    (lambda: covariance(k.change_points([k.Matern12(1.0, 1.0), RBF], 0.0, 0.1), SLOPES), "Matern12, whose functions"),
    (lambda: covariance(k.Centred(k.Wiener(1.0), LINE).on(0), SLOPES), "Wiener, whose .* rough.*Use IntegratedWiener"),
]


@pytest.mark.parametrize(("build", "message"), TABLE, ids=[message[:40] for _, message in TABLE])
def test_refusals(build, message):
    with pytest.raises((ValueError, TypeError), match=message):
        build()


FREE = {"offset", "diagonal", "origin", "means", "weights"}  # may be zero, or of any sign
OURS = [name for name in REGISTRY if name != "own" and not name.startswith("coregion")]


def parts_of(kernel):
    inner = (getattr(kernel, field.name) for field in dataclasses.fields(kernel))
    return [kernel] + [part for own in inner if isinstance(own, k.Kernel) for part in parts_of(own)]


@pytest.mark.parametrize("name", OURS)
def test_hyperparameters_are_positive_floats_one_or_one_for_each_column(name):
    """Each of each kernel by its own name."""
    for kernel in parts_of(REGISTRY[name]()):
        fields = [field.name for field in dataclasses.fields(kernel)]
        for field in (own for own in fields if isinstance(getattr(kernel, own), jax.Array)):
            value = np.asarray(getattr(kernel, field))
            for bad, required in [(np.nan * value, "finite")] + [(-value, "positive")] * (field not in FREE):
                with pytest.raises(ValueError, match=f"{field} must be {required}"):
                    dataclasses.replace(kernel, **{field: bad})
            with pytest.raises(TypeError, match=f"{field} must be floating point, but got dtype int64"):
                dataclasses.replace(kernel, **{field: np.ones(value.shape, int)})
            if value.shape == (3,) and field not in FREE:
                with pytest.raises(ValueError, match=rf"{field} must be a scalar or of shape \(3,\)"):
                    dataclasses.replace(kernel, **{field: np.ones(4)}).diagonal(X1)
