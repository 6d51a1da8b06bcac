"""``additive_gp``: a sum of Gaussian processes as one sample site, with its components kept apart."""

from collections.abc import Mapping

import jax.numpy as jnp
import numpyro.distributions as dist

from numpyro_gp.arrays import Array, ArrayLike, value_type
from numpyro_gp.beliefs.additive_basis import AdditiveBasis
from numpyro_gp.beliefs.additive_optimum import check_components
from numpyro_gp.beliefs.base import AbstractBelief, Point
from numpyro_gp.beliefs.components import component_covariance, component_marginals
from numpyro_gp.checks import check_points
from numpyro_gp.kernels.base import KernelLike
from numpyro_gp.means import MeanLike, Zero, as_mean
from numpyro_gp.primitives.gp import GaussianProcess, open_process, record

__all__ = ["AdditiveGP", "additive_gp"]


@value_type(static=("name", "outputs", "columns"))
class AdditiveGP(GaussianProcess):
    """A sum of Gaussian processes in a model: called, the predictor, and each component."""

    process: AbstractBelief | Point
    basis: AdditiveBasis

    @property
    def predictor(self) -> GaussianProcess:
        """The sum."""
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the components, in order."""
        return self.basis.names

    def components(self, X: ArrayLike) -> dict[str, dist.Normal]:
        """Marginals of each component at ``X`` ``(..., N, D)``, without the mean function: batch shape ``(..., N)``."""
        if isinstance(self.process, Point) and self.process.v.ndim > 1:
            return {name: one(X) for name, one in zip(self.names, self._single_points(self.process), strict=True)}
        inputs = check_points("X", X, self.columns, leading=True)
        mean, variance = component_marginals(self.process, self.basis, inputs.reshape(-1, self.columns))
        shape, scale = inputs.shape[:-1], jnp.sqrt(variance)
        return {name: dist.Normal(mean[c].reshape(shape), scale[c].reshape(shape)) for c, name in enumerate(self.names)}

    def component_covariance(self, X: ArrayLike) -> Array:
        """Covariance between the components at each row of ``X`` ``(..., N, D)``: ``(..., N, C, C)``.

        Off the diagonal it is what mean field over components sets to zero; the sum over both axes is
        the variance of the predictor.
        """
        if isinstance(self.process, Point) and self.process.v.ndim > 1:
            variance = jnp.stack([one(X).variance for one in self._single_points(self.process)], axis=-1)
            eye = jnp.eye(variance.shape[-1], dtype=variance.dtype)
            return variance[..., None] * eye[(None,) * (variance.ndim - 1)]
        inputs = check_points("X", X, self.columns, leading=True)
        flat = component_covariance(self.process, self.basis, inputs.reshape(-1, self.columns))
        return flat.reshape(inputs.shape[:-1] + flat.shape[-2:])

    def _single_points(self, point: Point) -> list[GaussianProcess]:
        """Whitened values in a plate: each component is a process of its own."""
        return [
            GaussianProcess(name, Point(point.v[..., at]), part, Zero(), None, self.columns)
            for name, at, part in zip(self.names, self.basis.slices, self.basis.parts, strict=True)
        ]


def additive_gp(
    name: str,
    kernels: Mapping[str, KernelLike],
    inducing: Mapping[str, ArrayLike],
    *,
    mean: MeanLike = None,
    jitter: float | None = None,
) -> AdditiveGP:
    """Open one sample site for ``f(x) = sum_c f_c(x)`` with independent priors on named components.

    The site holds the whitened inducing values of all components, stacked in the order of ``kernels``
    (mathematics.md section 6.1). Interactions are components whose kernel is a product.

    Parameters
    ----------
    name : str
        Name of the site.
    kernels : dict of Kernel
        One kernel for each component, which reads its own columns: ``RBF(1.0, 0.3).on(0)``.
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
    >>> import jax.numpy as jnp, numpyro
    >>> from numpyro_gp.kernels import RBF
    >>> Z = jnp.linspace(0.0, 1.0, 4)[:, None] * jnp.ones((1, 2))
    >>> with numpyro.handlers.seed(rng_seed=0):
    ...     f = additive_gp("f", {"a": RBF(1.0, 0.5).on(0), "b": RBF(1.0, 0.5).on(1)}, {"a": Z, "b": Z})
    >>> f(Z).batch_shape, f.components(Z)["a"].batch_shape, f.component_covariance(Z).shape
    ((4,), (4,), (4, 2, 2))
    """
    basis = AdditiveBasis.build(*check_components(kernels, inducing), jitter)
    site, process = open_process(name, basis, (basis.size,))
    columns = basis.parts[0].inducing.shape[1]
    return record(AdditiveGP(site, process, basis, as_mean(mean), None, columns, jitter))
