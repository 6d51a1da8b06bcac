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
from numpyro_gp.gam.family import PARAMETERS
from numpyro_gp.gam.model import CONSTANT, WIDTH, Model
from numpyro_gp.gam.term_kernels import count_lengthscales
from numpyro_gp.likelihoods import Gaussian, Likelihood, as_likelihood
from numpyro_gp.programs.alone import alone
from numpyro_gp.programs.keep import kept, quickly
from numpyro_gp.programs.trace import traced


class ModelValues(NamedTuple):
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


class VectorLayout(NamedTuple):
    """The hyper-parameters of a model: unconstrained shapes by name, as they stand in a vector, and their type."""

    shapes: dict[str, tuple[int, ...]]
    dtype: np.dtype
    is_exact: bool

    @property
    def size(self) -> int:
        """Length of the vector."""
        return sum(int(np.prod(shape)) for shape in self.shapes.values())

    def by_name(self, free: Any) -> dict[str, Any]:
        """A vector as values by name."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes.values()])
        pieces = zip(self.shapes.items(), ends, strict=True)
        return {n: free[end - int(np.prod(shape)) : end].reshape(shape) for (n, shape), end in pieces}

    @property
    def places(self) -> dict[str, np.ndarray]:
        """Where the values of each name stand in a vector."""
        return {name: np.ravel(at) for name, at in self.by_name(np.arange(self.size)).items()}

    @property
    def of_likelihood(self) -> list[int]:
        """Where the parameters of the likelihood stand, which are not those of the terms."""
        own = [at for name, at in self.places.items() if name.split(" ")[0] not in ("f_scale", "f_lengthscale")]
        return [int(one) for at in own for one in at]

    def vector(self, values: dict[str, Array]) -> Array:
        """Values by name as a vector."""
        return jnp.concatenate([jnp.zeros(0, self.dtype), *[jnp.ravel(values[name]) for name in self.shapes]])


def vector_layout_of(model: Model) -> VectorLayout:
    """The hyper-parameters of a model, in the order of their names; exact where noise is Gaussian and of one size."""
    dtype = np.dtype(jnp.result_type(float))
    return _default_layout(model, dtype) if has_default_priors(model) else _traced_layout(model, dtype)


def has_default_priors(model: Model) -> bool:
    """Whether all priors are those that a model has by itself."""
    has_own = any(part.term.scale is not None or part.term.lengthscale is not None for part in model.layout.read_terms)
    return isinstance(model.family.spec, str) and not has_own


def _default_layout(model: Model, dtype: np.dtype) -> VectorLayout:
    parts = model.layout.read_terms
    of_time = model.kernel_data.time_priors
    of_terms = {"f_lengthscale": sum(map(count_lengthscales, parts)), "f_scale": len(parts) - len(of_time)}
    shapes: dict[str, tuple[int, ...]] = {name: (size,) for name, size in of_terms.items() if size}
    shapes |= {f"f_scale {name}": () for name in of_time}
    shapes |= {name: () for name in PARAMETERS[model.family.spec](model.start)}
    return VectorLayout({name: shapes[name] for name in sorted(shapes)}, dtype, model.family.spec == "gaussian")


@alone
def _traced_layout(model: Model, dtype: np.dtype) -> VectorLayout:
    kinds = []

    def shapes() -> dict[str, Array]:
        with handlers.block(), handlers.trace() as trace, handlers.seed(rng_seed=0):
            kinds.append(has_one_noise(model.open(dtype)[2]))
        sampled = [site for site in trace.values() if site["type"] == "sample"]
        return {s["name"]: jnp.zeros(biject_to(s["fn"].support).inverse_shape(s["fn"].shape())) for s in sampled}

    found = jax.eval_shape(shapes)
    return VectorLayout({name: found[name].shape for name in sorted(found)}, dtype, kinds[-1])


def has_one_noise(likelihood: Any) -> bool:
    """Whether noise is Gaussian, with one standard deviation for all rows."""
    return isinstance(likelihood, Gaussian) and jnp.ndim(likelihood.scale) == 0


@alone
def evaluate(model: Model, vector_layout: VectorLayout, free: Array) -> tuple[ModelValues, Likelihood, Array]:
    """The model at a vector of hyper-parameters, its likelihood, and the vector of prior means to start from."""
    slopes: list[Array] = []
    start: dict[str, Array] = {}
    values = vector_layout.by_name(free)

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
    noise = likelihood.scale if isinstance(likelihood, Gaussian) and has_one_noise(likelihood) else 0.0
    found = ModelValues(
        jnp.stack([scales[name] for name in names_of(model)]),
        jnp.stack([_padded(lengths.get(name, []), most_lengths(model), free.dtype) for name in names_of(model)]),
        jnp.asarray(noise, free.dtype),
        sum(priors + slopes, jnp.zeros((), free.dtype)),
    )
    return found, likelihood, vector_layout.vector(start)


def names_of(model: Model) -> list[str]:
    """The components: the terms and the constant."""
    return [*(part.name for part in model.layout.read_terms), CONSTANT]


def most_lengths(model: Model) -> int:
    """Most lengthscales of one term."""
    return max(map(count_lengthscales, model.layout.read_terms), default=0)


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


class SlopedValues(NamedTuple):
    """What hyper-parameters ``(d,)`` stand for, laid out as `ModelValues`, and the slopes ``(K, d)`` of that."""

    values: ModelValues
    slopes: np.ndarray


class ClosedFormPriors:
    """Hyper-parameters whose priors are those that a model has by itself, in closed form: nothing is compiled.

    All are positive, by their logarithms: standard deviations of terms with a half-normal prior, lengthscales and
    parameters of the likelihood with log-normal ones.
    """

    def __init__(self, model: Model, vector_layout: VectorLayout) -> None:
        parts, places, size = model.layout.read_terms, vector_layout.places, vector_layout.size
        smooth = [part for part in parts if count_lengthscales(part)]
        self.constant = 3 * float(model.start.size)
        self.middle, self.spread, self.half = np.zeros(size), np.ones(size), np.zeros(size, bool)
        of_time = model.kernel_data.time_priors
        if "f_scale" in places:
            self.half[places["f_scale"]] = True
            self.middle[places["f_scale"]] = np.log(WIDTH * float(model.start.size))
        for name, own in of_time.items():
            at = places[f"f_scale {name}"]
            self.middle[at], self.spread[at] = np.log(own.scale.median), own.scale.spread
        if smooth:
            at = places["f_lengthscale"]
            self.middle[at] = np.log(model.medians(smooth))
            self.spread[at] = model.spreads(smooth)
        for name, prior in PARAMETERS[model.family.spec](model.start).items():
            self.middle[places[name]], self.spread[places[name]] = np.log(prior.median), prior.spread
        plain = iter(places.get("f_scale", ()))
        each = [places[f"f_scale {p.name}"][0] if p.name in of_time else next(plain) for p in parts]
        self.scales = np.array(each, int)
        self.noise = places["noise"] if vector_layout.is_exact else np.zeros(0, int)
        self.lengths = np.full((len(parts) + 1, most_lengths(model)), size)  # those that are missing: of a one
        mine = iter(places.get("f_lengthscale", ()))
        for row, part in zip(self.lengths, parts, strict=False):
            row[: count_lengthscales(part)] = [next(mine) for _ in range(count_lengthscales(part))]
        of_half = np.exp(self.middle) * np.sqrt(2 / np.pi)  # the mean of a half-normal prior, by its size
        self.start = np.where(self.half, np.log(of_half), self.middle + 0.5 * np.minimum(self.spread, 1.0) ** 2)

    def __call__(self, free: np.ndarray) -> SlopedValues:
        values, size = np.append(np.exp(free), 1.0), len(free)
        away, squares = (free - self.middle) / self.spread, np.exp(2 * (free - self.middle))
        normal = -0.5 * away**2 - np.log(self.spread) - 0.5 * np.log(2 * np.pi)
        half = 0.5 * np.log(2 / np.pi) - 0.5 * squares + free - self.middle
        density = float(np.where(self.half, half, normal).sum())
        order = np.concatenate([self.scales, [size], self.lengths.ravel(), self.noise if len(self.noise) else [size]])
        slopes = np.zeros((len(order) + 1, size))
        rows = np.flatnonzero(order < size)
        slopes[rows, order[rows]] = values[order[rows]]
        slopes[-1] = np.where(self.half, 1 - squares, -away / self.spread)
        noise = float(values[self.noise[0]]) if len(self.noise) else 0.0
        return SlopedValues(
            ModelValues(np.append(values[self.scales], self.constant), values[self.lengths], noise, density), slopes
        )


class CompiledPriors:
    """Hyper-parameters with priors of the user's, or a likelihood of theirs, as a compiled program."""

    def __init__(self, model: Model, vector_layout: VectorLayout) -> None:
        self.dtype = vector_layout.dtype

        def whole(free: Array) -> tuple[ModelValues, Array, Array]:
            return with_slopes(lambda one: evaluate(model, vector_layout, one)[::2], free)

        free = np.zeros(vector_layout.size, self.dtype)
        found = traced(whole, free)
        run = kept(found.program, "quickly", lambda: quickly(found.program))

        def call(free: np.ndarray) -> tuple[ModelValues, Any, Any]:
            arrays = run(*found.constants, free.astype(self.dtype))
            whole: tuple[ModelValues, Any, Any] = jax.tree.unflatten(
                found.structure, [np.asarray(leaf, float) for leaf in arrays]
            )
            return whole

        self._run = call
        self.start = call(free)[2]

    def __call__(self, free: np.ndarray) -> SlopedValues:
        found, slopes, _ = self._run(free)
        return SlopedValues(found, slopes)


def evaluator_of(model: Model, vector_layout: VectorLayout) -> ClosedFormPriors | CompiledPriors:
    """What hyper-parameters of a model stand for, as a function of them, and where they start."""
    return ClosedFormPriors(model, vector_layout) if has_default_priors(model) else CompiledPriors(model, vector_layout)


def with_slopes(
    function: Callable[[Array], tuple[ModelValues, Array]], free: Array
) -> tuple[ModelValues, Array, Array]:
    """Values ``(K,)`` laid out as `ModelValues`, their slopes ``(K, d)`` in the hyper-parameters, and the start."""

    def flat(one: Array) -> tuple[Array, tuple[ModelValues, Array]]:
        found, start = function(one)
        return jnp.concatenate([jnp.ravel(leaf) for leaf in found]), (found, start)

    slopes, (found, start) = jax.jacfwd(flat, has_aux=True)(free)
    return found, slopes, start
