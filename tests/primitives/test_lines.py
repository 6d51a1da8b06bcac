"""Processes on a line beside dense ones: every kernel, ties, gaps of all sizes, engines, predictions and draws."""

from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.util import log_density
from scipy import stats

import numpyro_gp as ngp
from numpyro_gp import kernels as K
from numpyro_gp.kernels.jitter import ample_jitter
from numpyro_gp.primitives.lines.states import lost
from tests.precision import x64

KEY = jax.random.key(0)
KERNELS = {
    "matern12": lambda a: K.Matern12(1.3 * a, 0.7),
    "matern32": lambda a: K.Matern32(1.3, 0.7 * a),
    "matern52 and a level": lambda a: K.Matern52(1.3, 0.7 * a) + K.Constant(4.0),
    "products": lambda a: (
        2.0 * (K.Matern32(a, 5.0) * K.Matern12(1.0, 9.0) * K.Cosine(1.0, 2.0 * a)) + K.Matern12(0.3, 1.0)
    ),
    "line": lambda a: K.Linear(0.1 * a) + K.Wiener(0.5 * a),
    "oscillations": lambda a: K.SHO(1.3, 2.0 * a, 4.0) + K.SHO(0.5, 1.5, 0.3 * a),
    "periodic": lambda a: K.Periodic(1.3, 2.0 * a, 5.0) * K.Matern12(1.0, 9.0) + K.Matern32(0.3, 1.0),
    "integrated": lambda a: K.IntegratedWiener(0.05 * a, origin=-1.0) + K.IntegratedOU(0.5, 3.0 * a).on(0),
}


def times(count=70, seed=0):
    """Unsorted, with ties, neighbours a millionth apart, and a gap of many lengthscales."""
    t = np.random.default_rng(seed).uniform(0.1, 12, count)
    t[3], t[5], t[7] = t[4], t[6] + 1e-6, 400.0
    return t


def data(t, seed=1):
    return np.sin(t) + 0.3 * np.random.default_rng(seed).normal(size=len(t))


def dense(kernel, rows, new, y, noise):
    """Log density, and the moments at new rows, by NumPy; rows are times, or times with the codes of their series."""
    rows, new = (own.reshape(len(own), -1) for own in (rows, new))
    S = np.asarray(kernel.matrix(rows)) + np.diag(np.broadcast_to(noise, len(rows)))
    cross = np.asarray(kernel.matrix(new, rows))
    solved = np.linalg.solve(S, np.column_stack([y, cross.T]))
    log = -0.5 * y @ solved[:, 0] - 0.5 * np.linalg.slogdet(2 * np.pi * S)[1]
    return log, cross @ solved[:, 0], np.asarray(kernel.matrix(new)) - cross @ solved[:, 1:]


def evidence(make, line, y, noise):
    """Log density of data as a function of a factor in a kernel, the data and the noise."""

    def of(a, y, noise):
        return log_density(lambda: ngp.gp_regression("y", make(a), line, noise, obs=y), (), {}, {})[0]

    return jax.jit(jax.value_and_grad(of, (0, 1, 2)))(1.0, y, noise)


@pytest.mark.parametrize("name", KERNELS)
def test_density_and_gradients_are_those_of_the_dense_process(name):
    t = times()
    y, noise = jnp.asarray(data(t)), jnp.asarray(np.random.default_rng(2).uniform(0.05, 0.2, len(t)))

    def exact(a, y, noise):
        S = KERNELS[name](a).matrix(t[:, None]) + jnp.diag(noise)
        return dist.MultivariateNormal(0.0, S).log_prob(y)

    found, slopes = evidence(KERNELS[name], ngp.line(t), y, noise)
    wanted, own = jax.value_and_grad(exact, (0, 1, 2))(1.0, y, noise)
    assert float(found) == pytest.approx(float(wanted), rel=1e-9)
    for slope, other in zip(slopes, own, strict=True):
        np.testing.assert_allclose(slope, other, rtol=1e-7, atol=1e-7 * float(jnp.max(jnp.abs(other))))


@pytest.mark.long
def test_a_periodic_process_is_exact_at_sixteenths_of_its_period():
    """Also a wiggly one, of which the eighth wave is no small part: a wave of those beyond counts as one of these."""
    t = 0.25 * np.random.default_rng(0).permutation(200)[:60]
    y, make = data(t), lambda a: K.Periodic(1.3, 0.45 * a, 4.0) * K.Matern12(1.0, 9.0)
    found, slopes = evidence(make, ngp.line(t), jnp.asarray(y), 0.05)

    def exact(a):
        return dist.MultivariateNormal(0.0, make(a).matrix(t[:, None]) + 0.05 * jnp.eye(60)).log_prob(jnp.asarray(y))

    wanted = jax.value_and_grad(exact)(1.0)
    np.testing.assert_allclose((found, slopes[0]), wanted, rtol=1e-8)


