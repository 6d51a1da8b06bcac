"""Time and memory of deep models: ``pytest -m benchmark examples/studies/speed/benchmarks/test_deep.py -s``.

Median seconds of an SVI step after warm-up (compile time apart) against depth, samples K, width and inducing points M.
Claims asserted: a step is about linear in depth and far below linear in K M^2, which a batched LAPACK call with a
broadcast factor would not be; peak memory of a K = 5 step stays below 3 GiB.
"""

import resource

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
import pytest
from numpyro.infer import SVI

import numpyro_gp as ngp
from examples.studies.speed.benchmarks.seconds import seconds
from numpyro_gp.objectives import ImportanceWeightedELBO
from numpyro_gp.starting.deep import initial_layers

pytestmark = pytest.mark.benchmark
BATCH = 256


def seconds_of(depth=1, samples=5, width=2, inducing=50, repeats=7):
    """Median seconds of one step of LV-GP-...-GP with ``depth`` sampled layers, and seconds to compile."""
    rng = np.random.default_rng(0)
    X = jnp.asarray(rng.normal(size=(2000, width - 1)))
    y = jnp.sin(X[:, 0])
    Z = jnp.asarray(rng.normal(size=(inducing, width)))
    layers = initial_layers(rng.normal(size=(50, width)), Z, widths=[width] * depth)

    def model(X, y):
        last = len(layers) - 1
        processes = [
            ngp.gp(f"f{i}", ngp.kernels.RBF(1.0, 1.0), s.inducing, mean=s.mean, outputs=None if i == last else width)
            for i, s in enumerate(layers)
        ]
        with numpyro.plate("data", X.shape[0], subsample_size=BATCH) as index:
            h = ngp.latent_inputs("w", X[index])
            for i, process in enumerate(processes[:-1]):
                h = process.draw(f"e{i}", h)
            ngp.observe("y", processes[-1](h), ngp.likelihoods.Gaussian(0.1), obs=y[index])

    guide = ngp.AutoGP(model, {"w": ngp.guides.amortised()})
    svi = SVI(model, guide, optax.adam(1e-3), ImportanceWeightedELBO(samples))
    state = svi.init(jax.random.key(0), X, y)
    return seconds(jax.jit(svi.update), state, X, y, repeats=repeats)


def show(label, found):
    print(f"{label:28s} {1e3 * found[0]:8.2f} ms/step, compiled in {found[1]:.1f} s")
    return found[0]


def test_depth():
    times = [show(f"depth {depth}", seconds_of(depth=depth)) for depth in (0, 1, 2, 3)]
    assert times[3] < 3 * times[1], "linear growth makes about 2 of it, samples that multiply by layer 25"


def test_samples():
    times = {samples: show(f"K = {samples}", seconds_of(samples=samples)) for samples in (1, 5, 10)}
    assert times[10] < 20 * times[1], "K^3 for each datum and output, if anything were cubic here"


def test_width_and_inducing_points():
    for width in (2, 5):
        show(f"width {width}", seconds_of(width=width))
    times = {inducing: show(f"M = {inducing}", seconds_of(inducing=inducing)) for inducing in (50, 100, 200)}
    assert times[200] < 16 * times[50] + 5e-3, "M^2 data terms"


def test_memory():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds_of(depth=3, samples=5, inducing=100, repeats=2)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"peak memory {peak / 2**20:.2f} GiB, {(peak - before) / 2**20:.2f} GiB more than before")
    assert peak < 3 * 2**20
