"""One model function, every engine: the bound, the sparse MCMC target and the exact posterior."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from numpyro.infer.util import log_density
from scipy import stats

import numpyro_gp as ngp
from tests.oracles.problems import gram, regression

PROBLEM = regression()


def model(X, y=None, batch=None):
    """Known kernel, unknown noise; Z = X, so that the exact posterior is known for each noise."""
    noise = numpyro.sample("noise", dist.LogNormal(-1.2, 0.3))
    f = ngp.gp("f", PROBLEM.kernel, PROBLEM.X)
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
        ngp.observe("y", f(X[idx]), ngp.likelihoods.Gaussian(noise), obs=None if y is None else y[idx])


def exact_moments():
    """Posterior mean and sd of f(X), and of log noise, by quadrature over the noise."""
    X, y = np.asarray(PROBLEM.X), np.asarray(PROBLEM.y)
    prior = gram(X, 1.3, 0.8)
    logs = np.linspace(-1.2 - 6 * 0.3, -1.2 + 6 * 0.3, 200)
    weight, means, variances = [], [], []
    for log_noise in logs:
        noisy = prior + np.exp(2 * log_noise) * np.eye(len(y))
        gain = np.linalg.solve(noisy, prior).T
        weight.append(
            stats.multivariate_normal(np.zeros(len(y)), noisy).logpdf(y) + stats.norm.logpdf(log_noise, -1.2, 0.3)
        )
        means.append(gain @ y)
        variances.append(np.diag(prior - gain @ prior))
    w = np.exp(np.array(weight) - max(weight))
    w /= w.sum()
    mean = w @ np.array(means)
    variance = w @ (np.array(variances) + (np.array(means) - mean) ** 2)
    noise_mean = w @ logs
    return mean, np.sqrt(variance), noise_mean, np.sqrt(w @ (logs - noise_mean) ** 2)


@pytest.mark.statistical
def test_nuts_samples_the_exact_posterior_when_the_inducing_inputs_are_the_data():
    """Moments within 5 standard errors (ESS from ArviZ); the prior mean (an idle sampler) is off by > 20."""
    mcmc = MCMC(NUTS(model), num_warmup=200, num_samples=1600, progress_bar=False)
    mcmc.run(jax.random.key(0), PROBLEM.X, PROBLEM.y)
    posterior = ngp.Posterior.from_mcmc(model, mcmc)
    prediction = posterior.predict(jax.random.key(1), PROBLEM.X)
    mean, sd, noise_mean, noise_sd = exact_moments()
    standard_error = 5 * sd / np.sqrt(300)  # the smallest of 1600 whitened draws is some 600 (checked below)
    size = effective_sample_size(np.asarray(mcmc.get_samples()["f"])[None])
    assert size.min() > 300
    assert (np.abs(mean) > 5 * standard_error).any(), "an idle sampler would pass"
    np.testing.assert_array_less(np.abs(prediction.function_mean - mean), standard_error)
    np.testing.assert_allclose(np.sqrt(prediction.function_variance), sd, rtol=0.15)
    draws = np.log(mcmc.get_samples()["noise"])
    assert abs(draws.mean() - noise_mean) < 5 * noise_sd / np.sqrt(300)
    np.testing.assert_allclose(draws.std(), noise_sd, rtol=0.2)


@pytest.mark.long
def test_svi_optimum_collapsed_bound_evidence_and_posterior_agree():
    """Z = X and a Gaussian likelihood: three roads to one number."""
    fixed = numpyro.handlers.substitute(model, data={"noise": jnp.sqrt(PROBLEM.noise)})
    fixed = numpyro.handlers.block(fixed, hide=["noise"])
    guide = ngp.AutoGP(fixed, {"f": ngp.guides.coupled(natural=True)})
    svi = SVI(fixed, guide, ngp.optim.natural_gradient(optax.adam(0.01), 1.0), Trace_ELBO())
    state = svi.init(jax.random.key(0), PROBLEM.X, PROBLEM.y)
    state, _ = svi.update(state, PROBLEM.X, PROBLEM.y)
    bound = -float(svi.evaluate(state, PROBLEM.X, PROBLEM.y))
    collapsed, _ = log_density(
        lambda: ngp.gp_regression("y", PROBLEM.kernel, PROBLEM.X, PROBLEM.noise, inducing=PROBLEM.X, obs=PROBLEM.y),
        (),
        {},
        {},
    )
    exact, _ = log_density(
        lambda: ngp.gp_regression("y", PROBLEM.kernel, PROBLEM.X, PROBLEM.noise, obs=PROBLEM.y), (), {}, {}
    )
    np.testing.assert_allclose(exact, PROBLEM.evidence, atol=1e-9)
    np.testing.assert_allclose([bound, float(collapsed)], PROBLEM.evidence, atol=1e-3)  # jitter 1e-6 is in the bound
    belief = guide.beliefs(svi.get_params(state))["f"]
    with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.substitute(data={"f": belief}):
        marginal = ngp.gp("f", PROBLEM.kernel, PROBLEM.X)(PROBLEM.X)
    np.testing.assert_allclose(marginal.loc, PROBLEM.mean, atol=1e-4)
    np.testing.assert_allclose(marginal.scale**2, np.diag(PROBLEM.covariance), atol=1e-4)
