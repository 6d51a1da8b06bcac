"""Likelihoods that have one number for each row of a fit, such as the known error of each datum.

A leaf is such a number where its last axis is the number of rows of the fit. The number of rows of a table to predict
says nothing: cutpoints of three labels, of a table of three rows, would be taken for one number each.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array, ArrayLike, Values
from numpyro_gp.checks import fail
from numpyro_gp.gam.family import TRIALS, Family
from numpyro_gp.gam.table_layout import TableLayout
from numpyro_gp.likelihoods import Binomial, Likelihood


def is_per_row(shape: tuple[int, ...], count: int, lead: int) -> bool:
    """Whether a leaf of this shape, behind ``lead`` axes of draws, has one number for each of ``count`` rows."""
    return len(shape) > lead and shape[-1] == count


def at_places(likelihood: Likelihood, places: object, count: int, lead: int = 1) -> Likelihood:
    """A likelihood at some of ``count`` rows of a fit, by their numbers ``(K,)``: leaves ``(S, N)`` to ``(S, K)``."""

    def cut(leaf: Array) -> Array:
        return leaf[..., places] if is_per_row(np.shape(leaf), count, lead) else leaf

    found: Likelihood = jax.tree.map(cut, likelihood)
    return found


def at_rows_of(likelihood: Likelihood, rows: object, count: int) -> Likelihood:
    """The likelihood of a model at the rows of a batch, of ``count``."""
    return at_places(jax.tree.map(jnp.asarray, likelihood), rows, count, 0)


def with_trials(likelihood: Likelihood, trials: ArrayLike | None) -> Likelihood:
    """A likelihood with the trials of rows ``(N,)``, or with those of draws and rows ``(S, N)``; None: of no trials."""
    if trials is None:
        return likelihood
    assert isinstance(likelihood, Binomial)
    return dataclasses.replace(likelihood, trials=trials)


def trials_at(layout: TableLayout, X: Values) -> Values | None:
    """Trials ``(N,)`` of encoded rows; None where the response does not count successes."""
    if layout.trials is None:
        return None
    return X[..., layout.trials]


def at_rows(likelihood: Likelihood, layout: TableLayout, X: np.ndarray, places: np.ndarray, count: int) -> Likelihood:
    """Draws of a likelihood at encoded rows ``X (K, D)`` with these numbers ``(K,)`` of ``count`` rows of the fit."""
    trials, found = trials_at(layout, X), at_places(likelihood, places, count)
    if trials is None:
        return found
    assert isinstance(found, Binomial)
    own = np.asarray(found.trials)
    return with_trials(found, np.broadcast_to(trials, (len(own), len(trials))).astype(own.dtype))


def has_numbers(family: Family, count: int) -> bool:
    """Whether the likelihood of a family has one number for each of ``count`` rows; those of a name have none."""
    if isinstance(family.spec, str):
        return False
    shapes = family.look(lambda own: [np.shape(leaf) for leaf in jax.tree.leaves(own)])
    return any(is_per_row(shape, count, 0) for shape in shapes)


def check_any_rows(family: Family, count: int) -> None:
    """Refuse a function of ``f`` that works at all rows of the fit alone, as one that reads a global array does.

    The summary and predictions look at some rows, or at others.
    """
    if isinstance(family.spec, (str, Likelihood)):
        return

    def works(rows: int) -> bool:
        def run(own: Likelihood) -> Array:
            likelihood = at_places(own, np.arange(rows), count, 0)
            return likelihood.log_prob(
                jnp.zeros(rows), jnp.zeros((rows,) + (likelihood.num_latent,) * (likelihood.num_latent > 1))
            )

        try:
            family.look(run)
        except (TypeError, ValueError):
            return False
        return True

    if count > 1 and works(count) and not works(count - 1):
        cure = f"Pass a likelihood that holds them, as ngp.likelihoods.Gaussian(errors). {TRIALS}"
        fail("family", "a function that works at any rows", "one with a number for each row of the fit", cure)


def check_rows(likelihood: Likelihood, rows: int, count: int) -> None:
    """Refuse a table of another number of rows than the fit has, where draws of a likelihood have a number for each."""
    if rows != count and any(is_per_row(np.shape(leaf), count, 1) for leaf in jax.tree.leaves(likelihood)):
        required = f"a table of {count} rows, as {type(likelihood).__name__} has one number for each row of the fit"
        cure = "Give the likelihood one number for all rows, or take fit.terms(data), which needs none."
        fail("the table of new rows", required, f"{rows} rows", cure)
