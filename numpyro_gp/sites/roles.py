"""What the library reads off the sites of a model: which are latent, of one datum, and what it uses them for."""

from collections.abc import Mapping
from typing import Any

import numpy as np

# What NumPyro records of one statement of a model, and of all by their names.
Site = Mapping[str, Any]
Trace = Mapping[str, Site]


def role(site: Site) -> str | None:
    """What this library uses a latent site for: "gp", "noise", "function", "latent", or None: the user's own."""
    return site["infer"].get("numpyro_gp") if is_latent(site) else None


def is_latent(site: Site) -> bool:
    """Whether a site is a sample site without data."""
    return site["type"] == "sample" and not site["is_observed"]


def in_scan(site: Site) -> bool:
    """Whether a site stands in NumPyro's `scan`."""
    return "_scan_current_index" in site["infer"]


def fits(value: Any, site: Site) -> bool:
    """Whether a value has the shape that a site takes while its model runs: in a scan that of all its steps."""
    shape, own = np.shape(value), tuple(site["fn"].shape())
    return shape[1:] == own and len(shape) == len(own) + 1 if in_scan(site) else shape == own


def in_plate(site: Site, plate: str) -> bool:
    """Whether a site stands in the plate of a name."""
    return any(frame.name == plate for frame in site["cond_indep_stack"])


def local_sites(trace: Trace, plate: str) -> dict[str, Site]:
    """Latent sites of single data, but for the noise of function draws."""
    return {n: site for n, site in trace.items() if is_latent(site) and in_plate(site, plate) and role(site) != "noise"}


def unwrap(fn: object) -> Any:
    """The distribution inside expansions, masks and events."""
    while hasattr(fn, "base_dist"):
        fn = fn.base_dist
    return fn