@pytest.mark.long
@pytest.mark.parametrize("is_double", [True, False])
def test_predictions_and_left_out_data_are_those_of_the_dense_process(is_double):
    t, make = times(), KERNELS["products"]
    y, new = data(t), np.concatenate([[0.05, 399.0, 401.0], times(9, 3)])
    log, mean, covariance = dense(make(1.0), t, new, y - 0.5, 0.09)
    sd = np.sqrt(np.diag(covariance))
    left = [dense(make(1.0), np.delete(t, i), t[i : i + 1], np.delete(y, i) - 0.5, 0.09) for i in (7, 40)]
    with x64(is_double):
        line = ngp.line(t)
        with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.trace() as trace:
            f = ngp.gp_regression("y", make(1.0), line, 0.09, mean=0.5, obs=y)
        found = f(line.find(new))
        others = trace["y"]["fn"].left_out(jnp.asarray(y))
        density = trace["y"]["fn"].log_prob(jnp.asarray(y))
    allowed = 1e-8 if is_double else 1e-4
    assert float(density) == pytest.approx(log, rel=allowed)
    np.testing.assert_allclose((np.asarray(found.loc) - 0.5 - mean) / sd, 0, atol=allowed)
    np.testing.assert_allclose(np.asarray(found.scale) / sd, 1, atol=allowed)
    for i, (_, alone, variance) in zip((7, 40), left, strict=True):
        assert float(others[0][i]) - 0.5 == pytest.approx(float(alone[0]), abs=allowed)
        assert float(others[1][i]) == pytest.approx(float(variance[0, 0]) + 0.09, rel=10 * allowed)


@pytest.mark.parametrize("is_double", [True, pytest.param(False, marks=pytest.mark.long)])
def test_slopes_are_those_of_the_dense_process(is_double):
    """Of three series whose means have a slope: rows of the slope by the kernel's own derivatives."""
    rows, new = two_series(24), np.array([[0.3, 0], [2.2, 2], [2.2, 1], [9.0, 0]])
    y, mean = np.cos(rows[:, 0]), lambda X: 0.5 * X[..., 0] ** 2
    with x64(is_double):
        shared = K.Coregion(jnp.array([[1.0], [0.5], [-0.8]]), 0.2).on(1)
        kernel, line = K.Matern32(1.3, 2.0).on(0) * shared + K.SHO(0.5, 3.0, 2.0).on(0), ngp.line(rows)
        with numpyro.handlers.seed(rng_seed=0):
            f = ngp.gp_regression("y", kernel, line, 0.04, obs=jnp.asarray(y), mean=mean)
        found = jax.jit(lambda at: f(at))(line.find(new, slope=True)[:])
    at = ngp.functionals.Derivative(new, 0)
    cross = np.asarray(ngp.functionals.covariance(kernel, at, jnp.asarray(rows)))
    solved = np.linalg.solve(kernel.matrix(rows) + 0.04 * np.eye(len(rows)), np.column_stack([y - mean(rows), cross.T]))
    wanted = np.asarray(ngp.functionals.covariance(kernel, at, at)) - cross @ solved[:, 1:]
    digits = 1e-9 if is_double else 1e-4
    np.testing.assert_allclose(found.loc, new[:, 0] + cross @ solved[:, 0], rtol=digits, atol=digits)
    np.testing.assert_allclose(found.variance, np.diag(wanted), rtol=digits, atol=digits)


@pytest.mark.long
def test_large_times_keep_their_digits_in_single_precision():
    """A million hundredths: neighbouring float32 numbers there are 1e-3 apart."""
    t = 1e4 + 0.01 * np.arange(300)
    y, new = data(t), t[:5] + 0.004
    _, mean, covariance = dense(K.Matern32(1.0, 0.5), t, new, y, 0.04)
    with x64(False):
        line = ngp.line(t)
        f = numpyro.handlers.seed(ngp.gp_regression, 0)("y", K.Matern32(1.0, 0.5), line, 0.04, obs=y)
        found = f(line.find(new))
    np.testing.assert_allclose((found.loc - mean) / np.sqrt(np.diag(covariance)), 0, atol=1e-4)


FAR = 1e6 + np.cumsum(np.random.default_rng(0).exponential(0.3, 60))


