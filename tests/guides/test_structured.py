"""Recipes for additive sites: their starts, the natural step on the mean, and the optima they reach."""

import functools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
import pytest
from numpyro import handlers
from numpyro.infer import SVI, Trace_ELBO
from scipy.optimize import minimize

import numpyro_gp as ngp
from numpyro_gp.beliefs import Basis, BlockDiagonal, Structured
from numpyro_gp.guides.natural import is_natural, natural_to_mean
from numpyro_gp.likelihoods import Gaussian
from numpyro_gp.sites import InducingPrior
from tests.oracles.additive import additive_basis_of
from tests.oracles.build import build
from tests.oracles.vectors import cases

RECIPES = {
    "block_diagonal": (ngp.guides.block_diagonal, {"f/mean", "f/c0/scale_tril", "f/c1/scale_tril", "f/c2/scale_tril"}),
    "structured": (lambda **o: ngp.guides.structured(2, **o), {"f/mean", "f/W"}),
    "block_low_rank": (
        lambda **o: ngp.guides.block_low_rank(2, **o),
        {"f/mean", "f/W", "f/c0/precision_tril", "f/c1/precision_tril", "f/c2/precision_tril"},
    ),
}


def prior(number=0, dtype=jnp.float64):
    basis = additive_basis_of(cases("additive")[number], 1e-6, dtype)
    return InducingPrior("f", basis, (basis.size,))


def run(recipe, site, seed=0):
    with handlers.seed(rng_seed=seed), handlers.trace() as trace:
        belief = recipe("f", site)
    return belief, {name: message["value"] for name, message in trace.items()}


@pytest.mark.long
@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("natural", [False, True])
def test_starts_and_names(name, natural):
    """The start is the prior, up to a small W that is not zero and not the same for another key."""
    factory, names = RECIPES[name]
    belief, params = run(factory(natural=natural), prior(dtype=jnp.float32))
    assert belief.dtype == jnp.float32
    if not natural:
        assert set(params) == names
    assert any(is_natural(key) for key in params) == natural
    assert 0 <= float(belief.kl(prior(dtype=jnp.float32).basis)) < 0.1
    if "f/W" in params:
        assert np.all(params["f/W"] != 0)
        assert np.all(params["f/W"] != run(factory(), prior(dtype=jnp.float32), 1)[1]["f/W"])
    assert pickle.loads(pickle.dumps(factory(natural=natural)))


@jax.jit
def bound_at(X, belief, basis, likelihood, y):
    return likelihood.expected_log_prob(y, *belief.marginals(basis, X)).sum() - belief.kl(basis)


def bound(belief, basis, case, likelihood, y):
    return bound_at(jnp.asarray(case["X"]), belief, basis, likelihood, jnp.asarray(y))


def mean_field_optimum(basis, case):
    """The best `BlockDiagonal`, by natural steps on one block after the other (each exact)."""
    likelihood = Gaussian(np.sqrt(case["noise"]))
    A = [np.asarray(block) for block in basis.blocks(jnp.asarray(case["X"]))]
    precisions = [np.eye(len(one)) + one @ one.T / case["noise"] for one in A]
    means = [np.zeros(len(one)) for one in A]
    for _ in range(400):
        for c, one in enumerate(A):
            rest = case["y"] - sum(A[e].T @ means[e] for e in range(len(A)) if e != c)
            means[c] = np.linalg.solve(precisions[c], one @ rest / case["noise"])
    factors = tuple(natural_to_mean(jnp.zeros(len(P)), jnp.asarray(P))[1] for P in precisions)
    return bound(BlockDiagonal(jnp.asarray(np.concatenate(means)), factors), basis, case, likelihood, case["y"])


@pytest.mark.long
def test_rank_n_trains_to_the_exact_optimum_and_beats_mean_field():
    """From the small random start of the recipe, by its ordinary gradients; from W = 0 it could not."""
    case = cases("additive")[0]
    basis, size = additive_basis_of(case), len(case["y"])
    start, params = run(ngp.guides.structured(size), InducingPrior("f", basis, (basis.size,)))
    likelihood, shape = Gaussian(np.sqrt(case["noise"])), params["f/W"].shape

    @jax.jit
    def loss(flat):
        belief = Structured(flat[: basis.size], flat[basis.size :].reshape(shape))
        return -bound(belief, basis, case, likelihood, case["y"])

    flat = np.concatenate([start.mean, start.W.ravel()])
    found = minimize(
        jax.jit(jax.value_and_grad(loss)),
        flat,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 5000, "maxfun": 9000, "ftol": 1e-15, "gtol": 1e-8},
    )
    np.testing.assert_allclose(-found.fun, case["optimal/elbo_gaussian"], atol=1e-4)
    assert mean_field_optimum(basis, case) < -found.fun - 0.05


