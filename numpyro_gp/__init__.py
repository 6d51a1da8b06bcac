"""Gaussian processes as first-class citizens of NumPyro.

One model function with `gp` sites runs unchanged under SVI, SVGD and NUTS; see the README.
"""

from numpyro_gp import (
    anova,
    beliefs,
    conditional_density,
    deep,
    diagnose,
    guides,
    inducing,
    kernels,
    likelihoods,
    means,
    metrics,
    optim,
    plots,
    sobol,
    stein,
)
from numpyro_gp.compare import Comparison, compare
from numpyro_gp.effect_plots import effects, plot_effects
from numpyro_gp.fit import FitInterrupted, FitResult, NonFiniteLoss, fit
from numpyro_gp.guides import AutoGP
from numpyro_gp.objectives import ImportanceWeightedELBO
from numpyro_gp.posterior import Posterior
from numpyro_gp.prediction import Prediction
from numpyro_gp.primitives import AdditiveGP, GaussianProcess, additive_gp, gp, gp_regression, latent_inputs, observe
from numpyro_gp.sites import Belief

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
