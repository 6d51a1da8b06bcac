"""``gp_regression``: Gaussian data with the function integrated out, exactly or by the collapsed bound."""

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn, overload

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Float
from numpyro.distributions import constraints

from numpyro_gp.arrays import Array, ArrayLike, Shape, T, over_axes
from numpyro_gp.beliefs.base import Point, Process, above_rounding
from numpyro_gp.beliefs.basis import (
    Basis,
    BatchBasis,
    batch_of_bases,
    broadcasts_to,
    in_plates,
    placed,
    spread,
)
from numpyro_gp.beliefs.coupled import Coupled
from numpyro_gp.beliefs.gaussian_data import GaussianData
from numpyro_gp.beliefs.members import each_member
from numpyro_gp.checks import check_digits, check_factorised, check_positive, fail, when_known
from numpyro_gp.kernels.base import Kernel, KernelLike, as_kernel
from numpyro_gp.kernels.functionals import Functional
from numpyro_gp.kernels.jitter import jittered
from numpyro_gp.kernels.members import batch_shape
from numpyro_gp.linalg import (
    add_to_diagonal,
    cholesky,
    factor_of,
    factorise,
    half_log_det,
    lower_square,
    matmul,
    solve_lower,
)
from numpyro_gp.means import MeanLike, as_mean
from numpyro_gp.neighbours.value import AnyNeighbours, NewRows
from numpyro_gp.primitives.function_draw import mean_at
from numpyro_gp.primitives.gp import mean_of_members
from numpyro_gp.primitives.lifted import rows_and_kernel
from numpyro_gp.primitives.lines.line_process import regression_on_line
from numpyro_gp.primitives.lines.value import Line
from numpyro_gp.primitives.neighbours.local_process import LocalProcess
from numpyro_gp.primitives.neighbours.row_sites import (
    check_plate_of_rows,
    global_part_of,
    regression_by_neighbours,
)
from numpyro_gp.primitives.observe import check_observed_data
from numpyro_gp.primitives.opening import Plates, as_asked, open_site, record, record_call
from numpyro_gp.primitives.process import GaussianProcess

# --------------------------------------------------------------------------------------
# The distribution of Gaussian data with the function integrated out, exactly or by the collapsed bound.


@jax.custom_jvp
def gaussian_log_density(residual: Float[Array, " N"], covariance: Float[Array, "N N"]) -> Float[Array, ""]:
    """``log N(r; 0, S)`` for one vector and its covariance (mathematics.md section 1.4).

    Its derivative is written out, ``dr: -S^-1 r`` and ``dS: (a a^T - S^-1)/2`` with ``a = S^-1 r``, which
    costs one product where differentiating the factorisation costs two solves and a product. The precision ``S^-1`` is
    a part of that derivative, and stands nowhere else.
    """
    factor = factor_of(covariance)
    half = solve_lower(factor, residual)
    return matmul(-0.5 * half, half) - half_log_det(factor) - 0.5 * math.log(2 * math.pi) * residual.shape[0]


@gaussian_log_density.defjvp
def _gaussian_log_density_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    residual, covariance = primals
    factor, inverse = factorise(covariance)
    half = matmul(inverse, residual)
    weights = matmul(inverse.T, half)
    value = matmul(-0.5 * half, half) - half_log_det(factor) - 0.5 * math.log(2 * math.pi) * residual.shape[0]
    slope = 0.5 * (jnp.outer(weights, weights) - lower_square(inverse))
    return value, jnp.sum(slope * tangents[1]) - matmul(weights, tangents[0])


