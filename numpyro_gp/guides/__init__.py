"""Recipes for single sites, and the guide that joins them."""

from numpyro_gp.guides.auto import AutoGP
from numpyro_gp.guides.recipes import coupled, free_latent, mean_field

__all__ = ["AutoGP", "coupled", "free_latent", "mean_field"]
