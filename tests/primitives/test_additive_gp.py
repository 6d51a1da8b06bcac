"""The additive_gp primitive: predictor, components, shapes, and the same model under every engine."""

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density

import numpyro_gp as ngp
from tests.oracles.additive import additive_of, belief_of
from tests.oracles.vectors import cases


def process(value, kernels, inducing, **options):
    """The process that a model sees when its site holds ``value``."""
    with handlers.seed(rng_seed=0), handlers.substitute(data={"f": value}):
        return ngp.additive_gp("f", kernels, inducing, **options)


@pytest.mark.long
def test_predictor_and_components_and_the_bound():
    """Of three components; beliefs of all cases meet the oracle in ``beliefs/test_structured.py``."""
    case, tag = cases("additive")[2], "blocklowrank"

    def model():
        f = ngp.additive_gp("f", *additive_of(case), jitter=0.0)
        with numpyro.plate("data", len(case["y"])):
            ngp.observe("y", f(case["X"]), ngp.likelihoods.Gaussian(np.sqrt(case["noise"])), obs=case["y"])

    bound, _ = log_density(model, (), {}, {"f": belief_of(case, tag)})
    np.testing.assert_allclose(bound, case[f"{tag}/elbo_gaussian"], rtol=1e-9)
    f, X = process(belief_of(case, tag), *additive_of(case), jitter=0.0), case["Xs"]
    assert isinstance(f(X), dist.Normal)
    np.testing.assert_allclose(f(X).loc, case[f"{tag}/mean"], atol=1e-9)
    np.testing.assert_allclose(f(X).variance, np.diag(case[f"{tag}/cov"]), atol=1e-9)
    np.testing.assert_allclose(f.joint(X).covariance_matrix, case[f"{tag}/cov"], atol=1e-9)
    np.testing.assert_allclose(f.component_covariance(X), case[f"{tag}/component_cov_same_point"], atol=1e-9)
    for c, (name, normal) in enumerate(f.components(X).items()):
        assert name == f"c{c}"
        np.testing.assert_allclose(normal.loc, case[f"{tag}/component_mean"][c], atol=1e-9)
        np.testing.assert_allclose(normal.variance, case[f"{tag}/component_cov_same_point"][:, c, c], atol=1e-9)
