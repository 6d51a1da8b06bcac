"""ANOVA models from a data set: mapped inputs, zero-mean kernels, main effects, chosen interactions, and a constant.

``f(x) = c + sum_d f_d(x_d) + sum_(d,e) f_de(x_d, x_e)`` where every component but the constant averages to zero over
the range of its inputs (uniformly, or as they occur; over the observed frequencies for categories). This is
deterministic centring: the components are identified whatever the likelihood and the minibatches, and Sobol indices
exist (mathematics.md section 2.4).
"""

import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from numpyro_gp.additive.columns import grid_points
from numpyro_gp.additive.component_kernels import Component, batches_of, column_kernel
from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import check_choice, check_count, check_digits, check_points, check_positive, fail, when_known
from numpyro_gp.kernels import RBF, Constant, Empirical, Gaussian, Kernel, Matern12, Matern32, Matern52, Uniform
from numpyro_gp.kernels.measures import Measure
from numpyro_gp.kernels.members import KernelBatch, KernelBatches, shapes_of
from numpyro_gp.means import MeanLike
from numpyro_gp.primitives.gp import AdditiveGP, additive_gp
from numpyro_gp.primitives.observe import observe

__all__ = ["Design", "Input", "design"]

# --------------------------------------------------------------------------------------
# Columns of an ANOVA model: their ranges, levels, measures and names.


@dataclasses.dataclass(frozen=True)
class Input:
    """One column of the data: a number on ``[low, high]``, or a category with its levels and their frequencies.

    Parameters
    ----------
    name : str
    low, high : float
        The range of a number.
    levels : tuple of float
        The distinct values of a category; empty for a number.
    frequencies : tuple of float
        Share of the rows that have each level.

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> ngp.anova.Input("age", 20.0, 60.0).map(np.array([20.0, 30.0, 60.0])).tolist()
    [0.0, 0.25, 1.0]
    """

    name: str
    low: float = 0.0
    high: float = 1.0
    levels: tuple[float, ...] = ()
    frequencies: tuple[float, ...] = ()

    @property
    def is_category(self) -> bool:
        """Whether the column holds categories."""
        return bool(self.levels)

    def map(self, x: Array) -> Array:
        """Numbers to ``[0, 1]``, levels to codes 0, 1, …; a level that the design has not seen becomes NaN."""
        if not self.is_category:
            return (x - self.low) / (self.high - self.low)
        equal = x[..., None] == jnp.asarray(self.levels, x.dtype)[(None,) * x.ndim]
        codes = jnp.argmax(equal, axis=-1).astype(x.dtype)
        return jnp.where(jnp.any(equal, axis=-1), codes, jnp.nan)


def column_number(column: object, labels: tuple[str, ...]) -> int:
    """Return the number of a column that is given by name or number."""
    if column in labels:
        return labels.index(column)
    if isinstance(column, (int, np.integer)) and 0 <= column < len(labels):
        return int(column)
    fail("columns", f"numbers below {len(labels)} or names among {list(labels)}", repr(column), "Check the spelling.")


KernelFamily = type[RBF] | type[Matern12] | type[Matern32] | type[Matern52]
FAMILIES = (RBF, Matern12, Matern32, Matern52)


