"""Residuals and weights of least squares on the scale of a link, in NumPy."""

import numpy as np

from numpyro_gp.likelihoods import Gamma, NegativeBinomial
from numpyro_gp.likelihoods.links import mean_of, slope_of

# Slopes of the mean, below which residuals of labels on the scale of the link are cut off.
LEAST_SLOPE = 1e-3


def residuals_at(link: str, f: np.ndarray, y: np.ndarray) -> np.ndarray:
    """``(y - mean) / (d mean / d f)``: residuals on the scale of the link."""
    slope = slope_of(link, f)
    slope = np.maximum(slope, LEAST_SLOPE) if link in ("logit", "probit") else slope
    return (y - mean_of(link, f)) / slope


def weights_at(family: str, link: str, f: np.ndarray, r: object = np.nan) -> np.ndarray:
    """``(d mean / d f)^2 / variance`` of a datum, but for a factor of all rows; ``r`` is that of the negative binomial.

    Relative errors of gamma data and waiting times are as large everywhere, those of counts fall with their mean.
    """
    kind, slope = plain_name(family), slope_of(link, f)
    if kind == "negativebinomial":
        slope = slope / (1 + slope / r)
    elif kind in ("gamma", "exponential"):
        slope = np.ones(len(f))
    elif link == "probit":
        mean, other = mean_of(link, f), mean_of(link, -f)
        slope = slope**2 / np.maximum(mean * other, np.finfo(float).tiny)
    return slope


def plain_name(family: str) -> str:
    """A family by its name, or by that of a class."""
    return family.lower().replace("_", "")


def log_ratio(likelihood: object, count: int) -> np.ndarray:
    """``log mean - f`` at ``count`` rows, averaged over draws: ``E log a`` of gamma data of shape ``a``, else zero."""
    if type(likelihood) is not Gamma:  # what a class of the user's own says has no link that is known
        return np.zeros(count)
    return averaged(np.log(np.asarray(likelihood.shape, float)), count)


def size_of_counts(likelihood: object, count: int) -> np.ndarray:
    """``r`` of the negative binomial at ``count`` rows, averaged over draws; NaN of other likelihoods."""
    return averaged(likelihood.r, count) if isinstance(likelihood, NegativeBinomial) else np.full(count, np.nan)


def averaged(values: object, count: int) -> np.ndarray:
    """The average of a parameter ``(S,)``, or ``(S, N)`` with one for each row, at ``count`` rows."""
    return np.broadcast_to(np.asarray(values, float).mean(axis=0), (count,))
