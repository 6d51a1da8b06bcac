"""Gaussian data given their neighbours: with all earlier rows the exact process, and for few a proper density."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
import pytest
from numpyro import handlers
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.util import log_density
from scipy.stats import multivariate_normal, norm

import numpyro_gp as ngp
from tests.precision import x64

RNG = np.random.default_rng(3)
X, NEW = RNG.uniform(size=(30, 2)), RNG.uniform(size=(4, 2))
Y = np.sin(6 * X[:, 0]) + X[:, 1] + 0.1 * RNG.normal(size=30)
KEY = jax.random.key(0)
POINT = {"variance": 1.3, "noise": 0.3, "first": 0.4, "second": 0.7}


def model(near, y, batch=None, is_whole=False, noise=None, p=None):
    p = {name: numpyro.param(name, value) for name, value in POINT.items()} if p is None else p
    kernel = ngp.kernels.Matern52(p["variance"], jnp.stack([jnp.asarray(p["first"]), jnp.asarray(p["second"])]))
    variance = p["noise"] ** 2 if noise is None else noise
    if is_whole:
        return ngp.gp_regression("y", kernel, near, variance, obs=y, mean=0.5, jitter=0.0)
    with numpyro.plate("data", near.size, subsample_size=batch) as idx:
        return ngp.gp_regression("y", kernel, near[idx], variance, obs=y, mean=0.5, jitter=0.0)


def gram(p, rows=X, more=X):
    r = np.sqrt(5 * (((rows[:, None] - more[None]) / [p["first"], p["second"]]) ** 2).sum(axis=-1))
    return p["variance"] * (1 + r + r**2 / 3) * np.exp(-r)


def exact(p, noise=None):
    covariance = gram(p) + np.eye(30) * (p["noise"] ** 2 if noise is None else noise)
    return multivariate_normal(np.full(30, 0.5), covariance).logpdf(Y)


@pytest.mark.parametrize("is_double", [True, pytest.param(False, marks=pytest.mark.long)])
def test_with_all_earlier_rows_it_is_the_exact_process(is_double):
    """Density and gradient in two orders, whole and in a plate, and predictions; by NumPy."""
    with x64(is_double):
        y, near = jnp.asarray(Y), ngp.neighbours(jnp.asarray(X), 29, order="given")
        tolerance = 1e-8 if is_double else 2e-3
        slopes = {n: (exact({**POINT, n: v + 1e-5}) - exact({**POINT, n: v - 1e-5})) / 2e-5 for n, v in POINT.items()}

        @jax.jit
        def run(p, near):
            whole, slope = jax.value_and_grad(lambda p: log_density(model, (near, y), {"is_whole": True}, p)[0])(p)
            return whole, slope, log_density(model, (near, y), {}, p)[0]

        p = {name: jnp.asarray(value) for name, value in POINT.items()}
        for own in (near, ngp.neighbours(jnp.asarray(X), 29, order=np.argsort(X[:, 0]))):
            whole, slope, plated = run(p, own)
            np.testing.assert_allclose([whole, plated], exact(POINT), rtol=tolerance)
            np.testing.assert_allclose([slope[n] for n in POINT], [slopes[n] for n in POINT], rtol=max(tolerance, 1e-6))

        f = jax.jit(lambda p, near: model(near, y, is_whole=True, p=p))(p, near)
        covariance, cross = gram(POINT) + 0.09 * np.eye(30), gram(POINT, X, NEW)
        mean = 0.5 + cross.T @ np.linalg.solve(covariance, Y - 0.5)
        variance = 1.3 - (cross * np.linalg.solve(covariance, cross)).sum(axis=0)
        inside = jax.jit(lambda f, new: f(new))(f, jnp.asarray(NEW))  # the program itself looks for neighbours
        for found in (f(NEW), f(near.find(NEW, 30)), inside):
            np.testing.assert_allclose(found.mean, mean, rtol=tolerance)
            np.testing.assert_allclose(found.variance, variance, rtol=10 * tolerance)
        assert float(f.noise) == pytest.approx(0.09)


def test_noise_may_be_of_each_row():
    """By the conditionals of SciPy's normals; minibatches average to it in ``contracts/test_rows.py``."""
    near, noise = ngp.neighbours(X, 6), RNG.uniform(0.05, 0.2, size=30)
    p = {name: jnp.asarray(value) for name, value in POINT.items()}
    whole = jax.jit(lambda: log_density(model, (near, Y), {"noise": noise, "p": p}, {})[0])()
    parts = [np.append(np.asarray(near.index)[i][np.asarray(near.index)[i] >= 0], i) for i in range(30)]
    covariance = gram(POINT) + np.diag(noise)

    def normal(at):
        return multivariate_normal(np.full(len(at), 0.5), covariance[np.ix_(at, at)]).logpdf(Y[at]) if len(at) else 0.0

    np.testing.assert_allclose(whole, sum(normal(at) - normal(at[:-1]) for at in parts), rtol=1e-10)


