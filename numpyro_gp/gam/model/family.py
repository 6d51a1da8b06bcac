"""The family of a response as a user gives it, and the quick GLM that scales its priors, in NumPy."""

import dataclasses
import functools
import inspect
import itertools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.distributions import constraints

from numpyro_gp import likelihoods
from numpyro_gp.additive.columns import Column
from numpyro_gp.arrays import Array, ArrayLike, T
from numpyro_gp.checks import check_type, fail
from numpyro_gp.gam.model.censoring import TAILS
from numpyro_gp.gam.model.classes import size_of_contrast
from numpyro_gp.gam.model.families import NAMED, OF_RATE, FamilyRow, Start, parameters_of, row_of
from numpyro_gp.gam.table.layout import TableLayout, other_sides
from numpyro_gp.gam.table.terms import Term, Terms, formula
from numpyro_gp.likelihoods import Binomial, Censored, Gamma, Likelihood, NegativeBinomial, as_likelihood
from numpyro_gp.likelihoods.links import link_at, mean_of, slope_of
from numpyro_gp.programs.handler_lock import alone

# Slopes of the mean, below which residuals of labels on the scale of the link are cut off.
LEAST_SLOPE = 1e-3


def residuals_at(link: str, f: np.ndarray, y: np.ndarray) -> np.ndarray:
    """``(y - mean) / (d mean / d f)``: residuals on the scale of the link."""
    slope = slope_of(link, f)
    slope = np.maximum(slope, LEAST_SLOPE) if link in ("logit", "probit") else slope
    return (y - mean_of(link, f)) / slope


def log_ratio(likelihood: Likelihood) -> np.ndarray:
    """``log mean - f`` at each draw, ``(S, 1)``, or ``(S, N)`` at the rows of the fit: ``log a`` of `Gamma`, else zero.

    What a class of the user's own says has no link that is known.
    """
    return np.log(parameters_of(likelihood, 2)[0]) if type(likelihood) is Gamma else np.zeros((1, 1))


def is_residual(link: str, likelihood: Likelihood, f: np.ndarray) -> bool:
    """Whether data less the mean of the link ``(N,)`` are residuals: of a likelihood of one's own where its mean is f.

    ``likelihood`` has draws on its first axis, of which the first is asked.
    """
    if link != "none":
        return True
    own, latent = jax.tree.map(lambda leaf: leaf[0], likelihood.uncensored), jnp.asarray(f, float)
    mean = own.predictive_mean(latent, jnp.zeros_like(latent))
    return mean.shape == latent.shape and bool(jnp.allclose(mean, latent, rtol=1e-3, atol=1e-3 * float(np.std(f))))


def size_of_counts(likelihood: object, count: int) -> np.ndarray:
    """``r`` of the negative binomial at ``count`` rows, averaged over draws; NaN of other likelihoods."""
    r = likelihood.r if isinstance(likelihood, NegativeBinomial) else np.full(1, np.nan)
    return np.broadcast_to(np.asarray(r, float).mean(axis=0), (count,))


# --------------------------------------------------------------------------------------
# The likelihood that a user names or gives, and scales to start from by a quick GLM.


# What to do with responses of which a bound is known.
CURE_OF_CENSORED = 'Pass the likelihood of the response itself, and the column of what is censored: censored="cens".'
# What to do with successes among trials.
TRIALS = "Successes among trials take family='binomial' and the column of trials, trials='n'; labels take 'bernoulli'."


