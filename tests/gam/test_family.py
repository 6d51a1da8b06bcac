"""Families by name, by value and by function, and the quick GLM behind the scales of the priors."""

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

import numpyro_gp as ngp
from numpyro_gp.gam.family import NAMED, Start, as_family, quick_glm


@pytest.mark.parametrize("name", NAMED)
def test_a_name_is_a_likelihood_with_priors_for_its_parameters(name):
    family = as_family(name)
    with handlers.seed(rng_seed=0):
        likelihood = family.likelihood(Start(0.0, 1.0, 0.3))
    assert type(likelihood).__name__.lower() == name.replace("_", "")
    assert family.link in ("identity", "log", "logit")


def test_values_and_functions():
    assert as_family(ngp.likelihoods.Gaussian(0.1)).link == "identity"
    family = as_family(lambda: ngp.likelihoods.Gamma(numpyro.sample("shape", dist.LogNormal(0.0, 1.0))))
    assert (family.name, family.link) == ("Gamma", "log")


def test_gaussian_scales_are_those_of_least_squares():
    """The residual deviation of a line, and the deviation of the response."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 1))
    y = 5 + 2 * x[:, 0] + 0.3 * rng.normal(size=200)
    start = quick_glm(as_family("gaussian"), x, y, np.zeros(200), np.ones(200))
    np.testing.assert_allclose(start[:2], (y.mean(), y.std()), rtol=1e-12)
    design = np.stack([np.ones(200), x[:, 0]], axis=1)
    left = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    np.testing.assert_allclose(start.noise, 0.7 * left.std(), rtol=0.01)


def test_the_size_of_f_is_found_beyond_the_noise_of_counts():
    """``f`` is a wave of deviation 1 that no line explains; the variance of the counts alone is 0.7 of it."""
    rng = np.random.default_rng(1)
    x, offset = rng.uniform(size=(4000, 1)), rng.normal(size=4000) * 0.3
    f = np.sqrt(2) * np.sin(6 * np.pi * x[:, 0])
    y = rng.poisson(np.exp(f + offset))
    start = quick_glm(as_family("poisson"), x, y.astype(float), offset, np.ones(4000))
    assert 0.7 < start.size < 1.3
    np.testing.assert_allclose(start.constant, np.log(y.mean() / np.exp(offset).mean()), rtol=1e-9)


def test_labels_start_at_the_logit_of_their_share():
    y = np.array([0.0, 1.0, 1.0, 1.0])
    start = quick_glm(as_family("bernoulli"), np.zeros((4, 0)), y, np.zeros(4), np.ones(4))
    np.testing.assert_allclose(start, (np.log(3.0), 1.5, 1.0), rtol=1e-12)


@pytest.mark.parametrize(
    ("family", "message"),
    [
        ("gaussian(log)", "family must be one of .*but got 'gaussian[(]log[)]'. Counts take 'poisson'"),
        ("poison", "Check the spelling"),
        (lambda f: f, "a name, a likelihood, or a function without arguments"),
        (3, "a name, a likelihood, or a function without arguments"),
    ],
)
def test_refusals(family, message):
    with pytest.raises((TypeError, ValueError), match=message):
        as_family(family)


def test_counts_without_an_event_start_at_half_of_one():
    start = quick_glm(as_family("poisson"), np.zeros((200, 0)), np.zeros(200), np.zeros(200), np.ones(200))
    assert start.constant == pytest.approx(np.log(0.5 / 200))
    positive = quick_glm(as_family("gamma"), np.zeros((4, 0)), np.full(4, 1e-12), np.zeros(4), np.ones(4))
    assert positive.constant == pytest.approx(np.log(1e-12))
