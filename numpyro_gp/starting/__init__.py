"""Where a fit starts: priors in the data's units, a series' trend and season, inducing inputs, deep layers.

Functions of data. Those of a series open the sites of their priors; all others open none.
"""

from numpyro_gp.starting import deep, inducing
from numpyro_gp.starting.priors import lengthscale_prior, noise_prior, variance_prior
from numpyro_gp.starting.series import cycle, season, trend

__all__ = ["cycle", "deep", "inducing", "lengthscale_prior", "noise_prior", "season", "trend", "variance_prior"]
