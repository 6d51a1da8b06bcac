"""Posteriors at new data: whose data they are, NumPy's arrays, and how many programs a prediction compiles."""

from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.special import logsumexp

import numpyro_gp as ngp
from tests.compiling import counted
from tests.oracles.build import kernel_of
from tests.oracles.vectors import cases

CASE = cases("collapsed")[0]


def noisy_model(X, y=None):
    s = numpyro.sample("noise", dist.LogNormal(-1.0, 0.3))
    f = ngp.gp("f", kernel_of(CASE), CASE["Z"])
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(s), obs=y)


def scoped(X, y=None, z=None):
    """Two regressions whose data have one name inside two scopes."""
    for prefix, data, variance in (("a", y, 0.1), ("b", z, 0.4)):
        with numpyro.handlers.scope(prefix=prefix):
            f = ngp.gp_regression(
                "y", kernel_of(CASE), X, variance * numpyro.sample("noise", dist.Delta(1.0)), obs=data
            )
        numpyro.deterministic(f"{prefix}_name", jnp.zeros(len(f.name)))
        assert f.name == f"{prefix}/y"


def test_processes_are_found_by_the_names_of_their_sites():
    """Both were recorded as "y", and predictions were those of the last. Unscoped models say what is right."""

    def alone(X, y=None, variance=0.1):
        ngp.gp_regression("y", kernel_of(CASE), X, variance * numpyro.sample("noise", dist.Delta(1.0)), obs=y)

    X, new, key = CASE["X"], jnp.asarray(CASE["Xs"]), jax.random.key(0)
    posterior = ngp.Posterior.from_mcmc(scoped, {"a/noise": jnp.ones(2), "b/noise": jnp.ones(2)})
    single = ngp.Posterior.from_mcmc(alone, {"noise": jnp.ones(2)})
    for name, data, variance in (("a/y", CASE["y"], 0.1), ("b/y", -CASE["y"], 0.4)):
        found = posterior.predict_at(key, new, X, CASE["y"], -CASE["y"], gp=name)
        wanted = single.predict_at(key, new, X, data, variance)
        np.testing.assert_allclose(found.mean, wanted.mean, rtol=1e-10)
        np.testing.assert_allclose(found.variance, wanted.variance, rtol=1e-10)
    with pytest.raises(ValueError, match=r"gp must be the name of one process of the model: \['a/y', 'b/y'\]"):
        posterior.predict_at(key, new, X, CASE["y"], -CASE["y"], gp="y")


def indexed_model(X, y=None, Z=None):
    """Indexes its data by the traced rows of the plate, which a NumPy array refuses."""
    f = ngp.gp("f", kernel_of(CASE), CASE["Z"])
    noise = numpyro.sample("noise", dist.LogNormal(-1.0, 0.3))
    with numpyro.plate("data", X.shape[0]) as rows:
        likelihood = lambda f: dist.Normal(f, noise)  # noqa: E731
        ngp.observe("y", f(X[rows]), likelihood, obs=None if y is None else y[rows])


@pytest.mark.long
def test_numpy_inputs_and_likelihoods_that_close_over_arrays():
    """Both raised: a TracerArrayConversionError, and "Too many leaves". The Gaussian likelihood says what is right."""
    draws = {"f": jnp.arange(15.0).reshape(3, 5) / 15, "noise": jnp.array([2.0, 3.0, 4.0])}
    X, y, key = np.asarray(CASE["Xs"]), np.linspace(-1.0, 1.0, 4), jax.random.key(0)
    posterior, wanted = (ngp.Posterior.from_mcmc(fn, draws) for fn in (indexed_model, noisy_model))
    for size in (3, 100):
        np.testing.assert_allclose(
            posterior.predict(key, X, chunk_size=size).mean, wanted.predict(key, X).mean, atol=1e-10
        )
    np.testing.assert_allclose(
        posterior.predict(key, X).log_density(y), wanted.predict(key, X).log_density(y), atol=1e-6
    )
    np.testing.assert_allclose(posterior.function_draws(key, X), wanted.function_draws(key, jnp.asarray(X)))
    one, other = (p.draws(key, X, y).log_likelihood["y"] for p in (posterior, wanted))
    np.testing.assert_allclose(one, other, atol=1e-6)
    table = ngp.compare({"a": posterior, "b": wanted}, key, X, y=y)
    np.testing.assert_allclose(table["a"]["log density"].value, table["b"]["log density"].value, atol=1e-6)


def compiled_by(call):
    """Number of programs that a call compiles."""
    with counted() as programs:
        call()
    return programs.count


@pytest.mark.long
def test_a_prediction_is_compiled_once():
    """Ten programs before, and three at each repetition."""

    def own(X, y=None, shift=0.25):
        f = ngp.gp("f", kernel_of(CASE), CASE["Z"])
        with numpyro.plate("data", X.shape[0]):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(SCALE["noise"] + shift), obs=y)

    SCALE = {"noise": 0.5}
    X, key = np.asarray(CASE["Xs"]) + 0.5, jax.random.key(5)
    first, second = (ngp.Posterior.from_mcmc(own, {"f": x * jnp.ones((7, 5))}) for x in (1.0, 2.0))
    assert compiled_by(lambda: first.predict(key, X)) <= 3
    for again in (
        lambda: first.predict(key, X),
        lambda: first.predict(jax.random.key(6), X),
        lambda: first.predict(key, X + 1),
        lambda: second.predict(key, X),
        lambda: second.predict(key, X, chunk_size=4),
    ):
        assert compiled_by(again) == 0
    rows = np.repeat(X, 3, axis=0)
    whole = first.predict(key, rows[:7], chunk_size=4)
    for size in (5, 6, 8, 11):  # ragged chunks of the same size
        assert compiled_by(lambda size=size: first.predict(key, rows[:size], chunk_size=4)) == 0
    np.testing.assert_allclose(whole.mean, first.predict(key, rows[:7]).mean, rtol=1e-12)
    before = first.predict(key, X)
    np.testing.assert_allclose(first.predict(jax.random.PRNGKey(0), X).mean, before.mean, rtol=1e-12)
    SCALE["noise"] = 0.75
    np.testing.assert_allclose(first.predict(key, X).variance - before.variance, 1.0 - 0.75**2, rtol=1e-9)
    np.testing.assert_allclose(first.predict(key, X, shift=0.5).variance - before.variance, 1.25**2 - 0.75**2)