@pytest.mark.parametrize(
    "ask",
    [
        lambda: ngp.line(jnp.asarray(FAR, jnp.float32)),
        lambda: ngp.line(np.column_stack([FAR, np.zeros(60)]).astype(np.float32)),
        lambda: ngp.line(FAR).find(FAR[3:4].astype(np.float32)),
        lambda: ngp.line(jnp.asarray(FAR[:1] * 1700, jnp.float32)),
        lambda: ngp.line(np.float16(np.linspace(1000, 1010, 30))),
    ],
)
def test_times_that_lost_their_digits_before_they_came_are_warned_of(ask):
    """Predictions at new times were off by a third of a standard deviation, without a word."""
    with x64(False), pytest.warns(UserWarning, match=r"came in float\d\d, which knows times near .* NumPy's float64"):
        ask()


def test_times_in_single_precision_that_have_their_digits_are_taken():
    with x64(False):
        for t in (
            FAR,
            FAR - 1e6,
            1e6 + np.arange(9),
            1e9 + 1e6 * np.arange(9),
            np.ones(4),
            np.linspace(0, 400, 20_000),
        ):
            ngp.line(t)
            single = jnp.asarray(t if t is not FAR else np.round(t), jnp.float32)
            assert not np.any(ngp.line(single).find(single).gaps[:, 0])  # each is at a row


def test_new_rows_of_another_line_are_refused():
    t, new = times(20), np.array([0.05, 3.0, 8.0, 401.0])
    for shift in (0.0, 1e6):
        with x64(False):
            line = ngp.line(t + shift)
            line.check_found(line.find(new + shift))
            for other in (ngp.line(t[:12] + shift), ngp.line(np.append(t, 5.0) + shift), ngp.line(t + shift + 1)):
                with pytest.raises(ValueError, match="X must be found on the line of the fit"):
                    line.check_found(other.find(new + shift))


def counts_model(line, y=None):
    variance = numpyro.sample("variance", dist.LogNormal(0.0, 0.5))
    f = ngp.gp("f", K.Matern32(variance, 1.5), inducing=line, mean=1.0)
    return ngp.observe("y", f.at_inducing(), ngp.likelihoods.Poisson(), obs=y)


@pytest.mark.long
@pytest.mark.parametrize("make", [lambda v: K.Matern32(v, 1.5), K.Wiener])
def test_a_point_is_the_dense_process_at_its_whitened_values_in_the_order_of_time(make):
    """With the jitter of the mean variance: a walk has none of its own at the first row."""
    t = np.append(0.0, np.random.default_rng(0).uniform(0, 12, 20))[::-1]
    y = jnp.asarray(np.random.default_rng(1).poisson(np.exp(1 + np.sin(t))), float)
    line, white = ngp.line(t), np.random.default_rng(5).normal(size=len(t))

    def density(variance):
        def model():
            f = ngp.gp("f", make(variance), inducing=line, mean=1.0)
            ngp.observe("y", f.at_inducing(), ngp.likelihoods.Poisson(), obs=y)

        return log_density(model, (), {}, {"f": jnp.asarray(white)})[0]

    found, slope = jax.jit(jax.value_and_grad(density))(1.2)
    order = np.asarray(line.order)
    gram = np.asarray(make(1.2).matrix(t[order][:, None]))
    noisy = gram + ample_jitter(np.dtype(float)) * np.mean(np.diag(gram)) * np.eye(len(t))
    f = 1.0 + np.linalg.cholesky(noisy) @ white
    wanted = stats.norm.logpdf(white).sum() + stats.poisson.logpmf(np.asarray(y)[order], np.exp(f)).sum()
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert np.isfinite(float(slope))


@pytest.mark.long
def test_chains_and_pseudo_data_agree_and_files_give_the_fit_back(tmp_path):
    t = np.random.default_rng(0).uniform(0, 12, 30)
    y = jnp.asarray(np.random.default_rng(1).poisson(np.exp(1 + np.sin(t))), float)
    line, new = ngp.line(t), np.linspace(-1, 13, 8)
    posterior = ngp.fit(KEY, counts_model, 400, line, y, progress=False).posterior()
    mcmc = numpyro.infer.MCMC(ngp.NUTS(counts_model), num_warmup=150, num_samples=600, progress_bar=False)
    mcmc.run(KEY, line, y)
    chains = ngp.Posterior.from_mcmc(counts_model, mcmc)
    mine, theirs = (one.predict_at(KEY, new, line, y) for one in (posterior, chains))
    sd = np.sqrt(theirs.function_variance)
    assert np.max(np.abs(mine.function_mean - theirs.function_mean) / sd) < 0.3
    posterior.save(tmp_path / "fit.npz")
    back = ngp.Posterior.load(tmp_path / "fit.npz", counts_model, ngp.AutoGP(counts_model), line, y)
    np.testing.assert_array_equal(back.predict_at(KEY, new, line, y).mean, mine.mean)


