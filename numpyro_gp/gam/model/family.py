"""Residuals and weights of least squares on the scale of a link, in NumPy."""

import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Float
from numpyro import handlers
from numpyro.distributions import constraints

from numpyro_gp import likelihoods
from numpyro_gp.arrays import Array, ArrayLike, T, value_type
from numpyro_gp.checks import fail
from numpyro_gp.likelihoods import Gamma, Likelihood, NegativeBinomial, as_likelihood
from numpyro_gp.likelihoods.base import like
from numpyro_gp.likelihoods.continuous import gamma_expected, gamma_log_prob
from numpyro_gp.likelihoods.expectations import composite_cuts
from numpyro_gp.likelihoods.links import link_at, mean_of, slope_of
from numpyro_gp.likelihoods.quadrature import Latent
from numpyro_gp.programs.handler_lock import alone

# Slopes of the mean, below which residuals of labels on the scale of the link are cut off.
LEAST_SLOPE = 1e-3


def residuals_at(link: str, f: np.ndarray, y: np.ndarray) -> np.ndarray:
    """``(y - mean) / (d mean / d f)``: residuals on the scale of the link."""
    slope = slope_of(link, f)
    slope = np.maximum(slope, LEAST_SLOPE) if link in ("logit", "probit") else slope
    return (y - mean_of(link, f)) / slope


def weights_at(family: str, link: str, f: np.ndarray, r: object = np.nan) -> np.ndarray:
    """``(d mean / d f)^2 / variance`` of a datum, but for a factor of all rows; ``r`` is that of the negative binomial.

    Relative errors of gamma data and waiting times are as large everywhere, those of counts fall with their mean.
    """
    kind, slope = plain_name(family), slope_of(link, f)
    if kind == "negativebinomial":
        slope = slope / (1 + slope / r)
    elif kind in ("gamma", "exponential"):
        slope = np.ones(len(f))
    elif link == "probit":
        mean, other = mean_of(link, f), mean_of(link, -f)
        slope = slope**2 / np.maximum(mean * other, np.finfo(float).tiny)
    return slope


def plain_name(family: str) -> str:
    """A family by its name, or by that of a class."""
    return family.lower().replace("_", "")


def log_ratio(likelihood: object, count: int) -> np.ndarray:
    """``log mean - f`` at ``count`` rows, averaged over draws: ``E log a`` of gamma data of shape ``a``, else zero."""
    if type(likelihood) is not Gamma:  # what a class of the user's own says has no link that is known
        return np.zeros(count)
    return averaged(np.log(np.asarray(likelihood.shape, float)), count)


def size_of_counts(likelihood: object, count: int) -> np.ndarray:
    """``r`` of the negative binomial at ``count`` rows, averaged over draws; NaN of other likelihoods."""
    return averaged(likelihood.r, count) if isinstance(likelihood, NegativeBinomial) else np.full(count, np.nan)


def averaged(values: object, count: int) -> np.ndarray:
    """The average of a parameter ``(S,)``, or ``(S, N)`` with one for each row, at ``count`` rows."""
    return np.broadcast_to(np.asarray(values, float).mean(axis=0), (count,))


# --------------------------------------------------------------------------------------
# Gamma data by the logarithm of their mean: what a gam says of them does not move with their shape.
#
# The public `Gamma` has mean ``shape e^f``: there a shape that is uncertain moves the level of ``f``. Here the two
# are independent in the information of the data, as mean and noise of Gaussian data are.


def mean_gamma_log_prob(f: Array, y: Array, shape: Array) -> Array:
    """``log p(y | f)`` of a gamma with this shape and mean ``exp(f)``."""
    return gamma_log_prob(f - jnp.log(shape), y, shape)


