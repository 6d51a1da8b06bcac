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
    same, each = (optimum_of(case, form, noise) for noise in (None, jnp.full(len(case["y"]), case["noise"])))
    np.testing.assert_allclose(each.bound, same.bound, rtol=1e-10)
    np.testing.assert_allclose(each.belief.mean, same.belief.mean, rtol=1e-8)


KERNELS = {"a": RBF(1.0, 1.0).on(0)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kernels": {}, "inducing": {}}, "kernels must be a dictionary with at least one component"),
        ({"inducing": {"b": np.zeros((2, 1))}}, r"inducing must be about the components of kernels, \['a'\]"),
        ({"inducing": [np.zeros((2, 1))]}, "inducing must be a dictionary by component name"),
        ({"inducing": {"a": np.zeros((2, 3))}}, r"inducing\['a'\] must be an array with 1 columns"),
        ({"y": np.zeros(3)}, r"y must be of shape \(4,\)"),
        ({"noise": np.ones(3)}, r"noise must be a number or of shape \(4,\)"),
        ({"noise": -1.0}, "noise must be positive"),
        ({"form": "diagonal"}, "form must be one of 'structured', 'full'"),
    ],
)
def test_bad_input(changes, message):
    data = {"kernels": KERNELS, "inducing": {"a": np.zeros((2, 1))}, "X": np.zeros((4, 1)), "y": np.zeros(4)}
    with pytest.raises((ValueError, TypeError), match=message):
        additive_optimum(**data | {"noise": 1.0, "form": "full"} | changes)
