"""Models run again at posterior values: predictions of `gp_regression` models, and which sites take stored values."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan
from scipy import stats
from scipy.special import logsumexp

import numpyro_gp as ngp
from tests.fits import KERNEL, KEY, NEW, X, Y, at_start, fit, level
from tests.oracles.problems import gram


def dense(noise):
    """Mean and variance of new data with every factor written out."""
    whole = gram(np.concatenate([X, NEW]), 1.3, 0.8)
    own, cross, new = whole[:12, :12] + noise * np.eye(12), whole[12:, :12], whole[12:, 12:]
    mean = cross @ np.linalg.solve(own, np.asarray(Y))
    return mean, np.diag(new - cross @ np.linalg.solve(own, cross.T)) + noise


def test_each_kind_of_model_points_to_its_own_method():
    match = r"For gp_regression, and processes by neighbours, call posterior\.predict_at\(key, X_new, "
    with pytest.raises(ValueError, match=match):
        fit("exact").predict(KEY, NEW)
    with pytest.raises(TypeError, match="gp must be the data site of a gp_regression, but got the gp site 'f'"):
        fit("draws").predict_at(KEY, NEW, X, Y)


# What the model draws itself.
Z = jnp.array([[-1.0], [0.0], [1.0]])
ROWS = jnp.array([[-1.0], [0.0], [1.0], [-1.0], [0.0]])


def with_function(X, y=None, width=0.0):
    """``y`` is a function of the process, plus a latent of each row that is so wide."""
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.5), Z)
    g = f.function("g", num_features=64)
    with numpyro.plate("data", len(X)):
        h = width * numpyro.sample("h", dist.Normal(0.0, 1.0)) if width else 0.0
        ngp.observe("y", dist.Delta(g(X)), ngp.likelihoods.Gaussian(0.1), obs=y, offset=h)


@pytest.mark.long
def test_functions_drawn_in_the_model_are_averaged_over():
    """With a belief that is the prior their mean is 0 and their variance 1, at any row; one draw has no variance."""
    posterior = at_start(with_function, None, ROWS, jnp.zeros(5))
    assert not posterior.source.is_random
    whole = posterior.predict(KEY, ROWS)
    assert whole.num_draws == posterior.predict(KEY, ROWS, tolerance=10.0).num_draws == 100
    assert np.abs(whole.function_mean).max() < 0.4
    np.testing.assert_allclose(whole.function_variance, 1.0, atol=0.6)
    # One function, however the rows come: rows that are the same have the same values.
    part = posterior.predict(KEY, ROWS, chunk_size=3)
    np.testing.assert_allclose(part.function_mean, whole.function_mean, atol=1e-10)
    np.testing.assert_allclose(part.function_mean[3:], part.function_mean[:2], atol=1e-10)
    streamed = [one.function_mean for one in posterior.predict(KEY, iter([ROWS[:3], ROWS[3:]]))]
    np.testing.assert_allclose(np.concatenate(streamed), whole.function_mean, atol=1e-10)


@pytest.mark.long
def test_chunks_share_functions_and_no_noise_of_rows():
    """A latent of each row is a hundred times larger here: those of equal rows in two chunks differ by it."""
    posterior = at_start(with_function, None, ROWS, jnp.zeros(5), 100.0)
    mean = posterior.predict(KEY, ROWS, None, 100.0, chunk_size=3, num_samples=1).mean
    assert np.abs(mean[3:] - mean[:2]).min() > 1.0


@pytest.mark.long
def test_regressions_with_a_function_inside_have_many_draws():
    def regression(X, y=None):
        g = ngp.gp("g", ngp.kernels.RBF(1.0, 1.0), Z, mean=-1.0)
        ngp.gp_regression("y", ngp.kernels.Gibbs(1.0, g.function("draw", num_features=16)), X, 0.01, obs=y)

    posterior = at_start(regression, None, ROWS, jnp.zeros(5))
    assert posterior.predict_at(KEY, ROWS, ROWS, jnp.zeros(5), gp="y").num_draws == 100


def two_levels(X, code, z=None, y=None):
    """Members with data of their own, and rows that belong to them."""
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.5), Z)
    with numpyro.plate("group", 2):
        level = numpyro.sample("level", dist.Normal(0.0, 10.0))
        ngp.observe("z", dist.Delta(level), ngp.likelihoods.Gaussian(5.0), obs=z)
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y, offset=level[code])


@pytest.mark.long
@pytest.mark.parametrize("z", [jnp.zeros(2), None])
def test_members_with_data_of_their_own_keep_their_posterior(z):
    """Rows are predicted at the levels of the fit, whether the members' own data are given or not."""
    code = jnp.array([0, 1, 1, 0, 1])
    stored = {"f": jnp.zeros((2, 3)), "level": jnp.array([[3.0, -2.0], [5.0, -4.0]])}
    chain = ngp.Posterior.from_mcmc(two_levels, stored)
    np.testing.assert_allclose(chain.predict(KEY, ROWS, code, z, site="y").mean, np.array([4.0, -3.0])[code], rtol=1e-6)
    levels = {"level": lambda name, prior: dist.Delta(numpyro.param("at", jnp.array([3.0, -2.0])))}
    fit = at_start(two_levels, ngp.AutoGP(two_levels, levels), ROWS, code, jnp.zeros(2), jnp.zeros(5))
    found = fit.predict(KEY, ROWS, code, z, site="y")
    np.testing.assert_allclose(found.mean, np.array([3.0, -2.0])[code], rtol=1e-6)
    assert found.num_draws == 1
    fresh = chain.predict(KEY, ROWS, code, z, site="y", new="group")
    assert np.abs(fresh.mean - np.array([4.0, -3.0])[code]).max() > 0.1


