"""Every recipe of the guide's page: its model has the density that its words promise, in NumPy and SciPy.

The inducing inputs are the data, so that a function at the data is known from its whitened values.
"""

import ast
import re

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
import pytest
from numpyro import handlers
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.util import log_density
from scipy import stats
from scipy.special import expit

import numpyro_gp as ngp
from examples.tools.guide_figures import FENCE, GUIDE

PAGE = (GUIDE / "recipes.md").read_text()
RNG = np.random.default_rng(0)
X, V = np.linspace(-2.0, 2.0, 6)[:, None], RNG.normal(size=6)
ROOT = np.linalg.cholesky(np.asarray(ngp.kernels.Matern52(1.0, 1.0).matrix(X)) + 1e-6 * np.eye(6))
F, PRIOR = ROOT @ V, stats.norm.logpdf(V).sum()


def functions(wanted, kinds=(ast.Import, ast.ImportFrom, ast.FunctionDef)):
    """What blocks of the page define, with these inducing inputs: no other statement of theirs runs."""
    found = [match["code"] for match in re.finditer(FENCE, PAGE, re.M | re.S) if wanted(match)]
    nodes = [node for code in found for node in ast.parse(code).body if isinstance(node, kinds)]
    names = {"Z": X, "jax": jax, "jnp": jnp, "ngp": ngp, "numpyro": numpyro}
    exec(compile(ast.Module(nodes, []), "recipes.md", "exec"), names)
    return names


RECIPES = functions(lambda block: block["fence"] == "python")


def density(model, *data, **values):
    """Of the data and hyper-parameters, at the whitened values ``V``."""
    model = RECIPES[model] if isinstance(model, str) else model
    return float(log_density(model, data, {}, {"f": jnp.asarray(V)} | values)[0]) - PRIOR


def of_features(features, y):
    """The log density of data under the kernel of such features ``(6, 2)``."""
    squares = ((features[:, None] - features[None]) ** 2).sum(-1)
    f = np.linalg.cholesky(np.exp(-0.5 * squares) + 1e-4 * np.eye(6)) @ V
    return stats.norm.logpdf(y, f, 0.3).sum()


def test_weights():
    y, weights = RNG.normal(size=6), RNG.uniform(0.5, 3.0, 6)
    expected = np.sum(weights * stats.norm.logpdf(y, F, 0.3))
    np.testing.assert_allclose(density("weighted", X, y, weights), expected, rtol=1e-4)


def test_exposures():
    y, exposure = RNG.poisson(5.0, 6).astype(float), RNG.uniform(1.0, 9.0, 6)
    expected = stats.poisson.logpmf(y, exposure * np.exp(F)).sum()
    np.testing.assert_allclose(density("counts", X, y, exposure), expected, rtol=1e-4)


@pytest.mark.long
def test_trials():
    trials = np.array([3, 5, 8, 13, 21, 34])
    y = (trials // 2).astype(float)
    np.testing.assert_allclose(
        density("successes", X, y, trials), stats.binom.logpmf(y, trials, expit(F)).sum(), rtol=1e-4
    )


def test_zero_inflation():
    y, gate = np.array([0.0, 2.0, 0.0, 5.0, 1.0, 0.0]), 0.3
    each = gate * (y == 0) + (1 - gate) * stats.poisson.pmf(y, np.exp(1 + F))
    expected = np.log(each).sum() + stats.beta.logpdf(gate, 1.0, 3.0)
    np.testing.assert_allclose(density("inflated", X, y, gate=gate), expected, rtol=1e-4)


def test_missing_values_count_only_as_missing():
    y, seen, slope = np.array([0.1, 99.0, 0.3, 99.0, -0.2, 0.0]), np.array([1.0, 0.0, 1.0, 0.0, 1.0, 1.0]), -1.3
    expected = stats.bernoulli.logpmf(seen, expit(slope * F)).sum() + stats.norm.logpdf(slope, 0.0, 2.0)
    expected += stats.norm.logpdf(y, F, 0.3)[seen == 1].sum()
    np.testing.assert_allclose(density("selected", X, y, seen, slope=slope), expected, rtol=1e-4)


DRAW = {"pair": jnp.zeros((2, 3))}


@pytest.mark.long
def test_pairs_are_of_one_function():
    first, second, won = X[[0, 1, 2]], X[[3, 4, 5]], np.array([1.0, 0.0, 1.0])
    expected = stats.bernoulli.logpmf(won, expit(4 * (F[:3] - F[3:]))).sum()
    found, trace = log_density(RECIPES["preferences"], (first, second, won), {}, {"f": jnp.asarray(V)} | DRAW)
    own = sum(float(jnp.sum(trace[name]["fn"].log_prob(value))) for name, value in DRAW.items())
    np.testing.assert_allclose(float(found) - PRIOR - own, expected, rtol=1e-3)


@pytest.mark.long
def test_a_deep_kernel_is_that_of_features():
    first, second, y = RNG.normal(size=(1, 8)), RNG.normal(size=(8, 2)), RNG.normal(size=6)
    prior = stats.norm.logpdf(first).sum() + stats.norm.logpdf(second).sum()
    found = density("deep_kernel", X, y, first=jnp.asarray(first), second=jnp.asarray(second)) - prior
    np.testing.assert_allclose(found, of_features(np.tanh(X @ first) @ second, y), rtol=2e-3)


@pytest.mark.long
@pytest.mark.parametrize(("package", "name"), [("flax", "flax_kernel"), ("equinox", "equinox_kernel")])
def test_networks_of_other_packages(package, name):
    """Their own weights, read as NumPy arrays; a fit trains them."""
    pytest.importorskip(package)
    model, y = functions(lambda block: f"import {package}" in block["code"], ast.stmt)[name], np.sign(X[:, 0])
    trace = handlers.trace(handlers.seed(model, 0)).get_trace(X, y)
    weights = jax.tree.map(jnp.asarray, trace["network$params"]["value"])
    if package == "flax":
        layers = [weights["layers_0"], weights["layers_2"]]
        (first, b), (second, c) = [(np.asarray(one["kernel"]), np.asarray(one["bias"])) for one in layers]
    else:
        (first, b), (second, c) = [(np.asarray(one.weight).T, np.asarray(one.bias)) for one in weights.layers]
    found = density(model, X, y, **{"network$params": weights})
    np.testing.assert_allclose(found, of_features(np.tanh(X @ first + b) @ second + c, y), rtol=2e-3)

    svi = SVI(model, ngp.AutoGP(model), optax.adam(0.05), Trace_ELBO())
    fit = ngp.fit(jax.random.key(0), svi, 60, X, y, progress=False)
    assert np.mean(fit.losses[-10:]) < np.mean(fit.losses[:10])
    pairs = zip(jax.tree.leaves(fit.params["network$params"]), jax.tree.leaves(weights), strict=True)
    # The last bias moves all features alike, which the kernel does not see.
    assert all(np.abs(after - before).max() > 1e-3 for after, before in pairs if after.ndim == 2)
