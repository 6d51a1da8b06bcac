"""Draws at the training data: the pointwise log likelihood of each kind of site, against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import numpyro_gp as ngp
from numpyro_gp.beliefs import Basis
from numpyro_gp.posterior.draws import PointsAt, log_likelihood
from numpyro_gp.sites import InducingPrior, Observation
from tests.contracts.compositions import Delegating as Delegate
from tests.fits import KERNEL, KEY, X, Y, Z, fit
from tests.oracles.problems import gram

M, N = len(Z), len(X)
NAMES = {"a": KERNEL, "b": ngp.kernels.RBF(0.5, 0.4)}
LOWER = jnp.asarray(np.tril(np.random.default_rng(0).normal(size=(M, M)), -1) * 0.1 + 0.5 * np.eye(M))
FORMS = {
    "coupled": ngp.beliefs.Coupled(jnp.linspace(-1.0, 1.0, M), LOWER),
    "outputs": ngp.beliefs.Coupled(jnp.ones((2, M)), jnp.stack([LOWER, 0.5 * LOWER])),
    "additive": ngp.beliefs.BlockDiagonal(jnp.linspace(-1.0, 1.0, 2 * M), {"a": LOWER, "b": 0.3 * LOWER}),
    "orthogonal": ngp.beliefs.Orthogonal(X[1::4], jnp.ones(3), jnp.ones(M), LOWER),
    "decoupled": ngp.beliefs.Decoupled(X[1::4], jnp.ones(3), 0.1 * LOWER),
}


def held(name, belief, spread=0.1):
    """The posterior of a fixed belief at one of three kinds of site, with noise that is drawn about exp(-1)."""

    def fn(X, y=None):
        noise = numpyro.sample("noise", dist.LogNormal(-1.2, 0.3))
        if name == "additive":
            f = ngp.additive_gp("f", NAMES, {"a": Z, "b": Z})(X)
        else:
            f = ngp.gp("f", KERNEL, Z, outputs=2 if name == "outputs" else None)(X)
        with numpyro.plate("data", X.shape[0]):
            ngp.observe("y", f, ngp.likelihoods.Gaussian(noise), obs=y)

    def guide(X, y=None):
        numpyro.sample("noise", dist.LogNormal(-1.0, spread))
        numpyro.sample("f", ngp.Belief(belief))

    return ngp.Posterior.from_svi(fn, guide, {}), jnp.stack([Y, -Y], axis=-1) if name == "outputs" else Y


@pytest.mark.long
def test_draws_have_the_moments_of_the_belief_or_the_expectations_of_its_function():
    """Whitened values of a belief; where they do not describe it, ``f_n ~ q(f_n)``, and terms average to the bound's."""
    found = held("coupled", FORMS["coupled"])[0].draws(jax.random.key(1), X, Y, num_samples=4000)
    np.testing.assert_allclose(found.latent["f"].mean(0), FORMS["coupled"].mean, atol=5 * 0.6 / np.sqrt(4000))
    np.testing.assert_allclose(np.cov(found.latent["f"].T), LOWER @ LOWER.T, atol=5 * 0.36 * np.sqrt(2 / 4000))
    assert found.latent["noise"].std() > 0
    posterior, _ = held("orthogonal", FORMS["orthogonal"], spread=1e-7)
    found = posterior.draws(jax.random.key(1), X, Y, num_samples=4000)
    assert "f" not in found.latent
    prediction = posterior.predict(KEY, X, num_samples=1)
    mean, variance = (np.asarray(x) for x in (prediction.function_mean, prediction.function_variance))
    terms, noise = np.asarray(found.log_likelihood["y"]), np.exp(-1)
    expected = stats.norm.logpdf(Y, mean, noise) - 0.5 * variance / noise**2
    error = 5 * terms.std(0) / np.sqrt(4000)
    assert (np.abs(terms.mean(0) - expected) < error).all()
    assert (np.abs(stats.norm.logpdf(Y, mean, np.sqrt(variance + noise**2)) - expected) > error).any()


@pytest.mark.long
@pytest.mark.parametrize("name", FORMS)
def test_a_users_belief_is_drawn_from_as_the_one_it_equals(name):
    """Draw for draw: at its mean alone, or at drawn functions in place of values, terms are off by more than 0.1."""
    found = []
    for belief in (FORMS[name], Delegate(FORMS[name])):
        posterior, y = held(name, belief)
        found.append(posterior.draws(jax.random.key(2), X, y, num_samples=20))
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
    prior = InducingPrior("f", Basis.build(KERNEL, Z), (M,))
    points = PointsAt({"a": belief, "b": belief}, KEY, {"a", "b"})
    site = {"type": "sample", "fn": prior, "is_observed": False, "infer": {}, "cond_indep_stack": []}
    a, b = (points({**site, "name": name}) for name in "ab")
    assert jnp.abs(a - b).min() > 1e-6


