"""Leave-one-out densities and Pareto k by ArviZ, of either generation."""

import warnings
from typing import NamedTuple

import numpy as np

from numpyro_gp.arrays import ArrayLike
from numpyro_gp.checks import fail
from numpyro_gp.criticism.pareto import smoothed
from numpyro_gp.posterior.arviz import arviz, group_names, has_trees

# Draws whose tail importance sampling can smooth: ArviZ 1 refuses fewer, earlier ones call the result unreliable.
FEWEST = 25


class LeaveOneOut(NamedTuple):
    """Expected log predictive density of left-out data by Pareto-smoothed importance sampling.

    ``elpd`` and ``standard_error`` are sums over data; ``pointwise`` and ``pareto_k`` have one entry for
    each datum; estimates are unreliable where ``pareto_k`` exceeds ``good_k = min(1 - 1/log10(S), 0.7)``.
    """

    elpd: float
    standard_error: float
    effective_parameters: float
    pointwise: np.ndarray
    pareto_k: np.ndarray
    good_k: float

    @property
    def is_reliable(self) -> bool:
        """Whether it is a number, and no Pareto k exceeds its threshold."""
        return bool(np.isfinite(self.elpd) and np.all(self.pareto_k <= self.good_k))


def loo(data: object, site: str | None = None) -> LeaveOneOut:
    """Leave-one-out cross-validation of a container with a pointwise log likelihood, without ArviZ's warning.

    Look at `LeaveOneOut.is_reliable` instead. ``site`` names the data where there are several.
    """
    package = arviz()
    # ArviZ reads from the posterior how dependent the draws are; those of beliefs alone, which no group holds, are not.
    known = {} if "posterior" in group_names(data) else {"reff": 1.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = package.loo(data, pointwise=True, var_name=site, **known)
    if has_trees():
        elpd, parameters, pointwise = found.elpd, found.p, found.elpd_i
    else:
        elpd, parameters, pointwise = found.elpd_loo, found.p_loo, found.loo_i
    arrays = np.asarray(pointwise).ravel(), np.asarray(found.pareto_k).ravel()
    return LeaveOneOut(float(elpd), float(found.se), float(parameters), *arrays, float(found.good_k))


def pareto_k(log_weights: ArrayLike) -> float:
    """Shape of the generalised Pareto distribution fitted to the tail of importance weights ``exp(log_weights)``."""
    weights = np.asarray(log_weights, dtype=float)
    if weights.ndim != 1 or weights.size < FEWEST or not np.isfinite(weights).all():
        required = f"at least {FEWEST} finite numbers, of shape (S,)"
        cure = "Draw more (num_samples=1000), and check that the fit is finite."
        fail("log_weights", required, f"shape {weights.shape}, {np.isfinite(weights).sum()} finite", cure)
    return float(smoothed(weights[:, None]).k[0])
