"""Recipes for single sites, and the guide that joins them."""

from numpyro_gp.guides.additive import block_diagonal, block_low_rank, structured
from numpyro_gp.guides.amortised import amortised, encoder, equinox_network, flax_network
from numpyro_gp.guides.auto import AutoGP
from numpyro_gp.guides.decoupled import decoupled, hybrid, orthogonal
from numpyro_gp.guides.layer import decoupled_layer
from numpyro_gp.guides.recipes import coupled, free_latent, mean_field

__all__ = [
    "decoupled",
    "hybrid",
    "orthogonal",
    "AutoGP",
    "amortised",
    "encoder",
    "equinox_network",
    "flax_network",
    "decoupled_layer",
    "block_diagonal",
    "block_low_rank",
    "coupled",
    "free_latent",
    "mean_field",
    "structured",
]
