"""Recipes for latent inputs whose guide is a network: ``q(w_n) = N(a, diag b^2)``, ``(a, log b) = enc(x_n, y_n)``.

The network sees the rows of the minibatch only, so its guide has no parameter for each datum.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.module import eqx_module, flax_module

from numpyro_gp.arrays import Array
from numpyro_gp.checks import check_count, fail
from numpyro_gp.guides.recipes import LocalPrior, Recipe
from numpyro_gp.linalg import matmul

# network(name, inputs (N, D + P), outputs) -> (N, outputs); it declares its parameters under ``name``.
Network = Callable[[str, Array, int], Array]
Read = Callable[..., tuple[Any, Any]]


def amortised(network: Network | None = None, *, data: Read | None = None, start_log_scale: float = -3.0) -> Recipe:
    """Latent inputs read off the data by a network, so that new rows need no parameters (mathematics.md section 10.1).

    Parameters
    ----------
    network : callable ``(name, inputs, outputs) -> (N, outputs)``, optional
        Maps ``[x_n, y_n]`` to location and log scale of ``w_n`` (``outputs = 2 dim`` numbers) and declares its own
        parameters. Default `encoder`; `flax_network` and `equinox_network` make one from a module.
    data : callable, optional
        Arguments of the model to its ``(X, y)``; the default takes those that the model calls X and y, or else the
        first two.
    start_log_scale : float
        Added to the network's log scale: ``q(w)`` starts narrow.

    Returns
    -------
    recipe
        For `numpyro_gp.AutoGP`, at a `latent_inputs` site.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> recipes = {"w": ngp.guides.amortised(ngp.guides.encoder((20, 20)))}   # for ngp.AutoGP(model, recipes)
    """
    return partial(_amortised, network=network or encoder(), data=data, shift=start_log_scale)


def _amortised(name: str, prior: LocalPrior, *, network: Network, data: Read | None, shift: float) -> dist.Distribution:
    if data is not None:
        X, y = data(*prior.arguments, **prior.keywords)
    elif {"X", "y"} <= set(prior.named):
        X, y = prior.named["X"], prior.named["y"]
    else:
        rest = iter(prior.arguments)
        X, y = (prior.keywords[name] if name in prior.keywords else next(rest, None) for name in ("X", "y"))
    if X is None or y is None:
        cure = "Call the guide with the observations; name them with amortised(network, data=...)."
        fail(f"the data of the guide at site {name!r}", "inputs and observations", "None", cure)
    X, y = jnp.asarray(X, prior.dtype), jnp.asarray(y, prior.dtype)
    targets = y[:, None] if y.ndim == 1 else y
    rows, dim = prior.full_shape[0], prior.event_shape[-1]
    inputs = jnp.concatenate([X, targets], axis=-1)
    # Whole data: take the rows of the minibatch. A user who passes minibatches to the model has taken them.
    if inputs.shape[0] == rows:
        inputs = numpyro.subsample(inputs, event_dim=1)
    parts = jnp.asarray(network(f"{name}/encoder", inputs, 2 * dim))
    if parts.shape != (inputs.shape[0], 2 * dim):
        cure = f"Return location and log scale of {dim} latent inputs in the columns."
        fail("network(name, inputs, outputs)", f"of shape {(inputs.shape[0], 2 * dim)}", f"shape {parts.shape}", cure)
    # Above 1 a log scale grows as a logarithm: no posterior is so much wider than its standard normal prior. Of a row
    # whose inputs are some hundred standard deviations away a network makes a log scale of fifty or more, and its
    # variance alone would be all of the bound, and of every gradient.
    log_scale = parts[:, dim:] + shift
    log_scale = jnp.where(log_scale > 1, 1 + jnp.log(jnp.maximum(log_scale, 1)), log_scale)
    return dist.Normal(parts[:, :dim], jnp.exp(log_scale)).to_event(1)


def encoder(hidden: Sequence[int] = (20, 20)) -> Network:
    """The network that `amortised` has where none is given: tanh layers with skip connections, then a linear layer.

    The linear layer starts near zero.

    Parameters
    ----------
    hidden : sequence of int
        Widths of the tanh layers.

    Returns
    -------
    callable
        ``(name, inputs, outputs) -> (N, outputs)``, which declares its own parameters.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> network = ngp.guides.encoder((8,))
    >>> with numpyro.handlers.seed(rng_seed=0):
    ...     network("w", jnp.ones((5, 3)), 2).shape
    (5, 2)
    """
    return partial(_encoder, hidden=tuple(check_count("hidden", width) for width in hidden))


def _encoder(name: str, inputs: Array, outputs: int, *, hidden: tuple[int, ...]) -> Array:
    value = inputs
    for number, width in enumerate((*hidden, outputs)):
        last = number == len(hidden)
        columns = value.shape[-1]
        start = partial(_start_weights, shape=(columns, width), scale=0.1 if last else 1.0, dtype=inputs.dtype)
        weights = numpyro.param(f"{name}/weights_{number}", start)
        bias = numpyro.param(f"{name}/bias_{number}", jnp.zeros(width, inputs.dtype))
        linear = matmul(value, weights) + bias[None, :]
        # Beside the layer the first columns of the one before, padded with zeros.
        skipped = jnp.pad(value[:, :width], ((0, 0), (0, max(0, width - columns))))
        value = linear if last else jnp.tanh(linear) + skipped
    return value


def _start_weights(key: Array, *, shape: tuple[int, int], scale: float, dtype: np.dtype) -> Array:
    return scale * jax.random.normal(key, shape, dtype) / jnp.sqrt(jnp.asarray(shape[0], dtype))


def flax_network(module: object) -> Network:
    """A flax (linen) module as the network of `amortised`, by ``numpyro.contrib.module.flax_module``.

    Parameters
    ----------
    module : flax.linen.Module
        From ``(N, D + P)``, inputs and observations, to ``(N, 2 dim)``: location and log scale of the latent inputs.

    Returns
    -------
    callable
        ``(name, inputs, outputs) -> (N, outputs)``.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> def recipe(linen):   # flax is not among what this library needs
    ...     return ngp.guides.amortised(ngp.guides.flax_network(linen.Dense(2)))
    """
    return partial(_flax, module=module)


def _flax(name: str, inputs: Array, outputs: int, *, module: object) -> Array:  # noqa: ARG001
    return jnp.asarray(flax_module(name, module, input_shape=inputs.shape)(inputs))


def equinox_network(module: object) -> Network:
    """An equinox module as the network of `amortised`, by ``numpyro.contrib.module.eqx_module``.

    Parameters
    ----------
    module : equinox.Module
        From one row ``(D + P,)``, inputs and observations, to ``(2 dim,)``: location and log scale of the latent
        inputs.

    Returns
    -------
    callable
        ``(name, inputs, outputs) -> (N, outputs)``.

    Examples
    --------
    >>> import numpyro_gp as ngp
    >>> def recipe(eqx, key):   # equinox is not among what this library needs
    ...     return ngp.guides.amortised(ngp.guides.equinox_network(eqx.nn.MLP(3, 2, 20, 2, key=key)))
    """
    return partial(_equinox, module=module)


def _equinox(name: str, inputs: Array, outputs: int, *, module: object) -> Array:  # noqa: ARG001
    return jnp.asarray(jax.vmap(eqx_module(name, module))(inputs))