@pytest.mark.long
def test_without_data_they_are_drawn_in_their_order():
    """Draws are linear in their noise: their covariance by the columns of that map, not by Monte Carlo."""
    near, p = ngp.neighbours(X, 29), {name: jnp.asarray(value) for name, value in POINT.items()}
    fn = handlers.trace(handlers.seed(lambda: model(near, None, is_whole=True, p=p), 0)).get_trace()["y"]["fn"]
    root = fn.data.drawn(jnp.eye(30)) - 0.5
    np.testing.assert_allclose(root.T @ root, gram(POINT) + 0.09 * np.eye(30), atol=1e-10)
    few = ngp.neighbours(X, 3)
    plated = handlers.trace(handlers.seed(lambda: model(few, None, p=p), 0)).get_trace()["y"]
    again = handlers.trace(handlers.seed(lambda: model(few, None, is_whole=True, p=p), 0)).get_trace()["y"]
    np.testing.assert_allclose(plated["value"], again["value"])
    assert plated["fn"].batch_shape == (30,)
    assert again["fn"].event_shape == (30,)
    assert plated["fn"].sample(jax.random.key(0), (2,)).shape == (2, 30)


def test_data_that_a_handler_gives_are_those_of_the_neighbours_too():
    """`condition`, and data as a latent site: each row is given the values of this site at the others."""
    near, p = ngp.neighbours(X, 29), {name: jnp.asarray(value) for name, value in POINT.items()}
    for is_whole in (True, False):
        own = lambda: model(near, None, is_whole=is_whole, p=p)  # noqa: E731, B023
        given = handlers.condition(own, {"y": jnp.asarray(Y)})
        found = log_density(given, (), {}, {})[0], log_density(own, (), {}, {"y": jnp.asarray(Y)})[0]
        np.testing.assert_allclose(found, exact(POINT), rtol=1e-8)
        np.testing.assert_array_equal(handlers.seed(given, 0)().data.y, Y)


def test_rows_may_be_drawn_twice_and_neighbours_keep_their_data():
    """As many rows as there are, with repeats, as a bootstrap draws them: rows that were not drawn had zeros for data."""
    near, p = ngp.neighbours(X, 4), {name: jnp.asarray(value) for name, value in POINT.items()}
    rows = jnp.asarray(RNG.integers(0, 30, size=30))
    drawn = handlers.substitute(lambda: model(near, Y, p=p), data={"data": rows})
    covariance = gram(POINT) + 0.09 * np.eye(30)

    def term(i):
        others = np.asarray(near.index)[i]
        others = others[others >= 0]
        weights = np.linalg.solve(covariance[np.ix_(others, others)], covariance[others, i])
        mean, variance = 0.5 + weights @ (Y[others] - 0.5), covariance[i, i] - weights @ covariance[others, i]
        return norm(mean, np.sqrt(variance)).logpdf(Y[i])

    np.testing.assert_allclose(log_density(drawn, (), {}, {})[0], sum(map(term, rows.tolist())), rtol=1e-10)


