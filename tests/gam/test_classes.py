"""Several classes: the bound beside integrals and the evidence, fits beside maximum likelihood, answers by class."""

import pickle

import numpy as np
import pandas
import pytest
import scipy
from numpyro import handlers
from scipy.special import log_softmax, logsumexp, softmax

import numpyro_gp as ngp
from numpyro_gp.beliefs import Conditional
from numpyro_gp.gam.answers.classes import OfClass, contrasts_at
from numpyro_gp.gam.answers.draws import Dense
from numpyro_gp.gam.model.classes import contrasts, expected_log_softmax
from numpyro_gp.gam.model.model import functions_at
from numpyro_gp.gam.search import bound as own
from numpyro_gp.guides.natural import NATURAL_MARK
from numpyro_gp.likelihoods.quadrature import tensor_hermite
from tests.precision import x64

NAMES = np.array(["ash", "elm", "oak"])


def simulated(rows, seed=0):
    """Rows of two columns and a group, and the logarithms of probabilities of their classes ``(N, 3)``."""
    rng = np.random.default_rng(seed)
    x, z, g = rng.uniform(-2, 2, rows), rng.normal(size=rows), rng.integers(0, 4, rows)
    f = np.stack([2 * np.sin(1.5 * x), 0.8 * z, 0.5 * (g - 1.5) - 0.5], axis=1)
    y = NAMES[np.argmax(f + rng.gumbel(size=f.shape), axis=1)]
    return {"x": x, "z": z, "g": np.array(list("abcd"))[g], "y": y}, log_softmax(f, axis=1)


@pytest.fixture(scope="module")
def fitted():
    table, _ = simulated(200)
    return table, ngp.gam("y ~ s(x, num_inducing=10) + linear(z) + re(g)", table, "categorical")


def normal(rng, rows, classes, size):
    R = rng.normal(size=(rows, classes, classes)) * np.sqrt(size / classes)
    return rng.integers(0, classes, rows), 2 * rng.normal(size=(rows, classes)), R @ R.transpose(0, 2, 1)


# --------------------------------------------------------------------------------------
# The bound.


def test_what_labels_are_expected_to_say_is_bounded_tightly():
    """By an integral over the two contrasts of three classes; without variance it is the log softmax itself."""
    y, mean, covariance = normal(np.random.default_rng(0), 40, 3, 0.5)
    nodes, weights = tensor_hermite(40, 2)
    H = contrasts(3)
    root = np.linalg.cholesky(H.T @ covariance @ H)
    f = mean + np.einsum("kj,nji,qi->qnk", H, root, nodes)
    exact = weights @ log_softmax(f, axis=-1)[:, np.arange(40), y]
    gap = exact - expected_log_softmax(y, mean, covariance).value
    assert gap.min() > 0
    assert gap.mean() < 0.015
    found = expected_log_softmax(y, mean, 0 * covariance)
    np.testing.assert_allclose(found.value, log_softmax(mean, axis=1)[np.arange(40), y], rtol=1e-12)


@pytest.mark.parametrize(("classes", "size"), [(3, 1.0), (3, 80.0), (5, 4.0)])
def test_it_is_below_random_draws_and_its_slopes_are_differences(classes, size):
    """Of wide functions too, as those of the prior are, where a step of Newton goes too far."""
    rng = np.random.default_rng(classes)
    y, mean, covariance = normal(rng, 6, classes, size)
    found = expected_log_softmax(y, mean, covariance)
    f = mean + np.einsum("nij,snj->sni", np.linalg.cholesky(covariance), rng.normal(size=(20_000, 6, classes)))
    drawn = f[:, np.arange(6), y] - logsumexp(f, axis=-1)
    assert (found.value < drawn.mean(axis=0) + 4 * drawn.std(axis=0) / np.sqrt(20_000)).all()
    move, step = rng.normal(size=(classes, classes)), 1e-5
    move = move + move.T
    for of, change in ((found.of_mean, (move[0], 0)), (found.of_variance, (0, move))):
        ends = [expected_log_softmax(y, mean + s * change[0], covariance + s * change[1]) for s in (-step, step)]
        number = (ends[1].value - ends[0].value) / (2 * step)
        direction = change[0] if of.ndim == 2 else change[1]
        np.testing.assert_allclose((of * direction).reshape(6, -1).sum(axis=1), number, rtol=1e-6, atol=1e-7)
    weights = np.linalg.eigvalsh(-found.of_variance)
    assert weights.min() > -1e-12