@value_type()
class MeanGamma(Gamma):
    """Positive data with mean ``exp(f)`` and variance ``exp(2 f) / shape``.

    ``E log p = a (log a - mu) - log Gamma(a) + (a - 1) log y - a y exp(-mu + s / 2)``.

    Parameters
    ----------
    shape : array
        ``a``, positive: a scalar, or one value per datum.

    Examples
    --------
    >>> from numpyro_gp.gam.model.family import MeanGamma
    >>> round(float(MeanGamma(2.0).predictive_mean(0.0, 1.0)), 4)   # exp(1/2)
    1.6487
    """

    density = staticmethod(mean_gamma_log_prob)

    def conditional(self, f: ArrayLike) -> dist.Distribution:
        """Gamma with rate ``a exp(-f)``."""
        f = jnp.asarray(f)
        shape = like("shape", self.shape, f)
        return dist.Gamma(shape, shape * jnp.exp(-f), validate_args=False)

    def _expected(self, y: Float[Array, "*batch"], latent: Latent) -> Float[Array, "*batch"]:
        shape = like("shape", self.shape, y)
        return gamma_expected(latent.mean - jnp.log(shape), latent.variance, y, shape)

    def _turns(self, y: Float[Array, "*batch"]) -> Float[Array, "*batch 9"]:
        return composite_cuts(jnp.log(y), 1.0 / jnp.sqrt(like("shape", self.shape, y)), y)

    def _mean(self, latent: Latent) -> Array:
        return jnp.exp(latent.mean + 0.5 * latent.variance)

    def _variance(self, latent: Latent) -> Array:
        shape, variance = like("shape", self.shape, latent.mean), latent.variance
        return jnp.exp(2 * latent.mean + variance) * (jnp.exp(variance) / shape + jnp.expm1(variance))


# --------------------------------------------------------------------------------------
# Families: the likelihood of a response with priors for its parameters, and scales to start from by a quick GLM.


# What to do with successes among trials.
TRIALS = "Successes among trials take family='binomial' and the column of trials, trials='n'; labels take 'bernoulli'."


class Start(NamedTuple):
    """What a quick GLM says, on the scale of the link: the constant, the size of ``f``, and the noise beside it."""

    constant: float | Array = 0.0
    size: float | Array = 1.0
    noise: float | Array = 1.0


class Prior(NamedTuple):
    """A prior of positive numbers, of which programs make a distribution and a fit in NumPy a formula.

    Attributes
    ----------
    median : float or array
        Of a log-normal prior; of a half-normal one its scale.
    spread : float or array, optional
        Standard deviation of the logarithm; None where the prior is half-normal.
    shape : tuple of int
        Of the numbers, which are independent.
    """

    median: ArrayLike
    spread: ArrayLike | None = 1.0
    shape: tuple[int, ...] = ()

    def sample(self, name: str) -> Array:
        """Their values inside of a model."""
        median, spread = self.median, self.spread
        of_one = dist.HalfNormal(median) if spread is None else dist.LogNormal(jnp.log(median), spread)
        return numpyro.sample(name, of_one.expand(self.shape).to_event(len(self.shape)))


class NamedFamily(NamedTuple):
    """A likelihood with a name: its class, its link, and its parameters in the order that it takes them."""

    kind: type[Likelihood]
    link: str
    parameters: Callable[[Start], dict[str, Prior]] = lambda _: {}


NAMED = {
    "gaussian": NamedFamily(likelihoods.Gaussian, "identity", lambda start: {"noise": Prior(start.noise)}),
    "student_t": NamedFamily(
        likelihoods.StudentT, "identity", lambda start: {"df": Prior(4.0, 0.7), "noise": Prior(0.7 * start.noise)}
    ),
    "poisson": NamedFamily(likelihoods.Poisson, "log"),
    "negative_binomial": NamedFamily(likelihoods.NegativeBinomial, "log", lambda _: {"r": Prior(5.0)}),
    "bernoulli": NamedFamily(likelihoods.Bernoulli, "logit"),
    "binomial": NamedFamily(likelihoods.Binomial, "logit"),  # of one trial, until rows say how many
    "gamma": NamedFamily(MeanGamma, "log", lambda _: {"shape": Prior(3.0)}),
    "exponential": NamedFamily(likelihoods.Exponential, "log"),
    "beta": NamedFamily(likelihoods.Beta, "logit", lambda _: {"concentration": Prior(10.0)}),
}
# Links of these classes, where one of their values does not say its own.
LINKS: dict[type, str] = {own.kind: own.link for own in NAMED.values()} | {Gamma: "log"}


