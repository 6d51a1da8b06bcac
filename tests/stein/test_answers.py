"""What an engine says of its particles."""

import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest

import numpyro_gp as ngp
from numpyro_gp.stein import SVGD, PerSite
from tests.stein.models import KEY, X, Y, state_of
from tests.stein.test_svgd import guarded_engine


@pytest.mark.long
def test_faults_are_named_by_particle_and_site():
    svgd = guarded_engine()
    state = state_of(svgd, 20.0)
    assert svgd.faults(state, 20.0) == []
    assert svgd.faults(state, 2.0) == [(2, "a"), (2, "b")]  # the density of the whole particle is NaN
    assert svgd.faults(state, 9.0, root=True) == [(2, "b")]  # only the slope of the root, at zero, is infinite


@pytest.mark.long
def test_posterior_mixes_the_particles():
    def model(X, y=None):
        noise = numpyro.sample("noise", dist.LogNormal(-2.0, 0.5))
        f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.5), X)
        with numpyro.plate("data", X.shape[0]):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(noise), obs=y)

    svgd = SVGD(model, optax.adam(0.1), PerSite(), 4)
    result = svgd.run(KEY, 20, X, Y, progress_bar=False)
    posterior = ngp.Posterior.from_stein(model, svgd, result.params)
    again = ngp.Posterior.from_stein(model, svgd, result.state)
    assert posterior.kind == "stein"
    assert posterior.num_draws == 4
    prediction = posterior.predict(KEY, X)
    f = svgd.particles(result.params)
    gram = np.exp(-((np.asarray(X) - np.asarray(X).T) ** 2) / (2 * 0.25))
    # A conditional on the jittered values at X: features L^-1 K, and what they leave of the prior variance.
    features = np.linalg.solve(np.linalg.cholesky(gram + 1e-6 * np.eye(12)), gram)
    means, rest = np.asarray(f["f"]) @ features, 1.0 - np.sum(features**2, axis=0)
    np.testing.assert_allclose(prediction.mean, means.mean(0), atol=1e-8)
    np.testing.assert_allclose(prediction.variance, np.mean(f["noise"] ** 2) + rest + means.var(0), atol=1e-6)
    np.testing.assert_array_equal(again.predict(KEY, X).mean, prediction.mean)
