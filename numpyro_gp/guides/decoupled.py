"""Recipes for beliefs with a mean basis of their own, and the steps that suit its coefficients.

The Fisher matrix of the coefficients ``a`` is ``H``, which holds no data: a natural-gradient step of
fixed size converges only below a limit that shrinks like ``1/N`` (mathematics.md section 4.5). So the
default divides by the curvature of the data too, or gives preconditioned coordinates to the ordinary optimiser.
"""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.beliefs.basis import Basis
from numpyro_gp.beliefs.coupled import Coupled
from numpyro_gp.beliefs.curvature_taps import Probe
from numpyro_gp.beliefs.decoupled import Decoupled, Hybrid, Orthogonal, Preconditioned
from numpyro_gp.beliefs.layer import DecoupledLayer
from numpyro_gp.checks import check_choice, check_count, check_nonnegative, check_points, check_positive, fail, known
from numpyro_gp.guides.natural import (
    DIAGONAL_EPS,
    lower_factor,
    natural_coefficients,
    natural_param,
    natural_to_mean,
    newton_coefficients,
)
from numpyro_gp.guides.recipes import Recipe, coupled, identity_factor, member_param, start_scale
from numpyro_gp.linalg import einsum, inverse_lower, matmul
from numpyro_gp.sites import InducingPrior

ROUTES = ("adaptive", "diagonal", "exact", "newton")
# Up to so many mean points a step by the curvature of the data, cubic in their number, costs less than it saves.
NEWTON_MOST = 1000


class MeanPoints(NamedTuple):
    """Inducing inputs of the mean alone, under the name of their argument; the rows of them that a step draws."""

    label: str
    points: Array
    columns: int | None
    train_inputs: bool
    first: Array | None = None  # coefficients at the start, where not zero
    parameter: str | None = None  # name of the inputs among the parameters, where not the label

    @classmethod
    def checked(cls, label: str, value: ArrayLike, columns: int | None, train_inputs: bool) -> "MeanPoints":
        """Those that a recipe was given."""
        points = check_points(label, value)
        if columns is not None:
            check_count("columns", columns)
        return cls(label, points, columns, train_inputs)

    def inputs(self, name: str, prior: InducingPrior) -> Array:
        """The inducing inputs, constant or a parameter; refuse sites they cannot belong to."""
        if not isinstance(prior.basis, Basis):
            got = f"one with a {type(prior.basis).__name__}"
            cure = "For an additive site use ngp.guides.coupled() or one of the additive recipes."
            required = "a single Gaussian process, made by gp()"
            fail(f"the site {name!r} of a recipe with {self.label}", required, got, cure, TypeError)
        check_points(f"{self.label} of the recipe for {name!r}", self.points, prior.basis.columns)
        inputs = jnp.asarray(self.points, prior.dtype)
        return numpyro.param(f"{name}/{self.parameter or self.label}", inputs) if self.train_inputs else inputs

    def start(self, prior: InducingPrior) -> Array:
        """Coefficients of each output and member of plates at the start."""
        if self.first is not None:
            return self.first
        return jnp.zeros((*prior.shape()[:-1], len(self.points)), prior.dtype)

    def drawn(self, name: str) -> Array | None:
        """Draw the rows of this step with a key of their own, so that they do not depend on the data batch."""
        if self.columns is None:
            return None
        if (key := numpyro.prng_key()) is None:
            required = "run under numpyro.handlers.seed: its recipe draws columns"
            fail(f"the guide of site {name!r}", required, "no random key", "Use SVI or ngp.fit, or pass columns=None.")
        return jax.random.choice(key, len(self.points), (self.columns,), replace=False)


def decoupled(
    Z_alpha: ArrayLike,
    columns: int | None = None,
    *,
    natural: bool = False,
    scale: float = 0.1,
    train_inputs: bool = False,
) -> Recipe:
    """More points for the mean than for the covariance: `Decoupled`. Prefer `orthogonal` (mathematics.md section 4.2).

    Parameters
    ----------
    Z_alpha : array (M_alpha, D)
        Inducing inputs of the mean. Those of the covariance are the site's own.
    columns : int, optional
        Number of rows of ``K_alpha`` drawn anew in every step for the quadratic term; None is exact.
    natural : bool
        Refused: ``a`` and ``B`` share their natural parameters.
    scale : float
        ``B`` starts at ``scale^2 I``; at zero its gradient vanishes.
    train_inputs : bool
        Whether ``Z_alpha`` is a parameter.

    Returns
    -------
    recipe
        For `numpyro_gp.AutoGP`.

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> recipes = {"f": ngp.guides.decoupled(np.linspace(0.0, 1.0, 100)[:, None])}   # for ngp.AutoGP(model, recipes)
    """
    if natural:
        required = "False for decoupled(): its mean and covariance have no natural parameters of their own"
        cure = "Use ngp.guides.orthogonal(Z_gamma, natural=True), which is as large and better conditioned."
        fail("natural", required, natural, cure)
    start_scale(scale)
    return partial(_decoupled, mean=MeanPoints.checked("Z_alpha", Z_alpha, columns, train_inputs), scale=scale)