@pytest.mark.long
def test_a_process_is_known_where_it_has_no_variance():
    """A Wiener process at its origin, as a row and as a new one: predictions, joint draws and pseudo-data were NaN."""
    with x64(False):
        rows, new = jnp.asarray([[0.0], [0.5], [1.0], [2.0], [2.5]]), jnp.asarray([[0.0], [0.7]])
        near, y = ngp.neighbours(rows, 4, others=True), jnp.asarray([1.0, 0.0, 2.0, 1.0, 3.0])
        kernel = ngp.kernels.Wiener(1.3)

        def known(near, y):
            return ngp.gp_regression("y", kernel, near, 0.3, mean=0.5, obs=y)

        def counts(near, y):
            with numpyro.plate("data", near.size) as idx:
                f = ngp.gp("f", kernel, near[idx], mean=0.5)
                ngp.observe("y", f.at_inducing(), ngp.likelihoods.Poisson(), obs=y[idx])

        found = handlers.seed(known, 0)(near, y)(new)
        S = 1.3 * np.minimum(np.asarray(rows), np.asarray(rows).T) + 0.3 * np.eye(5)
        weights = np.linalg.solve(S, 1.3 * np.minimum(np.asarray(rows), 0.7))[:, 0]
        np.testing.assert_allclose(found.mean, [0.5, 0.5 + weights @ (np.asarray(y) - 0.5)], rtol=1e-3)
        variance = 1.3 * 0.7 - weights @ (1.3 * np.minimum(np.asarray(rows), 0.7)[:, 0])
        np.testing.assert_allclose(found.variance, [0.0, variance], rtol=1e-3, atol=1e-12)
        posterior = ngp.Posterior.from_mcmc(known, {"none": np.zeros(2)})
        drawn = posterior.function_draws(KEY, new, near, y)
        np.testing.assert_allclose(drawn[:, 0], 0.5, atol=1e-5)
        assert np.isfinite(drawn).all()
        engine = SVI(counts, ngp.AutoGP(counts), ngp.optim.natural_gradient(optax.adam(0.1)), Trace_ELBO())
        params = engine.get_params(jax.jit(lambda: engine.update(engine.init(KEY, near, y), near, y)[0])())
        assert np.all(np.asarray(params["f/ngp:natural_row_precision"]) > 0)


@pytest.mark.long
def test_numbers_of_two_precisions_are_those_of_the_higher():
    """Data in float32 beside priors in float64, as they come where double precision is switched on."""
    near = ngp.neighbours(X.astype(np.float32), 29)
    p = {name: jnp.asarray(value) for name, value in POINT.items()}
    found, slope = jax.value_and_grad(
        lambda p: log_density(model, (near, jnp.asarray(Y, jnp.float32)), {"is_whole": True, "p": p}, {})[0]
    )(p)
    np.testing.assert_allclose(found, exact(POINT), rtol=1e-5)
    assert all(np.isfinite(value) for value in slope.values())
    drawn = handlers.seed(lambda: model(near, None, is_whole=True, p=p), 0)()
    assert drawn.data.y.shape == (30,)


@pytest.mark.long
def test_data_are_left_out_by_the_precision_of_all():
    """For all earlier rows by NumPy's inverse, and for few by that of the covariance that draws have."""
    p = {name: jnp.asarray(value) for name, value in POINT.items()}
    for count in (29, 4):
        f = jax.jit(lambda near: model(near, Y, is_whole=True, p=p))(near := ngp.neighbours(X, count))
        root = np.asarray(f.data.drawn(jnp.eye(30))) - 0.5
        precision = np.linalg.inv(root.T @ root)
        mean, variance = f.data.left_out()
        np.testing.assert_allclose(variance, 1 / np.diag(precision), rtol=1e-8)
        np.testing.assert_allclose(mean, Y - precision @ (Y - 0.5) / np.diag(precision), rtol=1e-7, atol=1e-9)
    rows = np.array([3, 17])
    found = f.data.log_density_at(near.around(29, rows=rows), rows)
    whole = multivariate_normal(np.full(30, 0.5), gram(POINT) + 0.09 * np.eye(30)).logpdf(Y)
    others = [np.delete(np.arange(30), row) for row in rows]
    parts = [
        multivariate_normal(np.full(29, 0.5), (gram(POINT) + 0.09 * np.eye(30))[np.ix_(o, o)]).logpdf(Y[o])
        for o in others
    ]
    np.testing.assert_allclose(found, whole - np.array(parts), rtol=1e-8)


