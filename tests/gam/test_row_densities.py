"""Importance weights against the evidence of a Gaussian model, and how probable is what lies below a datum."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import numpyro_gp as ngp
from numpyro_gp.gam.answers.draws import OfPseudoData, guide_draws
from numpyro_gp.gam.answers.row_densities import (
    _probability_below,
    _seen,
    expected_at_all,
    lower_ends,
    to_leave_out,
    weights_of,
)
from numpyro_gp.gam.answers.summary import facts_of, report_on_rows
from numpyro_gp.gam.model.features import TermFeatures
from tests.gam.known import as_draws

RNG = np.random.default_rng(0)
N, NOISE = 12, 0.4
NORMAL = ngp.likelihoods.Gaussian(1.2)
DATA = {"x": RNG.lognormal(size=N), "g": np.array(list("abcabcabcaab")), "y": RNG.normal(size=N)}


@pytest.mark.long
def test_weights_of_an_exact_belief_are_the_evidence():
    """``p(y, theta, v) / q(theta, v) = p(y | theta) p(theta) / q(theta)`` at every ``v``; also of rows with weights."""
    likelihood = ngp.likelihoods.Gaussian(NOISE)
    for mass in (None, np.arange(1.0, N + 1)):
        model = dataclasses.replace(ngp.gam.model("y ~ s(x) + re(g)", DATA, likelihood, weights=mass), jitter=0.0)
        term_features, X, y = TermFeatures(model), model.rows.X, model.rows.y
        found = guide_draws(model, jax.random.key(0), np.array([0.1, -0.2, 0.3]), 0.2 * np.eye(3), 30)
        # f(X) = B u does not depend on hyper-parameters: all rows but one determine a curve of mean zero.
        scaled = term_features.at(X)(np.ones(3), np.ones(1))
        B = np.linalg.solve(term_features.roots(np.ones(3), np.ones(1))[0].T, scaled.A).T
        rate = (np.ones(N) if mass is None else mass) / NOISE**2
        weights = OfPseudoData(term_features, found, B.T @ (rate * (y - model.start.constant)), (B.T * rate) @ B)
        draws = as_draws(term_features, found, weights)
        looked = report_on_rows(draws, 0.9, np.random.default_rng(0))
        logs = weights_of(draws, looked.at.log_ratio, looked.densities.expected).log_weights.reshape(30, -1)
        wanted = []
        for scales, lengths in zip(draws.scales, draws.lengths, strict=True):
            A = term_features.at(X)(scales, lengths).A
            covariance = A.T @ A + np.diag(1 / rate)
            # A row of weight w has the density of noise^2 to the power w, and not that of noise^2 / w.
            power = 0.5 * np.sum(np.log(2 * np.pi / rate)) - 0.5 * np.sum(rate) * NOISE**2 * np.log(
                2 * np.pi * NOISE**2
            )
            exact = stats.multivariate_normal(np.full(N, model.start.constant), covariance, allow_singular=True)
            wanted.append(exact.logpdf(y) + power)
        np.testing.assert_allclose(logs - draws.log_ratio[:, None], np.array(wanted)[:, None] + 0 * logs, atol=1e-5)
        again = weights_of(draws, *expected_at_all(draws, np.random.default_rng(1)))
        np.testing.assert_allclose(again.log_weights - draws.log_ratio, wanted, atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("likelihood", [NORMAL, ngp.likelihoods.Truncated(NORMAL, low=-100.0)])
def test_rows_left_out_have_the_density_of_all_others(likelihood):
    """``y_n`` given all others at known hyper-parameters; with itself among them it would be 0.15 nats higher.

    By formulas, and by the program of a likelihood that has none in NumPy.
    """
    model = dataclasses.replace(ngp.gam.model("y ~ linear(x) + re(g)", DATA, likelihood), jitter=0.0)
    term_features, X, left = TermFeatures(model), model.rows.X, model.rows.y - model.start.constant
    found = guide_draws(model, jax.random.key(0), np.array([0.1, -0.2]), 1e-6 * np.eye(2), 4)
    scaled = term_features.at(X)(*(own[0] for own in (np.asarray(found.scales), np.asarray(found.lengths))))
    B = np.linalg.solve(term_features.roots(np.asarray(found.scales)[0], np.zeros(0))[0].T, scaled.A).T
    weights = OfPseudoData(term_features, found, B.T @ left / 1.44, B.T @ B / 1.44)
    draws = as_draws(term_features, found, weights)
    looked = report_on_rows(draws, 0.9, np.random.default_rng(0))
    K = scaled.A.T @ scaled.A
    inverse = np.linalg.inv(K + 1.44 * np.eye(N))
    exact = stats.norm(left - inverse @ left / np.diag(inverse), np.diag(inverse) ** -0.5).logpdf(left).mean()
    inside = stats.norm(K @ inverse @ left, np.sqrt(np.diag(K - K @ inverse @ K) + 1.44)).logpdf(left).mean()
    facts, notes = facts_of(draws, looked, True)
    said = float(facts["log density, left out"].split(" ")[0])
    assert abs(said - exact) < 0.03 < 0.3 * abs(inside - exact), (said, exact, inside)
    assert not notes
    wanted = model.start.constant + K @ inverse @ left
    np.testing.assert_allclose(looked.densities.fitted, wanted[looked.places], atol=1e-5)


@pytest.mark.long
def test_what_is_below_a_datum_has_the_probability_of_scipy():
    y, f, ties = np.array([0.0, 1.0, 4.0]), np.array([[0.3, -0.5, 1.0]]), np.array([0.2, 0.9, 0.5])
    rate = np.exp(f)
    own = lambda law, y: law.cdf(y - 1) + ties * law.pmf(y)  # noqa: E731
    cases = [
        (ngp.likelihoods.Poisson(), y, own(stats.poisson(rate), y)),
        (ngp.likelihoods.NegativeBinomial(jnp.full(1, 3.0)), y, own(stats.nbinom(3.0, 3 / (3 + rate)), y)),
        (ngp.likelihoods.Bernoulli(), np.minimum(y, 1), own(stats.bernoulli(1 / (1 + np.exp(-f))), np.minimum(y, 1))),
        (ngp.likelihoods.Gamma(jnp.full(1, 2.0)), y + 1, stats.gamma(2.0, scale=rate).cdf(y + 1)),
    ]
    for likelihood, values, wanted in cases:
        np.testing.assert_allclose(
            _probability_below(likelihood, values, f, ties), wanted, rtol=1e-6, err_msg=repr(likelihood)
        )


@pytest.mark.parametrize(
    ("likelihood", "law"),
    [
        (ngp.likelihoods.Poisson(), stats.poisson),
        (ngp.likelihoods.Bernoulli(), lambda rate: stats.bernoulli(rate / (1 + rate))),
        (ngp.likelihoods.Exponential(), lambda rate: stats.expon(scale=rate)),
    ],
)
def test_what_lies_below_a_datum_has_a_share_of_its_mass(likelihood, law):
    """The mass of a datum that counts is split at random, as `_seen` does, from its log density at the same ``f``."""
    own, f = np.array([0.0, 1.0, 1.0]), np.random.default_rng(1).normal(size=(2, 1, 3))
    law = law(np.exp(f[:, 0]))
    is_discrete = hasattr(law, "pmf")
    logs = (law.logpmf if is_discrete else law.logpdf)(own)
    moments = SimpleNamespace(f=f, mean=f[:, 0], variance=1 + 0 * f[:, 0])
    term = SimpleNamespace(log_density=logs[:, None])
    found = _seen(SimpleNamespace(size=2), likelihood, moments, term, own, np.arange(3))
    mass = (1 - np.random.default_rng([*b"ties"]).uniform(size=3)) * law.pmf(own) if is_discrete else 0
    np.testing.assert_allclose(found["below"], law.cdf(own) - mass, rtol=1e-10)


def test_the_lower_end_of_a_prior_of_the_noise_is_known():
    import numpyro
    import numpyro.distributions as dist

    own = lambda: ngp.likelihoods.Gaussian(numpyro.sample("noise", dist.Uniform(0.25, 1.0)))  # noqa: E731
    assert lower_ends(ngp.gam.model("y ~ linear(x)", DATA, own)) == {"noise": 0.25}
    assert lower_ends(ngp.gam.model("y ~ linear(x)", DATA)) == {}


def test_what_lies_below_gaussian_data_is_their_normal_probability():
    """With the noise of each draw, and what the terms leave; rows of their own."""
    rng = np.random.default_rng(1)
    points, left, own = rng.normal(size=(2, 1, 6)), rng.uniform(0.1, 0.5, (2, 6)), rng.normal(size=3)
    likelihood, few = ngp.likelihoods.Gaussian(jnp.array([0.5, 0.7])), np.array([0, 2, 5])
    found = _seen(
        SimpleNamespace(size=2),
        likelihood,
        SimpleNamespace(points=points, left=left, without=None),
        SimpleNamespace(log_density=np.zeros((2, 1, 6))),
        own,
        few,
    )
    normal = stats.norm(points[:, 0, few], np.sqrt(left[:, few] + np.array([[0.25], [0.49]])))
    np.testing.assert_allclose(found["below"], normal.cdf(own), rtol=1e-6)
    np.testing.assert_allclose(found["term"], normal.logpdf(own), rtol=1e-6)
    np.testing.assert_allclose(found["noise"], [0.5, 0.7], rtol=1e-6)


def walk_kernel(x, level, slope):
    """A line, a walk and a smooth one from the middle of the rows, each by its definition."""
    a, b = np.minimum(abs(x[:, None]), abs(x)), np.maximum(abs(x[:, None]), abs(x))
    beside = (x[:, None] >= 0) == (x >= 0)
    wander = level**2 * np.where(beside, a, 0) + slope**2 * np.where(beside, a**2 * (3 * b - a) / 6, 0)
    return np.outer(x, x) + wander


def test_each_datum_from_all_others_is_that_of_dense_algebra_at_the_noise_of_each_draw():
    """Pseudo-data at the noise of the mode gave -36 per row and 22 % in intervals of 90 %; weights are rows."""
    rng = np.random.default_rng(7)
    t, weights = np.repeat(np.arange(15.0), 2)[:25], rng.integers(1, 4, 25)
    fit = ngp.gam("y ~ trend(t)", {"t": t, "y": np.cumsum(rng.normal(size=25))}, weights=weights)
    draws = fit._draws(12)
    assert np.ptp(np.log(draws.values["noise"])) > 0.25  # that of the mode is none of these
    found = report_on_rows(draws, 0.9, np.random.default_rng(0))
    mean, variance = (value[:, np.argsort(found.places)] for value in found.at.without)
    rows = np.repeat(np.arange(25), weights)
    x, y = draws.model.rows.X[rows, 0], draws.model.rows.y[rows] - draws.model.start.constant
    covariances = []
    for (scale, constant), (level, slope), noise in zip(
        draws.scales, draws.lengths, draws.values["noise"].astype(float), strict=True
    ):
        K = walk_kernel(x, level, slope)
        centre = np.eye(len(x)) - 1 / len(x)  # functions that average to zero over the rows
        covariances.append(scale**2 * centre @ K @ centre + constant**2 + noise**2 * np.eye(len(x)))
    for n in range(25):
        at = np.flatnonzero(rows == n)[0]
        others = np.arange(len(rows)) != at
        for s, C in enumerate(covariances):
            solved = np.linalg.solve(C[np.ix_(others, others)], C[others, at])
            wanted = solved @ y[others] + draws.model.start.constant
            np.testing.assert_allclose(mean[s, n], wanted, atol=2e-4)
            np.testing.assert_allclose(variance[s, n], C[at, at] - solved @ C[others, at], rtol=1e-3)
    logs = stats.norm.logpdf(draws.model.rows.y, mean, np.sqrt(variance))
    told = to_leave_out(draws, found.at, found.densities, found.places)
    np.testing.assert_allclose(told, logs[:, found.places], rtol=1e-9)


def test_an_uncertain_noise_is_no_reason_to_advise_another_family():
    """A walk without noise: "intervals of 90 % hold 22 %", where 93 % are in them; and -36 per row for -0.97."""
    y = np.cumsum(np.random.default_rng(7).normal(size=100))
    summary = ngp.gam("y ~ trend(t)", {"t": np.arange(100.0), "y": y}).summary()
    assert not any("hold" in note for note in summary.notes)
    assert -1.1 < float(summary.facts["log density, left out"].split()[0]) < -0.85


class Shifted(dist.Distribution):
    """A law of a user's own, with a ``cdf`` and a support that needs numbers."""

    arg_constraints = {"loc": dist.constraints.real}  # noqa: RUF012

    def __init__(self, loc):
        self.loc = loc
        super().__init__(batch_shape=jnp.shape(loc), validate_args=False)

    @property
    def support(self):
        return dist.constraints.greater_than(self.loc - 20)

    def log_prob(self, value):
        return dist.Normal(self.loc, 0.5).log_prob(value)

    def cdf(self, value):
        return dist.Normal(self.loc, 0.5).cdf(value)

    def sample(self, key, sample_shape=()):
        return dist.Normal(self.loc, 0.5).sample(key, sample_shape)

    mean, variance = property(lambda self: self.loc), property(lambda self: jnp.full_like(self.loc, 0.25))


@pytest.mark.long
def test_a_law_with_a_probability_of_its_own_is_checked():
    x = np.linspace(-1, 1, 40)
    y = x + 0.5 * np.random.default_rng(1).normal(size=40)
    summary = ngp.gam("y ~ x", {"x": x, "y": y}, lambda: Shifted, num_steps=20).summary()
    assert "calibration" in summary.facts["checks of the fit"]
