"""Kernels of many components by name, held as batches of those that have one form.

A dictionary of two hundred kernels is two hundred times the operations that make one. Here a form and its
hyper-parameters with a leading axis stand for all that are alike, and the kernel of one component is cut out where
somebody asks for it.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from numpyro_gp.arrays import value_type
from numpyro_gp.kernels.base import Kernel
from numpyro_gp.kernels.members import at_columns, form_and_columns


@value_type(static=("names", "columns"))
class Batch:
    """Kernels of one form, ``kernel_c(X1, X2) = form_c(X1[:, columns_c], X2[:, columns_c])``.

    Attributes
    ----------
    names : tuple of str
        Of the components.
    columns : tuple of tuple of int
        What each reads. Empty for a single kernel, which is given all.
    form : Kernel
        Its leaves have an axis for the components on their left. A kernel as it is, where it is single.
    """

    names: tuple[str, ...]
    columns: tuple[tuple[int, ...], ...]
    form: Kernel

    def kernel(self, at: int) -> Kernel:
        """That of one component."""
        if not self.columns:
            return self.form
        one = jax.tree.map(lambda leaf: lax.index_in_dim(leaf, at, 0, False), self.form)
        return at_columns(one, self.columns[at])


@value_type(static=("names",))
class KernelBatches(Mapping[str, Kernel]):
    """Kernels by component, in an order of their own: what a dictionary says, in as many arrays as there are forms.

    Attributes
    ----------
    names : tuple of str
    batches : tuple of Batch
        Each name is in one of them.
    """

    names: tuple[str, ...]
    batches: tuple[Batch, ...]

    def __getitem__(self, name: str) -> Kernel:
        for batch in self.batches:
            if name in batch.names:
                return batch.kernel(batch.names.index(name))
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def batch_of(
    names: Sequence[str], columns: Sequence[tuple[int, ...]], make: Callable[..., Kernel], *arguments: object
) -> Batch:
    """One batch of kernels that ``make(*own)`` builds on columns 0, 1, ... from what is each one's own.

    Parameters
    ----------
    names : sequence of str
    columns : sequence of tuple of int
        Those of the inputs that stand for 0, 1, ... of each component, as many for all.
    make : callable
    *arguments
        Trees of arrays with an axis for the components on their left.
    """
    count = len(columns[0])
    read: tuple[int, ...] = ()

    def form(*own: object) -> Kernel:
        nonlocal read
        found, read = form_and_columns(make(*own), tuple(range(count)))
        return found

    batch = jax.vmap(form)(*arguments)
    places = read or tuple(range(count))
    return Batch(tuple(names), tuple(tuple(own[at] for at in places) for own in columns), batch)


def stacked(values: Sequence[object], dtype: np.dtype) -> object:
    """Trees of NumPy's arrays as one tree with an axis for each on the left: a constant, and no operation."""
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack([np.asarray(one) for one in leaves]), dtype), *values)


def shapes_of(value: object) -> Hashable:
    """Equal for trees that can be stacked."""
    leaves, structure = jax.tree.flatten(value)
    return structure, tuple(np.shape(leaf) for leaf in leaves)
