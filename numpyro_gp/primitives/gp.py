"""``gp``: one Gaussian process as one sample site, and the predictor that it returns."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.primitives import Messenger

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.beliefs.base import AbstractBasis, AbstractBelief, Basis, Joint, Marginals, Point, Process, positive
from numpyro_gp.checks import check_count, check_points, fail
from numpyro_gp.kernels.base import KernelLike, as_kernel
from numpyro_gp.linalg import default_jitter, small_cholesky
from numpyro_gp.means import Mean, MeanLike, as_mean
from numpyro_gp.sites import InducingPrior, standard_normal

__all__ = [
    "GaussianProcess",
    "check_name",
    "gp",
    "mean_at",
    "open_process",
    "open_site",
    "record",
    "recorded_processes",
]


AnyProcess = TypeVar("AnyProcess", bound="GaussianProcess")
_recorded: ContextVar[dict[str, "GaussianProcess"] | None] = ContextVar("_recorded", default=None)


class _Named(Messenger):
    """Learns the name under which the handlers around it leave a site: ``a/f`` inside ``scope(prefix="a")``."""

    name = ""

    def postprocess_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "sample":
            self.name = msg["name"]


def open_site(name: str, fn: dist.Distribution, **options: object) -> tuple[str, Any]:
    """Sample a site; return its name in the whole model, and its value."""
    named = _Named()
    with named:
        value = numpyro.sample(check_name("name", name), fn, **options)
    return named.name, value


def open_process(name: str, basis: AbstractBasis, shape: tuple[int, ...]) -> tuple[str, AbstractBelief | Point]:
    """Sample the whitened inducing values of a basis; return the site's name in the whole model, and the process."""
    prior = InducingPrior(check_name("name", name), basis, shape)
    site, value = open_site(name, prior, infer={"numpyro_gp": "gp"})
    return site, prior.process(value)


def record(process: AnyProcess) -> AnyProcess:
    """Add a process to those of `recorded_processes`, under the name of its site in the whole model."""
    recorded = _recorded.get()
    if recorded is not None:
        recorded[process.name] = process
    return process


@contextmanager
def recorded_processes() -> Iterator[dict[str, "GaussianProcess"]]:
    """Collect the processes that a model opens inside the block, by the names of their sites."""
    recorded: dict[str, GaussianProcess] = {}
    token = _recorded.set(recorded)
    try:
        yield recorded
    finally:
        _recorded.reset(token)


