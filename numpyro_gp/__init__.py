"""Gaussian processes as first-class citizens of NumPyro.

One model function with `gp` sites runs unchanged under SVI, SVGD and NUTS; see the README.
"""

from numpyro_gp import beliefs, guides, kernels, likelihoods, means, optim, plots, stein
from numpyro_gp.additive import anova, effects, sobol
from numpyro_gp.criticism import Comparison, compare, conditional_density, diagnose, metrics
from numpyro_gp.guides import AutoGP
from numpyro_gp.objectives import ImportanceWeightedELBO
from numpyro_gp.plots.additive import plot_effects
from numpyro_gp.posterior import Posterior, Prediction
from numpyro_gp.primitives import AdditiveGP, GaussianProcess, additive_gp, gp, gp_regression, latent_inputs, observe
from numpyro_gp.sites import Belief
from numpyro_gp.starting import deep, inducing
from numpyro_gp.training import FitInterrupted, FitResult, NonFiniteLoss, fit

__version__ = "0.1.0"

__all__ = [
    "AdditiveGP",
    "AutoGP",
    "Belief",
    "Comparison",
    "FitInterrupted",
    "FitResult",
    "GaussianProcess",
    "ImportanceWeightedELBO",
    "NonFiniteLoss",
    "Posterior",
    "Prediction",
    "additive_gp",
    "anova",
    "beliefs",
    "compare",
    "conditional_density",
    "deep",
    "diagnose",
    "effects",
    "fit",
    "gp",
    "gp_regression",
    "guides",
    "inducing",
    "kernels",
    "latent_inputs",
    "likelihoods",
    "means",
    "metrics",
    "observe",
    "optim",
    "plot_effects",
    "plots",
    "sobol",
    "stein",
]