@pytest.mark.long
def test_functions_drawn_together_have_the_joint_moments_of_the_dense_process():
    t, new = times(40), np.concatenate([[0.05, 401.0], times(9, 3)])
    y = data(t)

    def model(line, y=None):
        return ngp.gp_regression("y", K.Matern52(1.3, 2.0), line, 0.09, mean=0.5, obs=y)

    posterior = ngp.Posterior.from_svi(model, lambda *_: None, {})
    draws = np.asarray(posterior.function_draws(KEY, new, ngp.line(t), y, num_samples=4000))
    _, mean, covariance = dense(K.Matern52(1.3, 2.0), t, new, y - 0.5, 0.09)
    assert np.max(np.abs(draws.mean(0) - 0.5 - mean) / np.sqrt(np.diag(covariance) / 4000)) < 4.5
    spread = np.sqrt((np.outer(np.diag(covariance), np.diag(covariance)) + covariance**2) / 4000)
    assert np.max(np.abs(np.cov(draws.T) - covariance) / spread) < 4.5


@pytest.mark.long
def test_data_are_drawn_where_there_are_none():
    t = times(30)
    line, kernel = ngp.line(t), K.Matern32(1.0, 2.0)
    with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.trace() as trace:
        ngp.gp_regression("y", kernel, line, 0.09)
    values = np.asarray(trace["y"]["fn"].sample(KEY, (4000,)))
    wanted = np.asarray(kernel.matrix(t[:, None])) + 0.09 * np.eye(30)
    spread = np.sqrt((np.outer(np.diag(wanted), np.diag(wanted)) + wanted**2) / 4000)
    assert np.max(np.abs(np.cov(values.T) - wanted) / spread) < 5.0


@pytest.mark.long
def test_a_model_may_have_other_processes_and_other_lines():
    t, X, new = times(12), np.random.default_rng(3).uniform(size=(12, 1)), np.linspace(0.2, 3.0, 3)
    y = data(t)

    def model(first, second, X, y=None):
        ngp.gp_regression("dense", K.RBF(1.0, 0.3), X, 0.1, obs=y)
        ngp.gp_regression("one", K.Matern32(1.0, 1.0), first, 0.1, obs=y)
        ngp.gp_regression("two", K.Matern32(1.0, 1.0), second, 0.1, obs=y)

    posterior = ngp.Posterior.from_svi(model, lambda *_: None, {})
    arguments = ngp.line(t), ngp.line(t + 1.0), X, y
    for name, kernel, rows in (("dense", K.RBF(1.0, 0.3), X[:, 0]), ("two", K.Matern32(1.0, 1.0), t + 1.0)):
        found = posterior.predict_at(KEY, new[:, None], *arguments, gp=name).mean
        np.testing.assert_allclose(found, dense(kernel, rows, new, y, 0.1)[1], rtol=1e-7, atol=1e-9)
    assert posterior.function_draws(KEY, new[:, None], *arguments, gp="two", num_samples=2).shape == (2, 3)


LINE, Y = ngp.line(times(12)), np.zeros(12)
M32 = K.Matern32(1.0, 1.0)


def regression(kernel=M32, **options):
    return numpyro.handlers.seed(ngp.gp_regression, 0)("y", kernel, LINE, 0.1, **{"obs": Y, **options})


