"""Predictions from the nearest data: found before anything is traced, in the lengthscales of the posterior."""

import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import numpyro_gp as ngp
from numpyro_gp.criticism.fit_checks import Case
from numpyro_gp.criticism.posterior_checks import more_neighbours, repeated_rows
from numpyro_gp.posterior import tracing
from numpyro_gp.posterior.near import near_in_units
from numpyro_gp.rows.call import call_of
from tests.compiling import counted

RNG = np.random.default_rng(4)
X, NEW = RNG.uniform(size=(60, 2)), RNG.uniform(size=(23, 2))
Y = np.sin(6 * X[:, 0]) + 0.1 * RNG.normal(size=60)
SCALE = np.array([0.4, 5.0])
KEY = jax.random.key(0)


def model(near, y=None, other=None):
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0).expand([2]).to_event(1))
    noise = numpyro.sample("noise", dist.LogNormal(0.0, 1.0))
    kernel = ngp.kernels.RBF(1.0, lengthscale)
    if other is not None:
        ngp.gp_regression("other", kernel, other, noise**2, obs=jnp.zeros(other.size))
    ngp.gp_regression("y", kernel, near, noise**2, obs=y, jitter=0.0)


def posterior(count=1, own=model):
    draws = {"lengthscale": jnp.asarray(np.repeat(SCALE[None], count, 0)), "noise": jnp.full(count, 0.3)}
    return ngp.Posterior.from_mcmc(own, draws)


def k(a, b):
    """Correlations in the lengthscales of the posterior."""
    return np.exp(-0.5 * (((a[:, None] - b[None]) / SCALE) ** 2).sum(axis=-1))


def by_numpy(new, count):
    """Mean and variance of new data from the nearest in these lengthscales."""
    found = []
    for row in new:
        some = np.argsort((((X - row) / SCALE) ** 2).sum(axis=1))[:count]
        covariance, cross = k(X[some], X[some]) + 0.09 * np.eye(count), k(X[some], row[None])[:, 0]
        weights = np.linalg.solve(covariance, cross)
        found.append((weights @ Y[some], 1 - weights @ cross + 0.09))
    return np.array(found).T


