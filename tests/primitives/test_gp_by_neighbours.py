"""A latent process by neighbours: the exact bound with all of them, one model for minibatches and samplers."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
import pytest
from numpyro import handlers
from numpyro.distributions.kl import kl_divergence
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoDelta
from numpyro.infer.util import log_density
from scipy.special import gammaln, roots_hermitenorm
from scipy.stats import multivariate_normal, norm, poisson

import numpyro_gp as ngp
from tests.precision import x64

RNG = np.random.default_rng(5)
N, VARIANCE, LENGTHSCALE = 20, 1.3, (0.4, 0.7)
X, NEW = RNG.uniform(size=(N, 2)), RNG.uniform(size=(3, 2))
Y = np.sin(6 * X[:, 0]) + 0.1 * RNG.normal(size=N)
EXPOSURE = RNG.uniform(-0.5, 0.5, size=N)
COUNTS = RNG.poisson(np.exp(np.sin(6 * X[:, 0]) + EXPOSURE)).astype(float)
KEY = jax.random.key(0)


def matern(dtype=None):
    return ngp.kernels.Matern52(jnp.asarray(VARIANCE, dtype), jnp.asarray(LENGTHSCALE, dtype))


def gram(rows=X, more=X):
    r = np.sqrt(5 * (((rows[:, None] - more[None]) / LENGTHSCALE) ** 2).sum(axis=-1))
    return VARIANCE * (1 + r + r**2 / 3) * np.exp(-r)


def gaussian(near, y, batch=None):
    with numpyro.plate("data", near.size, subsample_size=batch) as idx:
        f = ngp.gp("f", matern(), near[idx], mean=0.5, jitter=0.0)
        ngp.observe("y", f.at_inducing(), ngp.likelihoods.Gaussian(0.3), obs=y[idx])


def collapsed(near, y):
    return ngp.gp_regression("y", matern(), near, 0.3**2, obs=y, mean=0.5, jitter=0.0)


def counts(near, exposure, y=None, batch=None):
    with numpyro.plate("data", near.size, subsample_size=batch) as idx:
        f = ngp.gp("f", matern(), near[idx], mean=0.2, jitter=1e-8)
        seen = None if y is None else y[idx]
        return ngp.observe("y", f.at_inducing(), ngp.likelihoods.Poisson(), obs=seen, offset=exposure[idx])


@pytest.mark.parametrize("is_double", [True, pytest.param(False, marks=pytest.mark.long)])
def test_pseudo_data_of_gaussian_data_are_these_data_after_one_step(is_double):
    """The bound is then the density of `gp_regression`, for few neighbours and for all."""
    with x64(is_double):
        y = jnp.asarray(Y)
        svi = SVI(gaussian, ngp.AutoGP(gaussian), ngp.optim.natural_gradient(optax.adam(0.1), 1.0), Trace_ELBO())

        @jax.jit
        def run(near):
            state = svi.update(svi.init(KEY, near, y), near, y)[0]
            density = log_density(collapsed, (near, y), {}, {})[0]
            return svi.get_params(state), -svi.evaluate(state, near, y), density

        for count in (5, N - 1):
            params, bound, density = run(ngp.neighbours(jnp.asarray(X), count, others=True))
            precision, shift = (params[f"f/ngp:natural_row_{kind}"] for kind in ("precision", "shift"))
            np.testing.assert_allclose(precision, np.full(N, 0.3**-2), rtol=1e-12 if is_double else 1e-5)
            np.testing.assert_allclose(shift, (Y - 0.5) / 0.3**2, rtol=1e-10 if is_double else 1e-3, atol=1e-4)
            tolerance = 1e-8 if is_double else 1e-4
            np.testing.assert_allclose(bound, density, rtol=tolerance)
        exact = multivariate_normal(np.full(N, 0.5), gram() + 0.09 * np.eye(N)).logpdf(Y)
        np.testing.assert_allclose(bound, exact, rtol=tolerance)


def dense(h, w):
    """Mean and covariance of the process less its mean, given pseudo-data, and its divergence from the prior."""
    prior = gram() + 1e-8 * VARIANCE * np.eye(N)
    cov = np.linalg.inv(np.linalg.inv(prior) + np.diag(w))
    m, solved = cov @ h, np.linalg.solve(prior, cov)
    logs = np.linalg.slogdet(prior)[1] - np.linalg.slogdet(cov)[1]
    return m, cov, 0.5 * (np.trace(solved) + m @ np.linalg.solve(prior, m) - N + logs)


@pytest.mark.long
def test_bound_predictions_and_what_is_left_out_are_those_of_dense_algebra(tmp_path):
    near = ngp.neighbours(jnp.asarray(X), N - 1, others=True)
    args = near, jnp.asarray(EXPOSURE), jnp.asarray(COUNTS)
    guide = ngp.AutoGP(counts)
    svi = SVI(counts, guide, ngp.optim.natural_gradient(optax.adam(0.1)), Trace_ELBO())
    some = ngp.fit(KEY, svi, 200, *args, batch=5, progress=False).params
    fit = ngp.fit(KEY, svi, 40, *args, progress=False)
    for name, value in fit.params.items():  # a row has steps of its own: minibatches end where all data do
        np.testing.assert_allclose(some[name], value, rtol=1e-5)
    h, w = (np.asarray(fit.params[f"f/ngp:natural_row_{kind}"]) for kind in ("shift", "precision"))
    m, cov, divergence = dense(h, w)
    level = m + 0.2 + EXPOSURE
    expected = (COUNTS * level - np.exp(level + np.diag(cov) / 2) - gammaln(COUNTS + 1)).sum()
    np.testing.assert_allclose(-fit.losses[-1], expected - divergence, rtol=1e-6)
    # The optimum: pseudo-data are what the likelihood says.
    rate = np.exp(level + np.diag(cov) / 2)
    np.testing.assert_allclose(w, rate, rtol=1e-6)
    np.testing.assert_allclose(h, COUNTS - rate + rate * m, atol=1e-5)

    posterior = ngp.Posterior.from_svi(counts, guide, fit.params)
    found = posterior.predict_at(KEY, NEW, *args, offset=np.array([0.0, 0.5, 1.0]))
    cross, data = gram(X, NEW), gram() + np.diag(1 / w)
    mean = 0.2 + cross.T @ np.linalg.solve(data, h / w) + [0.0, 0.5, 1.0]
    variance = VARIANCE - (cross * np.linalg.solve(data, cross)).sum(axis=0)
    np.testing.assert_allclose(found.mean, np.exp(mean + variance / 2), rtol=1e-6)

    points, weights = roots_hermitenorm(60)
    outside = np.linalg.inv(data)  # the cavity of a row, by the inverse of the covariance of pseudo-data
    v = 1 / np.diag(outside) - 1 / w
    left = h / w - outside @ (h / w) / np.diag(outside) + 0.2 + EXPOSURE
    rates = np.exp(left[:, None] + np.sqrt(v)[:, None] * points)
    terms = np.log((poisson.pmf(COUNTS[:, None], rates) * weights).sum(axis=1) / np.sqrt(2 * np.pi))
    np.testing.assert_allclose(posterior.draws(KEY, *args, num_samples=2).log_likelihood["y"][1], terms, rtol=1e-4)

    posterior.save(tmp_path / "fit.npz")
    again = ngp.Posterior.load(tmp_path / "fit.npz", counts, ngp.AutoGP(counts), *args)
    np.testing.assert_allclose(again.predict_at(KEY, NEW, *args, offset=0.0).mean, found.mean / np.exp([0, 0.5, 1]))
    with pytest.raises(ValueError, match="offset must be given where the data 'y' have one"):
        posterior.predict_at(KEY, NEW, *args)
    with pytest.raises(TypeError, match="noise_variance must be None of data that"):
        posterior.predict_at(KEY, NEW, *args, offset=0.0, noise_variance=0.1)
    with pytest.raises(ValueError, match="the site 'f' must be a process of inducing inputs"):
        guide.sample_posterior(KEY, fit.params)
    with pytest.raises(ValueError, match=r"the guide must be one of processes with inducing inputs, but got \['f'\]"):
        ngp.pseudo_data(guide, fit.params)
    assert guide.median(fit.params) == {}


@pytest.mark.long
def test_minibatches_average_to_the_whole():
    near = ngp.neighbours(X, 4, others=True)
    args = near, jnp.asarray(EXPOSURE), jnp.asarray(COUNTS)
    belief = ngp.beliefs.PseudoRows(jnp.asarray(RNG.normal(size=N)), jnp.asarray(RNG.uniform(0, 2, size=N)))

    def bound(rows, batch):
        data = {"data": rows, "f": belief.in_plate((len(rows),))}
        own = handlers.substitute(lambda: counts(*args, batch), data=data)
        return log_density(own, (), {}, {})[0]

    some = jax.jit(jax.vmap(lambda rows: bound(rows, 5)))(jnp.asarray(RNG.permutation(N).reshape(-1, 5)))
    np.testing.assert_allclose(some.mean(), jax.jit(lambda: bound(jnp.arange(N), None))(), rtol=1e-10)
    # What `TraceMeanField_ELBO` asks for.
    with numpyro.plate("data", N) as idx, handlers.substitute(data={"f": belief}), handlers.trace() as trace:
        ngp.gp("f", matern(), near[idx])
    prior = trace["f"]["fn"]
    np.testing.assert_allclose(kl_divergence(ngp.Belief(belief.in_plate((N,)), (N,)), prior), -prior.log_prob(belief))


@pytest.mark.long
def test_as_a_point_it_is_a_factor_of_the_gram_matrix_times_whitened_values():
    near = ngp.neighbours(jnp.asarray(X), N - 1, order="given", others=True)
    args, v = (near, jnp.asarray(EXPOSURE), jnp.asarray(COUNTS)), RNG.normal(size=N)
    prior = gram() + 1e-8 * VARIANCE * np.eye(N)
    root = np.linalg.cholesky(prior)

    def expected(v):
        return norm.logpdf(v).sum() + poisson.logpmf(COUNTS, np.exp(root @ v + 0.2 + EXPOSURE)).sum()

    value, slope = jax.jit(jax.value_and_grad(lambda v: log_density(counts, args, {}, {"f": v})[0]))(jnp.asarray(v))
    np.testing.assert_allclose(value, expected(v), rtol=1e-8)
    step = 1e-5 * np.eye(N)[7]
    np.testing.assert_allclose(slope[7], (expected(v + step) - expected(v - step)) / 2e-5, rtol=1e-5)

    posterior = ngp.Posterior.from_mcmc(counts, {"f": np.stack([v, -v])})
    found = posterior.predict_at(KEY, NEW, *args, offset=0.0)
    weights = np.linalg.solve(prior, gram(X, NEW))
    variance = VARIANCE * (1 + 1e-8) - (gram(X, NEW) * weights).sum(axis=0)
    means = [np.exp(0.2 + weights.T @ root @ one + variance / 2) for one in (v, -v)]
    np.testing.assert_allclose(found.mean, np.mean(means, axis=0), rtol=1e-5)


@pytest.mark.long
def test_a_point_may_start_at_medians_of_the_prior():
    """`AutoDelta` does by default: NumPyro samples the prior of the site once more, and an error of Python came of it."""
    near = ngp.neighbours(jnp.asarray(X), 5, others=True)
    svi = SVI(counts, AutoDelta(counts), optax.adam(0.1), Trace_ELBO())
    params = jax.jit(lambda: svi.get_params(svi.init(KEY, near, jnp.asarray(EXPOSURE), jnp.asarray(COUNTS))))()
    assert params["f_auto_loc"].shape == (N,)
    assert np.abs(params["f_auto_loc"]).max() < 1.5  # medians of 15 standard normals each


def test_hidden_data_say_nothing():
    near, seen = ngp.neighbours(X, 5, others=True), np.arange(N) % 4 != 0

    def model(y):
        with numpyro.plate("data", N) as idx:
            f = ngp.gp("f", matern(), near[idx])
            with handlers.mask(mask=jnp.asarray(seen)):
                ngp.observe("y", f.at_inducing(), ngp.likelihoods.Poisson(), obs=y)

    svi = SVI(model, ngp.AutoGP(model), ngp.optim.natural_gradient(optax.adam(0.1), 1.0), Trace_ELBO())
    params = svi.get_params(jax.jit(lambda y: svi.update(svi.init(KEY, y), y)[0])(COUNTS))
    shift, precision = (params[f"f/ngp:natural_row_{kind}"] for kind in ("shift", "precision"))
    assert np.all(precision[seen] > 0.1)
    np.testing.assert_allclose(precision[~seen], 0, atol=1e-7)
    np.testing.assert_allclose(shift[~seen], 0, atol=1e-7)


@pytest.mark.long
def test_two_latent_functions_of_one_likelihood_and_the_process_as_a_value():
    near = ngp.neighbours(jnp.asarray(X), 6, others=True)

    def model(near, y=None):
        with numpyro.plate("data", near.size) as idx:
            f, g = (ngp.gp(name, matern(), near[idx]) for name in "fg")
            ngp.observe("y", (f.at_inducing(), g.at_inducing()), ngp.likelihoods.HeteroscedasticGaussian(), obs=y)
        return f

    guide = ngp.AutoGP(model)
    svi = SVI(model, guide, ngp.optim.natural_gradient(optax.adam(0.1)), Trace_ELBO())
    fit = ngp.fit(KEY, svi, 30, near, jnp.asarray(Y), progress=False)
    assert fit.losses[-1] < fit.losses[0]
    posterior = ngp.Posterior.from_svi(model, guide, fit.params)
    found = posterior.predict_at(KEY, X[:3], near, jnp.asarray(Y))
    assert np.all(np.abs(found.mean - Y[:3]) < 2 * np.sqrt(found.variance))
    f = handlers.substitute(handlers.seed(model, 0), data=guide.beliefs(fit.params))(near, Y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(f))(NEW).mean, f(NEW).mean)


NEAR, RBF = ngp.neighbours(X, 4, others=True), ngp.kernels.RBF(1.0, 0.5)


def opened(near=None, size=N, batch=None, **options):
    with numpyro.plate("data", size, subsample_size=batch) as idx:
        return ngp.gp("f", RBF, (NEAR if near is None else near)[idx], **options)


def masked():
    with handlers.mask(mask=jnp.ones(N, bool)):
        opened()


def weighed():
    with handlers.scale(scale=jnp.ones(N)):
        opened()


def with_belief():
    with handlers.substitute(data={"f": ngp.beliefs.Coupled(jnp.zeros(N), jnp.eye(N))}):
        opened()


def scored_in_part():
    log_density(handlers.seed(lambda: opened(batch=5) and None, 0), (), {}, {"f": jnp.zeros(5)})


def guided(model, **recipes):
    return lambda: ngp.AutoGP(model, recipes)()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: opened(ngp.neighbours(X, 4)), "near must be rows with others around them, earlier and later"),
        (lambda: opened(size=N - 1), "the plates around site 'f' must be one of the 20 rows of near"),
        (lambda: ngp.gp("f", RBF, NEAR), "inducing must be the rows of a plate, but got neighbours of all rows"),
        (lambda: ngp.gp("f", RBF, NEAR.find(NEW, 3)), r"inducing must be the rows of the fit, near\[idx\]"),
        (lambda: ngp.gp("f", RBF, NEAR[jnp.arange(3)]), "the plates .* but got no plate"),
        (lambda: opened(outputs=2), "outputs must be None where rows have neighbours, but got 2"),
        (lambda: opened(ngp.neighbours(X, 4, rows=[1, 2], others=True)), "near must be neighbours of all rows, as"),
        (masked, "the mask over site 'f' must be one number"),
        (weighed, r"the scale over site 'f' must be one number.*Put handlers\.scale around ngp\.observe alone"),
        (with_belief, "the belief at site 'f' must be pseudo-data of all 20 rows, but got a Coupled"),
        (scored_in_part, "the rows of site 'f' must be all of them where the process is a point"),
        (lambda: opened().joint(NEW), "the process 'f' must be one with a basis"),
        (guided(lambda: opened(), f=ngp.guides.coupled()), "the recipe of site 'f' must be one of pseudo-data"),
        (
            guided(lambda: ngp.gp("g", RBF, X), g=ngp.guides.pseudo_data()),
            r"the site 'g' of pseudo_data\(\) must be a process whose rows have neighbours",
        ),
        (
            lambda: ngp.gp_regression("y", RBF, NEAR, 0.1, obs=Y).at_inducing(),
            r"the process must be one made by gp\(\)",
        ),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        handlers.seed(call, 0)()
