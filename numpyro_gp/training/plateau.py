"""Fits that end where the bound no longer rises, for those who ask for no number of steps."""

from collections.abc import Mapping

import numpy as np

from numpyro_gp.arrays import Array
from numpyro_gp.training.checkpoints import FitResult
from numpyro_gp.training.fit import fit

WINDOW = 100


def still_rises(losses: np.ndarray, fewest: int) -> bool:
    """Whether the last hundred steps are better than the hundred before by more than their noise; so of few steps."""
    if len(losses) < max(fewest, 2 * WINDOW):
        return True
    before, last = losses[-2 * WINDOW : -WINDOW], losses[-WINDOW:]
    return bool(before.mean() - last.mean() > max(0.1, last.std() / 5))


def fit_to_plateau(
    key: Array,
    engine: object,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    *,
    block: int,
    most_steps: int,
    progress: bool,
    search: bool | None = None,
) -> tuple[FitResult, bool]:
    """Fit by blocks of steps, with a look at the losses after each; and whether they still fell at the last step."""
    result, rises, steps = None, True, 0
    while steps < most_steps and rises:
        steps = min(steps + block, most_steps)
        result = fit(key, engine, steps, *args, resume=result or False, progress=progress, search=search, **kwargs)
        rises = still_rises(np.asarray(result.losses, float), block)
    assert result is not None
    return result, rises
