"""Functionals by their kind: slopes, averages."""

import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import ArrayLike, value_type
from numpyro_gp.checks import check_count, check_floating, check_points, check_values, fail
from numpyro_gp.kernels.functionals import Functional


@value_type(static=("columns", "slopes"))
class Derivative(Functional):
    """Slopes in one input, ``L_n f = df/dx_column (x_n)``.

    Parameters
    ----------
    X : array (..., N, D)
    column : int
        The input in which they are taken, counted from 0.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> X = jnp.array([[1.0, 5.0], [2.0, 5.0]])
    >>> slopes = ngp.functionals.Derivative(X, 0)
    >>> slopes.shape, slopes.of(lambda X: X[..., 0] ** 2 * X[..., 1]).tolist()
    ((2, 2), [10.0, 20.0])
    """

    def __init__(self, X: ArrayLike, column: int) -> None:
        points, own = check_points("X", X, leading=True), check_count("column", column, minimum=0)
        if own >= points.shape[-1]:
            fail("column", f"less than {points.shape[-1]}, the number of columns of X", own, "Count columns from 0.")
        unit = jnp.asarray(np.arange(points.shape[-1]) == own, points.dtype)
        directions = jnp.broadcast_to(unit, points.shape)[..., None, :]
        self._hold(points[..., None, :], jnp.zeros((*points.shape[:-1], 1), points.dtype), directions, (own,))


@value_type(static=("columns", "slopes"))
class Average(Functional):
    """Averages and totals over points, ``L_n f = sum_q w_nq f(x_nq)``: over bins, regions, windows of exposure.

    Points and weights of a quadrature rule make it an integral. Weights are taken as they are: those that sum to one
    make a mean, widths or areas make a total.

    Parameters
    ----------
    points : array (..., N, Q, D)
        Q points of each row.
    weights : array (..., N, Q) or (Q,), optional
        Zero or positive; ``1 / Q`` each where they are left out.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> points = jnp.array([[[0.0], [1.0], [2.0]], [[2.0], [3.0], [4.0]]])   # two rows of three points
    >>> ngp.functionals.Average(points).of(lambda X: X[..., 0]).round(6).tolist()
    [1.0, 3.0]
    """

    def __init__(self, points: ArrayLike, weights: ArrayLike | None = None) -> None:
        at = check_floating("points", points)
        if weights is None:
            weights = jnp.full(at.shape[-2:-1], 1 / max(1, *at.shape[-2:-1]), at.dtype)
        cure = "For differences subtract one average from another, or write out an ngp.functionals.Functional."
        own = check_values("weights", weights, lambda array: array >= 0, "zero or positive", cure)
        Functional.__init__(self, at, own)
