"""``gp`` and ``additive_gp``: a process, or a sum of them, as one sample site; in plates one for each member."""

from collections.abc import Mapping
from typing import Any, overload

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from numpyro_gp.arrays import Array, ArrayLike, value_type
from numpyro_gp.beliefs.additive_basis import AdditiveBasis
from numpyro_gp.beliefs.base import AbstractBelief, Point
from numpyro_gp.beliefs.basis import AbstractBasis, BatchBasis, batch_of_bases, broadcasts_to, first_member, in_plates
from numpyro_gp.beliefs.components import component_covariance, component_marginals
from numpyro_gp.beliefs.optimum import check_components
from numpyro_gp.checks import check_count, check_floating, fail
from numpyro_gp.kernels.base import KernelLike, as_kernel
from numpyro_gp.kernels.functionals import Functional, of_one_form
from numpyro_gp.kernels.members import batch_shape
from numpyro_gp.means import Mean, MeanLike, as_mean
from numpyro_gp.neighbours.value import NeighbourRows, Neighbours, NewRows
from numpyro_gp.primitives.function_draw import mean_at
from numpyro_gp.primitives.inducing import report
from numpyro_gp.primitives.lifted import (
    lifted_at_rows,
    lifted_deviation,
    lifted_mean,
    rows_and_kernel,
)
from numpyro_gp.primitives.lines.line_process import gp_on_line
from numpyro_gp.primitives.lines.value import Line, NewTimes
from numpyro_gp.primitives.neighbours.local_process import LocalProcess
from numpyro_gp.primitives.neighbours.row_sites import gp_by_neighbours
from numpyro_gp.primitives.opening import Plates, as_asked, open_process, record
from numpyro_gp.primitives.process import GaussianProcess, Levels
from numpyro_gp.programs.compiled import one_program

_build = one_program(batch_of_bases)


def mean_of_members(mean: MeanLike, plates: Plates, functional: int | None = None) -> Mean:
    """A mean function; in plates also an array of levels, one for each member, as sites in them have it.

    ``functional``: the number of columns, where it is to be read at functionals.
    """
    if not plates.names or not isinstance(mean, (jax.Array, np.ndarray)) or not mean.ndim:
        return lifted_mean(as_mean(mean), functional)
    levels = check_floating("mean", mean)
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
    size, sets = points.shape[-2], None
    if outputs is not None and points.ndim > 2:  # inducing inputs of each output, one set after the other
        sets = (*points.shape[:-3], outputs, *points.shape[-2:])
        points = jnp.broadcast_to(points, sets).reshape(*sets[:-3], -1, sets[-1])
    if points.ndim > 2:
        points = in_plates(points, points.shape[:-2], plates.batch, name).reshape(*plates.lead, *points.shape[-2:])
    level = mean_of_members(mean, plates, functional)
    values = mean_at(level, points, (*plates.lead, points.shape[-2]), outputs, points.dtype)
    if outputs is not None and sets is not None:
        values = jnp.diagonal(values.reshape(*plates.lead, outputs, size, outputs), axis1=-3, axis2=-1)
    values = values if outputs is None else jnp.swapaxes(values, -1, -2)
    return values.reshape(*plates.batch, *values.shape[len(plates.lead) :])


