"""The decoupled layer against the dense oracle: six combinations of mean and covariance, alone and in a deep model."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro import handlers
from scipy import special

import numpyro_gp as ngp
from numpyro_gp.beliefs.layer import DecoupledLayer
from numpyro_gp.objectives import ImportanceWeightedELBO
from tests.oracles.build import answers_and_fitted, basis_of, kernel_of
from tests.oracles.vectors import cases

TOLERANCE = 1e-9  # a missing 1/2, or the KL at Z_a or Z_b alone, is off by more than 1e-2


def layer_of(case, mean, covariance, dtype=jnp.float64):
    factor = {"gp": {"scale_tril": case["S_chol"]}, "cb": {"B_tril": case["B_chol"]}}[covariance]
    factor = {name: jnp.asarray(value, dtype) for name, value in factor.items()}
    return DecoupledLayer(jnp.asarray(case["Z_a"], dtype), jnp.asarray(case[f"mean_par_{mean}"], dtype), mean, **factor)


@pytest.mark.long
@pytest.mark.parametrize("covariance", ["gp", "cb"])
@pytest.mark.parametrize("mean", ["gpcent", "gp", "cb"])
@pytest.mark.parametrize("case", cases("havasi"))
def test_six_layers(case, mean, covariance):
    belief, tag = layer_of(case, mean, covariance), f"{mean}_{covariance}"
    marginals, joint, divergence, (mean_x, var_x) = answers_and_fitted(belief, basis_of(case, "Z_b"), case)
    np.testing.assert_allclose(marginals[0], case[f"{tag}/mean"], atol=TOLERANCE)
    np.testing.assert_allclose(marginals[1], case[f"{tag}/var"], atol=TOLERANCE)
    np.testing.assert_allclose(joint[0], case[f"{tag}/mean"], atol=TOLERANCE)
    np.testing.assert_allclose(np.diag(joint[1]), case[f"{tag}/var"], atol=TOLERANCE)
    np.testing.assert_allclose(divergence, case[f"{tag}/kl"], atol=TOLERANCE)
    fit = -0.5 * (np.log(2 * np.pi * case["noise"]) + ((case["y"] - mean_x) ** 2 + var_x) / case["noise"])
    np.testing.assert_allclose(fit.sum() - divergence, case[f"{tag}/elbo_gaussian"], atol=10 * TOLERANCE)


# ---------------------------------------------------------------------------------- two layers


def deep_model(case):
    def model(X, y=None):
        weight, X = jnp.asarray(case["layer0/mean_weight"]), jnp.asarray(X)
        inner = ngp.gp(
            "inner", kernel_of(case, "layer0/"), case["layer0/Z_b"], mean=lambda x: x @ weight, outputs=2, jitter=0.0
        )
        outer = ngp.gp("outer", kernel_of(case, "layer1/"), case["layer1/Z_b"], jitter=0.0)
        with numpyro.plate("data", X.shape[0]):
            hidden = inner.draw("e", X)
            ngp.observe("y", outer(hidden), ngp.likelihoods.Gaussian(np.sqrt(case["noise"])), obs=y)

    return model


def deep_beliefs(case):
    def layer(i, pick):
        mean = pick(jnp.asarray(case[f"layer{i}/m"]).T)
        return DecoupledLayer(case[f"layer{i}/Z_a"], mean, scale_tril=pick(jnp.asarray(case[f"layer{i}/S_chol"])))

    return {"inner": layer(0, lambda a: a), "outer": layer(1, lambda a: a[0])}


@pytest.mark.long
@pytest.mark.parametrize("case", cases("deep"))
def test_two_decoupled_layers(case):
    """Forward pass, bound and predictive density at the oracle's noise; a sample of the last layer would be random."""
    beliefs, y = deep_beliefs(case), jnp.asarray(case["y"])
    model = deep_model(case)
    bounds, densities = [], []

    def guide(X, y=None):
        for name, belief in beliefs.items():
            numpyro.sample(name, ngp.Belief(belief))

    for s, noise in enumerate(jnp.asarray(case["eps"])):
        fixed = handlers.substitute(model, {**beliefs, "e": noise})
        site = handlers.trace(handlers.seed(fixed, 0)).get_trace(case["X"], y)["y"]["fn"]
        np.testing.assert_allclose(site.mean_latent, case["mean"][s, :, 0], atol=TOLERANCE)
        np.testing.assert_allclose(site.variance_latent, case["var"][s, :, 0], atol=TOLERANCE)
        densities.append(site.predictive_log_prob(y))
        with_noise = handlers.substitute(model, {"e": noise})

        objective = ImportanceWeightedELBO(1)
        bounds.append(-objective.loss(jax.random.key(0), {}, with_noise, guide, case["X"], y))
    np.testing.assert_allclose(np.mean(bounds), case["elbo_gaussian"], atol=10 * TOLERANCE)
    mixture = special.logsumexp(densities, axis=0) - np.log(len(densities))
    np.testing.assert_allclose(mixture, case["log_predictive"], atol=TOLERANCE)
