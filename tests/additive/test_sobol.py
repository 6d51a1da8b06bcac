"""Sobol indices against the dense oracle (products of one-dimensional integrals by adaptive quadrature)."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

import numpyro_gp as ngp
from numpyro_gp.additive import sobol
from numpyro_gp.kernels import RBF, Constant, Empirical, Gaussian, Matern52, Uniform, ZeroMean, ZeroMeanCategory
from numpyro_gp.sites import unwrap
from tests.oracles.additive import additive_of
from tests.oracles.vectors import cases

KEY = jax.random.key(0)


def process(value, kernels, inducing, **options):
    with handlers.seed(rng_seed=0), handlers.substitute(data={"f": value}):
        return ngp.additive_gp("f", kernels, inducing, **options)


def process_of(case, dtype=jnp.float64, jitter=0.0):
    belief = ngp.beliefs.Structured(jnp.asarray(case["m"], dtype), jnp.asarray(case["W"], dtype))
    return process(belief, *additive_of(case, zero_mean=True, dtype=dtype), jitter=jitter)


@pytest.mark.long
@pytest.mark.parametrize("case", cases("sobol"))
def test_plug_in_and_expected(case):
    """Sixteen nodes over the whole interval, without a break at each kink, are off by 1e-5 (Matern-1/2)."""

    @jax.jit
    def found():
        f = process_of(case)
        plugged = sobol.plug_in(f)
        return f(case["Xs"]).loc, plugged, sobol.expected(f), sobol.totals(f, plugged)

    mean, plugged, hoped, totals = found()
    np.testing.assert_allclose(mean, case["mean"], atol=1e-9)
    np.testing.assert_allclose(list(plugged.variance.values()), case["square_of_mean"], rtol=1e-7)
    np.testing.assert_allclose(list(plugged.index.values()), case["index_plugin"], rtol=1e-7)
    np.testing.assert_allclose(list(hoped.variance.values()), case["mean_of_square"], rtol=1e-7)
    np.testing.assert_allclose(totals[0], case["index_plugin"][0] + case["index_plugin"][2], rtol=1e-7)
    np.testing.assert_allclose(totals[1], case["index_plugin"][1] + case["index_plugin"][2], rtol=1e-7)


@pytest.mark.long
@pytest.mark.parametrize("case", cases("sobol")[:1])
def test_draws_average_to_the_expectation(case):
    """20000 draws: standard errors below 2 %; draws without the spread of q average to the plug-in."""
    found = jax.jit(lambda: sobol.draws(process_of(case), jax.random.key(0), 20000))()
    for value, wanted in zip(found.variance.values(), case["mean_of_square"], strict=True):
        np.testing.assert_allclose(value.mean(), wanted, rtol=0.05)
    np.testing.assert_allclose(sum(found.index.values()), 1.0, rtol=1e-9)
    for name, (low, high) in sobol.intervals(found, 0.8).items():
        inside = (found.index[name] > low) & (found.index[name] < high)
        np.testing.assert_allclose(inside.mean(), 0.8, atol=0.01)


@pytest.mark.long
def test_other_beliefs_agree_with_structured():
    """The same posterior as a full belief, and points as its limit of no spread."""
    case = cases("sobol")[0]
    covariance = np.linalg.inv(np.eye(len(case["m"])) + case["W"] @ case["W"].T)

    @jax.jit
    def found():
        kernels, inducing = additive_of(case, zero_mean=True)
        f, mean = process_of(case), jnp.asarray(case["m"])
        full = process(ngp.beliefs.Coupled(mean, np.linalg.cholesky(covariance)), kernels, inducing, jitter=0.0)
        point = process(mean, kernels, inducing, jitter=0.0)
        of_points = sobol.draws(point, jax.random.key(0), 3).variance, sobol.expected(point).variance
        return sobol.expected(f).variance, sobol.expected(full).variance, *of_points

    structured, full, draws, points = found()
    for name, value in structured.items():
        np.testing.assert_allclose(full[name], value, rtol=1e-9)
        np.testing.assert_allclose(draws[name], points[name] * np.ones(3), rtol=1e-8)


@pytest.mark.long
def test_float32():
    """And at lengthscale 100 a zero-mean kernel is 1e-6 of its variance: the plain form has no correct digit there."""
    case = cases("sobol")[0]

    def variance_and_mean(dtype):
        line = jnp.tile(jnp.linspace(0.0, 1.0, 3, dtype=dtype)[:, None], 2)
        zero, one = jnp.zeros((), dtype), jnp.ones((), dtype)
        kernels = {
            name: ZeroMean(RBF(one, length * one), Uniform(zero, one)).on(d)
            for d, (name, length) in enumerate((("a", 100.0), ("b", 1.0)))
        }
        f = process(jnp.ones(6, dtype), kernels, {"a": line, "b": line}, jitter=1e-2)
        return sobol.plug_in(f).variance["a"], f.components(line)["a"].loc

    single, double = jax.jit(lambda: [variance_and_mean(dtype) for dtype in (jnp.float32, jnp.float64)])()
    np.testing.assert_allclose(single[0], double[0], rtol=5e-3)
    np.testing.assert_allclose(single[1], double[1], rtol=5e-3, atol=1e-6)
    found = jax.jit(lambda: sobol.plug_in(process_of(case, jnp.float32, 1e-6)))()
    for value, wanted in zip(found.index.values(), case["index_plugin"], strict=True):
        assert value.dtype == jnp.float32
        np.testing.assert_allclose(value, wanted, atol=2e-3)


@pytest.mark.long
def test_categories_and_gaussian_measures_against_brute_force(rng):
    """Sums over levels and a dense grid of normal quantiles, typed in NumPy."""
    p = np.array([0.2, 0.5, 0.3])
    numeric = ZeroMean(RBF(1.3, 0.8), Gaussian(0.5, 0.7)).on(0)
    category = ZeroMeanCategory(0.8, jnp.asarray(p)).on(1)
    kernels = {"c": Constant(4.0), "x": numeric, "k": category, "xk": 1.4 * numeric * category}
    line = np.stack([np.linspace(-1, 2, 6), np.zeros(6)], 1)
    levels = np.stack([np.zeros(3), np.arange(3.0)], 1)
    both = np.array([[x, k] for x in (-0.5, 0.5, 1.5) for k in range(3)])
    inducing = {"c": levels[:1], "x": line, "k": levels, "xk": both}
    size = sum(map(len, inducing.values()))
    belief = ngp.beliefs.MeanField(rng.normal(size=size), rng.uniform(0.2, 1, size))
    grid = np.linspace(-5, 6, 4001)
    density = np.exp(-0.5 * ((grid - 0.5) / 0.7) ** 2)
    density /= density.sum()
    at = np.array([[x, k] for k in range(3) for x in grid])
    weights = np.concatenate([p[k] * density for k in range(3)])

    @jax.jit
    def found():
        f = process(belief, kernels, inducing)
        plugged, parts = sobol.plug_in(f), f.components(at)
        moments = {name: (one.loc, one.variance) for name, one in parts.items()}
        return moments, plugged, sobol.expected(f), sobol.totals(f, plugged)

    moments, plugged, hoped, totals = found()
    for name in ("x", "k", "xk"):
        mean, variance = map(np.asarray, moments[name])
        np.testing.assert_allclose(plugged.variance[name], weights @ mean**2, rtol=1e-8)
        np.testing.assert_allclose(hoped.variance[name], weights @ (mean**2 + variance), rtol=1e-7)
        np.testing.assert_allclose(weights @ mean, 0.0, atol=1e-9)
    assert "c" not in plugged.index
    assert totals.keys() == {0, 1}


LINE, ZERO = np.linspace(0, 1, 3)[:, None], ZeroMean(RBF(1.0, 1.0), Uniform(0.0, 1.0)).on(0)


def single(kernel, value=1.0):
    return process(jnp.full(3, value), {"a": kernel}, {"a": LINE})


@pytest.mark.long
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sobol.sample(3, KEY, LINE), r"posterior must be an ngp\.Posterior, but got an int\. Use Posterior"),
        (lambda: sobol.each_draw(3, KEY, lambda f, key: 0.0, LINE), r"posterior must be an ngp\.Posterior, but got an"),
        (lambda: sobol.plug_in(single(RBF(1.0, 1.0))), "the kernel of a component must be built from ZeroMean"),
        (lambda: sobol.plug_in(single(ZERO * ZERO)), "component 'a' must be a product over different columns"),
        (lambda: sobol.plug_in(single(Constant(1.0))), "components must be at least one that is not constant"),
        (lambda: sobol.intervals(sobol.plug_in(single(ZERO)), 1.0), "level must be less than 1"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


@pytest.mark.long
def test_components_that_are_not_orthogonal_are_refused():
    """A trend and a wiggle of one column: the variances of the two summed to half as much again as that of the sum."""
    trend, wiggle = (ZeroMean(RBF(1.0, scale), Uniform()).on(0) for scale in (0.5, 0.1))
    other = ZeroMean(RBF(1.0, 0.5), Uniform(0.0, 2.0)).on(0) * ZeroMean(RBF(1.0, 0.5), Uniform()).on(1)
    same = "measure of column 0 must be the same in all components, .* 'trend' and 'pair'"
    for kernels, columns, message in (
        ({"trend": trend, "wiggle": wiggle}, 1, r"'trend' and 'wiggle', both of \[0\]"),
        ({"trend": trend, "pair": other}, 2, same),
    ):
        inducing = dict.fromkeys(kernels, jnp.tile(LINE, columns))
        with pytest.raises(ValueError, match=message):
            sobol.plug_in(process(jnp.ones(6), kernels, inducing))


def test_processes_of_groups_are_refused():
    with numpyro.plate("group", 3):
        f = process(jnp.zeros((3, 3)), {"a": ZERO}, {"a": LINE})
    match = r"f must be the process of one group, but got one for each member of plate 'group'"
    with pytest.raises(ValueError, match=match):
        sobol.plug_in(f)


@pytest.mark.long
def test_over_rows_equals_the_dense_formula():
    """With inducing inputs at all rows the posterior is exact: moments of f over the rows by dense algebra."""
    rng = np.random.default_rng(0)
    X = np.stack([rng.lognormal(size=9), rng.normal(size=9)], axis=1)
    kernels = {"one": 1.3 * ZeroMean(Matern52(1.0, 0.7), Empirical.of(X[:, 0])).on(0), "all": RBF(0.8, 1.1)}
    y, noise = rng.normal(size=9), 0.3
    # A zero-mean function has nine values of eight degrees: eight rows determine it.
    inducing = {"one": X[:8], "all": X}

    @jax.jit
    def found():
        best = ngp.beliefs.additive_optimum(kernels, inducing, X, y, noise, jitter=0.0, form="full").belief
        f = process(best, kernels, inducing, jitter=0.0)
        return sobol.plug_in(f, X), sobol.expected(f, X), sobol.draws(f, jax.random.key(0), 4000, X)

    plugged, hoped, drawn = (indices.variance for indices in found())
    gram = {name: np.asarray(kernel.matrix(X)) for name, kernel in kernels.items()}
    inverse = np.linalg.inv(sum(gram.values()) + noise * np.eye(9))
    centre = np.eye(9) - 1 / 9
    for name, K in gram.items():
        mean, covariance = K @ inverse @ y, K - K @ inverse @ K
        own = np.sum((centre @ mean) ** 2) / 9
        np.testing.assert_allclose(plugged[name], own, rtol=1e-8)
        total = own + np.trace(centre @ covariance) / 9
        np.testing.assert_allclose(hoped[name], total, rtol=1e-8)
        np.testing.assert_allclose(drawn[name].mean(), total, atol=4 * drawn[name].std() / 4000**0.5)


@pytest.mark.long
def test_rows_for_the_measure_are_raw_for_the_model_of_a_design():
    """A row is mapped as the inputs of the model are; rows in other units than the process reads are refused."""
    rng = np.random.default_rng(1)
    X = np.stack([rng.uniform(0.0, 365.0, 30), 20 + rng.exponential(20.0, 30)], axis=1)
    design = ngp.anova.design(X, names=["day", "age"], num_inducing=4, constant=False)
    model, values = design.model(lambda: ngp.likelihoods.Gaussian(0.1)), rng.normal(size=8)
    draws = {"f_scale": [[1.0, 1.0]], "f_lengthscale": [[0.3, 0.5]], "f": [values]}
    posterior = ngp.Posterior.from_mcmc(model, {name: jnp.asarray(value) for name, value in draws.items()})
    found = sobol.sample(posterior, jax.random.key(0), X, over=X, num_samples=1).variance
    mapped, centre = (X - X.min(axis=0)) / np.ptp(X, axis=0), np.eye(30) - 1 / 30
    for d, (name, length) in enumerate((("day", 0.3), ("age", 0.5))):
        kernel, line = ZeroMean(RBF(1.0, length), Uniform()), np.linspace(0.0, 1.0, 4)[:, None]
        at = mapped[:, [d]]
        features = np.linalg.solve(np.linalg.cholesky(kernel.matrix(line)), kernel.matrix(line, at))
        mean = values[4 * d : 4 * d + 4] @ features
        total = mean @ centre @ mean + np.trace(centre @ (kernel.matrix(at) - features.T @ features))
        np.testing.assert_allclose(found[name][0], total / 30, rtol=1e-3)  # the process has a jitter
    with handlers.seed(rng_seed=0):
        f = design.process()
    with pytest.raises(ValueError, match="over must be as the process reads them, within 0 to 1, but got values from"):
        sobol.plug_in(f, X)


def model(X, y=None):
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.1))
    kernels = {name: ZeroMean(RBF(scale, 0.4), Uniform(0.0, 1.0)).on(d) for d, name in enumerate(("a", "b"))}
    line = jnp.linspace(0.0, 1.0, 4)[:, None] * jnp.ones((1, 2))
    f = ngp.additive_gp("f", kernels, {"a": line, "b": line})
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)


@pytest.mark.long
def test_each_draw_of_a_posterior(rng):
    """The process of draw s is the model's at that draw's values."""
    X = jnp.asarray(rng.uniform(size=(5, 2)))
    stored = {"scale": jnp.array([0.5, 1.0, 2.0]), "f": jnp.asarray(rng.normal(size=(3, 8)))}
    posterior = ngp.Posterior.from_mcmc(model, stored)
    found = sobol.each_draw(posterior, jax.random.key(0), lambda f, key: f(X).loc, X)
    assert found.shape == (3, 5)
    with handlers.seed(rng_seed=0), handlers.substitute(data={k: v[2] for k, v in stored.items()}):
        trace = handlers.trace(model).get_trace(X)
    np.testing.assert_allclose(found[2], unwrap(trace["y"]["fn"]).mean_latent, rtol=1e-9)
    shares = sobol.sample(posterior, jax.random.key(1), X, num_samples=9)
    assert shares.index["a"].shape == (9,)
    np.testing.assert_allclose(sum(shares.index.values()), 1.0, rtol=1e-9)


@pytest.mark.long
def test_two_processes_under_one_key_have_noise_of_their_own():
    """Each had the same key: draws of the shares of ``f`` and ``g`` moved together as if one knew of the other."""

    def model(X, y=None):
        kernel, points = {"a": ZeroMean(RBF(1.0, 0.4), Uniform(0.0, 1.0))}, {"a": jnp.linspace(0.0, 1.0, 4)[:, None]}
        f, g = (ngp.additive_gp(name, kernel, points) for name in "fg")
        with numpyro.plate("data", len(X)):
            ngp.observe("y", (f(X), g(X)), lambda f, g: dist.Normal(f + g, 1.0), obs=y)

    posterior, X = ngp.Posterior.from_mcmc(model, {name: jnp.zeros((300, 4)) for name in "fg"}), jnp.zeros((2, 1))
    normal = lambda f, key: jax.random.normal(key)  # noqa: E731
    f, g = (sobol.each_draw(posterior, jax.random.key(0), normal, X, site=name) for name in "fg")
    assert abs(np.corrcoef(f, g)[0, 1]) < 0.2
