"""Looks at the shape of a posterior: the cure is that of the fit's own guide."""

import jax
import numpy as np
import pytest
from numpyro.infer.autoguide import AutoNormal

import numpyro_gp as ngp
from numpyro_gp.criticism import posterior_checks as looks_posterior
from numpyro_gp.criticism.evidence import FitEvidence
from numpyro_gp.criticism.fit_checks import Case
from numpyro_gp.criticism.weights import Weights
from numpyro_gp.rows.call import call_of
from tests.criticism import faults
from tests.criticism.faults import X, Z, y
from tests.fits import at_start


@pytest.mark.long
def test_a_fit_of_a_wrong_shape_is_advised_to_what_it_does_not_have(monkeypatch):
    monkeypatch.setattr(looks_posterior, "importance_weights", lambda *_, **__: Weights(np.zeros(30), 0.9))
    for recipe, has in ((ngp.guides.conditional(), True), (ngp.guides.coupled(), False)):
        posterior = at_start(model, ngp.AutoGP(model, {"f": recipe}, AutoNormal), X, y, Z)
        evidence = FitEvidence({}, {}, {}, {}, {}, None, True)
        case = Case(evidence, posterior, call_of(posterior.model, (X, y, Z), {}), jax.random.key(0))
        (found,) = looks_posterior.pareto(case)
        assert found.sentence == "Pareto k of the importance weights is 0.90, above 0.7, so the fit has a wrong shape"
        assert ("guides.conditional()" in found.cure) is not has
        assert ("ngp.conditioned" in found.cure) is has
        assert not [*looks_posterior.pareto(case._replace(evidence=evidence._replace(is_weighable=False)))]


def model(X, y, Z):
    faults.model(X, y, Z=Z)


@pytest.mark.long
def test_a_parameter_that_weights_move_is_named(monkeypatch):
    """Of a fit whose weights can be relied on: draws of a line, whose weights rise along it."""
    line = np.linspace(0.0, 2.0, 500)
    posterior = at_start(model, ngp.AutoGP(model, {"f": ngp.guides.coupled()}, AutoNormal), X, y, Z)
    evidence = FitEvidence({}, {}, {"noise": line, "other": line}, {}, {}, None, True)
    case = Case(evidence, posterior, call_of(posterior.model, (X, y, Z), {}), jax.random.key(0))
    for slope, wanted in ((2.0, ["importance weights"]), (0.1, [])):
        own = Weights(slope * line, 0.1, {"noise": line})
        monkeypatch.setattr(looks_posterior, "importance_weights", lambda *_, own=own, **__: own)
        found = [*looks_posterior.pareto(case)]
        assert [one.fault for one in found] == wanted
    weight = np.exp(2.0 * line)
    (first,) = looks_posterior._moved(case, Weights(2.0 * line, 0.1, {"noise": line}))
    assert f"noise is 1.00 ± {line.std():.2f} in the fit and {(weight @ line) / weight.sum():.2f} by" in first.sentence
    assert "importance_resample" in first.cure


def test_parameters_that_are_apart_are_named_where_both_fits_have_them(monkeypatch, rng):
    monkeypatch.setattr(looks_posterior, "_function_apart", lambda case: 0.0)
    near, draws = rng.normal(size=50), rng.normal(size=50)
    ours = FitEvidence({}, {}, {"a": near, "b": draws, "mine": draws}, {}, {}, None, False)
    theirs = FitEvidence({}, {}, {"a": near, "b": draws + 3, "fixed": np.ones(50)}, {}, {}, None, False)
    (found,) = looks_posterior.parameters_differ(Case(ours, other=theirs))
    assert found.sentence.startswith("b is ")
    np.testing.assert_allclose(found.number, 3 / draws.std() / looks_posterior.APART)
    assert not [*looks_posterior.parameters_differ(Case(ours, other=ours))]
