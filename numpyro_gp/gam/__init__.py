"""Additive models as people write them: ``ngp.gam("y ~ s(age) + re(site)", data)``, terms, and what a fit says.

The module itself is what fits: calling it is calling `fit`.

Parameters
----------
args, options
    As of `fit`: a formula or terms, a table, a family.

Returns
-------
Fit

Examples
--------
>>> import numpy as np, numpyro_gp as ngp
>>> data = {"dose": np.linspace(0.0, 1.0, 20), "y": np.linspace(0.0, 1.0, 20)}
>>> model = ngp.gam.model("y ~ s(dose)", data)   # ngp.gam("y ~ s(dose)", data) builds it, and fits it
>>> str(model.terms)
'y ~ s(dose)'
"""

import inspect
import sys
from types import ModuleType
from typing import Any

from numpyro_gp.additive.columns import Column
from numpyro_gp.additive.effects import Effect
from numpyro_gp.checks import fail
from numpyro_gp.gam.answers.classes import ClassPrediction
from numpyro_gp.gam.answers.coefficients import Coefficients
from numpyro_gp.gam.answers.forecast import Forecast
from numpyro_gp.gam.answers.summary import Summary
from numpyro_gp.gam.model.model import Model, model
from numpyro_gp.gam.result import Fit, fit, load
from numpyro_gp.gam.screening import Screening, screen
from numpyro_gp.gam.table.terms import Term, Terms, cycle, factor, formula, linear, offset, re, s, season, te, ti, trend

__all__ = [
    "ClassPrediction",
    "Coefficients",
    "Column",
    "Effect",
    "Fit",
    "Forecast",
    "Model",
    "Screening",
    "Summary",
    "Term",
    "Terms",
    "cycle",
    "factor",
    "fit",
    "formula",
    "linear",
    "load",
    "model",
    "offset",
    "re",
    "s",
    "screen",
    "season",
    "te",
    "ti",
    "trend",
]


# What other libraries call so.
HABITS = dict.fromkeys(("exposure", "offset"), "Write + offset(log(hours)) in the formula, of a column hours.")
HABITS |= dict.fromkeys(("seed", "random_state", "rng_key", "rng"), "Write key=jax.random.key(0).")
HABITS |= dict.fromkeys(("groups", "group"), "Write + re(site) in the formula, of a column site.")
HABITS |= dict.fromkeys(("event", "status", "cens"), 'Write censored="not dead", of a column dead.')
HABITS |= dict.fromkeys(("k", "knots", "n_splines", "df"), "Write s(age, num_inducing=10) in the formula.")
OPTIONS = list(inspect.signature(fit).parameters)


class _Callable(ModuleType):
    """A module that can be called."""

    def __call__(self, *args: object, **options: Any) -> Fit:
        if unknown := [name for name in options if name not in OPTIONS]:
            cure = HABITS.get(unknown[0], "Leave it out.")
            fail("options of ngp.gam", f"among {OPTIONS[2:]}", f"{unknown}", cure)
        return fit(*args, **options)


sys.modules[__name__].__class__ = _Callable
