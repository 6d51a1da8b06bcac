"""Looks at a fit name the parameter of divergences and the lower end of a prior, and yield nothing without evidence."""

import dataclasses
import tracemalloc

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import numpyro_gp as ngp
from numpyro_gp.criticism import fit_checks as looks
from numpyro_gp.criticism.evidence import Fact, FitEvidence
from numpyro_gp.criticism.fit_checks import Case
from numpyro_gp.criticism.leave_one_out import Seen
from tests.criticism import faults
from tests.criticism.faults import CURVE, DRAWS, X, around, hyperparameters, posterior, y

EMPTY = FitEvidence({}, {}, {}, {}, {}, None, False)
SHORT = np.asarray(hyperparameters()["lengthscale"] < 0.85)


def test_without_evidence_nothing_is_found():
    empty = Case(EMPTY)
    every = [looks.r_hat, looks.divergences, looks.stranded, looks.no_numbers, looks.effective_draws, looks.noise]
    every += [looks.inducing, looks.long_lengthscale, looks.not_normal, looks.follow, looks.miscalibrated]
    every += [looks.narrow]
    assert [list(look(empty)) for look in every] == [[]] * 12


@pytest.mark.long
def test_the_parameter_of_divergences_is_named():
    """Draws diverge where the lengthscale is short, and nothing else is common to them."""
    evidence = EMPTY._replace(parameters=hyperparameters())
    (found,) = looks.divergences(Case(evidence, posterior(diverging=SHORT)))
    assert "most of them where lengthscale is small" in found.sentence
    (scattered,) = looks.divergences(Case(evidence, posterior(diverging=np.arange(DRAWS) % 20 == 0)))
    assert "most of them" not in scattered.sentence
    assert (scattered.number, scattered.threshold) == (10.0, 0.0)


def test_stranded_particles_are_told():
    far = np.arange(DRAWS) % 90 == 7
    (found,) = looks.stranded(Case(EMPTY, dataclasses.replace(posterior(), extra_fields={"stranded": far})))
    assert (found.fault, found.number) == ("stranded particles", far.sum())
    assert found.sentence.startswith(f"{far.sum()} of {DRAWS} particles are stranded far below the others: [7, 97,")


def test_bounds_that_rounding_has_exchanged_prove_nothing():
    """An upper bound 7.4 nats per datum below the lower one, as of collapsed bounds in float32 with little noise."""
    for gap, count in ((-7.4, 1), (0.001, 0), (-0.001, 0), (np.nan, 1)):
        fact = Fact(np.full(3, 0.2), np.ones(3), np.zeros(3), None, None, np.full(3, gap), 5, (), False)
        found = list(looks.inducing(Case(EMPTY._replace(processes={"f": fact}))))
        assert len(found) == count
        assert not any("nats" in one.sentence for one in found)


def test_residuals_that_are_all_one_number_have_no_shape():
    equal = np.zeros(40, np.float32)
    seen = Seen(equal, np.arange(40), 40, equal, 1 + equal, 0.5 + equal, equal, None, True)
    assert list(looks.not_normal(Case(EMPTY._replace(sites={"y": seen})))) == []


def test_a_draw_under_which_a_covariance_has_no_factor_is_told(capsys):
    """One of the draws has no noise beside a function that is one level: all that is left out is NaN."""

    def model(X, y=None):
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
        ngp.gp_regression("y", ngp.kernels.RBF(1.0, 1e5), X, scale**2, obs=y)

    scales = jnp.asarray(np.where(np.arange(DRAWS) == 3, 1e-12, 0.2))
    findings = ngp.diagnose.verdict(ngp.Posterior.from_mcmc(model, {"scale": scales}), X, y)
    (found,) = [one for one in findings if one.fault == "no numbers"]
    assert found.number == len(X)
    assert "No fault" not in capsys.readouterr().out


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_residuals_follow_inputs_of_many_columns_one_of_which_is_constant(dtype):
    """Differences of all pairs in all columns would take 400 MB; a constant column says nothing of what is near."""
    x = np.linspace(0.0, 1.0, 500)
    inputs = np.column_stack([x, np.full(500, 2024.3), np.zeros((500, 398))]).astype(dtype)
    z, rows = np.sin(20 * x), np.arange(500)
    seen = Seen(z, rows, 500, 0 * z, 1 + 0 * z, np.full(500, 0.5), z, None, True)
    tracemalloc.start()
    (found,) = looks.follow(Case(EMPTY._replace(sites={"y": seen}, inputs=inputs)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.number > 0.99
    assert peak < 1e8


@pytest.mark.long
def test_noise_at_the_lower_end_of_its_prior(capsys):
    def model(X, y=None):
        variance = numpyro.sample("noise_variance", dist.Uniform(0.04, 4.0))
        ngp.gp_regression("y", faults.kernel(0.8, 1.0), X, noise_variance=variance, obs=y)

    calm = CURVE + 0.2 * np.random.default_rng(2).standard_normal(len(X))
    fit = ngp.Posterior.from_mcmc(model, {"noise_variance": jnp.asarray(0.04 + 0.001 * around(1.0))})
    (found,) = ngp.diagnose.verdict(fit, X, calm)
    assert found.fault == "noise"
    assert "times 0.2, the least that its prior allows" in found.sentence


def test_noise_is_small_beside_most_data_or_beside_all_where_most_are_equal():
    """One datum far away makes no noise look small; where three quarters of the data are equal it has to."""

    def found(y, noise):
        numbers = np.full(len(y), np.nan)
        site = Seen(y, np.arange(len(y)), len(y), numbers, numbers, numbers, numbers, np.full(3, noise), True)
        return [one.number for one in looks.noise(Case(EMPTY._replace(sites={"y": site})))]

    assert found(np.append(np.linspace(0.0, 1.0, 99), 1e6), looks.FLOOR) == []
    equal = np.append(np.zeros(99), 1.0)
    assert found(equal, 2 * looks.FLOOR * equal.std()) == []
    np.testing.assert_allclose(found(equal, 0.5 * looks.FLOOR * equal.std()), [0.5 * looks.FLOOR])
