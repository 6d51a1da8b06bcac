"""Rows of data on several devices: which arrays lie in pieces, and which are copies.

For data that one accelerator does not hold, and steps over all rows that one takes too long for: ``fit(sharding=...)``.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from numpyro_gp.arrays import Array, is_key, on_device
from numpyro_gp.checks import axes_of_sharding, check_sharding, fail


class Placement(NamedTuple):
    """Devices of a fit: ``rows`` shards the first axis of data, or nothing, and all else is a copy on each of them."""

    rows: NamedSharding

    @property
    def copies(self) -> NamedSharding:
        """The same value on every device."""
        return NamedSharding(self.rows.mesh, PartitionSpec())

    @property
    def pieces(self) -> int:
        """Into how many pieces the rows are cut; they are copies too where only particles or samples are shared."""
        return check_sharding("sharding", self.rows) if self.rows.spec else 1

    @property
    def processes(self) -> list[int]:
        """The processes whose devices these are; the first of them writes."""
        return sorted({device.process_index for device in self.rows.mesh.devices.flat})

    def placed(self, state: object, steps: int) -> Any:
        """The state after some steps, copied to every device; refuse processes that continue from different steps."""
        # They would wait for one another for ever.
        self.check_same("resume", "from the same step", "steps", steps, "Put the checkpoint where all can read it.")
        return self.copied(state)

    def copied(self, tree: object) -> object:
        """The same values on every device."""
        leaves, structure = jax.tree.flatten(tree)
        # Keys are placed by their numbers: JAX takes no key of one process to the devices of others.
        placed = jax.device_put([jax.random.key_data(x) if is_key(x) else x for x in leaves], self.copies)
        pairs = zip(leaves, placed, strict=True)
        placed = [jax.random.wrap_key_data(x, impl=jax.random.key_impl(old)) if is_key(old) else x for old, x in pairs]
        return jax.tree.unflatten(structure, placed)

    def held(self, tree: object) -> object:
        """The same values on every device, inside a program."""
        return jax.lax.with_sharding_constraint(tree, self.copies)

    def check_same(self, what: str, required: str, unit: str, number: int, cure: str) -> None:
        """Refuse a number that is not the same in every process."""
        if len(self.processes) > 1:
            mesh = self.rows.mesh
            every = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
            each = jax.make_array_from_callback((mesh.size,), every, lambda _: np.array([number]))
            if (fewest := int(jnp.min(each))) != (most := int(jnp.max(each))):
                fail(what, f"{required} in every process", f"{unit} from {fewest} to {most}", cure)

    def check_shares(self, what: str, count: int, pieces: int | None = None) -> None:
        """Refuse rows that the devices, or those that hold so many pieces, cannot share equally."""
        pieces = pieces or self.pieces
        if count % pieces:
            cure = f"Leave {count % pieces} out, or stream them: batches= fills up what is missing."
            fail(what, f"rows that divide among {pieces} devices", f"{count} rows", cure)

    def place(self, arrays: Sequence[Array], with_rows: Sequence[bool]) -> list[Array]:
        """Arrays where they belong: pieces of those with rows, copies of the others."""
        return [jax.device_put(array, self.rows if has else self.copies) for array, has in zip(arrays, with_rows)]


def placement_of(sharding: Any, arrays: Sequence[Array], engine: object = None) -> Placement | None:
    """The placement that was asked for, or that of the first array that lies in pieces; None for one device.

    Without either rows are copies on the devices that share the particles of an engine or the samples of its objective.
    """
    given = (getattr(part, "sharding", None) for part in (engine, getattr(engine, "loss", None)))
    own = next((one for one in given if isinstance(one, NamedSharding)), None)
    if sharding is None:
        held = [array for array in arrays if isinstance(array, jax.Array) and not isinstance(array, jax.core.Tracer)]
        found = [array.sharding for array in held if array.ndim]
        found = [one for one in found if isinstance(one, NamedSharding) and not one.is_fully_replicated]
        if not found:
            return None if own is None else Placement(NamedSharding(own.mesh, PartitionSpec()))
        sharding = found[0]
    check_sharding("sharding", sharding)
    if own is not None and (own.mesh != sharding.mesh or {*axes_of_sharding(own)} & {*axes_of_sharding(sharding)}):
        free = [axis for axis in own.mesh.axis_names if axis not in axes_of_sharding(own)]
        required = f"over an axis of the mesh of particles or samples that these leave free, {free}"
        cure = "Build one mesh: jax.make_mesh((2, 4), ('samples', 'data'), "
        cure += "axis_types=(jax.sharding.AxisType.Auto,) * 2)."
        fail("sharding of the rows", required, f"{axes_of_sharding(sharding)} of {sharding.mesh.axis_names}", cure)
    return Placement(sharding)


def as_part_of_process(values: object, where: object) -> Array:
    """Values of this process as its part of an array; one process has all of them."""
    if where is None:
        return on_device(np.asarray(values))
    return jax.make_array_from_process_local_data(where, values)
