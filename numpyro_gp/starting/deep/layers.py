"""Where a deep Gaussian process starts: mean functions, inducing inputs and mixing matrices of each layer.

Layers are ordinary calls of `gp` and ``.draw`` in the user's model; these helpers return the values to put there, and
`stack` makes the calls.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import check_count, check_floating, check_key, check_points, fail
from numpyro_gp.linalg import matmul
from numpyro_gp.means import Projection, linear_projection

# Whitened standard deviation of inner layers at the start: samples then pass nearly unchanged
# (mathematics.md section 5.4).
INNER_SCALE = 1e-2


class Layer(NamedTuple):
    """Where one layer of a deep Gaussian process starts: what `initial_layers` returns for each.

    Attributes
    ----------
    inducing : Array (M, D_in)
    mean : Projection or None
        Fixed linear mean of an inner layer; None, which is zero, for the last.
    scale : float
        Whitened standard deviation for the recipe: ``coupled(scale=...)``.

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> X = np.random.default_rng(0).normal(size=(20, 2))
    >>> inner, last = ngp.deep.initial_layers(X, X[:5], widths=[2])
    >>> inner.scale, last.scale, last.mean is None
    (0.01, 1.0, True)
    """

    inducing: Array
    mean: Projection | None
    scale: float


def initial_layers(
    X: ArrayLike, inducing: ArrayLike, widths: Sequence[int], *, inner_scale: float = INNER_SCALE
) -> list[Layer]:
    """Where a deep Gaussian process starts: linear means, and the inducing inputs pushed through them.

    See mathematics.md section 5.4.

    Parameters
    ----------
    X : array (N, D)
        Standardised inputs: the principal directions are theirs.
    inducing : array (M, D)
        Inducing inputs of the first layer.
    widths : sequence of int
        Outputs of each inner layer; ``[]`` gives a single layer.

    Returns
    -------
    list of Layer
        ``len(widths) + 1`` layers; the last has zero mean and starts at its prior.

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> X = np.random.default_rng(0).normal(size=(30, 4))
    >>> [layer.inducing.shape for layer in ngp.deep.initial_layers(X, X[:10], widths=[4, 2])]
    [(10, 4), (10, 4), (10, 2)]
    """
    inputs = check_points("X", X)
    points = check_points("inducing", inducing, columns=inputs.shape[1])
    if isinstance(widths, (int, str)):
        cure = "Pass widths=[2]."
        fail("widths", "a sequence of whole numbers, one for each inner layer", f"{widths!r:.60}", cure, TypeError)
    layers = []
    for width in widths:
        mean = linear_projection(inputs, check_count("widths", width))
        layers.append(Layer(points, mean, inner_scale))
        inputs, points = mean(inputs), mean(points)
    return [*layers, Layer(points, None, 1.0)]


def latent_columns(key: Array, inducing: ArrayLike, dim: int = 1) -> Array:
    """Inducing inputs for a layer above `latent_inputs`: columns drawn from the prior ``N(0, I)`` are appended.

    Parameters
    ----------
    key : PRNG key
    inducing : array (M, D)
    dim : int
        Number of latent columns.

    Returns
    -------
    Array (M, D + dim)

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.deep.latent_columns(jax.random.key(0), jnp.zeros((4, 2))).shape
    (4, 3)
    """
    points = check_points("inducing", inducing)
    extra = jax.random.normal(check_key("key", key), (points.shape[0], check_count("dim", dim)), points.dtype)
    return jnp.concatenate([points, extra], axis=-1)


def principal_directions(X: ArrayLike, outputs: int) -> Array:
    """The mixing matrix with which `mix` starts: the top right-singular vectors of X (mathematics.md section 5.4).

    A layer ``F + g P^T`` with these columns has correlated outputs from ``outputs`` independent functions ``g``
    (mathematics.md section 5.3).

    Parameters
    ----------
    X : array (N, D)
        Standardised inputs.
    outputs : int

    Returns
    -------
    Array (D, outputs)

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.deep.principal_directions(jnp.array([[1.0, 0.0], [-2.0, 0.0]]), 1).round(4).tolist()
    [[1.0], [0.0]]
    """
    return linear_projection(X, outputs).weights


def mix(values: ArrayLike, mixing: ArrayLike) -> Array:
    """Correlated outputs from independent functions: ``g P^T`` over any leading axes.

    Parameters
    ----------
    values : array (..., P)
        Values of independent functions.
    mixing : array (D, P)

    Returns
    -------
    Array (..., D)

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> ngp.deep.mix(jnp.ones((3, 1)), jnp.array([[1.0], [2.0]])).tolist()
    [[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]]
    """
    g, P = check_floating("values", values), check_points("mixing", mixing)
    if g.ndim < 1 or g.shape[-1] != P.shape[1]:
        required = f"with {P.shape[1]} columns, one for each column of mixing {P.shape}"
        fail("values", required, f"shape {g.shape}", "Draw from a gp(..., outputs=P).")
    return matmul(g, P.T)
