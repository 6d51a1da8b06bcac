"""New data of models that hold theirs inside."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from tests.fits import KEY, NEW, X, Y, fit
from tests.posterior.test_tracing import dense


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