class Family(NamedTuple):
    """A likelihood and its link, as `as_family` reads them, and of "categorical" the number of classes."""

    name: str
    link: str
    spec: Any
    classes: int | None = None

    @property
    def named(self) -> FamilyRow | None:
        """The row of a family that was given by its name; None of a likelihood or a function."""
        return NAMED[self.spec] if isinstance(self.spec, str) else None

    def likelihood(self, start: Start) -> Likelihood:
        """The likelihood inside of a model."""
        if (row := self.named) is not None:
            return self.at([prior.sample(name) for name, prior in row.priors(start).items()])
        return self.spec if isinstance(self.spec, Likelihood) else as_likelihood(self.spec())

    def at(self, parameters: Sequence[object]) -> Likelihood:
        """The likelihood of a family with a name at values of its parameters."""
        assert self.named is not None
        return self.named.kind(*(parameters if self.classes is None else [self.classes]))

    @property
    def row(self) -> FamilyRow | None:
        """What is known of the likelihood beside its class."""
        kinds = {row.kind.__name__: row for row in (*NAMED.values(), OF_RATE)}
        return None if self.link == "none" else NAMED.get(self.name) or kinds.get(self.name)

    def weights(self, f: np.ndarray, r: object = np.nan) -> np.ndarray:
        """``(d mean / d f)^2 / variance`` of a datum, but for a factor of all rows; ``r`` of the negative binomial.

        Relative errors of gamma data and waiting times are as large everywhere, those of counts fall with their mean.
        """
        if (row := self.row) is None or self.link == "identity":
            return np.ones(len(f))
        slope = slope_of(self.link, f)
        if row.variance is None:  # as of a canonical link
            return slope
        of_mean = {"r": r, "concentration": 0.0}  # by which the variance is one of the mean alone; others are a factor
        variance = row.variance(self.link, f, *(of_mean.get(name, 1.0) for name in row.priors(Start())))
        return slope**2 / np.maximum(variance, np.finfo(float).tiny)

    @property
    def has_labels(self) -> bool:
        """Whether its data are 0 or 1, which two levels may stand for."""
        if self.name != "function":
            return self.name.lower() == "bernoulli"
        return self.look(lambda own: own.conditional(jnp.zeros(1)).support is constraints.boolean)

    @alone
    def look(self, what: Callable[[Likelihood], T]) -> T:
        """What is said of the likelihood. Its parameters are traced, not drawn: each draw compiles little programs."""
        result: list[T] = []

        def run() -> None:
            with handlers.block(), handlers.seed(rng_seed=0):
                result.append(what(self.likelihood(Start())))

        jax.eval_shape(run)
        return result[0]


# Names of other libraries.
MEANT = dict.fromkeys(("normal", "norm"), "gaussian") | dict.fromkeys(("logistic", "logit", "binary"), "bernoulli")
MEANT |= dict.fromkeys(("multinomial", "softmax", "multiclass", "classes"), "categorical")
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
    row = row_of(kind)
    link = (link or row.link) if row else "none"  # Bernoulli and Beta have a choice
    name = "function" if kind is likelihoods.CallableLikelihood else kind.__name__  # as files of fits have it
    if (count := Family("", "", family).look(lambda own: own.num_latent)) > 1:
        cure = f"Write the model yourself, with a process of outputs={count}, as the page of several outputs shows."
        cure = 'Take the family "categorical".' if kind is likelihoods.Softmax else cure
        fail("family", "a likelihood of one function, the sum of the terms", f"{name}, which has {count}", cure)
    if name == likelihoods.Binomial.__name__:
        fail("family", "one whose trials are a column of the table", "ngp.likelihoods.Binomial", TRIALS)
    return Family(name, link, family)


# Of the size of f: what lines leave of labels is as large whatever they hide, and a probit is a logit over 1.7.
SIZES = {"log": (0.3, 2.0), "logit": (1.5, 3.0), "probit": (0.9, 1.8)}
# How far from the constant the lines may go.
LINE_REACH = {"log": 4.0, "logit": 4.0, "probit": 2.4}
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
    if (classes := family.classes) is not None:
        # By the labels of each class against all others: the difference of a function from the average of the others
        # has the size that those labels have.
        own = [quick_glm(as_family("bernoulli"), lines, 1.0 * (y == k), offset, weights) for k in range(classes)]
        return Start(0.0, size_of_contrast(classes) * float(np.mean([one.size for one in own])), 1.0)
    if family.link == "identity":
        constant = float(np.average(y - offset, weights=weights))
        rest = y - offset - constant
        spread = float(np.sqrt(np.average(rest**2, weights=weights))) or 1.0
        # The noise is what lines leave: squares over ``tr (I - H)^2`` with the smoother ``H``. That is what noise alone
        # leaves on average, however many lines there are: as many as rows explain all of it.
        centred = lines - np.average(lines, axis=0, weights=weights)
        gram, total = (centred * weights[:, None]).T @ centred, float(weights.sum())
        ridged = gram + RIDGE * total * np.eye(len(gram))
        inside, slopes = np.linalg.solve(ridged, gram), np.linalg.solve(ridged, centred.T @ (weights * rest))
        freedom = total - 1 - 2 * np.trace(inside) + np.sum(inside * inside.T)
        noise = float(np.sqrt(weights @ (rest - centred @ slopes) ** 2 / freedom)) if freedom > 0 else np.inf
        return Start(constant, spread, max(0.7 * min(noise, spread), 1e-3 * spread))
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
        mass = weights * np.maximum(family.weights(eta, np.inf), np.finfo(float).tiny)
        working = eta - offset + (y - mean_of(family.link, eta)) / slope
        ridged = (A * mass[:, None]).T @ A + RIDGE * mass.sum() * np.eye(A.shape[1])
        fitted = A @ np.linalg.solve(ridged, A.T @ (mass * working))
        reach = LINE_REACH[family.link]
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


