"""Families: the likelihood of a response with priors for its parameters, and scales to start from by a quick GLM."""

import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers

from numpyro_gp.checks import fail
from numpyro_gp.likelihoods import (
    Bernoulli,
    Beta,
    Exponential,
    Gamma,
    Gaussian,
    Likelihood,
    NegativeBinomial,
    Poisson,
    StudentT,
)

LINKS: dict[type, str] = {
    Gaussian: "identity",
    StudentT: "identity",
    Poisson: "log",
    NegativeBinomial: "log",
    Gamma: "log",
    Exponential: "log",
    Bernoulli: "logit",
    Beta: "logit",
}


class Start(NamedTuple):
    """What a quick GLM says, on the scale of the link: the constant, the size of ``f``, and the noise beside it."""

    constant: Any = 0.0
    size: Any = 1.0
    noise: Any = 1.0


class Positive(NamedTuple):
    """A log-normal prior of a parameter, by its median and the spread of its logarithm."""

    median: Any
    spread: float = 1.0

    def sample(self, name: str) -> Any:
        """Its value inside of a model."""
        return numpyro.sample(name, dist.LogNormal(jnp.log(self.median), self.spread))


# Parameters of the likelihood of a name, in the order that it takes them.
PARAMETERS: dict[str, Callable[[Start], dict[str, Positive]]] = {
    "gaussian": lambda start: {"noise": Positive(start.noise)},
    "student_t": lambda start: {"df": Positive(4.0, 0.7), "noise": Positive(0.7 * start.noise)},
    "poisson": lambda _: {},
    "negative_binomial": lambda _: {"r": Positive(5.0)},
    "bernoulli": lambda _: {},
    "gamma": lambda _: {"shape": Positive(3.0)},
    "exponential": lambda _: {},
    "beta": lambda _: {"concentration": Positive(10.0)},
}
NAMED: dict[str, type[Likelihood]] = {
    "gaussian": Gaussian,
    "student_t": StudentT,
    "poisson": Poisson,
    "negative_binomial": NegativeBinomial,
    "bernoulli": Bernoulli,
    "gamma": Gamma,
    "exponential": Exponential,
    "beta": Beta,
}


class Family(NamedTuple):
    """A likelihood and its link, as `as_family` reads them."""

    name: str
    link: str
    given: Any

    def likelihood(self, start: Start) -> Any:
        """The likelihood inside of a model."""
        if isinstance(self.given, str):
            values = [prior.sample(name) for name, prior in PARAMETERS[self.given](start).items()]
            return NAMED[self.given](*values)
        return self.given if isinstance(self.given, Likelihood) else self.given()

    @property
    def kind(self) -> type:
        """The class of the likelihood. Its parameters are traced, not drawn: each draw compiles little programs."""
        if isinstance(self.given, str):
            return NAMED[self.given]
        kinds: list[type] = []

        def look() -> None:
            with handlers.block(), handlers.seed(rng_seed=0):
                kinds.append(type(self.likelihood(Start())))

        jax.eval_shape(look)
        return kinds[0]


def as_family(family: Any) -> Family:
    """A name, a likelihood, or a function without arguments that samples the parameters of one and returns it."""
    if isinstance(family, str) and family not in NAMED:
        cure = "Counts take 'poisson' or 'negative_binomial', positive numbers 'gamma': their link is the log."
        cure = cure if "log" in family else "Check the spelling, or pass a likelihood: ngp.likelihoods.Poisson()."
        fail("family", f"one of {sorted(NAMED)}, a likelihood or a function", repr(family), cure)
    is_function = callable(family) and not isinstance(family, (Likelihood, type))
    if not isinstance(family, (str, Likelihood)) and not (is_function and not inspect.signature(family).parameters):
        required = "a name, a likelihood, or a function without arguments that returns one"
        cure = "Pass family='poisson', or lambda: ngp.likelihoods.Gaussian(numpyro.sample(...))."
        fail("family", required, f"{family!r:.60}", cure, TypeError)
    kind = Family("", "", family).kind
    return Family(family if isinstance(family, str) else kind.__name__, LINKS.get(kind, "none"), family)


def quick_glm(family: Family, lines: np.ndarray, y: np.ndarray, offset: np.ndarray, weights: np.ndarray) -> Start:
    """Five steps of weighted least squares on straight lines ``(N, D)`` and a constant, with a small ridge.

    The size of ``f`` counts what the lines leave: the variance of the working response beyond its noise.
    """
    if family.link == "none":
        return Start()
    mean = float(np.average(y, weights=weights))
    if family.link == "identity":
        constant = float(np.average(y - offset, weights=weights))
        rest = y - offset - constant
        left = rest - lines @ _ridge(lines, rest, weights)
        spread, noise = (float(np.sqrt(np.average(values**2, weights=weights))) for values in (rest, left))
        spread = spread or 1.0
        return Start(constant, spread, max(0.7 * noise, 1e-3 * spread))
    if family.link == "log":
        mean = mean or 0.5 / float(np.sum(weights))  # of zeros alone: half an event among all
        constant = math.log(mean / float(np.average(np.exp(offset), weights=weights)))
    else:
        share = min(max(mean, 0.5 / len(y)), 1 - 0.5 / len(y))
        constant = math.log(share / (1 - share)) - float(np.average(offset, weights=weights))
    A, eta = np.concatenate([np.ones((len(y), 1)), lines], axis=1), constant + offset
    for _ in range(5):
        mu = np.exp(eta) if family.link == "log" else 1 / (1 + np.exp(-eta))
        slope = np.maximum(mu if family.link == "log" else mu * (1 - mu), 1e-6)
        working, mass = eta - offset + (y - mu) / slope, weights * slope
        fitted = A @ _ridge(A, working, mass)
        eta = np.clip(fitted, constant - 4, constant + 4) + offset
    centred = working - np.average(working, weights=mass)
    beyond = np.average(centred**2, weights=mass) - np.sum(weights) / np.sum(mass)
    # What lines leave of labels is as large whatever they hide: 1.5 at least.
    lowest, highest = (0.3, 2.0) if family.link == "log" else (1.5, 3.0)
    return Start(constant, float(np.sqrt(np.clip(beyond, lowest**2, highest**2))), 1.0)


def _ridge(A: np.ndarray, y: np.ndarray, mass: np.ndarray) -> np.ndarray:
    gram = (A * mass[:, None]).T @ A
    return np.linalg.solve(gram + 1e-3 * mass.sum() * np.eye(A.shape[1]), A.T @ (mass * y))
