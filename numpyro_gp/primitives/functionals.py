"""Linear facts about a function, wherever inputs go: slopes, averages, differences (mathematics.md section 15).

`Derivative` and `Average` are rows in place of inputs, `stack` mixes them. `monotone`, `convex` and `positive` say
inside a model what shape a function has.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from numpyro_gp.arrays import ArrayLike
from numpyro_gp.checks import check_points, check_positive, check_type, fail, when_known
from numpyro_gp.kernels.functionals import Average, Derivative, Functional, Values, as_functional, covariance, stack
from numpyro_gp.kernels.jitter import scales
from numpyro_gp.likelihoods.expectations import composite_cuts, expect
from numpyro_gp.likelihoods.links import log_ndtr
from numpyro_gp.primitives.lifted import lifted_at_rows
from numpyro_gp.primitives.opening import open_term
from numpyro_gp.primitives.process import GaussianProcess

__all__ = ["Average", "Derivative", "Functional", "Values", "convex", "covariance", "monotone", "positive", "stack"]


class Constraint(dist.Unit):
    """``E_q log Phi(L f / nu)`` summed over rows: a term of the joint density that belongs to no datum."""


def positive(name: str, f: GaussianProcess, functional: Functional | ArrayLike, *, tolerance: float = 0.01) -> None:
    """Say that functionals of a function are positive: one factor ``Phi(L_n f / nu_n)`` for each row, a probit.

    ``nu_n`` is ``tolerance`` times the prior standard deviation of ``L_n f``: values below some ``-3 nu_n`` are all but
    excluded. Under a belief it is the expected logarithm, under a point its value. The factors count like data, so that
    hyper-parameters under which the shape is likely are favoured (mathematics.md section 15.2).

    Parameters
    ----------
    name : str
        Name of the site.
    f : GaussianProcess
        What `gp` or `additive_gp` returned, of one output. In plates call it inside the same plates.
    functional : Functional or array (N, D)
        An array bounds the values themselves from below by zero.
    tolerance : float
        Small and positive. A smaller one is stricter, and harder for samplers.

    Returns
    -------
    None

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> Z = jnp.linspace(0.0, 1.0, 5)[:, None]
    >>> def model(X, y=None):
    ...     f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.3), Z)
    ...     ngp.functionals.positive("first below last", f, ngp.functionals.Values(Z[-1:]) - Z[:1])
    ...     with numpyro.plate("data", len(X)):
    ...         ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)
    """
    check_type("f", f, GaussianProcess, "a process, as gp() returns it", "Pass f itself, not f(X).")
    if f.outputs is not None:
        cure = "Open a process for each function that has a shape."
        fail("f", "of one output", f"outputs={f.outputs}", cure)
    rows, small = as_functional(functional), check_positive("tolerance", tolerance)
    lifted, inputs = lifted_at_rows(f, rows)
    variance = lifted.each(lambda _, basis, at: jax.vmap(basis.diagonal)(at), inputs)
    normal: Any = f(rows)
    unit = small * jnp.sqrt(scales(variance))
    mean, variance = normal.loc / unit, normal.variance / unit**2
    terms = expect(log_ndtr, mean, variance, cuts=composite_cuts(0.0, 1.0, mean))
    open_term(name, Constraint(jnp.sum(terms, axis=-1).reshape(f.plates.batch)), terms, f.name, f.plates)


def monotone(
    name: str, f: GaussianProcess, X: ArrayLike, column: int = 0, *, increasing: bool = True, tolerance: float = 0.01
) -> None:
    """Say that a function does not fall, or does not rise, in one of its inputs: slopes at virtual inputs have a sign.

    Between virtual inputs nothing is said: let neighbours be half a lengthscale apart or closer.

    Parameters
    ----------
    name : str
        Name of the site.
    f : GaussianProcess
    X : array (N, D)
        Virtual inputs, where there need be no data.
    column : int
        The input.
    increasing : bool
        False: a function that does not rise.
    tolerance : float
        As of `positive`, in prior standard deviations of the slope.

    Returns
    -------
    None

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> Z = jnp.linspace(0.0, 1.0, 5)[:, None]
    >>> def model(X, y=None):
    ...     f = ngp.gp("f", ngp.kernels.Matern52(1.0, 0.3), Z)
    ...     ngp.functionals.monotone("up", f, jnp.linspace(0.0, 1.0, 10)[:, None])
    ...     with numpyro.plate("data", len(X)):
    ...         ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)
    """
    slopes = Derivative(X, column)
    positive(name, f, slopes if increasing else -slopes, tolerance=tolerance)


def convex(
    name: str, f: GaussianProcess, X: ArrayLike, column: int = 0, *, convex: bool = True, tolerance: float = 0.01
) -> None:
    """Say that a function is convex, or concave, in one of its inputs: its slope rises from each row to the next.

    Differences of slopes ask for one derivative of the function, not two: a `Matern32` process has it.

    Parameters
    ----------
    name : str
        Name of the site.
    f : GaussianProcess
    X : array (N, D)
        Virtual inputs on a line: their column rises from row to row, all others stay as they are.
    column : int
        The input.
    convex : bool
        False: a concave function.
    tolerance : float
        As of `positive`, in prior standard deviations of the differences.

    Returns
    -------
    None

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> Z = jnp.linspace(0.0, 1.0, 5)[:, None]
    >>> def model(X, y=None):
    ...     f = ngp.gp("f", ngp.kernels.Matern52(1.0, 0.3), Z)
    ...     ngp.functionals.convex("bowl", f, jnp.linspace(0.0, 1.0, 10)[:, None])
    ...     with numpyro.plate("data", len(X)):
    ...         ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)
    """
    line = check_points("X", X)
    if len(line) < 2:
        fail("X", "of two or more rows", f"shape {line.shape}", "Pass a line of virtual inputs.")
    slopes = Derivative(line, column)

    def check(values: np.ndarray) -> None:
        steps = np.diff(values, axis=0)
        if np.any(steps[:, column] <= 0) or np.any(np.delete(steps, column, axis=1)):
            cure = "Sort the rows. For several lines call it once for each."
            fail("X", f"rows on a line, rising in column {column} alone", "others", cure)

    when_known(check, line)
    bends = slopes[1:] - slopes[:-1]
    positive(name, f, bends if convex else -bends, tolerance=tolerance)
