"""Judging a fit: scores, comparison, diagnosis, ArviZ. It asks a `Posterior` and never looks at how it was made."""

from numpyro_gp.criticism import conditional_density, diagnose, metrics
from numpyro_gp.criticism.compare import Comparison, compare

__all__ = ["Comparison", "compare", "conditional_density", "diagnose", "metrics"]