@pytest.mark.parametrize("case", cases("additive"))
def test_the_start_from_inputs_is_the_best_low_rank_part(case):
    """At rank N it is the exact precision; at rank 2 it is the leading part (a random start is off by > 0.5)."""
    basis, X = additive_basis_of(case), case["X"]
    site = InducingPrior("f", basis, (basis.size,))
    full, _ = run(ngp.guides.structured(len(X), inputs=X, curvature=1 / case["noise"]), site)
    exact = basis.features(jnp.asarray(X))
    np.testing.assert_allclose(full.W @ full.W.T, exact @ exact.T / case["noise"], rtol=1e-9, atol=1e-9)
    values = np.linalg.svd(exact / np.sqrt(case["noise"]), compute_uv=False)
    two, _ = run(ngp.guides.structured(2, inputs=X, curvature=1 / case["noise"]), site)
    np.testing.assert_allclose(np.linalg.norm(two.W, axis=0), values[:2], rtol=1e-9)
    more, _ = run(ngp.guides.structured(len(X) + 2, inputs=X, curvature=1 / case["noise"]), site)
    assert np.all(np.linalg.norm(more.W, axis=0) > 0)


def test_a_given_start():
    site = prior()
    W = np.ones((site.event_shape[0], 2))
    np.testing.assert_array_equal(run(ngp.guides.structured(2, W=W), site)[0].W, W)
    with pytest.raises(ValueError, match=r"W of the recipe for 'f' must be of shape \(13, 3\)"):
        run(ngp.guides.structured(3, W=W), site)


SHARED = np.random.default_rng(1)
COLUMNS = np.clip(SHARED.uniform(size=(400, 1)) + 0.15 * SHARED.normal(size=(400, 4)), 0, 1)
SUM = np.sin(np.arange(2, 10, 2) * COLUMNS).sum(1)
LINE = jnp.linspace(0.0, 1.0, 8)[:, None] * jnp.ones((1, 4))
KERNELS = {
    f"x{d}": ngp.kernels.ZeroMean(ngp.kernels.RBF(1.0, 0.3), ngp.kernels.Uniform(0.0, 1.0)).on(d) for d in range(4)
}


@functools.cache
def basis_of_columns():
    return build(ngp.beliefs.AdditiveBasis.build)(KERNELS, dict.fromkeys(KERNELS, LINE), None)


def correlated(X, y, likelihood, batch=None):
    f = ngp.additive_gp("f", KERNELS, dict.fromkeys(KERNELS, LINE))
    with numpyro.plate("data", len(X), subsample_size=batch) as rows:
        ngp.observe("y", f(X[rows]), likelihood, obs=y[rows])


def best_in_family(A, y, noise, rank):
    """The mean of ridge regression, and the leading eigenvectors of what Gaussian data say: the best of rank r."""
    J = np.eye(len(A)) + A @ A.T / noise
    values, vectors = np.linalg.eigh(J)
    return np.linalg.solve(J, A @ y / noise), vectors[:, -rank:] * np.sqrt(np.maximum(values[-rank:] - 1, 0))


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "rank", "steps", "nats"),
    [
        ("structured", 10, 100, 0.05),
        ("block_low_rank", 8, 300, 0.5),
    ],
)
def test_correlated_columns_train_at_defaults(kind, rank, steps, nats):
    """Near the family's optimum; Adam, or a mean that is divided by S, stays 100s below.

    Rank 10 cuts between eigenvalues of 101 and 97. Without spare columns it is 0.6 nats below after these steps.
    """
    y = jnp.asarray(SUM - SUM.mean() + 0.3 * np.random.default_rng(2).normal(size=400))
    basis = basis_of_columns()
    X, likelihood = jnp.asarray(COLUMNS), Gaussian(0.3)
    mean, W = best_in_family(np.asarray(basis.features(X)), np.asarray(y), 0.09, rank)
    case = {"X": X}
    best = bound(Structured(jnp.asarray(mean), jnp.asarray(W)), basis, case, likelihood, y)
    guide = ngp.AutoGP(correlated, {"f": getattr(ngp.guides, kind)(rank, natural=True)})
    svi = SVI(correlated, guide, ngp.optim.natural_gradient(optax.adam(1e-2)), Trace_ELBO())
    result = svi.run(jax.random.key(0), steps, X, y, likelihood, progress_bar=False)
    found = bound(guide.beliefs(result.params)["f"], basis, case, likelihood, y)
    assert found > best - nats
    if kind == "structured":
        assert found < best + 1e-6


