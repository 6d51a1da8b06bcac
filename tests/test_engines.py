"""One model function, every engine: the bound, the sparse MCMC target and the exact posterior."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpyro.contrib.einstein import SVGD, RBFKernel
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO, TraceMeanField_ELBO
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
    mcmc = MCMC(NUTS(model), num_warmup=400, num_samples=1500, progress_bar=False)
    mcmc.run(jax.random.key(0), PROBLEM.X, PROBLEM.y)
    posterior = ngp.Posterior.from_mcmc(model, mcmc)
    prediction = posterior.predict(jax.random.key(1), PROBLEM.X)
    mean, sd, noise_mean, noise_sd = exact_moments()
    standard_error = 5 * sd / np.sqrt(300)  # ESS of whitened values is above 300 (checked below)
    size = effective_sample_size(np.asarray(mcmc.get_samples()["f"])[None])
    assert size.min() > 300
    assert (np.abs(mean) > 5 * standard_error).any(), "an idle sampler would pass"
    np.testing.assert_array_less(np.abs(prediction.function_mean - mean), standard_error)
    np.testing.assert_allclose(np.sqrt(prediction.function_variance), sd, rtol=0.15)
    draws = np.log(mcmc.get_samples()["noise"])
    assert abs(draws.mean() - noise_mean) < 5 * noise_sd / np.sqrt(300)
    np.testing.assert_allclose(draws.std(), noise_sd, rtol=0.2)


@pytest.mark.long
@pytest.mark.parametrize("objective", [Trace_ELBO(), TraceMeanField_ELBO(), Trace_ELBO(num_particles=3)])
def test_svi_optimum_collapsed_bound_evidence_and_posterior_agree(objective):
    """Z = X and a Gaussian likelihood: three roads to one number."""
    fixed = numpyro.handlers.substitute(model, data={"noise": jnp.sqrt(PROBLEM.noise)})
    fixed = numpyro.handlers.block(fixed, hide=["noise"])
    guide = ngp.AutoGP(fixed, {"f": ngp.guides.coupled(natural=True)})
    svi = SVI(fixed, guide, ngp.optim.natural_gradient(optax.adam(0.01), 1.0), objective)
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


@pytest.mark.long
def test_numpyro_svgd_runs_the_same_model():
    """Particles are points at the GP site; the fit must beat the prior mean (idle particles fail)."""
    stein = SVGD(model, numpyro.optim.Adagrad(0.2), RBFKernel(), num_stein_particles=5)
    state = stein.init(jax.random.key(0), PROBLEM.X, PROBLEM.y)
    start = stein.get_params(state)
    assert start["f_auto_loc"].shape == (5, 12)
    run = jax.jit(lambda s: jax.lax.fori_loop(0, 300, lambda _, t: stein.update(t, PROBLEM.X, PROBLEM.y)[0], s))
    end = stein.get_params(run(state))

    def error(params):
        draws = {"f": params["f_auto_loc"], "noise": params["noise_auto_loc"]}
        prediction = ngp.Posterior.from_mcmc(model, draws).predict(jax.random.key(0), PROBLEM.X)
        return float(jnp.mean((prediction.function_mean - PROBLEM.mean) ** 2))

    assert error(end) < 0.05 * float(np.mean(PROBLEM.mean**2))
    assert error(end) < 0.2 * error(start)


@pytest.mark.long
@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**31 - 1),
    size=st.integers(1, 6),
    log_lengthscale=st.floats(-1.5, 1.0),
    log_noise=st.floats(-4.0, 1.0),
    jitter=st.sampled_from([0.0, 1e-6, 1e-2]),
)
def test_no_belief_exceeds_the_exact_evidence(seed, size, log_lengthscale, log_noise, jitter):
    """Any belief, any kernel, any jitter: the bound is a bound (up to rounding)."""
    rng = np.random.default_rng(seed)
    X, noise, lengthscale = rng.uniform(-2, 2, (8, 1)), np.exp(log_noise), np.exp(log_lengthscale)
    y = rng.normal(size=8)
    evidence = stats.multivariate_normal(np.zeros(8), gram(X, 1.3, lengthscale) + noise * np.eye(8)).logpdf(y)
    Z = np.sort(rng.uniform(-2, 2, (size, 1)), axis=0) + 1e-3 * np.arange(size)[:, None]
    factor = np.tril(0.5 * rng.normal(size=(size, size)), -1) + np.diag(rng.uniform(0.1, 2.0, size))
    belief = ngp.beliefs.Coupled(jnp.asarray(rng.normal(size=size)), jnp.asarray(factor))
    bound = _bound(jnp.asarray(X), jnp.asarray(y), jnp.asarray(Z), belief, lengthscale, noise, jitter)
    collapsed = _collapsed(jnp.asarray(X), jnp.asarray(y), jnp.asarray(Z), lengthscale, noise, jitter)
    assert bound <= collapsed + 1e-6 * (1 + abs(collapsed))
    assert collapsed <= evidence + 1e-6 * (1 + abs(evidence))


@jax.jit
def _bound(X, y, Z, belief, lengthscale, noise, jitter):
    basis = ngp.beliefs.Basis.build(ngp.kernels.Matern32(1.3, lengthscale), Z, jitter)
    likelihood = ngp.likelihoods.Gaussian(jnp.sqrt(noise))
    return likelihood.expected_log_prob(y, *belief.marginals(basis, X)).sum() - belief.kl(basis)


@jax.jit
def _collapsed(X, y, Z, lengthscale, noise, jitter):
    kernel = ngp.kernels.Matern32(1.3, lengthscale)
    return log_density(lambda: ngp.gp_regression("y", kernel, X, noise, inducing=Z, obs=y, jitter=jitter), (), {}, {})[
        0
    ]


@pytest.mark.long
def test_float32_fits():
    """The same model in float32 reaches the same bound within 0.05 and keeps its dtype."""
    X, y = PROBLEM.X.astype(jnp.float32), PROBLEM.y.astype(jnp.float32)

    def single(X, y=None):
        f = ngp.gp("f", ngp.kernels.Matern32(jnp.float32(1.3), jnp.float32(0.8)), X)
        with numpyro.plate("data", X.shape[0]):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(jnp.float32(np.sqrt(0.1))), obs=y)

    guide = ngp.AutoGP(single, {"f": ngp.guides.coupled(natural=True)})
    svi = SVI(single, guide, ngp.optim.natural_gradient(optax.adam(0.01), 1.0), Trace_ELBO())
    state = svi.init(jax.random.key(0), X, y)
    state, _ = svi.update(state, X, y)
    assert svi.get_params(state)["f/ngp:natural_precision"].dtype == jnp.float32
    np.testing.assert_allclose(-svi.evaluate(state, X, y), PROBLEM.evidence, atol=0.05)
