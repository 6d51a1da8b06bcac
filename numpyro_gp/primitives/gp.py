"""``gp``: one Gaussian process as one sample site, or one for each member of the plates around it."""

from typing import Any, overload

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array, ArrayLike, Shape
from numpyro_gp.beliefs.basis import AbstractBasis, BatchBasis, batch_of_bases, broadcasts_to, in_plates
from numpyro_gp.checks import check_count, check_floating, fail
from numpyro_gp.kernels.base import Kernel, KernelLike, as_kernel
from numpyro_gp.kernels.functionals import Functional
from numpyro_gp.kernels.members import batch_shape
from numpyro_gp.means import Mean, MeanLike, as_mean
from numpyro_gp.neighbours.value import NeighbourRows, Neighbours, NewRows
from numpyro_gp.primitives.function_draw import mean_at
from numpyro_gp.primitives.inducing import report
from numpyro_gp.primitives.lifted import lifted_mean, rows_and_kernel
from numpyro_gp.primitives.members import Levels
from numpyro_gp.primitives.neighbours.latent import gp_by_neighbours
from numpyro_gp.primitives.neighbours.local_process import LocalProcess
from numpyro_gp.primitives.opening import Plates, as_asked, open_process, record
from numpyro_gp.primitives.process import GaussianProcess
from numpyro_gp.programs.compiled import one_program

_build = one_program(batch_of_bases)


def _bases(kernel: Kernel, points: Array, outputs: int | None, jitter: float | None) -> AbstractBasis:
    """One factorisation, or one for each output or member of plates with a kernel or inducing inputs of its own."""
    own, sets = batch_shape(kernel), points.shape[:-2]
    if own and sets and not (broadcasts_to(own, sets) or broadcasts_to(sets, own)):
        required = f"of shape (M, D), shared, or ({', '.join(map(str, own))}, M, D), as the batch of kernels"
        cure = "Put the axes of plates on the left of the points, then that of outputs, or share the points."
        fail("inducing", required, f"shape {points.shape}", cure)
    lead = np.broadcast_shapes(own, sets)
    basis: AbstractBasis = _build(kernel, points, jitter)
    if outputs is not None and lead:
        basis, lead = _of_outputs(basis, lead, outputs, bool(own)), lead[:-1]
    return BatchBasis(basis, lead) if lead else basis


def _of_outputs(basis: AbstractBasis, lead: Shape, outputs: int, is_batch: bool) -> AbstractBasis:
    """The last leading axis of a basis becomes that of outputs; 1 is one basis for all of them."""
    if lead[-1] == outputs:
        return BatchBasis(basis)
    if lead[-1] != 1:
        axis = f"the {'batch of kernels' if is_batch else 'inducing inputs'} has a leading axis of {lead[-1]}"
        cure = "Give the batch of kernels the axes of plates, then that of outputs: 1 where outputs share a kernel."
        fail("outputs", f"{lead[-1]}, as {axis}", outputs, cure)
    return jax.tree.map(lambda leaf: jnp.squeeze(leaf, len(lead) - 1), basis)


def mean_of_members(mean: MeanLike, plates: Plates, functional: int | None = None) -> Mean:
    """A mean function; in plates also an array of levels, one for each member, as sites in them have it.

    ``functional``: the number of columns, where it is to be read at functionals.
    """
    given: Any = mean
    if not plates.names or not hasattr(given, "shape") or not np.ndim(given):
        return lifted_mean(as_mean(mean), functional)
    levels = check_floating("mean", given)
    target = next((shape for shape in (plates.batch, plates.lead) if broadcasts_to(levels.shape, shape)), None)
    if target is None:
        cure = "Sample it in the same plates, or pass a function of the inputs."
        fail("mean", f"one level for each member of {plates}", f"shape {levels.shape}", cure)
    return lifted_mean(Levels(jnp.broadcast_to(levels, target).reshape(plates.lead)), functional)


def _level(
    name: str, mean: MeanLike, points: Array, functional: int | None, outputs: int | None, plates: Plates
) -> Array | None:
    """The mean function at the inducing inputs, ``(*batch, [P,] M)``; None where there is none."""
    if mean is None:
        return None
    own, size, sets = mean_of_members(mean, plates, functional), points.shape[-2], None
    if outputs is not None and points.ndim > 2:  # inducing inputs of each output, one set after the other
        sets = (*points.shape[:-3], outputs, *points.shape[-2:])
        points = jnp.broadcast_to(points, sets).reshape(*sets[:-3], -1, sets[-1])
    if points.ndim > 2:
        points = in_plates(points, points.shape[:-2], plates.batch, name).reshape(*plates.lead, *points.shape[-2:])
    values = mean_at(own, points, (*plates.lead, points.shape[-2]), outputs, points.dtype)
    if outputs is not None and sets is not None:
        values = jnp.diagonal(values.reshape(*plates.lead, outputs, size, outputs), axis1=-3, axis2=-1)
    values = values if outputs is None else jnp.swapaxes(values, -1, -2)
    return values.reshape(*plates.batch, *values.shape[len(plates.lead) :])


