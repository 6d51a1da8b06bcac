"""Where a fit starts: priors in the data's units, inducing inputs, deep layers. Functions of data that open no site."""

from numpyro_gp.starting import deep, inducing
from numpyro_gp.starting.priors import lengthscale_prior, noise_prior, variance_prior

__all__ = ["deep", "inducing", "lengthscale_prior", "noise_prior", "variance_prior"]