def test_slopes_of_the_bound_are_differences():
    model = ngp.gam.model("y ~ s(x, num_inducing=6) + re(g)", simulated(40)[0], "categorical", weights=np.arange(40.0))
    bound = own.Bound(own.BoundParts(model), own.Data.of(model))
    bound.fit_pseudo_data(bound.start)
    free = bound.start + 0.1 * np.arange(len(bound.start))
    found = bound(free)[1]
    for at, move in zip(found, 1e-5 * np.eye(len(free)), strict=True):
        assert at == pytest.approx((bound(free + move)[0] - bound(free - move)[0]) / 2e-5, rel=1e-5)


def test_the_bound_is_just_below_the_evidence():
    """Of constants alone: an integral over the two contrasts, whose standard deviation is three sizes of f."""
    y = np.repeat(NAMES, [9, 6, 3])
    model = ngp.gam.model("y ~ 1", {"y": y}, "categorical")
    bound = own.Bound(own.BoundParts(model), own.Data.of(model))
    loss = bound.with_settled_pseudo_data(np.zeros(0))[0]
    side = np.linspace(-8, 8, 801) * 3 * float(model.start.size) / 8 * 3
    g = np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1).reshape(-1, 2)
    logs = scipy.stats.norm(0, 3 * float(model.start.size)).logpdf(g).sum(axis=1)
    f = model.start_of_classes + g @ contrasts(3).T
    logs += log_softmax(f, axis=1) @ np.array([9, 6, 3])
    evidence = logsumexp(logs) + 2 * np.log(side[1] - side[0])
    assert evidence - 0.2 < -loss < evidence


# --------------------------------------------------------------------------------------
# Fits.


def test_constants_have_the_moments_of_fishers_information():
    """``cov g = (N H^T (diag p - p p^T) H)^-1`` of contrasts, and ``H cov g H^T`` of functions less their average."""
    counts = np.array([1500, 900, 600])
    fit = ngp.gam("y ~ 1", {"y": np.repeat(NAMES, counts)}, "categorical")
    prediction = fit.predict({"any": [0.0]})
    p, H = counts / 3000, contrasts(3)
    covariance = H @ np.linalg.inv(3000 * H.T @ (np.diag(p) - np.outer(p, p)) @ H) @ H.T
    np.testing.assert_allclose(prediction.mean[0], p, atol=5e-4)
    np.testing.assert_allclose(prediction.function_variance[0], np.diag(covariance), rtol=0.01)
    np.testing.assert_allclose(fit.terms().scale[0] ** 2, prediction.function_variance[0], rtol=1e-6)
    np.testing.assert_allclose(prediction.function_mean[0], np.log(p) - np.log(p).mean(), atol=2e-3)


def test_slopes_are_those_of_maximum_likelihood():
    rng, rows = np.random.default_rng(3), 3000
    z = rng.normal(size=rows)
    y = np.argmax(np.outer(z, [1.0, 0.2, -0.6]) + np.array([0.3, 0.0, -0.3]) + rng.gumbel(size=(rows, 3)), axis=1)
    A = np.stack([np.ones(rows), z], axis=1)

    def loss(flat):
        f = A @ np.concatenate([np.zeros((2, 1)), flat.reshape(2, 2)], axis=1)
        return -log_softmax(f, axis=1)[np.arange(rows), y].sum()

    best = np.concatenate([[0.0], scipy.optimize.minimize(loss, np.zeros(4)).x.reshape(2, 2)[1]])
    table = ngp.gam("y ~ linear(z)", {"z": z, "y": NAMES[y]}, "categorical").coefficients()
    for name, slope in zip(NAMES, best - best.mean(), strict=True):
        row = table[f"{name}: linear(z)"]
        assert row.estimate == pytest.approx(slope, abs=0.2 * row.sd)
        assert 0.02 < row.sd < 0.05
    assert [row.term for row in table] == [f"{name}: {term}" for name in NAMES for term in ("intercept", "linear(z)")]


