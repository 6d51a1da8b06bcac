"""Processes at rows that are functionals: kernel and mean that read such rows (mathematics.md section 15.1).

A process is lifted where it is called at a `Functional`, or has one for its inducing inputs; everything else about it,
its belief above all, is as it was. Called at plain inputs it does what it did before.
"""

import dataclasses
from typing import Any, TypeVar

import jax.numpy as jnp

from numpyro_gp.arrays import Array, ArrayLike, value_type
from numpyro_gp.beliefs.additive_basis import AdditiveBasis, Group
from numpyro_gp.beliefs.basis import BatchBasis
from numpyro_gp.checks import are_integers, check_points, fail
from numpyro_gp.kernels.base import Kernel
from numpyro_gp.kernels.functionals import Functional, OfFunctionals, check_slopes
from numpyro_gp.means import Mean

AnyProcess = TypeVar("AnyProcess", bound=Any)


@value_type(static=("columns",))
class LiftedMean:
    """A mean function at rows that may be functionals, which `mean_at` applies to it."""

    mean: Mean
    columns: int

    def __call__(self, X: ArrayLike) -> Array:
        """The mean function itself, at plain inputs."""
        return self.mean(X)


def lifted_at_rows(
    process: AnyProcess, X: Functional | ArrayLike, leading: bool = True, argument: str = "X"
) -> tuple[AnyProcess, Array]:
    """The process that reads the rows ``X``, and these as one array ``(..., N, D)``, or longer rows of functionals."""
    if not isinstance(X, Functional):
        return process, check_points(argument, X, process.columns, leading=leading)
    rows = check_functional(argument, X, process.columns, leading)
    basis, mean = _lifted(process.basis, X), lifted_mean(process.mean, X.columns)
    return dataclasses.replace(process, basis=basis, mean=mean), rows


def check_functional(argument: str, X: Functional, columns: int, leading: bool = True) -> Array:
    """Rows of a functional of inputs with so many columns."""
    if X.columns != columns:
        required = f"functionals of {columns} columns, as many as the inducing inputs or the training inputs"
        fail(argument, required, f"shape {X.shape}", "Pass the same inputs in the same order.")
    if X.ndim > 2 and not leading:
        fail(argument, "of shape (N, D)", f"shape {X.shape}", "Put one row below the other.")
    return X.rows


def lifted_deviation(process: Any, variance: Array) -> Array:
    """Standard deviations. A slope in a column that a kernel does not read is known to be zero: the smallest number."""
    least = jnp.finfo(variance.dtype).tiny
    return jnp.sqrt(jnp.maximum(variance, least) if isinstance(process.mean, LiftedMean) else variance)


def rows_and_kernel(
    argument: str, X: Functional | ArrayLike, kernel: Kernel, columns: int | None = None, leading: bool = True
) -> tuple[Array, Kernel, int | None]:
    """Rows as one array, the kernel that reads them, and the columns of their points where they are functionals."""
    if not isinstance(X, Functional):
        reader = kernel.of_integers() if are_integers(X) else kernel
        return check_points(argument, X, columns, leading), reader, None
    rows = check_functional(argument, X, columns or X.columns, leading)
    check_slopes(kernel, X.slopes)
    return rows, kernel if isinstance(kernel, OfFunctionals) else OfFunctionals(kernel, X.columns), X.columns


def lifted_mean(mean: Mean, columns: int | None) -> Mean:
    """A mean function at functionals of so many columns; None for plain inputs."""
    return mean if columns is None or isinstance(mean, LiftedMean) else LiftedMean(mean, columns)


def _lifted(basis: Any, X: Functional) -> Any:
    """A basis whose kernels read functionals, where they have the slopes of these."""
    if isinstance(basis, BatchBasis):
        return dataclasses.replace(basis, members=_lifted(basis.members, X))
    if isinstance(basis, AdditiveBasis):
        # One by one: a batch of components has columns of plain inputs for each.
        parts = [_lifted(part, X) for part in basis.parts]
        return AdditiveBasis(basis.names, basis.inducing, tuple(Group((n,), (), part) for n, part in enumerate(parts)))
    check_slopes(basis.kernel, X.slopes)
    is_reading = isinstance(basis.kernel, OfFunctionals)
    return dataclasses.replace(basis, kernel=basis.kernel if is_reading else OfFunctionals(basis.kernel, X.columns))
