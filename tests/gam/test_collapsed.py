"""The bound with the terms integrated out: against a dense formula, its gradient, and the fit that other steps find."""

import dataclasses
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.optimize import minimize

import numpyro_gp as ngp
from examples import gam_counts
from examples.tools.datasets import load, split_mask
from numpyro_gp.beliefs import AdditiveBasis
from numpyro_gp.gam.search import bound as own
from numpyro_gp.gam.search.bound_formulas import inverse_of
from numpyro_gp.gam.search.engines import by_quasi_newton
from numpyro_gp.gam.search.modes import collapsed
from tests.gam.known import kernel_of_term
from tests.precision import x64

RNG = np.random.default_rng(3)
X = RNG.uniform(size=30)
DATA = {"x": X, "z": RNG.normal(size=30), "y": np.sin(5 * X) + 0.3 * RNG.normal(size=30), "e": np.full(30, 2.0)}
DATA["w"] = 1 + 2 * DATA["z"] + 0.3 * RNG.normal(size=30)
DATA |= {"g": np.array(list("abc"))[np.arange(30) % 3], "k": np.arange(30) % 5}
DATA["n"] = RNG.poisson(2 * np.exp(np.sin(5 * X)))


def bound_of(formula, family="gaussian", jitter=None, **options):
    model = dataclasses.replace(ngp.gam.model(formula, DATA, family, **options), jitter=jitter)
    return model, own.Bound(own.BoundParts(model), own.Data.of(model))


@pytest.fixture(scope="module")
def gaussian():
    # So small a jitter hides that terms without a lengthscale have none here.
    return bound_of("y ~ s(x, num_inducing=6) + linear(z)", jitter=1e-10, weights=np.where(np.arange(30) % 3, 1.0, 2.0))


def hours(split=4):
    """Rentals of a split of the bicycle hours by hour and kind of day: rates of 1 to 800."""
    X, y, splits = load("bikehours", Path(gam_counts.__file__).parent / "data")
    rows = ~split_mask(splits, split)
    table = {name: X[rows, gam_counts.NAMES.index(name)] for name in ("hour", "workingday", "temperature")}
    return table | {"y": y[rows]}


def test_site_steps_are_halved_until_the_bound_rises():
    """Whole steps from the prior go to 30 000 nats and back to 150 000, the halved ones only down."""
    model = ngp.gam.model("y ~ s(hour) + factor(workingday)", hours(), "negative_binomial")
    whole, halved = (own.Bound(own.BoundParts(model), own.Data.of(model)) for _ in range(2))
    losses = []
    for _ in range(3):
        losses.append(whole(whole.start)[0])
        whole.pseudo_data = whole.last.next_pseudo_data
    assert losses[2] > 2 * losses[1]
    before, gains = halved(halved.start)[0], []
    for _ in range(8):
        gains.append(halved.step_pseudo_data(halved.start))
        assert gains[-1] >= 0
        assert halved(halved.start)[0] == pytest.approx(before - gains[-1])
        before = halved(halved.start)[0]
    assert sum(gains) > 0.5 * losses[0]
    assert min(gains[:4]) > own.ENOUGH  # where a whole step overshoots, a part of it is taken
    halved.fit_pseudo_data(halved.start)
    assert halved.step_pseudo_data(halved.start) < own.ENOUGH


