"""The predictor that ``gp`` returns: a process in a model, which is called at inputs."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers

from numpyro_gp.arrays import Array, ArrayLike, Shape, value_type
from numpyro_gp.beliefs.base import Joint, Point, Process
from numpyro_gp.beliefs.basis import AbstractBasis, Basis, BatchBasis, marked
from numpyro_gp.checks import check_count, fail
from numpyro_gp.kernels.functionals import Functional, applied
from numpyro_gp.kernels.jitter import ample_jitter, least_factor, least_jitter, scales
from numpyro_gp.linalg import add_to_diagonal, einsum, lower_product, small_cholesky
from numpyro_gp.means import Mean
from numpyro_gp.neighbours.value import NeighbourRows
from numpyro_gp.primitives.function_draw import FunctionDraw, drawn_through, function_draw, mean_at, values_to_draw
from numpyro_gp.primitives.lifted import LiftedMean, lifted_at_rows, lifted_deviation
from numpyro_gp.primitives.members import (
    AtRows,
    Levels,
    check_members,
    marginals_at_inducing,
    marginals_of,
    marginals_of_rows,
    of_members,
)
from numpyro_gp.primitives.neighbours.latent import rest_of_process
from numpyro_gp.primitives.opening import Plates, check_name, record_call
from numpyro_gp.programs.compiled import one_program
from numpyro_gp.sites import Certain, normal_of, standard_normal


@value_type(static=("name", "outputs", "columns", "plates"))
class GaussianProcess:
    """A Gaussian process in a model: call it at inputs to get the distribution of its values there.

    In plates it stands for one process for each of their members: shapes ``(..., N)`` below then have the axes of the
    plates left of N, as ``(G, N)``, from rows ``(N, D)`` that all share or ``(G, N, D)`` of each.

    Attributes
    ----------
    name : str
        Site that holds its whitened values, with the prefix of every ``handlers.scope`` around it.
    process : Process
        The point or the belief found at that site (or the conditioned process of `gp_regression`).
    basis : AbstractBasis
        Kernel, inducing inputs and their factorisation.
    mean : callable
        Mean function ``X -> (..., N)``, or ``(..., N, P)``.
    outputs : int or None
        Number P of outputs; None for a single function.
    columns : int
        Number D of input columns.
    jitter : float or None
        Relative to the mean prior variance, of draws at several inputs together.
    noise : Array () or (N,), optional
        Noise variance of the data that `gp_regression` conditions the process on.
    plates : Plates
        The plates around the site.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> with numpyro.handlers.seed(rng_seed=0):
    ...     f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.5), jnp.array([[0.0], [1.0]]))
    >>> X = jnp.linspace(0.0, 1.0, 4)[:, None]
    >>> f(X).batch_shape, f.joint(X).event_shape
    ((4,), (4,))
    """

    name: str
    process: Process
    basis: AbstractBasis
    mean: Mean
    outputs: int | None
    columns: int
    jitter: float | None = None
    noise: Array | None = None
    plates: Plates = Plates()

    def __call__(self, X: Functional | ArrayLike) -> dist.Distribution:
        """Marginals of ``f`` at ``X`` ``(..., N, D)``: a Normal of batch shape ``(..., N)``.

        With ``outputs=P`` it is a Normal ``.to_event(1)`` of event shape ``(P,)``.

        Each input has a marginal of its own, and its ``.loc`` is a mean, not a function. Do not feed ``f(x).loc`` to a
        ``scan``, a differential equation or another process: that loses the variance of the belief, silently. Feed it
        a function draw. In a model that is `draw`, for inputs that are all known beforehand, or `function`; after the
        fit it is ``Posterior.function_draws`` or ``Posterior.functions``.
        """
        own, inputs = lifted_at_rows(self, X)
        record_call(own, inputs)
        return own._normal(None if inputs is own._inducing else inputs)

    def at(self, member: ArrayLike | tuple[ArrayLike, ...], X: Functional | ArrayLike) -> dist.Distribution:
        """Marginals at rows ``X`` ``(N, D)`` of one member each, or one output: batch shape ``(N,)``.

        For groups with data of their own, long and ragged: each row names its own in ``member`` ``(N,)``, the number
        of an output or of a member of the plate (a tuple of such for several plates, as they come in shapes). It takes
        ``O(N M^2)`` time and a memory that does not grow with N, whatever the number of members. ``f(X)`` has every
        member at every row instead.
        """
        own, inputs = lifted_at_rows(self, X, leading=False)
        record_call(own, inputs)
        lead = self.plates.batch if self.plates.names else (self.outputs or 0,)
        if lead == (0,):
            required = "in a plate or one with outputs, to choose from"
            fail("the process", required, "one without", "Call f(X), which has all there is.", TypeError)
        codes, exist = check_members(member, self.plates.sizes if self.plates.names else lead, inputs.shape[:1])
        mean, variance = marginals_of_rows(self.process, own.basis, lead, codes, inputs)
        mean = mean + own._mean_of_rows(codes, inputs)
        # Inside of a program nobody sees the numbers: JAX would take the last member for those that do not exist.
        mean = jnp.where(exist if mean.ndim == 1 else exist[:, None], mean, jnp.nan)
        normal = normal_of(mean, lifted_deviation(own, variance))
        return self._given(normal.to_event(1) if self.plates.names and self.outputs is not None else normal)

    def _mean_of_rows(self, codes: Array, inputs: Array) -> Array:
        """Mean function at rows that name their member or output."""
        base = self.mean.mean if isinstance(self.mean, LiftedMean) else self.mean
        if isinstance(base, Levels):
            levels = base.of_rows(codes)
            if base is not self.mean:
                levels *= applied(lambda points: jnp.ones(points.shape[:-1], points.dtype), inputs, self.columns)
            return levels if self.outputs is None else levels[:, None]
        every = self._mean_at(inputs, inputs.shape[:-1])
        return every if self.plates.names else jnp.take_along_axis(every, codes[:, None], axis=1)[:, 0]

    @property
    def _inducing(self) -> Array | None:
        """The inducing inputs, with axes of plates where members have their own; None where there are several sets."""
        basis = self.basis.members if self.plates.names and isinstance(self.basis, BatchBasis) else self.basis
        return basis.inducing if isinstance(basis, Basis) else None

    def at_inducing(self, with_jitter: bool = False) -> dist.Distribution:
        """``f(Z)`` at the inducing inputs themselves, read off their factor: the same numbers, no new Gram matrix.

        For a full Gaussian process, ``f = gp("f", kernel, X)`` and ``f.at_inducing()``. ``f(X)`` at the very array
        that was passed as inducing inputs does the same; two arguments of a compiled function are two arrays there.

        ``with_jitter``: ``u = L v`` in its place, ``u ~ N(0, k(X, X) + eps I)`` with the jitter in the kernel, as in a
        model written by hand. A point of whitened values then *is* the function: no inverse, no variance that is left
        over and no quadrature. With a belief the marginals are those of ``u``. Of a process that `gp_regression`
        conditions on its data, where the noise stands for the jitter, it is ``f(X)`` at them.
        """
        if self._inducing is None:
            cure = "Call the process at the inputs: f(X)."
            fail("the process", "one made by gp(), with inducing inputs of its own", "another kind", cure, TypeError)
        if not with_jitter or self.noise is not None:
            return self._normal(None)
        own = dataclasses.replace(self, basis=marked(self.basis, is_noisy=True))
        if not isinstance(self.process, Point):
            return own._normal(None)
        if isinstance(self.basis, Basis) and self.process.v.ndim == 1:
            values = lower_product(self.basis.gram, self.process.v, self.basis.factor, self.basis.inverse)
            return self._of_members(Certain(self._mean_at(self.basis.inducing, values.shape) + values))
        return self._of_members(Certain(_moments_at(own, None)[0]))

    def _normal(self, inputs: Array | None) -> dist.Distribution:
        return self._of_members(normal_of(*_moments_at(self, inputs)))

    def _of_members(self, normal: dist.Distribution) -> dist.Distribution:
        """Marginals of all members and outputs, as `observe` takes them: the last axis is that of the data."""
        normal = normal if self.outputs is None else normal.to_event(1)
        normal.members_of = self.plates
        return self._given(normal)

    def _given(self, normal: dist.Distribution) -> dist.Distribution:
        """Marginals of a process given data say so: `observe` could not score further data by them."""
        if self.noise is not None:
            normal.given_data_of = self.name
        return normal

    def joint(self, X: Functional | ArrayLike) -> dist.MultivariateNormal:
        """Joint distribution of ``f`` over the rows of ``X`` ``(..., N, D)``, event shape ``(N,)``.

        The batch axes are those left of N, then P for several outputs.
        """
        return dist.MultivariateNormal(*self._joint_moments(X))

    def _joint_moments(self, X: Functional | ArrayLike, relative: float | None = None) -> tuple[Array, Array]:
        """Mean ``(..., N)`` and covariance of `joint`; ``relative`` is the jitter (`_joint`)."""
        own, inputs = lifted_at_rows(self, X)
        mean, covariance = own.each(partial(own._joint, relative=relative), inputs)
        return own.with_mean(mean, inputs), covariance

    def with_mean(self, values: Array, inputs: Array) -> Array:
        """Values ``(..., [P,] N)`` at inputs with the mean function, which they lack."""
        level = self._mean_at(inputs, values.shape[: values.ndim - 1 - (self.outputs is not None)] + values.shape[-1:])
        return values + (level if self.outputs is None else jnp.swapaxes(level, -1, -2))

    def sample_jointly(self, key: Array, X: Functional | ArrayLike) -> Array:
        """One draw of `joint`, without a jitter where numbers are of single precision.

        Rounding makes some eigenvalues of a posterior covariance negative there: they are taken for zero. The jitter of
        a factor would be noise of 1 % of the prior's standard deviation, more than precise data leave open.
        """
        if self.jitter is not None or self.basis.dtype.itemsize > 4:
            return jnp.asarray(self.joint(X).sample(key))
        mean, covariance = self._joint_moments(X, 0.0)
        values, vectors = jnp.linalg.eigh(covariance)
        scale = jnp.sqrt(jnp.maximum(values, 0))
        return mean + einsum("...ij,...j->...i", vectors, scale * jax.random.normal(key, mean.shape, mean.dtype))

    def given(self, site: str, near: NeighbourRows) -> dist.Distribution:
        """Marginals at rows of a plate that have neighbours, which hold what the inducing points leave open: a Normal.

        For large data (mathematics.md section 16.5): ``f = ngp.gp("f", kernel, inducing=Z)``, then in the plate of the
        data ``ngp.observe("y", f.given("f_rest", near[idx]), likelihood, obs=y[idx])``, with ``near`` of
        ``others=True``. The rows have pseudo-data of their own at the site ``site``, as those of
        ``ngp.gp(name, kernel, near[idx])``; data of Gaussian noise need none: ``ngp.gp_regression("y", f, near[idx],
        noise**2, obs=y)``. New rows are predicted by ``posterior.predict_at``.
        """
        return rest_of_process(site, self, near).at_inducing()

    def draw(self, site: str, X: Functional | ArrayLike) -> Array:
        """Values ``(..., N)``, or ``(..., N, P)``, at ``X`` ``(..., N, D)`` of one function drawn by reparametrisation.

        The draw is independent over N (the data plate) and jointly consistent over every axis left
        of it: the inputs of one datum share one function (mathematics.md section 10.2). Its standard normal
        noise is the sample site ``site``, of batch shape ``(..., N)``. Members of plates have functions of their own.
        Under `ImportanceWeightedELBO` draws of several inputs go through those of the whitened values of a coupled
        belief, with a noise site ``site/values`` of the model alone, unless ``site`` has a value already.
        """
        own, inputs = lifted_at_rows(self, X)
        record_call(own, inputs)
        layout = self.plates.layout("X", inputs.shape[:-1])
        batch, event = layout.shape + inputs.shape[-2:-1], () if self.outputs is None else (self.outputs,)
        standard = standard_normal(batch + event, self.basis.dtype, len(event))
        with handlers.trace() as trace:
            noise: Array = numpyro.sample(check_name("site", site), standard, infer={"numpyro_gp": "noise"})
        if layout.sets == 1:
            mean, scale = _moments_at(own, inputs)
            return mean + scale * noise
        white = layout.members(noise, 1 + len(event))
        belief = values_to_draw(own.process, own.basis, own.mean, next(iter(trace.values())))
        if belief is None:
            drawn: Array = own.each(own._joint_draw, inputs, white)
        else:
            standard = standard_normal((inputs.shape[-2], *belief.shape), self.basis.dtype, belief.ndim)
            values: Array = numpyro.sample(f"{site}/values", standard, infer={"numpyro_gp": "noise"})
            relative = own._draw_jitter(inputs.dtype)
            drawn = layout.whole(drawn_through(belief, own.basis, layout.rows(inputs), values, white, relative))
        return own._mean_at(inputs, batch) + drawn

    def _draw_jitter(self, dtype: np.dtype) -> float:
        """Relative jitter of draws inside of a step, at inputs that may coincide."""
        return ample_jitter(dtype) if self.jitter is None else self.jitter

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

        def normal(name: str, shape: Shape) -> Array:
            standard = standard_normal(shape, self.basis.dtype, len(shape))
            noise: Array = numpyro.sample(f"{site}/{name}", standard, infer={"numpyro_gp": "function"})
            opened.add(name)
            return noise

        found = function_draw(self, jax.random.key(0), check_count("num_features", num_features), normal)
        # A guide is set up on a model that holds points, and beliefs must find the same sites in it.
        outputs = () if self.outputs is None else (self.outputs,)
        for name in ("jitter", "value"):  # in an order of its own: a site takes the next key
            if name not in opened:
                normal(name, (*self.plates.batch, *outputs, self.basis.size))
        if found is None:
            cure = "Register features for it: help(ngp.kernels.features)."
            fail("kernel", "one with features", f"one without, at site {self.name!r}", cure, TypeError)
        return found

    def each(self, function: AtRows, inputs: Array, *own: Array) -> Any:
        """``function(process, basis, rows, *own)`` of each member, at its rows ``(R, N, D)``.

        Results ``(R, ...)`` get the axes of the plates and those left of N in the inputs; arrays of ``own`` have those
        of the plates.
        """
        layout = self.plates.layout("X", inputs.shape[:-1])
        return jax.tree.map(layout.whole, of_members(function, self.process, self.basis, layout, inputs, own))

    def _mean_at(self, inputs: Array, shape: Shape) -> Array:
        """Mean function at the inputs, with the axes ``shape`` of the result, then P."""
        return mean_at(self.mean, inputs, shape, self.outputs, self.basis.dtype)

    def _joint(self, process: Process, basis: AbstractBasis, rows: Array, relative: float | None = None) -> Joint:
        """Mean ``(R, [P,] N)`` and covariance over each set of rows, ``covariance + eps I``.

        ``eps`` is relative to the mean prior variance at the inputs, of each output that has a kernel of its own. None
        is the least that factorises.
        """
        mean, covariance = jax.vmap(lambda points: process.joint(basis, points))(rows)
        prior = jax.vmap(basis.diagonal)(rows)
        if isinstance(self.mean, LiftedMean):  # rows of several units
            unit = jnp.expand_dims(scales(prior), tuple(range(1, covariance.ndim - prior.ndim)))
        else:
            unit = jnp.mean(prior, axis=(0, -1))
            unit = unit[(None,) * (covariance.ndim - 2 - unit.ndim) + (..., None)]
        relative = self.jitter if relative is None else relative
        if relative is None:
            start = least_jitter(covariance.dtype, covariance.shape[-1])
            amount = least_factor(covariance, unit, start)[0][..., None] * unit
        else:
            amount = relative * unit
        return Joint(mean, add_to_diagonal(covariance, jnp.broadcast_to(amount, covariance.shape[:-1])))

    def _joint_draw(self, process: Process, basis: AbstractBasis, rows: Array, noise: Array) -> Array:
        """Per datum, ``chol(Sigma + eps I) noise``, over the R sets of rows: ``(R, N, [P])``."""
        mean, covariance = self._joint(process, basis, jnp.swapaxes(rows, 0, 1), self._draw_jitter(rows.dtype))
        white = jnp.moveaxis(noise, 0, -1)
        return jnp.moveaxis(mean + einsum("...ij,...j->...i", small_cholesky(covariance), white), -1, 0)


@one_program
def _moments_at(f: GaussianProcess, at: Array | None) -> tuple[Array, Array]:
    """Mean and standard deviation ``(..., N)`` or ``(..., N, P)`` at inputs, mean function included.

    None stands for the inducing inputs themselves: inside a program an array is told by its place, not by identity.
    """
    if at is not None:
        mean, variance = f.each(marginals_of, at)
        shape = mean.shape if f.outputs is None else mean.shape[:-1]
        return f._mean_at(at, shape) + mean, lifted_deviation(f, variance)
    inducing = f._inducing
    assert inducing is not None
    size, columns = inducing.shape[-2:]
    shape, found = (*f.plates.lead, size), marginals_at_inducing(f.process, f.basis)
    if f.outputs is not None:
        found = jnp.swapaxes(found[0], -1, -2), jnp.swapaxes(found[1], -1, -2)
    event = () if f.outputs is None else (f.outputs,)
    mean, variance = (value.reshape(shape + event) for value in found)
    points = inducing if inducing.ndim == 2 else inducing.reshape(*shape, columns)
    return f._mean_at(points, shape) + mean, lifted_deviation(f, variance)