def latent(inducing=LINE, plates=(), **options):
    with numpyro.handlers.seed(rng_seed=0), numpyro.plate("rows", 12) if plates else nullcontext():
        return ngp.gp("f", M32, inducing=inducing, **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: regression(K.RBF(1.0, 1.0)), "kernel of a process on a line must be one of few states, but got a RBF"),
        (lambda: regression(K.Linear(1.0) * M32), "a product of kernels on a line must be one of stationary kernels"),
        (lambda: regression(M32.on(1)), "the columns of a kernel on a line must be times"),
        (lambda: regression(K.Matern32(1.0, jnp.ones(2))), "lengthscale of Matern32 must be a number on a line"),
        (lambda: regression(K.Wiener(1.0, origin=5.0)), "origin of Wiener on a line must be at or before all rows"),
        (lambda: regression(obs=Y[:3]), "obs of site 'y' must be of shape"),
        (lambda: regression(inducing=Y[:, None]), "inducing must be None where rows are on a line"),
        (lambda: latent(outputs=2), "outputs must be None where rows are on a line"),
        (lambda: latent(LINE.find(Y)), "inducing must be the line of the fit"),
        (lambda: latent(plates=("rows",)), "plates around site 'f' must be none"),
        (lambda: ngp.line(np.zeros((3, 3))), r"t must be of shape \(N,\), \(N, 1\) or"),
        (lambda: ngp.line([0.0, np.nan]), "t must be finite"),
        (lambda: ngp.line(np.ma.array([0.0, 1.0], mask=[False, True])), "t must be finite"),
        (
            lambda: ngp.line(np.array(["2020-01-01"], "datetime64[D]")),
            "t must be real numbers, but got an array of date",
        ),
        (lambda: LINE.find(LINE), "t_new must be numbers, but got a Line"),
        (lambda: regression(K.Matern12(1.0, 1.0))(LINE.find(Y, slope=True)), "one whose functions have a slope"),
        (
            lambda: regression()(ngp.functionals.Derivative(Y[:, None], 0)),
            r"Pass times. Of slopes pass line.find\(t_new",
        ),
        (lambda: jax.jit(ngp.line)(Y), "t must be known"),
        (lambda: LINE[np.arange(3)], r"a line must be taken as a whole, but got an index.*ngp\.line\(t\[rows\]\)"),
    ],
)
def test_wrong_use_is_refused_with_a_cure(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


@pytest.mark.long
@pytest.mark.parametrize(
    ("rows", "count", "message"),
    [
        (lambda f, idx: f.at_inducing(), 4, "of the shape of f.*A line takes no minibatches: leave subsample_size out"),
        (lambda f, idx: f.at_inducing(), 12, "of the rows of its plates.*A line takes no minibatches"),
        (lambda f, idx: f(LINE.inputs[idx]), 4, r"at the rows that have pseudo-data.*Observe.*f\.at_inducing\(\)"),
    ],
)
def test_minibatches_are_refused_with_a_cure(rows, count, message):
    def model():
        f = ngp.gp("f", M32, inducing=LINE)
        with numpyro.plate("data", 12, subsample_size=4) as idx:
            ngp.observe("y", rows(f, idx), ngp.likelihoods.Gaussian(0.1), obs=Y[:count])

    belief = ngp.beliefs.PseudoRows(jnp.zeros(12), jnp.zeros(12))
    with pytest.raises(ValueError, match=message):
        numpyro.handlers.seed(numpyro.handlers.substitute(model, {"f": belief}), 0)()


@pytest.mark.long
def test_times_before_the_origin_of_a_walk_are_refused():
    def model(line, y=None):
        return ngp.gp_regression("y", K.Wiener(1.0, origin=0.5), line, 0.09, obs=y)

    posterior, line, y = ngp.Posterior.from_svi(model, lambda *_: None, {}), ngp.line([1.0, 2.0, 3.0]), np.ones(3)
    assert np.isfinite(posterior.predict_at(KEY, [0.6, 2.5], line, y).function_mean).all()
    for ask in (posterior.predict_at, posterior.function_draws):
        with pytest.raises(ValueError, match="X must be at or behind the origin of the kernel"):
            ask(KEY, [0.1, 2.5], line, y)


@pytest.mark.long
def test_a_predictor_is_asked_again_for_other_rows_and_counts():
    t = times(30)
    y, line = data(t), ngp.line(t)

    def model(line, y=None):
        return ngp.gp_regression("y", K.Matern32(1.3, 0.7), line, 0.09, obs=y)

    posterior = ngp.Posterior.from_svi(model, lambda *_: None, {})
    predictor = posterior.predictor(KEY, line, y)
    for new in (np.array([0.05, 3.0, 401.0]), np.array([7.0, 2.0]), np.array([t[4]])):
        _, mean, covariance = dense(K.Matern32(1.3, 0.7), t, new, y, 0.09)
        found = predictor(new)
        np.testing.assert_allclose(found.function_mean, mean, atol=1e-9)
        np.testing.assert_allclose(found.function_variance, np.diag(covariance), rtol=1e-8)


def test_what_exponentials_lose_has_its_digits_near_zero_and_on_both_sides_of_the_series():
    u = np.array([1e-6, 0.3, 1.999, 2.001, 30.0])
    with jax.enable_x64(True):
        found, slope = jax.jvp(lambda u: lost(5, u), (jnp.asarray(u),), (jnp.ones(5),))
    from scipy.special import gammainc

    for n in range(5):
        np.testing.assert_allclose(found[n], gammainc(n + 1, u), rtol=1e-11)
        np.testing.assert_allclose(slope[n], np.exp(-u) * u**n / np.prod(np.arange(1, n + 1)), rtol=1e-12)


def two_series(count=40):
    """Rows of three series in turns, some at one time."""
    rows = np.column_stack([times(count), np.random.default_rng(6).integers(0, 3, count)])
    rows[9, 0] = rows[10, 0]
    return rows


def of_series(a):
    weights = jnp.array([[1.0], [0.5], [-0.8]]) * a
    return K.Matern32(1.3, 2.0).on(0) * K.Coregion(weights, 0.2 * a).on(1) + K.Matern12(0.4, 1.0).on(0)


@pytest.mark.long
@pytest.mark.parametrize("is_double", [True, False])
def test_several_series_on_a_line_are_the_dense_process(is_double):
    rows = two_series()
    y, noise = data(rows[:, 0]), np.array([0.05, 0.1, 0.2])[rows[:, 1].astype(int)]
    new = np.array([[0.05, 2], [3.0, 0], [3.0, 1], [401.0, 2]])
    log, mean, covariance = dense(of_series(1.0), rows, new, y, noise)

    def exact(a):
        return dist.MultivariateNormal(0.0, of_series(a).matrix(rows) + jnp.diag(noise)).log_prob(jnp.asarray(y))

    with x64(is_double):
        line, allowed = ngp.line(rows), 1e-8 if is_double else 1e-4
        found, slopes = evidence(of_series, line, jnp.asarray(y), jnp.asarray(noise))
        f = numpyro.handlers.seed(ngp.gp_regression, 0)("y", of_series(1.0), line, noise, obs=y)
        prediction = f(line.find(new))
    assert float(found) == pytest.approx(log, rel=allowed)
    assert float(slopes[0]) == pytest.approx(float(jax.grad(exact)(1.0)), rel=10 * allowed)
    np.testing.assert_allclose((prediction.loc - mean) / np.sqrt(np.diag(covariance)), 0, atol=allowed)
    np.testing.assert_allclose(prediction.scale, np.sqrt(np.diag(covariance)), rtol=allowed)


@pytest.mark.long
@pytest.mark.parametrize("is_one", [True, False])
def test_pseudo_data_of_gaussian_data_are_the_exact_process(is_one):
    """A step of 1 lands on the data themselves: the loss is minus the evidence. Functions are drawn together."""
    rows, kernel = (times(40), K.Matern32(1.3, 0.7)) if is_one else (two_series(), of_series(1.0))
    new = np.array([0.05, 3.0, 399.0, 401.0]) if is_one else np.array([[3.0, 0], [3.0, 1], [401.0, 2]])
    y, line = data(rows if is_one else rows[:, 0]), ngp.line(rows)

    def model(line, y=None):
        f = ngp.gp("f", kernel, inducing=line, mean=0.5)
        ngp.observe("y", f.at_inducing(), ngp.likelihoods.Gaussian(0.3), obs=y)

    optimiser = ngp.optim.natural_gradient(ngp.optim.optax.adam(0.01), 1.0)
    result = ngp.fit(KEY, SVI(model, ngp.AutoGP(model), optimiser, Trace_ELBO()), 3, line, y, progress=False)
    log, mean, covariance = dense(kernel, rows, new, y - 0.5, 0.09)
    assert float(result.losses[-1]) == pytest.approx(-log, rel=1e-8)
    posterior = result.posterior()
    prediction = posterior.predict_at(KEY, new, line, y)
    np.testing.assert_allclose(prediction.function_mean, mean + 0.5, atol=1e-6)
    np.testing.assert_allclose(prediction.function_variance, np.diag(covariance), rtol=1e-6)
    if not is_one:
        with pytest.raises(ValueError, match="of series that it has"):
            posterior.predict_at(KEY, [[3.0, 3]], line, y)
        draws = np.asarray(posterior.function_draws(KEY, new, line, y, num_samples=4000))
        np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.1)