@dataclasses.dataclass(frozen=True)
class Design:
    """What `design` builds: an ANOVA model's inputs and components, and the model itself.

    Attributes
    ----------
    inputs : tuple of Input
    components : dict of tuple of int
        Columns of each component, by name; the constant has none.
    family : type
        Class of the one-dimensional kernels.
    num_inducing, pair_inducing : int
        Grid size of main effects, and on each axis of interactions.
    measures : tuple
        Of each mapped column, under which its effects average to zero; none for uniform ones.

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> design = ngp.anova.design(np.array([[10.0, 1.0], [20.0, 2.0], [40.0, 1.0]]), names=["age", "dose"])
    >>> design.components, [grid.shape for grid in design.inducing().values()]
    ({'constant': (), 'age': (0,), 'dose': (1,)}, [(1, 2), (16, 2), (16, 2)])
    """

    inputs: tuple[Input, ...]
    components: dict[str, tuple[int, ...]]
    family: KernelFamily
    num_inducing: int
    pair_inducing: int
    measures: tuple[Measure, ...] = ()

    def map(self, X: ArrayLike) -> Array:
        """Inputs ``(..., N, D)`` as the kernels read them: numbers on [0, 1], categories as codes."""
        inputs = check_points("X", X, len(self.inputs), leading=True)

        def check(X: np.ndarray) -> None:
            for d, column in enumerate(self.inputs):
                is_new = ~np.isin(X[..., d], np.asarray(column.levels, X.dtype))
                if column.is_category and is_new.any():
                    cure = "Build the design from data that have it, or leave out such rows."
                    required = f"one of the levels {list(column.levels)}"
                    fail(f"input {column.name!r}", required, X[..., d][is_new][0], cure)

        when_known(check, inputs)
        return jnp.stack([column.map(inputs[..., d]) for d, column in enumerate(self.inputs)], axis=-1)

    @property
    def slots(self) -> tuple[tuple[str, int], ...]:
        """The lengthscales of the model: one for each component and number that it reads."""
        return tuple(
            (name, d) for name, columns in self.components.items() for d in columns if not self.inputs[d].is_category
        )

    def kernels(self, variances: Array, lengthscales: Array, constant: ArrayLike = 100.0) -> KernelBatches:
        """Kernels by component; those that are alike are one batch.

        Parameters
        ----------
        variances : array (number of components that are not constant,)
        lengthscales : array (number of `slots`,)
            In units of the range of each input.
        constant : float
            Prior variance of the constant.
        """
        dtype = jnp.result_type(lengthscales)
        fixed, free = list[KernelBatch](), list[Component]()
        with jax.ensure_compile_time_eval():  # known also where a model is traced, as inducing inputs are
            uniform = Uniform(0.0, 1.0)
        for name, columns in self.components.items():
            if not columns:
                fixed.append(KernelBatch((name,), (), Constant(jnp.asarray(constant, dtype))))
                continue
            read = [self.inputs[d] for d in columns]
            numbers = [self.measures[d] if self.measures else uniform for d in columns]
            measures = [np.asarray(c.frequencies) if c.is_category else m for c, m in zip(read, numbers, strict=True)]
            count, sizes = sum(not c.is_category for c in read), tuple(len(c.levels) for c in read)
            free.append(Component(name, columns, measures, count, (shapes_of(measures), sizes), self._product))
        return KernelBatches(tuple(self.components), (*fixed, *batches_of(free, variances, lengthscales)))

    def _product(self, variance: Array, lengthscales: Array, measures: Sequence[object]) -> Kernel:
        """Return a product over columns 0, 1, ... of which `Component.given` are the measures."""
        unit, free = jnp.ones((), variance.dtype), iter(lengthscales)
        lengths = [next(free) if isinstance(measure, Measure) else None for measure in measures]
        parts = [column_kernel(unit, m, self.family, lengths[d]).on(d) for d, m in enumerate(measures)]
        return variance * functools.reduce(operator.mul, parts)

    def inducing(self, dtype: np.dtype | None = None) -> dict[str, Array]:
        """Grids of mapped inputs by component, ``(M_c, D)``, zero in the columns that a component does not read."""
        dtype = jnp.result_type(float) if dtype is None else dtype
        codes = {d: np.arange(len(own.levels), dtype=float) for d, own in enumerate(self.inputs) if own.is_category}
        grids = {}
        for name, columns in self.components.items():
            size = self.num_inducing if len(columns) == 1 else self.pair_inducing
            read = grid_points([codes[d] if d in codes else np.linspace(0.0, 1.0, size) for d in columns])
            points = np.zeros((len(read), len(self.inputs)))
            points[:, columns] = read
            with jax.ensure_compile_time_eval():  # known also where a model is traced: a batch of them is a constant
                grids[name] = jnp.asarray(points, dtype)
        return grids

    def process(
        self, name: str = "f", *, scale: ArrayLike = 1.0, mean: MeanLike = None, dtype: np.dtype | None = None
    ) -> AdditiveGP:
        """Sample the hyper-parameters from their priors and open the additive site: call it at **mapped** inputs.

        Sites: ``{name}_scale`` (half-normal standard deviations of the components' kernels) and
        ``{name}_lengthscale`` (log-normal around half the range of an input).

        Parameters
        ----------
        name : str
        scale : float
            Scale of the half-normal priors: about the standard deviation of ``f`` that is plausible.
        mean : as for `additive_gp`
        dtype : optional
            Floating point type; JAX's default.
        """
        check_positive("scale", scale)
        dtype = jnp.result_type(float) if dtype is None else dtype
        count = sum(bool(columns) for columns in self.components.values())
        size = jnp.asarray(scale, dtype)
        spread: Array = numpyro.sample(f"{name}_scale", dist.HalfNormal(size).expand([count]).to_event(1))
        lengthscales: Array = jnp.ones((0,), dtype)
        if self.slots:
            center, width = jnp.asarray(np.log(0.5), dtype), jnp.asarray(0.7, dtype)
            prior = dist.LogNormal(center, width).expand([len(self.slots)]).to_event(1)
            lengthscales = numpyro.sample(f"{name}_lengthscale", prior)
        # NumPyro draws in the default type, whatever the parameters are.
        spread, lengthscales = spread.astype(dtype), lengthscales.astype(dtype)
        kernels = self.kernels(spread**2, lengthscales, (10 * size) ** 2)
        return additive_gp(name, kernels, self.inducing(dtype), mean=mean)

    def model(
        self, likelihood: Callable[[], object], *, scale: ArrayLike = 1.0, mean: MeanLike = None
    ) -> Callable[..., None]:
        """A NumPyro model ``model(X, y=None, batch=None)`` of raw inputs.

        ``likelihood`` is called inside the model, so it can sample its own parameters:
        ``lambda: ngp.likelihoods.Gaussian(numpyro.sample("noise", dist.HalfNormal(1.0)))``. Sites: "f", "y".
        With counts, give ``mean`` the log of their mean, and the guide a narrow start, ``coupled(scale=0.1)``: the
        exponential of a wide prior makes first gradients that Adam is slow to forget.
        """
        if not callable(likelihood):
            cure = "Pass lambda: ngp.likelihoods.Poisson()."
            required = "a function without arguments that returns a likelihood"
            fail("likelihood", required, f"{likelihood!r:.60}", cure, TypeError)
        return _Model(self, likelihood, scale, mean)