# --------------------------------------------------------------------------------------
# Likelihoods that have one number for each row of a fit, such as the known error of each datum.
#
# A leaf is such a number where its last axis is the number of rows of the fit, and the likelihood does not work at
# one row more with the leaf as it is. The first alone says nothing of as many cutpoints as rows, nor does the number
# of rows of a table to predict.


# Leaves as long as the rows up to which every choice of them is tried.
MOST_CUT = 4


def are_per_row(likelihood: Likelihood, count: int, lead: int) -> list[bool]:
    """Which leaves, behind ``lead`` axes of draws, have one number for each of ``count`` rows.

    The fewest that must be cut so that the likelihood works at another number of rows; where no choice makes it work,
    as where it reads a global array, all that are as long.
    """
    leaves, structure = jax.tree.flatten(likelihood)
    shapes = [np.shape(leaf) for leaf in leaves]
    as_long = [number for number, shape in enumerate(shapes) if len(shape) > lead and shape[-1] == count]
    if not as_long:
        return [False] * len(leaves)
    one = [jax.ShapeDtypeStruct(shape[lead:], jnp.result_type(x)) for shape, x in zip(shapes, leaves, strict=True)]
    sizes = range(min(len(as_long), MOST_CUT) + 1)
    choices = itertools.chain.from_iterable(itertools.combinations(as_long, size) for size in sizes)
    for choice in choices:

        def run(leaves: Sequence[Array], choice: Sequence[int] = choice) -> Array:
            own = [x[..., np.arange(count + 1) % x.shape[-1]] if at in choice else x for at, x in enumerate(leaves)]
            return log_prob_of(jax.tree.unflatten(structure, own), count + 1)

        try:
            works = jax.eval_shape(run, one).shape == (count + 1,)
        except (TypeError, ValueError):
            works = False
        if works:
            return [number in choice for number in range(len(leaves))]
    return [number in as_long for number in range(len(leaves))]


def log_prob_of(likelihood: Likelihood, rows: int) -> Array:
    """Log densities of zeros at so many rows, for their shape."""
    axes = (likelihood.num_latent,) * (likelihood.num_latent > 1)
    return likelihood.log_prob(jnp.zeros(rows), jnp.zeros((rows, *axes)))


def at_places(likelihood: Likelihood, places: object, count: int, lead: int = 1) -> Likelihood:
    """A likelihood at some of ``count`` rows of a fit, by their numbers ``(K,)``: leaves ``(S, N)`` to ``(S, K)``."""
    leaves, structure = jax.tree.flatten(likelihood)
    pairs = zip(leaves, are_per_row(likelihood, count, lead), strict=True)
    cut = [leaf[..., places] if is_cut else leaf for leaf, is_cut in pairs]
    return jax.tree.unflatten(structure, cut)


def with_trials(likelihood: Likelihood, trials: ArrayLike) -> Likelihood:
    """A likelihood with the trials of rows ``(N,)``, or with those of draws and rows ``(S, N)``."""
    assert isinstance(likelihood, Binomial)
    return dataclasses.replace(likelihood, trials=trials)


def trials_at(layout: TableLayout, X: np.ndarray) -> np.ndarray | None:
    """Trials ``(N,)`` of encoded rows, 1 where a value is missing; None where the response does not count successes."""
    return None if layout.trials is None else np.nan_to_num(X[..., layout.trials], nan=1.0)


def has_numbers(family: Family, count: int) -> bool:
    """Whether the likelihood of a family has one number for each of ``count`` rows; those of a name have none."""
    if family.named is not None:
        return False
    return any(family.look(lambda own: are_per_row(own, count, 0)))


def check_any_rows(family: Family, count: int) -> None:
    """Refuse what belongs to the rows of the fit: which data are censored, or a function that reads a global array.

    The summary and predictions look at some rows, or at others.
    """
    if family.named is not None:
        return
    if family.look(lambda own: own.uncensored is not own and any(are_per_row(own, count, 0))):
        cure = "Write the model yourself, as the page of censored data does: its predictions are of values as they are."
        cure = CURE_OF_CENSORED if family.name == Censored.__name__ else cure
        fail("family", "a likelihood that new rows have too", f"{family.name}, with a number for each row", cure)
    if isinstance(family.spec, Likelihood):
        return

    def works(rows: int) -> bool:
        try:
            family.look(lambda own: log_prob_of(at_places(own, np.arange(rows), count, 0), rows))
        except (TypeError, ValueError):
            return False
        return True

    if count > 1 and works(count) and not works(count - 1):
        cure = f"Pass a likelihood that holds them, as ngp.likelihoods.Gaussian(errors). {TRIALS}"
        fail("family", "a function that works at any rows", "one with a number for each row of the fit", cure)