@pytest.mark.parametrize(
    ("rows", "kernel", "words"),
    [
        (two_series(), K.Matern32(1.0, 1.0), "of one column each"),
        (two_series(), K.Matern32(1.0, 1.0).on(0) * K.Coregion(jnp.ones((2, 1)), 0.1).on(1), "category codes"),
        (times(9), K.Matern32(1.0, 1.0) * K.Periodic(1.0, 0.2, 2.0), "lengthscale of Periodic"),
        (times(9), K.Matern32(1.0, 1.0).on(1), "columns of a kernel on a line"),
        (times(9), K.Matern32(1.0, 1.0).on(0) * K.Coregion(jnp.ones((2, 1)), 0.1).on(1), "column"),
    ],
)
def test_kernels_that_do_not_fit_the_rows_are_refused(rows, kernel, words):
    with pytest.raises((ValueError, TypeError), match=words), numpyro.handlers.seed(rng_seed=0):
        ngp.gp_regression("y", kernel, ngp.line(rows), 0.1, obs=np.zeros(len(rows)))


@pytest.mark.long
def test_traced_codes_of_no_series_have_no_number():
    line = ngp.line(two_series())
    f = numpyro.handlers.seed(ngp.gp_regression, 0)("y", of_series(1.0), line, 0.1, obs=np.zeros(line.size))
    codes = jnp.array([0.0, 2.0, -1.0, 0.7, 3.0])
    found = jax.jit(lambda codes: f(line.find(jnp.stack([jnp.full(5, 3.0), codes], axis=1))).loc)(codes)
    assert np.isnan(found).tolist() == [False, False, True, True, True]


