"""A fit of ``ngp.gam`` in one file, in NumPy's format: the model with its rows, and what the engine found."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array
from numpyro_gp.checks import fail
from numpyro_gp.gam.family import as_family
from numpyro_gp.gam.model import Model
from numpyro_gp.gam.stored_values import check_words, decoded, encoded, refuse_word
from numpyro_gp.posterior import Posterior
from numpyro_gp.programs.files import check_place, read_whole, write_whole

# What a file begins with, and its version: another one where files say something else, or in other words.
KIND, VERSION = "numpyro_gp gam", 1
FORMAT = f"{KIND} {VERSION}"


class Saved(NamedTuple):
    """What a file holds, by the names of these fields: they are words of files, which stay when code is renamed.

    Attributes
    ----------
    model : Model
    engine, steps, notes, key
        Of the fit.
    params : dict of array, optional
        Of a variational fit, and of particles.
    is_double : bool
        Whether these are of a fit in double precision.
    losses : array, optional
    posterior : Posterior, optional
        Of chains and particles.
    """

    model: Model
    engine: str
    steps: int
    notes: tuple[str, ...]
    key: Array
    params: dict[str, np.ndarray] | None
    is_double: bool
    losses: np.ndarray | None
    posterior: Posterior | None


def write(path: str | os.PathLike[str], saved: Saved) -> None:
    """Write it whole, or leave the file that was there."""
    target, model = check_place(path), saved.model
    if not isinstance(model.family.spec, str):  # a likelihood, or a function of the user's own
        model = dataclasses.replace(model, family=model.family._replace(spec=None))
    content = saved._asdict() | {
        "model": model,
        "key": np.asarray(jax.random.key_data(saved.key)),
        "posterior": None if saved.posterior is None else saved.posterior.parts(),
        "precision": jnp.result_type(float).name,
    }
    arrays: list[np.ndarray] = []
    text = json.dumps({"format": FORMAT, "content": encoded(content, arrays)})
    named = {f"array_{number}": array for number, array in enumerate(arrays)}
    write_whole(target, header=np.asarray(text), **named)


def read(path: str | os.PathLike[str], family: object = None) -> Saved:
    """What `write` wrote. ``family`` is that of the fit, where it had no name."""
    cure = "Check the path, or save it anew: fit.save(path)."
    found, text, arrays = read_whole(Path(path), "path", "a file written by fit.save of ngp.gam", cure, _parts_of)
    _check_format(found)
    content = decoded(text, arrays)
    check_words("parts", (*Saved._fields, "precision"), content)
    _check_precision(content.pop("precision"), content["is_double"])
    model, parts = _with_family(content["model"], family), content["posterior"]
    posterior = None if parts is None else Posterior.of_parts(parts, model)
    own = {"model": model, "key": jax.random.wrap_key_data(content["key"]), "posterior": posterior}
    return Saved(**(content | own))


def _check_format(found: str) -> None:
    if found.startswith(KIND) and found != FORMAT:
        refuse_word("format", [repr(FORMAT)], repr(found))
    if found != FORMAT:
        cure = "Read a posterior with ngp.Posterior.load."
        fail("path", f"a file of format {FORMAT!r}", f"{found!r}", cure)


def _check_precision(of_fit: str, is_double: bool) -> None:
    """Whitened values of programs of JAX belong to their factors, whose jitter is that of the precision."""
    if not is_double and of_fit != jnp.result_type(float).name:
        cure = f"Set JAX_ENABLE_X64={int(of_fit == 'float64')} before JAX is imported."
        fail("the precision of JAX", f"that of the fit, {of_fit}", jnp.result_type(float).name, cure)


def _parts_of(stored: dict[str, np.ndarray]) -> tuple[str, Any, list[np.ndarray]]:
    """The format, the content as text, and arrays by their number; those of other files are by names."""
    header = json.loads(str(stored["header"]))
    numbered = (f"array_{number}" for number in range(len(stored)))
    return header["format"], header.get("content"), [stored[name] for name in numbered if name in stored]


def _with_family(model: Model, family: object) -> Model:
    """The model with the likelihood that the fit had."""
    own = model.family
    if family is None and own.spec is not None:
        return model
    if family is None:
        cure = "A file holds no function: ngp.gam.load(path, family=...), with the likelihood or function of the fit."
        fail("family", f"that of the fit, {own.name}", "None", cure)
    found = as_family(family)
    if found[:2] != own[:2]:
        cure = "Pass the one of the fit; of a name, leave it out."
        fail("family", f"that of the fit, {own.name}", f"{family!r:.60}", cure)
    return dataclasses.replace(model, family=found)
