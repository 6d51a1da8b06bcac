"""Values of a gam as text and arrays: what a file holds in place of a pickle, so that nothing runs when it is read.

Numbers, text, dates, containers and arrays are themselves; classes that are known here are their fields by words that
stay when code is renamed; a prior is its class of NumPyro and its parameters.
"""

import datetime
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from numpyro_gp.additive.columns import Column
from numpyro_gp.checks import fail
from numpyro_gp.gam.family import Family, Prior, Start
from numpyro_gp.gam.model import Model
from numpyro_gp.gam.table_layout import ReadTerm, Rows, TableLayout
from numpyro_gp.gam.term_kernels import KernelData
from numpyro_gp.gam.terms import Term, Terms
from numpyro_gp.gam.time_kernels import TimePrior
from numpyro_gp.kernels import RBF, Empirical, Gaussian, Kernel, Matern12, Matern32, Matern52, Uniform

# What files say, which no renaming may change: a word of a file is one for good, and another one is another format.
# A class by the word for it, and the words for its attributes.
CLASSES: dict[str, tuple[type, str]] = {
    "Column": (Column, "name levels shift scale low high is_date"),
    "Empirical": (Empirical, "points weights"),
    "Family": (Family, "name link spec"),
    "Gaussian": (Gaussian, "mean sd"),
    "KernelData": (KernelData, "layout measures periods inducing time_priors"),
    "Model": (Model, "terms layout kernel_data family start rows measure start_values jitter"),
    "Prior": (Prior, "median spread shape"),
    "ReadTerm": (ReadTerm, "term columns"),
    "Rows": (Rows, "X y weights left_out"),
    "Start": (Start, "constant size noise"),
    "TableLayout": (TableLayout, "columns read_terms offsets response_column trials"),
    "Term": (Term, "kind columns by cyclic kernel num_inducing scale lengthscale period"),
    "Terms": (Terms, "items response"),
    "TimePrior": (TimePrior, "scale lengths"),
    "Uniform": (Uniform, "low high"),
}
# What a word means where an older file does not have it.
DEFAULTS: dict[str, dict[str, object]] = {"TableLayout": {"trials": None}}
KERNELS: dict[str, type[Kernel]] = {"RBF": RBF, "Matern12": Matern12, "Matern32": Matern32, "Matern52": Matern52}
WORDS_OF = {kind: word for word, (kind, _) in CLASSES.items()} | {kind: word for word, kind in KERNELS.items()}
SEQUENCES: dict[str, Callable[[Any], Any]] = {"tuple": tuple, "list": list}
DATES: dict[str, object] = {one.__name__: one for one in (datetime.date, datetime.datetime)}
PICKLE = "Keep this fit by pickle: pickle.dump(fit, file)."


def encoded(value: Any, arrays: list[np.ndarray]) -> object:
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
    if isinstance(value, type) and value in WORDS_OF:
        return {"kernel": WORDS_OF[value]}
    if type(value) in WORDS_OF:
        word = WORDS_OF[type(value)]
        own = {name: getattr(value, name) for name in CLASSES[word][1].split()}
        return {"class": word, "fields": encoded(own, arrays)}
    if isinstance(value, dist.Distribution):
        return _prior(value, arrays)
    cure = f'Levels may be text, numbers, dates or booleans: data["group"] = data["group"].astype(str). {PICKLE}'
    fail("a fit to save", "of values that a file can hold", f"{value!r:.60}, a {type(value).__name__}", cure, TypeError)


def _prior(prior: dist.Distribution, arrays: list[np.ndarray]) -> object:
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


def decoded(value: object, arrays: list[np.ndarray]) -> Any:
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
        return _prior_of(own)(**decoded(value["parameters"], arrays))
    if kind == "class":
        return _with_fields(own, decoded(value["fields"], arrays))
    if kind == "kernel":
        return _known(own, KERNELS, "kernel")
    return _known(kind, DATES, "kind of value").fromisoformat(own)


def _known(word: str, words: Mapping[str, object], what: str) -> Any:
    if word not in words:
        refuse_word(what, words, word)
    return words[word]


def _with_fields(word: str, fields: dict[str, object]) -> Any:
    (kind, words), fields = _known(word, CLASSES, "class"), DEFAULTS.get(word, {}) | fields
    check_words(f"fields of {word}", words.split(), fields)
    return kind(**fields)


def check_words(what: str, words: Iterable[str], found: Iterable[str]) -> None:
    """Refuse words that are not known here, and those that lack: of what they say nothing may be guessed."""
    if differing := sorted(set(words) ^ set(found)):
        refuse_word(what, words, f"{differing} more or less")


def refuse_word(what: str, words: Iterable[str], got: str) -> NoReturn:
    """Of a file that another version of the library wrote."""
    cure = "Load it with the version of numpyro_gp that wrote it, or fit anew and save that: fit.save(path)."
    fail(f"{what} in a file of a fit", f"{', '.join(words)}", got, cure)


def _prior_of(name: str) -> type[dist.Distribution]:
    """A class of NumPyro by its name, which is all that a file may name there."""
    found = getattr(dist, name, None)
    if not (isinstance(found, type) and issubclass(found, dist.Distribution)):
        refuse_word("prior", ["a distribution of numpyro.distributions"], name)
    return found