@pytest.mark.long
def test_probabilities_are_recovered_and_add_up_to_one(fitted):
    table, truth = simulated(2000, seed=7)
    prediction = fitted[1].predict(table)
    np.testing.assert_allclose(prediction.mean.sum(axis=1), 1, rtol=1e-12)
    shares = np.mean(fitted[0]["y"][:, None] == NAMES, axis=0)
    assert np.abs(prediction.mean - np.exp(truth)).mean() < 0.4 * np.abs(shares - np.exp(truth)).mean()
    best = truth[np.arange(2000), np.searchsorted(NAMES, table["y"])]
    found = prediction.log_density(table["y"])
    assert best.mean() - 0.06 < found.mean() < best.mean()
    np.testing.assert_allclose(found, np.log(prediction.mean)[np.arange(2000), np.searchsorted(NAMES, table["y"])])
    low, high = fitted[1].interval(table, 0.9)
    assert (low <= high).all()
    assert 0.8 < np.mean((low < np.exp(truth)) & (np.exp(truth) < high)) < 0.99
    assert prediction.classes == tuple(NAMES)
    assert prediction.probabilities is prediction.mean


def test_probabilities_are_averages_over_draws(fitted):
    """By random draws from the same contrasts."""
    table, fit = fitted
    few = {name: column[:5] for name, column in table.items()}
    rng, draws = np.random.default_rng(0), fit._draws()
    parts = []
    for mean, covariance in contrasts_at(draws, fit.model.layout.encode(few)):
        g = mean + np.einsum("nij,snj->sni", np.linalg.cholesky(covariance), rng.normal(size=(2000, *mean.shape)))
        parts.append(softmax(g @ contrasts(3).T, axis=-1).mean(axis=0))
    np.testing.assert_allclose(fit.predict(few).mean, np.mean(parts, axis=0), atol=2e-3)


@pytest.mark.parametrize("kind", ["names", "numbers", "floats", "ordered"])
def test_classes_are_text_whole_numbers_or_categories_in_any_order(kind):
    """Other names in another order, where columns move with them: nothing but names changes."""
    table, _ = simulated(80)
    codes = np.searchsorted(NAMES, table["y"])
    first = ngp.gam("y ~ linear(z)", table, "categorical")
    y, order, classes = {
        "names": (np.array(["yew", "fir", "box"])[codes], [2, 1, 0], ("box", "fir", "yew")),
        "numbers": (codes + 7, [0, 1, 2], (7, 8, 9)),
        "floats": (codes + 7.0, [0, 1, 2], (7, 8, 9)),
        "ordered": (
            pandas.Series(pandas.Categorical(table["y"], ["oak", "ash", "elm", "fir"], ordered=True)),
            [2, 0, 1],
            ("oak", "ash", "elm"),
        ),
    }[kind]
    second = ngp.gam("y ~ linear(z)", table | {"y": y}, "categorical")
    wanted, prediction = first.predict(table), second.predict(table)
    assert prediction.classes == classes
    np.testing.assert_allclose(second.result.losses[-1], first.result.losses[-1], rtol=1e-5)
    np.testing.assert_allclose(prediction.mean, wanted.mean[:, order], atol=3e-3)
    np.testing.assert_allclose(prediction.function_variance, wanted.function_variance[:, order], rtol=1e-2)
    np.testing.assert_allclose(prediction.log_density(y), wanted.log_density(table["y"]), atol=0.03)


def test_a_row_of_weight_two_is_two_rows():
    table, _ = simulated(60)
    twice = {name: np.concatenate([column, column]) for name, column in table.items()}
    heavy = ngp.gam("y ~ linear(x) + linear(z)", table, "categorical", weights=np.full(60, 2.0))
    both = ngp.gam("y ~ linear(x) + linear(z)", twice, "categorical")
    np.testing.assert_allclose(heavy.predict(table).mean, both.predict(table).mean, atol=1e-6)


def test_single_precision_changes_no_digit_that_is_shown():
    table, _ = simulated(80)
    means = []
    for is_double in (False, True):
        with x64(is_double):
            means.append(ngp.gam("y ~ s(x, num_inducing=8)", table, "categorical").predict(table).mean)
    np.testing.assert_allclose(means[0], means[1], atol=1e-5)


# --------------------------------------------------------------------------------------
# Answers.


