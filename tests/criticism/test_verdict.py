"""A verdict names the one fault of a fit that was made bad on purpose first, and finds none in good fits."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

import numpyro_gp as ngp
from numpyro_gp.criticism.diagnose import LOOKS, Findings
from numpyro_gp.criticism.evidence import gather
from numpyro_gp.criticism.fit_checks import Finding
from numpyro_gp.rows.call import call_of
from tests.criticism import faults
from tests.criticism.faults import CURVE, DRAWS, NOISE, RATE, X, Z, around, hyperparameters, posterior, y

RNG = np.random.default_rng(1)
CLUSTERED = Z / 3 - 2
HEAVY = CURVE + NOISE * np.random.default_rng(5).standard_t(1.5, len(X))
SILENT = 0.3 * np.random.default_rng(6).standard_normal(len(X))
POISSON = RNG.poisson(RATE).astype(float)
SCATTERED = RNG.poisson(RATE * RNG.gamma(0.7, 1 / 0.7, len(X))).astype(float)
TWO_PLACES = np.concatenate([around(0.8)[: DRAWS // 2], around(1.25)[: DRAWS // 2]])
SHORT = np.asarray(hyperparameters()["lengthscale"] < 0.85)

# The fault, a posterior, the data, a second posterior.
BAD = {
    "chains in two places": ("R-hat", lambda: posterior(chains=2, lengthscale=TWO_PLACES), y, None),
    "a funnel": ("divergences", lambda: posterior(diverging=SHORT), y, None),
    "a slow chain": ("effective draws", lambda: posterior(lengthscale=np.repeat(around(1.0)[:25], 8)), y, None),
    "no noise": ("noise", lambda: posterior(noise=around(1e-3)), y, None),
    "inputs in a corner": ("inducing inputs", lambda: posterior(Z=CLUSTERED), y, None),
    "a flat function": ("long lengthscale", lambda: posterior(lengthscale=around(20.0)), y, None),
    "outliers": ("residuals not normal", lambda: posterior(y=HEAVY, noise=around(0.6)), HEAVY, None),
    "a function not learnt": (
        "residuals follow the inputs",
        lambda: posterior(f=jnp.zeros((DRAWS, len(Z))), noise=around(0.75)),
        y,
        None,
    ),
    "too much noise": ("calibration", lambda: posterior(noise=around(0.9)), y, None),
    "over-dispersed counts": ("calibration", lambda: faults.posterior_of_counts(SCATTERED), SCATTERED, None),
    "another function": ("fits differ", posterior, y, lambda: posterior(y=y + 0.3)),
    "a narrow belief": ("Pareto k", lambda: faults.variational(0.5), y, None),
    "a narrow lengthscale": (
        "parameters differ",
        lambda: posterior(lengthscale=around(1.0, 0.02)),
        y,
        lambda: posterior(lengthscale=around(1.0, 0.25)),
    ),
    "nothing learnt": (
        "lengthscale at its prior",
        lambda: posterior(y=SILENT, lengthscale=around(1.0, 1.0)),
        SILENT,
        None,
    ),
}
GOOD = {
    "whitened values": (posterior, y, {"Z": Z}),
    "exact regression": (lambda: ngp.Posterior.from_mcmc(faults.exact, hyperparameters()), y, {}),
    "the collapsed bound": (lambda: ngp.Posterior.from_mcmc(faults.exact, hyperparameters()), y, {"Z": Z}),
    "counts": (lambda: faults.posterior_of_counts(POISSON), POISSON, {"Z": Z}),
    "a variational fit": (faults.variational, y, {"Z": Z}),
}


def cases(table, slow):
    """Names of fits, those that compile a program of their own in the second stage."""
    return [pytest.param(name, marks=[pytest.mark.long] * (name in slow)) for name in table]


@pytest.mark.parametrize("name", cases(BAD, ("a narrow belief", "over-dispersed counts")))
def test_the_fault_of_a_bad_fit_comes_first(name, capsys):
    fault, fit, data, other = BAD[name]
    with jax.numpy_rank_promotion("allow"):
        inducing = CLUSTERED if fault == "inducing inputs" else Z
        found = ngp.diagnose.verdict(fit(), X, data, Z=inducing, other=None if other is None else other())
    assert [one.fault for one in found][:1] == [fault]
    assert len(found) <= 4
    printed = capsys.readouterr().out.splitlines()
    assert printed == [f"{number}. {one}" for number, one in enumerate(found, 1)]
    for one in found:
        assert (one.number < one.threshold) == (one.fault in ("noise", "effective draws"))
        assert str(one) == f"{one.sentence}: {one.cure}."
        assert ":" not in one.sentence + one.cure


@pytest.mark.parametrize("name", cases(GOOD, set(GOOD) - {"whitened values"}))
def test_nothing_is_found_in_a_good_fit(name, capsys):
    fit, data, keywords = GOOD[name]
    with jax.numpy_rank_promotion("allow"):
        assert ngp.diagnose.verdict(fit(), X, data, **keywords) == ()
    assert capsys.readouterr().out.startswith("No fault was found in ")


@pytest.mark.long
def test_ten_sentences_at_most_and_what_cannot_be_said_is_left_out():
    """Plates, several processes and outputs, masks, an improper prior and a censored distribution: nothing stops it."""
    assert len(LOOKS) == 18

    def model(X, y=None, z=None, t=None):
        level = numpyro.sample("level", dist.ImproperUniform(dist.constraints.real, (), ()))
        with numpyro.plate("group", 2, dim=-2):
            g = ngp.gp("g", ngp.kernels.RBF(1.0, 1.0), inducing=Z, mean=level)
        h = ngp.gp("h", ngp.kernels.RBF(1.0, 1.0), inducing=Z, outputs=2)
        with numpyro.plate("data", len(X)):
            with numpyro.plate("group", 2, dim=-2):
                ngp.observe("y", g(X), ngp.likelihoods.Gaussian(0.5), obs=y)
            with handlers.mask(mask=X[:, 0] > 0):
                ngp.observe("z", h(X), ngp.likelihoods.Gaussian(0.5), obs=z)
            numpyro.sample("t", dist.RightCensoredDistribution(dist.Exponential(1.0), jnp.zeros(len(X))), obs=t)

    draws = {"level": RNG.normal(size=20), "g": RNG.normal(size=(20, 2, 1, 15)), "h": RNG.normal(size=(20, 2, 15))}
    fit = ngp.Posterior.from_mcmc(model, {name: jnp.asarray(own) for name, own in draws.items()})
    data = (X, jnp.zeros((2, len(X))), jnp.zeros((len(X), 2)), jnp.ones(len(X)))
    with jax.numpy_rank_promotion("allow"):
        found = ngp.diagnose.verdict(fit, *data)
        sites = gather(fit, jax.random.key(0), call_of(model, data, {}), None).sites
    assert len(found) <= 10
    assert set(sites) == {"y", "z"}
    assert sites["z"].y.size == 2 * int((X[:, 0] > 0).sum())


def test_a_verdict_is_told_once():
    """``print(verdict(...))`` repeated each sentence as the fields of a tuple."""
    assert str(Findings()) == "no findings"
    printed = Findings(
        [Finding("noise", "The noise is small", 0.1, 0.2, "look"), Finding("R-hat", "It is", 1, 2, "warm")]
    )
    assert str(printed) == "2 findings: noise, R-hat"
    assert printed == tuple(printed)
