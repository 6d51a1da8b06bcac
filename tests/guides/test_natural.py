"""The natural map: values, and a derivative that is the natural gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.beliefs import Coupled
from numpyro_gp.guides.natural import natural_to_mean
from numpyro_gp.likelihoods import Bernoulli, Gaussian
from tests.oracles.build import basis_of
from tests.oracles.vectors import cases


def natural_of(case):
    precision = np.linalg.inv(case["S_chol"] @ case["S_chol"].T)
    return jnp.asarray(precision @ case["m"]), jnp.asarray(precision)


@pytest.mark.parametrize("case", cases("natgrad"))
@pytest.mark.parametrize(("tag", "likelihood"), [("gaussian", None), ("bernoulli_probit", Bernoulli("probit"))])
def test_a_plain_step_is_the_oracle_natural_step(case, tag, likelihood):
    """An ordinary gradient step in these parameters (no custom rule) lands elsewhere by more than 0.1."""
    basis, X = basis_of(case), jnp.asarray(case["X"])
    likelihood = Gaussian(np.sqrt(case["noise"])) if likelihood is None else likelihood
    y = jnp.asarray(case["y"] if tag == "gaussian" else case["labels"])

    def loss(shift, precision):
        belief = Coupled(*natural_to_mean(shift, precision))
        return belief.kl(basis) - likelihood.expected_log_prob(y, *belief.marginals(basis, X)).sum()

    start = natural_of(case)
    slopes = jax.jit(jax.grad(loss, (0, 1)))(*start)
    for size in ("partial", "full"):
        step = case[f"rho_{size}"]
        mean, factor = natural_to_mean(*[p - step * g for p, g in zip(start, slopes, strict=True)])
        np.testing.assert_allclose(mean, case[f"{tag}_{size}/m"], atol=1e-6)
        np.testing.assert_allclose(factor @ factor.T, case[f"{tag}_{size}/S"], atol=1e-6)
    if tag == "gaussian":
        np.testing.assert_allclose(mean, case["titsias/m"], atol=1e-6)
        np.testing.assert_allclose(
            -loss(*[p - g for p, g in zip(start, slopes, strict=True)]), case["titsias/bound"], atol=1e-6
        )


def test_outputs_are_mapped_one_by_one_and_an_indefinite_precision_is_nan():
    case = cases("natgrad")[0]
    shift, precision = natural_of(case)
    means, factors = natural_to_mean(jnp.stack([shift, 2 * shift]), jnp.stack([precision, 3 * precision]))
    np.testing.assert_allclose(means[1], 2 / 3 * case["m"], atol=1e-10)
    np.testing.assert_allclose(factors[0], case["S_chol"], atol=1e-10)
    assert jnp.isnan(natural_to_mean(jnp.zeros(2), jnp.diag(jnp.array([1.0, -1.0])))[1]).any()
