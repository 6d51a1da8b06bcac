"""``observe``: data seen through a likelihood, one term for each datum; and inputs that are latent or noisy."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import (
    check_array,
    check_count,
    check_floating,
    check_nonnegative,
    check_points,
    fail,
    when_known,
)
from numpyro_gp.likelihoods import Likelihood, as_likelihood
from numpyro_gp.primitives.lines.value import Line
from numpyro_gp.primitives.neighbours.local_process import SeenProcesses
from numpyro_gp.primitives.opening import check_name
from numpyro_gp.sites import Certain, Observation, Site, standard_normal


def observe(
    name: str,
    f: object,
    likelihood: object,
    obs: ArrayLike | None = None,
    *,
    offset: ArrayLike | Sequence[ArrayLike | None] | None = None,
) -> Array:
    """Say how data depend on a process: observe ``y``, whose distribution given ``f`` is the likelihood.

    The site's ``log_prob`` is ``E_q(f_n) log p(y_n | f_n)`` for each datum; under the prior or after
    fitting (``obs=None``) the site draws ``y`` from its predictive distribution.

    For leave-one-out densities use `Posterior.to_arviz` or `compare`: `numpyro.infer.log_likelihood`, and ArviZ on an
    `MCMC` itself, read the ``log_prob`` of the site, which is below the predictive density ``log E_q p(y_n | f_n)``.

    Parameters
    ----------
    name : str
        Name of the site.
    f : Normal, Normal.to_event(1), tuple of Normals, or MultivariateNormal
        Marginals of the latent function(s) at the data: ``f(X)`` of a `gp`. Or ``dist.Delta(values)``,
        where they are known given the other sites, as those of `numpyro.contrib.hsgp` are.
    likelihood : Likelihood or callable ``f -> numpyro Distribution``
    obs : array or None
        Data with the batch shape of ``f``, outputs last. Replicates, several data at each row of ``X``, have their
        axes on the left and stand in plates of their own: ``(R, N)`` in ``plate("replicates", R, dim=-2)``.
    offset : array or tuple of arrays, optional
        Known numbers added to the latent function at each datum, as the logarithm of an exposure: of the shape of
        ``f``, or one for each datum of several outputs. Of a likelihood of several latent functions a tuple has one
        for each, None where there is none; a single one is that of the mean, as with `HeteroscedasticGaussian`.
        Take it from an argument of the model, by the rows of the plate: ``offset=offset[rows]``. A prediction needs
        that of the new data.

    Returns
    -------
    Array
        The data, or the draw, with the batch shape of ``f`` (and outputs last).

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> def model(X, y=None):
    ...     f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.5), jnp.array([[0.0], [1.0]]))
    ...     with numpyro.plate("data", len(X)):
    ...         return ngp.observe("y", f(X), ngp.likelihoods.Poisson(), obs=y)
    >>> numpyro.handlers.seed(model, 0)(jnp.zeros((4, 1))).shape   # without data: a draw of counts
    (4,)
    """
    parts = f if isinstance(f, (tuple, list)) else (f,)
    for part in parts if obs is not None else ():
        _check_takes_data(name, part)
    near = [part.near_of for part in parts if hasattr(part, "near_of")]
    members = [part.members_of for part in parts if hasattr(part, "members_of")]
    f = Certain(check_floating("f", f.v)) if isinstance(f, dist.Delta) else f
    density = likelihood_of(f, likelihood)
    observation = Observation(f if offset is None else shifted(name, f, offset, density), density)
    if len(near) == len(parts):
        observation.seen_of = SeenProcesses(name, tuple(near), isinstance(f, tuple), density, offset)
    if obs is not None:
        obs = check_observed_data(name, obs, observation)
        density.check_targets(obs)
    with handlers.trace() as trace:
        try:
            numpyro.sample(check_name("name", name), observation, obs=obs)
        except ValueError as error:
            if "ncompatible shapes" not in str(error):
                raise
            required, got = "of the rows of its plates", f"shape {observation.batch_shape}. {error}"
            cure = "Pass the rows of a subsampled plate, f(X[idx]) and y[idx]; else give the plate as many as X has."
            fail(f"f of site {name!r}", required, got.rstrip("."), _cure_of_rows(observation, cure))
    site: Site = next(iter(trace.values()))
    frames = site["cond_indep_stack"]
    # A process inside of the plate of the data is a function for each row, and the data count N times.
    for plates in members:
        axes = dict(zip(plates.names, plates.axes, strict=True))
        for frame in frames:
            if axes.get(frame.name, frame.dim + 1) != frame.dim + 1:
                required = f"with the members of plate {frame.name!r} on axis {frame.dim}, where the plate is"
                cure = "Make one process for all data outside the plate of the data, or observe groups in plates of "
                cure += "dim=-2. Where the model takes near, pass near = ngp.neighbours(X, 16, others=True) in place "
                cure += "of X."
                fail(f"f of site {name!r}", required, f"them on axis {axes[frame.name] - 1}", cure)
    # Axes of the data that no plate declares, and masks that would spread the data over new axes.
    shapes = ((frame.size,) + (1,) * (-frame.dim - 1) for frame in frames)
    batch = np.broadcast_shapes(observation.batch_shape, *shapes)
    whole, shape = batch + observation.event_shape, jnp.shape(site["value"])
    rank = len(shape) - len(observation.event_shape)
    if site["is_observed"] and (lacking := [frame.name for frame in frames if frame.size > 1 and -frame.dim > rank]):
        cure = "Open the plate of the rows with dim=-1. A plate that the data have no axis of counts them many times."
        fail(f"obs of site {name!r}", f"with an axis of each plate, {lacking} as well", f"shape {shape}", cure)
    if len(shape) > len(whole):
        cure = 'Open a plate for each axis of replicates: numpyro.plate("replicates", R, dim=-2).'
        fail(f"obs of site {name!r}", f"of the shape of f in its plates, {whole}", f"shape {shape}", cure)
    if site["fn"].batch_shape != batch:
        cure = "Mask whole data, mask[:, 0], or give it the shape of the data for each output."
        spread = f"one that spreads them to {site['fn'].batch_shape}"
        fail(f"the mask of site {name!r}", f"of the shape of its data, {batch}", spread, cure)
    return site["value"]


def shifted(name: str, f: Any, offset: Any, likelihood: Likelihood) -> Any:
    """Latent functions plus known numbers: of the mean of the data alone, where the others are of other units."""
    if isinstance(f, (tuple, list)):
        batch = jnp.broadcast_shapes(*[part.batch_shape for part in f])
        moved = _offset_of_each(name, offset, batch, (len(f),), likelihood)
        return tuple(_moved(part, moved[..., number]) for number, part in enumerate(f))
    if not isinstance(f, (dist.Normal, dist.Independent, dist.MultivariateNormal)):
        return f  # refused by its own check
    return _moved(f, _offset_of_each(name, offset, f.batch_shape, f.event_shape, likelihood))


def _moved(f: Any, offset: Array) -> Any:
    if isinstance(f, dist.Independent):
        return _moved(f.base_dist, offset).to_event(1)
    if isinstance(f, dist.MultivariateNormal):
        return dist.MultivariateNormal(f.loc + offset, f.covariance_matrix)
    return Certain(f.loc + offset) if isinstance(f, Certain) else dist.Normal(f.loc + offset, f.scale)


def _offset_of_each(
    name: str, offset: Any, batch: tuple[int, ...], event: tuple[int, ...], likelihood: Likelihood
) -> Array:
    """The offset of each latent function, on the last axis where there are several."""
    whole, is_of_each = batch + event, bool(event) and isinstance(offset, (tuple, list))
    if is_of_each and len(offset) != event[0]:
        cure = "Pass one for each function in its place, None for those that have none."
        fail(f"offset of site {name!r}", f"of {event[0]} parts, one for each function", len(offset), cure)
    parts = [0.0 if part is None else part for part in offset] if is_of_each else [offset]
    arrays = [check_floating("offset", part) for part in parts]
    for array in arrays:
        if array.shape not in ((), batch, batch if is_of_each else whole):
            required = f"a number, or of the shape of the data, {batch}"
            cure = "Pass one number for each datum, offset[rows] inside a subsampled plate."
            fail(f"offset of site {name!r}", required, f"shape {array.shape}", cure)
    if is_of_each:
        return jnp.stack([jnp.broadcast_to(array, batch) for array in arrays], axis=-1)
    if not event or arrays[0].shape == whole:
        return jnp.broadcast_to(arrays[0], whole)
    each = jnp.broadcast_to(arrays[0][..., None], whole)
    if likelihood.num_latent == 1:  # outputs of one kind
        return each
    if (number := likelihood.mean_function) is None:
        required = f"one for each of the {event[0]} latent functions of {type(likelihood).__name__}"
        cure = "Pass a tuple of offsets in the order of the functions, None where there is none: offset=(offset, None)."
        fail(f"offset of site {name!r}", required, f"one of shape {arrays[0].shape} for all", cure)
    return jnp.where(jnp.arange(event[0]) == number, each, 0)


def likelihood_of(f: object, likelihood: Any) -> Likelihood:
    """The likelihood, where a callable is told how many latent functions ``f`` gives it.

    Over several outputs (``Normal.to_event(1)``) a callable either works on all of them at once, like
    ``lambda f: dist.Categorical(logits=f)``, or on each alone, like ``lambda f: dist.Poisson(jnp.exp(f))``:
    the batch shape of what it returns says which.
    """
    if isinstance(likelihood, Likelihood):
        return likelihood
    if isinstance(f, (tuple, list)):
        return as_likelihood(likelihood, len(f))
    if isinstance(f, dist.Independent):
        alone = as_likelihood(likelihood)
        if alone.num_latent == 1 and alone.conditional(f.mean).batch_shape == f.mean.shape:
            return alone
    if isinstance(f, (dist.Independent, dist.MultivariateNormal)):
        return as_likelihood(likelihood, f.event_shape[0])
    return as_likelihood(likelihood)


def _check_takes_data(name: str, part: object) -> None:
    """Refuse functions that are given their own data, and new rows of a process by pseudo-data of its rows."""
    if (owner := getattr(part, "given_data_of", None)) is not None:
        cure = "Open f by ngp.gp, and observe both data sets at it."
        fail(f"f of site {name!r}", "of a `gp`", f"that of gp_regression {owner!r}, given its own data", cure)
    if (owner := getattr(part, "pseudo_data_of", None)) is not None:
        cure = f"Observe data at the rows of the process, {owner}.at_inducing(), or sample by ngp.NUTS."
        got = f"{owner}(X), through which pseudo-data take no natural step"
        fail(f"f of site {name!r}", "at the rows that have pseudo-data in a guide", got, cure)


def _cure_of_rows(observation: Any, cure: str) -> str:
    """What to do about rows that do not fit: those of a line stand whole."""
    seen = getattr(observation, "seen_of", None)
    if seen is None or not any(isinstance(process.data.near, Line) for process in seen.processes):
        return cure
    return "A line takes no minibatches: leave subsample_size out, and pass data of all rows, y[:, 0] for a column."


def check_observed_data(name: str, obs: ArrayLike, observation: Any) -> Array:
    """Refuse data that would broadcast against the latent function instead of lying beside it."""
    data = check_array(f"obs of site {name!r}", obs)
    wanted = observation.batch_shape + observation.event_shape
    common = min(data.ndim, len(wanted))
    tails = (shape[len(shape) - common :] for shape in (data.shape, wanted))
    if len(set(tails)) > 1 or (wanted and data.ndim == 0):
        cure = "Pass one value for each row of X: y[:, 0] for a column, y[idx] inside a subsampled plate."
        cure = _cure_of_rows(observation, cure)
        fail(f"obs of site {name!r}", f"of the shape of f, {wanted}", f"shape {data.shape}", cure)

    def check(values: np.ndarray) -> None:
        cure = "Leave missing data out, or replace them and hide their terms with numpyro.handlers.mask."
        cure = cure if isinstance(observation, Observation) else "Leave these rows out of X and the data."
        for kind, is_kind in (("NaN", np.isnan), ("infinity", np.isinf)):
            if values.dtype.kind == "f" and (found := is_kind(values)).any():
                fail(f"obs of site {name!r}", f"free of {kind}", f"{found.sum()} {kind} of {values.size}", cure)

    when_known(check, data)
    return data


def latent_inputs(name: str, X: ArrayLike, dim: int = 1) -> Array:
    """Inputs that nobody measured, one draw for each datum: sample ``w_n ~ N(0, I)`` and append it, ``[x_n, w_n]``.

    Call it inside the data plate (mathematics.md section 10.1). Leading axes of ``w`` (importance samples) and of
    ``X`` (function draws) broadcast against each other.

    Parameters
    ----------
    name : str
        Name of the site, event shape ``(dim,)``.
    X : array (..., N, D)
        Inputs of the data in the plate.
    dim : int
        Number of latent columns.

    Returns
    -------
    Array (..., N, D + dim)
        Inputs with the latent columns last.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> with numpyro.handlers.seed(rng_seed=0), numpyro.plate("data", 5):
    ...     ngp.latent_inputs("w", jnp.zeros((5, 2))).shape
    (5, 3)
    """
    inputs = check_points("X", X, leading=True)
    dim = check_count("dim", dim)
    standard = standard_normal((inputs.shape[-2], dim), inputs.dtype, 1)
    w = numpyro.sample(check_name("name", name), standard, infer={"numpyro_gp": "latent"})
    batch = jnp.broadcast_shapes(inputs.shape[:-1], w.shape[:-1])
    left = jnp.broadcast_to(inputs, batch + inputs.shape[-1:])
    return jnp.concatenate([left, jnp.broadcast_to(w, batch + w.shape[-1:])], axis=-1)


def noisy_inputs(name: str, X: ArrayLike, scale: ArrayLike) -> Array:
    """Inputs ``x_n ~ N(X_n, scale_n^2)`` in place of measured ones, one draw for each datum: ``X + scale * e``.

    Call it inside the data plate, and the process at what it returns: ``f(ngp.noisy_inputs("x", X[idx], scale[idx]))``.
    The site holds the error in units of its spread, ``e ~ N(0, I)``, for which every engine has what it needs:
    `AutoGP` a free Normal for each datum or `guides.amortised`, NUTS and particles the errors themselves. A prediction
    of new rows draws their errors from the prior, anew for each draw of the posterior: ask for some hundred
    (``num_samples=300``), and pass a ``scale`` of zero for inputs that are known.

    Parameters
    ----------
    name : str
        Name of the site, event shape ``(D,)``.
    X : array (..., N, D)
        Inputs as measured, of the data in the plate.
    scale : array
        Standard deviation of their errors: one, one for each column ``(D,)``, or one for each entry ``(N, D)``. A
        column of zeros is known.

    Returns
    -------
    Array (..., N, D)

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> X = jnp.zeros((5, 2))
    >>> with numpyro.handlers.seed(rng_seed=0), numpyro.plate("data", 5):
    ...     x = ngp.noisy_inputs("x", X, jnp.array([0.1, 0.0]))
    >>> x.shape, x[:, 1].tolist()
    ((5, 2), [0.0, 0.0, 0.0, 0.0, 0.0])
    """
    inputs = check_points("X", X, leading=True)
    spread = check_nonnegative("scale", scale).astype(inputs.dtype)
    rows = inputs.shape[-2:]
    if spread.shape not in ((), rows[1:], rows):
        cure = "Give each row its own with scale[:, None], broadcast over the columns; in a minibatch scale[idx]."
        required = f"of shape (), {(rows[1],)} or {rows}"
        fail("scale", required, f"shape {spread.shape}", cure)
    standard = standard_normal(rows, inputs.dtype, 1)
    errors = numpyro.sample(check_name("name", name), standard, infer={"numpyro_gp": "latent"})
    shape = (*np.broadcast_shapes(inputs.shape[:-1], errors.shape[:-1]), rows[1])
    moved = jnp.broadcast_to(spread, rows) if spread.ndim < 2 else spread
    every = [jnp.broadcast_to(part, shape) for part in (inputs, moved, errors)]
    return every[0] + every[1] * every[2]
