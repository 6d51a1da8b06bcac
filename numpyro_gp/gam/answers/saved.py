"""Values of a gam as text and arrays: what a file holds in place of a pickle, so that nothing runs when it is read.

Numbers, text, dates, containers and arrays are themselves; classes that are known here are their fields by words that
stay when code is renamed; a prior is its class of NumPyro and its parameters.
"""

import dataclasses
import datetime
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from numpyro_gp.additive.columns import Column
from numpyro_gp.checks import fail
from numpyro_gp.gam.model.column_kernels import TimePrior
from numpyro_gp.gam.model.families import Prior, Start
from numpyro_gp.gam.model.family import Family, as_family
from numpyro_gp.gam.model.model import Model
from numpyro_gp.gam.model.term_kernels import KernelData
from numpyro_gp.gam.table.layout import ReadTerm, TableLayout, TableRows
from numpyro_gp.gam.table.terms import Term, Terms
from numpyro_gp.kernels import RBF, Empirical, Gaussian, Kernel, Matern12, Matern32, Matern52, Uniform
from numpyro_gp.posterior import Posterior
from numpyro_gp.programs.files import SEQUENCES, check_place, read_whole, write_whole

# What files say, which no renaming may change: a word of a file is one for good, and another one is another format.
# A class by the word for it, and the words for its attributes.
CLASSES: dict[str, tuple[type, str]] = {
    "Column": (Column, "name levels shift scale low high is_date"),
    "Empirical": (Empirical, "points weights"),
    "Family": (Family, "name link spec classes"),
    "Gaussian": (Gaussian, "mean sd"),
    "KernelData": (KernelData, "layout measures periods inducing time_priors"),
    "Model": (Model, "terms layout kernel_data family start rows measure start_values jitter"),
    "Prior": (Prior, "median spread shape"),
    "ReadTerm": (ReadTerm, "term columns"),
    "Rows": (TableRows, "X y weights left_out reasons"),
    "Start": (Start, "constant size noise"),
    "TableLayout": (TableLayout, "columns read_terms offsets response_column trials censored"),
    "Term": (Term, "kind columns by cyclic kernel num_inducing scale lengthscale period"),
    "Terms": (Terms, "items response"),
    "TimePrior": (TimePrior, "scale lengths"),
    "Uniform": (Uniform, "low high"),
}
# What a word means where an older file does not have it.
DEFAULTS: dict[str, dict[str, object]] = {
    "TableLayout": {"trials": None, "censored": None},
    "Rows": {"reasons": ()},
    "Family": {"classes": None},
}
KERNEL_OF: dict[str, type[Kernel]] = {"RBF": RBF, "Matern12": Matern12, "Matern32": Matern32, "Matern52": Matern52}
WORDS_OF = {kind: word for word, (kind, _) in CLASSES.items()} | {kind: word for word, kind in KERNEL_OF.items()}
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
    if isinstance(value, dist.Distribution):  # a prior is its class, where its parameters make the same one again
        kind = type(value)
        given = {name: np.asarray(getattr(value, name)) for name in kind.arg_constraints if hasattr(value, name)}
        try:
            again = getattr(dist, kind.__name__)(**given)
            probe = value.sample(jax.random.key(0))
            is_same = type(again) is kind and bool(np.all(again.log_prob(probe) == value.log_prob(probe)))
        except (AttributeError, TypeError, ValueError):
            is_same = False
        if not is_same:
            cure = f"Take one without transforms, as numpyro.distributions.LogNormal(0.0, 1.0). {PICKLE}"
            fail("a prior of a fit to save", "a class of NumPyro with its parameters", kind.__name__, cure)
        return {"prior": kind.__name__, "parameters": encoded(given, arrays)}
    cure = f'Levels may be text, numbers, dates or booleans: data["group"] = data["group"].astype(str). {PICKLE}'
    fail("a fit to save", "of values that a file can hold", f"{value!r:.60}, a {type(value).__name__}", cure, TypeError)


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
        found = getattr(dist, own, None)  # a name is all that a file may say there
        if not (isinstance(found, type) and issubclass(found, dist.Distribution)):
            refuse_word("prior", ["a distribution of numpyro.distributions"], own)
        return found(**decoded(value["parameters"], arrays))
    if kind == "class":
        of_class, words = _meaning(own, CLASSES, "class")
        fields = DEFAULTS.get(own, {}) | decoded(value["fields"], arrays)
        check_words(f"fields of {own}", words.split(), fields)
        return of_class(**fields)
    if kind == "kernel":
        return _meaning(own, KERNEL_OF, "kernel")
    return _meaning(kind, DATES, "kind of value").fromisoformat(own)


