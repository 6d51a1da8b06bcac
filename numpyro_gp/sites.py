"""The distributions behind the primitives: the prior of a GP site, a belief, and data seen through a likelihood.

One GP is one sample site. Its value is a point (an array of whitened values, as HMC, SVGD and
NumPyro's own guides see it) or a belief (a variational posterior). The prior scores a point by its
log density and a belief by minus its KL divergence, and a belief's own log density is zero, so
every NumPyro ELBO is the sparse variational bound and every sampler sees the sparse MCMC target. (But `RenyiELBO`
weighs draws: where inner functions are drawn it would be no bound, and is refused.)
"""

import math
from collections.abc import Callable, Mapping
from copy import copy
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints
from numpyro.distributions.kl import kl_divergence

from numpyro_gp.arrays import Array, ArrayLike, Shape, current_trace, on_device
from numpyro_gp.beliefs.base import AbstractBelief, MaskedPrior, Point
from numpyro_gp.beliefs.basis import AbstractBasis, first_member, has_own_outputs, placed
from numpyro_gp.checks import at_hand, check_floating, check_type, fail
from numpyro_gp.likelihoods import Likelihood
from numpyro_gp.likelihoods.quadrature import Latent, latent_factor
from numpyro_gp.linalg import einsum
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
                if tuple(value.shape[max(0, value.ndim - self.event_dim) :]) != self.event_shape:
                    order = "(inducing points last, outputs before them)"
                    required = f"over whitened values of shape {self.event_shape} {order}"
                    got = f"{type(value).__name__} over shape {tuple(value.shape)}"
                    cure = "Build it for the site's own inducing points and outputs."
                    fail(f"the belief at site {self.name!r}", required, got, cure)
                basis = self.basis_of(value)
                process = _on_basis(value, basis) if value.reads_basis else value.ready(basis)
                self._known = value, current_trace(), process
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
        prior = InducingPrior(self.name, first_member(self.basis), self.event_shape, batch)
        prior.own_dim = self.own_dim
        return prior


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
# Data: the moments of latent functions, and what an observed site is.


class Certain(dist.Normal):
    """Normal distributions of variance zero: values that are known, so that nothing is left to integrate."""

    def __init__(self, values: ArrayLike) -> None:
        super().__init__(values, jnp.zeros_like(values), validate_args=False)


def normal_of(mean: Array, deviation: Array) -> dist.Normal:
    """A Normal whose moments NumPyro checks in NumPy, where they are known: it compiles five operations for them."""
    normal = dist.Normal(*at_hand(mean, deviation)[1:])
    normal.loc, normal.scale = on_device(normal.loc), on_device(normal.scale)
    return normal


def latents(f: object) -> Latent:
    """Moments of the latent functions at the data, read off what `observe` was given.

    ``mean`` and ``variance`` are ``(...,)`` for a Normal, one latent function, and ``(..., C)`` for all others;
    ``covariance`` is ``(..., C, C)`` where the functions are correlated, else None.
    """
    if isinstance(f, dist.Normal):
        package, loc, scale = at_hand(f.loc, f.scale)
        return Latent(*map(on_device, package.broadcast_arrays(loc, scale**2)))
    if isinstance(f, dist.Independent) and isinstance(f.base_dist, dist.Normal) and f.event_dim == 1:
        return latents(f.base_dist)
    if isinstance(f, dist.MultivariateNormal):
        covariance = f.covariance_matrix
        return Latent(f.mean, jnp.diagonal(covariance, axis1=-2, axis2=-1), covariance)
    if isinstance(f, (tuple, list)) and f and all(isinstance(part, dist.Normal) for part in f):
        moments = (part.loc for part in f), (part.scale**2 for part in f)
        return Latent(*(jnp.stack(jnp.broadcast_arrays(*parts), axis=-1) for parts in moments))
    required = "a Normal (or one with .to_event(1)), a tuple of Normals, or a MultivariateNormal over functions"
    cure = "Call the process at inputs first: ngp.observe(name, f(X), likelihood, obs)."
    fail("f", required, f"a {type(f).__name__}", cure, TypeError)


@one_program
def _expected(likelihood: Likelihood, y: Array, mean: Array, variance: Array, covariance: Array | None) -> Array:
    return likelihood.expected_log_prob(y, mean, variance, covariance=covariance)


