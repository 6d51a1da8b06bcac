"""What a vector of unconstrained hyper-parameters stands for: scales and lengthscales of terms, the likelihood."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.distributions import biject_to

from numpyro_gp.arrays import Array
from numpyro_gp.gam.model import CONSTANT, Model
from numpyro_gp.likelihoods import Gaussian, Likelihood, as_likelihood


class Opened(NamedTuple):
    """Hyper-parameters of an additive model with ``C`` components: its terms, and the constant as the last.

    Attributes
    ----------
    scales : array (C,)
        Standard deviations of the components.
    lengths : array (C, P)
        Lengthscales, ones where a component has fewer than ``P``.
    noise : array ()
        Standard deviation of Gaussian noise; zero beside other likelihoods.
    log_density : array ()
        Of the unconstrained hyper-parameters.
    """

    scales: Any
    lengths: Any
    noise: Any
    log_density: Any


class Sites(NamedTuple):
    """The hyper-parameters of a model: unconstrained shapes by name, as they stand in a vector, and their type."""

    shapes: dict[str, tuple[int, ...]]
    dtype: np.dtype
    is_exact: bool

    @property
    def size(self) -> int:
        """Length of the vector."""
        return sum(int(np.prod(shape)) for shape in self.shapes.values())

    def by_name(self, free: Array) -> dict[str, Array]:
        """A vector as values by name."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes.values()])
        pieces = zip(self.shapes.items(), ends, strict=True)
        return {n: free[end - int(np.prod(shape)) : end].reshape(shape) for (n, shape), end in pieces}

    def vector(self, values: dict[str, Array]) -> Array:
        """Values by name as a vector."""
        return jnp.concatenate([jnp.zeros(0, self.dtype), *[jnp.ravel(values[name]) for name in self.shapes]])


def sites_of(model: Model) -> Sites:
    """The hyper-parameters of a model, in the order of their names; exact where noise is Gaussian and of one size."""
    dtype, kinds = np.dtype(model.arguments[0].dtype), []

    def shapes() -> dict[str, Array]:
        with handlers.block(), handlers.trace() as trace, handlers.seed(rng_seed=0):
            kinds.append(is_plain(model.open(dtype)[2]))
        sites = [site for site in trace.values() if site["type"] == "sample"]
        return {s["name"]: jnp.zeros(biject_to(s["fn"].support).inverse_shape(s["fn"].shape())) for s in sites}

    found = jax.eval_shape(shapes)
    return Sites({name: found[name].shape for name in sorted(found)}, dtype, kinds[-1])


def is_plain(likelihood: Any) -> bool:
    """Whether noise is Gaussian, with one standard deviation for all rows."""
    return isinstance(likelihood, Gaussian) and jnp.ndim(likelihood.scale) == 0


def opened(model: Model, sites: Sites, free: Array) -> tuple[Opened, Likelihood, Array]:
    """The model at a vector of hyper-parameters, its likelihood, and the vector of prior means to start from."""
    slopes: list[Array] = []
    start: dict[str, Array] = {}
    values = sites.by_name(free)

    def constrained(site: dict[str, Any]) -> Any:
        if site["type"] != "sample" or site["name"] not in values:
            return None
        transform, value = biject_to(site["fn"].support), values[site["name"]]
        found = transform(value)
        slopes.append(jnp.sum(transform.log_abs_det_jacobian(value, found)))
        start[site["name"]] = _middle(site["fn"], transform, value)
        return found

    at = handlers.substitute(substitute_fn=constrained)
    with handlers.block(), handlers.trace() as trace, handlers.seed(rng_seed=0), at:
        scales, lengths, given = model.open(free.dtype)
    priors = [jnp.sum(site["fn"].log_prob(site["value"])) for site in trace.values() if site["type"] == "sample"]
    likelihood = as_likelihood(given)
    noise = likelihood.scale if isinstance(likelihood, Gaussian) and is_plain(likelihood) else 0.0
    found = Opened(
        jnp.stack([scales[name] for name in names_of(model)]),
        jnp.stack([_padded(lengths.get(name, []), most_lengths(model), free.dtype) for name in names_of(model)]),
        jnp.asarray(noise, free.dtype),
        sum(priors + slopes, jnp.zeros((), free.dtype)),
    )
    return found, likelihood, sites.vector(start)


def names_of(model: Model) -> list[str]:
    """The components: the terms and the constant."""
    return [*(part.name for part in model.layout.parts), CONSTANT]


def most_lengths(model: Model) -> int:
    """Most lengthscales of one term."""
    smooth = (part.term for part in model.layout.parts if part.term.kind in ("s", "te", "ti"))
    return max((len(term.columns) for term in smooth), default=0)


def _padded(values: list[Array], size: int, dtype: np.dtype) -> Array:
    return jnp.stack([*values, *[jnp.ones((), dtype)] * (size - len(values))]) if size else jnp.zeros(0, dtype)


def _middle(prior: Any, transform: Any, like: Array) -> Array:
    """The unconstrained mean of a prior, zero where it has none."""
    base = prior
    while isinstance(base, (dist.ExpandedDistribution, dist.Independent)):
        base = base.base_dist
    if type(base).mean in (dist.Distribution.mean, dist.TransformedDistribution.mean):
        return jnp.zeros_like(like)
    mean: Array = transform._inverse(jnp.broadcast_to(prior.mean, prior.shape()))
    return jnp.where(jnp.isfinite(mean), mean, 0.0)


def with_slopes(function: Callable[[Array], tuple[Opened, Array]], free: Array) -> tuple[Opened, Array, Array]:
    """Values ``(K,)`` laid out as `Opened`, their slopes ``(K, d)`` in the hyper-parameters, and the start."""

    def flat(one: Array) -> tuple[Array, tuple[Opened, Array]]:
        found, start = function(one)
        return jnp.concatenate([jnp.ravel(leaf) for leaf in found]), (found, start)

    slopes, (found, start) = jax.jacfwd(flat, has_aux=True)(free)
    return found, slopes, start
