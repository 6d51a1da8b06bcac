"""Answers at the data of the fit."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest

import numpyro_gp as ngp


def test_arguments_of_the_model_that_a_method_would_take_are_refused():
    """``predict(num_samples=3)`` gave the model its default, 1."""
    X, key = jnp.zeros((2, 1)), jax.random.key(0)
    posterior = ngp.Posterior.from_mcmc(taken, {"f": jnp.zeros((4, 1))})
    calls = {
        "predict": lambda **own: posterior.predict(key, X, **own),
        "predictor": lambda **own: posterior.predictor(key, **own),
        "draws": lambda **own: posterior.draws(key, X, X[:, 0], **own),
        "hyperparameters": lambda **own: posterior.hyperparameters(key, X, X[:, 0], **own),
        "function_draws": lambda **own: posterior.function_draws(key, X, **own),
    }
    for method, call in calls.items():
        message = (
            f"the model must be free of an argument named like one of {method} .*, but got an argument 'num_samples'"
        )
        with pytest.raises(TypeError, match=message):
            call(num_samples=3)
    with pytest.raises(TypeError, match=r"like one of predict .* 'num_samples'"):
        posterior.predict(key, iter([X]), num_samples=3)
    with pytest.raises(TypeError, match=r"like one of functions .* 'gp'"):
        posterior.functions(key, None, X, gp="f")
    np.testing.assert_allclose(posterior.predict(key, X).mean, 1.0)
    by_place = posterior.predict(key, X, None, 3.0, num_samples=2)
    np.testing.assert_allclose(by_place.mean, 3.0)
    assert by_place.num_draws == 2
    bound = ngp.Posterior.from_mcmc(functools.partial(taken, num_samples=5.0), {"f": jnp.zeros((4, 1))})
    np.testing.assert_allclose(bound.predict(key, X, num_samples=2).mean, 5.0)


def taken(X, y=None, num_samples=1.0, gp=0.0):
    """A model with arguments named like keywords of `predict` and `functions`."""
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.5), jnp.zeros((1, 1)))
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y, offset=jnp.full(len(X), num_samples + gp))
