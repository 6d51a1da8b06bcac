"""``additive_gp``: a sum of Gaussian processes as one sample site, with its components kept apart."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist

from numpyro_gp.arrays import Array, ArrayLike, value_type
from numpyro_gp.beliefs.additive_basis import AdditiveBasis
from numpyro_gp.beliefs.base import AbstractBelief, Point
from numpyro_gp.beliefs.basis import BatchBasis, first_member
from numpyro_gp.beliefs.components import component_covariance, component_marginals
from numpyro_gp.beliefs.optimum import check_components
from numpyro_gp.kernels.base import KernelLike
from numpyro_gp.kernels.functionals import Functional
from numpyro_gp.means import MeanLike
from numpyro_gp.primitives.gp import mean_of_members
from numpyro_gp.primitives.inducing import report
from numpyro_gp.primitives.lifted import components_of_functionals, lifted_at_rows, lifted_deviation
from numpyro_gp.primitives.opening import open_process, record
from numpyro_gp.primitives.process import GaussianProcess


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
    def predictor(self) -> GaussianProcess:
        """The sum."""
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the components, in order."""
        one: Any = first_member(self.basis)
        return one.names

    def components(self, X: Functional | ArrayLike) -> dict[str, dist.Normal]:
        """Marginals of each component at ``X`` ``(..., N, D)``, without the mean function: batch shape ``(..., N)``."""
        own, inputs = lifted_at_rows(self, X)

        def moments(process: Any, basis: AdditiveBasis, rows: Array) -> list[Array]:
            found = component_marginals(process, basis, rows.reshape(-1, rows.shape[-1]))
            return [jnp.moveaxis(value.reshape(-1, *rows.shape[:-1]), 0, -1) for value in found]

        mean, variance = own.each(moments, inputs)
        scale = lifted_deviation(own, variance)
        return {name: dist.Normal(mean[..., c], scale[..., c]) for c, name in enumerate(self.names)}

    def component_covariance(self, X: Functional | ArrayLike) -> Array:
        """Covariance between the components at each row of ``X`` ``(..., N, D)``: ``(..., N, C, C)``.

        Off the diagonal it is what mean field over components sets to zero; the sum over both axes is
        the variance of the predictor.
        """

        def covariances(process: Any, basis: AdditiveBasis, rows: Array) -> Array:
            flat = component_covariance(process, basis, rows.reshape(-1, rows.shape[-1]))
            return flat.reshape(*rows.shape[:-1], *flat.shape[1:])

        own, inputs = lifted_at_rows(self, X)
        return own.each(covariances, inputs)


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
    readers, points, functional = components_of_functionals(kernels, inducing)
    basis = AdditiveBasis.build(*check_components(readers, points, leading=True), jitter)
    found = open_process(name, BatchBasis(basis, basis.lead) if basis.lead else basis, (basis.size,))
    report(found.name, {f", component {key!r}": own for key, own in points.items()})
    own, columns = mean_of_members(mean, found.plates, functional), functional or basis.inducing[0].shape[-1]
    return record(AdditiveGP(found.name, found.process, found.basis, own, None, columns, jitter, plates=found.plates))
