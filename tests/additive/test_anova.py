"""ANOVA designs: what they read from the data, and that every component but the constant averages to zero."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers

import numpyro_gp as ngp
from numpyro_gp.additive import anova
from tests.precision import x64


def table(seed=0, size=60):
    rng = np.random.default_rng(seed)
    return np.stack(
        [rng.uniform(10, 30, size), rng.choice([2.0, 5.0, 9.0], size, p=[0.2, 0.5, 0.3]), rng.normal(size=size)], 1
    )


def layout(**options):
    return anova.design(
        table(), names=["age", "group", "dose"], categorical=["group"], num_inducing=5, pair_inducing=3, **options
    )


def test_components_grids_and_maps():
    found, X = layout(pairs=[("dose", "age"), (0, "group")]), table()
    assert found.components == {
        "constant": (), "age": (0,), "group": (1,), "dose": (2,), "age:dose": (0, 2), "age:group": (0, 1)
    }  # fmt: skip
    assert {name: len(points) for name, points in found.inducing().items()} == {
        "constant": 1, "age": 5, "group": 3, "dose": 5, "age:dose": 9, "age:group": 9
    }  # fmt: skip
    mapped = np.asarray(found.map(X))
    np.testing.assert_allclose(mapped[:, 0], (X[:, 0] - X[:, 0].min()) / np.ptp(X[:, 0]))
    np.testing.assert_array_equal(np.array([2.0, 5.0, 9.0])[mapped[:, 1].astype(int)], X[:, 1])
    np.testing.assert_allclose(found.inputs[1].frequencies, [np.mean(X[:, 1] == level) for level in (2.0, 5.0, 9.0)])
    assert len(found.slots) == 5
    level = found.inputs[1].map(jnp.array([5.0, 6.0]))
    np.testing.assert_array_equal(level, [1.0, np.nan])
    every = layout(pairs="all", constant=False).components
    assert list(every.values()) == [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)]
    assert pickle.loads(pickle.dumps(found)) == found


@jax.jit
def locations(f, at):
    """Means of the components, and of their sum."""
    return {name: one.loc for name, one in f.components(at).items()}, f(at).loc


@pytest.mark.long
def test_every_component_but_the_constant_averages_to_zero():
    """Plain kernels would leave averages of order one."""
    found = layout(pairs="all", family=ngp.kernels.Matern32)
    f = jax.jit(lambda: handlers.seed(lambda: found.process("f"), 0)())()
    nodes, weights = np.polynomial.legendre.leggauss(400)
    grid, frequencies = ((nodes + 1) / 2, weights / 2), np.array(found.inputs[1].frequencies)
    for d, (values, share) in {0: grid, 1: (np.arange(3.0), frequencies), 2: grid}.items():
        at = np.tile([0.3, 1.0, 0.7], (len(values), 1))
        at[:, d] = values
        parts, total = locations(f, at)
        for name, columns in found.components.items():
            if d in columns:
                np.testing.assert_allclose(share @ np.asarray(parts[name]), 0.0, atol=1e-5)
    np.testing.assert_allclose(parts["constant"], parts["constant"][0], rtol=1e-12)
    np.testing.assert_allclose(total, sum(parts.values()), atol=1e-10)


@pytest.mark.parametrize("measure", ["empirical", "gaussian"])
def test_effects_average_to_zero_under_the_measure_that_is_chosen(measure):
    """Over the rows: 60 values in 32 bins, whose means they share."""
    X = np.random.default_rng(0).lognormal(size=(60, 1))
    found = anova.design(X, measure=measure)
    kernel = found.kernels(jnp.ones(1), jnp.full(1, 0.5))["x0"]
    points, weights = found.measures[0].quadrature()
    np.testing.assert_allclose(kernel.matrix(found.map(X[:3]), points[:, None]) @ weights, 0, atol=1e-9)
    mapped = np.asarray(found.map(X))
    np.testing.assert_allclose(weights @ points, mapped.mean(), rtol=1e-9)
    if measure == "gaussian":
        np.testing.assert_allclose(found.measures[0].sd, mapped.std(), rtol=1e-9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: layout(pairs=[("age",)]), "pairs must be 'all' or a sequence of pairs"),
        (lambda: layout(pairs=[("age", "height")]), "columns must be numbers below 3 or names among"),
        (lambda: layout(pairs=[("age", -1)]), "columns must be numbers below 3 or names among"),
        (lambda: layout(pairs=[("age", 0.0)]), "columns must be numbers below 3 or names among"),
        (lambda: layout(pairs=[("age", "dose"), (2, 0)]), "pairs must be pairs of two different columns, each once"),
        (lambda: anova.design(np.ones((4, 1))), "input 'x0' must be a column that varies"),
        (  # whose effect that of the pair would replace
            lambda: anova.design(np.arange(12.0).reshape(4, 3), names=["a", "b", "a:b"], pairs=[("a", "b")]),
            "names must be other than 'a:b', that of a pair",
        ),
        (lambda: layout().map(np.array([[10.0, 3.0, 0.0]])), "input 'group' must be one of the levels"),
        (lambda: layout().map(np.zeros((2, 2))), "X must be an array with 3 columns"),
        (lambda: layout().process("f", scale=0.0), "scale must be positive"),
        (lambda: layout(family=ngp.kernels.Periodic), "family must be RBF, Matern12, Matern32 or Matern52"),
        (
            lambda: layout(measure="gaussian", family=ngp.kernels.Matern52),
            "measure must be 'uniform' or 'empirical' for M",
        ),
    ],
)
def test_bad_input(call, message):
    with handlers.seed(rng_seed=0), pytest.raises((ValueError, TypeError), match=message):
        call()


@pytest.mark.long
def test_a_category_that_the_design_has_not_seen_is_refused_by_predictions_too():
    """There the inputs are traced: NaN came back."""
    X = table()[:, 1:2]
    design = anova.design(X, names=["group"], categorical=["group"], constant=False)
    model = design.model(lambda: ngp.likelihoods.Gaussian(0.1))
    posterior = ngp.Posterior.from_mcmc(model, {"f_scale": jnp.ones((2, 1)), "f": jnp.ones((2, 3))})
    assert np.all(np.isfinite(posterior.predict(jax.random.key(0), X).mean))
    X[2] = 7.0
    with pytest.raises(ValueError, match=r"input 'group' must be one of the levels \[2.0, 5.0, 9.0\], but got 7.0"):
        posterior.predict(jax.random.key(0), X)


@pytest.mark.long
def test_the_constant_is_known_exactly_where_its_one_value_is():
    """In float32 a jitter of 1e-4 left a standard deviation of 0.1 to a constant whose prior has 10."""
    with x64(False):
        f = handlers.seed(lambda: layout().process("f", scale=1.0), 0)()
        assert f.basis.dtype == jnp.float32
        rows = jnp.asarray(layout().map(table()[:3]), jnp.float32)
        spread = np.sqrt(f.components(rows)["constant"].variance)
    assert np.all(spread <= 10 * np.sqrt(4 * np.finfo(np.float32).eps) * 1.001)  # what rounding of k - |A|^2 leaves