def test_second_columns_are_codes():
    with pytest.raises(ValueError, match="second column of t"):
        ngp.line(np.random.default_rng(0).normal(size=(5, 2)))
    with pytest.raises(ValueError, match="of shape"):
        ngp.line(two_series()).find([1.0, 2.0])


@pytest.mark.long
def test_levels_of_series_and_ties_keep_their_digits_in_single_precision():
    """Each datum from all others, where levels are known to a millionth of what the prior says of them."""
    rows, weights = two_series(60), np.array([[1.0], [0.5], [-0.8]])
    rows[:, 0] = np.round(2 * np.random.default_rng(0).uniform(0, 12, 60)) / 2
    y = np.sin(rows[:, 0]) + 0.01 * np.random.default_rng(1).normal(size=60)
    codes, apart = rows[:, 1].astype(int), 2 * np.pi / 3 * np.abs(rows[:, :1] - rows[:, 0])
    levels = 2.0 + (weights @ weights.T + np.diag([0.1, 0.2, 0.3]))[np.ix_(codes, codes)]
    precision = np.linalg.inv(levels + 1.2 * np.exp(-apart) * (1 + apart) + 1e-4 * np.eye(60))
    with x64(False):
        kernel = K.Constant(2.0) + K.Coregion(jnp.asarray(weights), jnp.array([0.1, 0.2, 0.3])).on(1)
        kernel = kernel + K.SHO(1.2, 3.0, 0.5).on(0)
        with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.trace() as trace:
            ngp.gp_regression("y", kernel, ngp.line(rows), 1e-4, obs=y)
        mean, variance = trace["y"]["fn"].left_out(jnp.asarray(y))
    np.testing.assert_allclose(np.asarray(variance) * np.diag(precision), 1, atol=0.01)
    wanted = y - precision @ y / np.diag(precision)
    np.testing.assert_allclose((np.asarray(mean) - wanted) * np.sqrt(np.diag(precision)), 0, atol=0.01)