@pytest.mark.long
def test_terms_of_classes_add_up_and_average_to_zero_over_classes(fitted):
    table, fit = fitted
    moments, prediction, effects = fit.terms(table), fit.predict(table), fit.effects(grid=7)
    terms = ["s(x)", "linear(z)", "re(g)"]
    assert list(effects) == [f"{name}: {term}" for name in NAMES for term in terms]
    assert moments.names == tuple(f"{name}: {term}" for name in NAMES for term in (*terms, "constant"))
    by_class = moments.mean.reshape(-1, 3, 4)
    np.testing.assert_allclose(by_class.sum(axis=2), prediction.function_mean, atol=1e-10)
    np.testing.assert_allclose(by_class.sum(axis=1), 0, atol=1e-10)
    for term in terms:
        assert effects[f"elm: {term}"].name == f"elm: {term}"
        np.testing.assert_allclose(sum(effects[f"{name}: {term}"].mean for name in NAMES), 0, atol=1e-10)
    rows = [row.term for row in fit.coefficients()]
    assert rows.count("sd of re(g)") == rows.count("lengthscale of s(x)") == 1
    assert rows.count("oak: re(g)") == 4
    assert fit.coefficients()["oak: z"] == fit.coefficients()["oak: linear(z)"]  # as a formula may have it


