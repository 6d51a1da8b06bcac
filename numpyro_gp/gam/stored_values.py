"""Values of a gam as text and arrays: what a file holds in place of a pickle, so that nothing runs when it is read.

Numbers, text, dates, containers and arrays are themselves; classes that are known here are their fields by name; a
prior is its class of NumPyro and its parameters.
"""

import dataclasses
import datetime
from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from numpyro_gp import kernels
from numpyro_gp.checks import fail
from numpyro_gp.gam.columns import Column
from numpyro_gp.gam.family import Family, Prior, Start
from numpyro_gp.gam.model import Model
from numpyro_gp.gam.table_layout import ReadTerm, Rows, TableLayout
from numpyro_gp.gam.term_kernels import KernelData
from numpyro_gp.gam.terms import Term, Terms
from numpyro_gp.gam.time_kernels import TimePrior
from numpyro_gp.kernels import Empirical, Gaussian, Kernel, Uniform

CLASSES: dict[str, type] = {
    one.__name__: one
    for one in (
        Column, Empirical, Family, Gaussian, KernelData, Model, Prior, ReadTerm, Rows, Start, TableLayout, Term,
        Terms, TimePrior, Uniform,
    )
}  # fmt: skip
SEQUENCES: dict[str, Callable[[Any], Any]] = {"tuple": tuple, "list": list}
DATES: dict[str, Any] = {one.__name__: one for one in (datetime.date, datetime.datetime)}
PICKLE = "Keep this fit by pickle: pickle.dump(fit, file)."


def encoded(value: Any, arrays: list[np.ndarray]) -> Any:
    """What JSON takes for a value; arrays are appended, and their numbers stand in their place."""
    if isinstance(value, (np.bool_, np.integer, np.floating)):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (np.ndarray, jax.Array)):
        arrays.append(np.asarray(value))
        return {"jax" if isinstance(value, jax.Array) else "array": len(arrays) - 1}
    if type(value) in (tuple, list):
        return {type(value).__name__: [encoded(one, arrays) for one in value]}
    if isinstance(value, dict):
        return {"dict": [[encoded(one, arrays) for one in pair] for pair in value.items()]}
    if isinstance(value, datetime.date):
        return {type(value).__name__: value.isoformat()}
    if isinstance(value, type) and issubclass(value, Kernel):
        return {"kernel": value.__name__}
    if type(value).__name__ in CLASSES and type(value) is CLASSES[type(value).__name__]:
        return {"class": type(value).__name__, "fields": encoded(_fields(value), arrays)}
    if isinstance(value, dist.Distribution):
        return _prior(value, arrays)
    _refuse(value)


def _fields(value: Any) -> dict[str, Any]:
    names = [one.name for one in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else value._fields
    return {name: getattr(value, name) for name in names}


def _prior(prior: dist.Distribution, arrays: list[np.ndarray]) -> Any:
    """A class of NumPyro and its parameters, where these make the same distribution again."""
    given = {name: np.asarray(getattr(prior, name)) for name in type(prior).arg_constraints if hasattr(prior, name)}
    try:
        again = getattr(dist, type(prior).__name__)(**given)
        probe = prior.sample(jax.random.key(0))
        is_same = type(again) is type(prior) and bool(np.all(again.log_prob(probe) == prior.log_prob(probe)))
    except (AttributeError, TypeError, ValueError):
        is_same = False
    if not is_same:
        cure = f"Take one without transforms, as numpyro.distributions.LogNormal(0.0, 1.0). {PICKLE}"
        fail("a prior of a fit to save", "a class of NumPyro with its parameters", f"{type(prior).__name__}", cure)
    return {"prior": type(prior).__name__, "parameters": encoded(given, arrays)}


def _refuse(value: object) -> NoReturn:
    cure = f'Levels may be text, numbers, dates or booleans: data["group"] = data["group"].astype(str). {PICKLE}'
    fail("a fit to save", "of values that a file can hold", f"{value!r:.60}, a {type(value).__name__}", cure, TypeError)


def decoded(value: Any, arrays: list[np.ndarray]) -> Any:
    """The value that `encoded` was given."""
    if not isinstance(value, dict):
        return value
    kind, own = next(iter(value.items()))
    if kind in ("array", "jax"):
        return arrays[own] if kind == "array" else jnp.asarray(arrays[own])
    if kind in SEQUENCES:
        return SEQUENCES[kind](decoded(one, arrays) for one in own)
    if kind == "dict":
        return {decoded(key, arrays): decoded(one, arrays) for key, one in own}
    if kind == "prior":
        return _class_of(dist, own, dist.Distribution)(**decoded(value["parameters"], arrays))
    if kind == "class":
        return CLASSES[own](**decoded(value["fields"], arrays))
    if kind == "kernel":
        return _class_of(kernels, own, Kernel)
    return DATES[kind].fromisoformat(own)


def _class_of(module: ModuleType, name: str, base: type) -> type:
    """A class by its name, of those that a file may name."""
    found = getattr(module, name)
    if not (isinstance(found, type) and issubclass(found, base)):
        fail("a class in the file", f"a {base.__name__}", name, "Save the fit anew: fit.save(path).")
    return found
