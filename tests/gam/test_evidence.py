"""The search for the mode of a series: evidence by SciPy, its gradient, weighted draws, and exact predictions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import signal, stats

import numpyro_gp as ngp
from numpyro_gp.gam.model import column_kernels as time_kernels
from numpyro_gp.gam.model.term_kernels import count_lengthscales
from numpyro_gp.gam.search import series_evidence as own
from numpyro_gp.gam.search.bound import BoundParts, Data
from tests.compiling import counted
from tests.gam.known import kernel_of_term

RNG = np.random.default_rng(5)
T = np.delete(np.arange(48.0), [7, 8, 21])  # some months are missing
Y = 10 + 0.1 * T + np.cumsum(0.2 * RNG.normal(size=45)) + 2 * np.cos(np.pi * T / 6) + 0.3 * RNG.normal(size=45)
FORMULA = "y ~ trend(t) + season(t, period=12) + cycle(t)"
DATA = {"t": T, "y": Y, "g": np.array(list("abc"))[np.arange(45) % 3], "w": RNG.uniform(0.5, 2.0, 45)}


def covariance(model, scales, lengths, X):
    """Of rows, the sum of all kernels of the library; lengthscales by term."""

    @jax.jit
    def whole(scales, lengths, X):
        parts = zip(model.layout.read_terms, scales, lengths, strict=False)
        return sum(kernel_of_term(model, part, s**2, list(own)).matrix(X) for part, s, own in parts) + scales[-1] ** 2

    return np.asarray(whole(list(map(jnp.asarray, scales)), [list(map(jnp.asarray, own)) for own in lengths], X))


@pytest.mark.long
def test_the_loss_is_the_evidence_of_the_rows_and_the_density_of_the_prior():
    """With a random effect beside, whose rows repeat, and weights: of a row of weight w the density to the power w."""
    model = ngp.gam.model(FORMULA + " + re(g)", DATA, weights="w")
    parts = BoundParts(model)
    evidence = own.SeriesEvidence(parts, own.merged(Data.of(model)))
    free = evidence.start + 0.3 * RNG.normal(size=len(evidence.start))
    values = parts.evaluator(free).values
    w = DATA["w"]
    C = covariance(model, values.scales, values.lengths, model.rows.X) + np.diag(values.noise**2 / w)
    wanted = stats.multivariate_normal(np.full(45, model.start.constant), C).logpdf(Y)
    wanted -= 0.5 * np.sum((w - 1) * np.log(2 * np.pi * values.noise**2) + np.log(w))
    loss, gradient = evidence(free)
    np.testing.assert_allclose(loss, -wanted - values.log_density, rtol=1e-7)
    step = 1e-5 * np.eye(len(free))
    moved = [(evidence(free + one)[0] - evidence(free - one)[0]) / 2e-5 for one in step]
    np.testing.assert_allclose(gradient, moved, rtol=1e-4, atol=1e-4)
    assert evidence.value(np.full(len(free), 200.0)) == np.inf


@pytest.fixture(scope="module")
def fit():
    with counted() as programs:
        found = ngp.gam(FORMULA, DATA)
    assert programs.count == 0
    return found


@pytest.mark.long
def test_a_forecast_is_that_of_the_rows_themselves(fit):
    """With an inducing input for each row a draw of the hyper-parameters forecasts as the dense Gaussian process does."""
    model, new = fit.model, np.array([60.0, 48.0, 7.0])
    draws, X = fit._draws(2), model.layout.encode({"t": new})
    noise = float(np.exp(fit.result.params["auto_loc"][-1]))
    every = np.concatenate([model.rows.X, X])
    for scales, lengths, posterior in zip(draws.scales, draws.lengths, draws.term_posteriors):
        C = covariance(model, scales, lengths.reshape(-1, 2), every)
        solved = np.linalg.solve(C[:45, :45] + noise**2 * np.eye(45), C[:45, 45:])
        mean = model.start.constant + solved.T @ (Y - model.start.constant)
        variance = np.diagonal(C[45:, 45:] - C[45:, :45] @ solved)
        seen = fit._term_features.at(X)(scales, lengths)
        A = seen.A
        np.testing.assert_allclose(model.start.constant + posterior.mean @ A, mean, atol=0.02)
        found = seen.prior.sum(axis=0) - np.sum(A**2, axis=0) + posterior.row_variances(A)
        np.testing.assert_allclose(found, variance, rtol=0.03)


def test_a_series_without_noise_is_fitted():
    """Of a line, and of rows that are there twice: the covariance of the rows had no factor, and the fit ended in one."""
    line = {"t": np.arange(40.0), "y": 2 * np.arange(40.0) + 1}
    for rows in (line, {name: np.repeat(column[:20], 2) for name, column in line.items()}):
        found = ngp.gam("y ~ trend(t)", rows).predict({"t": [45.0]})
        np.testing.assert_allclose(found.mean, 91.0, atol=0.5)
        assert found.variance[0] < 4.0


def test_weighted_draws_have_the_moments_of_a_skew_posterior():
    """A plateau of the prior below, and a cliff above: the curvature at the mode says nothing of the cliff."""
    evidence = object.__new__(own.SeriesEvidence)
    x = np.linspace(-12, 12, 20001)
    for loss in (lambda z: 0.5 * (z - 0.3) ** 2 / 0.49, lambda z: z**2 / 8 + np.exp(2 * np.minimum(z, 50.0))):
        object.__setattr__(evidence, "value", lambda free, loss=loss: float(loss(free[0]) + 0.5 * free[1] ** 2))
        density = np.exp(-loss(x))
        density /= density.sum()
        wanted = density @ x, np.sqrt(density @ x**2 - (density @ x) ** 2)
        mode = np.array([x[np.argmax(density)], 0.0])
        mean, root = own.weighted(evidence, mode, np.diag([1.0, 1.0]))
        np.testing.assert_allclose(mean[0], wanted[0], atol=0.3)
        np.testing.assert_allclose(root[0, 0], wanted[1], rtol=0.25)


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_a_walk_with_a_row_more_than_the_evidence_is_asked_of_forecasts_the_same(noise, monkeypatch):
    """The bound took a walk of 1001 rows for noise around a smooth curve: a standard deviation of 90 for 7 in 40 steps."""
    monkeypatch.setattr(own, "MOST_ROWS", 100)
    monkeypatch.setattr(time_kernels, "OF_TREND", 50)
    rng = np.random.default_rng(0)
    y = np.cumsum(rng.normal(size=161)) + noise * rng.normal(size=161)
    spreads = []
    for first, count in ((0, 100), (0, 101), (0, 161), (61, 100)):
        fit = ngp.gam("y ~ trend(t)", {"t": np.arange(float(count)), "y": y[first : first + count]})
        spreads.append(np.sqrt(fit.predict({"t": count - 1 + np.array([1.0, 10.0, 40.0])}).variance))
        assert any("of the last 100 of" in note for note in fit.notes) == (count > 100)
    np.testing.assert_allclose(spreads[1], spreads[0], rtol=0.15)
    np.testing.assert_allclose(spreads[2], spreads[3], rtol=0.25)
    steady = (1 + np.sqrt(1 + 4 * noise**2)) / 2 - 1 + noise**2  # of a local level, by its Riccati equation
    np.testing.assert_allclose(spreads[2][:1], np.sqrt(steady + 1), rtol=0.15)


def test_the_bound_of_many_rows_is_asked_where_inducing_inputs_follow_all(monkeypatch):
    """From the mode of the last rows: a panel of few times has an inducing input for each."""
    monkeypatch.setattr(own, "MOST_ROWS", 60)
    rng = np.random.default_rng(0)
    t, g = np.repeat(np.arange(30.0), 4), np.tile(np.arange(4), 30)
    y = np.cumsum(rng.normal(size=30)).repeat(4) + g + 0.3 * rng.normal(size=120)
    fit = ngp.gam("y ~ trend(t) + re(g)", {"t": t, "g": g, "y": y})
    assert fit.notes == ()
    monkeypatch.setattr(own, "MOST_ROWS", 1000)
    exact = ngp.gam("y ~ trend(t) + re(g)", {"t": t, "g": g, "y": y})
    new = {"t": [30.0, 35.0], "g": [1, 2]}
    one, other = fit.predict(new), exact.predict(new)
    np.testing.assert_allclose(one.mean, other.mean, atol=0.1)
    np.testing.assert_allclose(one.variance, other.variance, rtol=0.3)


@pytest.mark.long
def test_a_steady_series_of_many_rows_has_few_inducing_inputs_and_its_own_evidence(monkeypatch):
    """500 of its trend took four times as long; the bound stays below the evidence of all rows, by less than a nat."""
    monkeypatch.setattr(own, "MOST_ROWS", 500)
    t = np.arange(550.0)
    y = np.sin(2 * np.pi * t / 24) + 0.3 * np.random.default_rng(0).normal(size=550)
    model = ngp.gam.model("y ~ trend(t) + cycle(t)", {"t": t, "y": y})
    found = own.of_series(model, 2000)
    assert found.notes == ()
    assert sum(found.model.sizes) < 0.6 * sum(model.sizes)
    evidence = own.SeriesEvidence(BoundParts(model), own.merged(Data.of(model)))
    bound = own.Bound(BoundParts(found.model), Data.of(model))
    gap = bound.value(found.location) - evidence.value(found.location)
    assert 0 < gap < own.TIGHT


def test_repeated_rows_and_weights_are_one_fit():
    """No factor of the covariance of rows of which some are there up to four times."""
    rng = np.random.default_rng(1)
    t, weights = np.arange(40.0), rng.integers(1, 5, 40)
    y = np.cumsum(0.15 * rng.normal(size=40)) + 0.8 * np.sin(np.pi * t / 6) + 0.3 * rng.normal(size=40)
    rows = rng.permutation(np.repeat(np.arange(40), weights))
    new, formula = {"t": [20.5, 41.0]}, "y ~ trend(t) + season(t, period=12)"
    one = ngp.gam(formula, {"t": t, "y": y}, weights=weights).predict(new)
    other = ngp.gam(formula, {"t": t[rows], "y": y[rows]}).predict(new)
    np.testing.assert_allclose(one.mean, other.mean, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(one.variance, other.variance, rtol=1e-2)


@pytest.mark.long
@pytest.mark.parametrize("measure", ["empirical", "uniform"])
def test_kernels_at_rows_are_lines_in_their_numbers(measure):
    """Matrices are those of the library, and slopes of a sum of products, of no symmetric matrix, those by differences."""
    model, rng = ngp.gam.model(FORMULA + " + re(g) + s(w)", DATA, measure=measure), np.random.default_rng(2)
    X, G, lengths, step = model.rows.X, rng.normal(size=(45, 45)), np.array([0.7, 1.4]), 1e-6
    for part in model.layout.read_terms:
        kernel, count = own.at_rows(model, part, X), count_lengthscales(part)
        numbers = kernel.numbers(lengths)
        dense = kernel_of_term(model, part, jnp.ones(()), list(map(jnp.asarray, lengths[:count]))).matrix(X)
        np.testing.assert_allclose(kernel.matrix(numbers.value), dense, atol=1e-7)
        np.testing.assert_allclose(kernel.slopes(G) @ numbers.value, np.vdot(G, dense), rtol=1e-6, atol=1e-6)
        for move, slopes in zip(step * np.eye(2), numbers.slopes):
            more, less = (np.vdot(G, kernel.matrix(kernel.numbers(lengths + s * move).value)) for s in (1, -1))
            np.testing.assert_allclose(kernel.slopes(G) @ slopes, (more - less) / (2 * step), rtol=1e-5, atol=1e-5)


def test_rows_of_even_times_have_as_many_gaps_as_rows():
    """Rounding of encoded times makes no gaps of its own: of 300 months 300, where the rows had 90 000 gaps."""
    t = np.arange(300.0) + 1e5
    model = ngp.gam.model("y ~ season(t, period=12)", {"t": t, "y": np.cos(t)})
    assert len(own.at_rows(model, model.layout.read_terms[0], model.rows.X).numbers(np.ones(2)).value) == 300


@pytest.mark.long
def test_a_short_memory_is_found_where_a_walk_is_a_mode_too():
    """Of an autoregression with a standard deviation of 2.7: it was taken for a walk, of 1.0 a step, without noise."""
    rng = np.random.default_rng(3)
    t, e = np.arange(300.0), rng.normal(size=400)
    y = signal.lfilter([1.0], [1.0, -1.2, 0.3], e)[100:] + 3 * np.cos(np.pi * t / 6)
    found = own.of_series(ngp.gam.model("y ~ trend(t) + cycle(t) + season(t, period=12)", {"t": t, "y": y}), 2000)
    level, _, memory, _, _, _, cycle, _, trend, _ = np.exp(found.location)  # in the order of their names
    np.testing.assert_allclose(cycle, np.sqrt(1.3 / (0.7 * (1.3**2 - 1.2**2))), rtol=0.2)
    assert level * trend / np.sqrt(t.std()) < 0.2
    assert memory * t.std() < 10


@pytest.mark.long
def test_a_short_memory_of_a_thousand_rows_is_not_lost_among_few():
    """Of an autoregression of 0.8, of variance one: the last 300 rows of 1000 lead to a walk, 23 nats below."""
    e = np.random.default_rng(7).normal(size=(3, 1048))
    y = signal.lfilter([0.6], [1.0, -0.8], e[1], zi=0.4 * e[1, :1])[0] + 0.3 * e[2]
    t = np.arange(1000.0)
    found = own.of_series(ngp.gam.model("y ~ trend(t) + cycle(t)", {"t": t, "y": y[:1000]}), 2000)
    assert np.exp(found.location[2]) * t.std() < 10


def test_rows_that_are_left_out_leave_the_squares_within_the_others():
    """Of the last rows of many each has the squares around its mean, without which noise went to zero."""
    t = np.repeat(np.arange(30.0), 2)
    model = ngp.gam.model("y ~ trend(t)", {"t": t, "y": t + np.tile([-0.5, 0.5], 30)})
    last = own.merged(Data.of(model)).last(0, 10)
    np.testing.assert_allclose(last.within, 0.5)
    np.testing.assert_allclose(last.data.weights, 2.0)
    assert model.layout.columns[0].decode(last.data.X[:, 0]).min() == 20.0


def test_inducing_inputs_follow_the_terms_at_the_mode():
    """Three for each memory of a cycle, taken from a trend that hardly wanders: 150 were spread over 400 months."""
    t = np.arange(400.0)
    data, sizes = {"t": t, "y": np.sin(t)}, []
    for formula, level in (
        ("trend(t) + cycle(t)", 1e-3),
        ("trend(t) + cycle(t)", 30.0),
        ("cycle(t, num_inducing=50)", 1),
    ):
        parts = BoundParts(ngp.gam.model(f"y ~ {formula}", data))
        free = parts.evaluator.start.copy()
        free[:3] = np.log([level, 0.1, 5 / t.std()]) if level != 1 else np.log([5 / t.std(), 1.0, 1.0])
        sizes.append([len(points) for points in own.inducing_at(parts, free).values()])
    assert sizes == [[150, round(3 * 399 / 5)], [400, round(3 * 399 / 5)], [50]]


@pytest.mark.long
def test_counts_whose_memory_is_short_are_no_walk():
    """Of Poisson counts around an autoregression of 0.88: the search began from long memories alone."""
    rng, t = np.random.default_rng(0), np.arange(250.0)
    f = 0.7 * np.sqrt(1 - 0.88**2) * signal.lfilter([1.0], [1.0, -0.88], rng.normal(size=350))[100:]
    table = {"t": t, "y": rng.poisson(np.exp(1 + f))}
    found = own.of_series(ngp.gam.model("y ~ trend(t) + cycle(t)", table, "poisson"), 2000)
    level, _, _, _, cycle, trend = np.exp(found.location)  # in the order of their names
    np.testing.assert_allclose(cycle, 0.7, rtol=0.35)
    assert level * trend / np.sqrt(t.std()) < 0.1  # a step; it was 0.29


def test_inducing_inputs_follow_a_wiggly_season():
    """Of a week of hours that wiggles within two of them: what 24 phases leave open was noise above 1000 rows."""
    t = np.arange(2500.0)
    model = ngp.gam.model("y ~ season(t, period=168)", {"t": t, "y": np.cos(t)})
    parts, X, part = BoundParts(model), model.rows.X, model.layout.read_terms[0]
    free, lengths = parts.evaluator.start.copy(), np.array([0.12, 30 * 168 / t.std()])
    free[own.lengths_of_time(parts)[0][1]] = np.log(lengths)
    Z = own.inducing_at(parts, free)[part.name]
    kernel = own.at_rows(model, part, np.vstack([Z, X]), len(Z))
    K = kernel.matrix(kernel.numbers(lengths).value)
    gram = K[:, : len(Z)] + 1e-8 * np.eye(len(Z))
    open_part = 1 - np.sum(K[:, len(Z) :] * np.linalg.solve(gram, K[:, len(Z) :]), axis=0) / K[0, 0]
    assert open_part.max() < 0.02  # it was 0.43
