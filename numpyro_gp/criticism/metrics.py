"""Scores of predictions on held-out data: densities, errors, CRPS, calibration (mathematics.md section 11.3).

Functions of arrays, with no model in them. Pairs of arrays must have *equal* shapes, ``(N,)`` or
``(N, P)``: ``(N, 1)`` beside ``(N,)`` would broadcast to ``(N, N)`` and give a plausible number.
A score that is a mean over data comes with its standard error, which treats entries as
independent, and is NaN for a single one.
"""

from numpyro_gp.criticism.calibrated import (
    Uniformity,
    calibration_curve,
    calibration_error,
    concordance,
    expected_calibration_error,
    pit_gaussian,
    pit_samples,
    pit_uniformity,
    survival_calibration,
)
from numpyro_gp.criticism.scores import (
    Score,
    accuracy,
    crps_gaussian,
    crps_samples,
    interval_coverage,
    mae,
    mean_log_density,
    rmse,
)

__all__ = ["Score", "mean_log_density", "rmse", "mae", "crps_gaussian", "crps_samples", "interval_coverage", "accuracy"]
__all__ += ["Uniformity", "pit_gaussian", "pit_samples", "pit_uniformity", "calibration_curve", "calibration_error"]
__all__ += ["expected_calibration_error", "concordance", "survival_calibration"]
