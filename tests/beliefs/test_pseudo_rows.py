"""Natural steps of pseudo-data of rows: where they lead, and that they stay there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import numpyro_gp as ngp
from numpyro_gp.beliefs.neighbours.pseudo_rows import natural_moments


def test_the_gradient_leads_to_what_the_likelihood_says_of_each_row_once():
    """Of a minibatch that stands for 10 times as many rows, holds a row twice, and a row that says less than nothing."""
    h, w = jnp.array([0.3, 0.5, -0.2, 0.1]), jnp.array([0.4, 0.0, 0.6, 1.0])
    rows, cavity = jnp.array([2, 0, 2]), (jnp.array([0.1, -0.4, 0.1]), jnp.array([0.7, 0.9, 0.7]), jnp.array(0.0))

    def loss(h, w, curvature):
        """Of ``E[g f - c f^2 / 2]``, whose slopes in the moments are ``g - c m`` and ``-c / 2``, less what is said."""
        mean, variance = natural_moments(h, w, rows, cavity, (jnp.ones(3), 10.0))
        still = jax.lax.stop_gradient((h[rows], w[rows]))
        said = still[0] * mean - 0.5 * still[1] * (mean**2 + variance)
        return -10.0 * jnp.sum(0.8 * mean - 0.5 * curvature * (mean**2 + variance) - said), mean, variance

    slopes = jax.grad(lambda *args: loss(*args)[0], (0, 1))(h, w, jnp.array([0.5, -2.0, 0.5]))
    _, mean, variance = loss(h, w, 0.5)
    own = 1 / (1 / np.asarray(cavity[1]) + np.asarray(w)[np.asarray(rows)])
    np.testing.assert_allclose(variance, own)
    np.testing.assert_allclose(mean, own * (np.asarray(cavity[0]) / cavity[1] + np.asarray(h)[np.asarray(rows)]))
    # A full step: shift 0.8 and precision 0.5 at row 2, none at row 0, where the shift keeps the slope at the mean.
    tiny = np.sqrt(np.finfo(float).eps)
    np.testing.assert_allclose(w - slopes[1], [tiny, 0.0, 0.5, 1.0], atol=1e-12)
    np.testing.assert_allclose(h - slopes[0], [0.8 + 2.0 * float(mean[1]), 0.5, 0.8, 0.1], atol=1e-6)


def test_it_has_no_basis():
    belief = ngp.beliefs.PseudoRows(jnp.zeros(4), jnp.zeros(4))
    assert belief.shape == (4,)
    assert belief.in_plate((2,)).shape == (2,)
    for ask in (
        lambda: belief.whitened_mean,
        lambda: belief.kl(None),
        lambda: belief.marginals(None, None),
        belief.whitened,
    ):
        with pytest.raises(ValueError, match="a belief that is asked for inducing values must be one with a basis"):
            ask()
