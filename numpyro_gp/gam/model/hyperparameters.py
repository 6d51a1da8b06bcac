"""What a vector of unconstrained hyper-parameters stands for: scales and lengthscales of terms, the likelihood."""

import itertools
import math
from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.distributions import biject_to

from numpyro_gp.arrays import Array, Values
from numpyro_gp.beliefs.members import picked
from numpyro_gp.gam.model.families import Prior
from numpyro_gp.gam.model.model import Model, default_priors, sample_hyperparameters
from numpyro_gp.gam.model.term_kernels import count_lengthscales
from numpyro_gp.likelihoods import Gaussian, Likelihood
from numpyro_gp.programs.compiled import prepared
from numpyro_gp.programs.handler_lock import alone
from numpyro_gp.sites import Site


class ModelValues(NamedTuple, Generic[Values]):
    """What values of the hyper-parameters of a model mean, for ``C`` components: its terms, the constant as the last.

    Attributes
    ----------
    scales, lengths : array (C,), (L,)
        Standard deviations of the components, and lengthscales of all terms.
    likelihood : Likelihood
    values : dict of array
        Hyper-parameters by name.
    log_density : array ()
        Of the values, or of unconstrained ones.
    start : dict of array
        Unconstrained prior means by name, where the values are unconstrained.
    """

    scales: Values
    lengths: Values
    likelihood: Likelihood
    values: dict[str, Values]
    log_density: Values
    start: dict[str, Values]


@alone
def evaluate(model: Model, given: Mapping[str, Array], is_free: bool = True) -> ModelValues[Array]:
    """The model at hyper-parameters by name; if free, they are unconstrained, and so is their density."""
    slopes: list[Array] = []
    start: dict[str, Array] = {}

    def value(site: Site) -> Array | None:
        if site["type"] != "sample" or site["name"] not in given:
            return None
        free = given[site["name"]]
        if not is_free:
            return free
        transform = biject_to(site["fn"].support)
        constrained: Array = transform(free)
        slopes.append(jnp.sum(transform.log_abs_det_jacobian(free, constrained)))
        start[site["name"]] = _middle(site["fn"], transform, free)
        return constrained

    at = handlers.substitute(substitute_fn=value)
    dtype = np.dtype(jnp.result_type(float))
    with handlers.block(), handlers.trace() as trace, handlers.seed(rng_seed=0), at:
        scales, lengths, likelihood = sample_hyperparameters(model, dtype)
    sampled = {name: site for name, site in trace.items() if site["type"] == "sample"}
    priors = [jnp.sum(site["fn"].log_prob(site["value"])) for site in sampled.values()]
    values = {name: site["value"] for name, site in sampled.items()}
    density = sum(priors + slopes, jnp.zeros((), dtype))
    return ModelValues(scales, lengths, likelihood, values, density, start)


