"""Variational posteriors as values: pytrees with marginals, a joint covariance and a KL divergence.

A belief is what a `gp` site holds under a guide, in place of a point. Under `AutoGP` the recipes of `ngp.guides` make
them; in a guide of your own write ``numpyro.sample("f", ngp.Belief(Coupled(mean, scale_tril)))``. The optimal ones for
Gaussian data, `coupled_optimum` and its like, need no training.
"""

from numpyro_gp.beliefs.additive_basis import AdditiveBasis
from numpyro_gp.beliefs.base import AbstractBelief, Joint, Marginals, Point, Process
from numpyro_gp.beliefs.basis import AbstractBasis, Basis
from numpyro_gp.beliefs.conditional import Conditional
from numpyro_gp.beliefs.coupled import Coupled, MeanField
from numpyro_gp.beliefs.decoupled import Decoupled, Hybrid, Orthogonal
from numpyro_gp.beliefs.layer import DecoupledLayer
from numpyro_gp.beliefs.neighbours.pseudo_rows import PseudoRows
from numpyro_gp.beliefs.optimum import AdditiveOptimum, additive_optimum, coupled_optimum, orthogonal_optimum
from numpyro_gp.beliefs.paths import corrections
from numpyro_gp.beliefs.structured import BlockDiagonal, BlockLowRank, Structured, truncate

__all__ = ["AbstractBelief", "Conditional", "Coupled", "MeanField", "Point", "PseudoRows"]
__all__ += ["Decoupled", "DecoupledLayer", "Hybrid", "Orthogonal", "BlockDiagonal", "BlockLowRank", "Structured"]
__all__ += ["AdditiveOptimum", "additive_optimum", "coupled_optimum", "orthogonal_optimum", "corrections", "truncate"]
__all__ += ["AbstractBasis", "AdditiveBasis", "Basis", "Joint", "Marginals", "Process"]
