"""The same deep and latent-variable models under NUTS, and what a posterior of any engine predicts from them."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
import pytest
from numpyro.infer import MCMC, NUTS, SVI
from scipy import stats

import numpyro_gp as ngp
from numpyro_gp.objectives import ImportanceWeightedELBO

pytestmark = pytest.mark.statistical
X = jnp.linspace(-1.0, 1.0, 8)[:, None]


def latent(X, y=None):
    """Bimodal data: the sign of y is not explained by X."""
    f = ngp.gp(
        "f",
        ngp.kernels.RBF(2.0, jnp.array([1.0, 0.7])),
        jnp.array([[-0.5, -1.0], [0.5, -1.0], [-0.5, 1.0], [0.5, 1.0]]),
    )
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", f(ngp.latent_inputs("w", X)), ngp.likelihoods.Gaussian(0.3), obs=y)


def deep(X, y=None):
    inner = ngp.gp("inner", ngp.kernels.RBF(0.5, 1.0), X[::3], mean=lambda x: x, outputs=1)
    outer = ngp.gp("outer", ngp.kernels.RBF(1.0, 0.7), X[::3])
    with numpyro.plate("data", X.shape[0]):
        ngp.observe("y", outer(inner.draw("e", X)), ngp.likelihoods.Gaussian(0.3), obs=y)


def test_nuts_runs_the_same_model():
    """No divergence worth mention, finite draws, and a fit far better than the prior mean (an idle sampler)."""
    y = jnp.sin(4 * X[:, 0])
    mcmc = MCMC(NUTS(deep), num_warmup=150, num_samples=150, progress_bar=False)
    mcmc.run(jax.random.key(0), X, y, extra_fields=("diverging",))
    samples = mcmc.get_samples()
    assert all(bool(jnp.all(jnp.isfinite(value))) for value in samples.values())
    assert mcmc.get_extra_fields()["diverging"].mean() < 0.1
    prediction = ngp.Posterior.from_mcmc(deep, mcmc).predict(jax.random.key(1), X)
    prior = stats.norm.logpdf(y, 0.0, 1.05)
    assert prediction.log_density(y).mean() > prior.mean()


def test_mixture_of_a_trained_latent_model_is_bimodal():
    """Density near both modes above that between them, for every chunking: a single Gaussian has 0.6 of it (1.22 seen)."""
    data = jnp.repeat(X, 6, axis=0)
    y = jnp.where(jnp.arange(48) % 2 == 0, 1.5, -1.5)
    svi = SVI(latent, ngp.AutoGP(latent), optax.adam(0.03), ImportanceWeightedELBO(5))
    result = svi.run(jax.random.key(0), 400, data, y, progress_bar=False)
    posterior = ngp.Posterior.from_svi(latent, svi.guide, result.params)
    means = []
    for chunk_size in (3, 100):
        prediction = posterior.predict(jax.random.key(1), X, num_samples=1500, chunk_size=chunk_size)
        density = [jnp.exp(prediction.log_density(jnp.full(8, value))).mean() for value in (-1.5, 0.0, 1.5)]
        assert min(density[0], density[2]) > 1.1 * density[1]
        means.append(prediction.mean)
    # Standard error of a mean of 1500 draws with standard deviation below 2 is below 0.052, of a difference 0.073.
    assert float(jnp.abs(means[0] - means[1]).max()) < 4.5 * 0.073
    assert not np.array_equal(*means)