@dataclasses.dataclass(frozen=True)
class _Model:
    """A model function as a value, so that guides which hold it can be pickled."""

    design: Design
    likelihood: Callable[[], object]
    scale: ArrayLike
    mean: MeanLike

    def __call__(self, X: ArrayLike, y: Array | None = None, batch: int | None = None) -> None:
        inputs = self.design.map(X)
        f = self.design.process("f", scale=self.scale, mean=self.mean, dtype=inputs.dtype)
        likelihood = self.likelihood()
        with numpyro.plate("data", inputs.shape[0], subsample_size=batch) as rows:
            observe("y", f(inputs[rows]), likelihood, obs=None if y is None else y[rows])


def design_of(model: object) -> Design | None:
    """Return the design that made a model, in handlers or not; None where none did."""
    while model is not None and not isinstance(model, _Model):
        model = getattr(model, "fn", None) or getattr(model, "func", None)
    return None if model is None else model.design


def design(
    X: ArrayLike,
    *,
    names: Sequence[str] | None = None,
    categorical: Sequence[int | str] = (),
    pairs: str | Sequence[tuple[int | str, int | str]] = (),
    constant: bool = True,
    family: KernelFamily = RBF,
    num_inducing: int = 16,
    pair_inducing: int = 4,
    measure: str = "uniform",
) -> Design:
    """Lay out an ANOVA model for a data set: read its ranges and levels, and choose main effects and interactions.

    Parameters
    ----------
    X : array (N, D)
        Raw inputs. Numbers are mapped to [0, 1] by their range, categories (any distinct numbers) to codes.
    names : sequence of str, optional
        Names of the columns; ``x0``, ``x1``, ….
    categorical : sequence of column numbers or names
    pairs : "all" or a sequence of pairs
        Interactions, by column numbers or names.
    constant : bool
        Whether there is a constant component, "constant".
    family : kernel class
        RBF, Matern12, Matern32 or Matern52.
    num_inducing, pair_inducing : int
        Inducing inputs of a main effect; of an interaction, on each axis.
    measure : {"uniform", "empirical", "gaussian"}
        Over what effects average to zero, and Sobol indices are shares: the range of each column, its values as they
        occur in ``X``, or a normal distribution with their mean and standard deviation (RBF only).

    Returns
    -------
    Design

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> X = np.array([[10.0, 1.0], [20.0, 2.0], [40.0, 1.0]])
    >>> layout = ngp.anova.design(X, names=["age", "sex"], categorical=["sex"], pairs="all")
    >>> layout.components
    {'constant': (), 'age': (0,), 'sex': (1,), 'age:sex': (0, 1)}
    """
    check_digits("X", X)
    data = np.asarray(check_points("X", X))
    columns = data.shape[1]
    labels = tuple(names) if names is not None else tuple(f"x{d}" for d in range(columns))
    if len(labels) != columns or len(set(labels)) < columns or "constant" in labels:
        cure = "Pass one name for each column."
        fail("names", f"{columns} different names, none of them 'constant'", f"{list(labels)}", cure)
    if family not in FAMILIES:
        fail("family", "RBF, Matern12, Matern32 or Matern52", f"{family!r:.60}", "Pass kernels.RBF itself.", TypeError)
    categories, inputs = {column_number(column, labels) for column in categorical}, list[Input]()
    for d, label in enumerate(labels):
        levels, counts = np.unique(data[:, d], return_counts=True)
        if len(levels) < 2:
            cure = "Leave the column out of X."
            fail(f"input {label!r}", "a column that varies", f"the constant {levels[0]:.6g}", cure)
        if d in categories:
            inputs.append(Input(label, 0.0, 1.0, tuple(levels.tolist()), tuple((counts / counts.sum()).tolist())))
        else:
            inputs.append(Input(label, float(levels[0]), float(levels[-1])))
    components: dict[str, tuple[int, ...]] = {"constant": ()} if constant else {}
    components |= {labels[d]: (d,) for d in range(columns)}
    # Pairs of columns by their numbers, each once and in order.
    is_all = isinstance(pairs, str) and pairs == "all"
    numbers = list(combinations(range(columns), 2)) if is_all else []
    for pair in () if is_all else [pairs] if isinstance(pairs, str) else pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            fail("pairs", "'all' or a sequence of pairs of columns", repr(pair), 'Pass pairs=[("age", "income")].')
        first, second = sorted(column_number(column, labels) for column in pair)
        if first == second or (first, second) in numbers:
            fail("pairs", "pairs of two different columns, each once", f"{pair}", "Leave it out: it is there already.")
        numbers.append((first, second))
    for first, second in numbers:
        if (both := f"{labels[first]}:{labels[second]}") in components:
            fail("names", f"other than {both!r}, that of a pair", f"{list(labels)}", "Give the column another name.")
        components[both] = (first, second)
    sizes = check_count("num_inducing", num_inducing, 2), check_count("pair_inducing", pair_inducing, 2)
    check_choice("measure", measure, ("uniform", "empirical", "gaussian"))
    if measure == "gaussian" and family is not RBF:
        cure = "Choose one of them, or pass family=kernels.RBF."
        fail("measure", "'uniform' or 'empirical' for Matern kernels", repr(measure), cure)
    measures: list[Measure] = []
    for d, column in enumerate(inputs) if measure != "uniform" else ():
        mapped = column.map(jnp.asarray(data[:, d]))
        measures.append(Empirical.of(mapped) if measure == "empirical" else Gaussian(jnp.mean(mapped), jnp.std(mapped)))
    return Design(tuple(inputs), components, family, *sizes, tuple(measures))
