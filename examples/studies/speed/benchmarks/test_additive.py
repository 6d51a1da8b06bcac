"""Cost of a step of the structured posterior: linear in the number of components and in the minibatch.

Run with ``pytest -m benchmark -s examples/studies/speed/benchmarks/test_additive.py``; medians of 7 calls after compilation.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples.studies.speed.benchmarks.seconds import seconds
from numpyro_gp.beliefs import AdditiveBasis, Structured
from numpyro_gp.kernels import RBF
from numpyro_gp.likelihoods import Gaussian

INDUCING, RANK = 16, 20


def step(components):
    """Gradient of the bound in W, the mean and all kernel scales, and its arguments for a minibatch."""
    line = jnp.linspace(0.0, 1.0, INDUCING)[:, None] * jnp.ones((1, components))

    def loss(scales, mean, W, X, y):
        kernels = {f"c{c}": RBF(scales[c], 0.2).on(c) for c in range(components)}
        basis = AdditiveBasis.build(kernels, dict.fromkeys(kernels, line))
        belief = Structured(mean, W)
        return belief.kl(basis) - Gaussian(0.5).expected_log_prob(y, *belief.marginals(basis, X)).sum()

    return jax.jit(jax.grad(loss, (0, 1, 2)))


def arguments(components, batch):
    rng = np.random.default_rng(0)
    size = components * INDUCING
    arrays = (
        np.ones(components),
        rng.normal(size=size),
        rng.normal(size=(size, RANK)),
        rng.uniform(size=(batch, components)),
        rng.normal(size=batch),
    )
    return [jnp.asarray(array) for array in arrays]


def measure(components, batch):
    return seconds(step(components), *arguments(components, batch))


def slope(sizes, times):
    return np.polyfit(np.log(sizes), np.log(times), 1)[0]


@pytest.mark.benchmark
def test_cost_is_linear_in_components_and_in_the_batch():
    """Quadratic cost has a slope of 2; fixed costs pull the slope below 1."""
    counts, batches = [5, 10, 20, 50], [500, 1000, 2000, 4000]
    over_counts = [measure(count, 1000) for count in counts]
    over_batches = [measure(20, batch) for batch in batches]
    print("\ncomponents  ms/step  compile s   (batch 1000, 16 inducing points each, rank 20)")
    for count, (own, compiled) in zip(counts, over_counts, strict=True):
        print(f"{count:10d} {1e3 * own:8.1f} {compiled:10.1f}")
    print("     batch  ms/step  compile s   (20 components)")
    for batch, (own, compiled) in zip(batches, over_batches, strict=True):
        print(f"{batch:10d} {1e3 * own:8.1f} {compiled:10.1f}")
    slopes = slope(counts, [s for s, _ in over_counts]), slope(batches, [s for s, _ in over_batches])
    print("slopes", slopes)
    assert max(slopes) < 1.35
