"""The comparison of a GPU with a CPU, where both are this CPU: no difference is found, and one that is there is."""

import jax
import numpy as np
import pytest

from tests import gpu
from tests.precision import x64


@pytest.mark.long
@pytest.mark.parametrize(("dtype", "names"), [("float64", ["Adam"]), ("float32", ["minibatch", "particles"])])
def test_a_cpu_agrees_with_itself(dtype, names):
    """Of some engines: each is as long to compile as a test of its own, and has one elsewhere."""
    with x64(dtype == "float64"):
        worst = gpu.compare(jax.devices()[0], dtype, names)
    assert list(worst) == [*names, "density of sparse", "density of exact"]
    assert set(worst.values()) == {0.0}


def test_differences_are_relative_and_nan_is_infinitely_far():
    wanted = {"a": np.array([3.0, 0.0]), "b": np.array(4.0)}
    assert gpu.away({"a": np.array([3.0, 0.5]), "b": np.array(4.0)}, wanted) == pytest.approx(0.1)
    assert gpu.away({"a": np.array([3.0, np.nan]), "b": np.array(4.0)}, wanted) == np.inf