class Family(NamedTuple):
    """A likelihood and its link, as `as_family` reads them."""

    name: str
    link: str
    spec: Any

    def likelihood(self, start: Start) -> Likelihood:
        """The likelihood inside of a model."""
        if isinstance(self.spec, str):
            own = NAMED[self.spec]
            return own.kind(*(prior.sample(name) for name, prior in own.parameters(start).items()))
        return self.spec if isinstance(self.spec, Likelihood) else as_likelihood(self.spec())

    def stacked(self, values: dict[str, np.ndarray], count: int, dtype: np.dtype) -> Likelihood:
        """The likelihood of a name at several values of its parameters, its leaves with these on their first axis."""
        own = NAMED[self.spec]
        likelihood = own.kind(*(values[name] for name in own.parameters(Start())))
        return jax.tree.map(lambda leaf: np.array(np.broadcast_to(np.asarray(leaf, dtype), (count,))), likelihood)

    @property
    def has_labels(self) -> bool:
        """Whether its data are 0 or 1, which two levels may stand for."""
        if self.name != "function":
            return self.name.lower() == "bernoulli"
        return self.look(lambda own: own.conditional(jnp.zeros(1)).support is constraints.boolean)

    @alone
    def look(self, what: Callable[[Likelihood], T]) -> T:
        """What is said of the likelihood. Its parameters are traced, not drawn: each draw compiles little programs."""
        found: list[T] = []

        def run() -> None:
            with handlers.block(), handlers.seed(rng_seed=0):
                found.append(what(self.likelihood(Start())))

        jax.eval_shape(run)
        return found[0]


# Names of other libraries.
MEANT = dict.fromkeys(("normal", "norm"), "gaussian") | dict.fromkeys(("logistic", "logit", "binary"), "bernoulli")
MEANT |= {"nb": "negative_binomial", "negbin": "negative_binomial", "t": "student_t", "studentt": "student_t"}


def as_family(family: Any) -> Family:
    """A name, a likelihood, or a function without arguments that samples the parameters of one and returns it."""
    if isinstance(family, str) and family not in NAMED:
        cure = "Counts take 'poisson' or 'negative_binomial', positive numbers 'gamma': their link is the log."
        cure = cure if "log" in family else "Check the spelling, or pass a likelihood: ngp.likelihoods.Poisson()."
        cure = f"Write {MEANT[family.lower()]!r}." if family.lower() in MEANT else cure
        cure = TRIALS if "binom" in family.lower() and "neg" not in family.lower() else cure
        fail("family", f"one of {sorted(NAMED)}, a likelihood or a function", repr(family), cure)
    is_function = callable(family) and not isinstance(family, (Likelihood, type))
    if not isinstance(family, (str, Likelihood)) and not (is_function and not inspect.signature(family).parameters):
        required = "a name, a likelihood, or a function without arguments that returns one"
        cure = "Pass family='poisson', or lambda: ngp.likelihoods.Gaussian(numpyro.sample(...))."
        if hasattr(family, "to_numpy") or isinstance(family, np.ndarray):
            cure = "The second argument is a table with all columns: ngp.gam(formula, table, family)."
        got = f"a {type(family).__name__}" if "\n" in repr(family) else f"{family!r:.60}"
        fail("family", required, got, cure, TypeError)
    if isinstance(family, str):
        return Family(family, NAMED[family].link, family)
    kind, link = Family("", "", family).look(lambda own: (type(own), getattr(own, "link", None)))
    link = (link or LINKS[kind]) if kind in LINKS else "none"  # Bernoulli and Beta have a choice
    name = "function" if kind is likelihoods.CallableLikelihood else kind.__name__  # as files of fits have it
    if (count := Family("", "", family).look(lambda own: own.num_latent)) > 1:
        cure = f"Write the model yourself, with a process of outputs={count}, as the page of several outputs shows."
        fail("family", "a likelihood of one function, the sum of the terms", f"{name}, which has {count}", cure)
    if name == likelihoods.Binomial.__name__:
        fail("family", "one whose trials are a column of the table", "ngp.likelihoods.Binomial", TRIALS)
    return Family(name, link, family)


# Of the size of f: what lines leave of labels is as large whatever they hide, and a probit is a logit over 1.7.
SIZES = {"log": (0.3, 2.0), "logit": (1.5, 3.0), "probit": (0.9, 1.8)}
# How far from the constant the lines may go.
REACH = {"log": 4.0, "logit": 4.0, "probit": 2.4}
# The ridge of the quick GLM, of standardised columns.
RIDGE = 1e-3
# Shapes of gamma data: lines may leave a curve, or nothing.
SHAPES = (0.3, 1000.0)


