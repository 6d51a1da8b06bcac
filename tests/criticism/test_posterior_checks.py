"""Looks at the shape of a posterior: the cure is that of the fit's own guide."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

import numpyro_gp as ngp
from numpyro_gp.criticism import posterior_checks as looks_posterior
from numpyro_gp.criticism.evidence import Evidence
from numpyro_gp.criticism.finding import Case
from numpyro_gp.criticism.verdict import findings
from numpyro_gp.criticism.weights import Weights
from tests.criticism.faults import X, Z, y


def test_a_fit_of_a_wrong_shape_hears_the_cure_that_is_its_own():
    case = Case(Evidence({}, {}, {}, {}, {}, None, True), weights=Weights(np.zeros(30), 0.9))
    (plain,), (own,) = findings(case), findings(case._replace(cure="sample it"))
    assert "guides.conditional()" in plain.cure
    assert str(own) == "Pareto k of the importance weights is 0.90, above 0.7, so the fit has a wrong shape: sample it."


@pytest.mark.long
def test_a_guide_that_follows_the_hyperparameters_is_not_advised_to_fits_that_have_it():
    def model(X, y=None):
        lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0))
        f = ngp.gp("f", ngp.kernels.RBF(1.0, lengthscale), jnp.asarray(Z))
        with numpyro.plate("data", len(X)):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.3), obs=y)

    for recipe, has in ((ngp.guides.conditional(), True), (ngp.guides.coupled(), False)):
        guide = ngp.AutoGP(model, {"f": recipe}, AutoNormal)
        svi = SVI(model, guide, optax.sgd(0.01), Trace_ELBO())
        params = svi.get_params(svi.init(jax.random.key(0), X, y))
        posterior = ngp.Posterior.from_svi(model, guide, params)
        case = Case(Evidence({}, {}, {}, {}, {}, None, True), posterior, weights=Weights(np.zeros(30), 0.9))
        (found,) = findings(case)
        assert ("guides.conditional()" in found.cure) is not has
        assert ("ngp.conditioned" in found.cure) is has


def test_parameters_that_are_apart_are_named_where_both_fits_have_them(monkeypatch, rng):
    monkeypatch.setattr(looks_posterior, "_function_apart", lambda case: 0.0)
    near, draws = rng.normal(size=50), rng.normal(size=50)
    ours = Evidence({}, {}, {"a": near, "b": draws, "mine": draws}, {}, {}, None, False)
    theirs = Evidence({}, {}, {"a": near, "b": draws + 3, "fixed": np.ones(50)}, {}, {}, None, False)
    (found,) = looks_posterior.parameters_differ(Case(ours, other=theirs))
    assert found.sentence.startswith("b is ")
    np.testing.assert_allclose(found.number, 3 / draws.std() / looks_posterior.APART)
    assert not [*looks_posterior.parameters_differ(Case(ours, other=ours))]
