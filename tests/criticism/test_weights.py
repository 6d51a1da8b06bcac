"""Importance weights at a known optimum and away from it."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import Trace_ELBO
from scipy import stats

import numpyro_gp as ngp
from numpyro_gp.criticism.weights import importance_resample, importance_weights, whitened_normal
from tests.contracts.compositions import Delegating as Delegate
from tests.fits import KERNEL, KEY, X, Y, Z, exact, fit, known, sparse


def with_belief(belief):
    return ngp.Posterior.from_svi(known, lambda X, y=None: numpyro.sample("f", ngp.Belief(belief)), {})


@pytest.mark.long
def test_weights_at_the_optimum_are_the_bound_itself():
    """Every weight is the bound, for the bound is tight (mathematics.md section 8)."""
    posterior = fit("optimum")
    bound = -Trace_ELBO().loss(KEY, dict(posterior.params), known, posterior.guide, X, Y)
    found = importance_weights(posterior, jax.random.key(1), X, Y, num_samples=200)
    np.testing.assert_allclose(found.log_weights, bound, atol=1e-6)
    assert found.verdict == "good"
    assert f"k = {found.pareto_k:.2f} from 200 draws" in str(found)


@pytest.mark.long
def test_weights_of_a_users_belief():
    """Those of the belief it equals, one by one; a belief that says more than its whitened values is refused."""

    def weights(belief):
        return importance_weights(with_belief(belief), jax.random.key(1), X, Y, num_samples=25).log_weights

    size = len(Z)
    coupled = ngp.beliefs.Coupled(jnp.linspace(0.0, 1.0, size), 0.5 * jnp.eye(size) + 0.1 * jnp.tri(size))
    np.testing.assert_allclose(weights(Delegate(coupled)), weights(coupled), rtol=1e-6)
    for belief in (own := ngp.beliefs.Orthogonal(X[1::4], jnp.ones(3), *jax.tree.leaves(coupled)), Delegate(own)):
        with pytest.raises(TypeError, match="the belief at site 'f' must be a normal distribution of the whitened"):
            weights(belief)


@pytest.mark.long
def test_density_of_whitened_values(rng):
    """Against SciPy, at the moments of `draw_whitened`."""
    v, factor = rng.normal(size=3), np.tril(rng.normal(size=(3, 3)), -1) + np.diag(rng.uniform(0.5, 1, 3))
    mean, points = jnp.asarray(rng.normal(size=3)), jnp.linspace(0.0, 2.0, 3)[:, None]
    basis = ngp.beliefs.Basis.build(KERNEL, points)
    coupled = ngp.beliefs.Coupled(mean, jnp.asarray(factor))
    expected = stats.multivariate_normal(mean, factor @ factor.T).logpdf(v)
    np.testing.assert_allclose(whitened_normal("f", coupled, basis).log_prob(v), expected)
    field = ngp.beliefs.MeanField(mean, jnp.asarray([0.5, 1.0, 2.0]))
    expected = stats.norm.logpdf(v, mean, [0.5, 1.0, 2.0]).sum()
    np.testing.assert_allclose(whitened_normal("f", field, basis).log_prob(v), expected)
    with pytest.raises(TypeError, match="the belief at site 'f' must be a normal distribution of the whitened"):
        whitened_normal("f", ngp.beliefs.Orthogonal(points + 0.3, jnp.ones(3), mean, jnp.asarray(factor)), basis)


def noise_of(loc, scale):
    """A guide about the noise alone, which needs no training."""
    return lambda *args, **kwargs: numpyro.sample("noise", dist.LogNormal(loc, scale))


def test_resampled_hyperparameters_have_the_moments_of_the_posterior():
    """A guide that is half as wide as it should be, and beside it: mean and sd of the noise by quadrature."""
    grid = np.exp(np.linspace(-5.0, 2.0, 2001))  # of the noise, whose square is the variance in `exact`
    gram = np.asarray(KERNEL(X, X), float)
    log_joint = [
        stats.multivariate_normal(np.zeros(len(Y)), gram + noise * np.eye(len(Y))).logpdf(np.asarray(Y))
        for noise in grid
    ]
    log_joint = np.asarray(log_joint) + stats.norm(-1.2, 0.3).logpdf(np.log(grid))
    weight = np.exp(log_joint - log_joint.max())
    mean, square = (float((weight * value).sum() / weight.sum()) for value in (grid, grid**2))
    log_mean = (weight * np.log(grid)).sum() / weight.sum()
    log_sd = np.sqrt((weight * (np.log(grid) - log_mean) ** 2).sum() / weight.sum())
    narrow = ngp.Posterior.from_svi(exact, noise_of(log_mean + 0.3 * log_sd, 0.8 * log_sd), {})
    found = importance_resample(narrow, KEY, X, Y, num_samples=4000, num_weighed=4000)
    draws, before = (np.asarray(one.hyperparameters(KEY, X, Y, num_samples=4000)["noise"]) for one in (found, narrow))
    sd = np.sqrt(square - mean**2)
    assert abs(draws.mean() - mean) < 0.1 * sd < abs(before.mean() - mean)
    assert abs(draws.std() / sd - 1) < 0.1 < abs(before.std() / sd - 1)
    assert found.kind == "resampled"
    assert found.num_draws == 4000


def test_resampled_values_of_a_process_have_its_posterior():
    """A belief with too wide a spread and another mean becomes that of the dense posterior."""
    coupled = fit("optimum").guide.beliefs(fit("optimum").params)["f"]
    wrong = ngp.beliefs.Coupled(coupled.mean + 0.3 * jnp.diagonal(coupled.scale_tril), 1.3 * coupled.scale_tril)
    found = importance_resample(with_belief(wrong), KEY, X, Y, num_samples=4000, num_weighed=8000)
    v = np.asarray(found.samples["f"])
    assert v.shape == (4000, len(Z))
    sd = np.sqrt(np.diagonal(coupled.scale_tril @ coupled.scale_tril.T))
    np.testing.assert_allclose(v.mean(axis=0) / sd, coupled.mean / sd, atol=0.1)
    np.testing.assert_allclose(v.std(axis=0), sd, rtol=0.1)
    right = fit("optimum").predict(KEY, X + 0.1)
    np.testing.assert_allclose(found.predict(KEY, X + 0.1, num_samples=500).mean, right.mean, atol=0.1)


def test_resampled_draws_are_saved_and_judged(tmp_path):
    """What is stored answers alone; a guide beside the posterior is said to be one, twice."""
    far = ngp.Posterior.from_svi(exact, noise_of(1.5, 0.05), {})
    with pytest.warns(UserWarning, match="Pareto k of the importance weights is"):
        found = importance_resample(far, KEY, X, Y, num_samples=50, num_weighed=200)
    assert "Pareto k" in {one.fault for one in ngp.diagnose.verdict(found, X, Y)}
    found.save(tmp_path / "fit.npz")
    again = ngp.Posterior.load(tmp_path / "fit.npz", exact)
    np.testing.assert_array_equal(again.samples["noise"], found.samples["noise"])
    assert "importance weight" in found.to_arviz(KEY, X, Y).posterior.attrs["sampling"]


def test_weights_are_of_whole_data():
    posterior = ngp.Posterior.from_svi(sparse, noise_of(-1.2, 0.1), {})
    for words, batch, y in (
        ("over all data, but got 6 of", 6, Y),
        ("observed: draws are made at the data", None, None),
    ):
        with pytest.raises(ValueError, match=words):
            importance_weights(posterior, KEY, X, y, batch=batch, num_samples=25)
