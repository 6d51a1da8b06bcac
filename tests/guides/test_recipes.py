"""Recipes declare parameters and start where they say."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro import handlers
from numpyro.distributions.transforms import biject_to
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal, AutoNormal
from scipy.stats import multivariate_normal

import numpyro_gp as ngp
from numpyro_gp.guides.natural import NATURAL_MARK, lower_factor
from tests.guides.test_decoupled import prior
from tests.precision import x64


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


@pytest.mark.parametrize("shape", [(4, 4), (2, 3, 3)])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_round_trip_in_the_same_precision(rng, shape, dtype):
    free = jnp.asarray(rng.normal(size=shape), dtype)
    transform = biject_to(lower_factor)
    factor = transform(free)
    assert factor.dtype == dtype
    assert bool(jnp.all(lower_factor(factor)))
    np.testing.assert_allclose(
        np.diagonal(factor, axis1=-2, axis2=-1), np.log1p(np.exp(np.diagonal(free, axis1=-2, axis2=-1))), rtol=1e-5
    )
    np.testing.assert_allclose(transform(transform._inverse(factor)), factor, rtol=1e-4, atol=1e-6)
    for way, given in ((transform, free), (transform._inverse, factor)):  # NumPy's, and that of a program
        compiled = jax.jit(lambda x, way=way: way(x))(given)
        np.testing.assert_allclose(way(given), compiled, rtol=32 * jnp.finfo(dtype).eps)


def test_what_is_no_factor():
    assert not bool(lower_factor(jnp.array([[1.0, 0.5], [0.0, 1.0]])))
    assert not bool(lower_factor(jnp.array([[1.0, 0.0], [0.3, -1.0]])))


@pytest.mark.long
def test_single_precision_factors_train_while_double_is_on():
    """NumPyro's own constraint raises a TypeError here."""
    X = jnp.linspace(0.0, 1.0, 6, dtype=jnp.float32)[:, None]

    def model(X, y):
        f = ngp.gp("f", ngp.kernels.RBF(jnp.float32(1.0), jnp.float32(0.5)), X[:3])
        with numpyro.plate("data", 6):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(jnp.float32(0.3)), obs=y)

    svi = SVI(model, ngp.AutoGP(model), optax.adam(0.1), Trace_ELBO())
    state, _ = svi.update(svi.init(jax.random.key(0), X, X[:, 0]), X, X[:, 0])
    assert svi.get_params(state)["f/scale_tril"].dtype == jnp.float32


# ------------------------------------------------------------------------------- pseudo-data that move with other sites


def added_model(X, t, y=None):
    """An intercept and a coefficient beside a process, all of a normal posterior."""
    level, slope = numpyro.sample("level", dist.Normal(1.0, 1.0)), numpyro.sample("slope", dist.Normal(0.0, 2.0))
    f = ngp.gp("f", ngp.kernels.Matern52(0.8, 0.9), inducing=X)
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.4), obs=y, offset=level + slope * t)


