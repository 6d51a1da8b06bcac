"""Inducing points and neighbours together in minibatches: any belief about what is global, any likelihood."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
import pytest
from numpyro import handlers
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.util import log_density
from scipy.special import gammaln
from scipy.stats import multivariate_normal, norm, poisson

import numpyro_gp as ngp
from numpyro_gp.beliefs.neighbours.pseudo_rows import natural_moments
from tests.precision import x64
from tests.primitives.test_given_both import NEW, POINT, RNG, N, X, Y, Z, gram
from tests.primitives.test_given_both import model as collapsed

KEY, NOISE = jax.random.key(0), 0.09
PRIOR = gram(POINT)
COUNTS = RNG.poisson(np.exp(np.sin(6 * X[:, 0]))).astype(float)


def kernel_at(p):
    return ngp.kernels.Matern52(p["variance"], jnp.stack([jnp.asarray(p["first"]), jnp.asarray(p["second"])]))


def regression(p, near, y, batch=None):
    f = ngp.gp("f", kernel_at(p), inducing=p["Z"], mean=0.5)
    with numpyro.plate("data", near.size, subsample_size=batch) as idx:
        return ngp.gp_regression("y", f, near[idx], p["noise"] ** 2, obs=y, jitter=0.0)


def seen(p, near, y=None, likelihood=None, batch=None):
    f = ngp.gp("f", kernel_at(p), inducing=p["Z"], mean=0.5, jitter=0.0)
    with numpyro.plate("data", near.size, subsample_size=batch) as idx:
        own = ngp.likelihoods.Gaussian(p["noise"]) if likelihood is None else likelihood
        return ngp.observe("y", f.given("rest", near[idx]), own, obs=None if y is None else y[idx])


def values(dtype=None):
    return {name: jnp.asarray(value, dtype) for name, value in {**POINT, "Z": Z}.items()}


def guided(model, step=1.0):
    guide = ngp.AutoGP(model, {"f": ngp.guides.coupled(natural=True)})
    return guide, SVI(model, guide, ngp.optim.natural_gradient(optax.adam(0.1), step), Trace_ELBO())


def exact(y=Y):
    return multivariate_normal(np.full(N, 0.5), PRIOR + NOISE * np.eye(N)).logpdf(y)


@pytest.mark.long
@pytest.mark.parametrize("is_double", [True, False])
def test_one_natural_step_is_the_collapsed_density(is_double):
    """The bound, its slopes in hyper-parameters and the predictions; with all neighbours those of the exact process."""
    with x64(is_double):
        tolerance, y, p = 1e-8 if is_double else 2e-3, jnp.asarray(Y), values()
        _, svi = guided(regression)

        @jax.jit
        def run(p, near, new):
            params = svi.get_params(svi.update(svi.init(KEY, p, near, y), p, near, y)[0])
            beliefs = {"f": ngp.beliefs.Coupled(*natural(params))}

            def bound(p):
                own = handlers.substitute(lambda: regression(p, near, y), data=beliefs)
                return log_density(own, (), {}, {})[0]

            density = jax.value_and_grad(lambda p: log_density(collapsed, (p, near, y), {}, {})[0])(p)
            f = handlers.substitute(regression, data=beliefs)(p, near, y)(new)
            own = collapsed(p, near, y)(new)
            return jax.value_and_grad(bound)(p), density, (f.mean, f.variance), (own.mean, own.variance)

        def natural(params):
            parts = (params[f"f/ngp:natural_{kind}"] for kind in ("shift", "precision"))
            return ngp.guides.natural.natural_to_mean(*parts)

        new = jnp.asarray(NEW)
        for count in (3, N - 1):
            (bound, slope), (density, slopes), found, expected = run(p, ngp.neighbours(jnp.asarray(X), count), new)
            np.testing.assert_allclose(bound, density, rtol=tolerance)
            for name in POINT:
                np.testing.assert_allclose(slope[name], slopes[name], rtol=1e-6 if is_double else 2e-2, atol=0.02)
            np.testing.assert_allclose(found, expected, rtol=tolerance)
        np.testing.assert_allclose(bound, exact(), rtol=tolerance)


@pytest.mark.long
def test_without_neighbours_it_is_fitc_and_a_datum_is_left_out_as_dense_algebra_has_it():
    points = gram(POINT, Z, Z)
    points += 1e-6 * np.trace(points) / len(Z) * np.eye(len(Z))
    low = gram(POINT, X, Z) @ np.linalg.solve(points, gram(POINT, Z, X))
    near = ngp.neighbours(jnp.asarray(X), 1)
    none = ngp.Neighbours(near.inputs, jnp.full_like(near.index, -1), near.order, near.lengthscale, None, False)
    fitc = low + np.diag(np.diag(PRIOR) - np.diag(low) + NOISE)
    every, p = ngp.neighbours(jnp.asarray(X), N - 1), values()
    for own, covariance in ((none, fitc), (every, PRIOR + NOISE * np.eye(N))):
        fn = handlers.trace(lambda own=own: collapsed(p, own)).get_trace()["y"]["fn"]
        density, (mean, variance) = jax.jit(lambda fn=fn: (fn.log_prob(jnp.asarray(Y)), fn.data.left_out()))()
        np.testing.assert_allclose(density, multivariate_normal(np.full(N, 0.5), covariance).logpdf(Y), rtol=1e-5)
        precision = np.linalg.inv(covariance)
        np.testing.assert_allclose(variance, 1 / np.diag(precision), rtol=1e-5)
        np.testing.assert_allclose(mean, Y - precision @ (Y - 0.5) / np.diag(precision), rtol=1e-4, atol=1e-5)


@pytest.mark.long
def test_minibatches_average_to_the_whole_and_a_noise_of_each_row_counts():
    near, p = ngp.neighbours(X, 4, others=True), values()
    belief = ngp.beliefs.Coupled(RNG.normal(size=len(Z)), np.tril(RNG.normal(size=(5, 5)), -1) + 0.5 * np.eye(5))
    rest = ngp.beliefs.PseudoRows(jnp.asarray(RNG.normal(size=N)), jnp.asarray(RNG.uniform(0, 2, size=N)))
    each = RNG.uniform(0.1, 0.3, size=N)

    def bound(rows, batch, model):
        data = {"data": rows, "f": belief, "rest": rest.in_plate((len(rows),))}
        return log_density(handlers.substitute(model, data=data), (p, near, jnp.asarray(Y)), {"batch": batch}, {})[0]

    def noisy(p, *args, **own):
        return regression({**p, "noise": jnp.asarray(each)}, *args, **own)

    for model in (regression, seen, noisy):
        rows = jnp.asarray(RNG.permutation(N).reshape(-1, 6))
        some = jax.jit(jax.vmap(lambda rows, model=model: bound(rows, 6, model)))(rows)
        whole = jax.jit(lambda model=model: bound(jnp.arange(N), None, model))()
        np.testing.assert_allclose(some.mean(), whole, rtol=1e-10)


@pytest.mark.long
def test_pseudo_data_of_gaussian_data_are_these_data():
    """After a step for them, and one for what is global, the bound is the collapsed density."""
    y, p = jnp.asarray(Y), values()
    _, svi = guided(seen)

    @jax.jit
    def run(near):
        state = svi.init(KEY, p, near, y)
        for _ in range(2):
            state = svi.update(state, p, near, y)[0]
        return svi.get_params(state), -svi.evaluate(state, p, near, y), log_density(collapsed, (p, near), {}, {})[0]

    for count in (3, N - 1):
        params, bound, density = run(ngp.neighbours(jnp.asarray(X), count, others=True))
        np.testing.assert_allclose(params["rest/ngp:natural_row_precision"], 1 / NOISE, rtol=1e-5)
        # The inducing points have no jitter here, and 1e-6 there.
        np.testing.assert_allclose(bound, density, rtol=2e-5)
    np.testing.assert_allclose(bound, exact(), rtol=1e-8)


@pytest.mark.long
def test_with_all_neighbours_counts_have_the_bound_and_the_predictions_of_dense_algebra():
    near, p = ngp.neighbours(jnp.asarray(X), N - 1, others=True), values()
    model = lambda near, y=None, batch=None: seen(p, near, y, ngp.likelihoods.Poisson(), batch)  # noqa: E731
    given = jnp.asarray(COUNTS)
    guide, svi = guided(model, 0.8)
    fit = ngp.fit(KEY, svi, 60, near, given, progress=False)
    h, w = (np.asarray(fit.params[f"rest/ngp:natural_row_{kind}"]) for kind in ("shift", "precision"))
    cov = np.linalg.inv(np.linalg.inv(PRIOR) + np.diag(w))
    m, solved = cov @ h, np.linalg.solve(PRIOR, cov)
    logs = np.linalg.slogdet(PRIOR)[1] - np.linalg.slogdet(cov)[1]
    divergence = 0.5 * (np.trace(solved) + m @ np.linalg.solve(PRIOR, m) - N + logs)
    rate = np.exp(m + 0.5 + np.diag(cov) / 2)
    np.testing.assert_allclose(w, rate, rtol=1e-5)
    expected = (COUNTS * (m + 0.5) - rate - gammaln(COUNTS + 1)).sum() - divergence
    np.testing.assert_allclose(-fit.losses[-1], expected, rtol=1e-6)
    posterior = ngp.Posterior.from_svi(model, guide, fit.params)
    found = posterior.predict_at(KEY, NEW, near, given)
    cross, data = gram(POINT, X, NEW), PRIOR + np.diag(1 / w)
    mean = 0.5 + cross.T @ np.linalg.solve(data, h / w)
    variance = POINT["variance"] - (cross * np.linalg.solve(data, cross)).sum(axis=0)
    np.testing.assert_allclose(found.mean, np.exp(mean + variance / 2), rtol=1e-5)
    # What is known of a row without its own datum: the belief and what is global are drawn and divided out.
    f = handlers.substitute(handlers.seed(model, 0), data=guide.beliefs(fit.params))
    outside = handlers.trace(f).get_trace(near, given)["y"]["fn"].seen_of.left_out()
    inverse = np.linalg.inv(data)
    np.testing.assert_allclose(outside.variance, 1 / np.diag(inverse) - 1 / w, rtol=1e-4)
    np.testing.assert_allclose(outside.mean, 0.5 + h / w - inverse @ (h / w) / np.diag(inverse), rtol=1e-4)


@pytest.mark.long
def test_as_points_they_are_a_factor_of_the_gram_matrix():
    """Whitened values of the inducing points and of the rest: with all neighbours the exact prior, and predictions."""
    near, p = ngp.neighbours(jnp.asarray(X), N - 1, order="given", others=True), values()
    v, u = RNG.normal(size=N), RNG.normal(size=len(Z))
    root = np.linalg.cholesky(gram(POINT, Z, Z))
    features = np.linalg.solve(root, gram(POINT, Z, X))
    rest = np.linalg.cholesky(PRIOR - features.T @ features)
    model = lambda near, y=None: seen(p, near, y, ngp.likelihoods.Poisson())  # noqa: E731

    def expected(u):
        f = 0.5 + features.T @ u + rest @ v
        return norm.logpdf(u).sum() + norm.logpdf(v).sum() + poisson.logpmf(COUNTS, np.exp(f)).sum()

    def own(u):
        return log_density(model, (near, jnp.asarray(COUNTS)), {}, {"f": u, "rest": v})[0]

    value, slope = jax.jit(jax.value_and_grad(own))(jnp.asarray(u))
    np.testing.assert_allclose(value, expected(u), rtol=1e-7)
    step = 1e-5 * np.eye(len(Z))[2]
    np.testing.assert_allclose(slope[2], (expected(u + step) - expected(u - step)) / 2e-5, rtol=1e-4)
    posterior = ngp.Posterior.from_mcmc(model, {"f": u[None], "rest": v[None]})
    found = posterior.predict_at(KEY, NEW, near, jnp.asarray(COUNTS))
    every, held = np.concatenate([Z, X]), np.concatenate([root @ u, features.T @ u + rest @ v])
    cross = gram(POINT, every, NEW)
    weights = np.linalg.solve(gram(POINT, every, every), cross)
    variance, level = POINT["variance"] - (cross * weights).sum(axis=0), 0.5 + weights.T @ held
    np.testing.assert_allclose(found.mean, np.exp(level + variance / 2), rtol=1e-4)


def test_what_is_refused():
    f, near = handlers.seed(lambda: ngp.gp("f", ngp.kernels.RBF(1.0, 0.5), Z), 0)(), ngp.neighbours(X, 6)
    narrow = ngp.neighbours(X[:, :1], 3)
    several = lambda: ngp.gp("g", ngp.kernels.RBF(1.0, 0.5), Z, outputs=2)  # noqa: E731
    with handlers.seed(rng_seed=0):
        for call, message in (
            (lambda: ngp.gp_regression("y", f, near, 0.1, obs=Y, inducing=Z), "inducing must be None where a process"),
            (lambda: ngp.gp_regression("y", f, X, 0.1, obs=Y), "kernel must be a kernel, where rows have no neigh"),
            (lambda: several().given("rest", near[jnp.arange(3)]), "the process must be one process of inducing"),
            (
                lambda: ngp.gp_regression("y", f, narrow, 0.1, obs=Y),
                "kernel must be of the 1 columns of near, but got 2",
            ),
        ):
            with pytest.raises((TypeError, ValueError), match=message):
                call()


def test_the_gradient_leads_to_what_the_likelihood_says_of_each_row_once():
    """Of a minibatch that stands for 10 times as many rows, holds a row twice, and a row that says less than nothing."""
    h, w = jnp.array([0.3, 0.5, -0.2, 0.1]), jnp.array([0.4, 0.0, 0.6, 1.0])
    rows, cavity = jnp.array([2, 0, 2]), (jnp.array([0.1, -0.4, 0.1]), jnp.array([0.7, 0.9, 0.7]), jnp.array(0.0))

    def loss(h, w, curvature):
        """Of ``E[g f - c f^2 / 2]``, whose slopes in the moments are ``g - c m`` and ``-c / 2``, less what is said."""
        mean, variance = natural_moments(h, w, rows, cavity, (jnp.ones(3), 10.0))
        still = jax.lax.stop_gradient((h[rows], w[rows]))
        said = still[0] * mean - 0.5 * still[1] * (mean**2 + variance)
        return -10.0 * jnp.sum(0.8 * mean - 0.5 * curvature * (mean**2 + variance) - said), mean, variance

    slopes = jax.grad(lambda *args: loss(*args)[0], (0, 1))(h, w, jnp.array([0.5, -2.0, 0.5]))
    _, mean, variance = loss(h, w, 0.5)
    own = 1 / (1 / np.asarray(cavity[1]) + np.asarray(w)[np.asarray(rows)])
    np.testing.assert_allclose(variance, own)
    np.testing.assert_allclose(mean, own * (np.asarray(cavity[0]) / cavity[1] + np.asarray(h)[np.asarray(rows)]))
    # A full step: shift 0.8 and precision 0.5 at row 2, none at row 0, where the shift keeps the slope at the mean.
    tiny = np.sqrt(np.finfo(float).eps)
    np.testing.assert_allclose(w - slopes[1], [tiny, 0.0, 0.5, 1.0], atol=1e-12)
    np.testing.assert_allclose(h - slopes[0], [0.8 + 2.0 * float(mean[1]), 0.5, 0.8, 0.1], atol=1e-6)


def test_it_has_no_basis():
    belief = ngp.beliefs.PseudoRows(jnp.zeros(4), jnp.zeros(4))
    assert belief.shape == (4,)
    assert belief.in_plate((2,)).shape == (2,)
    for ask in (
        lambda: belief.whitened_mean,
        lambda: belief.kl(None),
        lambda: belief.marginals(None, None),
        belief.whitened,
    ):
        with pytest.raises(ValueError, match="a belief that is asked for inducing values must be one with a basis"):
            ask()
