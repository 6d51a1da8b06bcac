"""A cure that a verdict prints is applied to the fit that it was printed for, and the finding goes."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO, init_to_value
from numpyro.infer.autoguide import AutoDelta

import numpyro_gp as ngp
from numpyro_gp.beliefs.gaussian_data import GaussianData
from tests.criticism import faults
from tests.criticism.faults import CURVE, NOISE, RATE, X, Z, around, posterior, y
from tests.precision import x64


def verdict(fit, *data, **keywords):
    with jax.numpy_rank_promotion("allow"):
        return {one.fault: one for one in ngp.diagnose.verdict(fit, *data, key=jax.random.key(0), **keywords)}


def by_exact(kernel, noise, inducing, jitter, X, y):
    """A fit of a model with one process of known hyper-parameters, by its exact belief."""
    basis = ngp.beliefs.Basis.build(kernel, inducing, jitter)
    data = GaussianData.build(basis, X, jnp.asarray(noise**2, X.dtype))
    mean, factor, _ = data.optimum(y / data.scale)

    def guide(X, y=None, *, Z):
        numpyro.sample("f", ngp.Belief(ngp.beliefs.Coupled(mean, factor)))

    model = seen_by(ngp.likelihoods.Gaussian(noise), kernel, jitter=jitter)
    return verdict(ngp.Posterior.from_svi(model, guide, {}), X, y, Z=inducing)


def seen_by(likelihood, kernel, **options):
    """A process of known hyper-parameters, and this likelihood."""

    def model(X, y=None, *, Z):
        f = ngp.gp("f", kernel, inducing=Z, **options)
        with numpyro.plate("data", X.shape[0]):
            ngp.observe("y", f(X), likelihood, obs=y)

    return model


def cured(model, y):
    """What a verdict finds after a fit of another model."""
    svi = SVI(model, ngp.AutoGP(model), optax.adam(0.05), Trace_ELBO())
    params = ngp.fit(jax.random.key(0), svi, 400, X, jnp.asarray(y), Z=Z, progress=False).params
    return verdict(ngp.Posterior.from_svi(model, svi.guide, params), X, jnp.asarray(y), Z=Z)


@pytest.mark.long
def test_more_inducing_inputs_are_as_many_as_are_said_to_be_enough():
    kernel = faults.kernel(0.8, 1.0)
    few = verdict(posterior(Z=Z / 3 - 2), X, y, Z=Z / 3 - 2)
    assert "ngp.inducing.enough(kernel, X)" in few["inducing inputs"].cure
    points = ngp.inducing.greedy_variance(kernel, X, ngp.inducing.enough(kernel, X))
    assert "inducing inputs" not in verdict(posterior(Z=points), X, y, Z=points)


@pytest.mark.long
@pytest.mark.parametrize("precision", [32, 64])
def test_what_a_jitter_leaves_is_no_matter_of_inducing_inputs(precision):
    """Noise that is a 500th of the signal in float32, a 2000th in float64: more inducing inputs would not help."""
    noise = 2e-3 if precision == 32 else 5e-4
    calm = np.asarray(CURVE) + noise * np.random.default_rng(0).standard_normal(len(X))

    def found(jitter=None):
        dtype = jnp.asarray(0.0).dtype
        kernel = ngp.kernels.RBF(jnp.asarray(0.8, dtype), jnp.asarray(0.7 if precision == 32 else 1.0, dtype))
        points = jnp.asarray(np.linspace(-3, 3, 20)[:, None], dtype)
        return by_exact(kernel, noise, points, jitter, jnp.asarray(X, dtype), jnp.asarray(calm, dtype))

    with x64(precision == 64):
        first = found()
    assert "inducing inputs" not in first
    assert ("float64" if precision == 32 else "jitter=1e-9") in first["jitter"].cure
    with x64(True):
        assert "jitter" not in (found() if precision == 32 else found(1e-9))


def wiggly(X, y=None):
    """The default priors, whose medians are far from a fast wave."""
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0))
    noise = numpyro.sample("noise", dist.LogNormal(-1.0, 1.0))
    ngp.gp_regression("y", ngp.kernels.RBF(1.0, lengthscale), X, noise_variance=noise**2, obs=y)


@pytest.mark.long
def test_a_process_without_inducing_inputs_is_told_to_start_from_a_shorter_lengthscale():
    wave = jnp.sin(9 * X[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(len(X))

    def fit(start):
        rest = AutoDelta(wiggly, init_loc_fn=init_to_value(values={"lengthscale": start, "noise": 0.5}))
        svi = SVI(wiggly, rest, optax.adam(0.05), Trace_ELBO())
        params = ngp.fit(jax.random.key(0), svi, 300, X, wave, progress=False).params
        return verdict(ngp.Posterior.from_svi(wiggly, rest, params), X, wave)

    stuck = fit(2.0)["residuals follow the inputs"].cure
    assert stuck.startswith("start from a shorter lengthscale")
    assert "inducing" not in stuck
    assert fit(0.2) == {}


def test_a_belief_that_is_not_trained_is_told_to_train_and_where_inputs_lack_to_take_more():
    """The finding is the same, and its cure follows from what is known of the process."""
    unlearnt = posterior(f=jnp.zeros((faults.DRAWS, len(Z))), noise=around(0.75))
    assert "inducing" not in verdict(unlearnt, X, y, Z=Z)["residuals follow the inputs"].cure
    lacking = posterior(Z=Z[:4], noise=around(0.75))
    assert "more inducing inputs" in verdict(lacking, X, y, Z=Z[:4])["residuals follow the inputs"].cure


@pytest.mark.long
def test_few_inducing_inputs_that_keep_a_lengthscale_long_are_to_be_more():
    """They leave less than 1 % of the variance at the lengthscale that they caused; `enough` said that they suffice."""
    kernel, four = ngp.kernels.RBF(0.8, 2.1), jnp.linspace(-3.0, 3.0, 4)[:, None]
    found = by_exact(kernel, 0.7, four, None, X, y)
    assert "inducing inputs" not in found
    cure = found["residuals follow the inputs"].cure
    assert cure.startswith("take more inducing inputs, 16, and start from a shorter lengthscale")
    more = jnp.linspace(-3.0, 3.0, 16)[:, None]
    assert "residuals follow the inputs" not in by_exact(ngp.kernels.RBF(0.8, 1.0), NOISE, more, None, X, y)


@pytest.mark.long
def test_counts_that_vary_more_have_another_likelihood_and_only_counts_are_told_so():
    rng = np.random.default_rng(1)
    scattered = rng.poisson(RATE * rng.gamma(0.7, 1 / 0.7, len(X))).astype(float)
    with jax.numpy_rank_promotion("allow"):
        poisson = faults.posterior_of_counts(scattered)
    assert "NegativeBinomial" in verdict(poisson, X, scattered, Z=Z)["calibration"].cure
    assert "NegativeBinomial" not in verdict(posterior(noise=around(0.9)), X, y, Z=Z)["calibration"].cure
    other = seen_by(ngp.likelihoods.NegativeBinomial(0.7), faults.kernel(0.5, 1.0), mean=1.5)
    assert "calibration" not in cured(other, scattered)


@pytest.mark.long
def test_outliers_have_a_likelihood_of_their_own():
    heavy = jnp.asarray(CURVE + NOISE * np.random.default_rng(5).standard_t(1.5, len(X)))
    cure = verdict(posterior(y=heavy, noise=around(0.6)), X, heavy, Z=Z)["residuals not normal"].cure
    assert "ngp.likelihoods.StudentT" in cure
    other = seen_by(ngp.likelihoods.StudentT(1.5, NOISE), faults.kernel(0.8, 1.0))
    assert "residuals not normal" not in cured(other, heavy)
