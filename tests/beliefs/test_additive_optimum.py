"""The optimum for Gaussian data: the oracle's, in both forms; the bound is below the evidence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.beliefs import additive_optimum
from numpyro_gp.kernels import RBF
from tests.oracles.additive import additive_basis_of, additive_of
from tests.oracles.build import answers
from tests.oracles.vectors import cases


def optimum_of(case, form, noise=None):
    kernels, inducing = additive_of(case)
    noise = case["noise"] if noise is None else noise
    return additive_optimum(kernels, inducing, case["X"], case["y"], noise, form=form, jitter=0.0)


@pytest.mark.long
@pytest.mark.parametrize("form", ["structured", "full"])
@pytest.mark.parametrize("case", cases("additive"))
def test_the_optimum_is_the_oracles(case, form):
    """Rank N reaches the exact optimum; W = A (without 1/sigma) is off by more than 0.1."""
    belief, bound = jax.jit(lambda: optimum_of(case, form))()
    _, joint, divergence = answers(belief, additive_basis_of(case), jnp.asarray(case["Xs"]))
    np.testing.assert_allclose(belief.mean, case["optimal/m"], atol=1e-8)
    np.testing.assert_allclose(belief.whitened_scale**2, np.diag(case["optimal/S"]), atol=1e-8)
    np.testing.assert_allclose(bound, case["optimal/elbo_gaussian"], atol=1e-7)
    np.testing.assert_allclose(divergence, case["optimal/kl"], atol=1e-7)
    np.testing.assert_allclose(joint.covariance, case["optimal/cov"], atol=1e-8)
    assert bound < case["exact_lml"]


@pytest.mark.parametrize("form", ["structured", "full"])
def test_noise_for_each_datum(form):
    case = cases("additive")[1]
    same, _ = optimum_of(case, form), None
    each = optimum_of(case, form, jnp.full(len(case["y"]), case["noise"]))
    np.testing.assert_allclose(each.bound, same.bound, rtol=1e-10)
    np.testing.assert_allclose(each.belief.mean, same.belief.mean, rtol=1e-8)


KERNELS = {"a": RBF(1.0, 1.0).on(0)}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (({}, {}), ValueError, "kernels must be a dictionary with at least one component"),
        ((KERNELS, {"b": np.zeros((2, 1))}), ValueError, r"inducing must be about the components of kernels, \['a'\]"),
        ((KERNELS, [np.zeros((2, 1))]), TypeError, "inducing must be a dictionary by component name"),
        ((KERNELS, {"a": np.zeros((2, 3))}), ValueError, r"inducing\['a'\] must be an array with 1 columns"),
    ],
)
def test_bad_components(arguments, error, message):
    with pytest.raises(error, match=message):
        additive_optimum(*arguments, np.zeros((4, 1)), np.zeros(4), 1.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": np.zeros(3)}, r"y must be of shape \(4,\)"),
        ({"noise": np.ones(3)}, r"noise must be a number or of shape \(4,\)"),
        ({"noise": -1.0}, "noise must be positive"),
        ({"form": "diagonal"}, "form must be one of 'structured', 'full'"),
    ],
)
def test_bad_data(changes, message):
    arguments = {"y": np.zeros(4), "noise": 1.0, "form": "full"} | changes
    with pytest.raises(ValueError, match=message):
        additive_optimum(KERNELS, {"a": np.zeros((2, 1))}, np.zeros((4, 1)), **arguments)
