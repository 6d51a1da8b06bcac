"""An additive model as an ordinary NumPyro model function: terms, their priors, the constant, offsets and weights."""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Generic, NamedTuple, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.distributions import biject_to

from numpyro_gp.additive.component_kernels import AnyArray
from numpyro_gp.arrays import Array, ArrayLike, Values
from numpyro_gp.beliefs.base import Point
from numpyro_gp.beliefs.members import picked
from numpyro_gp.checks import check_choice, fail
from numpyro_gp.gam.model.censoring import sides_at, with_sides
from numpyro_gp.gam.model.column_kernels import TimePrior, check_times, series_scales, time_priors
from numpyro_gp.gam.model.families import Prior, Start
from numpyro_gp.gam.model.family import (
    Family,
    as_family,
    at_places,
    check_any_rows,
    check_censoring,
    check_response,
    check_trials,
    explained,
    quick_glm,
    trials_at,
    with_trials,
)
from numpyro_gp.gam.model.term_kernels import MEASURES, KernelData, count_lengthscales, kernel_data_of
from numpyro_gp.gam.table.layout import TableLayout, TableRows, as_labels, lay_out
from numpyro_gp.gam.table.terms import TIME, Terms
from numpyro_gp.kernels import Constant
from numpyro_gp.kernels.members import KernelBatch, KernelBatches
from numpyro_gp.likelihoods import Gaussian, Likelihood
from numpyro_gp.primitives.gp import AdditiveGP, additive_gp
from numpyro_gp.primitives.observe import observe
from numpyro_gp.programs.compiled import prepared
from numpyro_gp.programs.handler_lock import alone
from numpyro_gp.sites import Site
from numpyro_gp.starting.priors import NOISE

CONSTANT = "constant"
# The standard deviation of the constant in sizes of f: how far it may be from that of the GLM, which is a start.
SD_OF_CONSTANT = 3
# Medians of lengthscales in standard deviations of a column, and on the unit circle; the spread of their logarithms.
LENGTH, ROUND, SPREAD = 2.0, 1.0, 0.8
# The prior of the standard deviation of a term is half-normal of this many sizes of f.
WIDTH = 1.0


