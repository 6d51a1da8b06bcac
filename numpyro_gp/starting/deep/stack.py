"""`stack`: the layers of a deep Gaussian process from one line, to be called in a model of the user's own."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import check_array, check_choice, check_count, check_finite, check_key, check_points, fail
from numpyro_gp.kernels import RBF
from numpyro_gp.means import Projection, linear_projection
from numpyro_gp.starting.deep.layers import latent_columns, principal_directions
from numpyro_gp.starting.deep.stacked import Part, Stack, Units
from numpyro_gp.starting.inducing import kmeans, random_subset
from numpyro_gp.starting.priors import lengthscale_prior


def stack(
    X: ArrayLike,
    layers: str | Sequence[int],
    inducing: int | ArrayLike = 100,
    *,
    y: ArrayLike | None = None,
    width: int | None = None,
    mixing: int | None = None,
    mean_inducing: int | ArrayLike | None = None,
    mean: str = "gpcent",
    covariance: str = "gp",
    latent: str = "concatenate",
    latent_dim: int = 1,
    kernel: Callable[..., object] = RBF,
    outputs: int | None = None,
    train_inducing: bool = True,
    name: str = "f",
    key: Array | None = None,
) -> Stack:
    """The layers of a deep process: priors, points, means, mixing and recipes, each where it should start.

    Call it in a model as ``f = layers()``, then ``f(X)`` in the data plate, and give ``layers.recipes`` to `AutoGP`.
    Inputs are standardised by the training rows inside. An inner layer adds its functions to a fixed linear mean of
    its inputs (mathematics.md section 5.4): the identity, principal directions where it is narrower, zeros where it is
    wider. A layer that is not wider than the columns before a latent input cuts that off, as in the paper on
    importance weights.

    Parameters
    ----------
    X : array (N, D)
        Training inputs, in their own units.
    layers : str or sequence of int
        ``"GP"`` and ``"LV"`` (latent inputs) joined by ``"-"``, the last a ``"GP"``; or the width of each inner layer,
        as ``[10, 10]`` for three layers.
    inducing : int or array (M, D)
        Inducing inputs of the first layer, in the units of ``X``; a number of them is placed by k-means. Those of the
        others are pushed through the means.
    y : array (N,) or (N, P), optional
        Targets, for the units of what the network for latent inputs reads; None stands for standardised ones.
    width : int, optional
        Width of each inner layer of a string. None is as wide as its inputs.
    mixing : int, optional
        Number of functions of each inner layer, mixed to its width along the principal directions of its mean. None
        is one for each column.
    mean_inducing : int or array (M_a, D), optional
        More points, for the mean of each layer alone, in the units of ``X``; a number of them is drawn from its rows.
    mean : {"gpcent", "gp", "cb", "orthogonal"}
        How the mean stands on them: as in `guides.decoupled_layer`, or as in `guides.orthogonal`.
    covariance : {"gp", "cb"}
        As in `guides.decoupled_layer`.
    latent : {"concatenate", "add"}
        Latent inputs become columns, or noise of learnt scale on each column.
    latent_dim : int
        Number of latent columns of each ``"LV"`` with ``"concatenate"``.
    kernel : callable
        ``kernel(variance, lengthscale)`` of each layer.
    outputs : int, optional
        Of the last layer, as of `gp`.
    train_inducing : bool
        Whether ``inducing`` and ``mean_inducing`` inputs of all layers are parameters. Sampling by NUTS leaves the
        former where they start.
    name : str
        Sites are ``f_0``, ``f_0/lengthscale``, ..., ``f_latent_0``.
    key : PRNG key, optional
        Of the points; None is ``jax.random.key(0)``.

    Returns
    -------
    Stack

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> X = jnp.linspace(0.0, 9.0, 40)[:, None]
    >>> layers = ngp.deep.stack(X, "GP-GP", inducing=8)
    >>> def model(X, y=None):
    ...     f = layers()
    ...     with numpyro.plate("data", X.shape[0]):
    ...         ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)
    >>> guide = ngp.AutoGP(model, layers.recipes)
    """
    rows = check_points("X", X)
    kinds, widths = _plan(layers, width)
    check_choice("mean", mean, ("gpcent", "gp", "cb", "orthogonal"))
    check_choice("covariance", covariance, ("gp", "cb"))
    check_choice("latent", latent, ("concatenate", "add"))
    keys = jax.random.split(jax.random.key(0) if key is None else check_key("key", key), 3)
    units = Units.of(rows)
    points = _points("inducing", inducing, rows, units, partial(kmeans, keys[0]))
    more = None
    if mean_inducing is not None:
        more = _points("mean_inducing", mean_inducing, rows, units, partial(random_subset, keys[1]))
    columns = check_count("latent_dim", latent_dim) if latent == "concatenate" else None
    parts, latents = _parts(kinds, widths, (units.standard(rows), points, more), mixing, columns, keys[2])
    targets = None if y is None else Units.of(_targets(y, rows))
    own = None if outputs is None else check_count("outputs", outputs)
    return Stack(parts, units, targets, name, kinds, latent, latents, own, kernel, mean, covariance, train_inducing)


def _plan(layers: str | Sequence[int], width: int | None) -> tuple[tuple[str, ...], list[int | None]]:
    """``"GP"`` and ``"LV"`` in order, and the width of each inner layer; None for that of its inputs."""
    if isinstance(layers, str):
        kinds = tuple(layers.split("-"))
        if kinds[-1] != "GP" or not set(kinds) <= {"GP", "LV"}:
            required = 'of "GP" and "LV" joined by "-", the last a "GP"'
            fail("layers", required, repr(layers), 'Write "LV-GP-GP", for example.')
        own = None if width is None else check_count("width", width)
        return kinds, [own] * (kinds.count("GP") - 1)
    if isinstance(layers, bytes) or not isinstance(layers, Sequence):
        required = 'a string such as "LV-GP-GP", or the widths of the inner layers'
        fail("layers", required, f"{layers!r:.60}", "Pass [10, 10] for three layers.", TypeError)
    if width is not None:
        fail("width", "None, since layers has the widths", width, 'Leave it out, or pass layers="GP-GP".')
    widths: list[int | None] = [check_count("layers", each) for each in layers]
    return ("GP",) * (len(widths) + 1), widths


def _points(
    argument: str, points: int | ArrayLike, rows: Array, units: Units, choose: Callable[[Array, int], Array]
) -> Array:
    """Points in the units of the stack; a number of them is chosen among the rows."""
    if np.ndim(points) or isinstance(points, (str, float)):
        return units.standard(check_points(argument, cast("ArrayLike", points), rows.shape[1]).astype(rows.dtype))
    count, distinct = check_count(argument, points), len(np.unique(np.asarray(rows), axis=0))
    if count > distinct:
        cure = f"Pass {argument}={distinct} or less, or points of your own."
        fail(argument, f"at most {distinct}, the number of distinct rows of X", count, cure)
    return choose(units.standard(rows), count)


def _targets(y: ArrayLike, rows: Array) -> Array:
    """Targets of any type as columns of numbers, one row for each row of ``X``."""
    targets = check_array("y", y)
    check_finite("y", targets)
    if targets.ndim not in (1, 2) or targets.shape[0] != rows.shape[0]:
        required = f"of shape (N,) or (N, P) with N = {rows.shape[0]}, the rows of X"
        fail("y", required, f"shape {targets.shape}", "Pass the targets of X.")
    return targets.reshape(rows.shape[0], -1).astype(rows.dtype)


# Rows of the data, inducing inputs, and those of the mean where there are any: what goes through the layers together.
Held = tuple[Array, Array, Array | None]


def _parts(
    kinds: tuple[str, ...], widths: list[int | None], held: Held, mixing: int | None, columns: int | None, key: Array
) -> tuple[tuple[Part, ...], tuple[int, ...]]:
    """All layers, each at what the means before it make of data and points; and columns of latent inputs."""
    parts: list[Part] = []
    latents: list[int] = []
    kept = held[0].shape[1]  # columns that are not latent inputs
    for number, kind in enumerate(kinds):
        rows = held[0]
        if kind == "LV":
            latents.append(rows.shape[1] if columns is None else columns)
            if columns is not None:
                keys = jax.random.split(jax.random.fold_in(key, number), 3)
                held = cast("Held", _each(held, *(partial(latent_columns, one, dim=columns) for one in keys)))
            continue
        prior, points = lengthscale_prior(_varied(rows)), held[1:]
        if len(parts) == len(widths):
            break  # the last process
        width = widths[len(parts)] or rows.shape[1]
        mean = _passed_on(rows, kept, width)
        held, kept = cast("Held", _each(held, mean, mean, mean)), width
        parts.append(Part(prior, *points, mean, _mixing(held[0], mixing)))
    return (*parts, Part(prior, *points)), tuple(latents)


def _each(held: Held, *functions: Callable[[Array], Array]) -> tuple[Array | None, ...]:
    return tuple(None if own is None else function(own) for own, function in zip(held, functions, strict=True))


def _varied(rows: Array) -> Array:
    """Rows whose constant columns, which have no scale, get that of a function a priori: 1.

    Zeros that pad a mean are such: only the functions of the layer stand in them.
    """
    signs = jnp.where(jnp.arange(len(rows)) % 2 == 0, 1, -1).astype(rows.dtype)[:, None]
    return jnp.where(jnp.ptp(rows, axis=0, keepdims=True) == 0, signs, rows)


def _passed_on(rows: Array, kept: int, width: int) -> Projection:
    """The fixed mean of a layer: the ``kept`` columns, then latent inputs, then zeros, as far as ``width`` goes."""
    if width > kept:
        return Projection(jnp.eye(rows.shape[1], width, dtype=rows.dtype))
    weights = linear_projection(rows[:, :kept], width).weights
    return Projection(jnp.pad(weights, ((0, rows.shape[1] - kept), (0, 0))))


def _mixing(rows: Array, mixing: int | None) -> Array | None:
    if mixing is None:
        return None
    if check_count("mixing", mixing) > rows.shape[1]:
        cure = "Leave it out for one function to each column."
        fail("mixing", f"at most {rows.shape[1]}, the width of the layer", mixing, cure)
    return principal_directions(rows, mixing)
