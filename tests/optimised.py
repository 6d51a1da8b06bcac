"""Runs what runs for minutes as users do: in a process of its own, with the optimisations that other tests forgo."""

import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
CODE = """
import importlib, pathlib, pickle, sys
import jax
jax.config.update("jax_enable_x64", True)
place = pathlib.Path(sys.argv[1])
module, function, arguments = pickle.loads(place.read_bytes())
arguments = jax.tree.map(lambda leaf: leaf if isinstance(leaf, str | int) else jax.numpy.asarray(leaf), arguments)
found = getattr(importlib.import_module(module), function)(*arguments)
place.write_bytes(pickle.dumps(found))
"""


def optimised(module: str, function: str, *arguments: Any) -> Any:
    """What a function of a module returns, computed in float64; arguments and result are pickled."""
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "call"
        place.write_bytes(pickle.dumps((module, function, arguments)))
        command = [sys.executable, "-c", CODE, str(place)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
        assert done.returncode == 0, done.stderr
        return pickle.loads(place.read_bytes())
