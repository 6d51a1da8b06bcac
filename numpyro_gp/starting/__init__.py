"""Where a fit starts: inducing inputs and the first state of deep layers. Functions of data; they open no site."""

from numpyro_gp.starting import deep, inducing

__all__ = ["deep", "inducing"]