@overload
def gp(
    name: str,
    kernel: KernelLike,
    inducing: NeighbourRows | Line,
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
    inducing: Functional | NeighbourRows | Line | ArrayLike,
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
    if isinstance(inducing, (Line, NewTimes)):
        return gp_on_line(name, as_kernel(kernel), inducing, as_mean(mean), outputs, jitter)
    if isinstance(inducing, (NeighbourRows, Neighbours, NewRows)):
        return gp_by_neighbours(name, as_kernel(kernel), inducing, as_mean(mean), outputs, jitter)
    points, reader, functional = rows_and_kernel("inducing", inducing, as_kernel(kernel))
    if outputs is not None:
        outputs = check_count("outputs", outputs)
    # One factorisation, or one for each output or member of plates with a kernel or inducing inputs of its own.
    kernels, sets = batch_shape(reader), points.shape[:-2]
    if kernels and sets and not (broadcasts_to(kernels, sets) or broadcasts_to(sets, kernels)):
        required = f"of shape (M, D), shared, or ({', '.join(map(str, kernels))}, M, D), as the batch of kernels"
        cure = "Put the axes of plates on the left of the points, then that of outputs, or share the points."
        fail("inducing", required, f"shape {points.shape}", cure)
    lead = np.broadcast_shapes(kernels, sets)
    basis: AbstractBasis = _build(reader, points, jitter)
    if outputs is not None and lead:  # the last axis is that of outputs; 1 is one basis for all of them
        if lead[-1] not in (1, outputs):
            axis = f"the {'batch of kernels' if kernels else 'inducing inputs'} has a leading axis of {lead[-1]}"
            cure = "Give the batch of kernels the axes of plates, then that of outputs: 1 where outputs share a kernel."
            fail("outputs", f"{lead[-1]}, as {axis}", outputs, cure)
        if lead[-1] == outputs:
            basis = BatchBasis(basis)
        else:
            basis = jax.tree.map(lambda leaf: jnp.squeeze(leaf, len(lead) - 1), basis)
        lead = lead[:-1]
    basis = BatchBasis(basis, lead) if lead else basis
    shape = (basis.size,) if outputs is None else (outputs, basis.size)
    site, plates, process, basis = open_process(
        name, basis, shape, lambda plates: _level(name, mean, points, functional, outputs, plates)
    )
    report(site, {"": points})
    level, columns = mean_of_members(mean, plates, functional), functional or points.shape[-1]
    basis = as_asked(basis, jitter)
    return record(GaussianProcess(site, process, basis, level, outputs, columns, jitter, plates=plates))


@value_type(static=("name", "outputs", "columns", "plates"))
class AdditiveGP(GaussianProcess):
    """A sum of Gaussian processes in a model: call it for the sum, or ask for each component.

    `additive_gp` returns it. It is a `GaussianProcess`: ``f(X)`` is the sum, with the attributes documented there.

    Attributes
    ----------
    names : tuple of str
        Names of the components, in order.
    name, process, basis, mean, columns, jitter, plates
        As of `GaussianProcess`.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> X = jnp.linspace(0.0, 1.0, 3)[:, None] * jnp.ones((1, 2))
    >>> kernels = {"a": ngp.kernels.RBF(1.0, 0.5).on(0), "b": ngp.kernels.RBF(1.0, 0.5).on(1)}
    >>> with numpyro.handlers.seed(rng_seed=0):
    ...     f = ngp.additive_gp("f", kernels, {"a": X, "b": X})
    >>> sorted(f.components(X)), f.component_covariance(X).shape
    (['a', 'b'], (3, 2, 2))
    """

    process: AbstractBelief | Point
    basis: Any

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the components, in order."""
        basis: Any = first_member(self.basis)
        return basis.names

    def components(self, X: Functional | ArrayLike) -> dict[str, dist.Normal]:
        """Marginals of each component at ``X`` ``(..., N, D)``, without the mean function: batch shape ``(..., N)``."""
        lifted, inputs = lifted_at_rows(self, X)

        def moments(process: Any, basis: AdditiveBasis, rows: Array) -> list[Array]:
            flat = component_marginals(process, basis, rows.reshape(-1, rows.shape[-1]))
            return [jnp.moveaxis(value.reshape(-1, *rows.shape[:-1]), 0, -1) for value in flat]

        mean, variance = lifted.each(moments, inputs)
        scale = lifted_deviation(lifted, variance)
        return {name: dist.Normal(mean[..., c], scale[..., c]) for c, name in enumerate(self.names)}

    def component_covariance(self, X: Functional | ArrayLike) -> Array:
        """Covariance between the components at each row of ``X`` ``(..., N, D)``: ``(..., N, C, C)``.

        Off the diagonal it is what mean field over components sets to zero; the sum over both axes is
        the variance of the predictor.
        """

        def covariances(process: Any, basis: AdditiveBasis, rows: Array) -> Array:
            flat = component_covariance(process, basis, rows.reshape(-1, rows.shape[-1]))
            return flat.reshape(*rows.shape[:-1], *flat.shape[1:])

        lifted, inputs = lifted_at_rows(self, X)
        return lifted.each(covariances, inputs)


def additive_gp(
    name: str,
    kernels: Mapping[str, KernelLike],
    inducing: Mapping[str, Functional | ArrayLike],
    *,
    mean: MeanLike = None,
    jitter: float | None = None,
) -> AdditiveGP:
    """Declare a sum of Gaussian processes ``f(x) = sum_c f_c(x)`` with named components: a generalised additive model.

    The site holds the whitened inducing values of all components, stacked in the order of ``kernels``
    (mathematics.md section 6.1). Interactions are components whose kernel is a product.

    Parameters
    ----------
    name : str
        Name of the site.
    kernels : dict of Kernel
        One kernel for each component, which reads its own columns: ``RBF(1.0, 0.3).on(0)``. In plates also batches
        of kernels, one for each member, as in `gp`.
    inducing : dict of array (M_c, D)
        Inducing inputs with the same keys. Each has all D columns of ``X``; the kernel reads its own.
    mean : callable, number or None
        Mean function of the sum.
    jitter : float, optional
        Relative to the mean diagonal of each component's Gram matrix.

    Returns
    -------
    AdditiveGP

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> from numpyro_gp.kernels import RBF
    >>> Z = jnp.linspace(0.0, 1.0, 4)[:, None] * jnp.ones((1, 2))
    >>> with numpyro.handlers.seed(rng_seed=0):
    ...     f = ngp.additive_gp("f", {"a": RBF(1.0, 0.5).on(0), "b": RBF(1.0, 0.5).on(1)}, {"a": Z, "b": Z})
    >>> f(Z).batch_shape, f.components(Z)["a"].batch_shape, f.component_covariance(Z).shape
    ((4,), (4,), (4, 2, 2))
    """
    # Rows of components are functionals in all if they are in any.
    readers: Any = kernels
    points: Any = inducing
    sets = list(inducing.values()) if isinstance(inducing, Mapping) else []
    functional = next((rows.columns for rows in sets if isinstance(rows, Functional)), None)
    if functional is not None and isinstance(kernels, Mapping):
        every, readers = dict(zip(inducing, of_one_form(sets), strict=True)), dict(kernels)
        for key in set(kernels) & set(every):
            readers[key] = rows_and_kernel(f"inducing[{key!r}]", every[key], as_kernel(kernels[key]))[1]
        points = {key: rows.rows for key, rows in every.items()}
    basis = AdditiveBasis.build(*check_components(readers, points, leading=True), jitter)
    columns = functional or basis.inducing[0].shape[-1]
    stacked = BatchBasis(basis, basis.lead) if basis.lead else basis
    site, plates, process, at = open_process(name, stacked, (basis.size,))
    report(site, {f", component {key!r}": rows for key, rows in points.items()})
    level = mean_of_members(mean, plates, functional)
    return record(AdditiveGP(site, process, at, level, None, columns, jitter, plates=plates))
