"""Arrays in one file of NumPy's format: written whole, and read without running anything."""

import os
import uuid
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np

from numpyro_gp.arrays import T
from numpyro_gp.checks import fail

# Lists and tuples by the words that files have for them.
SEQUENCES: dict[str, Callable[..., Any]] = {"list": list, "tuple": tuple}


def check_place(path: str | os.PathLike[str]) -> Path:
    """The path of a file to be written: refused where its folder does not exist, or where a folder has its name."""
    target = Path(path)
    if not target.parent.is_dir() or target.is_dir():
        fail("path", "a file in a folder that exists", repr(str(target)), "Make the folder first: os.makedirs(folder).")
    return target


def write_whole(path: Path, **arrays: np.ndarray) -> None:
    """Write arrays by name to a temporary file, then rename it: never half a file."""
    beside = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    try:
        with open(beside, "xb") as file:  # with the rights of any new file: those of `tempfile` are for its owner alone
            np.savez(file, **cast("dict[str, Any]", arrays))  # one of its keywords is no array
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def read_whole(path: Path, argument: str, required: str, cure: str, decode: Callable[[dict[str, np.ndarray]], T]) -> T:
    """What ``decode`` makes of the arrays of a file of `write_whole`, by name; nothing that runs is read.

    The sums of the format find what was damaged, and zip, NumPy and JSON each have their own errors for it.
    """
    try:
        with zipfile.ZipFile(path):  # of a file of one array, without a name, NumPy makes that array
            pass
        with np.load(path, allow_pickle=False) as file:
            return decode({name: file[name] for name in file.files})
    except Exception as error:  # whatever a damaged file makes them raise
        fail(argument, required, f"{str(path)!r}, which cannot be read ({error})", cure)
