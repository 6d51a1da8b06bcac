"""What a likelihood answers about Gaussian functions, and likelihoods made of callables (mathematics.md section 7).

All expectations are over ``f ~ N(mean, variance)`` at each datum separately. Every public method
broadcasts ``y`` with the batch shape of the latent moments and works in the precision of ``mean``:
targets and parameters are converted to it.
"""

import abc
import inspect
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float

from numpyro_gp.arrays import Array, ArrayLike, value_type, widened
from numpyro_gp.checks import check_count, check_finite, check_positive, check_type, fail, known, when_known
from numpyro_gp.likelihoods.closures import Closure
from numpyro_gp.likelihoods.expectations import composite_cuts, expect, log_expect
from numpyro_gp.likelihoods.quadrature import Latent, at_points, latent_points
from numpyro_gp.likelihoods.tails import moments_of

CATEGORICAL = (dist.CategoricalProbs, dist.CategoricalLogits)


class Likelihood(abc.ABC):
    """Base class of likelihoods ``p(y | f)`` of one datum, with their Gaussian expectations: an immutable pytree.

    With one latent function ``mean`` and ``variance`` have the batch shape; with ``C`` of them they have
    shape ``(..., C)``, and ``covariance (..., C, C)`` says how the functions are correlated at a datum
    (None: independent). Subclasses give the hooks ``_expected``, ``_predictive``, ``_mean`` and
    ``_variance``, which see arrays of one dtype that are already broadcast. ``models/own_likelihood.py`` writes one.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> poisson = ngp.likelihoods.Poisson()
    >>> isinstance(poisson, ngp.likelihoods.Likelihood), poisson.num_latent
    (True, 1)
    """

    # Number of latent functions; and of the one that data stand around, where others are of other units.
    num_latent: Any = 1
    mean_function: Any = None

    def draw(self, key: Array, f: ArrayLike) -> Array:
        """Draw ``y`` given values of the latent functions."""
        return self.conditional(f).sample(key)

    def expected_log_prob(
        self, y: ArrayLike, mean: ArrayLike, variance: ArrayLike, *, covariance: ArrayLike | None = None
    ) -> Array:
        """``E_{N(f; mean, variance)} log p(y | f)`` of each datum: the likelihood's term of a bound."""
        return self._expected(*self._aligned(y, mean, variance, covariance))

    def log_prob(self, y: ArrayLike, f: ArrayLike) -> Array:
        """``log p(y | f)`` of each datum, in the precision of ``f``."""
        values, target = jnp.asarray(f), jnp.asarray(y)
        if jnp.issubdtype(target.dtype, jnp.floating):
            target = target.astype(values.dtype)
        elif jnp.issubdtype(target.dtype, jnp.integer):
            target = widened(target)
        conditional = self.conditional(values)
        if isinstance(conditional, CATEGORICAL):  # of labels 0.0, 1.0 as well
            target = target.astype(int)
        return conditional.log_prob(target)

    def predictive_log_prob(
        self, y: ArrayLike, mean: ArrayLike, variance: ArrayLike, *, covariance: ArrayLike | None = None
    ) -> Array:
        """``log E_{N(f; mean, variance)} p(y | f)`` of each datum: the log predictive density (or mass)."""
        return self._predictive(*self._aligned(y, mean, variance, covariance))

    def predictive_mean(self, mean: ArrayLike, variance: ArrayLike, *, covariance: ArrayLike | None = None) -> Array:
        """Mean of a new ``y``; the probabilities ``(..., C)`` of the classes for RobustMax and Softmax."""
        return self._mean(self._moments(mean, variance, covariance))

    def predictive_variance(
        self, mean: ArrayLike, variance: ArrayLike, *, covariance: ArrayLike | None = None
    ) -> Array:
        """Variance of a new ``y``; ``p (1 - p)`` of each class for RobustMax and Softmax."""
        return self._variance(self._moments(mean, variance, covariance))

    @abc.abstractmethod
    def conditional(self, f: ArrayLike) -> dist.Distribution:
        """``p(y | f)`` with batch shape that of ``f`` (without the axis of latent functions)."""

    def check_targets(self, y: ArrayLike) -> None:
        """Refuse observed values that ``p(y | f)`` cannot produce; says nothing about traced values."""
        check_finite("obs", y)

    @property
    def uncensored(self) -> "Likelihood":
        """The likelihood of values that are seen as they are: this one, unless it is wrapped, as in `Censored`."""
        return self

    def _turns(self, y: Float[Array, "*batch"]) -> Float[Array, "*batch K"] | None:  # noqa: ARG002
        """Where ``p(y | f)`` turns quickly in its one ``f``, by `composite_cuts`; None: smooth, or not known."""
        return None

    @abc.abstractmethod
    def _expected(self, y: Float[Array, "*batch"], latent: Latent) -> Float[Array, "*batch"]: ...

    @abc.abstractmethod
    def _predictive(self, y: Float[Array, "*batch"], latent: Latent) -> Float[Array, "*batch"]: ...

    @abc.abstractmethod
    def _mean(self, latent: Latent) -> Array: ...

    @abc.abstractmethod
    def _variance(self, latent: Latent) -> Array: ...

    def _moments(
        self, mean: ArrayLike, variance: ArrayLike, covariance: ArrayLike | None, shape: tuple[int, ...] = ()
    ) -> Latent:
        """Return the moments in one floating dtype, with one batch shape, after checks of the axis of functions."""
        mean, variance = jnp.asarray(mean), jnp.asarray(variance)
        dtype = jnp.result_type(mean, variance)
        dtype = dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.result_type(float)
        mean, variance = jnp.broadcast_arrays(mean.astype(dtype), variance.astype(dtype))
        count, name = self.num_latent, type(self).__name__
        axes = (count,) if count > 1 else ()
        if count > 1 and mean.shape[-1:] != axes:
            cure = f"Make the process with outputs={count}, or pass {count} independent processes."
            fail("mean", f"of shape (..., {count}): {name} has {count} latent functions", f"shape {mean.shape}", cure)
        batch = mean.shape[: mean.ndim - len(axes)]
        if covariance is not None:
            if count == 1:
                cure = "Leave covariance out, or choose a likelihood of several latent functions."
                fail("covariance", f"None for {name}, which has one latent function", "an array", cure)
            covariance = jnp.asarray(covariance, dtype)
            if covariance.shape[-2:] != axes + axes:
                cure = "Pass the covariance of the latent functions at each datum, not between data."
                fail("covariance", f"of shape (..., {count}, {count})", f"shape {covariance.shape}", cure)
            batch = np.broadcast_shapes(batch, covariance.shape[:-2])
        try:
            whole = np.broadcast_shapes(batch, shape)
        except ValueError:
            cure = "Pass one target for each datum; an axis of length one does not stand for the data."
            fail("y", f"broadcastable to the latent functions' batch shape {batch}", f"shape {shape}", cure)
        mean, variance = (jnp.broadcast_to(part, whole + axes) for part in (mean, variance))
        return Latent(mean, variance, None if covariance is None else jnp.broadcast_to(covariance, whole + axes + axes))

    def _aligned(
        self, y: ArrayLike, mean: ArrayLike, variance: ArrayLike, covariance: ArrayLike | None
    ) -> tuple[Array, Latent]:
        """Return targets and moments of one dtype and one batch shape."""
        latent = self._moments(mean, variance, covariance, jnp.shape(y))
        batch = latent.mean.shape[:-1] if self.num_latent > 1 else latent.mean.shape
        return jnp.broadcast_to(jnp.asarray(y, latent.mean.dtype), batch), latent