@overload
def gp(
    name: str,
    kernel: KernelLike,
    inducing: NeighbourRows,
    *,
    mean: MeanLike = None,
    outputs: int | None = None,
    jitter: float | None = None,
) -> LocalProcess: ...


@overload
def gp(
    name: str,
    kernel: KernelLike,
    inducing: Functional | ArrayLike,
    *,
    mean: MeanLike = None,
    outputs: int | None = None,
    jitter: float | None = None,
) -> GaussianProcess: ...


def gp(
    name: str,
    kernel: KernelLike,
    inducing: Functional | NeighbourRows | ArrayLike,
    *,
    mean: MeanLike = None,
    outputs: int | None = None,
    jitter: float | None = None,
) -> GaussianProcess | LocalProcess:
    """Declare a Gaussian process ``f`` as one latent site; call ``f(X)`` for its values at inputs ``X``.

    The site holds the whitened values ``v`` of the inducing inputs: ``u = L v`` are the values there, with
    ``L L^T = k(Z, Z) + eps I`` and ``v ~ N(0, I)``. The site's value is a point (NUTS, SVGD, NumPyro's guides) or a
    belief (`AutoGP`, `ngp.Belief`); ``f(X)`` is given the point, or has the belief integrated out.

    In plates it is one process for each of their members: ``numpyro.plate("group", G)`` makes ``f(X)`` ``(G, N)``, at
    rows ``(N, D)`` that all share or ``(G, N, D)`` of each. Members that share the kernel share its factorisation.

    Parameters
    ----------
    name : str
        Name of the site.
    kernel : Kernel or callable ``k(X1, X2)``
        Also a batch of kernels, whose leaves have leading axes, as `kernels.stack` or ``jax.vmap`` of its constructor
        makes it: in plates one for each member, ``(G,)``, with ``outputs=P`` one for each output, ``(P,)``, and in
        both ``(G, P)``, or ``(G, 1)`` for outputs that share it.
    inducing : array (M, D), Functional or NeighbourRows
        Inducing inputs ``Z``, or slopes and averages in their place (`ngp.functionals`). For a full Gaussian process
        pass the data ``X`` and call ``f.at_inducing()``, which is ``f(X)`` without a second Gram matrix. Those of each
        member or output have the same leading axes as kernels. Or rows of large data with their neighbours
        (`ngp.neighbours`, with ``others=True``): ``near[idx]`` in the plate of the data, and ``f.at_inducing()`` to
        observe.
    mean : callable, number or None
        Mean function ``X -> (..., N)``; None is zero. In plates also an array of levels, one for each member.
    outputs : int, optional
        Number P of independent functions of the input, on the last axis of what the process returns.
    jitter : float, optional
        Relative to the mean diagonal of ``k(Z, Z)``; 1e-6 in float64, 1e-4 in float32.

    Returns
    -------
    GaussianProcess or LocalProcess
        ``f(X)`` is a Normal of batch shape ``(..., N)``, with ``outputs=P`` of event shape ``(P,)``. By neighbours it
        has ``f.at_inducing()`` and ``f(X)`` alone.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> from numpyro_gp.kernels import RBF
    >>> X, Z = jnp.array([[0.1], [0.2]]), jnp.linspace(0.0, 1.0, 4)[:, None]
    >>> with numpyro.handlers.seed(rng_seed=0):
    ...     ngp.gp("f", RBF(1.0, 0.5), Z)(X).batch_shape
    ...     with numpyro.plate("group", 3):
    ...         g = ngp.gp("g", jax.vmap(RBF)(jnp.ones(3), jnp.array([0.1, 0.2, 0.5])), Z)
    ...     g(X).batch_shape
    (2,)
    (3, 2)
    """
    if isinstance(inducing, (NeighbourRows, Neighbours, NewRows)):
        return gp_by_neighbours(name, as_kernel(kernel), inducing, as_mean(mean), outputs, jitter)
    points, own, functional = rows_and_kernel("inducing", inducing, as_kernel(kernel))
    if outputs is not None:
        outputs = check_count("outputs", outputs)
    basis = _bases(own, points, outputs, jitter)
    shape = (basis.size,) if outputs is None else (outputs, basis.size)
    found = open_process(name, basis, shape, lambda plates: _level(name, mean, points, functional, outputs, plates))
    report(found.name, {"": points})
    own_mean, columns = mean_of_members(mean, found.plates, functional), functional or points.shape[-1]
    basis = as_asked(found.basis, jitter)
    process = GaussianProcess(found.name, found.process, basis, own_mean, outputs, columns, jitter, plates=found.plates)
    return record(process)
