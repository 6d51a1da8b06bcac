"""The linear model of coregionalisation against its covariance, typed out; outputs that are missing, and of two kinds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density
from scipy import stats

import numpyro_gp as ngp
from models.multi_output import measured_and_counted, model

Z = np.array([[-1.0], [0.2], [1.1]])
# Output 0 at the first and last input, output 1 at all three: one is missing.
ROWS, OUTPUT = np.array([0, 2, 0, 1, 2]), np.array([0, 0, 1, 1, 1])
Y = np.array([0.4, -1.1, -0.2, 0.9, 0.3])
WEIGHTS = np.array([[1.0, -0.5], [-0.8, 0.7]])
HYPER = {
    "lengthscale": np.array([0.9]),
    "shared_factor": np.array([0.8, 1.5]),
    "own_factor": np.array([1.2, 0.7]),
    "own": np.array([0.3, 0.2]),
    "weights": WEIGHTS,
}
NOISE = np.array([0.4, 0.6])


def matern(lengthscale):
    r = np.sqrt(5) * np.abs(Z - Z.T) / lengthscale
    return (1 + r + r**2 / 3) * np.exp(-r)


def parts():
    """Covariances at the inputs: of the shared processes ``(Q, M, M)`` and of those of each output ``(P, M, M)``."""
    shared = np.stack([matern(0.9 * factor) for factor in HYPER["shared_factor"]])
    own = np.stack([v * matern(0.9 * factor) for v, factor in zip(HYPER["own"], HYPER["own_factor"])])
    return shared, own


def joint(model, values, hyper, X, output, y):
    """Log density at points of both sites, without the prior of the hyper-parameters."""
    found = log_density(model, (X, output, y), {"Z": Z}, {**hyper, **values})[0]
    with handlers.seed(rng_seed=0), handlers.substitute(data={**hyper, **values}):
        trace = handlers.trace(model).get_trace(X, output, y, Z=Z)
    return found - sum(jnp.sum(trace[name]["fn"].log_prob(value)) for name, value in hyper.items())


@pytest.mark.long
def test_the_evidence_is_that_of_the_covariance_typed_out():
    """With inducing inputs at all inputs the density is Gaussian in the whitened values, which leave by its curvature.

    A missing process of an output, or outputs without covariance, is off by more than 0.1.
    """
    sizes = {"g": (2, 3), "h": (2, 3)}
    split = lambda v: {name: v[6 * n : 6 * n + 6].reshape(size) for n, (name, size) in enumerate(sizes.items())}  # noqa: E731
    hyper = {name: jnp.asarray(value) for name, value in {**HYPER, "noise": NOISE}.items()}
    at = jax.jit(lambda v: joint(model, split(v), hyper, jnp.asarray(Z[ROWS]), jnp.asarray(OUTPUT), jnp.asarray(Y)))
    start = jnp.zeros(12)
    value, slope, bend = at(start), jax.grad(at)(start), -jax.hessian(at)(start)
    found = value + 0.5 * slope @ jnp.linalg.solve(bend, slope) + 6 * np.log(2 * np.pi)
    found = found - 0.5 * jnp.linalg.slogdet(bend)[1]

    shared, own = parts()
    mixed = np.einsum("pq,rq,qij->pirj", WEIGHTS, WEIGHTS, shared) + np.einsum("pr,pij->pirj", np.eye(2), own)
    covariance = mixed[OUTPUT[:, None], ROWS[:, None], OUTPUT[None], ROWS[None]] + np.diag(NOISE[OUTPUT] ** 2)
    np.testing.assert_allclose(found, stats.multivariate_normal(np.zeros(5), covariance).logpdf(Y), atol=1e-3)


@pytest.mark.long
def test_outputs_of_different_likelihoods_have_their_own_terms():
    """Expectations in closed form at marginals typed out, at new inputs; a likelihood at the other's rows is 1 off."""
    rng, X = np.random.default_rng(0), np.array([[-0.6], [0.5], [-0.3], [0.8]])
    values, output = {"g": rng.normal(size=(2, 3)), "h": rng.normal(size=(2, 3))}, np.array([0, 1, 1, 0])
    y = np.array([0.3, 2.0, 1.0, -0.5])
    hyper = {**HYPER, "noise": np.array(0.4)}
    found = joint(measured_and_counted, values, hyper, jnp.asarray(X), jnp.asarray(output), jnp.asarray(y))

    def marginal(K, kernel, v):
        factor = np.linalg.cholesky(K + 1e-6 * np.mean(np.diag(K)) * np.eye(3))
        solved = np.linalg.solve(factor, kernel)
        return solved.T @ v, K[0, 0] - np.sum(solved**2, axis=0)

    def cross(lengthscale):
        r = np.sqrt(5) * np.abs(Z - X.T) / lengthscale
        return (1 + r + r**2 / 3) * np.exp(-r)

    shared, own = parts()
    of_g = [marginal(K, cross(0.9 * s), v) for K, s, v in zip(shared, HYPER["shared_factor"], values["g"])]
    of_h = [
        marginal(K, scale * cross(0.9 * s), v)
        for K, scale, s, v in zip(own, HYPER["own"], HYPER["own_factor"], values["h"])
    ]
    wanted = sum(stats.norm.logpdf(v).sum() for v in values.values())
    for n, p in enumerate(output):
        mean = sum(w * m[n] for w, (m, _) in zip(WEIGHTS[p], of_g)) + of_h[p][0][n]
        variance = sum(w**2 * s[n] for w, (_, s) in zip(WEIGHTS[p], of_g)) + of_h[p][1][n]
        measured = stats.norm.logpdf(y[n], mean, 0.4) - variance / (2 * 0.4**2)
        counted = y[n] * mean - np.exp(mean + variance / 2) - np.log([1.0, 1.0, 2.0][int(y[n]) if p else 0])
        wanted += counted if p else measured
    np.testing.assert_allclose(found, wanted, rtol=1e-8)


@pytest.mark.long
def test_each_likelihood_is_predicted():
    """The engine of the gallery's recipe holds both, and each site has its prediction: a count has the mean of one."""
    draws = {name: jnp.asarray(value)[None] for name, value in {**HYPER, "noise": np.array(0.4)}.items()}
    draws |= {"g": jnp.zeros((1, 2, 3)), "h": jnp.zeros((1, 2, 3))}
    posterior = ngp.Posterior.from_mcmc(measured_and_counted, draws)
    X, output = jnp.asarray(Z), jnp.array([0, 1, 0])
    measured, counted = (
        posterior.predict(jax.random.key(0), X, output, Z=Z, site=name) for name in ("measured", "counted")
    )
    np.testing.assert_allclose(measured.variance, measured.function_variance + 0.4**2, rtol=1e-10)
    np.testing.assert_allclose(counted.mean, np.exp(0.5 * counted.function_variance), rtol=1e-6)
