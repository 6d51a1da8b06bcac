"""What additive models are made of: columns of a table, grids, effects, variances and their shares.

There are two ways in. `ngp.gam` takes a formula and a table, and is one floor above: the room ``gam``. `ngp.anova` lays
out a model for arrays, which any engine fits, and `ngp.effects`, `ngp.sobol` and `ngp.plot_effects` explain it, as they
do a model that is written by hand. Both show effects of one class, draw them in the same panels (``plots/terms.py``),
and find variances by the same formulas (``component_kernels.py``).
"""

from numpyro_gp.additive import anova, sobol
from numpyro_gp.additive.effects import Effect, effects

__all__ = ["Effect", "anova", "effects", "sobol"]
