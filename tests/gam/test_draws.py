"""What draws of a fit mean: their densities, and which distribution of the terms stands beside them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import numpyro_gp as ngp
from numpyro_gp.gam.answers.draws import GuideNormal, guide_draws, guide_normal_of
from numpyro_gp.gam.model.features import TermFeatures

RNG = np.random.default_rng(0)
DATA = {"x": RNG.normal(size=30), "z": RNG.normal(size=30), "n": RNG.poisson(2.0, 30), "y": RNG.normal(size=30)}


@pytest.mark.long
def test_draws_have_the_distribution_of_the_fit_and_its_density():
    """By mean and deviation over 4000 draws; the ratio is that of densities by SciPy."""
    model = ngp.gam.model("y ~ linear(x)", DATA)
    root = np.array([[0.3, 0.0], [0.2, 0.1]])
    free = GuideNormal(np.array([0.1, -0.2]), root)
    found = guide_draws(model, jax.random.key(0), free, 4000)
    logs = np.log(np.column_stack([found.values["f_scale"][:, 0], found.values["noise"]]))
    np.testing.assert_allclose(logs.mean(axis=0), free.loc, atol=5 * 0.3 / np.sqrt(4000))
    np.testing.assert_allclose(np.cov(logs.T), root @ root.T, atol=0.01)
    prior = stats.halfnorm(0, model.start.size).logpdf(np.exp(logs[:, 0])) + logs[:, 0]
    prior = prior + stats.norm(np.log(model.start.noise), 1.0).logpdf(logs[:, 1])
    fit = stats.multivariate_normal(free.loc, root @ root.T).logpdf(logs)
    np.testing.assert_allclose(found.log_density, prior - fit, rtol=1e-5, atol=1e-5)
    other = guide_draws(model, jax.random.key(1), free, 4000)
    assert np.abs(np.corrcoef(other.values["noise"], found.values["noise"])[0, 1]) < 5 / np.sqrt(4000)


def test_parameters_of_other_guides_are_no_normal_distribution():
    model = ngp.gam.model("y ~ linear(x)", DATA)
    joint = {"auto_loc": np.zeros(2), "auto_scale_tril": np.eye(2)}
    assert guide_normal_of(model, joint).root.tolist() == np.eye(2).tolist()
    names = ("f_scale", "noise")
    shapes = {"f_scale": (1,), "noise": ()}
    own = {f"{name}_auto_{kind}": np.ones(shapes[name]) for name in names for kind in ("loc", "scale")}
    assert guide_normal_of(model, own).root.tolist() == np.eye(2).tolist()
    assert guide_normal_of(model, {"noise_auto_loc": np.zeros(())}) is None


@pytest.mark.long
def test_draws_of_a_chain_have_the_numbers_of_all_rows():
    """As a likelihood of one row they were refused."""
    scale = jnp.linspace(0.5, 2.0, 30)
    model = ngp.gam.model("y ~ linear(x)", DATA, ngp.likelihoods.Gaussian(scale))
    posterior = ngp.Posterior.from_mcmc(model, {"f_scale": jnp.ones((3, 1)), "f": jnp.zeros((3, 2))})
    draws = ngp.gam.Fit(model, posterior, None, None, "nuts", 3, (), jax.random.key(0))._draws()
    np.testing.assert_allclose(draws.likelihood.scale, np.tile(scale, (3, 1)))


def test_the_factor_of_a_draw_is_found_with_its_features(monkeypatch):
    """One draw is asked for before there are features; means and covariances are those of factors by themselves."""
    fit, count, factor = ngp.gam("y ~ s(x) + re(g)", DATA | {"g": list("abc") * 10}), [], TermFeatures.factor

    def counted(self, *given):
        count.append(1)
        return factor(self, *given)

    monkeypatch.setattr(TermFeatures, "factor", counted)
    fit.summary()
    assert len(count) == 1
    draws = fit._draws()
    for number, (scales, lengths, own) in enumerate(zip(draws.scales, draws.lengths, draws.term_posteriors)):
        L, said = factor(draws.term_features, scales, lengths), draws.term_posteriors
        covariance = np.linalg.inv(np.eye(len(L)) + L.T @ said.precision @ L)
        np.testing.assert_allclose(own.half.T @ own.half, covariance, rtol=1e-7, atol=1e-9, err_msg=str(number))
        np.testing.assert_allclose(own.mean, covariance @ L.T @ said.shift, rtol=1e-7, atol=1e-9)
    assert len(count) == 1
