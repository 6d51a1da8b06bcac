"""A stack in a model: the composition of layers against dense NumPy, its gradients, and every engine."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro import handlers
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp
from numpyro_gp.guides.recipes import LocalPrior
from numpyro_gp.starting.deep.stack import Units, _beside_products, _standardised
from tests.compiling import counted
from tests.fits import particles

pytestmark = pytest.mark.usefixtures("allow_rank_promotion")


@pytest.fixture
def data(rng):
    X = rng.normal(size=(12, 2)) * np.array([3.0, 0.5]) + 1
    return jnp.asarray(X), jnp.asarray(np.sin(X[:, 0]) + 0.1 * rng.normal(size=12))


def model_of(layers):
    def model(X, y=None, batch=None):
        f = layers()
        noise = numpyro.sample("noise", ngp.starting.noise_prior())
        with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
            ngp.observe("y", f(X[idx]), ngp.likelihoods.Gaussian(noise), obs=None if y is None else y[idx])

    return model


def conditional(Z, v, H, lengthscale, variance):
    """Mean and variance of f(H) given whitened values v (P, M) of f(Z), RBF kernel, dense."""

    def k(A, B):
        return variance * np.exp(-0.5 * (((A[:, None] - B[None]) / lengthscale) ** 2).sum(-1))

    L = np.linalg.cholesky(k(Z, Z) + 1e-6 * variance * np.eye(len(Z)))
    A = np.linalg.solve(L, k(Z, H))
    return (v @ A).T, variance - (A**2).sum(0)


def dense(layers, point, X, kind, width):
    """Means and variances of the last layer, for points at every site, written out in NumPy."""
    h = (np.asarray(X) - np.asarray(X).mean(0)) / np.asarray(X).std(0)
    w = np.asarray(point["f_latent_0"])
    h = np.hstack([h, w]) if kind == "concatenate" else h + w * np.asarray(point["f_latent_0/scale"])
    own = [(point[f"f_{n}"], point[f"f_{n}/lengthscale"], point[f"f_{n}/variance"]) for n in (0, 1)]
    own = [tuple(np.asarray(value) for value in values) for values in own]
    Z = [np.asarray(part.inducing) for part in layers.parts]
    mean, variance = conditional(Z[0], own[0][0], h, *own[0][1:])
    g = mean + np.sqrt(variance)[:, None] * np.asarray(point["f_0/draw"])
    P = np.asarray(layers.parts[0].mixing)
    h = np.hstack([h, np.zeros((len(h), 9))])[:, :width] + g @ P.T
    mean, variance = conditional(Z[1], own[1][0][None], h, *own[1][1:])
    return mean[:, 0], variance


@pytest.mark.long
@pytest.mark.parametrize(("kind", "width"), [("concatenate", 4), ("add", 2)])
def test_points_at_every_site_give_the_dense_composition(data, rng, kind, width):
    """With mixing; a layer left out, a missing sqrt or unstandardised inputs are off by 0.1. Gradients, too."""
    X, _ = data
    layers = ngp.deep.stack(X, "LV-GP-GP", inducing=5, mixing=2, width=width, latent=kind)
    columns = 3 if kind == "concatenate" else 2
    point = {
        "f_latent_0": rng.normal(size=(12, 1 if kind == "concatenate" else 2)),
        "f_0": rng.normal(size=(2, 5)),
        "f_0/lengthscale": rng.uniform(0.8, 1.5, size=columns),
        "f_0/variance": 1.3,
        "f_0/draw": rng.normal(size=(12, 2)),
        "f_1": rng.normal(size=5),
        "f_1/lengthscale": rng.uniform(0.8, 1.5, size=width),
        "f_1/variance": 0.7,
    }
    point |= {"f_latent_0/scale": rng.uniform(0.2, 0.5, size=2)} if kind == "add" else {}

    def total(shift):
        moved = jax.tree.map(jnp.asarray, point)
        moved["f_0/lengthscale"] = moved["f_0/lengthscale"] + shift
        with handlers.seed(rng_seed=0), handlers.substitute(data=moved):
            f = layers()
            with numpyro.plate("data", 12):
                found = f(X)
        return jnp.sum(found.mean * jnp.arange(12.0)), (found.mean, found.variance)

    slope, found = jax.jit(jax.grad(total, has_aux=True))(jnp.zeros(columns))
    mean, variance = dense(layers, point, X, kind, width)
    np.testing.assert_allclose(found[0], mean, atol=1e-6)
    np.testing.assert_allclose(found[1], variance, atol=1e-6)
    for number in range(columns):
        step = 1e-5 * np.eye(columns)[number]
        ends = [
            dense(layers, point | {"f_0/lengthscale": point["f_0/lengthscale"] + s}, X, kind, width)[0] @ np.arange(12)
            for s in (step, -step)
        ]
        np.testing.assert_allclose(slope[number], (ends[0] - ends[1]) / 2e-5, atol=1e-3 * np.abs(slope).max())


def test_the_network_reads_inputs_and_targets_in_their_own_units(rng):
    """Columns of scale 1e4 would saturate it."""
    table = rng.normal(size=(20, 3)) * np.array([1e4, 1.0, 50.0]) + np.array([5.0, -2.0, 1e3])
    inputs, targets = Units.of(jnp.asarray(table[:, :2])), Units.of(jnp.asarray(table[:, 2:]))

    def read(targets):
        network = lambda name, x, outputs: x  # noqa: E731
        return _standardised("w", jnp.asarray(table), 2, network=network, inputs_in=inputs, targets_in=targets)

    np.testing.assert_allclose(read(targets), (table - table.mean(0)) / table.std(0), rtol=1e-9)
    np.testing.assert_array_equal(read(None)[:, 2], table[:, 2])


@pytest.mark.long
def test_latent_inputs_start_at_targets_and_at_their_products_with_inputs(rng):
    """In the units of the training rows; the width is half of the prior's, and a model without latent inputs has one."""
    X, y = jnp.asarray(3 + 50 * rng.normal(size=(20, 2))), jnp.asarray(rng.normal(size=(20, 2)) - 7)
    x, t = ((np.asarray(table) - table.mean(0)) / table.std(0) for table in (X, y))
    expected = [t[:, 0], t[:, 1], x[:, 0] * t[:, 0], x[:, 0] * t[:, 1], x[:, 1] * t[:, 0], x[:, 1] * t[:, 1]]
    layers = ngp.deep.stack(X, "LV-GP", inducing=5, y=y, outputs=2)
    assert len(layers.starts) == len(expected)
    network = functools.partial(_beside_products, network=lambda name, x, outputs: 0 * x[:, :outputs], columns=2)
    for number, (recipes, location) in enumerate(zip(layers.starts, expected, strict=True)):
        assert set(recipes) == set(layers.recipes)
        with handlers.seed(rng_seed=0):
            found = network("w", jnp.asarray(np.hstack([x, t])), 2, number=number)
        np.testing.assert_allclose(found, np.stack([location, 0 * location], axis=1), atol=1e-12)

    layers = ngp.deep.stack(X, "LV-GP", inducing=5, y=y[:, 0])
    prior = LocalPrior(dist.Normal().expand([1]).to_event(1), X.dtype, (20, 1), (1,), (X, y[:, 0]), {})
    with handlers.seed(rng_seed=0):
        fn = layers.starts[1]["f_latent_0"]("f_latent_0", prior)
    # The network beside it is small: its last layer starts at a tenth.
    assert np.corrcoef(fn.mean[:, 0], expected[2])[0, 1] > 0.9
    assert np.all(np.abs(np.log(np.sqrt(fn.variance)) + 0.7) < 0.7)
    assert len(ngp.deep.stack(X, "GP-GP", inducing=5).starts) == 1


