"""Amortised guides of latent inputs: rows of the minibatch, any network, the same numbers as the network by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
import pytest
from numpyro import handlers
from numpyro.infer import SVI

import numpyro_gp as ngp
from numpyro_gp.guides.amortised import amortised, encoder, equinox_network, flax_network
from numpyro_gp.objectives import ImportanceWeightedELBO

X = jnp.asarray(np.random.default_rng(0).normal(size=(6, 2)))
Y = jnp.asarray(np.random.default_rng(1).normal(size=6))


def model(X, y=None, batch=None):
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), jnp.eye(3))
    with numpyro.plate("data", X.shape[0], subsample_size=batch) as idx:
        f_w = f(ngp.latent_inputs("w", X[idx]))
        ngp.observe("y", f_w, ngp.likelihoods.Gaussian(0.5), obs=None if y is None else y[idx])


def linear(name, inputs, outputs):
    """Location ``y - x_0`` and log scale ``x_1``."""
    return jnp.stack([inputs[:, 2] - inputs[:, 0], inputs[:, 1]], axis=1)[:, :outputs]


def guide_site(recipe, batch=None, plate=None):
    guide = ngp.AutoGP(model, {"w": recipe})
    with handlers.seed(rng_seed=0), handlers.substitute(data={} if plate is None else {"data": plate}):
        return handlers.trace(guide).get_trace(X, Y, batch=batch)["w"]["fn"]


@pytest.mark.long
def test_the_network_sees_each_datum_and_the_rows_of_a_minibatch():
    rows = jnp.array([4, 1])
    for recipe, mean, options in (
        (amortised(linear), Y - X[:, 0], {}),
        (amortised(linear), (Y - X[:, 0])[rows], {"batch": 2, "plate": rows}),
        (amortised(linear, data=lambda X, y, batch: (-X, y)), Y + X[:, 0], {}),
    ):
        np.testing.assert_allclose(guide_site(recipe, **options).mean[:, 0], mean, rtol=1e-12)
    np.testing.assert_allclose(guide_site(amortised(linear)).variance[:, 0], np.exp(2 * X[:, 1] - 6.0), rtol=1e-12)


@pytest.mark.long
def test_encoder_starts_narrow_and_near_the_prior_mean():
    fn = guide_site(amortised(encoder((20, 5))))
    assert jnp.all(jnp.abs(fn.mean) < 2)
    assert jnp.all(jnp.sqrt(fn.variance) < 0.3)
    assert np.unique(fn.mean).size == 6


def of_equinox():
    eqx = pytest.importorskip("equinox", reason="equinox is not installed here; 2026-11")
    return equinox_network(eqx.nn.MLP(3, 2, 5, 1, key=jax.random.key(0)))


def of_flax():
    return flax_network(pytest.importorskip("flax.linen", reason="flax is not installed here; 2026-11").Dense(2))


@pytest.mark.long
@pytest.mark.parametrize(("network", "count"), [(encoder, 6), (of_equinox, 1), (of_flax, 1)])
def test_networks_train(network, count):
    guide = ngp.AutoGP(model, {"w": amortised(network())})
    svi = SVI(model, guide, optax.adam(0.01), ImportanceWeightedELBO(3))
    state = svi.init(jax.random.key(0), X, Y, batch=4)
    start, update = svi.get_params(state), jax.jit(lambda state: svi.update(state, X, Y, batch=4))
    for _ in range(3):
        state, loss = update(state)
    assert jnp.isfinite(loss)
    names = [name for name in start if "encoder" in name]
    assert len(names) == count
    for name in names:
        changes = jax.tree.map(lambda a, b: float(jnp.max(jnp.abs(a - b))), start[name], svi.get_params(state)[name])
        assert max(jax.tree.leaves(changes)) > 1e-4, name


def test_data_are_found_by_the_names_of_the_model():
    """The second argument has one number for each row as well, and was taken for the data."""
    scale = jnp.full(6, 7.0)

    def noisy(X, scale, y=None):
        f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), jnp.eye(3))
        with numpyro.plate("data", X.shape[0]):
            ngp.observe("y", f(ngp.latent_inputs("w", X)), ngp.likelihoods.Gaussian(0.5), obs=y)

    guide = ngp.AutoGP(noisy, {"w": amortised(linear)})
    for args, kwargs in (((X, scale, Y), {}), ((X,), {"y": Y, "scale": scale})):
        with handlers.seed(rng_seed=0):
            fn = handlers.trace(guide).get_trace(*args, **kwargs)["w"]["fn"]
        np.testing.assert_allclose(fn.mean[:, 0], Y - X[:, 0], rtol=1e-12)
    with pytest.raises(ValueError, match="inputs and observations, but got None"), handlers.seed(rng_seed=0):
        guide(X, scale)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: guide_site(amortised(lambda name, inputs, outputs: inputs)), r"must be of shape \(6, 2\)"),
        (lambda: guide_site(amortised(data=lambda X, y, batch: (X, None))), "inputs and observations, but got None"),
    ],
)
def test_bad_arguments(build, message):
    with pytest.raises((ValueError, TypeError), match=message):
        build()


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_row_far_away_is_not_all_of_the_bound(dtype):
    """At 220 standard deviations the variance of its latent input was 1e188, and no number in single precision."""
    with jax.enable_x64(dtype == "float64"):
        rows, y = jnp.asarray(X, dtype).at[0, 1].set(220.0), jnp.asarray(Y, dtype)
        guide = ngp.AutoGP(model, {"w": amortised(linear)})
        svi = SVI(model, guide, optax.adam(0.01), numpyro.infer.TraceMeanField_ELBO())
        state = svi.init(jax.random.key(0), rows, y)
        with handlers.seed(rng_seed=0):
            scale = handlers.trace(guide).get_trace(rows, y)["w"]["fn"].base_dist.scale
        assert svi.evaluate(state, rows, y) < 1e6
        gradient = jax.grad(lambda rows: svi.evaluate(state, rows, y))(rows)
    raw = np.asarray(rows[:, 1], float) - 3.0
    np.testing.assert_allclose(scale[:, 0], np.exp(np.where(raw > 1, 1 + np.log(np.maximum(raw, 1)), raw)), rtol=1e-4)
    assert np.isfinite(gradient).all()
    assert abs(gradient[0, 1]) > 1  # it can come back