class Observation(dist.Distribution):
    """Data ``y`` seen through a likelihood: the site that `observe` opens.

    Its ``log_prob(y)`` is the variational expectation ``E_q(f) log p(y | f)``, shape of the batch: what every engine
    needs. The true predictive density is `predictive_log_prob`.
    """

    pytree_data_fields = ("mean_latent", "variance_latent", "covariance_latent", "likelihood", "seen")
    pytree_aux_fields = ("several", "is_certain")
    has_rsample = False
    checks_its_data = True

    def __init__(self, f: object, likelihood: Likelihood, *, validate_args: bool | None = None) -> None:
        self.mean_latent, self.variance_latent, self.covariance_latent = latents(f)
        self.seen: Array | None = None
        self.seen_of: object | None = None  # processes by neighbours, for predictions at new rows
        self.likelihood = likelihood
        self.several = likelihood.num_latent != 1
        parts = f if isinstance(f, (tuple, list)) else [f]
        self.is_certain = all(isinstance(unwrap(part), Certain) for part in parts)
        # A Normal is one function; all others have their functions, or their outputs, on the last axis.
        shape = self.mean_latent.shape
        batch, event = (shape, shape[:0]) if isinstance(f, dist.Normal) else (shape[:-1], shape[-1:])
        count = event[0] if event else 1
        if self.several and count != likelihood.num_latent:
            cure = f"Make the process with outputs={likelihood.num_latent}, or pass a tuple of Normals."
            fail("f", f"{likelihood.num_latent} latent functions, as {type(likelihood).__name__} needs", count, cure)
        super().__init__(batch, () if self.several else event, validate_args=validate_args)

    @cached_property
    def _conditional(self) -> dist.Distribution:
        return self.likelihood.conditional(self.mean_latent)

    @property
    def support(self) -> constraints.Constraint:
        support = self._conditional.support
        return constraints.independent(support, self.event_dim) if self.event_dim else support

    @property
    def latent(self) -> Latent:
        """Moments of the latent functions at each datum."""
        return Latent(self.mean_latent, self.variance_latent, self.covariance_latent)

    def mask(self, mask: ArrayLike) -> dist.Distribution:
        """Hide data, as `numpyro.handlers.mask` asks for: whole data, or with an axis for the outputs single ones."""
        shape = self.batch_shape + self.event_shape
        if not self.event_dim or jnp.shape(mask)[-len(shape) :] != shape:
            return super().mask(mask)
        masked = copy(self)
        masked.seen = jnp.asarray(mask) if self.seen is None else self.seen & mask
        return masked

    def repeated(self, count: int) -> "Observation":
        """The same data ``count`` times, on a first axis, for a likelihood that has it."""
        each = copy(self)
        for name in ("mean_latent", "variance_latent", "covariance_latent", "seen"):
            if (array := getattr(self, name)) is not None:
                setattr(each, name, jnp.broadcast_to(array, (count, *array.shape)))
        each.__dict__.pop("_conditional", None)
        dist.Distribution.__init__(each, (count, *self.batch_shape), self.event_shape)
        return each

    def expand(self, batch_shape: Shape) -> dist.Distribution:
        """In the plate of its rows a function of one number is that number for each; further axes are replicates."""
        if self.batch_shape or not batch_shape:
            return super().expand(batch_shape)
        each = self.repeated(batch_shape[-1])
        return each if len(batch_shape) == 1 else each.expand(batch_shape)

    def sum_outputs(self, values: Array) -> Array:
        """The sum over the outputs of each datum that no mask hides, where outputs are its event."""
        if self.event_dim:
            values = jnp.sum(values if self.seen is None else jnp.where(self.seen, values, 0), axis=-1)
        return values

    def log_prob(self, value: Array, intermediates: object = None) -> Array:  # noqa: ARG002
        """``E_q(f) log p(y | f)`` for each datum (mathematics.md section 7)."""
        if self.mean_latent.ndim > len(self.batch_shape) + (self.event_dim or self.several):  # the steps of a `scan`
            return jax.vmap(lambda own, y: own.log_prob(y))(self, value)
        if self.is_certain:
            return self.log_prob_at(value, self.mean_latent)
        return self.sum_outputs(_expected(self.likelihood, self._shown(value), *self.latent))

    def _shown(self, value: Array) -> Array:
        """Data with numbers of the support where single outputs are hidden: NaN there would reach the gradient."""
        return value if self.seen is None else jnp.where(self.seen, value, self.support.feasible_like(value))

    def log_prob_at(self, value: Array, f: Array) -> Array:
        """``log p(y | f)`` for each datum at values of the latent functions, with further axes on their left or not."""
        return self.sum_outputs(self.likelihood.log_prob(self._shown(value), f))

    def predictive_log_prob(self, value: Array) -> Array:
        """``log E_q(f) p(y | f)`` for each datum: the log predictive density."""
        mean, variance, covariance = self.latent
        density = self.likelihood.predictive_log_prob(self._shown(value), mean, variance, covariance=covariance)
        return self.sum_outputs(density)

    @property
    def mean(self) -> Array:
        """Mean of ``y`` under the predictive distribution (class probabilities for classes)."""
        return self.likelihood.predictive_mean(*self.latent[:2], covariance=self.covariance_latent)

    @property
    def variance(self) -> Array:
        """Variance of ``y`` under the predictive distribution."""
        return self.likelihood.predictive_variance(*self.latent[:2], covariance=self.covariance_latent)

    def sample(self, key: Array, sample_shape: Shape = ()) -> Array:
        """Draw ``f`` from its marginals, then ``y`` given ``f``."""
        key_latent, key_data = jax.random.split(key)
        return self.likelihood.draw(key_data, self.draw_latent(key_latent, sample_shape))

    def draw_latent(self, key: Array, sample_shape: Shape = ()) -> Array:
        """Draw the latent functions at each datum from their marginals."""
        shape = sample_shape + self.mean_latent.shape
        noise = jax.random.normal(key, shape, self.mean_latent.dtype)
        if self.covariance_latent is None:
            spread = jnp.broadcast_to(jnp.sqrt(self.variance_latent), shape) * noise
        else:
            factor = jnp.broadcast_to(latent_factor(self.latent), shape + shape[-1:])
            spread = einsum("...ij,...j->...i", factor, noise)
        return jnp.broadcast_to(self.mean_latent, shape) + spread


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
    shape, wanted = np.shape(value), tuple(site["fn"].shape())
    return shape[1:] == wanted and len(shape) == len(wanted) + 1 if in_scan(site) else shape == wanted


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
