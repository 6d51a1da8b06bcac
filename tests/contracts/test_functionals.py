"""Functionals are rows: what cuts, streams, predicts and keeps rows does so with slopes and averages."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO
from numpyro_gp.functionals import Values, stack

import numpyro_gp as ngp
from numpyro_gp.kernels import RBF, Matern52
from numpyro_gp.kernels.functionals import Average, Derivative, covariance

KEY = jax.random.key(0)
X = jnp.linspace(-1.0, 1.0, 6)[:, None]
ROWS = stack([X, Derivative(X, 0), Average(jnp.stack([X, X + 0.3], axis=1))])
Y = ROWS.of(lambda X: jnp.sin(3 * X[..., 0]))
Z = stack([X[::2], Derivative(X[::3], 0)])
PLAIN = lambda A, B: Matern52(1.0, 0.7).matrix(A, B)  # noqa: E731  a kernel without features


def model(rows, y=None, *, kernel=None, batch=None):
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.3))
    f = ngp.gp("f", kernel or RBF(1.0, scale), Z)
    with numpyro.plate("data", rows.shape[0], subsample_size=batch) as idx:
        ngp.observe("y", f(rows[idx]), ngp.likelihoods.Gaussian(0.2), obs=None if y is None else y[idx])


@pytest.fixture(scope="module")
def fit():
    guide = ngp.AutoGP(model)
    svi = SVI(model, guide, optax.adam(0.02), Trace_ELBO())
    result = ngp.fit(KEY, svi, 30, ROWS, Y, batch=9, progress=False)
    assert result.losses[-10:].mean() < result.losses[:10].mean()
    return guide, svi, result.params, ngp.Posterior.from_svi(model, guide, result.params)


@pytest.mark.long
def test_predictions_are_cut_and_streamed_by_rows(fit):
    posterior = fit[-1]
    whole = posterior.predict(KEY, ROWS)
    cut = posterior.predict(KEY, ROWS, chunk_size=5)
    np.testing.assert_allclose(cut.mean, whole.mean, atol=1e-12)
    np.testing.assert_allclose(cut.log_density(Y), whole.log_density(Y), atol=1e-10)
    streamed = list(posterior.predict(KEY, iter([ROWS[:10], ROWS[10:]])))
    np.testing.assert_allclose(jnp.concatenate([one.mean for one in streamed]), whole.mean, atol=1e-12)


@pytest.mark.long
def test_functions_answer_at_functionals(fit):
    posterior = fit[-1]
    f = posterior.functions(KEY, 3, ROWS, num_features=16)
    np.testing.assert_allclose(f(Derivative(X, 0)), f.gradient(X)[..., 0], atol=1e-9)
    np.testing.assert_allclose(f(ROWS)[:, :6], f(X), atol=1e-9)
    np.testing.assert_allclose(f(ROWS)[:, 12:], 0.5 * (f(X) + f(X + 0.3)), atol=1e-9)
    assert posterior.function_draws(KEY, ROWS, num_samples=2).shape == (2, 18)


@pytest.mark.long
def test_a_kernel_without_features_has_functions_too(fit):
    guide, _, params, _ = fit
    posterior = ngp.Posterior.from_svi(model, guide, params)
    f = posterior.functions(KEY, 2, ROWS, kernel=PLAIN)
    first, slopes = f(X), f(Derivative(X, 0))
    np.testing.assert_array_equal(f(ROWS[:12])[:, 6:], slopes)
    np.testing.assert_array_equal(f(X), first)
    steps = f(Values(X[:2] + 0.2) - X[:2])  # two values less one another, up to the jitter of each
    np.testing.assert_allclose(steps, f(X[:2] + 0.2) - first[:, :2], atol=0.01)


@pytest.mark.long
def test_batches_of_a_stream_hold_functionals(fit):
    _, svi, *_ = fit
    batches = [(ROWS[at], Y[at]) for at in (slice(0, 9), slice(9, 18))]
    result = ngp.fit(KEY, svi, 6, batches=batches, num_data=18, progress=False)
    assert np.all(np.isfinite(result.losses))


@pytest.mark.long
def test_what_was_learnt_about_functionals_is_recalled_and_kept(fit, tmp_path):
    guide, _, params, _ = fit
    past = ngp.pseudo_data(guide, params, ROWS, Y)["f"]
    assert past.inducing.shape == Z.shape
    past.save(tmp_path / "past.npz")
    kept = ngp.PseudoData.load(tmp_path / "past.npz")
    assert jax.tree.structure(kept) == jax.tree.structure(past)

    @jax.jit
    def term(past):
        with numpyro.handlers.trace() as trace, numpyro.handlers.seed(rng_seed=0):
            f = ngp.gp("f", RBF(1.0, 0.8), X)
            ngp.recall("before", f, past)
        joint = f.joint(Z)
        density = trace["before"]["fn"].log_prob(trace["before"]["value"])
        return density, joint.loc, joint.covariance_matrix, jnp.diag(covariance(RBF(1.0, 0.8), Z))

    (found, *joint), again = term(past), term(kept)[0]
    m, S, prior = map(np.asarray, joint)
    S = S - 1e-6 * np.diag(prior)  # less its jitter
    P = np.asarray(past.precision)
    np.testing.assert_allclose(found, past.shift @ m - 0.5 * (m @ P @ m + np.sum(P * S)), rtol=1e-5)
    np.testing.assert_allclose(found, again, rtol=1e-12)


@pytest.mark.long
def test_regression_on_functionals_predicts_them():
    def regression(rows, y):
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.3))
        return ngp.gp_regression("y", RBF(1.0, scale), rows, 0.01, obs=y)

    mcmc = numpyro.infer.MCMC(ngp.NUTS(regression), num_warmup=5, num_samples=2, progress_bar=False)
    mcmc.run(KEY, ROWS, Y)
    posterior = ngp.Posterior.from_mcmc(regression, mcmc)
    found = posterior.predict_at(KEY, ROWS, ROWS, Y, chunk_size=5)
    whole = posterior.predict_at(KEY, ROWS, ROWS, Y)
    np.testing.assert_allclose(found.mean, whole.mean, atol=1e-12)
    np.testing.assert_allclose(found.mean, Y, atol=0.3)
