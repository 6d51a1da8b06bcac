"""Explaining an additive model in numbers: designs, Sobol indices, effects. Drawn in ``plots``."""

from numpyro_gp.additive import anova, sobol
from numpyro_gp.additive.effects import Effect, effects

__all__ = ["Effect", "anova", "effects", "sobol"]