def _decoupled(name: str, prior: InducingPrior, *, mean: MeanPoints, scale: float) -> Decoupled:
    inputs, a = mean.inputs(name, prior), member_param(f"{name}/a", prior, mean.start(prior))
    factor = member_param(f"{name}/B_tril", prior, identity_factor(prior.shape(), scale, prior.dtype), 2)
    return Decoupled(inputs, a, jnp.tril(factor), mean.drawn(name))


def hybrid(
    Z_gamma: ArrayLike,
    columns: int | None = None,
    *,
    natural: bool = False,
    scale: float = 1.0,
    train_inputs: bool = False,
) -> Recipe:
    """The family of `orthogonal` in other coordinates, which train more slowly: `Hybrid` (mathematics.md section 4.3).

    ``natural=True`` takes natural steps in ``(m, S)`` for the current ``a``: at
    fixed ``a`` the mean of ``v`` is ``m`` plus a constant, and a shift leaves the natural step as it is. ``a`` itself
    is a plain parameter.

    Parameters
    ----------
    Z_gamma, columns, natural, scale, train_inputs
        As in `orthogonal`.

    Returns
    -------
    recipe
        For `numpyro_gp.AutoGP`.

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> recipes = {"f": ngp.guides.hybrid(np.linspace(0.0, 1.0, 100)[:, None])}   # for ngp.AutoGP(model, recipes)
    """
    mean = MeanPoints.checked("Z_gamma", Z_gamma, columns, train_inputs)
    return partial(_hybrid, mean=mean, beta=coupled(natural=natural, scale=scale))


def _hybrid(name: str, prior: InducingPrior, *, mean: MeanPoints, beta: Recipe) -> Hybrid:
    inputs, a = mean.inputs(name, prior), member_param(f"{name}/a", prior, mean.start(prior))
    own = beta(name, prior)
    return Hybrid(inputs, a, own.mean, own.scale_tril, mean.drawn(name))


