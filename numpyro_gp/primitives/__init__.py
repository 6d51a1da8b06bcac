"""What a user calls inside a model function: processes, observations and latent inputs."""

from numpyro_gp.primitives import functionals
from numpyro_gp.primitives.additive_gp import AdditiveGP, additive_gp
from numpyro_gp.primitives.gp import gp
from numpyro_gp.primitives.noisy_inputs import noisy_inputs
from numpyro_gp.primitives.observe import latent_inputs, observe
from numpyro_gp.primitives.point_pattern import point_pattern, thinned
from numpyro_gp.primitives.process import GaussianProcess
from numpyro_gp.primitives.recall import recall
from numpyro_gp.primitives.regression import gp_regression

__all__ = [
    "AdditiveGP",
    "GaussianProcess",
    "additive_gp",
    "functionals",
    "gp",
    "gp_regression",
    "latent_inputs",
    "noisy_inputs",
    "observe",
    "point_pattern",
    "recall",
    "thinned",
]
