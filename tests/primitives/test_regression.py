"""Gaussian regression with the function integrated out: evidence, collapsed bound, conditioned process."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density
from scipy import stats

import numpyro_gp as ngp
from tests.oracles.build import kernel_of
from tests.oracles.vectors import cases
from tests.precision import x64


def conditioned(case, inducing=None, jitter=0.0):
    return ngp.gp_regression(
        "y", kernel_of(case), case["X"], case["noise"], inducing=inducing, obs=case["y"], jitter=jitter
    )


def tight(case):
    """The collapsed bound with ``sum (d - log(1 + d)) / 2`` back, ``d`` what is left of the variance / noise, by NumPy."""
    kernel, X, Z = kernel_of(case), jnp.asarray(case["X"]), jnp.asarray(case["Z"])
    inner, cross, prior = (np.asarray(kernel.matrix(*rows)) for rows in ((Z, Z), (Z, X), (X, X)))
    d = (np.diag(prior) - (cross * np.linalg.solve(inner, cross)).sum(axis=0)) / case["noise"]
    return case["bound"] + 0.5 * (d - np.log1p(d)).sum()


@pytest.mark.long
@pytest.mark.parametrize("case", cases("collapsed"))
@pytest.mark.parametrize("kind", ["exact", "collapsed"])
def test_evidence_and_predictions(case, kind):
    """A missing trace term or a missing 1/2 moves the bound by more than 0.05.

    The collapsed one is that of the oracle, with what a fitted variance of the function gains: never less, and below
    the evidence.
    """
    Z = None if kind == "exact" else case["Z"]
    density, _ = log_density(lambda: conditioned(case, Z), (), {}, {})
    np.testing.assert_allclose(density, case["exact_lml"] if kind == "exact" else tight(case), atol=1e-9)
    assert case["bound"] <= tight(case) <= case["exact_lml"] + 1e-9
    f = conditioned(case, Z)
    wanted_mean, wanted_cov = (
        (case["exact_mean"], case["exact_cov"]) if kind == "exact" else (case["mean"], case["cov"])
    )
    np.testing.assert_allclose(f(case["Xs"]).loc, wanted_mean, atol=1e-9)
    np.testing.assert_allclose(f(case["Xs"]).scale ** 2, np.diag(wanted_cov), atol=1e-9)
    np.testing.assert_allclose(f.joint(case["Xs"]).covariance_matrix, wanted_cov, atol=1e-9)


@pytest.mark.parametrize("case", cases("collapsed"))
def test_inducing_inputs_at_the_data_give_the_evidence(case):
    X = jnp.asarray(case["X"])
    model = lambda: ngp.gp_regression(  # noqa: E731
        "y", kernel_of(case), X, case["noise"], inducing=X, obs=case["y"], jitter=0.0
    )
    np.testing.assert_allclose(log_density(model, (), {}, {})[0], case["exact_lml"], atol=1e-8)


@pytest.mark.long
def test_noise_for_each_datum(rng):
    """Of the collapsed bound below."""
    case = cases("collapsed")[0]
    noise, gram = rng.uniform(0.05, 0.5, 9), np.asarray(kernel_of(case).matrix(jnp.asarray(case["X"])))
    model = lambda: ngp.gp_regression("y", kernel_of(case), case["X"], noise, obs=case["y"])  # noqa: E731
    wanted = stats.multivariate_normal(np.zeros(9), gram + np.diag(noise)).logpdf(case["y"])
    np.testing.assert_allclose(log_density(model, (), {}, {})[0], wanted, rtol=1e-10)


@pytest.mark.parametrize("noise", [0.2, np.linspace(0.1, 0.5, 9)])
def test_at_its_own_data_the_process_needs_no_second_gram_matrix(noise):
    """The inputs themselves and a copy of them give the same numbers; noise on rows in place of columns does not."""
    case = cases("collapsed")[0]
    X = jnp.asarray(case["X"])
    f = ngp.gp_regression("y", kernel_of(case), X, noise, obs=case["y"])
    np.testing.assert_allclose(f(X).loc, f(X + 0.0).loc, atol=1e-10)
    np.testing.assert_allclose(f(X).scale, f(X + 0.0).scale, atol=1e-10)


@pytest.mark.parametrize("sparse", [False, True])
def test_prior_draws_have_the_right_covariance(sparse):
    X = jnp.linspace(0.0, 2.0, 3)[:, None]
    kernel = ngp.kernels.RBF(1.5, 1.0)

    def draw(key):
        with handlers.seed(rng_seed=key), handlers.trace() as trace:
            ngp.gp_regression("y", kernel, X, 0.3, inducing=X if sparse else None)
        return trace["y"]["value"]

    values = jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(0), 20000))
    np.testing.assert_allclose(np.cov(values.T), np.asarray(kernel.matrix(X)) + 0.3 * np.eye(3), atol=0.07)


def test_the_noise_variance_under_both_of_its_names():
    case = cases("collapsed")[0]
    data = {"X": case["X"], "obs": case["y"]}
    new = ngp.gp_regression("y", kernel_of(case), noise_variance=0.1, **data)
    with pytest.warns(FutureWarning, match=r"now called noise_variance: gp_regression\(..., noise_variance=") as said:
        old = ngp.gp_regression("y", kernel_of(case), noise=0.1, **data)
    assert said[0].filename == __file__
    np.testing.assert_array_equal(new(case["Xs"]).loc, old(case["Xs"]).loc)
    with pytest.raises(TypeError, match="noise_variance must be given, but got None"):
        ngp.gp_regression("y", kernel_of(case), **data)
    with pytest.warns(FutureWarning), pytest.raises(TypeError, match="noise must be left out where noise_variance"):
        ngp.gp_regression("y", kernel_of(case), noise=0.1, noise_variance=0.1, **data)


def test_a_factorisation_that_fails_is_named():
    """All entries of the Gram matrix are one. A mean, which the belief's own check would name, was not passed."""
    X, kernel = jnp.linspace(0.0, 1.0, 4)[:, None], ngp.kernels.RBF(1.0, 1e9)
    match = r"the covariance of the inducing inputs of site 'y' must be positive definite in float64.*larger jitter"
    with pytest.raises(ValueError, match=match):
        ngp.gp_regression("y", kernel, X, 1e-9, inducing=X, obs=jnp.ones(4), jitter=0.0)
    ngp.gp_regression("y", kernel, X, 1e-9, inducing=X, obs=jnp.ones(4))


