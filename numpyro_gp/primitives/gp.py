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

from numpyro_gp.arrays import Array, ArrayLike, value_type
from numpyro_gp.beliefs.base import (
    AbstractBasis,
    AbstractBelief,
    Basis,
    Joint,
    Marginals,
    OutputsBasis,
    Point,
    Process,
    output_axes,
    positive,
)
from numpyro_gp.beliefs.eager import one_program
from numpyro_gp.checks import check_array, check_count, check_points, fail, when_known
from numpyro_gp.kernels.base import Kernel, KernelLike, as_kernel
from numpyro_gp.kernels.batch import batch_size
from numpyro_gp.linalg import default_jitter, lower_product, small_cholesky
from numpyro_gp.means import Mean, MeanLike, as_mean
from numpyro_gp.primitives.functions import FunctionDraw, function_draw, mean_at
from numpyro_gp.sites import Certain, InducingPrior, standard_normal

__all__ = ["GaussianProcess", "check_name", "gp", "open_process", "open_site", "record", "recorded_processes"]


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


@value_type(static=("name", "outputs", "columns"))
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
        certain model, without a word. Feed it a function draw: in a model `draw`, for inputs that are all known
        beforehand, or `function`; after the fit ``Posterior.function_draws`` or ``Posterior.functions``.
        """
        inputs = check_points("X", X, self.columns, leading=True)
        if isinstance(self.basis, Basis) and inputs is self.basis.inducing:
            return self._normal(None)
        return self._normal(inputs)

    def at(self, output: ArrayLike, X: ArrayLike) -> dist.Normal:
        """Marginals at rows ``X`` ``(N, D)`` of one output each, ``output`` ``(N,)``: batch shape ``(N,)``.

        For groups with data of their own, long and ragged: ``outputs`` are the groups and each row names its own. At
        ``O(N M^2)`` time and memory, whatever the number of outputs; ``f(X)`` has every output at every row.
        """
        if self.outputs is None:
            fail("the process", "one with outputs, to choose from", "one without", "Call f(X).", TypeError)
        inputs, codes = check_points("X", X, self.columns), check_array("output", output)
        cure = "Number the outputs from 0."
        if codes.shape != inputs.shape[:1] or not jnp.issubdtype(codes.dtype, jnp.integer):
            got = f"dtype {codes.dtype}, shape {codes.shape}"
            fail("output", f"whole numbers of shape {inputs.shape[:1]}, one for each row of X", got, cure)

        def check(values: np.ndarray, count: int = self.outputs) -> None:
            if not np.all((values >= 0) & (values < count)):
                fail("output", f"from 0 to {count - 1}", f"{values.min()} to {values.max()}", cure)

        when_known(check, codes)
        axes = output_axes(self.process)
        own = jax.tree.map(lambda leaf, axis: leaf if axis is None else leaf[codes], self.process, axes)
        basis, is_own = self.basis, None
        if isinstance(self.basis, OutputsBasis):
            basis, is_own = jax.tree.map(lambda leaf: leaf[codes], self.basis.members), 0

        def row(own: Process, basis: AbstractBasis, x: Array) -> Marginals:
            return own.marginals(basis, x[None])

        mean, variance = jax.vmap(row, in_axes=(axes, is_own, 0))(own, basis, inputs)
        shift = jnp.take_along_axis(self._mean_at(inputs), codes[:, None], axis=1)
        return dist.Normal((mean + shift)[:, 0], jnp.sqrt(variance[:, 0]))

    def at_inducing(self, with_jitter: bool = False) -> dist.Distribution:
        """``f(Z)`` at the inducing inputs themselves, read off their factor: the same numbers, no new Gram matrix.

        For a full Gaussian process, ``f = gp("f", kernel, X)`` and ``f.at_inducing()``. ``f(X)`` at the very array
        that was passed as inducing inputs does the same; two arguments of a compiled function are two arrays there.

        ``with_jitter``: ``u = L v`` in its place, ``u ~ N(0, k(X, X) + eps I)`` with the jitter in the kernel, as in a
        model written by hand. A point of whitened values then *is* the function: no inverse, no variance that is left
        over and no quadrature. With a belief the marginals are those of ``u``. Of a process that `gp_regression`
        conditions on its data, where the noise stands for the jitter, it is ``f(X)`` at them.
        """
        if not isinstance(self.basis, Basis):
            cure = "Call the process at the inputs: f(X)."
            fail("the process", "one made by gp(), with inducing inputs of its own", "another kind", cure, TypeError)
        if not with_jitter or self.noise is not None:
            return self._normal(None)
        noisy = dataclasses.replace(self, basis=dataclasses.replace(self.basis, is_noisy=True))
        if not isinstance(self.process, Point):
            return noisy._normal(None)
        if self.process.v.ndim == 1:
            values = lower_product(self.basis.gram, self.process.v, self.basis.factor, self.basis.inverse)
            return Certain(self._mean_at(self.basis.inducing) + values)
        certain = Certain(_moments(noisy, None)[0])
        return certain if self.outputs is None else certain.to_event(1)

    def _normal(self, inputs: Array | None) -> dist.Distribution:
        mean, scale = _moments(self, inputs)
        normal = dist.Normal(mean, scale)
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
            mean, scale = _moments(self, inputs)
            return mean + scale * noise
        return self._mean_at(inputs) + self._joint_draw(inputs, noise)

    def function(self, site: str, num_features: int = 256) -> FunctionDraw:
        """One function of this process, to call as often as you like: in a ``scan``, an ODE solver, a root finder.

        Its randomness is standard normal noise, drawn here once in sample sites ``site/weights``, ``site/jitter`` and
        ``site/value``: under SVI it is a reparametrised draw of the belief, under NUTS it follows the point, its
        residual sampled with it (``site/value`` is then of no use). The frequencies of random features are fixed: the
        prior is that of ``num_features`` features (mathematics.md section 13.1). Call it outside every plate.

        Parameters
        ----------
        site : str
            Name of the sites of its noise.
        num_features : int
            Random features of each kernel: cosines and sines of half as many frequencies.
        """
        check_name("site", site)
        opened = set()

        def normal(name: str, shape: tuple[int, ...]) -> Array:
            standard = standard_normal(shape, self.basis.dtype, len(shape))
            noise: Array = numpyro.sample(f"{site}/{name}", standard, infer={"numpyro_gp": "function"})
            opened.add(name)
            return noise

        found = function_draw(self, jax.random.key(0), check_count("num_features", num_features), normal)
        # A guide is set up on a model that holds points, and beliefs must find the same sites in it.
        for name in {"jitter", "value"}.difference(opened):
            normal(name, (self.basis.size,) if self.outputs is None else (self.outputs, self.basis.size))
        if found is None:
            cure = "Register features for it: help(ngp.kernels.features)."
            fail("kernel", "one with features", f"one without, at site {self.name!r}", cure, TypeError)
        return found

    def _mean_at(self, inputs: Array) -> Array:
        """Mean function at the inputs, with the axes of the result: ``(..., N)`` or ``(..., N, P)``."""
        return mean_at(self.mean, inputs, self.outputs, self.basis.dtype)

    def _batched_point(self, point: Point, basis: AbstractBasis, rows: Array, batch: tuple[int, ...]) -> Marginals:
        """Whitened values in a plate: their batch axes broadcast against those of the inputs."""
        if isinstance(basis, OutputsBasis):
            got = f"values of shape {point.v.shape} with a kernel for each output"
            fail(f"the value of site {self.name!r}", "one array (P, M)", got, "Map over more with jax.vmap.")
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


@one_program
def _moments(f: GaussianProcess, at: Array | None) -> tuple[Array, Array]:
    """Mean and standard deviation ``(..., N)`` or ``(..., N, P)`` at inputs, mean function included.

    None stands for the inducing inputs themselves: inside a program an array is told by its place, not by identity.
    """
    basis, inputs = f.basis, at
    if inputs is None:
        assert isinstance(f.basis, Basis)
        basis, inputs = dataclasses.replace(f.basis, at_inducing=True), f.basis.inducing
    batch, rows = inputs.shape[:-1], inputs if inputs.ndim == 2 else inputs.reshape(-1, f.columns)
    if isinstance(f.process, Point) and f.process.v.ndim > 1 + (f.outputs is not None):
        mean, variance = f._batched_point(f.process, basis, rows, batch)
    else:
        mean, variance = f.process.marginals(basis, rows)
        shape = mean.shape[:-1] + batch
        mean, variance = mean.reshape(shape), variance.reshape(shape)
        if f.outputs is not None:
            mean, variance = jnp.moveaxis(mean, 0, -1), jnp.moveaxis(variance, 0, -1)
    return jnp.broadcast_to(f._mean_at(inputs), mean.shape) + mean, jnp.sqrt(variance)


_build = one_program(Basis.build)


def _build_basis(kernel: Kernel, points: Array, outputs: int | None, jitter: float | None) -> Basis | OutputsBasis:
    """One factorisation, or one for each output that has a kernel or inducing inputs of its own."""
    batch, own = batch_size(kernel), points.shape[0] if points.ndim > 2 else None
    if batch is None and own is None:
        return _build(kernel, points, jitter)
    if batch not in (None, outputs):
        cure = "For a batch over groups move it into outputs, or call gp once for each."
        fail("outputs", f"{batch}, as the batch of kernels has a leading axis of {batch}", outputs, cure)
    if points.ndim > 3 or own not in (None, outputs):
        required = f"of shape (M, D), shared, or ({outputs}, M, D), those of each output"
        fail("inducing", required, f"shape {points.shape}", "The first of three axes counts outputs.")
    return OutputsBasis.build(kernel, points, jitter, batch is not None)


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
        With ``outputs=P`` also a batch of P kernels, one for each output: a kernel whose leaves have a leading axis P,
        as `kernels.stack` or ``jax.vmap`` of its constructor makes it.
    inducing : array (M, D)
        Inducing inputs ``Z``. For a full Gaussian process pass the data ``X`` and call ``f.at_inducing()``, which is
        ``f(X)`` without a second Gram matrix. With ``outputs=P`` also ``(P, M, D)``: those of each output.
    mean : callable, number or None
        Mean function ``X -> (..., N)``; None is zero.
    outputs : int, optional
        Number P of independent functions, which share the kernel and the inducing inputs unless each has its own.
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
    points = check_points("inducing", inducing, leading=outputs is not None)
    if outputs is not None:
        outputs = check_count("outputs", outputs)
    basis = _build_basis(as_kernel(kernel), points, outputs, jitter)
    shape = (basis.size,) if outputs is None else (outputs, basis.size)
    site, process = open_process(name, basis, shape)
    return record(GaussianProcess(site, process, basis, as_mean(mean), outputs, points.shape[-1], jitter))
