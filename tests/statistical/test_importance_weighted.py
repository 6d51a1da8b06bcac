"""Expectations of the importance-weighted bound: the oracle's, increasing with K, below the evidence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.objectives import ImportanceWeightedELBO
from tests.oracles.vectors import cases
from tests.test_objectives import latent_guide, latent_model, local_params, shallow_beliefs

REPEATS = 4000

pytestmark = pytest.mark.statistical


def draws(case, samples, value_and_grad=False, doubly=False):
    """Independent estimates, and gradients in the local parameters."""
    model, guide = latent_model(case), latent_guide(case, shallow_beliefs(case))
    objective = ImportanceWeightedELBO(samples, doubly_reparametrised=doubly)
    X, y = jnp.asarray(case["X"]), jnp.asarray(case["y"])
    bound = lambda params, key: -objective.loss(key, params, model, guide, X, y)  # noqa: E731
    run = jax.grad(bound) if value_and_grad else bound
    keys = jax.random.split(jax.random.key(7), REPEATS)
    return jax.jit(jax.vmap(lambda key: run(local_params(case), key)))(keys)


@pytest.mark.parametrize("case", cases("iw"))
def test_expected_bounds(case):
    """Within 4.5 standard errors of the oracle's exact expectation (family-wise rate 4e-5 over six tests)."""
    means = []
    for samples in (1, 5, 50):
        bounds = np.asarray(draws(case, samples))
        error = bounds.std() / np.sqrt(REPEATS)
        assert abs(bounds.mean() - case[f"expected_bound_{samples}"]) < 4.5 * error + 1e-6
        means.append(bounds.mean())
        assert bounds.mean() - 4.5 * error < case["evidence"]
    gaps = [case["expected_bound_5"] - case["expected_bound_1"], case["expected_bound_50"] - case["expected_bound_5"]]
    assert min(gaps) > 0
    assert means[0] < means[1] < case["evidence"]
    # Forgetting log K would put the K = 50 bound this far above the evidence.
    assert means[2] + 3 * np.log(50) > case["evidence"] + 1


@pytest.mark.parametrize("case", cases("iw"))
def test_doubly_reparametrised_gradient_has_the_same_mean_and_less_noise(case):
    """Means within 4.5 standard errors, and less noise at K = 50. How much less depends on the instance.

    On instance 1 of seed 0 the ratio of standard deviations was 0.87 at K = 5 (loc) and 0.65 at K = 50 (log scale), far
    from the 0.25 to 0.3 of the example in mathematics.md section 10.3: no such factor is asserted.
    """
    plain = draws(case, 50, value_and_grad=True)
    doubly = draws(case, 50, value_and_grad=True, doubly=True)
    noise = []
    for name in ("loc", "log_scale"):
        a, b = np.asarray(plain[name]), np.asarray(doubly[name])
        error = np.sqrt((a.var(0) + b.var(0)) / REPEATS)
        assert np.all(np.abs(a.mean(0) - b.mean(0)) < 4.5 * error)
        noise.append(b.std(0).mean() / a.std(0).mean())
    assert max(noise) < 1