def check_each_target(y: ArrayLike, is_right: Callable[[np.ndarray], np.ndarray], required: str, cure: str) -> None:
    """Refuse known targets that are not finite, or not right; say the first that is wrong."""
    check_finite("obs", y)

    def check(values: np.ndarray) -> None:
        if not (right := is_right(values)).all():
            fail("obs", required, f"{float(values[~right].ravel()[0]):.6g}", cure)

    when_known(check, y)


def like(argument: str, value: ArrayLike, array: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """A parameter in the dtype and shape of the batch it belongs to."""
    value = jnp.asarray(value)
    try:
        return jnp.broadcast_to(value.astype(array.dtype), array.shape)
    except ValueError:
        cure = "Pass one value, or one for each datum of the batch."
        fail(argument, f"a scalar or broadcastable to the batch shape {array.shape}", f"shape {value.shape}", cure)


class ByDensity(Likelihood):
    """What follows from ``density(f, y, *parameters)``: log densities, and expectations by the composite rule.

    A class names the fields that are its ``parameters``, positive if it does not check them itself, has the NumPyro
    ``distribution(f, *parameters)``, and says by ``turn(y, *parameters)`` where in ``f`` and how widely the density
    turns; one whose tails are ``heavy`` looks for an outlier's peak too.
    """

    density: ClassVar[Callable[..., Array]]
    distribution: ClassVar[Callable[..., dist.Distribution]]
    parameters: ClassVar[tuple[str, ...]] = ()
    turn: ClassVar[Callable[..., tuple[Array, Array]] | None] = None
    heavy: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name in self.parameters:
            check_positive(name, getattr(self, name))

    def given(self, array: Float[Array, "*batch"]) -> list[Array]:
        """Return the parameters, each in the shape and precision of an array."""
        return [like(name, getattr(self, name), array) for name in self.parameters]

    def conditional(self, f: ArrayLike) -> dist.Distribution:
        """NumPyro's distribution of ``y``."""
        values = jnp.asarray(f)
        return self.distribution(values, *self.given(values))

    def _turns(self, y: Float[Array, "*batch"]) -> Float[Array, "*batch 9"] | None:
        return None if self.turn is None else composite_cuts(*self.turn(y, *self.given(y)), y)

    def log_prob(self, y: ArrayLike, f: ArrayLike) -> Array:
        """``log p(y | f)`` of each datum, by the density and not by that of NumPyro's distribution."""
        values = jnp.asarray(f)
        values = values if jnp.issubdtype(values.dtype, jnp.floating) else values.astype(jnp.result_type(float))
        values, targets = jnp.broadcast_arrays(values, jnp.asarray(y, values.dtype))
        return self.density(values, targets, *self.given(values))

    def _expected(self, y: Float[Array, "*batch"], latent: Latent) -> Float[Array, "*batch"]:
        return self._integral(expect, y, latent)

    def _predictive(self, y: Float[Array, "*batch"], latent: Latent) -> Float[Array, "*batch"]:
        return self._integral(log_expect, y, latent)

    def _integral(self, rule: Callable[..., Array], y: Float[Array, "*batch"], latent: Latent) -> Array:
        parameters, cuts = self.given(y), self._turns(y)
        return rule(self.density, latent.mean, latent.variance, y, *parameters, cuts=cuts, heavy=self.heavy)


@value_type(static=("num_latent_functions", "separate"))
class CallableLikelihood(Likelihood):
    """A likelihood of your own, made of any function from latent values to a NumPyro distribution: see `as_likelihood`.

    Expectations are by Gauss-Hermite quadrature with 20 nodes for each of up to three latent functions (their product,
    turned by the Cholesky factor of the covariance), 1024 quasi-random points beyond. The predictive density of one
    latent function has its nodes about the peak, however narrow. Of several functions the error of likelihoods much
    narrower than the latent standard deviation is not controlled. In the bound it does not matter: where the bound is
    highest a function is no wider than the likelihood, and there 20 nodes are within 1e-5 nats of smooth densities and
    0.05 of those with a kink, such as the Laplace distribution.

    Parameters
    ----------
    function : callable
    num_latent_functions : int
    separate : bool
        Whether the function takes one argument per latent function, or all on the last axis of one.

    Examples
    --------
    >>> import numpyro.distributions as dist, numpyro_gp as ngp
    >>> laplace = ngp.likelihoods.as_likelihood(lambda f: dist.Laplace(f, 0.5))
    >>> type(laplace).__name__, round(float(laplace.log_prob(0.0, 0.0)), 4)
    ('CallableLikelihood', 0.0)
    """

    function: Closure
    num_latent_functions: int = 1
    separate: bool = False

    @property
    def num_latent(self) -> int:
        """Number of latent functions."""
        return self.num_latent_functions

    def conditional(self, f: ArrayLike) -> dist.Distribution:
        """What the function returns, after a check that it is a distribution of scalars."""
        f = jnp.asarray(f)
        made = self.function(*[f[..., c] for c in range(self.num_latent)]) if self.separate else self.function(f)
        cure = "Return for example numpyro.distributions.Poisson(jnp.exp(f))."
        check_type("likelihood", made, dist.Distribution, "a callable that returns a NumPyro distribution", cure)
        if made.event_shape != ():
            cure = "Return one target for each datum, without to_event."
            required = "a callable that returns a distribution of scalars"
            fail("likelihood", required, f"one of event shape {made.event_shape}", cure)
        return made

    def check_targets(self, y: ArrayLike) -> None:
        """Compare known targets with the support of the conditional at ``f = 0``."""
        check_finite("obs", y)
        if (values := known(y)) is None:
            return
        zeros = jnp.zeros(values.shape + ((self.num_latent,) if self.num_latent > 1 else ()))
        support = self.conditional(zeros).support

        def check(inside: np.ndarray) -> None:
            if not np.all(inside):
                wrong = np.broadcast_to(values, inside.shape)[~inside].ravel()[0]
                fail("obs", f"in the support {support} of the likelihood", wrong, "Correct the data or the likelihood.")

        when_known(check, support(jnp.asarray(values)))

    def _log_prob(self, y: Float[Array, "*batch"], f: Array) -> Float[Array, "*batch"]:
        """In the precision of ``y``, whatever NumPyro promoted to."""
        conditional = self.conditional(f)
        return conditional.log_prob(y.astype(int) if conditional.support.is_discrete else y).astype(y.dtype)

    def _expected(self, y: Float[Array, "*batch"], latent: Latent) -> Float[Array, "*batch"]:
        return at_points(lambda f: self._log_prob(y, f), latent, self.num_latent)

    def _predictive(self, y: Float[Array, "*batch"], latent: Latent) -> Float[Array, "*batch"]:
        return at_points(lambda f: self._log_prob(y, f), latent, self.num_latent, is_log=True)

    def _conditional_moments(self, latent: Latent) -> tuple[Array, Array, Array]:
        points, weights = latent_points(latent, self.num_latent)

        def moments(f: Array) -> tuple[Array, Array]:
            conditional = self.conditional(f)
            if isinstance(conditional, CATEGORICAL):  # of labels it is each class that has a mean, its probability
                mean, variance = conditional.probs, conditional.probs * (1 - conditional.probs)
            else:
                mean, variance = moments_of(conditional)
            return mean.astype(latent.mean.dtype), variance.astype(latent.mean.dtype)

        means, variances = jax.vmap(moments)(points)
        return jnp.expand_dims(weights, range(weights.ndim, means.ndim)), means, variances

    def _mean(self, latent: Latent) -> Array:
        weights, means, _ = self._conditional_moments(latent)
        return jnp.sum(weights * means, axis=0)

    def _variance(self, latent: Latent) -> Array:
        weights, means, variances = self._conditional_moments(latent)
        centred = means - jnp.sum(weights * means, axis=0)[None]
        return jnp.sum(weights * (variances + centred**2), axis=0)


def as_likelihood(obj: Likelihood | Callable[..., dist.Distribution], num_latent: int | None = None) -> Likelihood:
    """A likelihood of your own: any callable ``f -> numpyro Distribution`` becomes a `Likelihood`, by quadrature.

    Parameters
    ----------
    obj : Likelihood or callable
        A callable takes latent values and returns a NumPyro distribution of scalars. With several latent
        functions it takes either one argument for each, ``lambda f, g: ...``, or all on the last axis of one.
        The predictive mean of a ``Categorical`` is the probability of each class, ``(..., C)``.
    num_latent : int, optional
        Number of latent functions; None counts the arguments of the callable.

    Returns
    -------
    Likelihood

    Raises
    ------
    TypeError
        If ``obj`` is neither.

    Examples
    --------
    >>> import numpyro.distributions as dist, jax.numpy as jnp, numpyro_gp as ngp
    >>> counts = ngp.likelihoods.as_likelihood(lambda f: dist.Poisson(jnp.exp(f)))
    >>> counts.num_latent
    1
    >>> round(float(counts.predictive_mean(0.0, 1.0)), 4)   # exp(1/2)
    1.6487
    """
    if isinstance(obj, Likelihood):
        if num_latent is not None and num_latent != obj.num_latent:
            cure = "Give the likelihood as many latent functions as it has."
            required = f"one of {num_latent} latent functions"
            fail("likelihood", required, f"{type(obj).__name__} with {obj.num_latent}", cure)
        return obj
    if isinstance(obj, type) and issubclass(obj, Likelihood):
        fail("likelihood", "an instance", f"the class {obj.__name__}", f"Call it: {obj.__name__}(...).", TypeError)
    if isinstance(obj, dist.Distribution) or not callable(obj):
        cure = "Pass likelihoods.Poisson() or lambda f: dist.Poisson(jnp.exp(f))."
        what = f"a {type(obj).__name__}"
        fail("likelihood", "a Likelihood or a callable f -> numpyro Distribution", what, cure, TypeError)
    try:  # positional arguments without default; one where the signature cannot be read
        arguments = inspect.signature(obj).parameters.values()
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        needed = sum(a.kind in positional and a.default is inspect.Parameter.empty for a in arguments)
    except (TypeError, ValueError):
        needed = 1
    count = max(needed, 1) if num_latent is None else check_count("num_latent", num_latent)
    if needed > 1 and needed != count:
        cure = "Let it take one argument for each latent function, or one with all on the last axis."
        fail("likelihood", f"a callable of {count} latent functions", f"one with {needed} arguments", cure, TypeError)
    return CallableLikelihood(Closure(obj), count, separate=needed > 1)
