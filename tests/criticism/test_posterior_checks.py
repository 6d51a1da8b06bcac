"""Looks at the shape of a posterior: the cure is that of the fit's own guide."""

import numpy as np
import pytest
from numpyro.infer.autoguide import AutoNormal

import numpyro_gp as ngp
from numpyro_gp.criticism import posterior_checks as looks_posterior
from numpyro_gp.criticism.diagnose import findings
from numpyro_gp.criticism.evidence import FitEvidence
from numpyro_gp.criticism.fit_checks import Case
from numpyro_gp.criticism.weights import Weights
from tests.criticism import faults
from tests.criticism.faults import X, Z, y
from tests.fits import at_start

WRONG = Case(FitEvidence({}, {}, {}, {}, {}, None, True), weights=Weights(np.zeros(30), 0.9))


def test_a_fit_of_a_wrong_shape_hears_the_cure_that_is_its_own():
    (plain,), (own,) = findings(WRONG), findings(WRONG._replace(cure="sample it"))
    assert "guides.conditional()" in plain.cure
    assert str(own) == "Pareto k of the importance weights is 0.90, above 0.7, so the fit has a wrong shape: sample it."


@pytest.mark.long
def test_a_guide_that_follows_the_hyperparameters_is_not_advised_to_fits_that_have_it():
    for recipe, has in ((ngp.guides.conditional(), True), (ngp.guides.coupled(), False)):
        posterior = at_start(model, ngp.AutoGP(model, {"f": recipe}, AutoNormal), X, y, Z)
        (found,) = findings(WRONG._replace(posterior=posterior))
        assert ("guides.conditional()" in found.cure) is not has
        assert ("ngp.conditioned" in found.cure) is has


def model(X, y, Z):
    faults.model(X, y, Z=Z)


def test_parameters_that_are_apart_are_named_where_both_fits_have_them(monkeypatch, rng):
    monkeypatch.setattr(looks_posterior, "_function_apart", lambda case: 0.0)
    near, draws = rng.normal(size=50), rng.normal(size=50)
    ours = FitEvidence({}, {}, {"a": near, "b": draws, "mine": draws}, {}, {}, None, False)
    theirs = FitEvidence({}, {}, {"a": near, "b": draws + 3, "fixed": np.ones(50)}, {}, {}, None, False)
    (found,) = looks_posterior.parameters_differ(Case(ours, other=theirs))
    assert found.sentence.startswith("b is ")
    np.testing.assert_allclose(found.number, 3 / draws.std() / looks_posterior.APART)
    assert not [*looks_posterior.parameters_differ(Case(ours, other=ours))]
