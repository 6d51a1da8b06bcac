"""Pseudo-data of a fit as a value: what other beliefs say, sums, and files."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import numpyro_gp as ngp
from tests.fits import trained

X = jnp.linspace(-1, 1, 9)[:, None]
Z, Y = X[::2], jnp.sin(3 * X[:, 0])
PAST = ngp.PseudoData(Z, jnp.arange(5.0), 2 * jnp.eye(5))


def model(X, y=None, Z=Z):
    level = numpyro.sample("level", dist.Normal(0.5, 1e-3))
    f = ngp.gp("f", ngp.kernels.Matern52(1.3, 0.7), Z, mean=level)
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.3), obs=y)


def fitted(recipe, model=model):
    posterior = trained(model, recipe, X, Y, steps=1, rate=1e-9)
    return posterior.guide, posterior.params


@pytest.mark.long
def test_a_coupled_fit_says_what_a_conditional_one_does():
    """A mean function that is forgotten moves the shift by 0.5 times the precision."""
    held = ngp.pseudo_data(*fitted(ngp.guides.conditional()))["f"]
    found = ngp.pseudo_data(*fitted(ngp.guides.coupled(natural=True)), X)["f"]
    np.testing.assert_allclose(found.inducing, Z)
    np.testing.assert_allclose(found.precision, held.precision, rtol=1e-5, atol=1e-4 * np.abs(held.precision).max())
    np.testing.assert_allclose(found.shift, held.shift, atol=1e-4 * np.abs(held.shift).max())


@pytest.mark.long
def test_learnt_inducing_inputs_need_the_arguments():
    def learnt(X, y=None):
        return model(X, y, numpyro.param("Z", Z + 0.1))

    guide, params = fitted(ngp.guides.conditional(), learnt)
    with pytest.raises(TypeError, match=r"args must be those of the model.*Pass them after the parameters"):
        ngp.pseudo_data(guide, params)
    np.testing.assert_allclose(ngp.pseudo_data(guide, params, X)["f"].inducing, Z + 0.1, atol=1e-6)


def test_sums_and_files(tmp_path):
    twice = PAST + PAST
    np.testing.assert_allclose(twice.shift, 2 * PAST.shift)
    np.testing.assert_allclose(twice.precision, 2 * PAST.precision)
    PAST.save(tmp_path / "past.npz")
    jax.tree.map(np.testing.assert_array_equal, ngp.PseudoData.load(tmp_path / "past.npz"), PAST)
    with pytest.raises(ValueError, match="the pseudo-data must be at the same inducing inputs"):
        PAST + ngp.PseudoData(Z + 1, PAST.shift, PAST.precision)


@pytest.mark.long
def test_a_belief_is_read_in_the_precision_of_its_fit():
    """The other precision has a factor of another jitter: thirty points of a sine were 0.17 off, not 0.01."""
    guide, params = fitted(ngp.guides.coupled(natural=True))
    single = {name: jnp.asarray(value, jnp.float32) for name, value in params.items()}
    with pytest.raises(TypeError, match="site 'f' must be in the precision of the fit, float32, but got float64"):
        ngp.pseudo_data(guide, single, X, Y)
    with jax.enable_x64(False), pytest.raises(TypeError, match="got one of float64, while jax_enable_x64 is off"):
        ngp.pseudo_data(guide, params, X, Y)
