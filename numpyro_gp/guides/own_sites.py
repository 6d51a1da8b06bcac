"""What ``AutoGP`` makes of the recipe of one site, and what it answers about that site."""

from typing import Any

import numpyro.distributions as dist

from numpyro_gp.beliefs.base import AbstractBelief
from numpyro_gp.checks import fail
from numpyro_gp.sites import Belief, Site, standard_normal, unwrap


def described(name: str, kind: str | None, value: Any) -> dist.Distribution:
    """What a recipe returned, as the distribution of its site: a belief, or a distribution where that is enough."""
    if isinstance(value, AbstractBelief):
        return Belief(value)
    if not isinstance(value, dist.Distribution):
        required, got = "a function that returns a belief or a NumPyro distribution", type(value).__name__
        cure = "help(ngp.guides) says what a recipe is."
        fail(f"the recipe of site {name!r}", required, f"one that returned a {got}", cure, TypeError)
    if kind == "gp" and not isinstance(unwrap(value), (Belief, dist.Delta)):
        # The process would be drawn in training, and stand at the mean of its values in predictions.
        required, got = "one that returns a belief, or a Delta: the site is a process", type(unwrap(value)).__name__
        cure = "Return a belief with these moments: ngp.beliefs.MeanField(mean, scale) or Coupled(mean, scale_tril)."
        fail(f"the recipe of site {name!r}", required, f"one that returned a {got}", cure, TypeError)
    return value


def standard_normal_of(site: Site) -> dist.Distribution:
    """The noise of a function draw in the guide: its own prior, of the site's event shape."""
    fn, value = site["fn"], site["value"]
    in_plates = {frame.dim for frame in site["cond_indep_stack"]}
    batch = [1 if -i in in_plates else size for i, size in zip(range(len(fn.batch_shape), 0, -1), fn.batch_shape)]
    return standard_normal(tuple(batch) + fn.event_shape, value.dtype, fn.event_dim)
