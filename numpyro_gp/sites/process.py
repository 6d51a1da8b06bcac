"""The distributions of a GP site: its prior, and a belief.

One GP is one sample site. Its value is a point (an array of whitened values, as HMC, SVGD and
NumPyro's own guides see it) or a belief (a variational posterior). The prior scores a point by its
log density and a belief by minus its KL divergence, and a belief's own log density is zero, so
every NumPyro ELBO is the sparse variational bound and every sampler sees the sparse MCMC target. (But `RenyiELBO`
weighs draws: where inner functions are drawn it would be no bound, and is refused.)
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints
from numpyro.distributions.kl import kl_divergence

from numpyro_gp.arrays import Array, ArrayLike, Shape, current_trace
from numpyro_gp.beliefs.base import AbstractBelief, MaskedPrior, Point, check_belief
from numpyro_gp.beliefs.basis import AbstractBasis, first_member, has_own_outputs, placed
from numpyro_gp.checks import check_floating, check_type, fail
from numpyro_gp.programs.compiled import one_program


def standard_normal(shape: Shape, dtype: np.dtype, event_dim: int) -> dist.Distribution:
    """Independent standard normals of a shape, whose last ``event_dim`` axes are the event."""
    return dist.Normal(jnp.zeros((), dtype), jnp.ones((), dtype)).expand(shape).to_event(event_dim)


@one_program
def _standard_log_density(whitened: Array) -> Array:
    """``log N(v; 0, I)`` over the last axis."""
    return jnp.sum(-0.5 * (whitened**2 + math.log(2 * math.pi)), axis=-1)


@one_program
def _on_basis(belief: AbstractBelief, basis: AbstractBasis) -> AbstractBelief:
    return belief.at(basis)


@one_program
def _divergence(belief: AbstractBelief, basis: AbstractBasis) -> Array:
    return belief.kl(basis)


class InducingPrior(dist.Distribution):
    """Standard normal prior of whitened inducing values ``(M,)``, or ``(P, M)``, at one GP site.

    ``log_prob(point)`` is the log density of ``N(0, I)``; ``log_prob(belief)`` is ``-KL[belief || prior]``. In plates
    there is one for each member, and values have the axes of the plates on their left. ``basis`` has those axes that
    kernels and inducing inputs brought: `basis_of` gives the basis that a value stands on.
    """

    pytree_data_fields = ("basis", "level")
    pytree_aux_fields = ("name", "own_dim")
    has_rsample = True
    # Mean function at the inducing inputs, with the axes of plates, where the belief at the site reads it.
    level: Array | None = None
    # What makes it of the plates around the site, for `ngp.conditioned`, which asks before there is a value.
    level_of: Callable[[Any], Array | None] | None = None
    # A value with the process that was made of it, and what traced then: a belief is solved for once.
    _known: tuple[object, object, Any] | None = None

    def __init__(
        self, name: str, basis: AbstractBasis, shape: Shape, batch: Shape = (), *, validate_args: bool | None = None
    ) -> None:
        self.name = name
        self.basis = basis
        # Axes of the arrays of a belief that its methods see together: outputs with kernels of their own stand apart.
        self.own_dim = 1 if has_own_outputs(basis) else len(shape)
        super().__init__(batch, shape, validate_args=validate_args)

    @property
    def support(self) -> constraints.Constraint:
        return constraints.independent(constraints.real, self.event_dim)

    @property
    def dtype(self) -> np.dtype:
        """Floating point type of the whitened values."""
        return self.basis.dtype

    @property
    def mean(self) -> Array:
        return jnp.zeros(self.event_shape, self.dtype)

    @property
    def variance(self) -> Array:
        return jnp.ones(self.event_shape, self.dtype)

    @property
    def loc(self) -> Array:
        """Asked for by `LocScaleReparam`, which has nothing to do here."""
        cure = f"Leave {self.name!r} out of its config: its values are whitened already."
        fail("a site of LocScaleReparam", "one with loc and scale", f"the process {self.name!r}", cure, AttributeError)

    def sample(self, key: Array, sample_shape: Shape = ()) -> Array:
        return jax.random.normal(key, sample_shape + self.shape(), self.dtype)

    rsample = sample

    def log_prob(self, value: AbstractBelief | ArrayLike, intermediates: object = None) -> Array:  # noqa: ARG002
        process = self.process(value)
        if isinstance(process, AbstractBelief):
            return -_divergence(process, self.basis_of(process))
        return _standard_log_density(process.v.reshape(*process.v.shape[: process.v.ndim - self.event_dim], -1))

    def mask(self, mask: ArrayLike) -> dist.Distribution:
        """Hide members of plates, or the site, as `numpyro.handlers.mask` asks for."""
        return MaskedPrior(self, mask)

    def process(self, value: AbstractBelief | ArrayLike) -> AbstractBelief | Point:
        """The process given a value of this site: a belief, or a point, which may have batch axes on its left."""
        if isinstance(value, AbstractBelief):
            if self._known is None or self._known[0] is not value or self._known[1] != current_trace():
                check_belief(self.name, value, self.event_shape)
                basis = self.basis_of(value)
                found = _on_basis(value, basis) if value.reads_basis else value.ready(basis)
                self._known = value, current_trace(), found
            return self._known[2]
        whitened = check_floating(f"the value of site {self.name!r}", value)
        if whitened.shape[max(0, whitened.ndim - self.event_dim) :] != self.event_shape:
            required = f"whitened inducing values of shape {self.event_shape}"
            cure = "Use the inducing inputs that the value was found with."
            fail(f"the value of site {self.name!r}", required, f"shape {whitened.shape}", cure)
        return Point(whitened)

    def basis_of(self, value: AbstractBelief | ArrayLike) -> AbstractBasis:
        """The basis under a value of this site, whose axes on the left are those of the plates around it."""
        shape = jnp.shape(value)
        basis = placed(self.basis, shape[: len(shape) - self.event_dim], self.name)
        return basis if self.level is None else basis.at_level(self.level)

    def of_one(self, batch: Shape) -> "InducingPrior":
        """What a recipe is told: the shape over whole plates, and the basis of one member."""
        found = InducingPrior(self.name, first_member(self.basis), self.event_shape, batch)
        found.own_dim = self.own_dim
        return found


class Belief(dist.Distribution):
    """Put a belief at a site in a guide of your own: ``numpyro.sample("f", ngp.Belief(Coupled(mean, factor)))``.

    It is a point mass at the belief. Its log density is zero: the KL divergence to the prior is counted once, by the
    model's site. Inside plates every array of the belief but the inputs ``Z_...`` has their axes on its left.

    Parameters
    ----------
    value : AbstractBelief
    batch_shape : tuple of int
        Axes of the plates around the site.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> with numpyro.handlers.seed(rng_seed=0):
    ...     belief = numpyro.sample("f", ngp.Belief(ngp.beliefs.Coupled(jnp.zeros(3), jnp.eye(3))))
    >>> belief.shape
    (3,)
    """

    pytree_data_fields = ("value",)
    # Without this NumPyro stops the gradient at the site (TraceGraph_ELBO, RenyiELBO, TraceEnum_ELBO).
    has_rsample = True

    def __init__(self, value: AbstractBelief, batch_shape: Shape = (), *, validate_args: bool | None = None) -> None:
        cure = "To put a point in a guide use numpyro.distributions.Delta."
        check_type("value", value, AbstractBelief, "a belief, such as ngp.beliefs.Coupled", cure)
        self.value = value
        super().__init__(batch_shape, value.shape[len(batch_shape) :], validate_args=validate_args)

    @property
    def support(self) -> constraints.Constraint:
        return constraints.independent(constraints.real, self.event_dim)

    @property
    def mean(self) -> Array:
        return self.value.whitened_moments()[0]

    @property
    def variance(self) -> Array:
        return self.value.whitened_moments()[1] ** 2

    def sample(self, key: Array | None, sample_shape: Shape = ()) -> AbstractBelief:  # noqa: ARG002
        if not sample_shape:
            return self.value
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, sample_shape + jnp.shape(leaf)), self.value)

    rsample = sample

    def log_prob(self, value: object, intermediates: object = None) -> Array:  # noqa: ARG002
        return jnp.zeros(self.batch_shape, self.value.dtype)

    def expand(self, batch_shape: Shape) -> "Belief":
        """The same belief, whose first axes are those of plates; the model's site checks that they are."""
        return Belief(self.value.in_plate(tuple(batch_shape)), tuple(batch_shape))


# For `TraceMeanField_ELBO`.
kl_divergence.add((Belief, InducingPrior), lambda belief, prior: -prior.log_prob(belief.value))


# --------------------------------------------------------------------------------------
# What the library reads off the sites of a model: which are latent, of one datum, and what it uses them for.


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
