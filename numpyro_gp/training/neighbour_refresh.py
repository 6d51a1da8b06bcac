"""Neighbours found anew while a fit runs: in the lengthscales that it has come to.

They are arguments of the model, of the same shapes, so that no program compiles again. What a process is to say of
itself is its ``units()``: the neighbours that it stands on, and lengthscales for them; and whether it `is_point`.
"""

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.infer import SVI

from numpyro_gp.arrays import Array, split_arrays
from numpyro_gp.checks import is_known
from numpyro_gp.neighbours.value import Neighbours, are_neighbours, neighbours_in
from numpyro_gp.primitives.neighbours.local_process import shortest
from numpyro_gp.primitives.opening import recorded_processes
from numpyro_gp.programs.compiled import run_quickly
from numpyro_gp.rows.feeds import Feed

# Shares of the steps after which neighbours are found anew.
SHARES = (0.15, 0.5)


class Renewal:
    """When neighbours among the arguments of a fit are found anew, and how; of a fit without any, never.

    Parameters
    ----------
    engine, feed
        Those of the fit.
    num_steps : int
        Steps in all.
    done : int
        Steps that a resumed fit has behind it: it begins with neighbours found anew where some were found before.
    """

    def __init__(self, engine: object, feed: Feed, num_steps: int, done: int) -> None:
        self.engine, self.feed = engine, feed
        has_any = not feed.changes and bool(neighbours_in(feed.call.arguments))
        marks = sorted({int(share * num_steps) for share in SHARES} - {0, num_steps}) if has_any else []
        passed = [mark for mark in marks if mark <= done]
        self.marks = [*([done] if passed and done < num_steps else []), *marks[len(passed) :]]

    def steps_before(self, step: int, wanted: int) -> int:
        """No more steps than there are up to the next time."""
        return min([wanted, *(mark - step for mark in self.marks if mark > step)])

    def at(self, step: int, state: object) -> None:
        """Find neighbours anew, where it is time."""
        if not self.marks or step < self.marks[0]:
            return
        self.marks = [mark for mark in self.marks if mark > step]
        arrays = self.feed.arrays()
        given = self.feed.call.at(arrays)
        scales = run_quickly(self._lengthscales, state, arrays)
        renewed: dict[int, Neighbours] = {}
        for near, scale in zip(neighbours_in(given), scales, strict=True):
            if scale is not None and all(map(is_known, jax.tree.leaves(near))) and np.isfinite(scale).all():
                renewed[id(near)] = near.rescaled(scale)
        tree = jax.tree.map(lambda leaf: renewed.get(id(leaf), leaf), given, is_leaf=are_neighbours)
        found = split_arrays(tuple(tree))[0]
        # On the devices that were chosen; an array that JAX had placed is another program elsewhere.
        pairs = zip(found, arrays, strict=False)
        placed = [jax.device_put(new, old.sharding) if old.committed else new for new, old in pairs]
        self.feed.now = [*placed, *arrays[len(placed) :]]

    def _lengthscales(self, state: object, arrays: list[Array]) -> list[Array | None]:
        """Those of each of the neighbours among the arguments, by the processes that stand on it; None where none does.

        Of a guide at one of its draws, and of particles at their median.
        """
        with self.feed.opened(arrays) as given:
            args, kwargs = given.args, {**given.kwargs, **self.feed.call.static}
            model = _at_state(self.engine, state, args, kwargs)
            with handlers.block(), recorded_processes() as found:
                model(*args, **kwargs) if model is not None else None
            processes = [process for process in found.values() if hasattr(process, "units")]
            scales: list[Array | None] = []
            for near in neighbours_in(given):
                of_near = [process for process in processes if process.units()[0] is near]
                # Whitened values by other neighbours would be another function: these stay.
                stay = any(process.is_point for process in of_near)
                scales.append(None if stay else shortest([process.units()[1] for process in of_near]))
            return scales


def _at_state(engine: object, state: object, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
    """The model at the values of a state; None of an engine that is neither SVI nor one of particles."""
    key, params = jax.random.key(0), engine.get_params(state)
    model = handlers.seed(engine.model, key)
    if isinstance(engine, SVI):
        with handlers.block(), handlers.seed(rng_seed=key):
            trace = handlers.trace(handlers.substitute(engine.guide, data=params)).get_trace(*args, **kwargs)
        return handlers.replay(handlers.substitute(model, data=params), trace)
    if hasattr(engine, "particles") and hasattr(engine, "shared"):
        middle = {name: jnp.median(values, axis=0) for name, values in engine.particles(params).items()}
        return handlers.substitute(model, data={**middle, **engine.shared(params)})
    return None