def test_replicates_of_two_sites_have_noise_of_their_own():
    """Two data sets of one function that is known: with one key for both their replicates are equal."""

    def two(X, y=None):
        f = ngp.gp("f", KERNEL, Z)(X)
        with numpyro.plate("data", X.shape[0]):
            for name in "ab":
                ngp.observe(name, f, ngp.likelihoods.Gaussian(0.1), obs=y)

    found = ngp.Posterior.from_mcmc(two, {"f": jnp.zeros((400, M))}).draws(KEY, X, Y).replicated
    correlation = [np.corrcoef(found["a"][:, n], found["b"][:, n])[0, 1] for n in range(N)]
    assert np.abs(correlation).max() < 5 / np.sqrt(400)


def test_regression_sites_and_ordinary_sites():
    """Only NumPyro's own have new data given the posterior; leaving one out: ``criticism/test_evidence.py``."""

    def both(X, y=None, count=None):
        noise = numpyro.sample("noise", dist.LogNormal(-1.2, 0.3))
        ngp.gp_regression("y", KERNEL, X, noise, obs=y)
        with numpyro.plate("counts", 3):
            numpyro.sample("count", dist.Poisson(2.0), obs=count)

    posterior, count = ngp.Posterior.from_mcmc(both, {"noise": jnp.array([0.1, 0.2])}), jnp.array([1, 2, 4])
    found = posterior.draws(KEY, X, Y, count=count)
    np.testing.assert_allclose(found.log_likelihood["count"][0], stats.poisson.logpmf(count, 2.0))
    assert set(found.replicated) == {"count"}


DRAWN = {
    # Seen, and beyond 0.5 on the right: a density, and a probability in place of the density there.
    "censored": (
        ngp.likelihoods.Censored(ngp.likelihoods.Gaussian(1.0), right=jnp.array([False, True])),
        [2.0, 0.5],
        lambda f: [stats.norm.logpdf(2.0, f[0]), stats.norm.logsf(0.5, f[1])],
    ),
    # An event adds f, a node of weight 0.3 takes 0.3 exp(f) away.
    "pattern": (
        ngp.likelihoods.PointPattern(jnp.array([0.0, 0.3])),
        [1.0, 0.0],
        lambda f: [f[0], -0.3 * np.exp(f[1])],
    ),
    "labels of floating numbers": (
        ngp.likelihoods.Softmax(3),
        [2.0, 0.0],
        lambda f: [f[0, 2] - np.log(np.exp(f[0]).sum()), f[1, 0] - np.log(np.exp(f[1]).sum())],
    ),
}


def test_drawn_values_are_scored_by_the_likelihood():
    """By its own density of data given ``f``, not by that of the distribution it draws from; replicates see one ``f``."""
    key, f = jax.random.key(1), dist.Normal(jnp.array([0.3, -1.0]), jnp.array([0.5, 1.0]))
    for likelihood, y, wanted in DRAWN.values():
        is_softmax = isinstance(likelihood, ngp.likelihoods.Softmax)
        fn = Observation(dist.Normal(jnp.zeros((2, 3)), 1.0).to_event(1) if is_softmax else f, likelihood)
        found = log_likelihood(fn, jnp.asarray(y), key)
        np.testing.assert_allclose(found, wanted(np.asarray(fn.draw_latent(key))), rtol=1e-9)
    fn, y = Observation(f, ngp.likelihoods.Gaussian(0.4)), jnp.array([[0.0, 1.0], [0.5, -1.0]])
    found = log_likelihood(fn, y, key)
    np.testing.assert_allclose(found, [log_likelihood(fn, row, key) for row in y], rtol=1e-12)


def test_data_and_single_outputs_that_are_hidden_are_left_out():
    """Terms of each datum are the sum of its seen outputs, by SciPy; rows without any are not there.

    The variance of ``f`` at points is in the density: ``E log N(y; f, noise)`` would be another number.
    """
    mask = np.random.default_rng(1).random((N, 2)) > 0.4
    mask[0] = False
    y, posterior = np.where(mask, np.stack([Y, -Y], axis=-1), 99.0), fit("outputs")
    found = posterior.draws(KEY, X, jnp.asarray(y), mask)
    L = np.linalg.cholesky(gram(np.asarray(Z), 1.3, 0.8) + 1e-6 * 1.3 * np.eye(M))
    A = np.linalg.solve(L, np.asarray(KERNEL.matrix(Z, X)))
    mean, rest = np.moveaxis(np.asarray(posterior.samples["f"]) @ A, 1, -1), 1.3 - (A**2).sum(0)
    expected = np.where(mask, stats.norm.logpdf(y, mean, np.sqrt(rest + 0.16)[:, None]), 0).sum(-1)
    rows = mask.any(-1)
    np.testing.assert_allclose(found.log_likelihood["y"], expected[:, rows], atol=1e-7)
    np.testing.assert_array_equal(found.observed["y"], np.where(mask, y, np.nan)[rows])
    assert found.replicated["y"].shape == (6, rows.sum(), 2)
    container = posterior.to_arviz(KEY, X, jnp.asarray(y), mask)
    assert 99.0 not in container.observed_data["y"]
    assert "y" not in container.constant_data
    np.testing.assert_array_equal(container.log_likelihood["y_seen"], np.flatnonzero(rows))


