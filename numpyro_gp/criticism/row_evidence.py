"""What all draws say of the data of an observed site, each datum left out."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from numpyro_gp.criticism.pareto import left_out
from numpyro_gp.rows.some import some_rows

# Rows of a site that are looked at, and how many copies of each of them all draws make together.
ROWS, COPIES = 2000, 1000


# Draws of which Pareto's k of leaving a datum out is found.
TO_LEAVE_OUT = 50


class Seen(NamedTuple):
    """What is seen of an observed site at the rows that are looked at, out of ``num_rows``, its entries in one axis.

    ``level`` and ``spread`` are mean and standard deviation of new data, ``pit`` the probability of what is below the
    datum, that being left out, and ``z`` its standard normal score: of normal noise the standardised residual. Both are
    empty where each datum has a latent input of its own, and where few draws decide what most data say that are left
    out, unless noise is normal: then they show that it is too small.
    ``noise`` ``(S,)`` is the standard deviation of the noise at each draw.
    """

    y: np.ndarray
    rows: np.ndarray
    num_rows: int
    level: np.ndarray
    spread: np.ndarray
    pit: np.ndarray
    z: np.ndarray
    noise: np.ndarray | None
    is_normal: bool


def cannot_leave_out(log_density: np.ndarray) -> bool:
    """Whether few of many draws ``(S, N)`` decide what most data say that are left out."""
    return len(log_density) >= TO_LEAVE_OUT and bool(left_out(log_density).is_bad.mean() > 0.5)


def judged(own: Mapping[str, Any], num_rows: int, is_normal: bool) -> Seen:
    """What all draws say of each datum that no mask hides, the datum itself left out by importance weights."""
    from scipy.special import ndtri  # not at import: only newer versions of NumPyro bring it

    y, seen = own["y"][0], own["seen"][0]
    shape = y.shape[:1] + (1,) * (y.ndim - 1)
    # The weights of leaving one out, 1 / p(y_n | draw), cut off at sqrt(S) times their mean.
    weights = np.exp(own["term"].min(axis=0) - own["term"])
    weights = np.minimum(weights, np.sqrt(len(weights)) * weights.mean(axis=0))
    weights = (weights / weights.sum(axis=0)).reshape(-1, *shape)
    mean, variance = own["mean"], own["variance"]
    pit = np.clip((weights * own["below"]).sum(axis=0), 0.5 / COPIES, 1 - 0.5 / COPIES)
    centre = (weights * mean).sum(axis=0)
    z = (y - centre) / np.sqrt((weights * (variance + (mean - centre) ** 2)).sum(axis=0)) if is_normal else ndtri(pit)
    rows = np.broadcast_to(some_rows(num_rows, ROWS).reshape(shape), y.shape)
    level, spread = mean.mean(axis=0), np.sqrt(variance.mean(axis=0) + mean.var(axis=0))
    at = {"level": level, "spread": spread, "pit": pit, "z": z, "y": y, "rows": rows}
    kept = {name: values[seen] for name, values in at.items()}
    if not is_normal and cannot_leave_out(own["term"].reshape(len(weights), -1)):
        kept |= {"pit": np.zeros(0), "z": np.zeros(0)}
    return Seen(**kept, num_rows=num_rows, noise=own["noise"], is_normal=is_normal)
