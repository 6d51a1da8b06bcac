"""The predictor that ``gp`` returns: a process in a model, which is called at inputs."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers

from numpyro_gp.arrays import Array, ArrayLike, Shape, value_type, widened
from numpyro_gp.beliefs.base import Joint, Point, Process
from numpyro_gp.beliefs.basis import AbstractBasis, Basis, BatchBasis, marked
from numpyro_gp.beliefs.coupled import Coupled
from numpyro_gp.beliefs.members import each_member, member_axes
from numpyro_gp.checks import check_array, check_count, check_points, fail, when_known
from numpyro_gp.kernels.functionals import Functional, applied
from numpyro_gp.kernels.jitter import ample_jitter, least_factor, least_jitter, scales
from numpyro_gp.linalg import add_to_diagonal, einsum, lower_product, materialised, small_cholesky
from numpyro_gp.means import Mean
from numpyro_gp.neighbours.value import NeighbourRows
from numpyro_gp.primitives.function_draw import NOISE_IS_FREE, FunctionDraw, drawn_through, function_draw, mean_at
from numpyro_gp.primitives.lifted import LiftedMean, lifted_at_rows, lifted_deviation
from numpyro_gp.primitives.neighbours.row_sites import global_part_of, gp_by_neighbours
from numpyro_gp.primitives.opening import Plates, check_name, record_call
from numpyro_gp.programs.compiled import one_program
from numpyro_gp.sites import Certain, normal_of, standard_normal

# Numbers of a belief or a factor that are gathered for rows at a time.
GATHERED_NUMBERS = 2**22


@value_type()
class Levels:
    """A mean function: one level for each member of plates, ``value`` with the axes ``lead`` of what they return."""

    value: Array

    def __call__(self, X: ArrayLike) -> Array:
        """The levels at each of N rows."""
        size = check_points("X", X, leading=True).shape[-2]
        return jnp.broadcast_to(self.value[..., None], (*self.value.shape, size))


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
        lifted, inputs = lifted_at_rows(self, X)
        record_call(lifted, inputs)
        return lifted._of_members(normal_of(*_moments_at(lifted, None if inputs is lifted._inducing else inputs)))

    def at(self, member: ArrayLike | tuple[ArrayLike, ...], X: Functional | ArrayLike) -> dist.Distribution:
        """Marginals at rows ``X`` ``(N, D)`` of one member each, or one output: batch shape ``(N,)``.

        For groups with data of their own, long and ragged: each row names its own in ``member`` ``(N,)``, the number
        of an output or of a member of the plate (a tuple of such for several plates, as they come in shapes). It takes
        ``O(N M^2)`` time and a memory that does not grow with N, whatever the number of members. ``f(X)`` has every
        member at every row instead.
        """
        lifted, inputs = lifted_at_rows(self, X, leading=False)
        record_call(lifted, inputs)
        lead = self.plates.batch if self.plates.names else (self.outputs or 0,)
        if lead == (0,):
            required = "in a plate or one with outputs, to choose from"
            fail("the process", required, "one without", "Call f(X), which has all there is.", TypeError)
        codes, exist = check_members(member, self.plates.sizes if self.plates.names else lead, inputs.shape[:1])
        # Some rows at a time, and again for derivatives: a row takes the belief and the factor of its member.
        axes, basis = member_axes(self.process), lifted.basis

        def flat(leaf: Array) -> Array:
            return leaf.reshape(-1, *leaf.shape[len(lead) :])

        beliefs = jax.tree.map(lambda leaf, axis: leaf if axis is None else flat(leaf), self.process, axes)
        inner = basis.members if isinstance(basis, BatchBasis) else basis
        is_own = isinstance(basis, BatchBasis) and basis.own
        members = jax.tree.map(flat, inner) if is_own else inner

        @jax.checkpoint
        def row(pair: tuple[Array, Array]) -> tuple[Array, Array]:
            code, x = pair
            of_row = jax.tree.map(lambda leaf, axis: leaf if axis is None else leaf[code], beliefs, axes)
            at = jax.tree.map(lambda leaf: leaf[code], members) if is_own else members
            mean, variance = of_row.marginals(at, x[None])
            return mean[..., 0], variance[..., 0]

        together = max(1, GATHERED_NUMBERS // basis.size**2)
        if len(codes) <= together:
            mean, variance = jax.vmap(row)((codes, inputs))
        else:
            mean, variance = jax.lax.map(row, (codes, inputs), batch_size=together)
        base = lifted.mean.mean if isinstance(lifted.mean, LiftedMean) else lifted.mean
        if isinstance(base, Levels):
            level = base.value.reshape(-1)[codes]
            if base is not lifted.mean:
                level *= applied(lambda points: jnp.ones(points.shape[:-1], points.dtype), inputs, self.columns)
            level = level if self.outputs is None else level[:, None]
        else:
            level = lifted._mean_at(inputs, inputs.shape[:-1])
            level = level if self.plates.names else jnp.take_along_axis(level, codes[:, None], axis=1)[:, 0]
        mean = mean + level
        # Inside of a program nobody sees the numbers: JAX would take the last member for those that do not exist.
        mean = jnp.where(exist if mean.ndim == 1 else exist[:, None], mean, jnp.nan)
        normal: dist.Distribution = normal_of(mean, lifted_deviation(lifted, variance))
        normal = normal.to_event(1) if self.plates.names and self.outputs is not None else normal
        if self.noise is not None:
            normal.given_data_of = self.name
        return normal

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
            return self._of_members(normal_of(*_moments_at(self, None)))
        noisy = dataclasses.replace(self, basis=marked(self.basis, is_noisy=True))
        if not isinstance(self.process, Point):
            return self._of_members(normal_of(*_moments_at(noisy, None)))
        if isinstance(self.basis, Basis) and self.process.v.ndim == 1:
            values = lower_product(self.basis.gram, self.process.v, self.basis.factor, self.basis.inverse)
            return self._of_members(Certain(self._mean_at(self.basis.inducing, values.shape) + values))
        return self._of_members(Certain(_moments_at(noisy, None)[0]))

    def _of_members(self, normal: dist.Distribution) -> dist.Distribution:
        """Marginals of all members and outputs, as `observe` takes them: the last axis is that of the data.

        Those of a process given data say so: `observe` could not score further data by them.
        """
        normal = normal if self.outputs is None else normal.to_event(1)
        normal.members_of = self.plates
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
        lifted, inputs = lifted_at_rows(self, X)
        mean, covariance = lifted.each(partial(lifted._joint, relative=relative), inputs)
        return lifted.with_mean(mean, inputs), covariance

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
        shared = global_part_of(self, near, "the process")
        parts = site, shared.basis.kernel, near, self.mean
        return gp_by_neighbours(*parts, jitter=self.jitter, shared=shared).at_inducing()

    def draw(self, site: str, X: Functional | ArrayLike) -> Array:
        """Values ``(..., N)``, or ``(..., N, P)``, at ``X`` ``(..., N, D)`` of one function drawn by reparametrisation.

        The draw is independent over N (the data plate) and jointly consistent over every axis left
        of it: the inputs of one datum share one function (mathematics.md section 10.2). Its standard normal
        noise is the sample site ``site``, of batch shape ``(..., N)``. Members of plates have functions of their own.
        Under `ImportanceWeightedELBO` draws of several inputs go through those of the whitened values of a coupled
        belief, with a noise site ``site/values`` of the model alone, unless ``site`` has a value already.
        """
        lifted, inputs = lifted_at_rows(self, X)
        record_call(lifted, inputs)
        layout = self.plates.layout("X", inputs.shape[:-1])
        batch, event = layout.shape + inputs.shape[-2:-1], () if self.outputs is None else (self.outputs,)
        standard = standard_normal(batch + event, self.basis.dtype, len(event))
        with handlers.trace() as trace:
            noise: Array = numpyro.sample(check_name("site", site), standard, infer={"numpyro_gp": "noise"})
        if layout.sets == 1:
            mean, scale = _moments_at(lifted, inputs)
            return mean + scale * noise
        white = layout.members(noise, 1 + len(event))
        relative = ample_jitter(inputs.dtype) if self.jitter is None else self.jitter  # inputs may coincide
        (site_of_noise,) = trace.values()
        # Through the whitened values of a coupled belief, of one process at rows of one unit. A value that the user
        # gave to the noise is that of the joint covariance of the inputs.
        is_drawn = NOISE_IS_FREE.get() and site_of_noise["kwargs"]["rng_key"] is not None
        is_plain = not isinstance(lifted.basis, BatchBasis) and not isinstance(lifted.mean, LiftedMean)
        belief = lifted.process
        if is_drawn and is_plain and isinstance(belief, Coupled):
            standard = standard_normal((inputs.shape[-2], *belief.shape), self.basis.dtype, belief.ndim)
            values: Array = numpyro.sample(f"{site}/values", standard, infer={"numpyro_gp": "noise"})
            drawn = layout.whole(drawn_through(belief, lifted.basis, layout.rows(inputs), values, white, relative))
            return lifted._mean_at(inputs, batch) + drawn

        def joint_draw(process: Process, basis: AbstractBasis, rows: Array, noise: Array) -> Array:
            """``chol(Sigma + eps I) noise`` of each datum over its R rows: ``(R, N, [P])``."""
            mean, covariance = lifted._joint(process, basis, jnp.swapaxes(rows, 0, 1), relative)
            shift = einsum("...ij,...j->...i", small_cholesky(covariance), jnp.moveaxis(noise, 0, -1))
            return jnp.moveaxis(mean + shift, -1, 0)

        return lifted._mean_at(inputs, batch) + lifted.each(joint_draw, inputs, white)

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

        drawn = function_draw(self, jax.random.key(0), check_count("num_features", num_features), normal)
        # A guide is set up on a model that holds points, and beliefs must find the same sites in it.
        outputs = () if self.outputs is None else (self.outputs,)
        for name in ("jitter", "value"):  # in an order of its own: a site takes the next key
            if name not in opened:
                normal(name, (*self.plates.batch, *outputs, self.basis.size))
        if drawn is None:
            cure = "Register features for it: help(ngp.kernels.features)."
            fail("kernel", "one with features", f"one without, at site {self.name!r}", cure, TypeError)
        return drawn

    def each(self, function: Callable[..., Any], inputs: Array, *arrays: Array) -> Any:
        """``function(process, basis, rows, *arrays)`` of each member, at its rows ``(R, N, D)``.

        Results ``(R, ...)`` get the axes of the plates and those left of N in the inputs; ``arrays`` have those
        of the plates.
        """
        layout = self.plates.layout("X", inputs.shape[:-1])
        rows, process, basis = layout.rows(inputs), self.process, self.basis
        if not isinstance(basis, BatchBasis) or not self.plates.names:
            values = function(process, basis, rows, *arrays)
        elif layout.is_own:
            values = each_member(function, process, basis, rows, *arrays)
        else:
            values = each_member(lambda member, at, *rest: function(member, at, rows, *rest), process, basis, *arrays)
        return jax.tree.map(layout.whole, values)

    def _mean_at(self, inputs: Array, shape: Shape) -> Array:
        """Mean function at the inputs, with the axes ``shape`` of the result, then P."""
        return mean_at(self.mean, inputs, shape, self.outputs, self.basis.dtype)

    def _joint(self, process: Process, basis: AbstractBasis, rows: Array, relative: float | None = None) -> Joint:
        """Mean ``(R, [P,] N)`` and covariance over each set of rows, its jitter relative to the prior variance."""
        mean, covariance = jax.vmap(lambda points: process.joint(basis, points))(rows)
        prior = jax.vmap(basis.diagonal)(rows)
        if isinstance(self.mean, LiftedMean):  # rows of several units
            unit = jnp.expand_dims(scales(prior), tuple(range(1, covariance.ndim - prior.ndim)))
        else:
            unit = jnp.mean(prior, axis=(0, -1))
            unit = unit[(None,) * (covariance.ndim - 2 - unit.ndim) + (..., None)]
        relative = self.jitter if relative is None else relative
        if relative is None:  # the least that factorises
            start = least_jitter(covariance.dtype, covariance.shape[-1])
            amount = least_factor(covariance, unit, start)[0][..., None] * unit
        else:
            amount = relative * unit
        return Joint(mean, add_to_diagonal(covariance, jnp.broadcast_to(amount, covariance.shape[:-1])))


@one_program
def _moments_at(f: GaussianProcess, at: Array | None) -> tuple[Array, Array]:
    """Mean and standard deviation ``(..., N)`` or ``(..., N, P)`` at inputs; None stands for the inducing inputs."""
    if at is not None:
        mean, variance = f.each(marginals_of, at)
        shape = mean.shape if f.outputs is None else mean.shape[:-1]
        return f._mean_at(at, shape) + mean, lifted_deviation(f, variance)
    inducing = f._inducing
    assert inducing is not None
    size, columns = inducing.shape[-2:]
    shape, moments = (*f.plates.lead, size), marginals_at_inducing(f.process, f.basis)
    if f.outputs is None:
        mean, variance = (value.reshape(shape) for value in moments)
    else:
        mean, variance = (jnp.swapaxes(value, -1, -2).reshape(*shape, f.outputs) for value in moments)
    points = inducing if inducing.ndim == 2 else inducing.reshape(*shape, columns)
    return f._mean_at(points, shape) + mean, lifted_deviation(f, variance)


def check_members(member: object, sizes: Shape, shape: Shape) -> tuple[Array, Array]:
    """Numbers of members, one for each row (of several plates a tuple, which becomes one), and which of them exist."""
    numbers = member if isinstance(member, tuple) else (member,)
    cure = "Number members and outputs from 0."
    if len(numbers) != len(sizes):
        required = f"a tuple of {len(sizes)} arrays, one for each plate"
        fail("member", required, f"{len(numbers)}", "Pass f.at((first, second), X).")
    codes, exist = [], jnp.ones(shape, bool)
    for values, size in zip(numbers, sizes, strict=True):
        array = check_array("member", values)
        if array.shape != shape or not jnp.issubdtype(array.dtype, jnp.integer):
            got = f"dtype {array.dtype}, shape {array.shape}"
            fail("member", f"whole numbers of shape {shape}, one for each row of X", got, cure)

        def check(values: np.ndarray, size: int = size) -> None:
            if not np.all((values >= 0) & (values < size)):
                fail("member", f"from 0 to {size - 1}", f"{values.min()} to {values.max()}", cure)

        when_known(check, array)
        array = widened(array)
        codes.append(array)
        exist &= (array >= 0) & (array < size)
    return jnp.ravel_multi_index(tuple(codes), sizes, mode="clip") if len(codes) > 1 else codes[0], exist


def marginals_of(process: Process, basis: AbstractBasis, rows: Array) -> tuple[Array, Array]:
    """Mean and variance at rows ``(R, N, D)``: ``(R, N)``, or ``(R, N, P)``.

    What is drawn or integrated at a row comes back as a number for it, which the derivative of `materialised` computes
    once: XLA would do it for each inducing point. Several sets stay an axis of their own: in one axis with the rows,
    those that lie on other devices would all be sent.
    """

    def at(points: Array) -> tuple[Array, Array]:
        mean, variance = process.marginals(basis, points)
        return materialised(mean), materialised(variance)

    mean, variance = jax.vmap(at)(rows) if rows.shape[0] > 1 else (value[None] for value in at(rows[0]))
    return (mean, variance) if mean.ndim == 2 else (jnp.swapaxes(mean, 1, 2), jnp.swapaxes(variance, 1, 2))


def marginals_at_inducing(process: Process, basis: AbstractBasis) -> tuple[Array, Array]:
    """Mean and variance ``([P,] M)`` at the inducing inputs, with axes of plates on the left."""
    if isinstance(basis, BatchBasis):
        return each_member(marginals_at_inducing, process, basis)
    assert isinstance(basis, Basis)
    there = dataclasses.replace(basis, at_inducing=True)
    return process.marginals(there, there.inducing)