def _meaning(word: str, words: Mapping[str, object], what: str) -> Any:
    if word not in words:
        refuse_word(what, words, word)
    return words[word]


def check_words(what: str, words: Iterable[str], found: Iterable[str]) -> None:
    """Refuse words that are not known here, and those that lack: of what they say nothing may be guessed."""
    if differing := sorted(set(words) ^ set(found)):
        refuse_word(what, words, f"{differing} more or less")


def refuse_word(what: str, words: Iterable[str], got: str) -> NoReturn:
    """Of a file that another version of the library wrote."""
    cure = "Load it with the version of numpyro_gp that wrote it, or fit anew and save that: fit.save(path)."
    fail(f"{what} in a file of a fit", f"{', '.join(words)}", got, cure)


# --------------------------------------------------------------------------------------
# A fit of ``ngp.gam`` in one file, in NumPy's format: the model with its rows, and what the engine found.


# What a file begins with, and its version: another one where files say something else, or in other words.
KIND, VERSION = "numpyro_gp gam", 1
GAM_FORMAT = f"{KIND} {VERSION}"


# What a file holds: the fit's model, engine, steps, notes and key; parameters and losses of a variational fit and of
# particles, and whether these are of a fit in double precision; the posterior of chains and particles; the precision of
# JAX. They are words of files, which stay when code is renamed.
PARTS = ("model", "engine", "steps", "notes", "key", "params", "is_double", "losses", "posterior", "precision")


def write(path: str | os.PathLike[str], content: dict[str, Any]) -> None:
    """Write it whole, or leave the file that was there."""
    target, model, posterior = check_place(path), content["model"], content["posterior"]
    if model.family.named is None:  # a likelihood, or a function of the user's own
        model = dataclasses.replace(model, family=model.family._replace(spec=None))
    content = content | {
        "model": model,
        "key": np.asarray(jax.random.key_data(content["key"])),
        "posterior": None if posterior is None else posterior.parts(),
        "precision": jnp.result_type(float).name,
    }
    arrays: list[np.ndarray] = []
    text = json.dumps({"format": GAM_FORMAT, "content": encoded(content, arrays)})
    named = {f"array_{number}": array for number, array in enumerate(arrays)}
    write_whole(target, header=np.asarray(text), **named)


def read(path: str | os.PathLike[str], family: object = None) -> dict[str, Any]:
    """What `write` wrote. ``family`` is that of the fit, where it had no name."""
    cure = "Check the path, or save it anew: fit.save(path)."
    found, text, arrays = read_whole(Path(path), "path", "a file written by fit.save of ngp.gam", cure, _parts_of)
    if found.startswith(KIND) and found != GAM_FORMAT:
        refuse_word("format", [repr(GAM_FORMAT)], repr(found))
    if found != GAM_FORMAT:
        cure = "Read a posterior with ngp.Posterior.load."
        fail("path", f"a file of format {GAM_FORMAT!r}", f"{found!r}", cure)
    content = decoded(text, arrays)
    check_words("parts", PARTS, content)
    precision, now = content.pop("precision"), jnp.result_type(float).name
    if not content["is_double"] and precision != now:  # whitened values belong to factors, whose jitter has a precision
        cure = f"Set JAX_ENABLE_X64={int(precision == 'float64')} before JAX is imported."
        fail("the precision of JAX", f"that of the fit, {precision}", now, cure)
    model, parts = content["model"], content["posterior"]
    name = model.family.name
    if family is None and model.family.spec is None:
        cure = "A file holds no function: ngp.gam.load(path, family=...), with the likelihood or function of the fit."
        fail("family", f"that of the fit, {name}", "None", cure)
    if family is not None:
        given = as_family(family)
        if given[:2] != model.family[:2]:
            cure = "Pass the one of the fit; of a name, leave it out."
            fail("family", f"that of the fit, {name}", f"{family!r:.60}", cure)
        model = dataclasses.replace(model, family=given)
    posterior = None if parts is None else Posterior.of_parts(parts, model)
    return content | {"model": model, "key": jax.random.wrap_key_data(content["key"]), "posterior": posterior}


def _parts_of(stored: dict[str, np.ndarray]) -> tuple[str, Any, list[np.ndarray]]:
    """The format, the content as text, and arrays by their number; those of other files are by names."""
    header = json.loads(str(stored["header"]))
    numbered = (f"array_{number}" for number in range(len(stored)))
    return header["format"], header.get("content"), [stored[name] for name in numbered if name in stored]
