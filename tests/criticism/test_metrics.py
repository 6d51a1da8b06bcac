"""Every score under `jit`, in the type of its inputs."""

import jax
import jax.numpy as jnp
import pytest

from numpyro_gp.criticism import metrics


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_scores_can_be_traced_and_their_type_follows_the_inputs(rng, dtype):
    mean, y = (jnp.asarray(rng.uniform(size=8), dtype) for _ in range(2))
    samples, labels = jnp.asarray(rng.uniform(size=(5, 8)), dtype), jnp.asarray(rng.integers(0, 2, size=8))
    calls = {
        "mean_log_density": (y,),
        "rmse": (mean, y),
        "mae": (mean, y),
        "crps_gaussian": (mean, jnp.asarray(0.4, dtype), y),
        "crps_samples": (samples, y),
        "interval_coverage": (y - 0.1, y, mean),
        "pit_gaussian": (mean, jnp.asarray(0.4, dtype), y),
        "pit_samples": (samples, y),
        "pit_uniformity": (y,),
        "calibration_curve": (mean, y),
        "calibration_error": (mean, y),
        "accuracy": (y, labels),
        "expected_calibration_error": (y, labels),
        "concordance": (mean, y, labels == 1),
        "survival_calibration": (y, labels == 1),
    }
    assert set(calls) == {name for name in metrics.__all__ if name.islower()}
    for name, inputs in calls.items():
        score = getattr(metrics, name)
        assert {leaf.dtype for leaf in jax.tree.leaves(jax.eval_shape(score, *inputs))} == {jnp.dtype(dtype)}, name
