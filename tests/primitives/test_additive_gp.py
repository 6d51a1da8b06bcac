"""The additive_gp primitive: predictor, components, shapes, and the same model under every engine."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro import handlers
from numpyro.infer import SVI, Trace_ELBO, init_to_median
from numpyro.infer.autoguide import AutoDelta
from numpyro.infer.util import log_density

import numpyro_gp as ngp
from tests.oracles.additive import POSTERIORS, additive_of, belief_of
from tests.oracles.vectors import cases


def process(value, kernels, inducing, **options):
    """The process that a model sees when its site holds ``value``."""
    with handlers.seed(rng_seed=0), handlers.substitute(data={"f": value}):
        return ngp.additive_gp("f", kernels, inducing, **options)


@pytest.mark.long
@pytest.mark.parametrize("tag", POSTERIORS)
def test_predictor_and_components(tag):
    """Of three components; beliefs of all cases meet the oracle in ``beliefs/test_structured.py``."""
    case = cases("additive")[2]
    f = process(belief_of(case, tag), *additive_of(case), jitter=0.0)
    X = case["Xs"]
    assert isinstance(f(X), dist.Normal)
    np.testing.assert_allclose(f(X).loc, case[f"{tag}/mean"], atol=1e-9)
    np.testing.assert_allclose(f(X).variance, np.diag(case[f"{tag}/cov"]), atol=1e-9)
    np.testing.assert_allclose(f.joint(X).covariance_matrix, case[f"{tag}/cov"], atol=1e-9)
    np.testing.assert_allclose(f.component_covariance(X), case[f"{tag}/component_cov_same_point"], atol=1e-9)
    for c, (name, normal) in enumerate(f.components(X).items()):
        assert name == f"c{c}"
        np.testing.assert_allclose(normal.loc, case[f"{tag}/component_mean"][c], atol=1e-9)
        np.testing.assert_allclose(normal.variance, case[f"{tag}/component_cov_same_point"][:, c, c], atol=1e-9)


@pytest.mark.parametrize("tag", POSTERIORS)
def test_model_at_a_belief_is_the_bound(tag):
    case = cases("additive")[2]

    def model():
        f = ngp.additive_gp("f", *additive_of(case), jitter=0.0)
        with numpyro.plate("data", len(case["y"])):
            ngp.observe("y", f(case["X"]), ngp.likelihoods.Gaussian(np.sqrt(case["noise"])), obs=case["y"])

    bound, _ = log_density(model, (), {}, {"f": belief_of(case, tag)})
    np.testing.assert_allclose(bound, case[f"{tag}/elbo_gaussian"], rtol=1e-9)


@pytest.mark.long
def test_leading_axes_means_and_shared_inputs(rng):
    case = cases("additive")[2]
    kernels, inducing = additive_of(case)
    belief, X = belief_of(case, "structured"), np.stack([case["Xs"], case["Xs"] + 0.1])
    f = process(belief, kernels, inducing, mean=ngp.means.Constant(2.0))
    assert f(X).batch_shape == f.components(X)["c0"].batch_shape == (2, 5)
    assert f.component_covariance(X).shape == (2, 5, 3, 3)
    assert (f.joint(X).batch_shape, f.joint(X).event_shape) == ((2,), (5,))
    np.testing.assert_allclose(sum(one.loc for one in f.components(X).values()) + 2.0, f(X).loc, atol=1e-12)
    with handlers.seed(rng_seed=0):
        assert f.draw("e", X).shape == (2, 5)
    shared = jnp.asarray(rng.normal(size=(4, 3)))
    both = process(jnp.zeros(12), kernels, dict.fromkeys(kernels, shared))
    assert both.basis.parts[0].inducing is both.basis.parts[1].inducing


def data(seed=0, size=40):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(size, 2))
    return jnp.asarray(X), jnp.asarray(np.sin(6 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.normal(size=size))


def model(X, y=None, batch=None):
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.5).expand([2]).to_event(1))
    line = jnp.linspace(0.0, 1.0, 5)[:, None] * jnp.ones((1, 2))
    kernels = {name: ngp.kernels.RBF(scale[d], 0.4).on(d) for d, name in enumerate(("a", "b"))}
    f = ngp.additive_gp("f", kernels, {"a": line, "b": line})
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as rows:
        ngp.observe("y", f(X[rows]), ngp.likelihoods.Gaussian(0.1), obs=None if y is None else y[rows])


RECIPES = {
    "structured": lambda X: ngp.guides.structured(10, natural=True, inputs=X, curvature=100.0),
    "plain": lambda X: ngp.guides.structured(3),
}


def prediction_error(posterior):
    X, _ = data(1)
    truth = np.sin(6 * X[:, 0]) + X[:, 1] ** 2
    prediction = posterior.predict(jax.random.key(2), X, num_samples=4)
    assert jnp.isfinite(prediction.log_density(jnp.asarray(truth))).all()
    return float(jnp.sqrt(jnp.mean((prediction.function_mean - truth) ** 2)))


@pytest.mark.long
@pytest.mark.parametrize("recipe", RECIPES)
def test_svi_with_minibatches(recipe):
    """The zero function has an error of 0.9. W lags behind the scales, so that steps of 0.1 would diverge at first."""
    X, y = data()
    guide = ngp.AutoGP(model, {"f": RECIPES[recipe](X)}, rest=partial(AutoDelta, init_loc_fn=init_to_median))
    rest = optax.adam(0.03)
    svi = SVI(model, guide, rest if recipe == "plain" else ngp.optim.natural_gradient(rest, 0.03), Trace_ELBO())
    result = svi.run(jax.random.key(0), 400, X, y, batch=20, progress_bar=False)
    assert jnp.isfinite(result.losses).all()
    assert prediction_error(ngp.Posterior.from_svi(model, guide, result.params)) < 0.15


@pytest.mark.parametrize(
    ("kernels", "inducing", "message"),
    [
        ({"a": ngp.kernels.RBF(1.0, 1.0)}, {}, r"inducing must be about the components of kernels, \['a'\]"),
        (
            {"a": ngp.kernels.RBF(1.0, 1.0).on(0), "b": ngp.kernels.RBF(1.0, 1.0).on(1)},
            {"a": np.zeros((2, 2)), "b": np.zeros((2, 1))},
            r"inducing\['b'\] must be an array with 2 columns",
        ),
    ],
)
def test_bad_input(kernels, inducing, message):
    with handlers.seed(rng_seed=0), pytest.raises(ValueError, match=message):
        ngp.additive_gp("f", kernels, inducing)


def test_inputs_of_the_wrong_width_and_a_belief_of_the_wrong_size():
    case = cases("additive")[0]
    f = process(belief_of(case, "structured"), *additive_of(case))
    with pytest.raises(ValueError, match="X must be an array with 3 columns"):
        f.components(np.zeros((4, 2)))
    small = ngp.beliefs.Structured(jnp.zeros(3), jnp.ones((3, 1)))
    with pytest.raises(ValueError, match="the belief at site 'f' must be over whitened values of shape"):
        process(small, *additive_of(case))