@dataclasses.dataclass(frozen=True, eq=False)
class Model:
    """A NumPyro model ``model(X, y=None, weights=None, batch=None)`` of encoded rows, for every engine.

    Sites: the additive process "f", whose components are the terms and "constant"; ``f_scale`` (standard deviations
    of the terms) and ``f_lengthscale``, in the order of the terms; a term's own priors under ``f_scale s(x)``; the
    parameters of the likelihood; the response "y". Of several classes each has components of its own, named
    "setosa: s(x)", with the same hyper-parameters.

    Attributes
    ----------
    terms : Terms
    layout : TableLayout
        Of the columns. ``model.encode(new_data)`` makes inputs of a table.
    kernel_data : KernelData
        Measures, inducing inputs, kernels.
    family : Family
    start : Start
        Constant, size of f and noise by a quick GLM, which scale the priors.
    rows : Rows
        The rows of the fit: ``model.arguments`` are those of the model.
    measure : str
    start_values : array (3 or more,)
        The start as an array; beside terms of time it has the medians of their priors behind.
    jitter : float, optional
        As of `additive_gp`.

    Examples
    --------
    >>> import jax, numpy as np, numpyro, numpyro_gp as ngp
    >>> data = {"age": np.arange(9.0), "count": np.array([0, 2, 1, 4, 3, 5, 2, 8, 6])}
    >>> model = ngp.gam.model("count ~ s(age)", data, "poisson")
    >>> trace = numpyro.handlers.trace(numpyro.handlers.seed(model, 0)).get_trace(*model.arguments)
    >>> [name for name, site in trace.items() if site["type"] == "sample"]
    ['f_scale', 'f_lengthscale', 'f', 'y']
    """

    terms: Terms
    layout: TableLayout
    kernel_data: KernelData
    family: Family
    start: Start
    rows: TableRows
    measure: str
    start_values: Array
    jitter: float | None = None

    def encode(self, data: object) -> Array:
        """Inputs ``(N, D)`` of the rows of a table."""
        return jnp.asarray(self.layout.encode(data), jnp.result_type(float))

    @property
    def arguments(self) -> tuple[Array, ...]:
        """Inputs, response and, where there are some, weights of the fit."""
        given = (self.rows.X, self.rows.y) + (() if self.rows.weights is None else (self.rows.weights,))
        return tuple(jnp.asarray(value, jnp.result_type(float)) for value in given)

    def __call__(
        self, X: ArrayLike, y: Array | None = None, weights: Array | None = None, batch: int | None = None
    ) -> None:
        X = jnp.asarray(X)
        f = self.process(X.dtype)
        likelihood = self.family.likelihood(self._numbers(X.dtype))
        with numpyro.plate("data", X.shape[0], subsample_size=batch) as rows:
            if batch is not None:
                likelihood = at_places(jax.tree.map(jnp.asarray, likelihood), rows, X.shape[0], 0)
            if self.layout.trials is not None:
                likelihood = with_trials(likelihood, X[rows][:, self.layout.trials])
            if (sides := sides_at(self.layout, X[rows])) is not None:
                likelihood = with_sides(likelihood, sides)
            with nullcontext() if weights is None else handlers.scale(scale=weights[rows]):
                at = f(X[rows]) if self.family.classes is None else functions_at(f, X[rows], self.start_of_classes)
                observe("y", at, likelihood, obs=None if y is None else y[rows])

    def process(self, dtype: np.dtype | None = None) -> AdditiveGP:
        """Sample the hyper-parameters of the terms and open the additive process, at encoded inputs."""
        dtype = jnp.result_type(float) if dtype is None else dtype
        mean = self._mean if self.family.classes is None else None
        return additive_gp("f", self.kernels(dtype), self.inducing(dtype), mean=mean, jitter=self.jitter)

    def _mean(self, X: Array) -> Array:
        return offset_at(self, X)

    @property
    def classes(self) -> tuple[Any, ...] | None:
        """Names of the classes of the family "categorical", in order; None of other families."""
        return None if self.family.classes is None else self.layout.response_column.levels

    @property
    def start_of_classes(self) -> np.ndarray:
        """What functions of classes are around ``(K,)``: logarithms of how frequent these are, less their average."""
        assert self.family.classes is not None
        logs = np.log(np.bincount(self.rows.y.astype(int), self.rows.mass, self.family.classes))
        return logs - logs.mean()

    def of_classes(self, name: str) -> list[str]:
        """Names of the components of a term: its own, or with the class before it one for each."""
        return [name] if self.classes is None else [f"{own}: {name}" for own in self.classes]

    @property
    def sizes(self) -> list[int]:
        """Inducing inputs of each component: of the terms, and one of the constant."""
        return [*(len(self.kernel_data.inducing[part.name]) for part in self.layout.read_terms), 1]

    def inducing(self, dtype: np.dtype) -> dict[str, Array]:
        """Inducing inputs of all terms, and of the constant."""
        every = self.kernel_data.inducing | {CONSTANT: np.zeros((1, max(len(self.layout.columns), 1)))}
        by_class = zip(*(self.of_classes(name) for name in every), strict=True)
        with jax.ensure_compile_time_eval():  # known also where a model is traced: a batch of them is a constant
            known = [jnp.asarray(points, dtype) for points in every.values()]
            return {name: points for names in by_class for name, points in zip(names, known, strict=True)}

    def _numbers(self, dtype: np.dtype) -> Start:
        """The start as entries of one array, which a program takes: other data of the same shapes compile nothing."""
        values = jnp.asarray(self.start_values, dtype)
        return Start(*(values[at] for at in range(len(Start._fields))))

    def kernels(self, dtype: np.dtype) -> KernelBatches:
        """Sample the hyper-parameters of the terms: their kernels, and that of the constant."""
        scales, lengths = self.scales_and_lengths(dtype)
        found = self.kernel_data.kernels(scales**2, lengths)
        constant = KernelBatch((CONSTANT,), (), Constant((SD_OF_CONSTANT * self._numbers(dtype).size) ** 2))
        names, batches = (*found.names, CONSTANT), (*found.batches, constant)
        classes = [""] if self.classes is None else [f"{own}: " for own in self.classes]
        copies = [
            dataclasses.replace(batch, names=tuple(own + name for name in batch.names))
            for own in classes
            for batch in batches
        ]
        return KernelBatches(tuple(own + name for own in classes for name in names), tuple(copies))

    def scales_and_lengths(self, dtype: np.dtype) -> tuple[Array, Array]:
        """Sample standard deviations ``(C,)`` of the terms, and lengthscales ``(L,)`` of each curve and surface.

        Of terms of time these are their two numbers; other terms have none.
        """
        parts, of_time = self.layout.read_terms, self.kernel_data.time_priors
        defaults = default_priors(self, jnp.asarray(self.start_values, dtype))
        given = {p.name: p.term.scale for p in parts if p.term.scale is not None and p.name not in of_time}
        plain = [part.name for part in parts if part.name not in given and part.name not in of_time]
        own = [numpyro.sample(f"f_scale {name}", prior) for name, prior in given.items()]
        own += [defaults[f"f_scale {name}"].sample(f"f_scale {name}") for name in of_time]
        own = [jnp.reshape(one, (1,)) for one in own] + ([defaults["f_scale"].sample("f_scale")] if plain else [])
        scales = _reordered(own, [*given, *of_time, *plain], [part.name for part in parts], dtype)
        usual, others = ([p for p in parts if (p.term.lengthscale is not None) is is_own] for is_own in (False, True))
        own = [defaults["f_lengthscale"].sample("f_lengthscale")] if any(map(count_lengthscales, usual)) else []
        for part in others:
            assert part.term.lengthscale is not None
            each = part.term.lengthscale.expand([len(part.term.columns)]).to_event(1)
            own.append(numpyro.sample(f"f_lengthscale {part.name}", each))
        both = usual + others, parts
        drawn, wanted = ([(p.name, at) for p in some for at in range(count_lengthscales(p))] for some in both)
        return scales, _reordered(own, drawn, wanted, dtype)


