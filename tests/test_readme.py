"""The README's program runs as printed, and fits."""

import re
from pathlib import Path

import jax
import pytest

README = (Path(__file__).parent.parent / "README.md").read_text()


@pytest.mark.long
def test_the_first_program_runs(capsys):
    code = re.search(r"```python\n(.*?)```", README, re.S).group(1)
    names: dict = {}
    exec(compile(code, "README.md", "exec"), names)
    assert "Prediction(rows=200" in capsys.readouterr().out
    error = jax.numpy.sqrt(jax.numpy.mean((names["prediction"].mean - names["y"]) ** 2))
    assert error < 0.25, "the noise is 0.2; an idle fit leaves 0.7"