class BoundArguments(NamedTuple, Generic[Values]):
    """What a bound needs of hyper-parameters.

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

    scales: Values
    lengths: Values
    noise: Values | float
    log_density: Values | float


class VectorLayout(NamedTuple):
    """The hyper-parameters of a model: unconstrained shapes by name, as they stand in a vector, and their type.

    ``priors`` are those that a model has by itself, by the names of their sites; None where it is given others.
    """

    shapes: dict[str, tuple[int, ...]]
    dtype: np.dtype
    is_exact: bool
    priors: dict[str, Prior] | None = None

    @property
    def places(self) -> dict[str, np.ndarray]:
        """Where the values of each name stand in a vector."""
        sizes = [math.prod(shape) for shape in self.shapes.values()]
        ends = itertools.accumulate(sizes)
        return {n: np.arange(end - size, end) for n, size, end in zip(self.shapes, sizes, ends, strict=True)}

    def by_name(self, free: Values) -> dict[str, Values]:
        """A vector as values by name."""
        return {n: free[at[0] : at[-1] + 1].reshape(self.shapes[n]) for n, at in self.places.items()}


def vector_layout_of(model: Model) -> VectorLayout:
    """The hyper-parameters of a model, in the order of their names; exact where noise is Gaussian and of one size."""
    dtype = np.dtype(jnp.result_type(float))
    has_own = any(part.term.scale is not None or part.term.lengthscale is not None for part in model.layout.read_terms)
    if has_own or model.family.named is None:
        return _traced_layout(model, dtype)
    priors = default_priors(model)
    shapes = {name: priors[name].shape for name in sorted(priors)}
    return VectorLayout(shapes, dtype, model.family.spec == "gaussian", priors)


@alone
def _traced_layout(model: Model, dtype: np.dtype) -> VectorLayout:
    kinds = []

    def shapes() -> dict[str, Array]:
        with handlers.block(), handlers.trace() as trace, handlers.seed(rng_seed=0):
            kinds.append(has_one_noise(sample_hyperparameters(model, dtype)[2]))
        sampled = [site for site in trace.values() if site["type"] == "sample"]
        return {s["name"]: jnp.zeros(biject_to(s["fn"].support).inverse_shape(s["fn"].shape())) for s in sampled}

    found = jax.eval_shape(shapes)
    return VectorLayout({name: found[name].shape for name in sorted(found)}, dtype, kinds[-1])


def has_one_noise(likelihood: object) -> TypeGuard[Gaussian]:
    """Whether noise is Gaussian, with one standard deviation for all rows."""
    return isinstance(likelihood, Gaussian) and jnp.ndim(likelihood.scale) == 0


def bound_arguments(model: Model, vector_layout: VectorLayout, free: Array) -> tuple[BoundArguments[Array], Array]:
    """The model at a vector of hyper-parameters, and the vector of prior means to start from."""
    found = evaluate(model, vector_layout.by_name(free))
    noise = found.likelihood.scale if has_one_noise(found.likelihood) else 0.0
    places = places_of_lengths(model)
    each = jnp.append(found.lengths, jnp.ones((), free.dtype))
    lengths = picked(each, places) if places.size else jnp.zeros(places.shape, free.dtype)
    arguments = BoundArguments(found.scales, lengths, jnp.asarray(noise, free.dtype), found.log_density)
    start = [jnp.ravel(found.start[name]) for name in vector_layout.shapes]
    return arguments, jnp.concatenate([jnp.zeros(0, vector_layout.dtype), *start])


def places_of_lengths(model: Model) -> np.ndarray:
    """Of the lengthscale of each component ``(C, P)`` its place among all ``L``; behind them where it has fewer."""
    counts = np.array([*map(count_lengthscales, model.layout.read_terms), 0])
    has_length = np.arange(counts.max()) < counts[:, None]
    places = np.full(has_length.shape, counts.sum())
    places[has_length] = np.arange(counts.sum())
    return places


def _middle(prior: dist.Distribution, transform: dist.transforms.Transform, like: Array) -> Array:
    """The unconstrained mean of a prior, zero where it has none."""
    base = prior
    while isinstance(base, (dist.ExpandedDistribution, dist.Independent)):
        base = base.base_dist
    if type(base).mean in (dist.Distribution.mean, dist.TransformedDistribution.mean):
        return jnp.zeros_like(like)
    mean: Array = transform._inverse(jnp.broadcast_to(prior.mean, prior.shape()))
    return jnp.where(jnp.isfinite(mean), mean, 0.0)


class SlopedValues(NamedTuple):
    """What hyper-parameters ``(d,)`` stand for, laid out as `BoundArguments`, and the slopes ``(K, d)`` of that."""

    values: BoundArguments[np.ndarray]
    slopes: np.ndarray


class ClosedFormPriors:
    """Hyper-parameters whose priors are those that a model has by itself, in closed form: nothing is compiled.

    All are positive, by their logarithms: standard deviations of terms with a half-normal prior, lengthscales and
    parameters of the likelihood with log-normal ones.
    """

    def __init__(self, model: Model, vector_layout: VectorLayout) -> None:
        places = vector_layout.places
        size = sum(map(len, places.values()))
        self.constant = 3 * float(model.start.size)
        self.middle, self.spread, self.half = np.zeros(size), np.ones(size), np.zeros(size, bool)
        for name, prior in (vector_layout.priors or {}).items():
            at = places[name]
            self.middle[at], self.half[at] = np.log(prior.median), prior.spread is None
            self.spread[at] = 1.0 if prior.spread is None else prior.spread
        plain, parts = iter(places.get("f_scale", ())), model.layout.read_terms
        own = {part.name: places.get(f"f_scale {part.name}") for part in parts}
        self.scales = np.array([next(plain) if at is None else at[0] for at in own.values()], int)
        # Those that are missing are of a one, behind the last; so is what stays among `BoundArguments`.
        self.lengths = np.append(places.get("f_lengthscale", np.zeros(0, int)), size)[places_of_lengths(model)]
        self.is_exact, noise = vector_layout.is_exact, places["noise"] if vector_layout.is_exact else [size]
        self.order = np.concatenate([self.scales, [size], self.lengths.ravel(), noise])
        self.moved = np.flatnonzero(self.order < size)
        of_half = np.exp(self.middle) * np.sqrt(2 / np.pi)  # the mean of a half-normal prior, by its size
        self.start = np.where(self.half, np.log(of_half), self.middle + 0.5 * np.minimum(self.spread, 1.0) ** 2)

    def __call__(self, free: np.ndarray) -> SlopedValues:
        values = np.append(np.exp(free), 1.0)
        away, squares = (free - self.middle) / self.spread, np.exp(2 * (free - self.middle))
        normal = -0.5 * away**2 - np.log(self.spread) - 0.5 * np.log(2 * np.pi)
        half = 0.5 * np.log(2 / np.pi) - 0.5 * squares + free - self.middle
        density = float(np.where(self.half, half, normal).sum())
        slopes, columns = np.zeros((len(self.order) + 1, len(free))), self.order[self.moved]
        slopes[self.moved, columns] = values[columns]
        slopes[-1] = np.where(self.half, 1 - squares, -away / self.spread)
        noise = float(values[self.order[-1]]) if self.is_exact else 0.0
        scales = np.append(values[self.scales], self.constant)
        return SlopedValues(BoundArguments(scales, values[self.lengths], noise, density), slopes)


class CompiledPriors:
    """Hyper-parameters with priors of the user's, or a likelihood of theirs, as a compiled program."""

    def __init__(self, model: Model, vector_layout: VectorLayout) -> None:
        self.dtype = vector_layout.dtype

        def flat(free: Array) -> tuple[Array, tuple[BoundArguments[Array], Array]]:
            found, start = bound_arguments(model, vector_layout, free)
            return jnp.concatenate([jnp.ravel(leaf) for leaf in found]), (found, start)

        free = np.zeros(sum(map(math.prod, vector_layout.shapes.values())), self.dtype)
        self._program = prepared(jax.jacfwd(flat, has_aux=True), free)
        self.start = np.asarray(self._program(free)[1][1], float)
        self.spread = np.ones(len(free))  # as if logarithms had that

    def __call__(self, free: np.ndarray) -> SlopedValues:
        found = self._program(free.astype(self.dtype))
        slopes, (values, _) = jax.tree.map(lambda leaf: np.asarray(leaf, float), found)
        return SlopedValues(values, slopes)
