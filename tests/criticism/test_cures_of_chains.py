"""Cures of chains and of the shape of a posterior: what they name exists, and after them the finding is gone."""

import dataclasses
import functools
import inspect
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer import NUTS

import numpyro_gp as ngp
from numpyro_gp.criticism import fit_checks as looks
from numpyro_gp.criticism import posterior_checks as looks_posterior
from numpyro_gp.criticism.evidence import Fact, FitEvidence
from numpyro_gp.criticism.fit_checks import Case
from numpyro_gp.criticism.leave_one_out import Seen
from tests.criticism import faults
from tests.criticism.faults import X, Z, y
from tests.fits import trained

RNG = np.random.default_rng(0)
EMPTY = FitEvidence({}, {}, {}, {}, {}, None, False)


def of_chains(draws):
    """What is known of chains ``(chains, draws)`` of one lengthscale."""
    flat = draws.reshape(-1)
    fit = ngp.Posterior.from_mcmc(faults.model, {"lengthscale": jnp.asarray(flat)})
    fit = dataclasses.replace(fit, num_chains=len(draws))
    return Case(EMPTY._replace(parameters={"lengthscale": flat}), fit)


def test_what_cures_name_is_there():
    """Names of the library, and the argument of NumPyro's NUTS."""
    text = "".join(Path(module.__file__).read_text() for module in (looks, looks_posterior))
    names = set(re.findall(r"ngp((?:\.\w+)+)", text)) | {f".{name}" for name in re.findall(r"(guides\.\w+)", text)}
    assert {".inducing.enough", ".conditioned", ".likelihoods.StudentT", ".guides.conditional"} <= names
    for name in names - {".Posterior"}:
        found = ngp
        for part in name[1:].split("."):
            found = getattr(found, part)
    assert "target_accept_prob" in inspect.signature(NUTS).parameters


@pytest.mark.parametrize(
    ("sites", "cure"), [("f", "ngp.conditioned"), ("f_conditioned", "a fit of more steps"), ("other", "priors")]
)
def test_chains_are_told_of_other_coordinates_unless_they_run_in_them(sites, cure):
    """A chain in the coordinates of `ngp.conditioned` was told to start there."""
    far = RNG.normal(size=(2, 200)) + np.array([[0.0], [6.0]])
    case = of_chains(far)
    stored = {"lengthscale": jnp.asarray(far.reshape(-1)), sites: jnp.asarray(far.reshape(-1))}
    fit = dataclasses.replace(ngp.Posterior.from_mcmc(faults.model, stored), num_chains=2)
    fact = Fact(*[np.zeros(1)] * 3, None, None, np.zeros(1), 3, (), is_exact=False)
    case = case._replace(posterior=fit, evidence=case.evidence._replace(processes={"f": fact}))
    (found,) = looks.r_hat(case)
    assert cure in found.cure
    (found,) = looks.effective_draws(case)
    assert ("ngp.conditioned" in found.cure) == (sites == "f")


def test_chains_that_warm_up_longer_agree_and_those_that_run_longer_hold_enough_draws():
    far = RNG.normal(size=(2, 400)) + np.array([[0.0], [6.0]]) * np.exp(-np.arange(400) / 30)
    (found,) = looks.r_hat(of_chains(far[:, :200]))
    assert found.cure.startswith("warm up longer")
    assert not list(looks.r_hat(of_chains(far[:, 200:])))
    draws = np.zeros((2, 6000))
    for at in range(1, 6000):
        draws[:, at] = 0.9 * draws[:, at - 1] + RNG.normal(size=2)
    (found,) = looks.effective_draws(of_chains(draws[:, :500]))
    assert found.cure.startswith("run them longer")
    assert not list(looks.effective_draws(of_chains(draws)))


def process(lengthscale=1.0, left=0.0, is_exact=False):
    """What is known of a process of prior variance 1 on inputs six units apart."""
    scales, whole = (jnp.full((5, 1), value) for value in (lengthscale, 6.0))
    one = np.ones(5)
    return Fact(left * one, one, 0 * one, np.asarray(scales), np.asarray(whole), np.nan * one, 15, (0,), is_exact)


def seen(level=0.0, noise=0.3):
    values = np.sin(np.arange(40.0))
    return Seen(
        values, np.arange(40), 40, level + 0 * values, noise + 0 * values, values, values, np.full(5, noise), True
    )


@pytest.mark.parametrize("left", [0.0, 0.3])
@pytest.mark.parametrize("kind", ["svi", "mcmc"])
def test_two_fits_that_differ_are_told_of_inducing_inputs_only_where_these_leave_something(left, kind):
    mine, other = (
        EMPTY._replace(sites={"y": seen(level)}, processes={"f": process(left=left)}) for level in (0.0, 0.2)
    )
    fit = None if kind == "svi" else ngp.Posterior.from_mcmc(faults.model, {"noise": jnp.ones(9)})
    (found,) = looks_posterior.fits_differ(Case(mine, fit, other=other))
    assert ("inducing inputs" in found.cure) is (left > 0)
    if not left:
        assert found.cure.startswith("train longer" if kind == "svi" else "run longer chains")
    assert not list(looks_posterior.fits_differ(Case(mine, fit, other=mine)))


@pytest.mark.long
def test_natural_steps_give_a_fit_its_shape():
    """The belief of a known process after one natural step is exact, and its importance weights have no tail."""
    with jax.numpy_rank_promotion("allow"):
        found = ngp.diagnose.verdict(faults.variational(0.5), X, y, Z=Z, key=jax.random.key(0))
        assert {one.fault: one.cure for one in found}["Pareto k"].startswith("train longer, by natural steps")
        model = functools.partial(faults.fixed, Z=Z)
        better = trained(model, ngp.guides.coupled(natural=True), X, y)
        after = ngp.diagnose.verdict(better, X, y, key=jax.random.key(0))
    assert "Pareto k" not in {one.fault for one in after}
