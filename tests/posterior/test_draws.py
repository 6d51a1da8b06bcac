"""Draws at the training data: the pointwise log likelihood of each kind of site, against SciPy."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from scipy import stats

import numpyro_gp as ngp
from numpyro_gp.beliefs import Basis
from numpyro_gp.criticism.leave_one_out import loo
from numpyro_gp.posterior.draws import PointsAt, leave_one_out, log_likelihood, spread_draws
from numpyro_gp.sites import InducingPrior, Observation
from tests.oracles.build import Delegate
from tests.oracles.problems import gram, regression

PROBLEM = regression()
SPARSE = PROBLEM.X[::3]


def model(X, y=None, Z=SPARSE, batch=None):
    noise = numpyro.sample("noise", dist.LogNormal(-1.2, 0.3))
    f = ngp.gp("f", PROBLEM.kernel, Z)
    numpyro.deterministic("precision", noise**-2)
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
        ngp.observe("y", f(X[idx]), ngp.likelihoods.Gaussian(noise), obs=None if y is None else y[idx])


def fitted(recipe=None, fn=model):
    guide = ngp.AutoGP(fn, {"f": recipe or ngp.guides.coupled()}, rest=AutoNormal)
    svi = SVI(fn, guide, optax.adam(0.05), Trace_ELBO())
    state = svi.init(jax.random.key(0), PROBLEM.X, PROBLEM.y)
    run = jax.jit(lambda s: jax.lax.fori_loop(0, 50, lambda _, t: svi.update(t, PROBLEM.X, PROBLEM.y)[0], s))
    return ngp.Posterior.from_svi(fn, guide, svi.get_params(run(state)))


@pytest.mark.long
def test_points_give_the_predictive_density_not_the_bound(rng):
    """``log N(y; A'v, s + noise)`` typed out; the bound's term ``E log N(y; f, noise)`` is off by more than 0.05."""
    draws = {"f": jnp.asarray(rng.normal(size=(6, len(SPARSE)))), "noise": jnp.asarray(rng.uniform(0.3, 0.5, 6))}
    posterior = ngp.Posterior.from_mcmc(model, draws)
    found = posterior.draws(jax.random.key(0), PROBLEM.X, PROBLEM.y)
    Z, X = np.asarray(SPARSE), np.asarray(PROBLEM.X)
    K = gram(Z, 1.3, 0.8)
    A = np.linalg.solve(np.linalg.cholesky(K + 1e-6 * 1.3 * np.eye(len(Z))), np.asarray(PROBLEM.kernel.matrix(Z, X)))
    mean, rest = np.asarray(draws["f"]) @ A, 1.3 - (A**2).sum(0)
    noise = np.asarray(draws["noise"])[:, None] ** 2
    expected = stats.norm.logpdf(np.asarray(PROBLEM.y), mean, np.sqrt(rest[None] + noise))
    np.testing.assert_allclose(found.log_likelihood["y"], expected, atol=1e-8)
    bound = stats.norm.logpdf(np.asarray(PROBLEM.y), mean, np.sqrt(noise)) - 0.5 * rest[None] / noise
    assert np.abs(bound - expected).max() > 0.05
    np.testing.assert_allclose(found.latent["precision"], noise[:, 0] ** -1, rtol=1e-12)
    np.testing.assert_array_equal(found.latent["f"], draws["f"])
    np.testing.assert_array_equal(found.observed["y"], PROBLEM.y)
    assert found.dims["y"] == ["data"]
    assert found.dims["f"] == ["f_inducing"]
    assert found.replicated["y"].shape == (6, len(X))


@pytest.mark.long
def test_a_belief_is_drawn_from():
    """Moments of the drawn whitened values are those of the belief; its mean alone would have no spread."""
    posterior = fitted()
    found = posterior.draws(jax.random.key(1), PROBLEM.X, PROBLEM.y, num_samples=4000)
    belief = posterior.guide.beliefs(posterior.params)["f"]
    scale = np.asarray(belief.whitened_scale)
    np.testing.assert_allclose(found.latent["f"].mean(0), belief.mean, atol=5 * scale.max() / np.sqrt(4000))
    np.testing.assert_allclose(found.latent["f"].std(0), scale, rtol=0.08)
    covariance = np.asarray(belief.scale_tril @ belief.scale_tril.T)
    np.testing.assert_allclose(np.cov(found.latent["f"].T), covariance, atol=0.1 * scale.max() ** 2)
    assert found.latent["noise"].std() > 0


@pytest.mark.long
def test_decoupled_beliefs_give_the_likelihood_at_drawn_function_values():
    """``f_n ~ q(f_n)``: the mean of ``log N(y; f, noise)`` over draws is the bound's expectation, by SciPy."""
    fixed = numpyro.handlers.substitute(model, data={"noise": jnp.asarray(0.4)})
    fixed = numpyro.handlers.block(fixed, hide=["noise"])

    def plain(X, y=None):
        return fixed(X, y)

    posterior = fitted(ngp.guides.orthogonal(PROBLEM.X[1::3]), plain)
    found = posterior.draws(jax.random.key(1), PROBLEM.X, PROBLEM.y, num_samples=4000)
    assert "f" not in found.latent, "whitened values do not describe a decoupled belief"
    prediction = posterior.predict(jax.random.key(0), PROBLEM.X)
    y, mean, variance = (np.asarray(x) for x in (PROBLEM.y, prediction.function_mean, prediction.function_variance))
    expected = stats.norm.logpdf(y, mean, 0.4) - 0.5 * variance / 0.16
    terms = np.asarray(found.log_likelihood["y"])
    assert (np.abs(terms.mean(0) - expected) < 5 * terms.std(0) / np.sqrt(4000)).all()
    density = stats.norm.logpdf(y, mean, np.sqrt(variance + 0.16))
    assert (np.abs(density - expected) > 5 * terms.std(0) / np.sqrt(4000)).any()


NAMES = {"a": PROBLEM.kernel, "b": ngp.kernels.RBF(0.5, 0.4)}
M = len(SPARSE)
LOWER = jnp.asarray(np.tril(np.random.default_rng(0).normal(size=(M, M)), -1) * 0.1 + 0.5 * np.eye(M))
FORMS = {
    "coupled": ngp.beliefs.Coupled(jnp.linspace(-1.0, 1.0, M), LOWER),
    "outputs": ngp.beliefs.Coupled(jnp.ones((2, M)), jnp.stack([LOWER, 0.5 * LOWER])),
    "additive": ngp.beliefs.BlockDiagonal(jnp.linspace(-1.0, 1.0, 2 * M), {"a": LOWER, "b": 0.3 * LOWER}),
    "orthogonal": ngp.beliefs.Orthogonal(PROBLEM.X[1::4], jnp.ones(3), jnp.ones(M), LOWER),
    "decoupled": ngp.beliefs.Decoupled(PROBLEM.X[1::4], jnp.ones(3), 0.1 * LOWER),
}


def held(name, belief):
    """The posterior of a fixed belief at one of three kinds of site, with noise that is drawn."""

    def fn(X, y=None):
        noise = numpyro.sample("noise", dist.LogNormal(-1.2, 0.3))
        if name == "additive":
            f = ngp.additive_gp("f", NAMES, {"a": SPARSE, "b": SPARSE})(X)
        else:
            f = ngp.gp("f", PROBLEM.kernel, SPARSE, outputs=2 if name == "outputs" else None)(X)
        with numpyro.plate("data", X.shape[0]):
            ngp.observe("y", f, ngp.likelihoods.Gaussian(noise), obs=y)

    def guide(X, y=None):
        numpyro.sample("noise", dist.LogNormal(-1.0, 0.1))
        numpyro.sample("f", ngp.Belief(belief))

    y = jnp.stack([PROBLEM.y, -PROBLEM.y], axis=-1) if name == "outputs" else PROBLEM.y
    return ngp.Posterior.from_svi(fn, guide, {}), y


@pytest.mark.parametrize(
    "name", ["coupled", *(pytest.param(n, marks=pytest.mark.long) for n in FORMS if n != "coupled")]
)
def test_a_users_belief_is_drawn_from_as_the_one_it_equals(name):
    """Draw for draw: at its mean alone, or at drawn functions in place of values, terms are off by more than 0.1."""
    found = []
    for belief in (FORMS[name], Delegate(FORMS[name])):
        posterior, y = held(name, belief)
        found.append(posterior.draws(jax.random.key(2), PROBLEM.X, y, num_samples=20))
    own, other = found
    is_drawn = name not in ("orthogonal", "decoupled")
    assert set(own.latent) == set(other.latent) == {"noise", *(["f"] if is_drawn else [])}
    for group in ("latent", "log_likelihood", "replicated"):
        for site, value in getattr(own, group).items():
            np.testing.assert_allclose(getattr(other, group)[site], value, rtol=1e-6, atol=1e-6)
    assert not is_drawn or own.latent["f"].std(0).min() > 0.05


def test_each_site_draws_with_a_key_of_its_own():
    """Two sites of one belief; with one key for both their points are equal."""
    belief = ngp.beliefs.Coupled(jnp.zeros(M), LOWER)
    prior = InducingPrior("f", Basis.build(PROBLEM.kernel, SPARSE), (M,))
    points = PointsAt({"a": belief, "b": belief}, jax.random.key(0), {"a", "b"})
    a, b = (points({"type": "sample", "name": name, "fn": prior, "is_observed": False, "infer": {}}) for name in "ab")
    assert jnp.abs(a - b).min() > 1e-6


def test_leave_one_out_of_exact_regression(rng):
    """Each datum left out by hand, in NumPy."""
    covariance = gram(np.asarray(PROBLEM.X), 1.3, 0.8) + 0.1 * np.eye(len(PROBLEM.y))
    y = np.asarray(PROBLEM.y)
    mean, variance = leave_one_out(0.3 + jnp.zeros_like(PROBLEM.y), jnp.asarray(covariance), PROBLEM.y)
    for n in range(len(y)):
        rest = np.delete(np.arange(len(y)), n)
        gain = np.linalg.solve(covariance[np.ix_(rest, rest)], covariance[rest, n])
        np.testing.assert_allclose(mean[n], 0.3 + gain @ (y[rest] - 0.3), atol=1e-8)
        np.testing.assert_allclose(variance[n], covariance[n, n] - gain @ covariance[rest, n], atol=1e-8)


@pytest.mark.long
def test_regression_sites_and_ordinary_sites():
    """Exact: the leave-one-out density; collapsed: none, because the bound is no density; NumPyro's own: log_prob."""

    def exact(X, y=None, inducing=None, count=None):
        noise = numpyro.sample("noise", dist.LogNormal(-1.2, 0.3))
        ngp.gp_regression("y", PROBLEM.kernel, X, noise, obs=y, inducing=inducing)
        with numpyro.plate("counts", 3):
            numpyro.sample("count", dist.Poisson(2.0), obs=count)

    posterior = ngp.Posterior.from_mcmc(exact, {"noise": jnp.array([0.1, 0.2])})
    count = jnp.array([1, 2, 4])
    found = posterior.draws(jax.random.key(0), PROBLEM.X, PROBLEM.y, count=count)
    covariance = gram(np.asarray(PROBLEM.X), 1.3, 0.8) + 0.2 * np.eye(len(PROBLEM.y))
    mean, variance = leave_one_out(jnp.zeros_like(PROBLEM.y), jnp.asarray(covariance), PROBLEM.y)
    np.testing.assert_allclose(
        found.log_likelihood["y"][1], stats.norm.logpdf(PROBLEM.y, mean, np.sqrt(variance)), atol=1e-7
    )
    np.testing.assert_allclose(found.log_likelihood["count"][0], stats.poisson.logpmf(count, 2.0))
    assert set(found.replicated) == {"count"}
    collapsed = posterior.draws(jax.random.key(0), PROBLEM.X, PROBLEM.y, inducing=SPARSE, count=count)
    assert set(collapsed.log_likelihood) == {"count"}


def test_masked_data_and_local_sites_of_the_training_data():
    hidden = np.arange(len(PROBLEM.y)) < 4

    def latent(X, y=None):
        f = ngp.gp("f", PROBLEM.kernel, SPARSE)
        with numpyro.plate("data", X.shape[0]), numpyro.handlers.mask(mask=~hidden):
            w = ngp.latent_inputs("w", X)
            ngp.observe("y", f(w[:, :1] + w[:, 1:]), ngp.likelihoods.Gaussian(0.3), obs=y)

    w = jnp.linspace(-1.0, 1.0, len(PROBLEM.y))[None, :, None] * jnp.array([0.0, 1.0])[:, None, None]
    draws = {"f": jnp.ones((2, len(SPARSE))), "w": w}
    found = ngp.Posterior.from_mcmc(latent, draws).draws(jax.random.key(0), PROBLEM.X, PROBLEM.y)
    assert found.log_likelihood["y"].shape == (2, (~hidden).sum())
    np.testing.assert_array_equal(found.observed["y"], PROBLEM.y[~hidden])
    np.testing.assert_array_equal(found.rows["y"], np.flatnonzero(~hidden))
    assert found.dims["y"] == ["y_seen"]
    np.testing.assert_array_equal(found.latent["w"], w)
    assert float(jnp.abs(found.log_likelihood["y"][0] - found.log_likelihood["y"][1]).max()) > 0.1


def test_replicates_have_a_term_each():
    """``log E_{p(f_n | v)} p(y_rn | f_n)``: the terms of each row of replicates alone."""

    def replicated(X, y=None):
        f = ngp.gp("f", PROBLEM.kernel, SPARSE)
        with numpyro.plate("data", X.shape[0]), numpyro.plate("replicates", 2, dim=-2):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.4), obs=y)

    values = {"f": jnp.asarray(np.random.default_rng(2).normal(size=(25, len(SPARSE))))}
    y = jnp.stack([PROBLEM.y, 0.5 - PROBLEM.y])
    posterior = ngp.Posterior.from_mcmc(replicated, values)
    found = posterior.draws(jax.random.key(0), PROBLEM.X, y)
    single = ngp.Posterior.from_mcmc(model, values | {"noise": jnp.full(25, 0.4)})
    for row in range(2):
        wanted = single.draws(jax.random.key(0), PROBLEM.X, y[row]).log_likelihood["y"]
        np.testing.assert_allclose(found.log_likelihood["y"][:, row], wanted, rtol=1e-10)
    assert found.dims["y"] == ["replicates", "data"]
    assert found.replicated["y"].shape == (25, 2, len(PROBLEM.y))
    container = posterior.to_arviz(jax.random.key(0), PROBLEM.X, y)
    assert loo(container).pointwise.shape == (2 * len(PROBLEM.y),)


