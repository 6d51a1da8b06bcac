"""Where a fit starts: priors in the data's units, a series' trend and season, inducing inputs, deep layers.

Functions of data. Those of a series open the sites of their priors; all others open none.
"""

from numpyro_gp.starting import deep, inducing
from numpyro_gp.starting.priors import cycle, lengthscale_prior, noise_prior, season, trend, variance_prior

__all__ = ["cycle", "deep", "inducing", "lengthscale_prior", "noise_prior", "season", "trend", "variance_prior"]