@pytest.mark.long
@pytest.mark.parametrize(
    "kernel",
    [
        K.Linear(0.1).on(0) * K.Coregion(jnp.ones((3, 1)), 0.2).on(1),
        K.Coregion(jnp.ones((3, 1)), 0.2).on(1) * (K.Wiener(0.5, origin=-1.0) + K.Constant(2.0) * K.Linear(0.2)).on(0),
        K.Matern32(1.0, 2.0).on(0) * (0.5 * K.Coregion(jnp.ones((3, 1)), 0.2) + K.Constant(0.3)).on(1),
        K.Matern12(0.4, 1.0).on(0),  # of times alone: all series are one
    ],
)
def test_each_series_has_a_slope_or_a_walk_and_tables_of_codes_add_and_scale(kernel):
    rows = two_series()
    y, new = data(rows[:, 0]), np.array([[0.05, 2], [3.0, 0], [401.0, 1]])
    log, mean, covariance = dense(kernel, rows, new, y, 0.1)
    with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.trace() as trace:
        f = ngp.gp_regression("y", kernel, ngp.line(rows), 0.1, obs=y)
    np.testing.assert_allclose(trace["y"]["fn"].log_prob(jnp.asarray(y)), log, rtol=1e-8)
    found = f(f.data.near.find(new))
    np.testing.assert_allclose(found.loc, mean, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(np.square(found.scale), np.diag(covariance), rtol=1e-6)


@pytest.mark.long
def test_a_series_that_a_table_does_not_have_has_no_number():
    """Neither of a table of one series, nor where the table beside it has more."""
    few, more = (K.Coregion(jnp.ones((count, 1)), 0.1).on(1) for count in (1, 3))
    rows, time = np.column_stack([times(9), np.zeros(9)]), K.Matern32(1.0, 2.0).on(0)
    for kernel in (time * few, time * (few * more) + more):
        f = numpyro.handlers.seed(ngp.gp_regression, 0)("y", kernel, ngp.line(rows), 0.1, obs=np.zeros(9))
        new = jnp.array([[3.0, 0.0], [3.0, 1.0]])
        assert np.isnan(jax.jit(lambda new, f=f: f(f.data.near.find(new)).loc)(new)).tolist() == [False, True]
    f = numpyro.handlers.seed(ngp.gp_regression, 0)("y", time * few, ngp.line(rows), 0.1, obs=np.zeros(9))
    with pytest.raises(ValueError, match="category codes"):
        f(f.data.near.find(new))


def test_a_walk_that_starts_at_large_times_is_refused_in_single_precision():
    """Its origin and the first row are rounded to 128 seconds there; what the cure says is the dense process."""
    since = 10.0 * np.arange(1, 41)
    y, t = data(since), since + 1.7e9
    wanted = dense(K.Wiener(0.1, origin=0.0), since, since[:1], y, 0.1)[0]
    with x64(False):
        call = numpyro.handlers.seed(ngp.gp_regression, 0)
        with pytest.raises(
            ValueError, match="the first time of a kernel that is not stationary must be known to a tenth"
        ):
            call("y", K.Wiener(0.1, origin=1.7e9), ngp.line(t), 0.1, obs=y)
        line = ngp.line(t - t[0])
        moved = K.Wiener(0.1, origin=-10.0)
        found, _ = log_density(lambda: ngp.gp_regression("y", moved, line, 0.1, obs=y), (), {}, {})
    assert float(found) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.long
def test_an_oscillation_of_much_friction_has_a_density_in_single_precision():
    t = times(30)
    y, kernel = data(t), K.SHO(1.0, 3.0, 0.001)
    wanted = dense(kernel, t, t[:1], y, 0.1)[0]
    with x64(False):
        found, slopes = evidence(lambda a: K.SHO(1.0, 3.0, 0.001 * a), ngp.line(t), jnp.asarray(y), 0.1)
    assert float(found) == pytest.approx(wanted, rel=1e-4)
    assert np.isfinite(float(slopes[0]))


@pytest.mark.long
@pytest.mark.parametrize(("quality", "gap", "noise"), [(1e-3, 3e-4, 1e-6), (1e6, 0.57, 1e-4)])
def test_oscillations_of_much_and_of_little_friction_keep_their_digits_in_single_precision(quality, gap, noise):
    """Behind the gaps of the series what a state loses was a difference of ones: 2.9 too little, slopes six times."""
    t = gap * np.arange(200)

    def make(a):
        return K.SHO(1.0, 2 * np.pi * a, quality)

    S = np.asarray(make(1.0).matrix(t[:, None])) + noise * np.eye(200)
    y = np.linalg.cholesky(S) @ np.random.default_rng(0).normal(size=200)

    def exact(a, y, noise):
        return dist.MultivariateNormal(0.0, make(a).matrix(t[:, None]) + noise * jnp.eye(200)).log_prob(y)

    wanted, own = jax.jit(jax.value_and_grad(exact, (0, 1, 2)))(1.0, jnp.asarray(y), noise)
    with x64(False):
        found, slopes = evidence(make, ngp.line(t), jnp.asarray(y), noise)
    assert float(found) == pytest.approx(float(wanted), abs=0.03)
    assert float(slopes[0]) == pytest.approx(float(own[0]), rel=2e-3)
    assert float(slopes[2]) == pytest.approx(float(own[2]), rel=5e-2)


@pytest.mark.long
def test_rows_that_are_any_number_of_lengthscales_apart_are_independent():
    """Powers of a gap overflowed, and nothing times them was no number."""
    t, y = np.arange(20.0), data(np.arange(20.0))
    with x64(False):
        found, slopes = evidence(lambda a: K.Matern52(1.3 * a, 1e-12 * a), ngp.line(t), jnp.asarray(y), 0.1)
    assert float(found) == pytest.approx(np.sum(stats.norm.logpdf(y, scale=np.sqrt(1.4))), rel=1e-5)
    assert float(slopes[0]) == pytest.approx(np.sum(0.65 * (np.square(y / 1.4) - 1 / 1.4)), rel=1e-4)
