"""Likelihoods that have one number for each row of a fit, such as the known error of each datum.

A leaf is such a number where its last axis is the number of rows of the fit, and the likelihood does not work at one
row more with the leaf as it is. The first alone says nothing of as many cutpoints as rows, nor does the number of rows
of a table to predict.
"""

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers

from numpyro_gp.arrays import Array, ArrayLike, Values
from numpyro_gp.checks import fail
from numpyro_gp.gam.model.families import Start
from numpyro_gp.gam.model.family import TRIALS, Family
from numpyro_gp.gam.table.formula import formula
from numpyro_gp.gam.table.layout import TableLayout
from numpyro_gp.gam.table.terms import Terms, as_terms
from numpyro_gp.likelihoods import Binomial, Likelihood
from numpyro_gp.programs.handler_lock import alone

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
    found = next((choice for choice in choices if _works(structure, one, choice, count + 1)), as_long)
    return [number in found for number in range(len(leaves))]


def _works(structure: Any, leaves: Sequence[jax.ShapeDtypeStruct], cut: Sequence[int], rows: int) -> bool:
    """Whether a likelihood gives each of so many rows its log density, where some leaves have a number for each."""

    def run(leaves: Sequence[Array]) -> Array:
        own = [x[..., np.arange(rows) % x.shape[-1]] if number in cut else x for number, x in enumerate(leaves)]
        return log_prob_of(jax.tree.unflatten(structure, own), rows)

    try:
        return bool(jax.eval_shape(run, list(leaves)).shape == (rows,))
    except (TypeError, ValueError):
        return False


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


def trials_at(layout: TableLayout, X: Values) -> Values | None:
    """Trials ``(N,)`` of encoded rows; None where the response does not count successes."""
    return None if layout.trials is None else X[..., layout.trials]


def likelihood_at_rows(
    likelihood: Likelihood, layout: TableLayout, X: np.ndarray, places: np.ndarray, count: int
) -> Likelihood:
    """Draws of a likelihood at encoded rows ``X (K, D)`` with these numbers ``(K,)`` of ``count`` rows of the fit."""
    trials, found = trials_at(layout, X), at_places(likelihood, places, count)
    if trials is None:
        return found
    assert isinstance(found, Binomial)
    own = np.asarray(found.trials)
    return with_trials(found, np.broadcast_to(trials, (len(own), len(trials))).astype(own.dtype))


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
        _check_spread(name, y)
    if (named := family.named) is not None:
        # What the parameters are does not matter: to draw them compiles little programs.
        one = np.ones((), jnp.result_type(float))
        likelihood = named.kind(*(one for _ in named.priors(Start())))
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


def _check_spread(name: str, y: np.ndarray) -> None:
    """Values differ; and their squares, and what so many rows say in units of one over them, are numbers of JAX."""
    if np.ptp(y) == 0:
        cure = "Look at the column: there is nothing to explain."
        fail(f"response {name!r}", "of values that differ", f"{y[0]:g} in all {len(y)} rows", cure)
    most, spread = float(jnp.finfo(jnp.result_type(float)).max), float(np.abs(y - y[0]).max())
    low, high = math.sqrt(1e6 * len(y) / most), math.sqrt(most / 1e6)
    if not low < spread < high:
        cure = "Give it in other units, or compute in double precision: JAX_ENABLE_X64=1."
        fail(f"response {name!r}", f"of a range between {low:.1g} and {high:.1g}", f"{spread:.2g}", cure)


def explained(terms: object, response: str | None) -> tuple[Terms, str]:
    """Terms with the column that they explain, and its name."""
    wanted = formula(terms) if isinstance(terms, str) else as_terms(terms)
    name = wanted.response if response is None else response
    if name is None:
        cure = 'Pass response="y", or write a formula: "y ~ s(age)".'
        fail("response", "the name of a column", "None", cure, TypeError)
    inside = functools.partial(re.sub, r"^(\w+\()*|\)*$", "")  # the column that a function is of: of log(y) it is y
    if own_terms := [t.name for t in wanted.items if inside(name) in map(inside, (*t.columns, t.by or ""))]:
        cure = "Leave it out: it would explain itself."
        fail("terms", f"of other columns than the response {name!r}", f"{own_terms}", cure)
    return dataclasses.replace(wanted, response=name), name


def check_trials(family: Family, trials: object) -> None:
    """A family of successes has a column of trials, and no other has one."""
    if trials is not None and not isinstance(trials, str):
        cure = 'Put them into the table, and name the column: trials="n".'
        fail("trials", "the name of a column", f"a {type(trials).__name__}", cure, TypeError)
    if (family.spec == "binomial") != (trials is not None):
        required = "the name of a column" if trials is None else "None"
        fail("trials", f"{required} beside family {family.name!r}", repr(trials), TRIALS)
