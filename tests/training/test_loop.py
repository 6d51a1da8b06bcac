"""One program for chunks of any length, the re-run after a failure too, and what a step must return."""

import os
import subprocess
import sys

import numpy as np
import pytest

from numpyro_gp.training.fit import fit
from numpyro_gp.training.loop import NonFiniteLoss
from tests.oracles.engines import Countdown, data, key

KEY, DATA = key(), data()


@pytest.mark.parametrize("chunk_size", [None, 1, 7, 1000])
def test_update_is_traced_once_for_all_chunks_and_the_short_last_one(chunk_size):
    """And for what is run again after a failure."""
    counting, failing = Countdown(), Countdown(bad_step=13)
    result = fit(KEY, counting, 25, np.ones(3), chunk_size=chunk_size, progress=False)
    np.testing.assert_array_equal(result.losses, 100.0 - np.arange(25))
    np.testing.assert_array_equal(result.params["weight"], [26.0, 26.0])
    with pytest.raises(NonFiniteLoss):
        fit(KEY, failing, 25, DATA, chunk_size=chunk_size, progress=False)
    assert counting.traces == failing.traces == 1


def test_a_loss_that_is_no_number_is_refused():
    class Vector(Countdown):
        def update(self, state, data):
            state, loss = super().update(state, data)
            return state, loss * data

    with pytest.raises(TypeError, match="the loss of update must be one real number"):
        fit(KEY, Vector(), 3, DATA, progress=False)


STEP_OF_A_PROCESS = """
import jax, numpy as np, numpyro, numpyro.distributions as dist, optax
import numpyro_gp as ngp
from numpyro_gp.training import loop

def keep(program, *others, kept=loop.kept):
    print(program)
    return kept(program, *others)

def model(y):
    places = [numpyro.sample(name, dist.Normal(0, 1)) for name in "abcdef"]
    numpyro.sample("y", dist.Normal(sum(places), 1).expand([3]).to_event(1), obs=y)

loop.kept = keep
svi = numpyro.infer.SVI(model, ngp.AutoGP(model), optax.adam(0.1), numpyro.infer.Trace_ELBO())
ngp.fit(jax.random.key(0), svi, 1, np.ones(3), progress=False)
"""


@pytest.mark.long
def test_processes_compile_the_same_step_whatever_their_hash_seeds():
    """JAX's cache on disk finds a program by its text, and NumPyro's bounds add sites in the order of a set of names."""
    texts = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", STEP_OF_A_PROCESS]
        texts.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(texts) == 1
    assert "add" in texts.pop()
