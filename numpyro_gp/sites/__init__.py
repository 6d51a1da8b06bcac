"""The distributions behind the primitives, and what the library reads off the sites of a model.

``process`` is the prior and the belief of a GP site, ``observation`` the data seen through a likelihood, ``roles`` what
a site is used for.
"""

from numpyro_gp.sites.observation import Certain, Observation, latents, normal_of
from numpyro_gp.sites.process import (
    Belief,
    InducingPrior,
    Site,
    Trace,
    fits,
    in_plate,
    in_scan,
    is_latent,
    local_sites,
    role,
    standard_normal,
    unwrap,
)

__all__ = [
    "Belief",
    "Certain",
    "InducingPrior",
    "Observation",
    "Site",
    "Trace",
    "fits",
    "in_plate",
    "in_scan",
    "is_latent",
    "latents",
    "local_sites",
    "normal_of",
    "role",
    "standard_normal",
    "unwrap",
]