def test_replicates_see_one_drawn_function():
    """Where whitened values do not describe the belief, ``log p(y_rn | f_n)`` is at one draw of ``f_n`` for all ``r``."""
    f = dist.Normal(jnp.array([0.3, -1.0, 0.2]), jnp.array([0.5, 1.0, 0.2]))
    y, key = jnp.array([[0.0, 1.0, 2.0], [0.5, -1.0, 0.2]]), jax.random.key(1)
    fn = Observation(f, ngp.likelihoods.Gaussian(0.4))
    found = log_likelihood(fn, y, key)
    np.testing.assert_allclose(found, [log_likelihood(fn, row, key) for row in y], rtol=1e-12)


@pytest.mark.parametrize(
    ("likelihood", "y", "wanted"),
    [
        # Seen, and beyond 0.5 on the right: a density, and a probability in place of the density there.
        (
            ngp.likelihoods.Censored(ngp.likelihoods.Gaussian(1.0), right=jnp.array([False, True])),
            [2.0, 0.5],
            lambda f: [stats.norm.logpdf(2.0, f[0]), stats.norm.logsf(0.5, f[1])],
        ),
        # An event adds f, a node of weight 0.3 takes 0.3 exp(f) away.
        (
            ngp.likelihoods.PointPattern(jnp.array([0.0, 0.3])),
            [1.0, 0.0],
            lambda f: [f[0], -0.3 * np.exp(f[1])],
        ),
    ],
)
def test_drawn_values_are_scored_by_the_likelihood(likelihood, y, wanted):
    """By its own density of data given ``f``, and not by that of the distribution that it draws data from."""
    f, key = dist.Normal(jnp.array([0.3, -1.0]), jnp.array([0.5, 1.0])), jax.random.key(1)
    fn = Observation(f, likelihood)
    found = log_likelihood(fn, jnp.asarray(y), key)
    np.testing.assert_allclose(found, wanted(np.asarray(fn.draw_latent(key))), rtol=1e-9)