def test_a_class_has_the_covariance_of_its_contrast():
    """``(e_k - 1/3) / sqrt(2/3)`` of three classes: of the prior it is one, of any other what the dense product says."""
    rng, part = np.random.default_rng(0), (np.eye(3)[1] - 1 / 3) / np.sqrt(2 / 3)
    mean, half, whole = rng.normal(size=12), rng.normal(size=(12, 12)), np.kron(part, np.eye(4))
    prior, posterior = OfClass([Dense(mean, np.eye(12)), Dense(mean, half)], part)
    np.testing.assert_allclose(prior.half.T @ prior.half, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(
        posterior.half.T @ posterior.half, whole @ half.T @ half @ whole.T, rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(
        posterior.mean, (mean[4:8] - mean.reshape(3, 4).mean(axis=0)) / np.sqrt(2 / 3), rtol=1e-12
    )
    assert OfClass([Dense.point(mean)], part)[0].is_point


@pytest.mark.long
def test_summaries_and_figures_are_by_class(fitted, tmp_path):
    fit = fitted[1]
    summary = fit.summary(num_draws=10)
    assert [row.term for row in summary.rows][:2] == ["ash: s(x)", "ash: linear(z)"]
    assert len(summary.rows) == 9
    counts = ", ".join(
        f"{name} {count}" for name, count in zip(*np.unique(fitted[0]["y"], return_counts=True), strict=True)
    )
    assert summary.facts["classes"] == counts
    assert 0.1 < summary.facts["deviance explained"] < 0.6
    left_out, held = float(summary.facts["log density, left out"].split()[0]), simulated(2000, seed=7)[0]
    assert left_out == pytest.approx(fit.predict(held).log_density(held["y"]).mean(), abs=0.12)
    assert "checks of the fit" not in summary.facts
    fit.plot(grid=5, num_draws=5, residuals=False, simultaneous=False, path=tmp_path / "classes.png")
    assert (tmp_path / "classes.png").stat().st_size > 1000


def test_rows_that_miss_a_value_are_nan_and_new_levels_have_the_prior(fitted):
    fit = fitted[1]
    with pytest.warns(UserWarning, match="1 of 3"):
        prediction = fit.predict({"x": [0.0, np.nan, 0.0], "z": [0.0, 0.0, 0.0], "g": ["a", "a", "new"]})
    assert np.isnan(prediction.mean).any(axis=1).tolist() == [False, True, False]
    assert (prediction.function_variance[2] > prediction.function_variance[0]).all()
    drawn = prediction.sample(4000)
    assert drawn.shape == (4000, 3)
    assert set(drawn[:, 1]) == {None}
    shares = [np.mean(drawn[:, 0] == name) for name in NAMES]
    np.testing.assert_allclose(shares, prediction.mean[0], atol=0.04)
    assert "rows=3" in repr(prediction)
    np.testing.assert_allclose(prediction.variance[0], prediction.mean[0] * (1 - prediction.mean[0]))


def test_a_fit_comes_back_from_a_file_and_from_a_pickle(fitted, tmp_path):
    table, fit = fitted
    fit.save(tmp_path / "classes.npz")
    wanted = fit.predict(table).mean
    for again in (ngp.gam.load(tmp_path / "classes.npz"), pickle.loads(pickle.dumps(fit))):
        assert again.model.classes == tuple(NAMES)
        np.testing.assert_array_equal(again.predict(table).mean, wanted)


@pytest.mark.long
def test_the_model_has_the_moments_of_the_fit():
    """The process of NumPyro at the pseudo-data of a fit, beside its contrasts in NumPy."""
    table, _ = simulated(60)
    fit = ngp.gam("y ~ s(x, num_inducing=6)", table, "categorical")
    model, draws = fit.model, fit._draws(1)
    X, params = model.arguments[0][:5], fit._in_double
    belief = Conditional(*(params[f"f{NATURAL_MARK}{name}"] for name in ("shift", "precision")))
    values = {name: value[0] for name, value in draws.values.items()} | {"f": belief}
    with handlers.seed(rng_seed=0), handlers.substitute(data=values):
        f = functions_at(model.process(), X, model.start_of_classes)
    H, (mean, covariance) = contrasts(3), next(contrasts_at(draws, np.asarray(X)))
    np.testing.assert_allclose(f.mean @ H, mean, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(H.T @ f.covariance_matrix @ H, covariance, rtol=1e-3, atol=1e-4)


@pytest.mark.long
def test_chains_agree_with_the_fit():
    table, _ = simulated(60)
    fit = ngp.gam("y ~ linear(z)", table, "categorical")
    chain = ngp.gam("y ~ linear(z)", table, "categorical", engine="nuts", num_steps=100, progress=False)
    sampled, found = chain.predict(table), fit.predict(table)
    np.testing.assert_allclose(sampled.mean, found.mean, atol=0.03)
    spread = sampled.function_variance / found.function_variance
    assert 0.7 < spread.mean() < 1.4


# --------------------------------------------------------------------------------------
# What is refused.


def test_responses_that_are_no_classes_are_refused():
    table, _ = simulated(60)
    cases = [
        (np.where(table["x"] > 0, "yes", "no"), 'three classes or more, but got two, .*"bernoulli"'),
        (table["x"] > 0, 'three classes or more, but got two, .*"bernoulli"'),
        (np.full(60, "one"), "one that varies"),
        (table["x"], 'names of at most 50 classes, but got 60 numbers, .*"gaussian"'),
        (np.arange(60), 'names of at most 50 classes, but got 60 numbers, .*"poisson"'),
        (np.arange(60) % 3 + 0.5, "names of at most 50 classes, but got 3 numbers, 0.5 to 2.5"),
    ]
    for y, words in cases:
        with pytest.raises(ValueError, match=words):
            ngp.gam("y ~ linear(z)", table | {"y": y}, "categorical")
    for name in ("multinomial", "softmax"):
        with pytest.raises(ValueError, match="Write 'categorical'"):
            ngp.gam("y ~ linear(z)", table, name)


def test_terms_and_screenings_that_classes_do_not_have_are_refused():
    table, _ = simulated(60)
    with pytest.raises(ValueError, match=r"offset.*changes no probability"):
        ngp.gam("y ~ linear(z) + offset(x)", table, "categorical")
    with pytest.raises(ValueError, match=r"got trend\(x\). Write s\(...\)"):
        ngp.gam("y ~ trend(x)", table, "categorical")
    with pytest.raises(ValueError, match=r"1000 inducing inputs .* num_inducing=12"):
        ngp.gam("y ~ s(x, num_inducing=50)", table | {"y": np.arange(60) % 20}, "categorical")
    with pytest.raises(ValueError, match='"bernoulli"'):
        ngp.gam.screen("y ~ s(x) + linear(z)", table, "categorical")


def test_answers_that_classes_do_not_have_are_refused_with_what_to_do(fitted):
    table, fit = fitted
    cases = [
        (lambda: fit.quantiles(table), "fit.interval"),
        (lambda: fit.residuals(), "probability of the class"),
        (lambda: fit.forecast(3), "rows of your own"),
        (lambda: fit.intercept, "fit.coefficients"),
        (lambda: fit.summary(check=True), "log_density"),
        (lambda: fit.plot(scale="response"), 'scale="link"'),
        (lambda: fit.predictor(), "fit.predict"),
    ]
    for call, words in cases:
        with pytest.raises(ValueError, match=words):
            call()
    prediction = fit.predict({name: column[:2] for name, column in table.items()})
    with pytest.raises(ValueError, match=r"'fir'\. Give classes"):
        prediction.log_density(["ash", "fir"])
    with pytest.raises(ValueError, match=r"shape \(2,\)"):
        prediction.log_density(["ash"])
    with pytest.raises(ValueError, match="1 of 2 missing"):
        prediction.log_density(["ash", None])