@pytest.mark.long
def test_default_steps_average_the_noise_of_batches():
    """Within 3 times the least that 300 independent batches leave; constant steps of 0.1 end 28 times as far.

    That least is the variance of the average of their statistics, in nats.
    """
    y = jnp.asarray(SUM - SUM.mean() + 0.3 * np.random.default_rng(2).normal(size=400))
    basis = basis_of_columns()
    X, likelihood, rows = jnp.asarray(COLUMNS), Gaussian(0.3), 80
    A = np.asarray(basis.features(X))
    mean, W = best_in_family(A, np.asarray(y), 0.09, 16)
    best = bound(Structured(jnp.asarray(mean), jnp.asarray(W)), basis, {"X": X}, likelihood, y)
    guide = ngp.AutoGP(correlated, {"f": ngp.guides.structured(16, natural=True)})
    svi = SVI(correlated, guide, ngp.optim.natural_gradient(optax.adam(1e-2)), Trace_ELBO())
    result = svi.run(jax.random.key(0), 300, X, y, likelihood, batch=rows, progress_bar=False)
    gap = best - bound(guide.beliefs(result.params)["f"], basis, {"X": X}, likelihood, y)
    leverage = np.sum(A * np.linalg.solve(np.eye(len(A)) + A @ A.T / 0.09, A), axis=0) / 0.09
    residuals = (np.asarray(y) - A.T @ mean) / 0.3
    least = (400 / rows - 1) * np.sum(leverage * residuals**2) / 2 / 300
    assert 0.3 * least < gap < 3 * least


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ngp.guides.structured(0), ValueError, "rank must be at least 1"),
        (lambda: ngp.guides.block_low_rank(1.5), TypeError, "rank must be a whole number"),
        (lambda: ngp.guides.block_diagonal(scale=0.0), ValueError, "scale must be positive"),
        (
            lambda: ngp.guides.structured(1, W=np.ones((2, 1)), inputs=np.ones((2, 1))),
            ValueError,
            "inputs must be left",
        ),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("name", RECIPES)
def test_a_single_process_is_refused(name):
    basis = Basis.build(ngp.kernels.RBF(1.0, 0.5), jnp.linspace(0.0, 1.0, 3)[:, None])
    with pytest.raises(TypeError, match="the site 'f' must be an additive_gp"):
        run(RECIPES[name][0](), InducingPrior("f", basis, (3,)))


@pytest.mark.long
@pytest.mark.parametrize("name", ["structured", "block_low_rank"])
def test_members_that_a_mask_hides_stay_where_they_are(name):
    X, seen = jnp.asarray(np.random.default_rng(0).uniform(size=(8, 2))), jnp.array([True, False])
    y = jnp.sin(3 * X[:, 0])[None] + jnp.arange(2.0)[:, None]
    kernels = {"a": ngp.kernels.RBF(1.0, 0.5).on(0), "b": ngp.kernels.RBF(1.0, 0.5).on(1)}

    def model():
        with numpyro.plate("group", 2, dim=-2), handlers.mask(mask=seen[:, None]):
            f = ngp.additive_gp("f", kernels, {"a": X[:3], "b": X[3:6]})
            with numpyro.plate("data", 8):
                ngp.observe("y", f(X), Gaussian(0.3), obs=y)

    guide = ngp.AutoGP(model, {"f": RECIPES[name][0](natural=True)})
    svi = SVI(model, guide, ngp.optim.natural_gradient(optax.sgd(1e-2), 0.1), Trace_ELBO())
    state = svi.init(jax.random.key(0))
    before = svi.get_params(state)
    update = jax.jit(lambda state: svi.update(state)[0])
    after = svi.get_params(update(update(state)))
    for own in after:
        assert np.isfinite(after[own]).all(), own
        np.testing.assert_allclose(after[own][1], before[own][1], atol=1e-12, err_msg=own)
        assert float(jnp.abs(after[own][0] - before[own][0]).max()) > 1e-5, own