@pytest.mark.long
def test_starts_find_optima_that_steps_do_not_reach():
    """Two branches, y = ±x: w = x y tells the branch for all rows at once, w = y and the usual start do not."""
    keys = jax.random.split(jax.random.key(0), 3)
    X = jax.random.uniform(keys[0], (100, 1), minval=-1.5, maxval=1.5)
    y = jnp.where(jax.random.bernoulli(keys[1], 0.5, (100,)), 1.0, -1.0) * X[:, 0]
    y = y + 0.1 * jax.random.normal(keys[2], (100,))
    layers = ngp.deep.stack(X, "LV-GP", inducing=15, y=y)
    model, ends, programs = model_of(layers), [], []
    for recipes in (layers.recipes, *layers.starts):
        step = ngp.optim.natural_gradient(optax.adam(0.01), ngp.optim.ramp(1e-3, 0.1, 300))
        svi = SVI(model, ngp.AutoGP(model, recipes), step, ngp.ImportanceWeightedELBO(5))
        with counted() as own:
            found = ngp.fit(jax.random.key(1), svi, 1000, X, y, progress=False)
        ends.append(float(np.mean(found.losses[-300:])))
        programs.append(own.count)
    assert ends[2] < min(ends[0], ends[1]) - 8.0
    assert programs[2] <= 1  # the start itself: steps are those of the start before


