"""The README's programs run as printed, one after the other in one file as CI runs them, and the page is short."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpyro
import pytest
from numpyro.infer.util import log_density

from examples.tools.guide_figures import GUIDE, blocks, differs, run
from tests.test_guide import as_for_readers  # noqa: F401  a fixture

README = Path(__file__).parent.parent / "README.md"


@pytest.mark.long
@pytest.mark.usefixtures("as_for_readers")
def test_the_programs_run_and_print_what_they_say():
    names = run(README, lambda block, printed: block.printed and check(differs(printed, block.printed)))
    error = jnp.abs(names["prediction"].mean[:2] - jnp.sin(2 * names["X_new"][:2, 0]))
    assert jnp.max(error) < 0.1, "NUTS finds the function; an idle chain is off by 0.9"


def check(problem):
    assert problem is None, problem


def test_the_page_is_short_and_its_first_program_too():
    text = README.read_text()
    assert len(text.splitlines()) <= 175
    assert len(text.split()) <= 1300
    first, chains, table = (block.code.splitlines() for block in blocks(text))
    assert 16 <= len([line for line in first if line]) <= 20
    assert len(chains) == 3
    assert len([line for line in table if line]) <= 10
    assert blocks(text)[0].printed is not None


@pytest.mark.long
def test_the_groups_of_the_guide_score_ragged_groups_as_they_score_their_rows_alone():
    """``curves`` of the page on groups, with a mask of the rows that are there."""
    program = next(block.code for block in blocks((GUIDE / "groups.md").read_text()) if "def curves(" in block.code)
    names: dict = {}
    exec(compile(program, "groups.md", "exec"), names)
    X, Z = jnp.linspace(-1.0, 1.0, 6).reshape(2, 3, 1), jnp.array([[-0.5], [0.5]])
    y, seen = X[..., 0], jnp.array([[True, True, True], [True, True, False]])
    point = {"lengthscale": jnp.ones((2, 1)), "f": jnp.ones((2, 1, 2))}

    def score(y):
        with numpyro.handlers.seed(rng_seed=jax.random.key(0)):
            return log_density(names["curves"], (X, y, seen), {"Z": Z}, point)[0]

    assert score(y) == score(y.at[1, 2].set(9.0)), "a masked row does not count"
    assert score(y) != score(y.at[0, 2].set(9.0)), "a row that is there counts"