def test_gaussian_data_have_the_dense_collapsed_bound(gaussian):
    """``log N(y; level, Q + D) - tr(D^-1 (K - Q)) / 2`` with ``D = noise^2 / weights``, and the priors."""
    model, bound = gaussian
    free = bound.start + 0.1
    assert list(bound.parts.vector_layout.shapes) == ["f_lengthscale", "f_scale", "noise"]
    length, scale, noise = np.exp(free[:1]), np.exp(free[1:3]), np.exp(free[3])  # sorted by name
    kernels = {
        part.name: kernel_of_term(model, part, jnp.asarray(scale[at] ** 2), [jnp.asarray(length[0])])
        for at, part in enumerate(model.layout.read_terms)
    }
    kernels["constant"] = ngp.kernels.Constant((3 * model.start.size) ** 2)
    rows, y, weights = map(np.asarray, model.arguments)
    basis = AdditiveBasis.build(kernels, model.inducing(rows.dtype), model.jitter)
    A = np.asarray(basis.features(jnp.asarray(rows)))
    left = np.asarray(basis.diagonal(jnp.asarray(rows))) - (A**2).sum(0)
    D = noise**2 / weights
    away = y - model.start.constant
    covariance = A.T @ A + np.diag(D)
    dense = -0.5 * (away @ np.linalg.solve(covariance, away) + np.linalg.slogdet(2 * np.pi * covariance)[1])
    dense -= 0.5 * np.sum(left / D)
    # A datum of weight w counts w times: w log N(y; f, s^2) is log N(y; f, s^2 / w) and what does not depend on f.
    dense += 0.5 * np.sum(np.log(2 * np.pi * D) - weights * np.log(2 * np.pi * noise**2))
    size = model.start.size
    priors = dist.HalfNormal(size).log_prob(scale).sum() + np.log(scale).sum()
    priors += dist.LogNormal(np.log(2.0), 0.8).log_prob(length[0]) + np.log(length[0])
    priors += dist.LogNormal(np.log(model.start.noise), 1.0).log_prob(noise) + np.log(noise)
    np.testing.assert_allclose(bound(free)[0], -(dense + float(priors)), rtol=1e-8)


GRADIENTS = [
    ("y ~ s(x, num_inducing=5) + te(x, z, num_inducing=6) + re(g)", "gaussian", "empirical"),
    ("n ~ s(x, num_inducing=6) + offset(log(e))", "poisson", "empirical"),
    (
        "n ~ s(k) + s(x, by=g, num_inducing=4) + ti(x, z, num_inducing=6) + factor(g) + linear(z)",
        "poisson",
        "empirical",
    ),
    ("y ~ s(x, num_inducing=4) + s(x, by=g, num_inducing=4) + re(g, by=z)", "gaussian", "empirical"),
    ("y ~ s(x, cyclic=True, num_inducing=5) + te(x, z, num_inducing=6) + linear(z)", "gaussian", "uniform"),
    ("y ~ linear(z) + factor(g)", "gaussian", "gaussian"),
]


@pytest.mark.parametrize(("formula", "family", "measure"), GRADIENTS)
def test_the_gradient_is_that_of_the_bound(formula, family, measure):
    """By central differences, at sites that stay: 1e-5 rejects derivatives through sites of other marginals."""
    _, bound = bound_of(formula, family, measure=measure)
    bound.fit_pseudo_data(bound.start)
    free, step = bound.start + 0.2, 1e-5
    gradient = bound(free)[1]
    moves = step * np.eye(len(free))
    found = [(bound(free + move)[0] - bound(free - move)[0]) / (2 * step) for move in moves]
    np.testing.assert_allclose(gradient, found, rtol=1e-5, atol=1e-5)


def test_the_spread_is_the_inverse_curvature(gaussian):
    """By central differences of central differences of the bound alone: one side alone, at 1e-4, is right to 1e-3."""
    _, bound = gaussian
    bound.losses.clear()
    bound(bound.start)
    free = bound.find_mode(bound.start, 200)[0]
    root, step = bound.covariance_root(free), 1e-3
    moves = step * np.eye(len(free))
    at = lambda move: bound(free + move)[0]  # noqa: E731
    hessian = [[at(a + b) - at(a - b) - at(b - a) + at(-a - b) for a in moves] for b in moves]
    hessian = np.array(hessian) / (4 * step**2)
    assert np.linalg.eigvalsh(hessian)[0] > own.WIDEST**-2  # nothing is cut
    np.testing.assert_allclose(root @ root.T @ hessian, np.eye(len(free)), atol=2e-2)


def test_a_fit_that_ends_early_says_so():
    model = ngp.gam.model("w ~ linear(z)", DATA)
    assert not by_quasi_newton(model, 200).notes
    assert "the bound still rose after 4 steps" in by_quasi_newton(model, 3).notes[0]  # the first line search ends


