"""What `stack` builds: layers that a model calls, and the recipes of their beliefs."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from numpyro_gp.arrays import Array, ArrayLike, value_type
from numpyro_gp.checks import check_points
from numpyro_gp.guides import amortised, coupled, decoupled_layer, encoder, orthogonal
from numpyro_gp.guides.amortised import Network
from numpyro_gp.guides.recipes import Recipe
from numpyro_gp.linalg import einsum
from numpyro_gp.means import MeanLike, Projection
from numpyro_gp.primitives.gp import gp
from numpyro_gp.primitives.inducing import report
from numpyro_gp.primitives.observe import latent_inputs
from numpyro_gp.primitives.process import GaussianProcess
from numpyro_gp.starting.deep.layers import INNER_SCALE, mix
from numpyro_gp.starting.priors import noise_prior, variance_prior

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

    @property
    def functions(self) -> int | None:
        """Number of independent functions of an inner layer."""
        if self.mean is None:
            return None
        return int((self.mean.weights if self.mixing is None else self.mixing).shape[1])


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
            outputs = self.outputs if is_last else part.functions
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
        found = {f"{self.name}_{number}": self._recipe(part) for number, part in enumerate(self.parts)}
        latent = {f"{self.name}_latent_{n}": amortised(self._reads(encoder())) for n in range(len(self.latent_columns))}
        return found | latent

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

    def _recipe(self, part: Part) -> Recipe:
        is_last = part.mean is None
        scale = 1.0 if is_last else INNER_SCALE
        if part.mean_inducing is None:
            return coupled(natural=is_last, scale=scale)
        train = self.train_inducing
        if self.mean == "orthogonal":
            return orthogonal(part.mean_inducing, natural=is_last, scale=scale, train_inputs=train)
        return decoupled_layer(part.mean_inducing, self.mean, self.covariance, scale=scale, train_inputs=train)


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
                h, latent = self._with_latent(h, latent), latent + 1
                continue
            part, drawn = own.parts[number], self.processes[number].draw(f"{own.name}_{number}/draw", h)
            h = drawn if part.mixing is None else cast("Projection", part.mean)(h) + mix(drawn, part.mixing)
            number += 1
        return h

    def _with_latent(self, h: Array, number: int) -> Array:
        columns = self.stack.latent_columns[number]
        both = latent_inputs(f"{self.stack.name}_latent_{number}", h, columns)
        if self.stack.latent == "concatenate":
            return both
        return both[..., :columns] + einsum("...d,d->...d", both[..., columns:], self.spreads[number])


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