def series(X, drive, y=None):
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.5), Z)

    def step(state, drive):
        state = numpyro.sample("state", dist.Normal(0.9 * state + drive, 0.3))
        return state, state

    _, path = scan(step, 0.0, drive)
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y, offset=path[: len(X)])


@pytest.mark.long
def test_sites_in_a_scan_take_the_values_of_their_steps():
    """The process is at its mean, 0: the mean of the data is that of the states."""
    states = jnp.linspace(-1.0, 2.0, 15).reshape(3, 5)
    posterior = ngp.Posterior.from_mcmc(series, {"f": jnp.zeros((3, 3)), "state": states})
    drive = jnp.zeros(5)
    np.testing.assert_allclose(posterior.predict(KEY, ROWS, drive).mean, states.mean(0), atol=1e-6)
    drawn = posterior.draws(KEY, ROWS, drive, jnp.zeros(5))
    np.testing.assert_allclose(drawn.latent["state"], states)
    scale = np.sqrt(posterior.predict(KEY, ROWS, drive, num_samples=1).variance)
    wanted = stats.norm(np.asarray(states), scale).logpdf(0.0)
    np.testing.assert_allclose(drawn.log_likelihood["y"], wanted, rtol=5e-4)  # the jitter is part of the model there
    assert posterior.functions(KEY, None, ROWS, drive)(ROWS).shape == (3, 5)
    assert posterior.function_draws(KEY, ROWS, ROWS, drive).shape == (3, 5)
    # More steps go on behind those of the fit, as NumPyro has it; fewer are refused.
    longer = posterior.predict(KEY, ROWS, jnp.zeros(7))
    np.testing.assert_allclose(longer.mean, states.mean(0), atol=1e-6)
    with pytest.raises(ValueError, match=r"args must be those .* of 5 steps or more .*, but got 3 steps"):
        posterior.predict(KEY, ROWS[:3], drive[:3])


@pytest.mark.long
def test_the_regression_among_several_processes_is_the_one_to_predict():
    """`predict_at` needs no name where one process knows its data; it told to name another, which it refused."""

    def several(X, y=None):
        g = ngp.gp("g", KERNEL, Z)
        ngp.gp_regression("y", KERNEL, X, 0.1, mean=lambda at: g(at).loc, obs=y)

    posterior = ngp.Posterior.from_mcmc(several, {"g": jnp.zeros((1, 3))})
    found = posterior.predict_at(KEY, NEW, X, Y).mean
    np.testing.assert_allclose(found, posterior.predict_at(KEY, NEW, X, Y, gp="y").mean)
    with pytest.raises(ValueError, match=r"one process of the model: \['y'\], but got 'z'\. Name it: gp='y'\."):
        posterior.predict_at(KEY, NEW, X, Y, gp="z")


def test_a_first_argument_without_rows_names_the_cure():
    posterior = ngp.Posterior.from_mcmc(lambda kind, X, y=None: level(X, y), {"level": jnp.ones(2)})
    with pytest.raises(TypeError, match=r"kind must be an array .*, but got str\. Name those .*, as rows=\['X'\]\."):
        posterior.predict(KEY, "rbf", ROWS)
    np.testing.assert_allclose(posterior.predict(KEY, "rbf", ROWS, rows=["X"]).mean, 1.0)


@pytest.mark.parametrize("inducing", [None, X])
def test_new_data_of_a_regression_are_those_of_the_dense_process(inducing):
    """Two draws of the noise: the mixture of two Normals. Variances of ``f`` without the noise would differ by 0.1."""
    found = fit("exact").predict_at(KEY, NEW, X, Y, inducing=inducing, chunk_size=5)
    (first, one), (second, two) = dense(0.1), dense(0.4)
    tight = {"rtol": 1e-9 if inducing is None else 1e-5, "atol": 1e-10 if inducing is None else 1e-5}
    np.testing.assert_allclose(found.mean, (first + second) / 2, **tight)
    np.testing.assert_allclose(found.variance, (one + two) / 2 + (first - second) ** 2 / 4, **tight)
    target = np.asarray(Y) + 0.2
    terms = [stats.norm(mean, np.sqrt(v)).logpdf(target) for mean, v in ((first, one), (second, two))]
    np.testing.assert_allclose(found.log_density(target), logsumexp(terms, axis=0) - np.log(2), **tight)


def test_noise_of_new_data_where_each_datum_has_its_own():
    posterior = fit("exact")
    with pytest.raises(ValueError, match="noise_variance must be given for the new data, but got a variance"):
        posterior.predict_at(KEY, NEW, X, Y, count=12)
    own = np.linspace(0.1, 1.0, 12)
    found = posterior.predict_at(KEY, NEW, X, Y, count=12, noise_variance=own, chunk_size=5)
    (first, one), (second, two) = dense(0.1), dense(0.4)
    expected = (one - 0.1 + two - 0.4) / 2 + own + (first - second) ** 2 / 4
    np.testing.assert_allclose(found.variance, expected, rtol=1e-9)
