"""Time and memory of decoupled beliefs: ``pytest -m benchmark examples/studies/speed/benchmarks/test_decoupled.py -s``.

Median seconds of a step after warm-up, compile time apart. Claims asserted: a step is linear in the number of
mean points when columns are sampled, and its peak memory at 20000 of them is below 2 GiB.
"""

import resource
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO

import numpyro_gp as ngp
from examples.studies.speed.benchmarks.seconds import seconds

pytestmark = pytest.mark.benchmark
BATCH, BETA, INPUTS = 1024, 300, 8


@pytest.fixture(autouse=True)
def single_precision():
    """NumPyro's constraint of triangular matrices refuses float32 while float64 is enabled."""
    jax.config.update("jax_enable_x64", False)
    yield
    jax.config.update("jax_enable_x64", True)


def model(X, y, Z):
    one = jnp.float32(1.0)
    f = ngp.gp("f", ngp.kernels.Matern52(one, jnp.full(INPUTS, 2.0, jnp.float32)), Z)
    with numpyro.plate("data", X.shape[0], subsample_size=BATCH) as index:
        ngp.observe("y", f(X[index]), ngp.likelihoods.Gaussian(jnp.float32(0.1)), obs=y[index])


def seconds_of(recipe, natural, repeats=7):
    """Median seconds of one SVI step, and seconds to compile it."""
    rng = np.random.default_rng(0)
    X = jnp.asarray(rng.normal(size=(20000, INPUTS)), jnp.float32)
    y = jnp.sin(X[:, 0])
    optimiser = optax.adam(1e-3)
    optimiser = ngp.optim.natural_gradient(optimiser, 0.01) if natural else optimiser
    svi = SVI(model, ngp.AutoGP(model, {"f": recipe}), optimiser, Trace_ELBO())
    arguments = (X, y, X[:BETA])
    state = svi.init(jax.random.key(0), *arguments)
    return seconds(jax.jit(svi.update), state, *arguments, repeats=repeats)


def gamma_points(size):
    return np.random.default_rng(1).normal(size=(size, INPUTS)).astype(np.float32)


def test_seconds_of_a_step_against_the_number_of_mean_points():
    guides = ngp.guides
    print(f"\nfloat32, batch {BATCH}, M_beta {BETA}, {INPUTS} inputs, 64 columns; {jax.devices()[0].device_kind}")
    rows = [("coupled", 0, guides.coupled(), False), ("coupled natural", 0, guides.coupled(natural=True), True)]
    rows += [("orthogonal natural", size, guides.orthogonal(gamma_points(size), 64, natural=True), True)
             for size in (500, 1000, 2000, 5000, 10000, 20000)]  # fmt: skip
    rows += [
        ("orthogonal natural, exact KL", 2000, guides.orthogonal(gamma_points(2000), natural=True), True),
        ("hybrid natural", 2000, guides.hybrid(gamma_points(2000), 64, natural=True), True),
        ("decoupled", 2000, guides.decoupled(gamma_points(2000), 64), False),
        ("orthogonal natural, diagonal", 2000, guides.orthogonal(gamma_points(2000), 64, natural=True, gamma="diagonal", gamma_step=1e-3), True),
    ]  # fmt: skip
    found = {}
    for label, size, recipe, natural in rows:
        found[label, size], compiled = seconds_of(recipe, natural)
        print(f"{label:30s} M_gamma {size:6d}  {found[label, size]:8.4f} s a step  (compile {compiled:5.1f} s)")
    base = found["orthogonal natural", 500]
    slope = (found["orthogonal natural", 20000] - base) / 19500
    print(
        f"{slope * 1e6:.1f} microseconds for each mean point; orthogonal(500) / coupled {base / found['coupled natural', 0]:.2f}"
    )
    # Quadratic growth from 5000 to 20000 would be a factor of 16.
    assert found["orthogonal natural", 20000] < 8 * found["orthogonal natural", 5000]


def peak(size):
    """Peak resident memory in bytes of a process that makes three steps."""
    code = f"from examples.studies.speed.benchmarks import test_decoupled as t; t.three_steps({size})"
    root = Path(__file__).parents[4]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, timeout=500)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1])


def three_steps(size):
    """Run in a process of its own; prints its peak memory."""
    recipe = ngp.guides.orthogonal(gamma_points(size), 64, natural=True, train_inputs=True)
    seconds_of(recipe, True, repeats=2)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def test_peak_memory_with_twenty_thousand_mean_points():
    small, large = peak(500), peak(20000)
    print(f"\npeak resident memory: {small / 2**30:.2f} GiB at M_gamma 500, {large / 2**30:.2f} GiB at 20000")
    assert large < 2 * 2**30