def quick_glm(family: Family, lines: np.ndarray, y: np.ndarray, offset: np.ndarray, weights: np.ndarray) -> Start:
    """Five steps of weighted least squares on straight lines ``(N, D)`` and a constant, with a small ridge.

    The size of ``f`` counts what the lines leave: the variance of the working response beyond its noise. The mean of
    data of `Gamma` is ``a e^f``: where the shape is not known it is one over the mean squared relative residual.
    """
    if family.link == "none":
        return Start()
    if family.link == "identity":
        constant = float(np.average(y - offset, weights=weights))
        rest = y - offset - constant
        spread = float(np.sqrt(np.average(rest**2, weights=weights))) or 1.0
        noise = min(_noise_beside(lines, rest, weights), spread)
        return Start(constant, spread, max(0.7 * noise, 1e-3 * spread))
    # Of `Gamma` the mean is e^f times a shape, which may be known: ``log a``, () or (N,).
    known = np.log(np.asarray(family.spec.shape, float)) if type(family.spec) is Gamma else None
    if known is not None and known.size not in (1, len(y)):
        cure = "Leave rows with missing values out of both."
        fail("shape of Gamma", f"one number, or one for each of {len(y)} rows", f"{known.size} numbers", cure)
    offset = offset if known is None else offset + known
    constant = start_of(family.link, y, offset, weights)
    A, eta = np.concatenate([np.ones((len(y), 1)), lines], axis=1), constant + offset
    least = 1e-6 * (math.exp(constant) if family.link == "log" else 1.0)
    for _ in range(5):
        slope = np.maximum(slope_of(family.link, eta), least)
        mass = weights * np.maximum(weights_at(family.name, family.link, eta, np.inf), np.finfo(float).tiny)
        working = eta - offset + (y - mean_of(family.link, eta)) / slope
        ridged = (A * mass[:, None]).T @ A + RIDGE * mass.sum() * np.eye(A.shape[1])
        fitted = A @ np.linalg.solve(ridged, A.T @ (mass * working))
        reach = REACH[family.link]
        eta = np.clip(fitted, constant - reach, constant + reach) + offset
    centred = working - np.average(working, weights=mass)
    noise = np.sum(weights) / np.sum(mass)
    lowest, highest = SIZES[family.link]
    if family.name in ("gamma", Gamma.__name__):
        noise = 0.0 if known is None else np.average(np.broadcast_to(np.exp(-known), y.shape), weights=weights)
    beyond = np.average(centred**2, weights=mass) - noise
    if family.name == Gamma.__name__ and known is None:
        ratio = y * np.exp(-eta)
        relative = np.average((ratio / np.average(ratio, weights=weights) - 1) ** 2, weights=weights)
        constant -= math.log(np.clip(1 / max(relative, 1e-300), *SHAPES))
    return Start(constant, float(np.sqrt(np.clip(beyond, lowest**2, highest**2))), 1.0)


def start_of(link: str, y: np.ndarray, offset: np.ndarray, weights: np.ndarray) -> float:
    """The constant by which the mean of all data is right, or near it."""
    mean = float(np.average(y, weights=weights))
    if link == "log":
        mean = mean or 0.5 / float(np.sum(weights))  # of zeros alone: half an event among all
        return math.log(mean / float(np.average(np.exp(offset), weights=weights)))
    least = 0.5 / max(float(np.sum(weights)), 1.0)
    return link_at(link, min(max(mean, least), 1 - least)) - float(np.average(offset, weights=weights))


def _noise_beside(lines: np.ndarray, rest: np.ndarray, weights: np.ndarray) -> float:
    """Standard deviation of what lines leave of a response: squares over ``tr (I - H)^2`` with the smoother ``H``.

    That is what noise alone leaves on average, however many lines there are: as many as rows explain all of it.
    """
    centred = lines - np.average(lines, axis=0, weights=weights)
    gram = (centred * weights[:, None]).T @ centred
    total = float(weights.sum())
    ridged = gram + RIDGE * total * np.eye(len(gram))
    inside, slopes = np.linalg.solve(ridged, gram), np.linalg.solve(ridged, centred.T @ (weights * rest))
    left = rest - centred @ slopes
    freedom = total - 1 - 2 * np.trace(inside) + np.sum(inside * inside.T)
    return float(np.sqrt(weights @ left**2 / freedom)) if freedom > 0 else np.inf