def offset_model(X, offset, y=None):
    """A second array with rows, and noise of each datum of its own."""
    f = ngp.gp("f", kernel_of(CASE), CASE["Z"])
    with numpyro.plate("data", X.shape[0]):
        values = f.draw("noise", X)
        ngp.observe("y", dist.Normal(values + offset, 0.1), ngp.likelihoods.Gaussian(0.2), obs=y)


@pytest.mark.long
@pytest.mark.parametrize("as_batch", [lambda X, t: (X, t), lambda X, t: {"X": X, "offset": t}], ids=["tuple", "dict"])
def test_an_iterator_of_chunks_gives_one_of_predictions(as_batch):
    """The numbers of all rows in one call, the noise of each datum included; the last chunk is shorter."""
    X, key = np.asarray(CASE["X"]), jax.random.key(0)
    offset = np.linspace(0.0, 1.0, len(X))
    posterior = ngp.Posterior.from_mcmc(offset_model, {"f": jnp.arange(15.0).reshape(3, 5) / 15})
    size = len(X) // 2 + 1
    whole = posterior.predict(key, X, offset, chunk_size=size, rows=["X", "offset"])
    asked = []

    def chunks():
        for start in range(0, len(X), size):
            asked.append(start)
            yield as_batch(X[start : start + size], offset[start : start + size])

    predictions = posterior.predict(key, chunks())
    assert asked == []
    found = list(predictions)
    assert [len(one.mean) for one in found] == [size, len(X) - size]
    np.testing.assert_array_equal(np.concatenate([one.mean for one in found]), whole.mean)
    np.testing.assert_array_equal(np.concatenate([one.variance for one in found]), whole.variance)
    draws = [one.sample(4) for one in found]
    assert not np.array_equal(draws[0][:, 0] - found[0].mean[0], draws[1][:, 0] - found[1].mean[0])


def test_chunks_of_an_iterator_share_programs_and_are_checked():
    X, key = np.asarray(CASE["X"]), jax.random.key(0)
    posterior = ngp.Posterior.from_mcmc(noisy_model, {"f": jnp.zeros((3, 5)), "noise": jnp.ones(3)})
    list(posterior.predict(key, iter([X[:4], X[:4]])))
    with counted() as seen:
        assert len(list(posterior.predict(key, iter([X[:4], X[1:5], X[2:6]])))) == 3
    assert seen.count == 0
    with pytest.raises(TypeError, match=r"chunks\[1\]\[0\] must be of float64 .* but got float32"):
        list(posterior.predict(key, iter([X[:4], X[:4].astype(np.float32)])))
    with pytest.raises(ValueError, match=r"chunks\[0\] must be free of arguments that are given beside it"):
        list(posterior.predict(key, iter([{"X": X}]), X=X))


def test_functions_that_are_no_number_are_refused():
    """Without a jitter the covariance at 60 inputs that are close has no Cholesky factor."""

    def model(X, y=None):
        f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), jnp.array([[0.0], [1.0]]), jitter=0.0)
        with numpyro.plate("data", len(X)):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)

    posterior, X = ngp.Posterior.from_mcmc(model, {"f": jnp.ones((3, 2))}), jnp.linspace(0.0, 0.1, 60)[:, None]
    with pytest.raises(
        ValueError, match=r"3 of 3 draws that are no number at 60 inputs in float64. Take posterior.func"
    ):
        posterior.function_draws(jax.random.key(0), X)
    assert posterior.function_draws(jax.random.key(0), jnp.array([[0.3], [0.6]])).shape == (3, 2)


def test_a_number_for_all_data_is_one_for_each():
    """A model of a level alone, with or without replicates: `predict` ended in an `IndexError`."""
    levels, y, key = np.array([0.1, -0.2, 0.5]), np.linspace(-1.0, 1.0, 7), jax.random.key(0)

    def model(X, y=None, *, replicates=1, plate=True):
        level = dist.Delta(numpyro.sample("level", dist.Normal(0.0, 1.0)))
        rows = numpyro.plate("data", len(X)) if plate else nullcontext()
        with numpyro.plate("replicates", replicates, dim=-2) if replicates > 1 else nullcontext(), rows:
            ngp.observe("y", level, ngp.likelihoods.Gaussian(0.5), obs=y)

    posterior, X = ngp.Posterior.from_mcmc(model, {"level": jnp.asarray(levels)}), jnp.zeros((7, 1))
    expected = logsumexp(stats.norm.logpdf(y, levels[:, None], 0.5), axis=0) - np.log(3)
    for options in ({}, {"replicates": 2}, {"chunk_size": 4}):
        found = posterior.predict(key, X, **options)
        np.testing.assert_allclose(found.mean, np.full(7, levels.mean()), rtol=1e-6)
        np.testing.assert_allclose(found.log_density(y), expected, rtol=1e-6)
    with pytest.raises(ValueError, match=r"the data of site 'y' must be of rows, in a plate, but got one number"):
        posterior.predict(key, X, plate=False)