@pytest.mark.long
def test_rows_that_leave_more_doubt_reach_the_optimum_of_scipy():
    """Outliers of Student's t have negative weights: cut at zero the belief was too sure, and a step led downhill."""
    y, weights = np.array([0.0, 0.1, -0.1, 0.7, 0.75, -0.65, -0.7]), np.array([1.0, 1, 1, 2, 2, 2, 2])
    model = ngp.gam.model("y ~ 1", {"y": y}, lambda: ngp.likelihoods.StudentT(2.0, 0.2), weights=weights)
    start, z = model.start, np.linspace(-9, 9, 801)
    prior = 3 * start.size
    mass = stats.norm.pdf(z) * (z[1] - z[0])

    def loss(free):
        mean, sd = free[0], np.exp(free[1])
        expected = stats.t.logpdf(y[:, None], 2, start.constant + mean + sd * z, 0.2) @ mass
        ratio, far = (sd / prior) ** 2, (mean / prior) ** 2
        return 0.5 * (ratio + far - 1 - np.log(ratio)) - weights @ expected

    best = min((minimize(loss, [mean, -2.0], method="L-BFGS-B") for mean in (-0.5, 0.0, 0.5)), key=lambda one: one.fun)
    bound = own.Bound(own.BoundParts(model), own.Data.of(model))
    bound.fit_pseudo_data(bound.start)
    assert abs(bound.with_settled_pseudo_data(bound.start)[0] - best.fun) < 2e-3
    mean, variance = bound.last.marginals
    assert abs(mean[0] - start.constant - best.x[0]) < 0.01 * np.exp(best.x[1])
    np.testing.assert_allclose(np.sqrt(variance), np.exp(best.x[1]), rtol=0.01)
    assert bound.pseudo_data.weight.min() < -1


def test_what_is_kept_of_rows_never_knows_less_than_the_prior():
    """Of outliers beside a curve: a belief at other hyper-parameters would have no covariance, here by 0.02."""
    rng, x = np.random.default_rng(9), np.linspace(0, 1, 12)
    y = np.sin(6 * x) + 0.05 * rng.normal(size=12)
    y[rng.integers(0, 12, 3)] += rng.choice([-3, 3], 3)
    kept = collapsed(ngp.gam.model("y ~ s(x)", {"x": x, "y": y}, "student_t"), 200)
    assert np.linalg.eigvalsh(kept.precision)[0] > -1e-9


@pytest.mark.parametrize("is_double", [False, pytest.param(True, marks=pytest.mark.long)])
def test_data_on_a_line_have_the_least_noise(is_double):
    """Without a floor the noise fell to 1e-51, in float32 zero, and the summary divided by it."""
    x = np.linspace(0, 1, 20)
    with x64(is_double):
        fit = ngp.gam("y ~ x", {"x": x, "y": 1e4 * x + 1e3})
        prediction, summary = fit.predict({"x": x}), fit.summary()
        noise = np.median(fit._draws().values["noise"])
    spread = 1e4 * np.std(x)
    np.testing.assert_allclose(prediction.mean, 1e4 * x + 1e3, atol=1e-5 * spread)
    assert np.isfinite(prediction.variance).all()
    assert 1e-8 * spread < noise < 1e-5 * spread
    assert any("the function passes through all" in note for note in summary.notes)
    # What rounding leaves of these data is no calibration, and no log density.
    assert not any("intervals of 90 %" in note or "left out" in note for note in summary.notes)
    assert "log density, left out" not in summary.facts


def test_a_step_that_goes_too_far_is_taken_back():
    """A flat direction, by a root of a thousand, is not followed to where scales would be infinite.

    And a matrix that is no number is told as one without a factor, from which a search comes back.
    """
    _, plain = bound_of("y ~ s(x, num_inducing=6)")
    mode, _ = plain.find_mode(plain.start, 200)
    found, _ = plain.find_mode(mode + 0.05, 400, 1e3 * np.eye(len(mode)))
    assert np.isfinite(plain.losses).all()
    np.testing.assert_allclose(found, mode, atol=0.05)
    for bad in (np.full((3, 3), np.nan), np.diag([1.0, np.nan, 1.0]), np.diag([1.0, -1.0])):
        with pytest.raises(np.linalg.LinAlgError):
            inverse_of(bad)
