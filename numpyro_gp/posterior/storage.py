"""A posterior in one file: arrays and their names, in NumPy's format, with nothing that runs when it is read."""

import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from numpyro_gp.checks import fail
from numpyro_gp.training.checkpoints import read_whole, write_whole

FORMAT = "numpyro_gp posterior 1"


def write_arrays(path: str | os.PathLike, kind: str, groups: Mapping[str, Mapping[str, object]], notes: object) -> None:
    """Write named arrays by group; ``notes`` is anything that JSON can hold. Never leaves half a file."""
    target = Path(path)
    if not target.parent.is_dir() or target.is_dir():
        fail("path", "a file in a folder that exists", repr(str(target)), "Create the folder first.")
    entries: dict[str, np.ndarray] = {}
    description: list[Any] = []
    for group, named in groups.items():
        for keys, leaf in _leaves(named, (group,)):
            array = np.asarray(leaf)
            # NumPy's files forget the names of types such as bfloat16.
            description.append([list(keys), str(array.dtype)])
            entries[f"array_{len(entries)}"] = array
    header = json.dumps({"format": FORMAT, "kind": kind, "arrays": description, "notes": notes})
    write_whole(target, header=np.asarray(header), **entries)


def read_arrays(path: str | os.PathLike) -> tuple[str, dict[str, dict[str, Any]], Any]:
    """Kind, groups of arrays and notes of a file that `write_arrays` made."""
    try:
        stored = read_whole(Path(path))
        header = json.loads(str(stored["header"]))
        arrays = [stored[f"array_{number}"] for number in range(len(header["arrays"]))]
    except (OSError, zipfile.BadZipFile, ValueError, KeyError, EOFError, TypeError) as error:
        fail("path", "a file written by Posterior.save", f"{str(path)!r} ({error})", "Check the path.")
    if header.get("format") != FORMAT:
        fail("path", f"a file of format {FORMAT!r}", f"{header.get('format')!r}", "Save the posterior again.")
    groups: dict[str, dict[str, Any]] = {}
    for (keys, dtype), array in zip(header["arrays"], arrays, strict=True):
        at: dict[str, Any] = groups
        for key in keys[:-1]:
            at = at.setdefault(key, {})
        at[keys[-1]] = jnp.asarray(array if str(array.dtype) == dtype else array.view(jnp.dtype(dtype)))
    return header["kind"], groups, header["notes"]


def _leaves(tree: Mapping[str, object], keys: tuple[str, ...]) -> list[tuple[tuple[str, ...], Any]]:
    found = []
    for name, value in tree.items():
        if isinstance(value, Mapping):
            found += _leaves(value, (*keys, str(name)))
        elif hasattr(value, "dtype") or isinstance(value, (int, float)):
            found.append(((*keys, str(name)), value))
        else:
            cure = "Save parameters that are dictionaries of arrays."
            fail(f"the value of {name!r}", "an array or a dictionary of arrays", f"a {type(value).__name__}", cure)
    return found
