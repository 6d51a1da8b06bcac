"""A posterior in one file: arrays and their names, in NumPy's format, with nothing that runs when it is read."""

import json
import os
import pickle
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import jax.numpy as jnp
import numpy as np

from numpyro_gp.checks import fail
from numpyro_gp.programs.files import SEQUENCES, check_place, read_whole, write_whole

POSTERIOR_FORMAT = "numpyro_gp posterior 1"
# Kinds of arrays that are numbers to NumPy, and of those whose types it forgets.
NUMBER_KINDS = "biufcV"
# Kind, groups of arrays, notes, and whether numbers of a fit in double precision became those of single precision.
Decoded = tuple[str, dict[str, dict[str, object]], object, bool]


class Absent(NamedTuple):
    """In the place of a model, a guide or a likelihood that did not pickle: its argument, its name, and the cure."""

    argument: str
    name: str
    cure: str

    def __call__(self, *_: object, **__: object) -> NoReturn:
        """Say what is missing, and how to put it back."""
        fail(self.argument, "that of the fit", f"none, as {self.name} was left out of the pickle", self.cure)


BACK = "Put yours back: posterior.save(path), then ngp.Posterior.load(path, model, guide)."


def to_pickle(argument: str, value: object, kept: str = "All arrays are in the pickle", cure: str = BACK) -> object:
    """The value, or `Absent` and a warning where it does not pickle: arrays of a fit are not lost for a function."""
    try:
        pickle.dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        name = getattr(value, "__qualname__", type(value).__name__)
        where = f"{kept}. {cure} Or define the function at the top of a module, where it pickles."
        warnings.warn(f"The {argument} {name} does not pickle ({error}) and is left out. {where}", stacklevel=3)
        return Absent(argument, name, cure)
    return value


def write_arrays(path: str | os.PathLike, kind: str, groups: Mapping[str, Mapping[str, object]], notes: object) -> None:
    """Write named arrays by group; ``notes`` is anything that JSON can hold. Never leaves half a file."""
    target = check_place(path)
    entries: dict[str, np.ndarray] = {}
    description: list[object] = []
    sequences: list[object] = []
    for group, named in groups.items():
        for keys, leaf in _leaves(named, (group,), sequences):
            array = np.asarray(leaf)
            # NumPy's files forget the names of types such as bfloat16.
            description.append([list(keys), str(array.dtype)])
            entries[f"array_{len(entries)}"] = array
    header = json.dumps(
        {"format": POSTERIOR_FORMAT, "kind": kind, "arrays": description, "sequences": sequences, "notes": notes}
    )
    write_whole(target, header=np.asarray(header), **entries)


def read_arrays(path: str | os.PathLike) -> tuple[str, dict[str, dict[str, object]], object]:
    """Kind, groups of arrays and notes of a file that `write_arrays` made."""
    cure = "Check the path, or save it anew: posterior.save(path)."
    form, found = read_whole(Path(path), "path", "a file written by Posterior.save", cure, _decoded)
    if found is None:
        fail("path", f"a file of format {POSTERIOR_FORMAT!r}", f"{form!r}", "Save it anew: posterior.save(path).")
    kind, groups, notes, is_narrowed = found
    if is_narrowed:
        refuse_narrowed("path", "a file ", f"{str(path)!r}, of float64")
    return kind, groups, notes


def refuse_narrowed(argument: str, what: str, got: str) -> NoReturn:
    """Refuse what was fitted in double precision and is read in single precision, which rounds it.

    Whitened values belong to their factor, whose jitter is that of the precision.
    """
    cure = 'Switch it on, as in the fit: jax.config.update("jax_enable_x64", True).'
    required = f"{what}of numbers in the precision that JAX has now"
    fail(argument, required, f"{got}, while jax_enable_x64 is off", cure, TypeError)


def _decoded(stored: dict[str, np.ndarray]) -> tuple[object, Decoded | None]:
    """The format of a file, and what it holds where it is ours."""
    header = json.loads(str(stored["header"]))
    if header["format"] != POSTERIOR_FORMAT:
        return header["format"], None
    is_narrowed = False
    groups: dict[str, dict[str, Any]] = {}
    for number, (keys, dtype) in enumerate(header["arrays"]):
        array = stored[f"array_{number}"]
        if array.dtype.kind not in NUMBER_KINDS:
            raise ValueError(f"array {number} holds {array.dtype}, and not {dtype}")
        at: dict[str, Any] = groups
        for key in keys[:-1]:
            at = at.setdefault(key, {})
        array = array if str(array.dtype) == dtype else array.view(jnp.dtype(dtype))
        at[keys[-1]] = jnp.asarray(array)
        is_narrowed |= keys[0] in ("samples", "params", "past") and dtype == "float64" != str(at[keys[-1]].dtype)
    # Those inside of others first: each then finds its entries by their numbers. Older files have none.
    for keys, kind, size in sorted(header.get("sequences", []), key=lambda entry: -len(entry[0])):
        at = groups
        for key in keys[:-1]:
            at = at.setdefault(key, {})
        own = at.get(keys[-1], {})
        at[keys[-1]] = SEQUENCES[kind](own[str(number)] for number in range(size))
    return POSTERIOR_FORMAT, (header["kind"], groups, header["notes"], is_narrowed)


def _leaves(tree: object, keys: tuple[str, ...], sequences: list[object]) -> list[tuple[tuple[str, ...], object]]:
    """Arrays with their names; ``sequences`` takes the names, kinds and lengths of lists and tuples."""
    found = []
    for name, value in tree.items() if isinstance(tree, Mapping) else enumerate(tree):
        own = (*keys, str(name))
        if isinstance(value, Mapping):
            found += _leaves(value, own, sequences)
        elif type(value) in SEQUENCES.values():
            sequences.append([own, type(value).__name__, len(value)])
            found += _leaves(value, own, sequences)
        elif hasattr(value, "dtype") or isinstance(value, (int, float)):
            found.append((own, value))
        else:
            cure = "Save parameters that are arrays, or dictionaries, lists and tuples of them."
            fail(f"the value of {name!r}", "an array or a container of arrays", f"a {type(value).__name__}", cure)
    return found