class Marginal(dist.Distribution):
    """One event of N data, with mean ``loc`` ``(..., N)`` and what says how they vary together: ``spread``.

    In plates one for each member. ``lead`` are the axes that kernels and inputs brought, on the left of all arrays;
    they are placed by the shape of the data.
    """

    pytree_data_fields = ("loc", "spread")
    pytree_aux_fields = ("name", "lead")
    has_rsample = True
    support = constraints.real_vector

    def __init__(self, name: str, loc: Array, spread: Any) -> None:
        self.name, self.loc, self.spread, self.lead = name, loc, spread, jax.tree.leaves(spread)[0].shape[:-2]
        super().__init__((), loc.shape[-1:])

    def each(self, function: Callable[..., T], *arrays: Array) -> T:
        """``function(loc, spread, *arrays)`` of each member; ``arrays`` ``(..., N)`` have the axes of the plates."""
        if jax.tree.leaves(self.spread)[0].ndim - 2 > len(self.lead):  # what `scan` stacks: one for each of its steps
            return jax.vmap(lambda step, *arrays: step.each(function, *arrays))(self, *arrays)
        batch, parts = arrays[0].shape[:-1], (self.loc, self.spread)
        parts = in_plates(parts, self.lead, batch, self.name) if self.lead else parts
        axis = 0 if self.lead else None
        return over_axes(function, len(batch), (axis, axis, *[0] * len(arrays)))(*parts, *arrays)

    @property
    def mean(self) -> Array:
        return self.loc


class ExactMarginal(Marginal):
    """``y ~ N(c, k(X, X) + noise)`` (mathematics.md section 3.4); ``spread`` is the covariance."""

    spread: Array

    def sample(self, key: Array, sample_shape: Shape = ()) -> Array:
        noise = jax.random.normal(key, sample_shape + self.event_shape, self.loc.dtype)
        return self.each(lambda loc, covariance, white: loc + matmul(cholesky(covariance), white), noise)

    def log_prob(self, value: Array, intermediates: object = None) -> Array:  # noqa: ARG002
        """Log marginal likelihood."""
        return self.each(lambda loc, covariance, y: gaussian_log_density(y - loc, covariance), value)

    @property
    def variance(self) -> Array:
        return jnp.diagonal(self.spread, axis1=-2, axis2=-1)


class CollapsedMarginal(Marginal):
    """The collapsed bound as the log probability of ``y``; draws come from its low-rank plus diagonal prior.

    ``spread`` is `GaussianData`. ``log_prob`` never exceeds the exact log marginal likelihood; with ``inducing = X`` it
    equals it. It is that of Titsias (2025), which is never below that of 2009.
    """

    spread: GaussianData

    def log_prob(self, value: Array, intermediates: object = None) -> Array:  # noqa: ARG002
        """The tight collapsed bound (mathematics.md section 3.3, per-datum noise)."""
        return self.each(lambda loc, data, y: data.tight_bound((y - loc) / data.scale), value)

    def sample(self, key: Array, sample_shape: Shape = ()) -> Array:
        key_v, key_e = jax.random.split(key)
        shape, dtype = sample_shape + self.event_shape, self.loc.dtype
        v = jax.random.normal(key_v, sample_shape + self.spread.features.shape[-2:-1], dtype)

        def draw(loc: Array, data: GaussianData, v: Array, noise: Array) -> Array:
            explained = jnp.sum(data.features**2, axis=0)
            spread = jnp.sqrt(above_rounding(1 + data.prior - explained, jnp.ones((), dtype)))
            return loc + data.scale * (matmul(v, data.features) + spread * noise)

        return self.each(draw, v, jax.random.normal(key_e, shape, dtype))

    @property
    def variance(self) -> Array:
        return self.spread.scale**2 * (self.spread.prior + 1)


@overload
def gp_regression(
    name: str,
    kernel: KernelLike | GaussianProcess,
    X: AnyNeighbours | Line,
    noise_variance: ArrayLike | None = None,
    *,
    mean: MeanLike = None,
    inducing: Functional | ArrayLike | None = None,
    obs: ArrayLike | None = None,
    jitter: float | None = None,
    noise: ArrayLike | None = None,
) -> LocalProcess: ...


@overload
def gp_regression(
    name: str,
    kernel: KernelLike,
    X: Functional | ArrayLike,
    noise_variance: ArrayLike | None = None,
    *,
    mean: MeanLike = None,
    inducing: Functional | ArrayLike | None = None,
    obs: ArrayLike | None = None,
    jitter: float | None = None,
    noise: ArrayLike | None = None,
) -> GaussianProcess: ...


