"""The log density that particles climb, and its gradients at all of them: one score for each, on one minibatch."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec
from numpyro.distributions.transforms import ComposeTransform, IndependentTransform
from numpyro.handlers import replay, seed, substitute, trace
from numpyro.infer.util import log_density

from numpyro_gp.arrays import Array, split_arrays
from numpyro_gp.checks import axes_of_sharding, fail, known
from numpyro_gp.criticism.fit_checks import NARROW_SPREAD, WIDER
from numpyro_gp.programs.private import mask_of, model_and_guide_keys
from numpyro_gp.rows.batch_plates import keyed_rows


class Target(NamedTuple):
    """A model's posterior in unconstrained coordinates, at one key and the arguments of the model.

    Attributes
    ----------
    model, guide : callable
        The guide is NumPyro's ``AutoDelta`` of one particle.
    constrained : callable
        From unconstrained to constrained parameters of both.
    transforms : dict
        Those of the particles' parameters, by name.
    evaluation, sharding : str, NamedSharding or None
        How scores are taken: with "map" one particle comes after the other, else side by side; with a sharding each
        device has its own.
    """

    model: Callable[..., Any]
    guide: Callable[..., Any]
    constrained: Callable[[dict], dict]
    transforms: Mapping[str, Any]
    evaluation: str
    sharding: NamedSharding | None

    def log_density(self, free: dict, shared: dict, rng_key: Array, args: tuple, kwargs: dict) -> Array:
        """``log p(data, T(x)) + log|det dT/dx|`` of one particle ``x``; ``shared`` are parameters of the model."""
        return self.examined(free, shared, rng_key, args, kwargs)[0]

    def examined(self, free: dict, shared: dict, rng_key: Array, args: tuple, kwargs: dict) -> tuple[Array, dict]:
        """`log_density`, and by parameter whether a mask stands over its site, which no minibatch cuts."""
        model_key, guide_key = model_and_guide_keys(rng_key)
        params = self.constrained({**free, **shared})
        with keyed_rows():
            values = trace(seed(substitute(self.guide, data=params), guide_key)).get_trace(*args, **kwargs)
            density, sites = log_density(replay(seed(self.model, model_key), values), args, kwargs, params)
        for name, site in sites.items():
            if site["type"] != "plate" or name not in values:
                continue
            # The guide draws the rows of its start.
            size, asked = site["args"]
            held, drawn = values[name]["args"][0], len(site["value"])
            if size != held or drawn < (asked or size):
                cure = "Call it with the rows of the start, or start new particles on these rows with svgd.init."
                required = f"of {drawn} of {held} rows, as at the start of the particles: latent values stand in it"
                fail(f"plate {name!r}", required, f"{asked or size} of {size}", cure)
        masked = {}
        for name, x in free.items():
            site, transform, y = sites[site_of(self.guide, name)], self.transforms[name], params[name]
            mask, batched = mask_of(site["fn"]), site["value"]
            is_masked, is_whole = mask is not True, jnp.shape(batched) == jnp.shape(y)
            masked[name] = jnp.array(is_masked and is_whole)
            if not is_masked:  # whole arrays, never scaled: a site in a subsampled plate is still all there
                density += jnp.sum(transform.log_abs_det_jacobian(x, y))
                continue
            # That of the entries that no mask hides: the others have no density in any coordinates. Of a site in a
            # subsampled plate ``x`` and ``y`` are all entries, and the mask is of those in the minibatch.
            transform = of_single_entries(transform)
            own, seen = (x, y) if is_whole else (transform.inv(batched), batched)
            terms = transform.log_abs_det_jacobian(own, seen)
            axes = max(len(site["fn"].batch_shape), jnp.ndim(mask))
            terms = jnp.sum(terms, axis=tuple(range(axes, jnp.ndim(terms))))
            shown = jnp.sum(jnp.where(mask, terms, 0.0) if jnp.ndim(terms) >= jnp.ndim(mask) else terms)
            density += shown * (jnp.size(y) / jnp.size(seen))
        return density, masked


def site_of(guide: object, parameter: str) -> str:
    """The site of the model that a parameter of ``AutoDelta`` is the value of."""
    return parameter.removesuffix(f"_{guide.prefix}_loc")


def of_single_entries(transform: object) -> Any:
    """The transform without the words that its entries belong together: a mask may lie within an event."""
    if isinstance(transform, IndependentTransform):
        return of_single_entries(transform.base_transform)
    if isinstance(transform, ComposeTransform):
        return ComposeTransform([of_single_entries(part) for part in transform.parts])
    return transform


class Scores(NamedTuple):
    """Gradients of the log density at all particles, by parameter.

    Attributes
    ----------
    own, shared : dict
        In each particle and, by particle, in what they share.
    absent : dict
        Which coordinates, shaped as one particle, are in no density: a mask hides them, and nothing else reads them.
        No force pulls them back, so they take no part in the particles' distances, nor in their moments.
    """

    own: dict[str, Array]
    shared: dict[str, Array]
    absent: dict[str, Array]


def scores_of_particles(target: Target, rng_key: Array, free: dict, shared: dict, args: tuple, kwargs: dict) -> Scores:
    """Gradients of the log density in each particle and, by particle, in what they share: one key, so one minibatch."""
    (arrays, merge), sharding = split_arrays((rng_key, args, kwargs)), target.sharding

    def of_all(free: dict, shared: dict, arrays: list[Array]) -> tuple[dict, dict, dict]:
        key, args, kwargs = merge(arrays)
        density_of = lambda x, y: target.examined(x, y, key, args, kwargs)  # noqa: E731
        both = jax.value_and_grad(density_of, argnums=(0, 1), has_aux=True)

        def score(particle: dict) -> tuple[dict, dict, dict]:
            # A density that is not finite may still have a finite gradient: log(-7) does. It is a fault.
            (density, masked), gradients = both(particle, shared)
            return *jax.tree.map(lambda g: jnp.where(jnp.isfinite(density), g, jnp.nan), gradients), masked

        return lax.map(score, free) if target.evaluation == "map" else jax.vmap(score)(free)

    if sharding is None:
        slopes, shared_slopes, masked = of_all(free, shared, arrays)
    else:
        pieces, copies = PartitionSpec(sharding.spec[0]), PartitionSpec()
        # A loop over particles is one on each device, which the compiler would not make of a loop over all.
        placing = {"mesh": sharding.mesh, "in_specs": (pieces, copies, copies), "out_specs": pieces}
        of_each = jax.shard_map(of_all, **placing, axis_names=set(axes_of_sharding(sharding)), check_vma=False)
        slopes, shared_slopes, masked = copied(of_each(free, shared, arrays), sharding)
    still = {name: jnp.all((slope == 0) | ~jnp.isfinite(slope), axis=0) for name, slope in slopes.items()}
    return Scores(slopes, shared_slopes, {name: still[name] & jnp.all(masked[name]) for name in slopes})


def copied(tree: object, sharding: NamedSharding | None) -> object:
    """The same values on every device of a sharding."""
    if sharding is None:
        return tree
    return lax.with_sharding_constraint(tree, NamedSharding(sharding.mesh, PartitionSpec()))


def not_finite(values: Mapping[str, Array]) -> list[tuple[int, str]]:
    """``(particle, site)`` of entries that are not finite; nothing where the values are traced."""
    faults = []
    for site, value in values.items():
        if (array := known(value)) is not None:
            rows = ~jnp.isfinite(array.reshape(array.shape[0], -1)).all(axis=1)
            faults += [(int(number), site) for number in jnp.flatnonzero(rows)]
    return sorted(faults)


# --------------------------------------------------------------------------------------
# What the target says of particles where a run has left them: whether it is a number there, and who is stranded.


CURE = (
    "Start near the posterior: ngp.stein.auto, or init_particles=ngp.stein.Around(values) or draws of a fitted guide. "
    "Else take more steps, or weigh the particles: ngp.stein.weights."
)


class Judgement(NamedTuple):
    """The log density of the target at each particle, and at their mean.

    Attributes
    ----------
    params : dict
        The particles, by parameter: what was judged.
    log_density : array (n,)
        In unconstrained coordinates.
    coordinates : int
        Number of them.
    at_mean : float
        The log density at the mean of the particles.
    """

    params: Mapping[str, Any]
    log_density: np.ndarray
    coordinates: int
    at_mean: float

    def is_of(self, params: Mapping[str, object]) -> bool:
        """Whether these are the particles that were judged."""
        same = lambda a, b: np.shape(a) == np.shape(b) and np.array_equal(np.asarray(a), np.asarray(b))  # noqa: E731
        judged, asked = dict(self.params), dict(params)
        return set(judged) == set(asked) and bool(jax.tree.all(jax.tree.map(same, asked, judged)))

    def check(self) -> None:
        """Refuse particles at which the target is no number: predictions from there are none."""
        lost = np.flatnonzero(~np.isfinite(self.log_density))
        if lost.size:
            got = f"{self.log_density[lost[0]]} at particles {lost.tolist()} of {self.log_density.size}"
            cure = (
                "Keep the noise away from zero (noise_variance=noise**2 + 1e-4, or jitter=1e-5 of gp_regression), or "
                "fit in float64. ngp.fit stops at the first such step and names the site."
            )
            fail("the log density at the particles", "finite", got, cure)

    @property
    def is_stranded(self) -> np.ndarray:
        """Whether a particle is far below the others, ``(n,)``.

        At draws of a posterior of ``d`` coordinates minus the log density spreads by ``(d/2)^(1/2)`` nats; five times
        that and five nats below the median of all particles is where no draw would be.
        """
        gaps = np.median(self.log_density) - self.log_density
        return gaps > 5 * math.sqrt(self.coordinates / 2) + 5

    @property
    def spread(self) -> float:
        """How wide the particles lie beside the posterior, in its standard deviations; NaN where that is not known.

        Draws of a normal posterior of ``d`` coordinates lie ``d/2`` nats below its mode on average, and particles of
        ``c`` times its standard deviations lie ``c^2 d/2`` below their mean. Of one particle, of stranded ones and of
        several modes, between which the mean lies low, nothing is known.
        """
        gap = self.at_mean - self.log_density.mean()
        if self.log_density.size < 2 or self.is_stranded.any() or not gap >= 0:
            return math.nan
        return math.sqrt(2 * gap / self.coordinates)

    def warning(self) -> str:
        """What is wrong: particles far below the others, or all of them much closer than draws; else nothing."""
        far, gaps = np.flatnonzero(self.is_stranded), np.median(self.log_density) - self.log_density
        if far.size:
            return (
                f"{far.size} of {gaps.size} particles are stranded: the log density at particles {far.tolist()} is "
                f"up to {gaps[far].max():.0f} nats below the median; draws of a posterior with as many coordinates "
                f"({self.coordinates}) differ by about {max(math.sqrt(self.coordinates / 2), 1):.0f}. {CURE}"
            )
        if self.spread < NARROW_SPREAD:
            return (
                f"The {gaps.size} particles are narrow: they lie within {100 * self.spread:.0f} % of the posterior's "
                f"standard deviations ({self.coordinates} coordinates), and intervals do, too: {WIDER}."
            )
        return ""
