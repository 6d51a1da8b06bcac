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
from numpyro_gp.gam.stored_values import decoded, encoded
from numpyro_gp.posterior import Posterior
from numpyro_gp.programs.files import check_place, read_whole, write_whole

FORMAT = "numpyro_gp gam 1"


class Saved(NamedTuple):
    """What a file holds.

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
    params: dict[str, Any] | None
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


def read(path: str | os.PathLike[str], family: Any = None) -> Saved:
    """What `write` wrote. ``family`` is that of the fit, where it had no name."""
    cure = "Check the path, or save it anew: fit.save(path)."
    form, content = read_whole(Path(path), "path", "a file written by fit.save of ngp.gam", cure, _content_of)
    if content is None:
        cure = "Read a posterior with ngp.Posterior.load."
        fail("path", f"a file of format {FORMAT!r}", f"{form!r}", cure)
    _check_precision(content.pop("precision"), content["is_double"])
    model = _with_family(content["model"], family)
    parts, key = content["posterior"], jax.random.wrap_key_data(content["key"])
    posterior = None if parts is None else Posterior.of_parts(parts, model)
    return Saved(**content | {"model": model, "key": key, "posterior": posterior})


def _check_precision(of_fit: str, is_double: bool) -> None:
    """Whitened values of programs of JAX belong to their factors, whose jitter is that of the precision."""
    if not is_double and of_fit != jnp.result_type(float).name:
        cure = f"Set JAX_ENABLE_X64={int(of_fit == 'float64')} before JAX is imported."
        fail("the precision of JAX", f"that of the fit, {of_fit}", jnp.result_type(float).name, cure)


def _content_of(stored: dict[str, np.ndarray]) -> tuple[Any, dict[str, Any] | None]:
    header = json.loads(str(stored["header"]))
    if header["format"] != FORMAT:
        return header["format"], None
    arrays = [stored[f"array_{number}"] for number in range(len(stored) - 1)]
    return FORMAT, decoded(header["content"], arrays)


def _with_family(model: Model, family: Any) -> Model:
    """The model with the likelihood that the fit had."""
    own = model.family
    if family is None:
        if own.spec is None:
            cure = (
                "A file holds no function: ngp.gam.load(path, family=...), with the likelihood or function of the fit."
            )
            fail("family", f"that of the fit, {own.name}", "None", cure)
        return model
    found = as_family(family)
    if found[:2] != own[:2]:
        cure = "Pass the one of the fit; of a name, leave it out."
        fail("family", f"that of the fit, {own.name}", f"{family!r:.60}", cure)
    return dataclasses.replace(model, family=found)