def gp_regression(
    name: str,
    kernel: KernelLike | GaussianProcess,
    X: Functional | AnyNeighbours | Line | ArrayLike,
    noise_variance: ArrayLike | None = None,
    *,
    mean: MeanLike = None,
    inducing: Functional | ArrayLike | None = None,
    obs: ArrayLike | None = None,
    jitter: float | None = None,
    noise: ArrayLike | None = None,
) -> GaussianProcess | LocalProcess:
    """Fit Gaussian data of noise *variance* ``noise_variance``: the function is integrated out of the model.

    `numpyro_gp.likelihoods.Gaussian` takes a standard deviation instead: its ``scale`` squared is ``noise_variance``.

    The site ``name`` is the data: its log probability is the log marginal likelihood
    (``inducing=None``, ``O(N^3)``) or the collapsed bound (``O(N M^2)``). NUTS, SVGD and MAP then work on
    the hyper-parameters alone. The data are one event: give minibatches to `gp` and `observe` instead.

    In plates it is one such event for each member, ``y`` being ``(G, N)`` in ``plate("group", G)``.

    Large data take `ngp.neighbours` in place of ``X`` (mathematics.md section 16), and then minibatches: in
    ``with numpyro.plate("data", near.size, subsample_size=batch) as idx`` the site of ``near[idx]`` has one term for
    each row, ``log p(y_i | y_N(i))``, ``O(K^3)``. Give it all data, ``obs=y``: neighbours count too. ``near`` itself,
    outside of the plate, is the same number as one event. With ``inducing`` points as well these hold what is global,
    and neighbours the rest: hyper-parameters are then nearer to those of the exact process. It is one event too; for
    minibatches open ``f = ngp.gp("f", kernel, inducing=Z)`` before the plate, and pass ``f`` in place of the kernel.

    Parameters
    ----------
    name : str
        Name of the observed site.
    kernel : Kernel, callable or GaussianProcess
        In plates also a batch of kernels, ``(G,)``, one for each member, as in `gp`. Of rows with neighbours also a
        process that `gp` made, whose inducing points hold what is global; its belief or point is then at its own site.
    X : array (N, D), Functional, Neighbours or NeighbourRows
        Inputs of the data, or what was measured in place of values (`ngp.functionals`); in plates also those of each
        member, ``(G, N, D)``. Of large data rows with their neighbours: ``near``, or ``near[idx]``.
    noise_variance : array () or (N,)
        Variance of the noise, not its standard deviation; in plates also ``(G,)``, that of each member, or ``(G, N)``.
    mean : callable, number or None
        Mean function; in plates also an array of levels, one for each member.
    inducing : array (M, D) or Functional, optional
        Inducing inputs of the collapsed bound; of ``near`` those for what is global (mathematics.md section 16.5).
    obs : array (N,), optional
        Data; None draws them from the prior.
    jitter : float, optional
        Relative jitter of ``k(Z, Z)``. The exact path has none unless it is given: the noise does its work. By
        neighbours it is the least noise of each datum, 1e-8 of the kernel's variance in float64 and 1e-4 in float32.
    noise : array, optional
        The old name of ``noise_variance``. It still works, and warns.

    Returns
    -------
    GaussianProcess or LocalProcess
        The conditioned process: ``f(X_new)``, ``f.joint(X_new)``, ``f.draw(site, X_new)``. By neighbours it has
        ``f(X_new)`` alone.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
    >>> def model(X, y=None):
    ...     scale = numpyro.deterministic("scale", 0.1)
    ...     return ngp.gp_regression("y", ngp.kernels.RBF(1.0, 0.5), X, noise_variance=scale**2, obs=y)
    >>> f = numpyro.handlers.seed(model, 0)(X, jnp.sin(6 * X[:, 0]))
    >>> f(jnp.array([[0.5]])).loc.shape
    (1,)
    """
    if noise is not None:
        text = "The argument noise of gp_regression is now called noise_variance"
        warnings.warn(f"{text}: gp_regression(..., noise_variance=...).", FutureWarning, stacklevel=2)
        if noise_variance is not None:
            cure = "Keep noise_variance alone."
            fail("noise", "left out where noise_variance is given", "both", cure, TypeError)
        noise_variance = noise
    if noise_variance is None:
        fail("noise_variance", "given", "None", "Pass the variance of the noise: noise_variance=scale**2.", TypeError)
    if isinstance(kernel, GaussianProcess):
        if not isinstance(X, AnyNeighbours):
            cure = "Pass the kernel itself, or near = ngp.neighbours(X, K) in place of X."
            fail("kernel", "a kernel, where rows have no neighbours", "a process", cure, TypeError)
        for argument, value in (("mean", mean), ("inducing", inducing)):
            if value is not None:
                got, cure = f"a {type(value).__name__}", f"Give it to ngp.gp: {argument}=."
                fail(argument, "None where a process is given its data", got, cure, TypeError)
        shared = global_part_of(kernel, X, "kernel")
        of_both = shared.basis.kernel, X, noise_variance, kernel.mean
        return regression_by_neighbours(name, *of_both, obs, jitter, shared=shared)
    if isinstance(X, Line):
        return regression_on_line(name, as_kernel(kernel), X, noise_variance, as_mean(mean), obs, jitter, inducing)
    if isinstance(X, AnyNeighbours):
        rest = X, noise_variance, as_mean(mean), obs, jitter, inducing
        return regression_by_neighbours(name, as_kernel(kernel), *rest)
    if isinstance(X, NewRows):
        cure = "Predict with posterior.predict_at(key, X_new, *arguments_of_the_fit), which finds them."
        fail("X", "the rows of the fit, near or near[idx]", "new rows", cure, TypeError)
    check_digits("X", X)
    return _dense_regression(name, as_kernel(kernel), X, noise_variance, mean, inducing, obs, jitter)