@pytest.mark.parametrize(
    ("arguments", "keywords", "message"),
    [
        ((X, Y), {"batch": 4}, "plate 'data' must be over all data, but got 4 of 12"),
        ((X, Y[:8]), {}, "y must be of 12 rows or more, as the plate that reads it, but got 8 rows"),
        ((X, Y), {"Z": X}, "args must be the data of the fit: site 'f'"),
    ],
)
def test_bad_input(arguments, keywords, message):
    with pytest.raises(ValueError, match=message):
        fit("draws").draws(KEY, *arguments, **keywords)


LEVEL = lambda: numpyro.sample("level", dist.Normal(0.0, 3.0))  # noqa: E731
SLOPE = lambda slope: lambda X: 3.0 + slope * X[..., 0]  # noqa: E731
# What data with noise 0.1 say of the function 3 + sin(z) at the inducing inputs.
SAID = ngp.beliefs.Conditional(100 * (3.0 + jnp.sin(Z[:, 0])), 100 * jnp.eye(M))
AVERAGED = [
    pytest.param(SAID, lambda: SLOPE(numpyro.sample("slope", dist.Normal(0.0, 3.0))), id="conditional, sampled slope"),
    pytest.param(SAID, lambda: 3.0, id="conditional, number"),
    pytest.param(FORMS["coupled"], lambda: SLOPE(-2.0), id="coupled, function"),
    pytest.param(FORMS["orthogonal"], LEVEL, id="orthogonal, sampled level"),
    pytest.param(FORMS["decoupled"], lambda: None, id="decoupled"),
    pytest.param(None, LEVEL, id="points, sampled level"),
]


@pytest.mark.long
@pytest.mark.parametrize(("belief", "mean"), AVERAGED)
def test_log_likelihoods_average_to_the_density_of_the_prediction(belief, mean):
    """At the data of the fit ``log mean_s p(y_n | draw s)`` is what `predict` says of them, whatever the mean is."""

    def fn(X, y=None):
        f = ngp.gp("f", KERNEL, Z, mean=mean())
        with numpyro.plate("data", X.shape[0]):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.3), obs=y)

    def guide(X, y=None):
        numpyro.sample("level", dist.Normal(3.0, 0.3))
        numpyro.sample("slope", dist.Normal(-2.0, 0.3))
        numpyro.sample("f", ngp.Belief(belief))

    posterior, rng = ngp.Posterior.from_svi(fn, guide, {}), np.random.default_rng(1)
    if belief is None:
        posterior = ngp.Posterior.from_mcmc(fn, {"level": rng.normal(3.0, 0.3, 300), "f": rng.normal(size=(300, M))})
    prediction = posterior.predict(KEY, X, num_samples=2000)
    y = prediction.mean
    terms = np.asarray(posterior.draws(KEY, X, y, num_samples=2000).log_likelihood["y"])
    np.testing.assert_allclose(np.log(np.exp(terms).mean(0)), prediction.log_density(y), atol=0.2)


def test_hyperparameters_say_where_the_draws_of_a_site_in_a_plate_are():
    """A bare KeyError before."""

    def grouped(X, y=None):
        noise = numpyro.sample("noise", dist.LogNormal(-1.2, 0.3))
        with numpyro.plate("groups", 2):
            u = numpyro.sample("u", dist.Normal(0.0, 1.0))
        with numpyro.plate("data", X.shape[0]):
            numpyro.sample("y", dist.Normal(u[0] + u[1], noise), obs=y)

    posterior = ngp.Posterior.from_mcmc(grouped, {"noise": jnp.ones(3), "u": jnp.zeros((3, 2))})
    found = posterior.hyperparameters(KEY, X, Y)
    assert set(found) == set(jax.tree.map(jnp.mean, found)) == {"noise"}
    with pytest.raises(KeyError, match=r"outside every plate, of \['noise'\], but got 'u', which is in a plate"):
        found["u"]
    assert posterior.draws(KEY, X, Y).latent["u"].shape == (3, 2)
