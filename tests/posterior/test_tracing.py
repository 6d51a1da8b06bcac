"""Models run again at posterior values: predictions of `gp_regression` models, and which sites take stored values."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.special import logsumexp

import numpyro_gp as ngp
from tests.oracles.problems import gram, regression

PROBLEM = regression(size=12)
X, Y = PROBLEM.X, PROBLEM.y
NEW = X + 0.13
DRAWS = {"noise": jnp.array([0.1, 0.4])}
KEY = jax.random.key(0)
VARIANCE, LENGTHSCALE = 1.3, 0.8
KERNEL = ngp.kernels.Matern32(VARIANCE, LENGTHSCALE)


def model(X, y=None, inducing=None, count=None):
    noise = numpyro.sample("noise", dist.LogNormal(0.0, 1.0))
    variance = noise if count is None else noise * jnp.ones(count)
    ngp.gp_regression("y", KERNEL, X, variance, obs=y, inducing=inducing, jitter=0.0)


def dense(noise):
    """Mean and variance of new data with every factor written out."""
    whole = gram(np.concatenate([X, NEW]), VARIANCE, LENGTHSCALE)
    own, cross, new = whole[:12, :12] + noise * np.eye(12), whole[12:, :12], whole[12:, 12:]
    mean = cross @ np.linalg.solve(own, np.asarray(Y))
    return mean, np.diag(new - cross @ np.linalg.solve(own, cross.T)) + noise


@pytest.mark.parametrize("inducing", [None, X])
def test_new_data_of_a_regression_are_those_of_the_dense_process(inducing):
    """Two draws of the noise: the mixture of two Normals. Variances of ``f`` without the noise would differ by 0.1."""
    posterior = ngp.Posterior.from_mcmc(model, DRAWS)
    found = posterior.predict_at(KEY, NEW, X, Y, inducing=inducing, chunk_size=5)
    (first, one), (second, two) = dense(0.1), dense(0.4)
    tight = {"rtol": 1e-9 if inducing is None else 1e-5, "atol": 1e-10 if inducing is None else 1e-5}
    np.testing.assert_allclose(found.mean, (first + second) / 2, **tight)
    np.testing.assert_allclose(found.variance, (one + two) / 2 + (first - second) ** 2 / 4, **tight)
    target = np.asarray(Y) + 0.2
    terms = [stats.norm(mean, np.sqrt(v)).logpdf(target) for mean, v in ((first, one), (second, two))]
    np.testing.assert_allclose(found.log_density(target), logsumexp(terms, axis=0) - np.log(2), **tight)


def test_noise_of_new_data_where_each_datum_has_its_own():
    posterior = ngp.Posterior.from_mcmc(model, DRAWS)
    with pytest.raises(ValueError, match="noise_variance must be given for the new data, but got a variance"):
        posterior.predict_at(KEY, NEW, X, Y, count=12)
    own = np.linspace(0.1, 1.0, 12)
    found = posterior.predict_at(KEY, NEW, X, Y, count=12, noise_variance=own, chunk_size=5)
    (first, one), (second, two) = dense(0.1), dense(0.4)
    expected = (one - 0.1 + two - 0.4) / 2 + own + (first - second) ** 2 / 4
    np.testing.assert_allclose(found.variance, expected, rtol=1e-9)


def test_the_old_name_of_the_noise_variance_works_and_warns():
    posterior = ngp.Posterior.from_mcmc(model, DRAWS)
    wanted = posterior.predict_at(KEY, NEW, X, Y, noise_variance=0.3).variance
    with pytest.warns(FutureWarning, match=r"noise of predict_at is now called noise_variance: predict_at\(") as said:
        found = posterior.predict_at(KEY, NEW, X, Y, noise=0.3).variance
    np.testing.assert_array_equal(found, wanted)
    assert said[0].filename == __file__
    with (
        pytest.warns(FutureWarning, match="noise_variance"),
        pytest.raises(TypeError, match="noise must be left out where noise_variance is given"),
    ):
        posterior.predict_at(KEY, NEW, X, Y, noise=0.3, noise_variance=0.3)


def test_each_kind_of_model_points_to_its_own_method():
    def sparse(X, y=None):
        f = ngp.gp("f", KERNEL, PROBLEM.X)
        with numpyro.plate("data", X.shape[0]):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.3), obs=y)

    with pytest.raises(ValueError, match=r"For gp_regression call posterior\.predict_at\(key, X_new, "):
        ngp.Posterior.from_mcmc(model, DRAWS).predict(KEY, NEW)
    points = ngp.Posterior.from_mcmc(sparse, {"f": jnp.zeros((2, 12))})
    with pytest.raises(TypeError, match="gp must be the data site of a gp_regression, but got the gp site 'f'"):
        points.predict_at(KEY, NEW, X, Y)
    with pytest.raises(ValueError, match=r"X must be"):
        ngp.Posterior.from_mcmc(model, DRAWS).predict_at(KEY, jnp.zeros(3), X, Y)