def _dense_regression(
    name: str,
    kernel: Kernel,
    X: Functional | ArrayLike,
    noise_variance: ArrayLike,
    mean: MeanLike,
    inducing: Functional | ArrayLike | None,
    obs: ArrayLike | None,
    jitter: float | None,
) -> GaussianProcess:
    """`gp_regression` of rows without neighbours: by their covariance, or by the collapsed bound."""
    inputs, reader, functional = rows_and_kernel("X", X, kernel)
    points, columns, rows = None, functional or inputs.shape[-1], inputs.shape[-2]
    if inducing is not None:
        points, reader, other = rows_and_kernel("inducing", inducing, reader, columns, False)
        functional = functional or other
    check_plate_of_rows(name, inputs, obs)
    # Variances: one (), of each row (N,), or with axes of plates (..., 1) or (..., N).
    variance = check_positive("noise_variance", noise_variance)
    has_rows = variance.shape == (rows,) or (variance.ndim > 1 and variance.shape[-1] in (1, rows))
    variance = variance if has_rows or not variance.ndim else variance[..., None]
    lead, parts = _with_all_axes(name, reader, inputs, variance, mean, functional)
    marginal, basis = _marginal(name, lead, parts, points, jitter)
    obs = None if obs is None else check_observed_data(name, obs, marginal)
    site, plates, y = open_site(name, marginal, obs=obs)
    if jnp.shape(y) != plates.batch + marginal.event_shape:
        required = f"of the shape of f, {plates.batch + marginal.event_shape}, with the axes of {plates}"
        fail(f"obs of site {name!r}", required, f"shape {jnp.shape(y)}", "Pass one row of data for each member.")
    # Noise variances with the axes of what the process returns.
    if variance.ndim > 1 and not plates.names:
        got = f"shape {variance.shape if variance.shape[-1] > 1 else variance.shape[:-1]}"
        cure = "Pass one variance for all rows, or one for each row."
        fail("noise_variance", f"a number or of shape {(rows,)}", got, cure)
    if variance.ndim > 1:
        own = in_plates(variance, variance.shape[:-1], plates.batch, name)
        variance = own.reshape(*plates.lead, variance.shape[-1])
    elif variance.size > 1 and tuple(size for size in plates.batch if size > 1) == variance.shape:
        _refuse_of_both(variance)
    at = placed(BatchBasis(basis, lead) if lead else basis, plates.batch, name)
    # The process given the data, less its mean function.
    process: Process
    if isinstance(marginal, CollapsedMarginal):
        belief = marginal.each(lambda loc, data, y: data.optimum((y - loc) / data.scale)[:2], y)
        when_known(partial(check_factorised, f" of site {name!r}"), *belief)
        process, at = Coupled(*belief), as_asked(at, jitter)
    else:
        residuals = marginal.each(lambda loc, _, y: y - loc, y)
        if isinstance(at, BatchBasis):
            white = each_member(lambda _, basis, residual: matmul(basis.inverse, residual), None, at, residuals)
        else:
            white = matmul(basis.inverse, residuals)
        process = Point(white)
    level = mean_of_members(mean, plates, functional)
    result = record(GaussianProcess(site, process, at, level, None, columns, jitter, variance, plates))
    record_call(result, inputs)
    return result


