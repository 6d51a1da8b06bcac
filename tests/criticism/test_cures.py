"""Cures: what they name exists, each fits what is known of a fit, and of chains and a jitter the finding then goes."""

import dataclasses
import inspect
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro.infer import NUTS

import numpyro_gp as ngp
from numpyro_gp.beliefs.gaussian_data import GaussianData
from numpyro_gp.criticism import fit_checks as looks
from numpyro_gp.criticism import posterior_checks as looks_posterior
from numpyro_gp.criticism.evidence import Fact, FitEvidence
from numpyro_gp.criticism.fit_checks import Case
from numpyro_gp.criticism.leave_one_out import Seen
from tests.criticism import faults
from tests.criticism.faults import CURVE, X
from tests.precision import x64

RNG = np.random.default_rng(0)
EMPTY = FitEvidence({}, {}, {}, {}, {}, None, False)
ONE = np.ones(5)


def fact(left=0.0, is_exact=False, at_half=None):
    """What is known of a process of prior variance 1 with 15 inducing inputs."""
    half = None if at_half is None else at_half * ONE
    return Fact(left * ONE, ONE, 0 * ONE, None, None, np.nan * ONE, 15, (0,), is_exact, half)


def seen(y, level=0.0, pit=0.5, is_normal=True):
    zeros = np.zeros(len(y))
    return Seen(y, np.arange(len(y)), len(y), level + zeros, 0.3 + zeros, pit + zeros, y, 0.3 * ONE, is_normal)


def of_chains(draws, *others):
    """What is known of chains ``(chains, draws)`` of one lengthscale, and of other sites."""
    flat = jnp.asarray(draws.reshape(-1))
    fit = ngp.Posterior.from_mcmc(faults.model, dict.fromkeys(("lengthscale", *others), flat))
    evidence = EMPTY._replace(parameters={"lengthscale": flat}, processes={"f": fact()})
    return Case(evidence, dataclasses.replace(fit, num_chains=len(draws)))


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
    case = of_chains(RNG.normal(size=(2, 200)) + np.array([[0.0], [6.0]]), sites)
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


SVI = ngp.Posterior.from_svi(faults.model, lambda *args, **kwargs: None, {})


@pytest.mark.parametrize(
    ("process", "fit", "cure"),
    [
        (
            fact(at_half=0.2),
            SVI,
            "take more inducing inputs, 60, and start from a shorter lengthscale, which 15 forbid",
        ),
        (fact(left=0.3), SVI, "take more inducing inputs, as many as ngp.inducing.enough"),
        (fact(is_exact=True), SVI, "start from a shorter lengthscale, .*, or train longer"),
        (fact(at_half=0.01), SVI, "train longer, start from a shorter lengthscale with more inducing inputs, or take"),
        (fact(), SVI, "train longer, start from a shorter lengthscale"),
        (fact(), None, "start from a shorter lengthscale"),
    ],
)
def test_residuals_that_follow_their_inputs_have_the_cure_of_their_process(process, fit, cure):
    """More inducing inputs only where they leave a part, or keep a lengthscale long: `enough` says that they do."""
    rows = np.linspace(0.0, 1.0, 90)[:, None]
    evidence = EMPTY._replace(sites={"y": seen(np.sin(9 * rows[:, 0]))}, processes={"f": process}, inputs=rows)
    (found,) = looks.follow(Case(evidence, fit))
    assert re.match(cure, found.cure)


def test_counts_that_vary_more_have_another_likelihood_and_only_counts_are_told_so():
    pit = np.linspace(0.0, 1.0, 90) ** 0.1
    for y, is_normal, has in (
        (np.arange(90.0), False, True),
        (np.arange(90) + 0.5, False, False),
        (X[:, 0], True, False),
    ):
        case = Case(EMPTY._replace(sites={"y": seen(np.asarray(y), pit=pit, is_normal=is_normal)}))
        (found,) = looks.miscalibrated(case)
        assert ("NegativeBinomial" in found.cure) == has


@pytest.mark.parametrize("left", [0.0, 0.3])
@pytest.mark.parametrize("kind", ["svi", "mcmc"])
def test_two_fits_that_differ_are_told_of_inducing_inputs_only_where_these_leave_something(left, kind):
    values, processes = np.sin(np.arange(40.0)), {"f": fact(left=left)}
    mine, other = (EMPTY._replace(sites={"y": seen(values, level)}, processes=processes) for level in (0.0, 0.2))
    fit = None if kind == "svi" else ngp.Posterior.from_mcmc(faults.model, {"noise": jnp.ones(9)})
    (found,) = looks_posterior.fits_differ(Case(mine, fit, other=other))
    assert ("inducing inputs" in found.cure) is (left > 0)
    if not left:
        assert found.cure.startswith("train longer" if kind == "svi" else "run longer chains")
    assert not list(looks_posterior.fits_differ(Case(mine, fit, other=mine)))


@pytest.mark.long
@pytest.mark.parametrize("precision", [32, 64])
def test_what_a_jitter_leaves_is_no_matter_of_inducing_inputs(precision):
    """Noise that is a 500th of the signal in float32, a 2000th in float64: more inducing inputs would not help."""
    noise = 2e-3 if precision == 32 else 5e-4
    calm = np.asarray(CURVE) + noise * np.random.default_rng(0).standard_normal(len(X))

    def found(jitter=None):
        dtype = jnp.asarray(0.0).dtype
        kernel = ngp.kernels.RBF(jnp.asarray(0.8, dtype), jnp.asarray(0.7 if precision == 32 else 1.0, dtype))
        points, rows, y = (jnp.asarray(one, dtype) for one in (np.linspace(-3, 3, 20)[:, None], X, calm))
        data = GaussianData.build(ngp.beliefs.Basis.build(kernel, points, jitter), rows, jnp.asarray(noise**2, dtype))
        mean, factor, _ = data.optimum(y / data.scale)

        def model(X, y=None):
            f = ngp.gp("f", kernel, inducing=points, jitter=jitter)
            with numpyro.plate("data", len(X)):
                ngp.observe("y", f(X), ngp.likelihoods.Gaussian(noise), obs=y)

        guide = lambda X, y=None: numpyro.sample("f", ngp.Belief(ngp.beliefs.Coupled(mean, factor)))  # noqa: E731
        fit = ngp.Posterior.from_svi(model, guide, {})
        with jax.numpy_rank_promotion("allow"):
            return {one.fault: one for one in ngp.diagnose.verdict(fit, rows, y, key=jax.random.key(0))}

    with x64(precision == 64):
        first = found()
    assert "inducing inputs" not in first
    assert ("float64" if precision == 32 else "jitter=1e-9") in first["jitter"].cure
    with x64(True):
        assert "jitter" not in (found() if precision == 32 else found(1e-9))