def orthogonal(
    Z_gamma: ArrayLike,
    columns: int | None = None,
    *,
    natural: bool = False,
    gamma: str | None = None,
    gamma_step: float = 1.0,
    eps: float | None = None,
    train_inputs: bool = False,
    scale: float = 1.0,
    start: Orthogonal | None = None,
) -> Recipe:
    """For many data: a coupled belief with more points for the mean, `Orthogonal` (mathematics.md section 4.4).

    Parameters
    ----------
    Z_gamma : array (M_gamma, D)
        Points of the mean alone; the site's own inducing inputs carry the covariance.
    columns : int, optional
        Number of rows of ``H a`` drawn anew in every step, independently of the data batch, for the quadratic
        term of the KL: unbiased, ``O(columns M_gamma)`` instead of ``O(M_gamma^2)``. None is exact.
    natural : bool
        Natural parameters for ``(m, C)``, for `ngp.optim.natural_gradient`.
    gamma : str, optional
        What becomes of the coefficients ``a``. None is ``"newton"`` with ``natural=True``, up to 1000 points and
        without ``columns``, else ``"adaptive"``: the faster by time to a bound.

        - ``"newton"``: natural parameters ``(Q a, Q)``, where ``Q`` is a running mean of ``H + F Lambda F^T``, the
          curvature of the batches, over about one over the natural step of them. Safe up to a step of 1 for log-concave
          likelihoods, in minibatches too; ``O(M_gamma^3 + N M_gamma^2)`` in each step.
        - ``"adaptive"``: parameter ``b`` with ``a = b / (diag(H) + eps)`` for the ordinary optimiser, such as Adam.
          ``diag(H)`` is that of the kernel of the moment, and a constant to derivatives: gradients in hyper-parameters
          are those at fixed ``a``, which vanish where the true ones do. ``O(M_gamma M^2)`` in each step.
        - ``"diagonal"``, ``"exact"``: natural steps ``a + rho Q^-1 grad`` with ``Q = diag(H) + eps`` or ``Q = H``
          (eq. 16a and 17), ``O(M_gamma M (M + N))`` and ``O(M_gamma^3)`` in each step: the steps of the paper, for who
          repeats its experiments. They would diverge where ``rho > 2 / max eig(Q^-1 (H + F Lambda F^T))``, which is of
          order ``1/N``: where this eigenvalue is above 1 the step is divided by it (some power iterations in each
          step).
    gamma_step : float
        Of the three natural routes: ``rho`` is ``gamma_step`` times the step of `natural_gradient`.
    eps : float, optional
        Added to ``diag(H)`` or to the diagonal of ``Q``, in the units of the function's variance, and not scaled by
        the kernel's. None is 0.01 for the diagonal routes, which is meant for standardised targets, and the library's
        relative jitter for the others.
    train_inputs : bool
        Whether ``Z_gamma`` is a parameter.
    scale : float
        Standard deviation of the whitened values at the start.
    start : Orthogonal, optional
        Belief to start from, such as that of `ngp.beliefs.orthogonal_optimum`; instead of ``scale``.

    Returns
    -------
    recipe
        For `numpyro_gp.AutoGP`.

    Examples
    --------
    >>> import jax, numpyro, optax, numpyro_gp as ngp
    >>> def model(X, y):
    ...     f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.3), X[::4])
    ...     with numpyro.plate("data", len(X)):
    ...         ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)
    >>> X = jax.numpy.linspace(0.0, 1.0, 16)[:, None]
    >>> guide = ngp.AutoGP(model, {"f": ngp.guides.orthogonal(X[1::4], natural=True)})
    >>> optimiser = ngp.optim.natural_gradient(optax.adam(1e-2), 0.5)
    >>> svi = numpyro.infer.SVI(model, guide, optimiser, numpyro.infer.Trace_ELBO())
    >>> result = ngp.fit(jax.random.key(0), svi, 50, X, jax.numpy.sin(6 * X[:, 0]), progress=False)
    >>> bool(result.losses[-1] < result.losses[0])
    True
    """
    if gamma is not None:
        check_choice("gamma", gamma, ROUTES)
    check_positive("gamma_step", gamma_step)
    if eps is not None:
        check_nonnegative("eps", eps)
    start_scale(scale)
    mean = MeanPoints.checked("Z_gamma", Z_gamma, columns, train_inputs)
    beta = coupled(natural=natural, scale=scale)
    if gamma is None:
        gamma = "newton" if natural and columns is None and len(mean.points) <= NEWTON_MOST else "adaptive"
    if start is not None:
        # Refuse a start that is no belief on these points of the mean, in their order.
        cure = "Pass the rows of its Z_gamma."
        if start.a.shape[-1] != (count := len(mean.points)):
            fail("start", f"a belief on the {count} rows of Z_gamma", f"one on {start.a.shape[-1]}", cure)
        own, given = known(start.Z_gamma), known(mean.points)
        if (
            own is not None
            and given is not None
            and own.shape == given.shape
            and not np.allclose(own, given, rtol=1e-5)
        ):
            fail("start", "a belief on the rows of Z_gamma", "one on others", cure)
        mean, beta = mean._replace(first=start.a), partial(_beta_from, start=start, natural=natural)
    return partial(_orthogonal, at=mean, beta=beta, gamma=gamma, step=gamma_step, eps=eps)


def _orthogonal(
    name: str, prior: InducingPrior, *, at: MeanPoints, beta: Recipe, gamma: str, step: float, eps: float | None
) -> Orthogonal:
    inputs, own, drawn, start = at.inputs(name, prior), beta(name, prior), at.drawn(name), at.start(prior)
    if gamma == "adaptive":
        b = member_param(f"{name}/gamma", prior, jnp.zeros_like(start))
        added = DIAGONAL_EPS if eps is None else eps
        return Preconditioned(inputs, start, own.mean, own.scale_tril, drawn, None, b, added)
    # ``a`` with a derivative that is its preconditioned gradient, and the probe that brings the preconditioner.
    axes, members = prior.event_dim, start.ndim - prior.own_dim
    if gamma == "newton":
        # ``(Q a, Q)``, with the prior variance times I for the first ``Q``: below the curvature, as the prior is.
        points = jnp.asarray(at.points, prior.dtype)

        def variance(_: Array) -> Array:
            return jnp.broadcast_to(jnp.mean(prior.basis.diagonal(points)), start.shape)

        eye = identity_factor(start.shape, 1.0, prior.dtype)
        shift = natural_param(name, "gamma_shift", lambda key: variance(key) * start, axes)
        precision = natural_param(name, "gamma_precision", lambda key: variance(key)[..., None] * eye, axes + 1)
        a, weight, covariance = newton_coefficients(shift, precision, step, eps, members)
        return Orthogonal(inputs, a, own.mean, own.scale_tril, drawn, Probe(weight, covariance, of_data=True))
    eps = DIAGONAL_EPS if gamma == "diagonal" and eps is None else eps
    stored = natural_param(name, "gamma", start, axes)
    a, weight, covariance, top = natural_coefficients(stored, gamma, step, eps, members)
    return Orthogonal(inputs, a, own.mean, own.scale_tril, drawn, Probe(weight, covariance, False, top, eps))