@dataclasses.dataclass(frozen=True)
class GaussianProcess:
    """A Gaussian process in a model: call it at inputs to get its marginal distribution there.

    Attributes
    ----------
    name : str
        Site that holds its whitened values, with the prefix of every ``handlers.scope`` around it.
    process : Process
        The point or the belief found at that site (or the conditioned process of `gp_regression`).
    basis : Basis
        Kernel, inducing inputs and their factorisation.
    mean : callable
        Mean function ``X -> (..., N)``, or ``(..., N, P)``.
    outputs : int or None
        Number P of outputs that share kernel and inducing inputs; None for a single function.
    columns : int
        Number D of input columns.
    jitter : float or None
        Relative to the mean prior variance, of draws at several inputs together.
    noise : Array () or (N,), optional
        Noise variance of the data that `gp_regression` conditions the process on.
    """

    name: str
    process: Process
    basis: AbstractBasis
    mean: Mean
    outputs: int | None
    columns: int
    jitter: float | None = None
    noise: Array | None = None

    def __call__(self, X: ArrayLike) -> dist.Distribution:
        """Marginals of ``f`` at ``X`` ``(..., N, D)``: a Normal of batch shape ``(..., N)``.

        With ``outputs=P`` it is a Normal ``.to_event(1)`` of event shape ``(P,)``.

        Each input has a marginal of its own, and its ``.loc`` is a mean, not a function: a ``scan``, a differential
        equation or another process that is fed ``f(x).loc`` loses the variance of the belief and gives another, too
        certain model, without a word. Feed it a function draw: `draw` in a model, for inputs that are all known
        beforehand, and ``Posterior.function_draws`` after the fit.
        """
        inputs = check_points("X", X, self.columns, leading=True)
        if isinstance(self.basis, Basis) and inputs is self.basis.inducing:
            return self.at_inducing()
        return self._normal(*self._marginals(inputs, self.basis, inputs.reshape(-1, self.columns)))

    def at_inducing(self) -> dist.Distribution:
        """``f(Z)`` at the inducing inputs themselves, read off their factor: the same numbers, no new Gram matrix.

        For a full Gaussian process, ``f = gp("f", kernel, X)`` and ``f.at_inducing()``. ``f(X)`` at the very array
        that was passed as inducing inputs does the same; two arguments of a compiled function are two arrays there.
        """
        if not isinstance(self.basis, Basis):
            cure = "Call the process at the inputs: f(X)."
            fail("the process", "one made by gp(), with inducing inputs of its own", "another kind", cure, TypeError)
        basis = dataclasses.replace(self.basis, at_inducing=True)
        return self._normal(*self._marginals(basis.inducing, basis, basis.inducing))

    def _normal(self, mean: Array, variance: Array) -> dist.Distribution:
        normal = dist.Normal(mean, jnp.sqrt(variance))
        return normal if self.outputs is None else normal.to_event(1)

    def joint(self, X: ArrayLike) -> dist.MultivariateNormal:
        """Joint distribution of ``f`` over the rows of ``X`` ``(..., N, D)``, event shape ``(N,)``.

        The batch axes are those left of N, then P for several outputs.
        """
        inputs = check_points("X", X, self.columns, leading=True)
        mean, covariance = self._joint(inputs)
        shift = self._mean_at(inputs)
        mean = mean + (shift if self.outputs is None else jnp.swapaxes(shift, -1, -2))
        return dist.MultivariateNormal(mean, covariance_matrix=self._stabilised(covariance, inputs))

    def draw(self, site: str, X: ArrayLike) -> Array:
        """Values at ``X`` ``(..., N, D)`` of one function drawn by reparametrisation.

        The draw is independent over N (the data plate) and jointly consistent over every axis left
        of it: the inputs of one datum share one function (mathematics.md section 10.2). Its standard normal
        noise is the sample site ``site``, of batch shape ``(..., N)``.

        Returns
        -------
        Array (..., N), or (..., N, P) for several outputs.
        """
        inputs = check_points("X", X, self.columns, leading=True)
        batch = inputs.shape[:-1]
        event = () if self.outputs is None else (self.outputs,)
        standard = standard_normal(batch + event, self.basis.dtype, len(event))
        noise: Array = numpyro.sample(check_name("site", site), standard, infer={"numpyro_gp": "noise"})
        if len(batch) == 1 or all(size == 1 for size in batch[:-1]):
            mean, variance = self._marginals(inputs, self.basis, inputs.reshape(-1, self.columns))
            return mean + jnp.sqrt(variance) * noise
        return self._mean_at(inputs) + self._joint_draw(inputs, noise)

    def _mean_at(self, inputs: Array) -> Array:
        """Mean function at the inputs, with the axes of the result: ``(..., N)`` or ``(..., N, P)``."""
        return mean_at(self.mean, inputs, self.outputs, self.basis.dtype)

    def _marginals(self, inputs: Array, basis: AbstractBasis, rows: Array) -> Marginals:
        """Mean and variance ``(..., N)`` or ``(..., N, P)`` at inputs with these rows, mean function included."""
        batch = inputs.shape[:-1]
        if isinstance(self.process, Point) and self.process.v.ndim > 1 + (self.outputs is not None):
            mean, variance = self._batched_point(self.process, basis, rows, batch)
        else:
            mean, variance = self.process.marginals(basis, rows)
            shape = mean.shape[:-1] + batch
            mean, variance = mean.reshape(shape), variance.reshape(shape)
            if self.outputs is not None:
                mean, variance = jnp.moveaxis(mean, 0, -1), jnp.moveaxis(variance, 0, -1)
        return Marginals(jnp.broadcast_to(self._mean_at(inputs), mean.shape) + mean, variance)

    def _batched_point(self, point: Point, basis: AbstractBasis, rows: Array, batch: tuple[int, ...]) -> Marginals:
        """Whitened values in a plate: their batch axes broadcast against those of the inputs."""
        features, prior = basis.features(rows), basis.diagonal(rows)
        variance = positive(prior - jnp.sum(features**2, axis=0), prior).reshape(batch)
        at_rows = features.T.reshape(batch + features.shape[:1])
        if self.outputs is not None:
            at_rows, variance = at_rows[..., None, :], variance[..., None]
        rank = max(point.v.ndim, at_rows.ndim)
        padded = [array.reshape((1,) * (rank - array.ndim) + array.shape) for array in (point.v, at_rows)]
        mean = jnp.einsum("...m,...m->...", *padded)
        return Marginals(mean, jnp.broadcast_to(variance, mean.shape))

    def _joint(self, inputs: Array) -> Joint:
        """Mean ``(..., [P,] N)`` and covariance over the last batch axis of the inputs."""
        single = partial(self.process.joint, self.basis)
        for _ in inputs.shape[:-2]:
            single = jax.vmap(single)
        return single(inputs)

    def _stabilised(self, covariance: Array, inputs: Array) -> Array:
        """``covariance + eps I``, relative to the mean prior variance at the inputs."""
        relative = default_jitter(covariance.dtype) if self.jitter is None else self.jitter
        amount = relative * jnp.mean(self.basis.diagonal(inputs.reshape(-1, self.columns)))
        eye = jnp.eye(covariance.shape[-1], dtype=covariance.dtype)
        return covariance + amount * eye[(None,) * (covariance.ndim - 2)]

    def _joint_draw(self, inputs: Array, noise: Array) -> Array:
        """Per datum, ``chol(Sigma + eps I) noise`` plus the mean, over all axes left of the data axis."""
        *left, data, columns = inputs.shape
        per_datum = jnp.moveaxis(inputs.reshape(-1, data, columns), 1, 0)
        mean, covariance = self._joint(per_datum)
        factor = small_cholesky(self._stabilised(covariance, per_datum))
        event = () if self.outputs is None else (self.outputs,)
        white = jnp.moveaxis(noise.reshape(per_datum.shape[1], data, *event), 0, -1)
        drawn = mean + jnp.einsum("...ij,...j->...i", factor, white)
        return jnp.moveaxis(drawn, -1, 0).reshape(*left, data, *event)


