"""The distribution of data: what an observed site is, and the moments of latent functions that it reads."""

from copy import copy
from functools import cached_property

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import constraints

from numpyro_gp.arrays import Array, ArrayLike, Shape, on_device
from numpyro_gp.checks import at_hand, fail
from numpyro_gp.likelihoods import Likelihood
from numpyro_gp.likelihoods.quadrature import Latent, latent_factor
from numpyro_gp.linalg import einsum
from numpyro_gp.programs.compiled import one_program
from numpyro_gp.sites.process import unwrap


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
        axes = 0 if isinstance(f, dist.Normal) else 1
        shape = self.mean_latent.shape
        count = shape[-1] if axes else 1
        if self.several and count != likelihood.num_latent:
            cure = f"Make the process with outputs={likelihood.num_latent}, or pass a tuple of Normals."
            fail("f", f"{likelihood.num_latent} latent functions, as {type(likelihood).__name__} needs", count, cure)
        batch = shape[: len(shape) - axes]
        super().__init__(batch, () if self.several else shape[len(batch) :], validate_args=validate_args)

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
        found = copy(self)
        found.seen = jnp.asarray(mask) if self.seen is None else self.seen & mask
        return found

    def repeated(self, count: int) -> "Observation":
        """The same data ``count`` times, on a first axis, for a likelihood that has it."""
        found = copy(self)
        for name in ("mean_latent", "variance_latent", "covariance_latent", "seen"):
            if (array := getattr(self, name)) is not None:
                setattr(found, name, jnp.broadcast_to(array, (count, *array.shape)))
        found.__dict__.pop("_conditional", None)
        dist.Distribution.__init__(found, (count, *self.batch_shape), self.event_shape)
        return found

    def expand(self, batch_shape: Shape) -> dist.Distribution:
        """In the plate of its rows a function of one number is that number for each; further axes are replicates."""
        if self.batch_shape or not batch_shape:
            return super().expand(batch_shape)
        each = self.repeated(batch_shape[-1])
        return each if len(batch_shape) == 1 else each.expand(batch_shape)

    def sum_outputs(self, values: Array) -> Array:
        """The sum over the outputs of each datum that no mask hides, where outputs are its event."""
        if not self.event_dim:
            return values
        return jnp.sum(values if self.seen is None else jnp.where(self.seen, values, 0), axis=-1)

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