def _beta_from(name: str, prior: InducingPrior, *, start: Orthogonal, natural: bool) -> Coupled:
    """Parameters of ``(m, C)`` that start at those of a belief."""
    mean, factor = jnp.asarray(start.mean, prior.dtype), jnp.asarray(start.scale_tril, prior.dtype)
    if mean.shape != prior.shape():
        cure = "Pass a belief of the same site."
        fail("start", f"over whitened values of shape {prior.shape()}", f"shape {mean.shape}", cure)
    if not natural:
        center = member_param(f"{name}/mean", prior, mean)
        return Coupled(center, member_param(f"{name}/scale_tril", prior, factor, 2, constraint=lower_factor))
    inverse = inverse_lower(factor)
    precision, axes = matmul(jnp.swapaxes(inverse, -1, -2), inverse), prior.event_dim
    shift = natural_param(name, "shift", einsum("...ij,...j->...i", precision, mean), axes)
    return Coupled(*natural_to_mean(shift, natural_param(name, "precision", precision, axes + 1)))


# --------------------------------------------------------------------------------------
# Recipe of the decoupled layer (mathematics.md section 5).


def decoupled_layer(
    Z_mean: ArrayLike,
    mean: str = "gpcent",
    covariance: str = "gp",
    *,
    scale: float = 1.0,
    train_inputs: bool = True,
    columns: int | None = None,
) -> Recipe:
    """A layer of a deep model with points of its own for the mean: `DecoupledLayer`.

    Parameters
    ----------
    Z_mean : array (M_a, D)
        Mean inducing inputs at the start.
    mean : {"gpcent", "gp", "cb"}
    covariance : {"gp", "cb"}
    scale : float
        Standard deviation of the whitened values at the start, as for ``coupled``: 1e-2 or less in inner layers. With
        ``covariance="cb"``, whose start ``B = 0`` would be stationary, 1 means nearly the prior.
    train_inputs : bool
        Whether ``Z_mean`` is a parameter.
    columns : int, optional
        For ``mean="cb"``: number of rows of ``K_aa`` drawn anew in every step for ``a^T K_aa a``. None is exact.

    Returns
    -------
    recipe
        For `numpyro_gp.AutoGP`.

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> Z_mean = np.linspace(0.0, 1.0, 20)[:, None]
    >>> recipes = {"f": ngp.guides.decoupled_layer(Z_mean, scale=0.01)}   # for ngp.AutoGP(model, recipes)
    """
    check_choice("mean", mean, ("gpcent", "gp", "cb"))
    check_choice("covariance", covariance, ("gp", "cb"))
    start_scale(scale)
    if columns is not None and mean != "cb":
        fail("columns", "None but for mean='cb', whose norm is a sum over rows", columns, "Leave it out.")
    points = MeanPoints.checked("Z_mean", Z_mean, columns, train_inputs)._replace(parameter="inducing_mean")
    return partial(_decoupled_layer, at=points, mean=mean, covariance=covariance, scale=scale)


def _decoupled_layer(
    name: str, prior: InducingPrior, *, at: MeanPoints, mean: str, covariance: str, scale: float
) -> DecoupledLayer:
    shape, dtype, points, drawn = prior.shape(), prior.dtype, at.inputs(name, prior), at.drawn(name)
    parameter = member_param(f"{name}/mean", prior, jnp.zeros(shape[:-1] + points.shape[:1], dtype))
    if covariance == "gp":
        start = identity_factor(shape, scale, dtype)
        factor = member_param(f"{name}/scale_tril", prior, start, 2, constraint=lower_factor)
        return DecoupledLayer(points, parameter, mean, scale_tril=factor, columns=drawn)
    # One observation of precision b^2 at each inducing input leaves about 1 / (1 + b^2) of its variance.
    root = max(0.01, math.sqrt(max(scale**-2 - 1, 0.0)))
    lower = jnp.tril(member_param(f"{name}/B_tril", prior, identity_factor(shape, root, dtype), 2))
    return DecoupledLayer(points, parameter, mean, B_tril=lower, columns=drawn)
