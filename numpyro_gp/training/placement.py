"""Rows of data on several devices: which arrays lie in pieces, and minibatches that each device draws of its piece."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from numpyro_gp.arrays import Array, Merge, split_arrays
from numpyro_gp.checks import axes_of, check_sharding, fail
from numpyro_gp.guides.minibatches import permuted_rows
from numpyro_gp.training.checkpoints import is_key


class Placement(NamedTuple):
    """Devices of a fit: ``rows`` shards the first axis of data, or nothing, and all else is a copy on each of them."""

    rows: NamedSharding

    @property
    def copies(self) -> NamedSharding:
        """The same value on every device."""
        return NamedSharding(self.rows.mesh, PartitionSpec())

    @property
    def pieces(self) -> int:
        """Into how many pieces the rows are cut."""
        return check_sharding("sharding", self.rows) if self.cuts else 1

    @property
    def cuts(self) -> bool:
        """Whether rows lie in pieces: they are copies too where only particles or samples are shared."""
        return bool(self.rows.spec)

    @property
    def processes(self) -> list[int]:
        """The processes whose devices these are; the first of them writes."""
        return sorted({device.process_index for device in self.rows.mesh.devices.flat})

    def copied(self, tree: Any) -> Any:
        """The same values on every device."""
        leaves, structure = jax.tree.flatten(tree)
        # Keys are placed by their numbers: JAX takes no key of one process to the devices of others.
        placed = jax.device_put([jax.random.key_data(x) if is_key(x) else x for x in leaves], self.copies)
        pairs = zip(leaves, placed, strict=True)
        placed = [jax.random.wrap_key_data(x, impl=jax.random.key_impl(old)) if is_key(old) else x for old, x in pairs]
        return jax.tree.unflatten(structure, placed)

    def held(self, tree: Any) -> Any:
        """The same values on every device, inside a program."""
        return jax.lax.with_sharding_constraint(tree, self.copies)

    def check_steps(self, steps: int) -> None:
        """Refuse processes that go on from different steps: they would wait for one another for ever."""
        self.check_same("resume", "from the same step", "steps", steps, "Put the checkpoint where all can read it.")

    def check_same(self, what: str, required: str, unit: str, number: int, cure: str) -> None:
        """Refuse a number that is not the same in every process."""
        if len(self.processes) > 1:
            mesh = self.rows.mesh
            every = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
            each = jax.make_array_from_callback((mesh.size,), every, lambda _: np.array([number]))
            if (fewest := int(jnp.min(each))) != (most := int(jnp.max(each))):
                fail(what, f"{required} in every process", f"{unit} from {fewest} to {most}", cure)

    @property
    def own_pieces(self) -> int:
        """How many of the pieces lie on devices of this process."""
        return len(set(map(str, self.rows.addressable_devices_indices_map((self.pieces,)).values())))

    def check_rows(self, what: str, count: int, pieces: int | None = None) -> None:
        """Refuse rows that the devices, or those that hold so many pieces, cannot share equally."""
        pieces = pieces or self.pieces
        if count % pieces:
            cure = f"Leave {count % pieces} out, or stream them: batches= fills up what is missing."
            fail(what, f"rows that divide among {pieces} devices", f"{count} rows", cure)

    def place(self, arrays: Sequence[Array], with_rows: Sequence[bool]) -> list[Array]:
        """Arrays where they belong: pieces of those with rows, copies of the others."""
        return [jax.device_put(array, self.rows if has else self.copies) for array, has in zip(arrays, with_rows)]


def placement_of(sharding: Any, arrays: Sequence[Array], engine: Any = None) -> Placement | None:
    """The placement that was asked for, or that of the first array that lies in pieces; None for one device.

    Without either rows are copies on the devices that share the particles of an engine or the samples of its objective.
    """
    loss = getattr(engine, "loss", None)
    own = next(
        (one for part in (engine, loss) if isinstance(one := getattr(part, "sharding", None), NamedSharding)), None
    )
    if sharding is None:
        held = [array for array in arrays if isinstance(array, jax.Array) and not isinstance(array, jax.core.Tracer)]
        found = [array.sharding for array in held if array.ndim]
        found = [one for one in found if isinstance(one, NamedSharding) and not one.is_fully_replicated]
        if not found:
            return None if own is None else Placement(NamedSharding(own.mesh, PartitionSpec()))
        sharding = found[0]
    check_sharding("sharding", sharding)
    if own is not None and (own.mesh != sharding.mesh or {*axes_of(own)} & {*axes_of(sharding)}):
        free = [axis for axis in own.mesh.axis_names if axis not in axes_of(own)]
        required = f"over an axis of the mesh of particles or samples that these leave free, {free}"
        cure = (
            "Build one mesh: jax.make_mesh((2, 4), ('samples', 'data'), axis_types=(jax.sharding.AxisType.Auto,) * 2)."
        )
        fail("sharding of the rows", required, f"{axes_of(sharding)} of {sharding.mesh.axis_names}", cure)
    return Placement(sharding)


class Drawn:
    """Minibatches of data in pieces: at each step every device draws its share of its own rows, without a word.

    Rows come without replacement, each of a piece as likely as another (`ngp.guides.permuted_rows`), so that the terms
    of a batch, counted ``N / B`` times, are an unbiased estimate. Step k has the rows that the key of the fit has for
    step k: a resumed fit under the same key goes on with them.
    """

    def __init__(
        self, key: Array, data: tuple[tuple, dict], with_rows: Sequence[bool], batch: int, placement: Placement
    ) -> None:
        placement.check_rows("the minibatch", batch)
        self.key, self.with_rows, self.batch, self.placement = key, with_rows, batch, placement
        self.whole, self.merge = split_arrays((*data, jnp.asarray(np.int32(batch))))
        self.whole = placement.place(self.whole, (*with_rows, False))
        self.start(0)

    merge: Merge

    def start(self, step: int) -> None:
        """Draw the minibatch of a step."""
        self.step = step
        cut = [array for array, has in zip(self.whole, self.with_rows) if has]
        drawn = iter(_drawn(cut, self.key, step, self.batch, self.placement))
        self.now = [next(drawn) if has else array for array, has in zip(self.whole, (*self.with_rows, False))]

    def prefetch(self) -> None:
        """Draw the next minibatch, while the program of this one runs."""
        self.start(self.step + 1)

    def arrays(self) -> list[Array]:
        """The minibatch of the next step."""
        return self.now


@partial(jax.jit, static_argnames=("batch", "placement"))
def _drawn(arrays: list[Array], key: Array, step: Array, batch: int, placement: Placement) -> list[Array]:
    pieces = placement.pieces
    size, share = arrays[0].shape[0] // pieces, batch // pieces
    keys = jax.random.split(jax.random.fold_in(key, step), pieces)
    rows = jax.vmap(lambda key: permuted_rows(key, size, jnp.arange(share)))(keys)
    rows = jax.lax.with_sharding_constraint(rows, placement.rows)

    def of_each(array: Array) -> Array:
        own = array.reshape(pieces, size, *array.shape[1:])
        taken = jax.vmap(lambda piece, rows: piece[rows])(own, rows).reshape(batch, *array.shape[1:])
        return jax.lax.with_sharding_constraint(taken, placement.rows)

    return [of_each(array) for array in arrays]
