"""Likelihoods: ``p(y | f)`` with its expectations over Gaussian latent functions (mathematics.md section 7)."""

from numpyro_gp.likelihoods.base import CallableLikelihood, Likelihood, as_likelihood
from numpyro_gp.likelihoods.censored import Censored, Interval, Truncated
from numpyro_gp.likelihoods.classes import Bernoulli, Ordinal, RobustMax, Softmax
from numpyro_gp.likelihoods.continuous import Beta, Exponential, Gamma, Gaussian, HeteroscedasticGaussian, StudentT
from numpyro_gp.likelihoods.counts import Binomial, NegativeBinomial, PointPattern, Poisson

__all__ = ["Likelihood", "CallableLikelihood", "as_likelihood"]
__all__ += ["Gaussian", "HeteroscedasticGaussian", "StudentT", "Gamma", "Exponential", "Beta"]
__all__ += ["PointPattern", "Poisson", "NegativeBinomial", "Bernoulli", "Binomial", "Ordinal", "RobustMax", "Softmax"]
__all__ += ["Censored", "Interval", "Truncated"]