def test_a_mean_function_is_called_at_rows_as_without_neighbours():
    """`X[:, 0]` of blocks would be their first row, and as many numbers where columns are one more than neighbours."""
    near, rbf = ngp.neighbours(X, 1), ngp.kernels.RBF(1.0, 0.5)
    own, other = (
        handlers.trace(lambda: ngp.gp_regression("y", rbf, near, 0.1, mean=mean, obs=obs)).get_trace()["y"]  # noqa: B023
        for mean, obs in ((lambda X: X[:, 0], Y), (None, Y - X[:, 0]))
    )
    np.testing.assert_allclose(own["fn"].log_prob(own["value"]), other["fn"].log_prob(other["value"]), rtol=1e-10)


def test_no_datum_is_left_out_of_neighbours_of_some_rows():
    some = ngp.neighbours(X, 4, rows=[1, 2])
    with pytest.raises(ValueError, match="near must be neighbours of all rows where each datum is left out"):
        model(some, Y, p=POINT).data.left_out()


def test_marginals_have_slopes_in_new_rows():
    near = ngp.neighbours(X, 8)
    f = model(near, Y, is_whole=True, p=POINT)
    slope, step = jax.grad(lambda new: f(new).mean.sum())(jnp.asarray(NEW)), np.zeros((4, 2))
    step[2, 1] = 1e-5
    up, down = (f(near.find(NEW + sign * step, 30)).mean.sum() for sign in (1, -1))
    np.testing.assert_allclose(slope[2, 1], (up - down) / 2e-5, rtol=1e-6)


NEAR, RBF = ngp.neighbours(X, 4), ngp.kernels.RBF(1.0, 0.5)


def in_plate(size=30, batch=None, obs=Y, rows=None, **options):
    with numpyro.plate("data", size, subsample_size=batch) as idx:
        ngp.gp_regression("y", RBF, NEAR[idx if rows is None else rows], 0.1, obs=obs, **options)


def whole(near=NEAR, kernel=RBF, noise=0.1, obs=Y):
    return ngp.gp_regression("y", kernel, near, noise, obs=obs)


def masked():
    with handlers.mask(mask=jnp.ones(30, bool)):
        whole()


def weighed():
    """A scale of each term left predictions as they were without one."""
    with handlers.scale(scale=jnp.full(30, 3.0)):
        in_plate()


def plain():
    """``X`` where the model takes ``near``: its rows were taken for those of a process of each member."""
    with numpyro.plate("data", X.size, subsample_size=5) as idx:
        ngp.gp_regression("y", RBF, jnp.asarray(X)[idx], 0.1, obs=Y)


def twice():
    with numpyro.plate("group", 2, dim=-2):
        in_plate()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: whole(obs=Y[:5]), r"obs of site 'y' must be of shape \(30,\), one"),
        (lambda: in_plate(batch=5, obs=Y[:5]), r"obs of site 'y' must be of shape \(30,\)"),
        (lambda: in_plate(size=29), "the plates around site 'y' must be one of the 30 rows of near, 29 of which"),
        (lambda: in_plate(size=31), "idx must be numbers from 0 to 29, but got numbers from 0 to 30"),
        (lambda: in_plate(batch=5, rows=jnp.arange(6)), "site 'y' must be one of the 30 rows of near"),
        (lambda: whole(NEAR[jnp.arange(3)]), "the plates .* but got no plate"),
        (twice, "the plates around site 'y' must be one of the 30 rows of near"),
        (lambda: in_plate(batch=5, obs=None), "the rows of site 'y' must be all of them where there are no data"),
        (masked, "the mask over site 'y' must be one number, where rows have neighbours"),
        (weighed, "the scale over site 'y' must be one number, .* Pass the noise variance of each row of all the data"),
        (lambda: in_plate(inducing=X), "inducing must be None where rows of a plate have neighbours"),
        (lambda: whole(noise=np.ones(4)), r"noise_variance must be a number or of shape"),
        (lambda: whole(ngp.neighbours(X, 4, rows=[1, 2])), "of all rows where these stand whole, or are drawn"),
        (lambda: whole(kernel=ngp.kernels.stack([RBF, RBF])), "the kernel of site 'y' must be one kernel, where rows"),
        (lambda: whole(NEAR.find(X, 3)), "X must be the rows of the fit, near or near.idx., but got new rows. Predict"),
        (lambda: whole()(NEAR), "X must be new rows, but got a Neighbours"),
        (
            plain,
            r"X of site 'y' must be rows with neighbours, near\[idx\], where .* an array of 5 rows in plate 'data'",
        ),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        handlers.seed(call, 0)()
