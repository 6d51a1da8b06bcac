"""What the response of a formula must be: a column that no term reads, of values that its family can have."""

import dataclasses
import functools
import math
import re

import jax.numpy as jnp
import numpy as np
from numpyro import handlers

from numpyro_gp.checks import fail
from numpyro_gp.gam.family import NAMED, TRIALS, Family, Start
from numpyro_gp.gam.formula import formula
from numpyro_gp.gam.per_row import with_trials
from numpyro_gp.gam.terms import Terms, as_terms
from numpyro_gp.programs.alone import alone


@alone
def check_response(name: str, family: Family, y: np.ndarray, trials: np.ndarray | None = None) -> None:
    """Refuse a response that its family cannot have, or that has nothing to explain."""
    if not np.isfinite(y).all():
        fail(f"response {name!r}", "finite", f"{y[~np.isfinite(y)][0]}", "Leave these rows out.")
    if family.link == "identity" and len(y) > 1:
        _check_spread(name, y)
    if isinstance(family.spec, str):  # what the parameters are does not matter: to draw them compiles little programs
        one, named = np.ones((), jnp.result_type(float)), NAMED[family.spec]
        likelihood = named.kind(*(one for _ in named.parameters(Start())))
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