@pytest.mark.long
def test_rows_are_predicted_from_the_nearest_in_the_lengthscales_of_the_posterior():
    near, own = ngp.neighbours(X, 5), posterior()
    predict = partial(own.predict_at, KEY, NEW)
    for count, found in ((12, predict(near, Y, neighbours=12)), (60, predict(near, Y))):
        mean, variance = by_numpy(NEW, count)
        np.testing.assert_allclose(found.mean, mean, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(found.variance, variance, rtol=1e-8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # rows may come in chunks
        chunks = predict(near, Y, neighbours=12, chunk_size=10)
    np.testing.assert_allclose(chunks.mean, by_numpy(NEW, 12)[0], rtol=1e-8, atol=1e-9)
    given = own.predict_at(KEY, near.find(NEW, 12, lengthscale=SCALE), near, Y)
    np.testing.assert_allclose(given.mean, chunks.mean, rtol=1e-12)
    with counted() as programs:
        own.predict_at(KEY, near.find(NEW, 12, lengthscale=SCALE), near.rescaled(2.0), Y)
    assert programs.count <= 2  # neighbours found anew are other numbers, and no other program
    noisy = predict(near, Y, neighbours=12, noise_variance=0.5)
    np.testing.assert_allclose(noisy.variance, by_numpy(NEW, 12)[1] + 0.41, rtol=1e-8)
    assert own.holds_data(near, Y)
    assert [posterior(40).predict_at(KEY, NEW, near, Y, num_samples=n).num_draws for n in (None, 30)] == [16, 30]


def test_a_process_finds_its_own_of_several_neighbours():
    near, other = ngp.neighbours(X, 5), ngp.neighbours(X[::-1] + 1.0, 5)
    found = posterior().predict_at(KEY, NEW, near, Y, other, gp="y", neighbours=12)
    np.testing.assert_allclose(found.mean, by_numpy(NEW, 12)[0], rtol=1e-8, atol=1e-9)


def left_out(count, y=Y):
    """Log densities of the data from the nearest others."""
    K, found = k(X, X) + 0.09 * np.eye(60), []
    for row in range(60):
        some = np.argsort((((X - X[row]) / SCALE) ** 2).sum(axis=1))[1 : count + 1]
        weights = np.linalg.solve(K[np.ix_(some, some)], K[some, row])
        variance = K[row, row] - weights @ K[some, row]
        found.append(-0.5 * np.log(2 * np.pi * variance) - (y[row] - weights @ y[some]) ** 2 / 2 / variance)
    return np.array(found)


@pytest.mark.long
def test_left_out_rows_say_how_many_neighbours_are_enough(monkeypatch):
    monkeypatch.setattr("numpyro_gp.posterior.near.LEAST", 2)
    count = 2
    while count < 59:
        more = min(4 * count, 59)
        gain = left_out(more) - left_out(count)
        if gain.mean() <= max(0.005, gain.std() / np.sqrt(60)):
            break
        count = more
    assert count > 2
    found = posterior().predict_at(KEY, NEW, ngp.neighbours(X, 5), Y, neighbours="auto")
    np.testing.assert_allclose(found.mean, by_numpy(NEW, count)[0], rtol=1e-8, atol=1e-9)


@pytest.mark.long
def test_enough_neighbours_are_enough_for_the_process_that_is_asked_for(monkeypatch):
    """Two processes of as many rows: data of the first are nothing but noise, of which the fewest neighbours say all."""
    monkeypatch.setattr("numpyro_gp.posterior.near.LEAST", 2)

    def both(near, y, other):
        ngp.gp_regression("other", ngp.kernels.RBF(1.0, SCALE), other, 1e4, obs=jnp.zeros(60))
        model(near, y)

    given = ngp.neighbours(X, 5), jnp.asarray(Y), ngp.neighbours(X + 1.0, 5)
    found = posterior(own=both).predict_at(KEY, NEW, *given, gp="y", neighbours="auto")
    alone = posterior().predict_at(KEY, NEW, *given[:2], neighbours="auto")
    np.testing.assert_allclose(found.mean, alone.mean, rtol=1e-8, atol=1e-9)
    few = posterior().predict_at(KEY, NEW, *given[:2], neighbours=2).mean
    assert np.abs(np.asarray(found.mean - few)).max() > 0.01  # two are too few here


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda own, near: own.predict_at(KEY, near.find(NEW), near, Y, neighbours=4), "neighbours must be left out"),
        (lambda own, near: own.predict_at(KEY, ngp.neighbours(np.concatenate([X, X + 1]), 5).find(NEW + 1), near, Y), "X must be new rows with neighbours among .* rows of data, but got the number"),
        (lambda own, near: own.predict_at(KEY, NEW, X, Y, neighbours=4), "neighbours must be left out"),
        (lambda own, near: own.predict_at(KEY, NEW, near, Y, neighbours=0), "neighbours must be at least 1"),
        (lambda own, near: own.predict_at(KEY, NEW, near, Y, neighbours="all"), "neighbours must be a number or 'auto'"),
        (lambda own, near: own.predict(KEY, near), "near must be new rows where they are predicted"),
        (lambda own, near: own.predictor(KEY, near, Y, new="data"), "new must be left out where rows have neighbours"),
        (lambda own, near: own.predictor(KEY, neighbours=4), "neighbours must be left out where there are none"),
        (lambda own, near: own.predictor(KEY, near, Y, neighbours=0), "neighbours must be at least 1"),
        (
            lambda own, near: own.predict_at(KEY, iter([NEW]), near, Y, noise_variance=np.ones(23)),
            "offset and noise_variance must be None, or one variance, for an iterator",
        ),
        (
            lambda own, near: list(own.predict_at(KEY, iter([(NEW, NEW)]), near, Y)),
            r"chunks\[0\] must be one array of new rows, but got a tuple of 2",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(posterior(), ngp.neighbours(X, 5))


@pytest.mark.long
def test_draws_leave_each_datum_out_and_the_verdict_looks_at_more_neighbours(capsys):
    near, own = ngp.neighbours(X, 2), posterior(30)
    terms = own.draws(KEY, ngp.neighbours(X, 59), Y, num_samples=2).log_likelihood["y"]
    np.testing.assert_allclose(terms, np.repeat(left_out(59)[None], 2, 0), rtol=1e-7, atol=1e-9)
    findings = {one.fault: one for one in ngp.diagnose.verdict(own, near, Y, num_samples=4)}
    assert findings["neighbours"].number == pytest.approx((left_out(8) - left_out(2)).mean(), rel=1e-6)
    assert "better from 8 neighbours than from the 2 of the fit" in capsys.readouterr().out
    assert "repeated rows" not in findings


def test_the_verdict_asks_each_process_at_neighbours_of_its_own():
    """Of two on as many rows, which are in another order: the data of one are zeros."""
    near, other, own = ngp.neighbours(X, 2), ngp.neighbours(X[::-1], 2), posterior()
    found = list(more_neighbours(Case(None, own, call_of(model, (near, Y, other), {}), KEY)))
    expected = [(left_out(8, y) - left_out(2, y)).mean() for y in (Y, 0 * Y)]
    np.testing.assert_allclose([one.number for one in found], expected, rtol=1e-5)


def test_the_verdict_counts_rows_that_repeat_with_their_data():
    """Of 20 rows 4 repeat in inputs and data, and 2 in inputs alone."""
    rows, data = X[[*range(16), 0, 0, 1, 2]], np.append(Y[:16], [Y[0], Y[0], Y[1], 9.0])
    for size, share in ((20, 5 / 20), (16, None)):
        call = call_of(model, (ngp.neighbours(rows[:size], 3), data[:size]), {})
        found = list(repeated_rows(Case(None, call=call)))
        assert [one.number for one in found] == ([] if share is None else [pytest.approx(share)])


def seen_through_two(near, other, y=None):
    """A long lengthscale, and a short one in the first column."""
    with numpyro.plate("data", near.size) as idx:
        f = ngp.gp("f", ngp.kernels.RBF(1.0, jnp.array([0.9, 5.0])), near[idx])
        g = ngp.gp("g", ngp.kernels.RBF(1.0, jnp.array([0.1, 7.0])), other[idx])
        sums = lambda values: dist.Normal(values[..., 0] + values[..., 1], 0.1)  # noqa: E731
        ngp.observe("y", (f.at_inducing(), g.at_inducing()), sums, obs=y)


def test_of_several_processes_new_rows_are_near_in_the_shortest_lengthscales_and_on_the_same_rows():
    own = ngp.Posterior.from_mcmc(seen_through_two, {"f": jnp.zeros((1, 60)), "g": jnp.zeros((1, 60))})
    near, other = (ngp.neighbours(rows, 4, others=True) for rows in (X, X[:, ::-1]))

    def asked(*args):
        call = call_of(seen_through_two, (*args, jnp.asarray(Y)), {})
        return tracing.AskedProcess(own, call, tracing.plates_at(own, call).plates, None, conditioned=True)

    found = near_in_units(asked(near, near), KEY, np.arange(1))
    np.testing.assert_allclose(found[1], [0.1, 5.0])
    with pytest.raises(ValueError, match=r"processes that data are seen through must be on the same rows.*kernel\.on"):
        near_in_units(asked(near, other), KEY, np.arange(1))
