"""The importance-weighted bound where a local site enters the likelihood and not the inputs: a precision for each row.

With ``f_n ~ N(0, 1)`` under the belief, noise ``s^2 / w_n`` and ``w_n ~ Gamma(a, b)`` the integral over ``w_n`` of
``exp(E log p(y_n | f_n, w_n)) p(w_n)`` is closed, and ``Gamma(a + 1/2, b + (y_n^2 + 1) / (2 s^2))`` is the proposal whose
weights do not vary: the bound is then that integral, whatever the draws and their number.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import Trace_ELBO
from numpyro.infer.util import log_density
from scipy.special import gammaln

import numpyro_gp as ngp
from numpyro_gp.objectives import weighted_samples

X = jnp.linspace(-1.0, 1.0, 5)[:, None]
Y = jnp.array([0.3, -1.0, 0.2, 2.0, 0.0])
SEEN = jnp.array([True, True, False, True, True])
Z = jnp.array([[-0.5], [0.5]])
A, B, S = 2.0, 3.0, 0.7
KEY = jax.random.key(4)


def gaussian(w):
    return ngp.likelihoods.Gaussian(S / jnp.sqrt(w))


def function(w):
    return lambda f: dist.Normal(f, S / jnp.sqrt(w))


def model(y, likelihood, seen):
    f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.8), Z)
    with numpyro.plate("data", 5):
        w = numpyro.sample("w", dist.Gamma(A, B))
        with numpyro.handlers.mask(mask=seen):
            ngp.observe("y", f(X), likelihood(w), obs=y)


def guide(y, likelihood, seen, shift=0.0):
    """The proposal with constant weights, or one beside it."""
    numpyro.sample("f", ngp.Belief(ngp.beliefs.Coupled(jnp.zeros(2), jnp.eye(2))))
    best = dist.Gamma(A + 0.5 * seen + shift, B + seen * (Y**2 + 1.0) / (2 * S**2))
    with numpyro.plate("data", 5):
        numpyro.sample("w", best)


def closed_form(seen):
    rate = B + (np.asarray(Y) ** 2 + 1.0) / (2 * S**2)
    terms = A * np.log(B) - gammaln(A) + gammaln(A + 0.5) - (A + 0.5) * np.log(rate) - 0.5 * np.log(2 * np.pi * S**2)
    return np.sum(terms[np.asarray(seen)])


@pytest.mark.long
@pytest.mark.parametrize(("likelihood", "samples"), [(gaussian, 1), (function, 3)])
def test_the_best_proposal_gives_the_integral(likelihood, samples):
    """A raw error of shapes before: the parameters had K samples and the function had none."""
    objective = ngp.ImportanceWeightedELBO(samples)
    for seen in (jnp.ones(5, bool), SEEN):
        found = -objective.loss(KEY, {}, model, guide, Y, likelihood, seen)
        np.testing.assert_allclose(found, closed_form(seen), rtol=1e-10)
    np.testing.assert_allclose(
        -Trace_ELBO().loss(KEY, {}, model, guide, Y, likelihood, SEEN), closed_form(SEEN), rtol=1e-10
    )


@pytest.mark.long
def test_each_weight_is_the_density_at_its_sample():
    """The densities of the model and the guide, run at one sample at a time by NumPyro."""
    shifted = lambda *args: guide(*args, shift=0.7)  # noqa: E731
    found = weighted_samples(KEY, {}, model, shifted, (Y, gaussian, SEEN), {}, num_samples=3)
    belief = ngp.beliefs.Coupled(jnp.zeros(2), jnp.eye(2))
    for w, weights in zip(found.values["w"], found.log_weights, strict=True):
        at = {"f": belief, "w": w}
        ratio = (
            log_density(model, (Y, gaussian, SEEN), {}, at)[0] - log_density(shifted, (Y, gaussian, SEEN), {}, at)[0]
        )
        np.testing.assert_allclose(jnp.sum(weights), ratio, rtol=1e-10)


@pytest.mark.statistical
def test_many_samples_approach_the_integral_from_any_proposal():
    shifted = lambda *args: guide(*args, shift=1.5)  # noqa: E731
    few, many = (
        -ngp.ImportanceWeightedELBO(k, num_particles=p).loss(KEY, {}, model, shifted, Y, gaussian, SEEN)
        for k, p in ((1, 2000), (20000, 1))
    )
    assert few < closed_form(SEEN) - 0.3
    np.testing.assert_allclose(many, closed_form(SEEN), atol=0.08)