def test_labels_of_floating_numbers_are_scored_at_drawn_values():
    f = dist.Normal(jnp.zeros((2, 3)), jnp.ones((2, 3))).to_event(1)
    fn, key, y = Observation(f, ngp.likelihoods.Softmax(3)), jax.random.key(0), jnp.array([2.0, 0.0])
    drawn = np.asarray(fn.draw_latent(key))
    wanted = [row[int(c)] - np.log(np.exp(row).sum()) for row, c in zip(drawn, y, strict=True)]
    np.testing.assert_allclose(log_likelihood(fn, y, key), wanted, rtol=1e-9)


def pairs(X, y=None, mask=None):
    f = ngp.gp("f", PROBLEM.kernel, SPARSE, outputs=2)
    with numpyro.plate("data", X.shape[0]), numpyro.handlers.mask(mask=True if mask is None else mask):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.4), obs=y)


def test_data_and_single_outputs_that_are_hidden_are_left_out():
    """Terms of each datum are the sum of its seen outputs, by SciPy; rows without any are not there."""
    mask = np.random.default_rng(1).random((len(PROBLEM.y), 2)) > 0.4
    mask[0] = False
    y = np.where(mask, np.stack([PROBLEM.y, -PROBLEM.y], axis=-1), 99.0)
    values = {"f": jnp.asarray(np.random.default_rng(2).normal(size=(6, 2, len(SPARSE))))}
    posterior = ngp.Posterior.from_mcmc(pairs, values)
    found = posterior.draws(jax.random.key(0), PROBLEM.X, jnp.asarray(y), mask)
    Z, X = np.asarray(SPARSE), np.asarray(PROBLEM.X)
    L = np.linalg.cholesky(gram(Z, 1.3, 0.8) + 1e-6 * 1.3 * np.eye(len(Z)))
    A = np.linalg.solve(L, np.asarray(PROBLEM.kernel.matrix(Z, X)))
    mean, rest = np.moveaxis(np.asarray(values["f"]) @ A, 1, -1), 1.3 - (A**2).sum(0)
    expected = np.where(mask, stats.norm.logpdf(y, mean, np.sqrt(rest + 0.16)[:, None]), 0).sum(-1)
    rows = mask.any(-1)
    np.testing.assert_allclose(found.log_likelihood["y"], expected[:, rows], atol=1e-7)
    np.testing.assert_array_equal(found.observed["y"], np.where(mask, y, np.nan)[rows])
    assert found.replicated["y"].shape == (6, rows.sum(), 2)
    container = posterior.to_arviz(jax.random.key(0), PROBLEM.X, jnp.asarray(y), mask)
    assert 99.0 not in container.observed_data["y"]
    assert "y" not in container.constant_data
    np.testing.assert_array_equal(container.log_likelihood["y_seen"], np.flatnonzero(rows))