@pytest.mark.long
def test_noise_that_members_and_rows_could_both_claim_is_refused():
    """Five members of five rows: the variances of members were taken for those of rows."""
    X, y = jnp.linspace(-1.0, 1.0, 5)[:, None], jnp.ones((5, 5))
    noise = jnp.linspace(0.1, 1.0, 5)

    def density(noise, X=X):
        def model():
            with numpyro.plate("group", 5):
                ngp.gp_regression("y", ngp.kernels.RBF(1.3, 0.7), X, noise, obs=y[:, : len(X)])

        return log_density(model, (), {}, {})[0]

    with pytest.raises(
        ValueError, match=r"noise_variance must be of shape \(5, 1\), one for each member, or \(1, 5\), one for"
    ):
        density(noise)
    gram = np.asarray(ngp.kernels.RBF(1.3, 0.7).matrix(X))
    of_members = sum(stats.multivariate_normal.logpdf(y[0], np.zeros(5), gram + one * np.eye(5)) for one in noise)
    of_rows = 5 * stats.multivariate_normal.logpdf(y[0], np.zeros(5), gram + np.diag(noise))
    np.testing.assert_allclose(density(noise[:, None]), of_members, rtol=1e-10)
    np.testing.assert_allclose(density(noise[None]), of_rows, rtol=1e-10)


@pytest.mark.parametrize("is_double", [True, False])
def test_the_collapsed_bound_is_tight_with_a_noise_of_each_row(is_double):
    """By dense algebra: the bound of 2009 and what a fitted variance gains, between it and the evidence; its slope."""
    rng = np.random.default_rng(3)
    X, y, noise = rng.uniform(size=(12, 2)), rng.normal(size=12), rng.uniform(0.05, 0.4, size=12)
    Z = X[::4] + 0.05

    def dense(scale):
        gram = lambda a, b: np.exp(-0.5 * (((a[:, None] - b[None]) / scale) ** 2).sum(axis=-1))  # noqa: E731
        cross = gram(Z, X)
        low = cross.T @ np.linalg.solve(gram(Z, Z) + 1e-4 * np.eye(3), cross)
        d = (1 - np.diag(low)) / noise
        at_zero = np.zeros(12)
        below = stats.multivariate_normal(at_zero, low + np.diag(noise)).logpdf(y)
        evidence = stats.multivariate_normal(at_zero, gram(X, X) + np.diag(noise)).logpdf(y)
        return below - 0.5 * np.log1p(d).sum(), below - 0.5 * d.sum(), evidence

    with x64(is_double):
        rows, points, data, own = (jnp.asarray(values) for values in (X, Z, y, noise))

        def bound(scale):
            kernel = ngp.kernels.RBF(jnp.ones_like(scale), scale)
            model = lambda: ngp.gp_regression("y", kernel, rows, own, inducing=points, obs=data, jitter=1e-4)  # noqa: E731
            return log_density(model, (), {}, {})[0]

        value, slope = jax.jit(jax.value_and_grad(bound))(jnp.asarray(0.3))
        tight, loose, evidence = dense(0.3)
        np.testing.assert_allclose(value, tight, rtol=1e-9 if is_double else 1e-4)
        assert loose + 0.1 < tight < evidence
        by_hand = (dense(0.3 + 1e-5)[0] - dense(0.3 - 1e-5)[0]) / 2e-5
        np.testing.assert_allclose(slope, by_hand, rtol=1e-6 if is_double else 1e-3)


def test_mean_function_shifts_the_data():
    case = cases("collapsed")[1]
    shifted = ngp.gp_regression("y", kernel_of(case), case["X"], case["noise"], mean=2.0, obs=case["y"] + 2.0)
    np.testing.assert_allclose(shifted(case["Xs"]).loc, case["exact_mean"] + 2.0, atol=1e-8)
