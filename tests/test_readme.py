"""The README's programs run as printed, one after the other in one file as CI runs them, and fit."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpyro
import pytest
from numpyro.infer.util import log_density

README = (Path(__file__).parent.parent / "README.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", README, re.S)


@pytest.mark.long
def test_the_first_program_runs(capsys):
    names: dict = {}
    exec(compile(PROGRAMS[0], "README.md", "exec"), names)
    assert "Prediction(rows=200" in capsys.readouterr().out
    error = jax.numpy.sqrt(jax.numpy.mean((names["prediction"].mean - names["y"]) ** 2))
    assert error < 0.25, "the noise is 0.2; an idle fit leaves 0.7"


def test_the_programs_after_the_first_stand_beside_its_imports():
    """CI runs all of them as one file; the groups' model scores ragged groups as it scores their rows alone."""
    imports = "\n".join(line for line in PROGRAMS[0].splitlines() if line.startswith(("import ", "from ")))
    names: dict = {}
    exec(compile("\n".join([imports, *PROGRAMS[1:]]), "README.md", "exec"), names)
    X, Z = jnp.linspace(-1.0, 1.0, 6).reshape(2, 3, 1), jnp.array([[-0.5], [0.5]])
    y, seen = X[..., 0], jnp.array([[True, True, True], [True, True, False]])
    point = {"lengthscale": jnp.ones((2, 1)), "f": jnp.ones((2, 1, 2))}

    def score(y):
        with numpyro.handlers.seed(rng_seed=0):
            return log_density(names["curves"], (X, y, seen), {"Z": Z}, point)[0]

    assert score(y) == score(y.at[1, 2].set(9.0)), "a masked row does not count"
    assert score(y) != score(y.at[0, 2].set(9.0)), "a row that is there counts"
