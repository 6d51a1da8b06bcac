"""The constraint of factors: round trip, precision, and that its derivative is that of its formula."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
import pytest
from numpyro.distributions.transforms import biject_to
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp
from numpyro_gp.guides.natural import lower_factor


@pytest.mark.parametrize("shape", [(4, 4), (2, 3, 3)])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_round_trip_in_the_same_precision(rng, shape, dtype):
    free = jnp.asarray(rng.normal(size=shape), dtype)
    transform = biject_to(lower_factor)
    factor = transform(free)
    assert factor.dtype == dtype
    assert bool(jnp.all(lower_factor(factor)))
    np.testing.assert_allclose(
        np.diagonal(factor, axis1=-2, axis2=-1), np.log1p(np.exp(np.diagonal(free, axis1=-2, axis2=-1))), rtol=1e-5
    )
    np.testing.assert_allclose(transform(transform._inverse(factor)), factor, rtol=1e-4, atol=1e-6)
    for way, given in ((transform, free), (transform._inverse, factor)):  # NumPy's, and that of a program
        compiled = jax.jit(lambda x, way=way: way(x))(given)
        np.testing.assert_allclose(way(given), compiled, rtol=32 * jnp.finfo(dtype).eps)


def test_what_is_no_factor():
    assert not bool(lower_factor(jnp.array([[1.0, 0.5], [0.0, 1.0]])))
    assert not bool(lower_factor(jnp.array([[1.0, 0.0], [0.3, -1.0]])))


@pytest.mark.long
def test_single_precision_factors_train_while_double_is_on():
    """NumPyro's own constraint raises a TypeError here."""
    X = jnp.linspace(0.0, 1.0, 6, dtype=jnp.float32)[:, None]

    def model(X, y):
        f = ngp.gp("f", ngp.kernels.RBF(jnp.float32(1.0), jnp.float32(0.5)), X[:3])
        with numpyro.plate("data", 6):
            ngp.observe("y", f(X), ngp.likelihoods.Gaussian(jnp.float32(0.3)), obs=y)

    svi = SVI(model, ngp.AutoGP(model), optax.adam(0.1), Trace_ELBO())
    state, _ = svi.update(svi.init(jax.random.key(0), X, X[:, 0]), X, X[:, 0])
    assert svi.get_params(state)["f/scale_tril"].dtype == jnp.float32
