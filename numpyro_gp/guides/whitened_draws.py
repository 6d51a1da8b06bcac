"""Whitened values of beliefs that read their basis, which the model builds anew at each draw of hyper-parameters."""

import math
from collections.abc import Mapping
from typing import Any

import jax
from numpyro import handlers

from numpyro_gp.arrays import Array, Model, Shape
from numpyro_gp.beliefs.base import AbstractBelief
from numpyro_gp.beliefs.basis import AbstractBasis
from numpyro_gp.guides.other_sites import check_given
from numpyro_gp.programs.alone import alone
from numpyro_gp.programs.private import Args, Kwargs
from numpyro_gp.rows.batch_plates import inside_blocks
from numpyro_gp.sites import Site, fits, is_latent, unwrap

Beliefs = Mapping[str, AbstractBelief]


class OnBases:
    """A model and its arguments, which gives beliefs the bases that they stand on.

    ``values`` below are those of the other latent sites, at one draw; ``params`` are of the fit, the model's own among
    them.
    """

    def __init__(
        self, model: Model, beliefs: Beliefs, params: Mapping[str, object], args: Args, kwargs: Kwargs
    ) -> None:
        check_given(model, args, kwargs, f"whitened values of {sorted(beliefs)} follow from the hyper-parameters")
        self.model, self.beliefs, self.params, self.args, self.kwargs = model, beliefs, dict(params), args, kwargs

    @alone
    def bases(self, values: Mapping[str, object]) -> dict[str, tuple[AbstractBelief, AbstractBasis]]:
        """Each belief with its basis, at values of the other sites."""
        beliefs = {name: belief.given(values) for name, belief in self.beliefs.items()}

        def known(site: Site) -> Any:
            name = site["name"]
            if site["type"] in ("param", "mutable"):
                return self.params.get(name)
            if not is_latent(site) or name in beliefs:
                return beliefs.get(name) if is_latent(site) else None
            value = values.get(name)
            return value if value is not None and fits(value, site) else None

        with handlers.block(), inside_blocks(), handlers.seed(rng_seed=0):
            given = handlers.substitute(self.model, substitute_fn=known)
            trace = handlers.trace(given).get_trace(*self.args, **self.kwargs)
        sites = {name: trace[name] for name in beliefs}
        return {name: (site["value"], unwrap(site["fn"]).basis_of(site["value"])) for name, site in sites.items()}

    def moments(self, values: Mapping[str, object]) -> dict[str, tuple[Array, Array]]:
        """Means and standard deviations of the whitened values."""
        return {name: belief.whitened_moments(basis) for name, (belief, basis) in self.bases(values).items()}

    def draws(self, key: Array, values: Mapping[str, Any], shape: Shape, is_random: bool) -> dict[str, Array]:
        """A draw of the whitened values for each of the ``values``, which have ``shape`` on their left."""

        def drawn(key: Array, one: Mapping[str, object], own: Shape = ()) -> dict[str, Array]:
            keys = jax.random.split(key, len(self.beliefs))
            found = self.bases(one).items()
            return {n: belief.draw_whitened(k, own, basis) for k, (n, (belief, basis)) in zip(keys, found, strict=True)}

        first = {name: value[(0,) * len(shape)] for name, value in values.items()} if shape else values
        if not (shape and is_random):
            return drawn(key, first, shape)
        for belief, basis in self.bases(first).values():  # refused where values are known; inside of a map they are not
            belief.whitened(basis)
        flat = {name: value.reshape(-1, *value.shape[len(shape) :]) for name, value in values.items()}
        keys = jax.random.split(key, math.prod(shape))
        found = jax.jit(lambda *pair: jax.lax.map(lambda own: drawn(*own), pair))(keys, flat)
        return {name: leaf.reshape(shape + leaf.shape[1:]) for name, leaf in found.items()}
