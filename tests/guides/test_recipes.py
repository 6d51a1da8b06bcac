"""Recipes declare parameters and start where they say."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
import pytest
from numpyro import handlers
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp
from numpyro_gp.beliefs import Basis
from numpyro_gp.sites import InducingPrior


def prior(outputs=None, dtype=jnp.float64):
    basis = Basis.build(ngp.kernels.RBF(jnp.asarray(1.0, dtype), 1.0), jnp.linspace(0.0, 2.0, 3, dtype=dtype)[:, None])
    return InducingPrior("f", basis, (3,) if outputs is None else (outputs, 3))


@pytest.mark.parametrize("outputs", [None, 2])
def test_the_default_start_is_the_prior(outputs):
    site, own = prior(outputs), {"scale": 0.3, "mean": jnp.arange(3.0)}
    for recipe in (ngp.guides.coupled, ngp.guides.mean_field, ngp.guides.conditional):
        belief = recipe()("f", site)
        assert belief.shape == site.event_shape
        np.testing.assert_allclose(belief.kl(site.basis), 0.0, atol=1e-12)
    plain, natural = (ngp.guides.coupled(**own, natural=natural)("f", prior()) for natural in (False, True))
    np.testing.assert_allclose(natural.mean, plain.mean, rtol=1e-12)
    np.testing.assert_allclose(natural.scale_tril, 0.3 * np.eye(3), rtol=1e-12)


def test_parameters_are_named_after_the_site():
    with handlers.seed(rng_seed=0), handlers.trace() as trace:
        ngp.guides.coupled()("f", prior())
        ngp.guides.coupled(natural=True)("g", prior())
        ngp.guides.mean_field()("h", prior())
    naturals = {"g/ngp:natural_shift", "g/ngp:natural_precision"}
    assert set(trace) == {"f/mean", "f/scale_tril", "h/mean", "h/scale"} | naturals
    axes = {"f/mean": 1, "f/scale_tril": 2, "h/mean": 1, "h/scale": 1}  # those on their left are of plates
    assert {name: trace[name]["kwargs"]["event_dim"] for name in axes} == axes


T_ROWS = jnp.linspace(-1, 1, 25)[:, None]
T_NOISE = 0.1 * np.random.default_rng(0).normal(size=25)
T_VALUES = (jnp.sin(3 * T_ROWS[:, 0]) + T_NOISE).at[jnp.array([4, 12, 20])].add(jnp.array([3.0, -4.0, 5.0]))


def with_outliers(X, y):
    f = ngp.gp("f", ngp.kernels.Matern52(1.0, 0.6), X)
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.StudentT(3.0, 0.1), obs=y)


@pytest.mark.long
def test_conditional_beliefs_of_students_t_arrive_by_short_steps_and_say_where_a_long_one_fails():
    """At fixed hyper-parameters it is the family of `coupled`, whose optimum it finds; outliers say less than nothing."""
    found = {}
    for recipe in (ngp.guides.coupled(natural=True), ngp.guides.conditional()):
        guide = ngp.AutoGP(with_outliers, {"f": recipe})
        svi = SVI(with_outliers, guide, ngp.optim.natural_gradient(optax.adam(0.01), 0.3), Trace_ELBO())
        fit = ngp.fit(jax.random.key(0), svi, 300, T_ROWS, T_VALUES, progress=False)
        found[len(found)] = fit.losses[-1], fit.params
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-8)
    assert np.linalg.eigvalsh(found[1][1]["f/ngp:natural_precision"])[0] < -0.01
    svi = SVI(with_outliers, guide, ngp.optim.natural_gradient(optax.adam(0.01), 1.0), Trace_ELBO())
    with pytest.raises(ngp.NonFiniteLoss, match="the loss is nan"):
        ngp.fit(jax.random.key(0), svi, 50, T_ROWS, T_VALUES, progress=False)