@pytest.mark.long
@pytest.mark.parametrize("is_single", [True, False])
def test_joint_pseudo_data_of_what_is_added_to_a_process_are_exact(is_single):
    """At the closed form each draw of the bound is the evidence, and predictions have the moments of dense algebra."""
    rng = np.random.default_rng(4)
    x, t = rng.uniform(-2, 2, 20), rng.normal(size=20)
    y = np.sin(2 * x) + 1.0 + 0.5 * t + 0.4 * rng.normal(size=20)
    design, prior = np.column_stack([np.ones(20), t]), np.diag([1.0, 4.0])
    with x64(not is_single):
        X = jnp.asarray(x)[:, None]
        gram = np.asarray(ngp.kernels.Matern52(0.8, 0.9).matrix(X), float)
        whole = gram + 0.16 * np.eye(20) + design @ prior @ design.T
        gain = prior @ design.T @ np.linalg.inv(whole)
        mean, covariance = np.array([1.0, 0.0]) + gain @ (y - 1.0), prior - gain @ design @ prior
        guide = ngp.AutoGP(added_model, {"f": ngp.guides.conditional(joint=True)}, rest=AutoMultivariateNormal)
        optimiser = ngp.optim.natural_gradient(optax.adam(1e-3), 0.1)
        svi = SVI(added_model, guide, optimiser, Trace_ELBO())
        arguments = X, jnp.asarray(t), jnp.asarray(y)
        params = svi.get_params(svi.init(jax.random.key(0), *arguments))
        params |= {"auto_loc": jnp.asarray(mean), "auto_scale_tril": jnp.asarray(np.linalg.cholesky(covariance))}
        params["f/slopes"] = jnp.asarray(design)
        params[f"f{NATURAL_MARK}shift"] = jnp.asarray((y - design @ mean) / 0.16)
        params[f"f{NATURAL_MARK}precision"] = jnp.asarray(np.eye(20) / 0.16)
        params = jax.tree.map(lambda leaf: jnp.asarray(leaf, X.dtype), params)
        losses = [Trace_ELBO().loss(jax.random.key(i), params, added_model, guide, *arguments) for i in range(3)]
        posterior = ngp.Posterior.from_svi(added_model, guide, params)
        found = posterior.predict(jax.random.key(1), X, arguments[1], num_samples=2000)
        with jax.numpy_rank_promotion("allow"):
            draws = guide.sample_posterior(jax.random.key(2), params, *arguments, sample_shape=(4000,))
    evidence = multivariate_normal(np.full(20, 1.0), whole).logpdf(y)
    np.testing.assert_allclose(losses, -evidence, rtol=1e-4 if is_single else 1e-5)
    # The mean of y at the rows: all of the posterior of the process and of what is added to it.
    inner = whole - 0.16 * np.eye(20)
    exact = 1.0 + inner @ np.linalg.solve(whole, y - 1.0)
    spread = np.diag(inner - inner @ np.linalg.solve(whole, inner)) + 0.16
    np.testing.assert_allclose(found.mean, exact, atol=0.02)
    np.testing.assert_allclose(found.variance, spread, rtol=0.05)
    # Of the whitened values alone, which hang together with the level.
    factor = np.linalg.cholesky(gram + 1e-10 * np.eye(20))
    values = np.asarray(draws["f"], float) @ factor.T
    alone = gram - gram @ np.linalg.solve(whole, gram)
    np.testing.assert_allclose(values.std(0), np.sqrt(np.diag(alone)), rtol=0.08)
    assert np.corrcoef(values.mean(1), np.asarray(draws["level"]))[0, 1] < -0.8


@pytest.mark.long
def test_slopes_of_joint_pseudo_data_have_ordinary_gradients():
    """Those of slopes, medians and their factor are what automatic differentiation finds without natural steps."""
    rng = np.random.default_rng(5)
    X, t, y = jnp.asarray(rng.uniform(-2, 2, (8, 1))), jnp.asarray(rng.normal(size=8)), jnp.asarray(rng.normal(size=8))
    natural = ngp.guides.conditional(joint=True)
    found = []
    for recipe in (natural, lambda name, prior: replace(natural(name, prior), is_natural=False)):
        guide = ngp.AutoGP(added_model, {"f": recipe}, rest=AutoMultivariateNormal)
        svi = SVI(added_model, guide, optax.sgd(0.1), Trace_ELBO())
        params = svi.get_params(svi.init(jax.random.key(0), X, t, y))
        half = np.random.default_rng(6).normal(size=(8, 8))
        params |= {"f/slopes": jnp.asarray(half[:, :2]), f"f{NATURAL_MARK}precision": jnp.asarray(half @ half.T)}
        params[f"f{NATURAL_MARK}shift"] = jnp.asarray(half[0])

        def loss(changed, params=params, guide=guide):
            return Trace_ELBO().loss(jax.random.key(3), params | changed, added_model, guide, X, t, y)

        names = ("f/slopes", "auto_loc", "auto_scale_tril")
        found.append(jax.grad(loss)({name: params[name] for name in names}))
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-8), *found)
    assert np.abs(found[0]["f/slopes"]).min() > 1e-3


def test_joint_pseudo_data_need_a_normal_rest():
    guide = ngp.AutoGP(added_model, {"f": ngp.guides.conditional(joint=True)}, rest=AutoNormal)
    with (
        pytest.raises(ValueError, match=r"rest must be AutoMultivariateNormal.*joint=True"),
        numpyro.handlers.seed(rng_seed=0),
    ):
        guide(jnp.zeros((3, 1)), jnp.zeros(3), jnp.zeros(3))