def check_same_rows(likelihood: Likelihood, rows: int, count: int) -> None:
    """Refuse a table of another number of rows than the fit has, where draws of a likelihood have a number for each."""
    if rows != count and any(are_per_row(likelihood, count, 1)):
        required = f"a table of {count} rows, as {type(likelihood).__name__} has one number for each row of the fit"
        cure = "Give the likelihood one number for all rows, or take fit.terms(data), which needs none."
        fail("the table of new rows", required, f"{rows} rows", cure)


# --------------------------------------------------------------------------------------
# What the response of a formula must be: a column that no term reads, of values that its family can have.


@alone
def check_response(name: str, family: Family, y: np.ndarray, trials: np.ndarray | None = None) -> None:
    """Refuse a response that its family cannot have, or that has nothing to explain."""
    if not np.isfinite(y).all():
        fail(f"response {name!r}", "finite", f"{y[~np.isfinite(y)][0]}", "Leave these rows out.")
    if family.link == "identity" and len(y) > 1:
        if np.ptp(y) == 0:
            cure = "Look at the column: there is nothing to explain."
            fail(f"response {name!r}", "of values that differ", f"{y[0]:g} in all {len(y)} rows", cure)
        # Squares of values, and what so many rows say in units of one over them, must be numbers of JAX.
        most, spread = float(jnp.finfo(jnp.result_type(float)).max), float(np.abs(y - y[0]).max())
        low, high = math.sqrt(1e6 * len(y) / most), math.sqrt(most / 1e6)
        if not low < spread < high:
            cure = "Give it in other units, or compute in double precision: JAX_ENABLE_X64=1."
            fail(f"response {name!r}", f"of a range between {low:.1g} and {high:.1g}", f"{spread:.2g}", cure)
    if (named := family.named) is not None:
        # What the parameters are does not matter: to draw them compiles little programs.
        one = np.ones((), jnp.result_type(float))
        likelihood = family.at([one for _ in named.priors(Start())])
    else:
        with handlers.block(), handlers.seed(rng_seed=0):
            likelihood = family.likelihood(Start())
    if trials is not None:
        likelihood = with_trials(likelihood, trials)
    try:
        likelihood.check_targets(y)
    except ValueError as error:
        error.args = (f"response {name!r} of family {family.name!r}: {error}",)
        raise


def explained(terms: Any, response: str | None) -> tuple[Terms, str]:
    """Terms with the column that they explain, and its name."""
    wanted = formula(terms) if isinstance(terms, str) else Terms((terms,)) if isinstance(terms, Term) else terms
    cure = 'Pass "y ~ s(age) + s(dose)" or ngp.gam.s("age") + ngp.gam.s("dose").'
    check_type("terms", wanted, Terms, "a formula or terms", cure)
    name = wanted.response if response is None else response
    if name is None:
        cure = 'Pass response="y", or write a formula: "y ~ s(age)".'
        fail("response", "the name of a column", "None", cure, TypeError)
    inside = functools.partial(re.sub, r"^(\w+\()*|\)*$", "")  # the column that a function is of: of log(y) it is y
    if own_terms := [t.name for t in wanted.items if inside(name) in map(inside, (*t.columns, t.by or ""))]:
        cure = "Leave it out: it would explain itself."
        fail("terms", f"of other columns than the response {name!r}", f"{own_terms}", cure)
    return dataclasses.replace(wanted, response=name), name


def check_censoring(family: Family, sides: np.ndarray, column: Column) -> None:
    """Refuse responses that no bound is known of, counts and labels among them, and rows that are all censored."""
    kinds = [name for name, row in NAMED.items() if row.kind in TAILS]
    if (row := family.named) is not None:
        is_known = row.kind in TAILS
    else:  # a density, and nothing that is hidden by itself
        is_known = family.look(
            lambda own: own.uncensored is own and not own.conditional(jnp.zeros(1)).support.is_discrete
        )
    if not is_known:
        cure = "Leave censored= out, or write the model yourself, as the page of censored data does."
        fail("family", f"one of {kinds}, or a likelihood of continuous responses, beside censored=", family.name, cure)
    if np.all(sides != 0):
        cure = f"If they are those that are observed, {other_sides(column)}."
        fail("rows", "observed, some of them", f"all {len(sides)} of them censored", cure)


def check_trials(family: Family, trials: object) -> None:
    """A family of successes has a column of trials, and no other has one."""
    if trials is not None and not isinstance(trials, str):
        cure = 'Put them into the table, and name the column: trials="n".'
        fail("trials", "the name of a column", f"a {type(trials).__name__}", cure, TypeError)
    if (family.spec == "binomial") != (trials is not None):
        required = "the name of a column" if trials is None else "None"
        fail("trials", f"{required} beside family {family.name!r}", repr(trials), TRIALS)
