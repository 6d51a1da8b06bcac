"""`stack`: the layers of a deep Gaussian process from one line, to be called in a model of the user's own."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from numpyro_gp.arrays import Array, ArrayLike, value_type
from numpyro_gp.checks import (
    check_array,
    check_choice,
    check_count,
    check_finite,
    check_floating,
    check_key,
    check_points,
    fail,
)
from numpyro_gp.guides import amortised, coupled, decoupled_layer, encoder, orthogonal
from numpyro_gp.guides.amortised import Network
from numpyro_gp.guides.recipes import Recipe
from numpyro_gp.kernels import RBF
from numpyro_gp.linalg import einsum, matmul
from numpyro_gp.means import MeanLike, Projection, linear_projection
from numpyro_gp.primitives.gp import gp
from numpyro_gp.primitives.inducing import report
from numpyro_gp.primitives.observe import latent_inputs
from numpyro_gp.primitives.process import GaussianProcess
from numpyro_gp.starting.inducing import kmeans, random_subset
from numpyro_gp.starting.priors import lengthscale_prior, noise_prior, variance_prior

# --------------------------------------------------------------------------------------
# Where a deep Gaussian process starts: mean functions, inducing inputs and mixing matrices of each layer.
#
# Layers are ordinary calls of `gp` and ``.draw`` in the user's model; these helpers return the values to put there,
# and `stack` makes the calls.


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


def initial_layers(X: ArrayLike, inducing: ArrayLike, widths: Sequence[int]) -> list[Layer]:
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
    layers = []
    for width in widths:
        mean = linear_projection(inputs, check_count("widths", width))
        layers.append(Layer(points, mean, INNER_SCALE))
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


# --------------------------------------------------------------------------------------
# What `stack` builds: layers that a model calls, and the recipes of their beliefs.


# Logarithm of the standard deviation of latent inputs that start at data: half of their prior's.
AT_DATA_LOG_SCALE = -0.7


class Units(NamedTuple):
    """Mean and standard deviation of columns; the deviation of a constant one counts as 1."""

    center: Array
    scale: Array

    @classmethod
    def of(cls, columns: Array) -> "Units":
        """Those of rows ``(N, D)``."""
        # By its ends: the mean of a constant is rounded, and so its deviation may be no zero.
        is_constant = jnp.ptp(columns, axis=0) == 0
        center = jnp.where(is_constant, columns[0], jnp.mean(columns, axis=0))
        return cls(center, jnp.where(is_constant, 1, jnp.std(columns, axis=0)))

    def standard(self, X: Array) -> Array:
        """Rows ``(..., D)`` in these units."""
        left = (None,) * (X.ndim - 1)
        standard: Array = (X - self.center[left]) / self.scale[left]
        return standard.astype(X.dtype)


class Part(NamedTuple):
    """One ``"GP"`` of a stack: the prior of its lengthscales, its points, and what its functions are added to."""

    lengthscale: dist.Distribution
    inducing: Array
    mean_inducing: Array | None
    mean: Projection | None = None
    mixing: Array | None = None


STATIC = ("name", "kinds", "latent", "latent_columns", "outputs", "kernel", "mean", "covariance", "train_inducing")


@value_type(static=STATIC)
class Stack:
    """The layers of a deep process, as `stack` makes them: call it in a model, outside of plates.

    Attributes
    ----------
    parts : tuple
        Of each ``"GP"`` the prior of its ``lengthscale``, its ``inducing`` and ``mean_inducing`` inputs, its fixed
        ``mean`` and its ``mixing`` matrix.
    inputs, targets : Units
        Center and scale of the columns of ``X``, and of ``y`` where it was given.
    name, kinds, latent, latent_columns, outputs, kernel, mean, covariance, train_inducing
        What was asked of `stack`; ``kinds`` has ``"GP"`` and ``"LV"`` in order, and ``latent_columns`` the number of
        latent inputs of each ``"LV"``.

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> layers = ngp.deep.stack(X, "LV-GP-GP", inducing=10)
    >>> [part.inducing.shape for part in layers.parts], sorted(layers.recipes)
    ([(10, 3), (10, 3)], ['f_0', 'f_1', 'f_latent_0'])
    """

    parts: tuple[Part, ...]
    inputs: Units
    targets: Units | None
    name: str
    kinds: tuple[str, ...]
    latent: str
    latent_columns: tuple[int, ...]
    outputs: int | None
    kernel: Callable[..., Any]
    mean: str
    covariance: str
    train_inducing: bool

    def __call__(self, *, mean: MeanLike = None) -> "DeepProcess":
        """Open the sites of all layers, and return the process to call in the data plate.

        ``mean`` is the mean function of the last layer, as of `gp`.
        """
        processes, spreads = [], []
        units = {" and their center": self.inputs.center, " and their scale": self.inputs.scale}
        report(self.name, units, is_given=True)
        for number, part in enumerate(self.parts):
            site, is_last = f"{self.name}_{number}", part.mean is None
            own = mean if is_last else part.mean if part.mixing is None else None
            lengthscale = numpyro.sample(f"{site}/lengthscale", part.lengthscale)
            variance = numpyro.sample(f"{site}/variance", variance_prior())
            report(site, {" before training": part.inducing}, is_given=True)
            points = numpyro.param(f"{site}/inducing", part.inducing) if self.train_inducing else part.inducing
            outputs = self.outputs
            if part.mean is not None:  # independent functions of an inner layer, mixed to its width or one for each
                outputs = (part.mean.weights if part.mixing is None else part.mixing).shape[1]
            processes.append(gp(site, self.kernel(variance, lengthscale), points, mean=own, outputs=outputs))
        for number, columns in enumerate(self.latent_columns if self.latent == "add" else ()):
            prior = noise_prior().expand([columns]).to_event(1)
            spreads.append(numpyro.sample(f"{self.name}_latent_{number}/scale", prior))
        return DeepProcess(self, tuple(processes), tuple(spreads))

    @property
    def recipes(self) -> dict[str, Recipe]:
        """What `AutoGP` takes: inner layers start nearly without noise, and the last has natural parameters.

        Those of `decoupled_layer` have none, and train by plain Adam. Latent inputs are read off the data by a network,
        whose inputs are standardised. Any recipe can be replaced, as in
        ``layers.recipes | {"f_latent_0": ngp.guides.free_latent()}``.
        """
        result: dict[str, Recipe] = {}
        for number, part in enumerate(self.parts):
            is_last = part.mean is None
            points, scale, train = part.mean_inducing, 1.0 if is_last else INNER_SCALE, self.train_inducing
            if points is None:
                recipe = coupled(natural=is_last, scale=scale)
            elif self.mean == "orthogonal":
                recipe = orthogonal(points, natural=is_last, scale=scale, train_inputs=train)
            else:
                recipe = decoupled_layer(points, self.mean, self.covariance, scale=scale, train_inputs=train)
            result[f"{self.name}_{number}"] = recipe
        latent = {f"{self.name}_latent_{n}": amortised(self._reads(encoder())) for n in range(len(self.latent_columns))}
        return result | latent

    @property
    def starts(self) -> tuple[dict[str, Recipe], ...]:
        """The `recipes`, with several starts of the first latent input: fit each, and go on with the best.

        What a latent input says of a datum may be told in several ways, each an optimum of its own that steps do not
        leave: how high the target is, or how high beside what a column of inputs makes of it. So its location starts
        at a standardised target, or at the product of a target and a column of standardised inputs, and its standard
        deviation at half of the prior's. There are ``P (D + 1)`` starts for ``P`` targets: those without a column, then
        those of each column. They share one program. Without latent inputs there is one start, `recipes`.
        """
        if not self.latent_columns:
            return (self.recipes,)
        targets = 1 if self.targets is None else len(self.targets.center)
        columns, latent = len(self.inputs.center), f"{self.name}_latent_0"
        network = partial(_beside_products, network=encoder(), columns=columns)
        networks = [partial(network, number=number) for number in range(targets * (columns + 1))]
        starts = [amortised(self._reads(own), start_log_scale=AT_DATA_LOG_SCALE) for own in networks]
        return tuple(self.recipes | {latent: own} for own in starts)

    def _reads(self, network: Network) -> Network:
        """A network that reads rows in the units of the training rows."""
        return partial(_standardised, network=network, inputs_in=self.inputs, targets_in=self.targets)


class DeepProcess(NamedTuple):
    """The layers of a `Stack` in a model: call it at inputs in the data plate.

    Attributes
    ----------
    stack : Stack
    processes : tuple of GaussianProcess
        One for each layer, from the first to the last.
    spreads : tuple of Array
        Standard deviations of the latent inputs, where they are added.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> X = jnp.linspace(0.0, 1.0, 20)[:, None]
    >>> layers = ngp.deep.stack(X, "GP-GP", inducing=5)
    >>> with numpyro.handlers.seed(rng_seed=0):
    ...     f = layers()
    ...     with numpyro.plate("data", 20):
    ...         f(X).batch_shape, f.last_inputs(X).shape
    ((20,), (20, 1))
    """

    stack: Stack
    processes: tuple[GaussianProcess, ...]
    spreads: tuple[Array, ...]

    def __call__(self, X: ArrayLike) -> dist.Distribution:
        """Distribution of the last layer at ``X`` ``(N, D)``, given one draw of all before it: as of `gp`."""
        return self.processes[-1](self.last_inputs(X))

    def last_inputs(self, X: ArrayLike) -> Array:
        """What the last layer reads at ``X`` ``(N, D)``: one draw of all before it, ``(..., N, width)``."""
        own = self.stack
        rows = check_points("X", X, len(own.inputs.center), leading=True)
        h, number, latent = own.inputs.standard(rows), 0, 0
        for kind in own.kinds[:-1]:
            if kind == "LV":
                columns = own.latent_columns[latent]
                both = latent_inputs(f"{own.name}_latent_{latent}", h, columns)
                if own.latent == "add":
                    noise = einsum("...d,d->...d", both[..., columns:], self.spreads[latent])
                    both = both[..., :columns] + noise
                h, latent = both, latent + 1
                continue
            part, drawn = own.parts[number], self.processes[number].draw(f"{own.name}_{number}/draw", h)
            h = drawn if part.mixing is None else cast("Projection", part.mean)(h) + mix(drawn, part.mixing)
            number += 1
        return h


def _standardised(
    name: str, inputs: Array, outputs: int, *, network: Network, inputs_in: Units, targets_in: Units | None
) -> Array:
    """A network that reads ``[x, y]`` in the units of the training rows."""
    columns = len(inputs_in.center)
    targets = inputs[:, columns:]
    if targets_in is not None:
        targets = targets_in.standard(targets)
    return network(name, jnp.concatenate([inputs_in.standard(inputs[:, :columns]), targets], axis=-1), outputs)


def _beside_products(name: str, inputs: Array, outputs: int, *, network: Network, columns: int, number: int) -> Array:
    """A network whose first output has a linear function of targets and of their products with inputs besides.

    Its weights ``(P (D + 1),)``, for ``y`` and then for ``x_d y`` of each column, start at one for ``number``.
    """
    X, y = inputs[:, :columns], inputs[:, columns:]
    factors = jnp.concatenate([jnp.ones_like(X[:, :1]), X], axis=-1)
    products = einsum("nd,np->ndp", factors, y).reshape(len(inputs), -1)
    size, dtype = products.shape[-1], products.dtype
    # A function, which is called once: the program of a step is the same for every number.
    weights = numpyro.param(f"{name}/products", lambda _: jnp.zeros(size, dtype).at[number].set(1.0))
    return network(name, inputs, outputs).at[:, 0].add(einsum("nk,k->n", products, weights))


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
    # "GP" and "LV" in order, and the width of each inner layer; None for that of its inputs.
    widths: list[int | None]
    if isinstance(layers, str):
        kinds = tuple(layers.split("-"))
        if kinds[-1] != "GP" or not set(kinds) <= {"GP", "LV"}:
            required = 'of "GP" and "LV" joined by "-", the last a "GP"'
            fail("layers", required, repr(layers), 'Write "LV-GP-GP", for example.')
        widths = [None if width is None else check_count("width", width)] * (kinds.count("GP") - 1)
    elif isinstance(layers, bytes) or not isinstance(layers, Sequence):
        required = 'a string such as "LV-GP-GP", or the widths of the inner layers'
        fail("layers", required, f"{layers!r:.60}", "Pass [10, 10] for three layers.", TypeError)
    else:
        if width is not None:
            fail("width", "None, since layers has the widths", width, 'Leave it out, or pass layers="GP-GP".')
        widths = [check_count("layers", each) for each in layers]
        kinds = ("GP",) * (len(widths) + 1)
    check_choice("mean", mean, ("gpcent", "gp", "cb", "orthogonal"))
    check_choice("covariance", covariance, ("gp", "cb"))
    check_choice("latent", latent, ("concatenate", "add"))
    keys = jax.random.split(jax.random.key(0) if key is None else check_key("key", key), 3)
    units = Units.of(rows)
    points = _rows_of_inputs("inducing", inducing, rows, units, partial(kmeans, keys[0]))
    more = None
    if mean_inducing is not None:
        more = _rows_of_inputs("mean_inducing", mean_inducing, rows, units, partial(random_subset, keys[1]))
    columns = check_count("latent_dim", latent_dim) if latent == "concatenate" else None
    parts, latents = _parts_of_layers(kinds, widths, (units.standard(rows), points, more), mixing, columns, keys[2])
    targets = None
    if y is not None:  # of any type, as columns of numbers
        values = check_array("y", y)
        check_finite("y", values)
        if values.ndim not in (1, 2) or values.shape[0] != rows.shape[0]:
            required = f"of shape (N,) or (N, P) with N = {rows.shape[0]}, the rows of X"
            fail("y", required, f"shape {values.shape}", "Pass the targets of X.")
        targets = Units.of(values.reshape(rows.shape[0], -1).astype(rows.dtype))
    own = None if outputs is None else check_count("outputs", outputs)
    return Stack(parts, units, targets, name, kinds, latent, latents, own, kernel, mean, covariance, train_inducing)


def _rows_of_inputs(
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


# Rows of the data, inducing inputs, and those of the mean where there are any: what goes through the layers together.
Held = tuple[Array, Array, Array | None]


def _parts_of_layers(
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
                pairs = zip(keys, held, strict=True)
                held = cast("Held", tuple(None if h is None else latent_columns(k, h, columns) for k, h in pairs))
            continue
        # Constant columns, as zeros that pad a mean, have no scale: only functions of a layer, of scale 1, stand there.
        signs = jnp.where(jnp.arange(len(rows)) % 2 == 0, 1, -1).astype(rows.dtype)[:, None]
        varied = jnp.where(jnp.ptp(rows, axis=0, keepdims=True) == 0, signs, rows)
        prior, points = lengthscale_prior(varied), held[1:]
        if len(parts) == len(widths):
            break  # the last process
        width = widths[len(parts)] or rows.shape[1]
        # The mean passes on the columns that are kept, then latent inputs, then zeros, as far as the width goes.
        mean = Projection(jnp.eye(rows.shape[1], width, dtype=rows.dtype))
        if width <= kept:
            weights = linear_projection(rows[:, :kept], width).weights
            mean = Projection(jnp.pad(weights, ((0, rows.shape[1] - kept), (0, 0))))
        held, kept = cast("Held", tuple(None if h is None else mean(h) for h in held)), width
        if mixing is not None and check_count("mixing", mixing) > width:
            cure = "Leave it out for one function to each column."
            fail("mixing", f"at most {width}, the width of the layer", mixing, cure)
        mixed = None if mixing is None else principal_directions(held[0], mixing)
        parts.append(Part(prior, *points, mean, mixed))
    return (*parts, Part(prior, *points)), tuple(latents)
