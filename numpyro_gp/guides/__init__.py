"""Recipes for single sites, and the guide that joins them."""

from numpyro_gp.guides.additive import block_diagonal, block_low_rank, structured
from numpyro_gp.guides.auto import AutoGP
from numpyro_gp.guides.decoupled import decoupled, hybrid, orthogonal
from numpyro_gp.guides.recipes import coupled, free_latent, mean_field

__all__ = [
    "decoupled",
    "hybrid",
    "orthogonal",
    "AutoGP",
    "block_diagonal",
    "block_low_rank",
    "coupled",
    "free_latent",
    "mean_field",
    "structured",
]
