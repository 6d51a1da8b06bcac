"""The choice of XLA's scheduler: for the versions that can stop, before they start, and never against the user."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_gp.programs import scheduler

CHOSEN = f"{scheduler.FLAG}=false"


def test_versions_that_stopped_in_five_of_five_runs(monkeypatch):
    monkeypatch.setattr(scheduler, "xla_has_started", lambda: False)
    stop, go = "0.10.0 0.10.2 0.11.0 0.11.0.1", "0.7.2 0.9.2 0.11.1 0.12.0.1 0.100.0 1.0.10.2"
    for version in (stop + " " + go).split():
        monkeypatch.setenv("XLA_FLAGS", "--one=1")
        scheduler.choose_scheduler(version)
        wanted = f"--one=1 {CHOSEN}" if version in stop.split() else "--one=1"
        assert scheduler.os.environ["XLA_FLAGS"] == wanted, version


@pytest.mark.parametrize("said", ["true", "false"])
@pytest.mark.parametrize("started", [True, False])
def test_what_a_user_says_stands(said, started, monkeypatch):
    monkeypatch.setattr(scheduler, "xla_has_started", lambda: started)
    monkeypatch.setenv("XLA_FLAGS", f"{scheduler.FLAG}={said}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scheduler.choose_scheduler("0.10.2")
    assert scheduler.os.environ["XLA_FLAGS"] == f"{scheduler.FLAG}={said}"


def test_too_late_is_said_with_what_to_set(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    jax.devices()
    with pytest.warns(RuntimeWarning, match=f"jaxlib 0.10.2 can stop for ever.* set XLA_FLAGS={CHOSEN}"):
        scheduler.choose_scheduler("0.10.2")
    assert "XLA_FLAGS" not in scheduler.os.environ
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scheduler.choose_scheduler("0.10.2")


@pytest.mark.long
def test_the_end_waits_for_programs_that_run():
    """With jaxlib 0.12 README's program ended in a segmentation fault: nobody had read its last prediction."""
    start = jnp.eye(300) / 2
    run = jax.jit(lambda x: jax.lax.fori_loop(0, 300, lambda _, y: jnp.tanh(y @ y), x))
    jax.block_until_ready(run(start))
    result = run(start)
    assert not result.is_ready()  # else the program is too short to show anything
    scheduler.wait_for_programs()
    assert result.is_ready()


def test_operations_come_in_the_order_that_holds_the_least_memory():
    """Sixteen matrices that could be made side by side: those of one product at a time, and not all of them."""

    def norms(X):
        return sum(jnp.sum(jnp.cos(jnp.matmul(X, X + n)) ** 2) for n in range(16))

    X = jnp.ones((256, 256))
    program = jax.jit(norms, compiler_options=scheduler.compiler_options(largest=scheduler.LEAST_MEMORY_FROM))
    assert program.lower(X).compile().memory_analysis().temp_size_in_bytes <= 4 * X.nbytes
    np.testing.assert_allclose(program(X), norms(X), rtol=1e-12)
