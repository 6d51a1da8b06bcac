"""Memory that the compiler leaves behind goes back, after few programs; cycles are looked for later."""

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.programs import keep, memory


def held():
    """MiB of this process that lie in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


@pytest.mark.skipif(sys.platform != "linux" or memory.trim() is None, reason="the C library is not glibc")
def test_blocks_that_nobody_uses_go_back():
    """As a compiler leaves them: 200 MiB of blocks too small for a map of their own, below one that is still used."""
    blocks = [np.ones(2**13) for _ in range(3200)]
    last = blocks[-1]
    blocks.clear()
    before = held()
    memory.give_back()
    for thread in threading.enumerate():
        if thread.name == memory.NAME:
            thread.join()
    assert before - held() > 150
    assert last.sum() == len(last)


def test_it_is_given_back_where_programs_were_built_and_not_where_they_were_known(monkeypatch):
    calls = []
    monkeypatch.setattr(keep, "give_back", lambda: calls.append(1))
    for expected in (1, 1):
        with keep.tidied():
            keep.run(lambda x: jnp.sinh(x) * 1.2345, jnp.ones(3))
            keep.run(lambda x: jnp.cosh(x) * 1.2345, jnp.ones(3))
        assert len(calls) == expected


PROGRAM = """
import resource, runpy, numpy as np
keep_blocks = runpy.run_path({path!r})["keep_blocks"]
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
{first}
before = faults()
for _ in range(200):
    [np.ones(2**16) for _ in range(4)]
print(faults() - before)
"""


@pytest.mark.skipif(sys.platform != "linux" or memory.trim() is None, reason="the C library is not glibc")
def test_blocks_that_are_freed_serve_the_next_ones():
    """Four at a time, in processes that have freed no larger one: else each of the 128 pages of each is a fault."""
    found = []
    for first in ("", "keep_blocks()"):
        own = [sys.executable, "-c", PROGRAM.format(path=memory.__file__, first=first)]
        found.append(int(subprocess.run(own, capture_output=True, text=True, check=True).stdout))
    assert found[1] < 500 < 10_000 < found[0]


FIRST = """
import jax, numpy as np, numpyro, optax
import numpyro_gp as ngp
from numpyro_gp.programs import keep

names, given_back = [], []
note = lambda event, seconds, **more: names.append(more.get("fun_name")) if "backend_compile" in event else None
jax.monitoring.register_event_duration_secs_listener(note)
keep.give_back = lambda: given_back.append(len(names))
X, key = np.linspace(-1.0, 1.0, 30, dtype=np.float32)[:, None], jax.random.key(0)

def model(X, y=None):
    scale = numpyro.sample("scale", numpyro.distributions.LogNormal(0.0, 0.3))
    noise = numpyro.sample("noise", numpyro.distributions.LogNormal(-1.0, 0.3).expand([2]).to_event(1))
    f = ngp.gp("f", ngp.kernels.RBF(1.0, scale), Z)
    with numpyro.plate("data", len(X)):
        ngp.observe("y", f(X), ngp.likelihoods.Gaussian(noise.sum()), obs=y)

Z = X[::8]
guide = ngp.AutoGP(model, rest=numpyro.infer.autoguide.AutoNormal)
svi = numpyro.infer.SVI(model, guide, optax.adam(0.01), numpyro.infer.Trace_ELBO())
names.clear()
result = ngp.fit(key, svi, 5, X, X[:, 0], progress=False)
of_fit = len(names)
ngp.Posterior.from_svi(model, guide, result.params).predict(key, X)
print(of_fit, len(names) - of_fit, *given_back)
"""


@pytest.mark.long
def test_a_first_fit_and_prediction_compile_few_programs_and_give_back_after_the_last():
    """The smallest program keeps a megabyte. Parameters are checked without one for each operation: these were ten more.

    A fit is its start, its loop, and NumPyro's softplus of two shapes; a prediction is one program, and its moments.
    """
    own = [sys.executable, "-c", FIRST]
    found = subprocess.run(own, capture_output=True, text=True, check=True, env={**os.environ, "XLA_FLAGS": ""}).stdout
    fit, prediction, *given_back = map(int, found.split())
    assert fit <= 4
    assert prediction <= 2
    assert given_back == [fit, fit + prediction]


def test_cycles_are_looked_for_after_a_block_and_not_where_the_user_has_turned_that_off():
    with memory.unswept():
        assert not gc.isenabled()
        with memory.unswept():
            pass
        assert not gc.isenabled(), "the block inside ended that of another"
    assert gc.isenabled()
    with pytest.raises(ValueError, match="whatever"), memory.unswept():
        raise ValueError("whatever")
    assert gc.isenabled()
    gc.disable()
    try:
        with memory.unswept():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
