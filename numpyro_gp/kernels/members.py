"""Batches of kernels: a kernel whose leaves have a leading axis, one entry for each of them."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from numpyro_gp.arrays import value_type
from numpyro_gp.checks import fail
from numpyro_gp.kernels.base import Active, FunctionKernel, Kernel, KernelLike, Product, Scaled, Sum, as_kernel
from numpyro_gp.kernels.nonstationary import Coregion, Linear, Polynomial
from numpyro_gp.kernels.stationary import SpectralMixture

# The field of a kernel whose number of axes never varies, and that number; "variance", a scalar, for all others.
FIXED_AXES: dict[type, tuple[str, int]] = {
    Scaled: ("factor", 0),
    Polynomial: ("offset", 0),
    SpectralMixture: ("weights", 1),
    Coregion: ("weights", 2),
}


def stack(kernels: Sequence[KernelLike]) -> Kernel:
    """A batch of kernels, one for each output or each member of a plate: its leaves have one entry per kernel.

    The same value as ``jax.vmap`` of a constructor over arrays of hyper-parameters makes. A process `gp` takes one for
    ``outputs=P`` with kernels of their own, and in plates one for their members. A class of your own needs a field
    ``variance``, a scalar of a single kernel, by whose axes a batch is known.

    Parameters
    ----------
    kernels : sequence of Kernel
        Of one form: the same class, with hyper-parameters of the same shapes.

    Returns
    -------
    Kernel
        The leaves have the axis of the batch on their left.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from numpyro_gp.kernels import RBF, stack
    >>> batch = stack([RBF(1.0, 0.5), RBF(2.0, 0.1)])
    >>> batch.lengthscale.shape, jax.vmap(lambda kernel: kernel.diagonal(jnp.zeros((1, 3))))(batch).tolist()
    ((2,), [[1.0], [2.0]])
    """
    if not isinstance(kernels, (list, tuple)) or not kernels:
        cure = "Pass stack([RBF(1.0, 0.5), RBF(2.0, 0.1)])."
        fail("kernels", "a list of kernels", f"{kernels!r:.60}", cure, TypeError)
    parts = [as_kernel(kernel) for kernel in kernels]
    trees = map(jax.tree.flatten, parts)
    like, *others = [f"{structure}, shapes {[*map(jnp.shape, leaves)]}" for leaves, structure in trees]
    for number, form in enumerate(others, start=1):
        if form != like:
            cure = "Give all the same form: a lengthscale for each input in all or in none, "
            cure += "or 1e-6 times what one lacks."
            got = f"kernel {number} is {form}, kernel 0 is {like}"
            fail("kernels", "of one form, with hyper-parameters of the same shapes", got, cure)
    batch: Kernel = jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)
    if batch_shape(batch)[:1] != (len(parts),) and not isinstance(parts[0], FunctionKernel):
        required = "of classes with a field variance, a scalar, by whose axes a batch is known"
        fail("kernels", required, like, "Add the field variance to your class.", TypeError)
    return batch


def batch_shape(kernel: Kernel) -> tuple[int, ...]:
    """Leading axes of a batch of kernels; none for a single kernel.

    A hyper-parameter that is a scalar, such as a variance, tells them: ``(D,)`` lengthscales may be those of one
    kernel. Functions are single kernels, and so are a user's own classes without a field ``variance``.
    """
    shapes = _shapes(kernel)
    if len(shapes) > 1:
        got = f"axes {sorted(shapes)} in one {type(kernel).__name__} (empty: no batch)"
        cure = "Make it as a whole: kernels.stack([...]), or jax.vmap of the function that builds it."
        fail("a batch of kernels", "of one size throughout", got, cure)
    return shapes.pop() if shapes else ()


def _shapes(kernel: Kernel) -> set[tuple[int, ...]]:
    shapes = {shape for part in kernel.parts.values() for shape in _shapes(part)}
    name, axes = FIXED_AXES.get(type(kernel), ("variance", 0))
    if isinstance(kernel, Linear):
        axes = int(kernel.per_column)
    leaf: Any = getattr(kernel, name, None)
    if hasattr(leaf, "shape"):
        shapes.add(leaf.shape[: leaf.ndim - axes])
    return shapes


def form_and_columns(kernel: Kernel, columns: tuple[int, ...], start: int = 0) -> tuple[Kernel, tuple[int, ...]]:
    """A kernel without its choice of columns, and that choice: ``kernel(X1, X2) = form(X1[:, c], X2[:, c])``.

    ``RBF(1.0, 0.3).on(2) * RBF(1.0, 0.3).on(5)`` has the form ``RBF(1.0, 0.3).on(0) * RBF(1.0, 0.3).on(1)`` and the
    columns ``(2, 5)``. A form has the hyper-parameters of its kernel in the same order, with their leading axes.

    Parameters
    ----------
    kernel : Kernel
    columns : tuple of int
        Those of the inputs that the kernel is given.
    start : int
        How many columns parts of the form before this one read.
    """
    if isinstance(kernel, Active):
        return form_and_columns(kernel.kernel, kernel.of_columns(columns), start)
    if not isinstance(kernel, (Sum, Product, Scaled)):
        return Active(kernel, range(start, start + len(columns))), columns
    read: tuple[int, ...] = ()
    parts, structure = jax.tree.flatten(kernel, is_leaf=lambda node: node is not kernel)
    for place, part in enumerate(parts):
        if isinstance(part, Kernel):
            parts[place], more = form_and_columns(part, columns, start + len(read))
            read += more
    return jax.tree.unflatten(structure, parts), read


def at_columns(form: Kernel, columns: tuple[int, ...]) -> Kernel:
    """The kernel of a form and the columns that it reads; its parts say their columns even where they read all."""

    def placed(node: object) -> object:
        return Active(node.kernel, node.of_columns(columns)) if isinstance(node, Active) else node

    return jax.tree.map(placed, form, is_leaf=lambda node: isinstance(node, Active))


# --------------------------------------------------------------------------------------
# Kernels of many components by name, held as batches of those that have one form.
#
# A dictionary of two hundred kernels is two hundred times the operations that make one. Here a form and its hyper-
# parameters with a leading axis stand for all that are alike, and the kernel of one component is cut out where
# somebody asks for it.


@value_type(static=("names", "columns"))
class KernelBatch:
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
        """Return that of one component."""
        if not self.columns:
            return self.form
        form = jax.tree.map(lambda leaf: lax.index_in_dim(leaf, at, 0, False), self.form)
        return at_columns(form, self.columns[at])


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
    batches: tuple[KernelBatch, ...]

    def __getitem__(self, name: str) -> Kernel:
        for batch in self.batches:
            if name in batch.names:
                return batch.kernel(batch.names.index(name))
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def kernel_batch_of(
    names: Sequence[str], columns: Sequence[tuple[int, ...]], make: Callable[..., Kernel], *arguments: object
) -> KernelBatch:
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

    def form(*values: object) -> Kernel:
        nonlocal read
        made, read = form_and_columns(make(*values), tuple(range(count)))
        return made

    batch = jax.vmap(form)(*arguments)
    places = read or tuple(range(count))
    return KernelBatch(tuple(names), tuple(tuple(each[at] for at in places) for each in columns), batch)


def stacked(values: Sequence[object], dtype: np.dtype) -> object:
    """Trees of NumPy's arrays as one tree with an axis for each on the left: a constant, and no operation."""
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack([np.asarray(leaf) for leaf in leaves]), dtype), *values)


def shapes_of(value: object) -> Hashable:
    """Equal for trees that can be stacked."""
    leaves, structure = jax.tree.flatten(value)
    return structure, tuple(np.shape(leaf) for leaf in leaves)