def offset_at(model: Model, X: Values) -> Values:
    """The constant of the quick GLM and offsets, at encoded inputs."""
    constant = model.start.constant if isinstance(X, np.ndarray) else model._numbers(X.dtype).constant
    return constant + X[..., list(model.layout.offsets)].sum(axis=-1)


def functions_at(f: AdditiveGP, X: Array, start: np.ndarray) -> dist.Distribution:
    """The functions of ``K`` classes at rows, from components of which each class has as many, one behind the other."""
    classes, parts = len(start), list(f.components(X).values())
    each = jnp.stack([part.loc for part in parts], axis=-1)
    mean = each.reshape(*each.shape[:-1], classes, -1).sum(axis=-1)
    mean = mean + jnp.broadcast_to(jnp.asarray(start, mean.dtype), mean.shape)
    if isinstance(f.process, Point):  # what inducing inputs leave open is independent
        spread = jnp.stack([part.scale**2 for part in parts], axis=-1).reshape(*each.shape[:-1], classes, -1)
        return dist.Normal(mean, jnp.sqrt(spread.sum(axis=-1))).to_event(1)
    covariance = f.component_covariance(X)
    blocks = covariance.reshape(*covariance.shape[:-2], classes, len(parts) // classes, classes, len(parts) // classes)
    return dist.MultivariateNormal(mean, blocks.sum(axis=(-3, -1)))


def sample_hyperparameters(model: Model, dtype: np.dtype) -> tuple[Array, Array, Likelihood]:
    """Standard deviations ``(C,)`` of the components, the constant last, lengthscales ``(L,)`` and the likelihood."""
    start, (scales, lengths) = model._numbers(dtype), model.scales_and_lengths(dtype)
    return jnp.append(scales, SD_OF_CONSTANT * start.size), lengths, model.family.likelihood(start)


def start_entries(start: Start, kernel_data: KernelData) -> np.ndarray:
    """The start, and behind it three medians of each term of time: what a program takes as entries of one array."""
    of_time = [one.median for prior in kernel_data.time_priors.values() for one in (prior.scale, *prior.lengths)]
    return np.array([*start, *of_time], float)


def default_priors(model: Model, entries: AnyArray | None = None) -> dict[str, Prior]:
    """Priors of all hyper-parameters for which no term and no likelihood has its own, by the names of their sites.

    ``entries`` are those of `start_entries`, in JAX where a program takes them: other data of the same shapes compile
    nothing.
    """
    entries = start_entries(model.start, model.kernel_data) if entries is None else entries
    parts, of_time = model.layout.read_terms, model.kernel_data.time_priors
    start = Start(*(entries[at] for at in range(len(Start._fields))))
    medians, spreads, priors, at = [], [], {}, len(start)
    for part in parts:
        if (own := of_time.get(part.name)) is not None:
            priors[f"f_scale {part.name}"] = Prior(entries[at], own.scale.spread)
            medians += [entries[at + 1], entries[at + 2]]
            spreads += [one.spread for one in own.lengths]
            at += 3
        elif (count := count_lengthscales(part)) and part.term.lengthscale is None:
            medians += [ROUND if part.name in model.kernel_data.periods else LENGTH * math.sqrt(count)] * count
            spreads += [SPREAD] * count
    if plain := sum(part.term.scale is None and part.name not in of_time for part in parts):
        priors["f_scale"] = Prior(WIDTH * start.size, None, (plain,))
    if medians:
        stack = jnp.stack if of_time and not isinstance(entries, np.ndarray) else np.stack
        each = stack([np.asarray(one, entries.dtype) if isinstance(one, float) else one for one in medians])
        priors["f_lengthscale"] = Prior(each, np.asarray(spreads, entries.dtype), each.shape)
    return priors | ({} if model.family.named is None else model.family.named.priors(start))


def _reordered(values: list[Array], names: Sequence[object], wanted: Sequence[object], dtype: np.dtype) -> Array:
    """Values by name in another order, as one array."""
    if not values:
        return jnp.zeros((0,), dtype)
    joined = jnp.concatenate([jnp.asarray(value, dtype) for value in values]) if len(values) > 1 else values[0]
    place = {name: at for at, name in enumerate(names)}
    return picked(jnp.asarray(joined, dtype), np.array([place[name] for name in wanted]))


def model(
    terms: object,
    data: object,
    family: object = "gaussian",
    *,
    response: str | None = None,
    weights: object = None,
    trials: str | None = None,
    censored: object = None,
    measure: str = "empirical",
) -> Model:
    """An additive model of a table as an ordinary NumPyro model function, for SVI, NUTS and Stein particles.

    Parameters
    ----------
    terms : str, Term or Terms
        A formula, ``"y ~ s(age) + re(site)"``, or terms joined by ``+``.
    data : mapping or table
        Columns by name: a dictionary of arrays, a structured array, a table of pandas or polars. Rows with a missing
        value in a column that is read are left out.
    family : str, likelihood or callable
        "gaussian", "student_t", "poisson", "negative_binomial", "bernoulli", "binomial", "categorical", "gamma",
        "exponential" or "beta"; or a likelihood; or a function without arguments that samples the parameters of one,
        and returns it.
    response : str, optional
        Column to explain, where terms are no formula.
    weights : array (N,) or str, optional
        How many rows each stands for.
    trials : str, optional
        Of the family "binomial", whose response counts successes: the column of the trials. New rows have it too, and
        predictions count successes among theirs; with trials of 1 the mean is the probability of one.
    censored : str or array (N,), optional
        Column that is true, 1 or "right" where the response is known only to be greater than the table says; false, 0
        or "none" where it is observed; -1 or "left" where it is smaller. ``"not dead"`` is the negation of a column of
        events. For continuous responses; predictions are of the response itself.
    measure : {"empirical", "uniform", "gaussian"}
        Over what each term averages to zero: the rows, the range of its column, or a normal distribution.

    Returns
    -------
    Model
        ``model(*model.arguments)`` is the model of the rows of the table, ``model(model.encode(new_data))`` that of
        others.

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> data = {"age": np.arange(9.0), "y": np.arange(9.0) ** 2}
    >>> model = ngp.gam.model(ngp.gam.s("age"), data, response="y")
    >>> [argument.shape for argument in model.arguments]
    [(9, 1), (9,)]
    """
    wanted, name = explained(terms, response)
    check_choice("measure", measure, MEASURES)
    likelihood = as_family(family)
    check_trials(likelihood, trials)
    has_classes = likelihood.spec == "categorical"
    layout, rows = lay_out(wanted, data, name, weights, trials, likelihood.has_labels, has_classes, censored)
    if has_classes:
        likelihood = likelihood._replace(classes=len(layout.response_column.levels or ()))
        cures = {"offset": "Leave it out: what is added to all classes changes no probability."}
        cures |= dict.fromkeys(TIME, "Write s(...) of the same column.")
        if others := [term for term in wanted.items if term.kind in cures]:
            required = "curves, surfaces, lines and levels beside the family 'categorical'"
            fail("terms", required, f"{others[0]}", cures[others[0].kind])
    if layout.censored is not None:
        check_censoring(likelihood, rows.X[:, layout.censored], layout.columns[-1])
    check_response(name, likelihood, rows.y, trials_at(layout, rows.X))
    check_any_rows(likelihood, len(rows.y))
    lines = [np.zeros((len(rows.X), 0))]  # of numbers, and indicators of small categories
    for at in sorted({at for part in layout.read_terms for at in part.columns}):
        levels, x = layout.columns[at].levels, rows.X[:, [at]]
        if levels is None:
            lines.append(x)
        elif len(levels) <= 20:
            lines.append((x == np.arange(1, len(levels))).astype(float))
    offset = rows.X[:, list(layout.offsets)].sum(axis=1)
    y, mass = as_labels(layout, rows)
    start = quick_glm(likelihood, np.concatenate(lines, axis=1), y, offset, mass)
    kernel_data = kernel_data_of(layout, rows.X, rows.weights, measure)
    of_time = [part for part in layout.read_terms if part.term.kind in TIME]
    priors: dict[str, TimePrior] = {}
    for at in dict.fromkeys(part.columns[0] for part in of_time):  # by column of time
        column, of_column = layout.columns[at], {p.name: p.term for p in of_time if p.columns[0] == at}
        periods = tuple(term.period for term in of_column.values() if term.period is not None)
        times = column.decode(rows.X[:, at])
        check_times(column, times, of_column)
        scales = series_scales(times, rows, periods, likelihood, start, offset)
        priors |= time_priors(of_column, column, scales)
        if likelihood.link == "identity":
            start = start._replace(noise=min(NOISE * float(scales.step), float(start.noise)))
    kernel_data = dataclasses.replace(kernel_data, time_priors={p.name: priors[p.name] for p in of_time})
    entries = jnp.asarray(start_entries(start, kernel_data).astype(jnp.result_type(float)))
    return Model(wanted, layout, kernel_data, likelihood, start, rows, measure, entries)


# --------------------------------------------------------------------------------------
# What a vector of unconstrained hyper-parameters stands for: scales and lengthscales of terms, the likelihood.


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
        Unconstrained prior means by name, zero where there is none, where the values are unconstrained.
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
        base = site["fn"]
        while isinstance(base, (dist.ExpandedDistribution, dist.Independent)):
            base = base.base_dist
        if type(base).mean in (dist.Distribution.mean, dist.TransformedDistribution.mean):  # it has none
            start[site["name"]] = jnp.zeros_like(free)
        else:
            mean: Array = transform._inverse(jnp.broadcast_to(site["fn"].mean, site["fn"].shape()))
            start[site["name"]] = jnp.where(jnp.isfinite(mean), mean, 0.0)
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
    """The hyper-parameters of a model, by name; exact where noise is Gaussian, of one size, and no row censored."""
    dtype = np.dtype(jnp.result_type(float))
    has_own = any(part.term.scale is not None or part.term.lengthscale is not None for part in model.layout.read_terms)
    if not has_own and model.family.named is not None:
        priors = default_priors(model)
        shapes = {name: priors[name].shape for name in sorted(priors)}
        return VectorLayout(shapes, dtype, model.family.spec == "gaussian" and model.layout.censored is None, priors)
    kinds = []

    def run() -> dict[str, Array]:
        with handlers.block(), handlers.trace() as trace, handlers.seed(rng_seed=0):
            kinds.append(has_one_noise(sample_hyperparameters(model, dtype)[2]))
        sampled = [site for site in trace.values() if site["type"] == "sample"]
        return {s["name"]: jnp.zeros(biject_to(s["fn"].support).inverse_shape(s["fn"].shape())) for s in sampled}

    found = jax.eval_shape(alone(run))
    is_exact = kinds[-1] and model.layout.censored is None
    return VectorLayout({name: found[name].shape for name in sorted(found)}, dtype, is_exact)


def has_one_noise(likelihood: object) -> TypeGuard[Gaussian]:
    """Whether noise is Gaussian, with one standard deviation for all rows."""
    return isinstance(likelihood, Gaussian) and jnp.ndim(likelihood.scale) == 0


def places_of_lengths(model: Model) -> np.ndarray:
    """Of the lengthscale of each component ``(C, P)`` its place among all ``L``; behind them where it has fewer."""
    counts = np.array([*map(count_lengthscales, model.layout.read_terms), 0])
    has_length = np.arange(counts.max()) < counts[:, None]
    places = np.full(has_length.shape, counts.sum())
    places[has_length] = np.arange(counts.sum())
    return places


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
        self.constant = SD_OF_CONSTANT * float(model.start.size)
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
        self.dtype, places = vector_layout.dtype, places_of_lengths(model)

        def flat(free: Array) -> tuple[Array, tuple[BoundArguments[Array], Array]]:
            result = evaluate(model, vector_layout.by_name(free))
            noise = result.likelihood.scale if has_one_noise(result.likelihood) else 0.0
            each = jnp.append(result.lengths, jnp.ones((), free.dtype))
            lengths = picked(each, places) if places.size else jnp.zeros(places.shape, free.dtype)
            found = BoundArguments(result.scales, lengths, jnp.asarray(noise, free.dtype), result.log_density)
            means = [jnp.ravel(result.start[name]) for name in vector_layout.shapes]
            start = jnp.concatenate([jnp.zeros(0, vector_layout.dtype), *means])
            return jnp.concatenate([jnp.ravel(leaf) for leaf in found]), (found, start)

        free = np.zeros(sum(map(math.prod, vector_layout.shapes.values())), self.dtype)
        self._program = prepared(jax.jacfwd(flat, has_aux=True), free)
        self.start = np.asarray(self._program(free)[1][1], float)
        self.spread = np.ones(len(free))  # as if logarithms had that

    def __call__(self, free: np.ndarray) -> SlopedValues:
        found = self._program(free.astype(self.dtype))
        slopes, (values, _) = jax.tree.map(lambda leaf: np.asarray(leaf, float), found)
        return SlopedValues(values, slopes)
