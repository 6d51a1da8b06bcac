"""The distribution of data: the moments it reads, what it scores, draws and predicts, and values that are known."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import numpyro_gp as ngp
from numpyro_gp.likelihoods.expectations import HERMITE_NODES
from numpyro_gp.sites import Certain, Observation, latents, normal_of
from tests.compiling import counted


def test_latents_of_every_form(rng):
    mean, scale = rng.normal(size=(4, 2)), rng.uniform(0.5, 1.0, (4, 2))
    tuple_form = latents((dist.Normal(mean[:, 0], scale[:, 0]), dist.Normal(mean[:, 1], scale[:, 1])))
    event_form = latents(dist.Normal(jnp.asarray(mean), jnp.asarray(scale)).to_event(1))
    full_form = latents(dist.MultivariateNormal(jnp.asarray(mean), jnp.asarray(scale[..., None] ** 2 * np.eye(2))))
    with counted() as programs:
        known = latents(normal_of(jnp.asarray(mean), jnp.asarray(scale)))
    assert programs.count == 0
    assert isinstance(known.variance, jax.Array)
    for form in (tuple_form, event_form, full_form, known):
        np.testing.assert_allclose(form.mean, mean)
        np.testing.assert_allclose(form.variance, scale**2)
    assert tuple_form.covariance is None
    assert full_form.covariance.shape == (4, 2, 2)


def test_moments_that_are_no_number_are_refused_where_they_are_known():
    with numpyro.validation_enabled():
        for moments, name in (((jnp.nan, 1.0), "loc"), ((0.0, -1.0), "scale")):
            with pytest.raises(ValueError, match=f"Normal distribution got invalid {name} parameter"):
                normal_of(*map(jnp.asarray, moments))


def test_an_observation_draws_from_its_predictive():
    """Perfectly correlated functions too, one three times the other: a factor without a floor is NaN."""
    likelihood = ngp.likelihoods.HeteroscedasticGaussian()
    f = dist.MultivariateNormal(jnp.array([0.5, -0.2]), scale_tril=jnp.array([[0.5, 0.0], [1.5, 1e-9]]))
    drawn = Observation(f, likelihood).draw_latent(jax.random.key(0), (500,))
    np.testing.assert_allclose(drawn[:, 1] + 0.2, 3 * (drawn[:, 0] - 0.5), atol=1e-6)
    assert 0.4 < float(drawn[:, 0].std()) < 0.6
    f = dist.MultivariateNormal(jnp.array([0.5, -0.2]), jnp.array([[0.6, 0.4], [0.4, 0.5]]))
    seen = Observation(f, likelihood)
    draws = seen.sample(jax.random.key(0), (40000,))
    np.testing.assert_allclose(draws.mean(), seen.mean, atol=0.03)
    np.testing.assert_allclose(draws.var(), seen.variance, rtol=0.05)


def test_several_outputs_with_a_scalar_likelihood_are_one_event(rng):
    f = dist.Normal(jnp.asarray(rng.normal(size=(4, 3))), 0.5).to_event(1)
    seen = Observation(f, ngp.likelihoods.Gaussian(0.2))
    assert (seen.batch_shape, seen.event_shape) == ((4,), (3,))
    y = jnp.zeros((4, 3))
    alone = Observation(dist.Normal(f.base_dist.loc, 0.5), ngp.likelihoods.Gaussian(0.2)).log_prob(y)
    np.testing.assert_allclose(seen.log_prob(y), alone.sum(-1), rtol=1e-13)


SEEN = [
    (ngp.likelihoods.Gaussian(0.3), np.array([0.1, -2.0, 9.0])),
    (ngp.likelihoods.StudentT(4.0, 0.3), np.array([0.1, -2.0, 9.0])),
    (ngp.likelihoods.Bernoulli("probit"), np.array([1, 0, 1])),
    (ngp.likelihoods.Ordinal(jnp.array([-1.0, 0.5])), np.array([0, 1, 2])),
]


@pytest.mark.parametrize(("likelihood", "y"), SEEN, ids=lambda x: type(x).__name__)
def test_values_that_are_known_are_scored_without_quadrature(likelihood, y):
    """``log p(y | f)``, which is the limit of the expectation at variance zero; far in the tails too."""
    f = jnp.array([-6.0, 0.3, 7.0])
    seen = Observation(Certain(f), likelihood)
    wanted = Observation(dist.Normal(f, 1e-9), likelihood).log_prob(jnp.asarray(y))
    np.testing.assert_allclose(jax.jit(seen.log_prob)(jnp.asarray(y)), wanted, rtol=1e-7, atol=1e-9)
    program = str(jax.make_jaxpr(seen.log_prob)(jnp.asarray(y)))
    assert f"3,{HERMITE_NODES}]" not in program
    again = jax.jit(lambda one: one)(seen)
    assert again.is_certain


def test_known_values_of_several_functions_and_in_float32():
    f = jnp.array([[0.1, 2.0, -1.0], [3.0, 0.0, 0.5]], jnp.float32)
    seen = Observation(Certain(f).to_event(1), ngp.likelihoods.Softmax(3)).log_prob(jnp.array([1, 2]))
    np.testing.assert_allclose(seen, jax.nn.log_softmax(f)[jnp.arange(2), jnp.array([1, 2])], rtol=1e-6, atol=5e-7)
    assert Observation(Certain(f[0]), ngp.likelihoods.Gaussian(0.5)).log_prob(np.zeros(3)).dtype == jnp.float32
    with numpyro.validation_enabled():
        assert Certain(jnp.ones(2)).variance.tolist() == [0.0, 0.0]


def test_bad_values():
    normal = dist.Normal(jnp.zeros(3), 1.0)
    for call, message in (
        (lambda: latents(jnp.zeros(3)), r"f must be a Normal.*Call the process at inputs first: ngp.observe"),
        (lambda: Observation(normal, ngp.likelihoods.Softmax(3)), "3 latent functions"),
        (lambda: Observation(dist.Normal(jnp.zeros((5, 2)), 1.0).to_event(1), ngp.likelihoods.Softmax(3)), "outputs=3"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            call()


def test_an_observation_scores_the_expectation_and_predicts_the_integral(rng):
    mean, scale, y = rng.normal(size=4), rng.uniform(0.3, 1.0, 4), rng.normal(size=4)
    seen = Observation(dist.Normal(jnp.asarray(mean), jnp.asarray(scale)), ngp.likelihoods.Gaussian(0.5))
    expected = stats.norm.logpdf(y, mean, 0.5) - 0.5 * scale**2 / 0.25
    np.testing.assert_allclose(seen.log_prob(jnp.asarray(y)), expected, rtol=1e-12)
    np.testing.assert_allclose(
        seen.predictive_log_prob(jnp.asarray(y)), stats.norm.logpdf(y, mean, np.sqrt(0.25 + scale**2))
    )
    np.testing.assert_allclose(seen.mean, mean)
    np.testing.assert_allclose(seen.variance, 0.25 + scale**2)