def mean_at(mean: Mean, inputs: Array, outputs: int | None, dtype: np.dtype) -> Array:
    """Values of a mean function at inputs ``(..., N, D)``: ``(..., N)``, or ``(..., N, P)``."""
    shape = inputs.shape[:-1] + (() if outputs is None else (outputs,))
    value = jnp.asarray(mean(inputs), dtype)
    if value.shape == inputs.shape[:-1] and outputs is not None:
        value = value[..., None]
    if value.ndim and (value.ndim != len(shape) or any(a not in (1, b) for a, b in zip(value.shape, shape))):
        required = f"a function whose value at X of shape {inputs.shape} has shape {shape}"
        cure = "Return one value for each row of X, or one for each row and output."
        fail("mean", required, f"shape {value.shape}", cure)
    return jnp.broadcast_to(value, shape)


def check_name(argument: str, name: object) -> str:
    """Return a site name."""
    if not isinstance(name, str) or not name:
        fail(argument, "the name of a sample site", f"{name!r}", 'Pass a string, such as "f".', TypeError)
    return name


def gp(
    name: str,
    kernel: KernelLike,
    inducing: ArrayLike,
    *,
    mean: MeanLike = None,
    outputs: int | None = None,
    jitter: float | None = None,
) -> GaussianProcess:
    """Open one sample site with the whitened inducing values of a Gaussian process.

    ``u = L v`` are the values at the inducing inputs, ``L L^T = k(Z, Z) + eps I`` and
    ``v ~ N(0, I)``. The site's value is a point (NUTS, SVGD, NumPyro's guides) or a belief
    (`AutoGP`, ``ngp.Belief``); the returned process behaves accordingly.

    Parameters
    ----------
    name : str
        Name of the site.
    kernel : Kernel or callable ``k(X1, X2)``
    inducing : array (M, D)
        Inducing inputs ``Z``. For a full Gaussian process pass the data ``X`` and call ``f.at_inducing()``, which is
        ``f(X)`` without a second Gram matrix.
    mean : callable, number or None
        Mean function ``X -> (..., N)``; None is zero.
    outputs : int, optional
        Number P of independent functions that share kernel and inducing inputs.
    jitter : float, optional
        Relative to the mean diagonal of ``k(Z, Z)``; 1e-6 in float64, 1e-4 in float32.

    Returns
    -------
    GaussianProcess

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro
    >>> from numpyro_gp.kernels import RBF
    >>> with numpyro.handlers.seed(rng_seed=0):
    ...     f = gp("f", RBF(1.0, 0.5), jnp.linspace(0.0, 1.0, 4)[:, None])
    ...     f(jnp.array([[0.1], [0.2]])).batch_shape
    (2,)
    """
    points = check_points("inducing", inducing)
    if outputs is not None:
        outputs = check_count("outputs", outputs)
    basis = Basis.build(as_kernel(kernel), points, jitter)
    shape = (basis.size,) if outputs is None else (outputs, basis.size)
    site, process = open_process(name, basis, shape)
    return record(GaussianProcess(site, process, basis, as_mean(mean), outputs, points.shape[1], jitter))