def _with_all_axes(
    name: str, kernel: Kernel, inputs: Array, noise: Array, mean: MeanLike, functional: int | None
) -> tuple[Shape, tuple[Kernel, Array, Array, Array]]:
    """Kernel, inputs ``(..., N, D)``, noise variances and means ``(..., N)`` with all axes that any of them has.

    Those axes come first. A last one of size 1, that of data, counts for none.
    """
    level: Any = mean
    mean = _trimmed(level, jnp.shape(level)) if hasattr(level, "shape") else mean
    kernel, inputs = _trimmed(kernel, batch_shape(kernel)), _trimmed(inputs, inputs.shape[:-2])
    noise, levels = _trimmed(noise, noise.shape[:-1]), getattr(mean, "shape", ())
    leads = [batch_shape(kernel), inputs.shape[:-2], noise.shape[:-1], levels]
    lead, rows = max(leads, key=lambda shape: (len(shape), shape)), inputs.shape[-2:-1]
    if noise.size > 1 and noise.shape == rows == lead:
        _refuse_of_both(noise)
    if not all(broadcasts_to(shape, lead) for shape in leads):
        cure = "Give each of them one entry for each member of the plates, as sites inside the plates have."
        got = f"leading axes {[shape for shape in leads if shape]}"
        fail(f"the kernel, X, noise variance and mean of {name!r}", "of the same leading axes, or without", got, cure)
    level = mean_of_members(mean, Plates(("",) * len(lead), tuple(range(-len(lead), 0)), lead), functional)
    loc = mean_at(level, inputs, (lead if levels else inputs.shape[:-2]) + rows, None, inputs.dtype)
    full = jnp.broadcast_to(noise, noise.shape[:-1] + rows)
    kernel, inputs = spread(kernel, leads[0], lead), spread(inputs, leads[1], lead)
    return lead, (kernel, inputs, spread(full, leads[2], lead), spread(loc, loc.shape[:-1], lead))


def _trimmed(tree: object, lead: Shape) -> Any:
    """A tree whose leading axes end in no axis of size 1, but for the first."""
    count = len(lead)
    while count > 1 and lead[count - 1] == 1:
        count -= 1
    return jax.tree.map(lambda leaf: leaf.reshape(lead[:count] + leaf.shape[len(lead) :]), tree) if lead else tree


def _refuse_of_both(noise: Array) -> NoReturn:
    """Refuse noise variances of which there are as many as members and as rows."""
    got = f"shape {noise.shape}, which members and rows have both"
    required = f"of shape {(*noise.shape, 1)}, one for each member, or (1, {noise.size}), one for each row"
    fail("noise_variance", required, got, "Add the axis: noise_variance[:, None] or noise_variance[None].")


def _marginal(
    name: str,
    lead: Shape,
    parts: tuple[Kernel, Array, Array, Array],
    points: Array | None,
    jitter: float | None,
) -> tuple[Marginal, Basis]:
    """The distribution of the data, and the basis on which the process given them stands: a point or a belief."""
    kernel, inputs, noise, loc = parts
    if points is not None:
        basis = batch_of_bases(kernel, spread(points, (), lead), jitter)
        return CollapsedMarginal(name, loc, over_axes(GaussianData.build, len(lead))(basis, inputs, noise)), basis

    def covariance(kernel: Kernel, inputs: Array, noise: Array) -> tuple[Array, Array]:
        matrix, added = kernel.matrix(inputs), noise
        if jitter is not None:
            matrix, amount = jittered(matrix, jitter)
            added = amount + noise
        return add_to_diagonal(matrix, noise), added.astype(matrix.dtype)

    matrix, added = over_axes(covariance, len(lead))(kernel, inputs, noise)
    # L_y L_y^T = k(X, X) + noise: features are L_y^-1 k(X, X*), whitened values are L_y^-1 (y - c).
    return ExactMarginal(name, loc, matrix), Basis(kernel, inputs, *factorise(matrix), added, matrix)
