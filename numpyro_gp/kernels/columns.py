"""Kernels of one form on different columns: the form, and the columns that it reads."""

import jax

from numpyro_gp.kernels.base import Active, Kernel, Product, Scaled, Sum


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
            parts[place], own = form_and_columns(part, columns, start + len(read))
            read += own
    form: Kernel = jax.tree.unflatten(structure, parts)
    return form, read


def at_columns(form: Kernel, columns: tuple[int, ...]) -> Kernel:
    """The kernel of a form and the columns that it reads; its parts say their columns even where they read all."""

    def placed(node: object) -> object:
        return Active(node.kernel, node.of_columns(columns)) if isinstance(node, Active) else node

    kernel: Kernel = jax.tree.map(placed, form, is_leaf=lambda node: isinstance(node, Active))
    return kernel
