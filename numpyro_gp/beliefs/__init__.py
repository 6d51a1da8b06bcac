"""Variational posteriors as values: pytrees with marginals, a joint covariance and a KL divergence."""

from numpyro_gp.beliefs.base import AbstractBasis, AbstractBelief, Basis, Joint, Marginals, Point, Process
from numpyro_gp.beliefs.coupled import Coupled, MeanField

__all__ = ["AbstractBasis", "AbstractBelief", "Basis", "Coupled", "Joint", "Marginals", "MeanField", "Point", "Process"]
