"""The compiled loop of a fit: one program for chunks of any length.

The steps run in a ``while`` loop whose *length is an argument*: long chunks, the short last one and the re-run up to
the last good step are all the same program, so a resumed or repeated run gives the same bits, and nothing compiles
twice. How much a compiler optimises it depends on the size of its arrays and on the steps that are asked for in all,
which a run that was interrupted asks for again.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Jaxpr

from numpyro_gp.arrays import Array
from numpyro_gp.checks import fail
from numpyro_gp.programs.keep import effort_for, kept
from numpyro_gp.programs.private import sites_in_order
from numpyro_gp.programs.scheduler import compiler_options
from numpyro_gp.programs.trace import as_function, aval_of, bytes_of, is_traced, traced
from numpyro_gp.rows.devices import Placement
from numpyro_gp.rows.feeds import Feed
from numpyro_gp.rows.look import without_whole_gathers
from numpyro_gp.training.faults import all_finite

# A step with no array of more numbers than this (200 rows by 50 inducing inputs) is optimised less, in half the time.
# Where that makes it slower, 20 000 steps or more lose the one or two seconds saved: longer fits get all of it.
SMALL, FEW = 10_000, 10_000


def loop_of(engine: object, feed: Feed, state: object, size: int, watch: bool, steps: int) -> Callable[..., tuple]:
    """``(state, length, arrays) -> (count, state, losses, healthy)``: up to ``length`` steps, fewer at a failure.

    The program of one step is its key: the loop is compiled once for all engines whose steps compute the same.
    ``watch``: stop as well at parameters that stop being finite. ``steps``: those of the whole fit.
    """

    def step(state: object, arrays: list[Array]) -> tuple[Any, Array, Array]:
        with sites_in_order(), feed.opened(arrays) as (args, kwargs):
            state, loss = engine.update(state, *args, **kwargs)
        if not (hasattr(loss, "shape") and loss.shape == () and jnp.issubdtype(loss.dtype, jnp.floating)):
            fail("the loss of update", "one real number", f"{loss!r:.80}", "Sum it over sites and data.", TypeError)
        healthy = jnp.isfinite(loss)
        return state, loss, healthy & all_finite(engine.get_params(state)) if watch else healthy

    found = traced(step if feed.placement is None else without_whole_gathers(step), state, feed.arrays())
    leaves, structure = jax.tree.flatten(state)
    if found.structure != jax.tree.structure((state, 0, 0)):
        got = f"{found.structure.children()[0]}"
        fail("the state of update", f"of the structure of the state of init, {structure}", got, "Return all of it.")
    count = len(found.constants)
    effort = effort_for(found.program, SMALL, 1) if steps <= FEW else None
    extra = ("loop", size, count, len(leaves), feed.placement, effort)
    run = kept(found.program, extra, lambda: compiled_loop(found.program, size, feed.placement, effort))

    def advance(state: object, length: int, arrays: list[Array]) -> tuple:
        done, after, losses, healthy = run(found.constants, jax.tree.leaves(state), length, arrays)
        return done, jax.tree.unflatten(structure, after), losses, healthy

    return advance


def compiled_loop(
    program: Jaxpr, size: int, placement: Placement | None, effort: int | None = None
) -> Callable[..., tuple]:
    """The loop over a step that takes constants, a state and arrays, and returns a state, its loss and its health.

    The caller keeps the state it passes in (it is not donated), because a failure is answered by
    running again from there.
    """
    step, loss_type = as_function(program), aval_of(program.outvars[-2]).dtype

    def advance(constants: list[Array], state: list[Array], length: int, arrays: list[Array]) -> tuple:
        def body(carry: tuple) -> tuple:
            count, state, losses, _ = carry
            *state, loss, healthy = step(*constants, *state, *arrays)
            return count + 1, state if placement is None else placement.held(state), losses.at[count].set(loss), healthy

        start = (jnp.asarray(0), state, jnp.zeros(size, loss_type), jnp.asarray(True))
        return lax.while_loop(lambda carry: (carry[0] < length) & carry[3], body, start)

    alone = jax.jit(advance, compiler_options=compiler_options(effort, largest=bytes_of(program)))

    def run(constants: list[Array], state: list[Array], length: int, arrays: list[Array]) -> tuple:
        """Options are of a whole program: a loop that is a part of another, which is traced, has none."""
        found: tuple = (advance if is_traced() else alone)(constants, state, length, arrays)
        return found

    return run