def test_leave_one_out_of_masked_rows_is_that_of_the_rows_left_out():
    """Four of twelve rows hold fillers: counted, they move the mean over data by a third of it."""
    hidden, filled = np.arange(len(PROBLEM.y)) < 4, PROBLEM.y.at[:4].set(50.0)

    def masked(X, y=None, mask=True):
        f, noise = ngp.gp("f", PROBLEM.kernel, SPARSE), numpyro.sample("noise", dist.LogNormal(-1.2, 0.3))
        with numpyro.plate("data", X.shape[0]), numpyro.handlers.mask(mask=mask):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(noise), obs=y)

    rng = np.random.default_rng(0)
    draws = {"f": jnp.asarray(0.1 * rng.normal(size=(60, len(SPARSE)))), "noise": jnp.full(60, 0.6)}
    posterior = ngp.Posterior.from_mcmc(masked, draws)
    key = jax.random.key(0)
    found = loo(posterior.to_arviz(key, PROBLEM.X, filled, ~hidden))
    wanted = loo(posterior.to_arviz(key, PROBLEM.X[4:], PROBLEM.y[4:]))
    np.testing.assert_allclose([found.elpd, found.standard_error], [wanted.elpd, wanted.standard_error], rtol=1e-9)
    np.testing.assert_allclose(found.pareto_k, wanted.pareto_k, rtol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "keywords", "message"),
    [
        ((PROBLEM.X, PROBLEM.y), {"batch": 4}, "plate 'data' must be over all data, but got 4 of 12"),
        ((PROBLEM.X, PROBLEM.y[:8]), {}, "y must be of 12 rows or more, as the plate that reads it, but got 8 rows"),
        ((PROBLEM.X, PROBLEM.y), {"Z": PROBLEM.X}, "args must be the data of the fit: site 'f'"),
    ],
)
def test_bad_input(arguments, keywords, message):
    posterior = ngp.Posterior.from_mcmc(model, {"f": jnp.zeros((2, len(SPARSE))), "noise": jnp.ones(2)})
    assert "key" in inspect.signature(posterior.draws).parameters
    with pytest.raises(ValueError, match=message):
        posterior.draws(jax.random.key(0), *arguments, **keywords)


@pytest.mark.parametrize(
    ("count", "available", "chains", "expected"),
    [
        (6, 6, 1, [0, 1, 2, 3, 4, 5]),
        (6, 6, 2, [0, 1, 2, 3, 4, 5]),
        (4, 6, 2, [0, 2, 3, 5]),
        (1, 6, 2, [0, 3]),
        (3, 100, 1, [0, 50, 99]),
    ],
)
def test_draws_are_spread_within_each_chain(count, available, chains, expected):
    np.testing.assert_allclose(spread_draws(count, available, chains), expected, atol=0.5)
