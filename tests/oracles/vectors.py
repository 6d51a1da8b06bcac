"""Reference values of the dense oracle: ``cases("svgp")`` is a list with one dictionary for each instance.

The committed vectors are seed 0. ``NUMPYRO_GP_SEED=7 pytest`` computes fresh ones with the dense
oracle, so that no test can be fitted to one seed.
"""

import functools
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent


@functools.cache
def load() -> dict[str, np.ndarray]:
    """All vectors, by ``group/instance/name``."""
    seed = int(os.environ.get("NUMPYRO_GP_SEED", "0"))
    if seed == 0:
        with np.load(HERE / "vectors.npz") as stored:
            return {key: stored[key] for key in stored.files}
    sys.path.insert(0, str(HERE))
    try:
        import make_vectors
    finally:
        sys.path.remove(str(HERE))
    return make_vectors.build(seed)


def cases(group: str) -> list[dict[str, Any]]:
    """One dictionary for each instance of a group; zero-dimensional entries are Python scalars or strings."""
    found: dict[int, dict[str, Any]] = {}
    for key, value in load().items():
        head, *rest = key.split("/", 2)
        if head == group:
            found.setdefault(int(rest[0]), {})[rest[1]] = value.item() if value.ndim == 0 else value
    assert found, f"the oracle has no group {group!r}"
    return [found[instance] for instance in sorted(found)]