CASES = {
    "two layers, decoupled": (([4],), {"mean_inducing": 8, "covariance": "cb"}, False),
    "latent, orthogonal": (
        ("LV-GP-GP",),
        {"mean_inducing": 8, "mean": "orthogonal", "mixing": 2, "latent": "add"},
        True,
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_gradients_reach_every_parameter_and_the_bound_rises(data, name):
    """Points of all layers and of their means among them, and the network of latent inputs."""
    X, y = data
    arguments, options, is_natural = CASES[name]
    layers = ngp.deep.stack(X, *arguments, inducing=5, y=y, **options)
    model, adam = model_of(layers), optax.adam(0.01)
    guide = ngp.AutoGP(model, layers.recipes)
    optimiser = ngp.optim.natural_gradient(adam, 0.05) if is_natural else adam
    svi = SVI(model, guide, optimiser, Trace_ELBO(num_particles=4))
    fit = ngp.fit(jax.random.key(0), svi, 60, X, y, progress=False)
    assert np.mean(fit.losses[-10:]) < np.mean(fit.losses[:5])
    assert {f"f_{n}/inducing" for n in range(len(layers.parts))} <= set(fit.params)

    def loss(params):
        return Trace_ELBO(num_particles=4).loss(jax.random.key(1), params, model, guide, X, y)

    slopes = jax.jit(jax.grad(loss))(dict(fit.params))
    assert {name for name, slope in slopes.items() if not np.any(slope)} == set()
    assert all(np.all(np.isfinite(slope)) for slope in slopes.values())

    def predicted(params):
        found = ngp.Posterior.from_svi(model, guide, params).predict(jax.random.key(2), X[:3], num_samples=2)
        return np.asarray(found.mean)

    moved = dict(fit.params) | {"f_0/inducing": fit.params["f_0/inducing"] + 0.3}
    assert np.any(np.abs(predicted(moved) - predicted(fit.params)) > 1e-4), "a prediction is at the trained points"


@pytest.mark.filterwarnings("ignore:.* particles are stranded:UserWarning")  # after two steps they may be
@pytest.mark.long
def test_particles_run_on_the_same_function(data):
    """Chains do in ``statistical/test_deep_engines.py``."""
    found = particles(model_of(ngp.deep.stack(data[0], "LV-GP", inducing=3)), *data, count=2, steps=2)
    assert np.all(np.isfinite(found.predict(jax.random.key(1), data[0][:3]).mean))


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: 2 * X.mean(0) - X, "'f_0' before training"),
        (lambda X: X + 1, "'f' and their center"),
        (lambda X: 2 * X - X.mean(0), "'f' and their scale"),
    ],
)
def test_predictions_with_layers_of_other_inputs_are_refused(data, change, message):
    """Their trained points are those of the fit, but what they are in is not."""

    def model(X, y=None, *, layers):
        f = layers()
        with numpyro.plate("data", len(X)):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)

    X, y = data
    layers, others = (ngp.deep.stack(rows, "GP", inducing=4) for rows in (X, change(X)))
    optimiser = ngp.optim.natural_gradient(optax.adam(0.01), 0.1)
    svi, key = SVI(model, ngp.AutoGP(model, layers.recipes), optimiser, Trace_ELBO()), jax.random.key(0)
    result = ngp.fit(key, svi, 1, X, y, layers=layers, progress=False)
    posterior = ngp.Posterior.from_svi(model, svi.guide, result.params)
    posterior.predict(key, X[:3], layers=layers)
    with pytest.raises(ValueError, match=f"inducing inputs of {message} must be those of the fit"):
        posterior.predict(key, X[:3], layers=others)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_a_constant_whose_mean_is_rounded_counts_as_one(dtype):
    """Fifty times 0.1 have a mean that is not 0.1, and a deviation of 1e-9 by which other rows would be divided."""
    X = jnp.stack([jnp.linspace(0.0, 1.0, 50, dtype=dtype), jnp.full(50, 0.1, dtype)], axis=1)
    units = Units.of(X)
    assert units.scale[1] == 1
    np.testing.assert_allclose(units.standard(jnp.array([[0.5, 0.2]], dtype))[0, 1], 0.1, rtol=1e-5)
    np.testing.assert_array_equal(units.standard(X)[:, 1], 0)
