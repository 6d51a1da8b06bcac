"""Densities of models with latent inputs: the posterior of ``w``, ``p(y | x)`` on a grid, how Gaussian it is.

The importance-weighted bound fits an implicit posterior of ``w``, not ``q(w)``: it is seen by resampling
(mathematics.md section 10.4).
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import check_count, check_floating, check_key, fail
from numpyro_gp.objectives import weighted_samples
from numpyro_gp.posterior.prediction import Prediction

__all__ = ["LatentPosterior", "density_on_grid", "latent_posterior", "shapiro_wilk"]


class LatentPosterior(NamedTuple):
    """Draws of local sites by importance resampling.

    Attributes
    ----------
    values : dict
        One array ``(num_draws, N, ...)`` for each local site, resampled with the same weights.
    effective_sample_size : Array (num_draws, N)
        ``1 / sum_k w_nk^2`` of the K samples behind each draw, between 1 and K. Low values mean that ``q(w)``
        misses mass: use more samples, or a richer guide.
    """

    values: dict[str, Array]
    effective_sample_size: Array


def latent_posterior(
    key: Array,
    model: Callable[..., object],
    guide: Callable[..., object],
    params: Mapping[str, object],
    *args: object,
    num_samples: int = 100,
    num_draws: int = 1,
    plate: str = "data",
    **kwargs: object,
) -> LatentPosterior:
    """Posterior of the latent inputs of the training data (mathematics.md section 10.4).

    Each draw takes K = ``num_samples`` values from the guide with one joint draw of all functions, and keeps one of
    them with probability ``softmax_k log r_nk``.

    Parameters
    ----------
    key : PRNG key
    model, guide, params
        As fitted.
    *args, **kwargs
        Arguments of the model, with its data.
    """
    check_key("key", key)
    check_count("num_samples", num_samples)
    check_count("num_draws", num_draws)
    # Models index their data by the traced rows of a minibatch, which NumPy arrays refuse.
    args, kwargs = jax.tree.map(
        lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, (args, kwargs)
    )

    def one(key: Array) -> tuple[dict[str, Array], Array]:
        key_weights, key_choice = jax.random.split(key)
        drawn = weighted_samples(key_weights, params, model, guide, args, kwargs, num_samples=num_samples, plate=plate)
        if drawn.log_weights.ndim != 2:
            fail("model", "one with latent inputs in the data plate", "none", "Use ngp.latent_inputs in the model.")
        chosen = jax.random.categorical(key_choice, drawn.log_weights, axis=0)
        weights = jax.nn.softmax(drawn.log_weights, axis=0)
        rows = jnp.arange(chosen.shape[0])
        return {name: value[chosen, rows] for name, value in drawn.values.items()}, 1 / jnp.sum(weights**2, axis=0)

    values, size = jax.lax.map(one, jax.random.split(key, num_draws))
    return LatentPosterior(values, size)


def density_on_grid(prediction: Prediction, grid: ArrayLike) -> Array:
    """``p(y | x_n)`` at each point of a grid, shape ``(grid, N)``: the mixture itself, no kernel density estimate.

    Parameters
    ----------
    prediction : Prediction
        Of a model with one observed number for each row, with as many draws as the picture needs (500 or more).
    grid : array (G,)
        Values of y.
    """
    points = check_floating("grid", grid)
    if points.ndim != 1:
        fail("grid", "of shape (G,)", f"shape {points.shape}", "Pass jnp.linspace(low, high, 100).")
    if prediction.mean.ndim != 1:
        fail("prediction", "of one number for each row", f"of shape {prediction.mean.shape}", "Plot one output.")
    rows = [prediction.log_density(jnp.full(prediction.mean.shape, point, prediction.mean.dtype)) for point in points]
    return jnp.exp(jnp.stack(rows))


def shapiro_wilk(samples: ArrayLike) -> np.ndarray:
    """Shapiro-Wilk statistic ``W`` of samples ``(S, ...)`` along the first axis: 1 is Gaussian, small is not.

    ``W = (sum_i a_i x_(i))^2 / sum_i (x_i - mean)^2`` with Royston's approximation of the weights, for 3 to 5000
    samples. Applied to ``prediction.sample(1000)`` it says for each datum how far from Gaussian its
    predictive distribution is.

    Examples
    --------
    >>> import numpy as np
    >>> normal = np.random.default_rng(0).normal(size=(500, 1))
    >>> bool(shapiro_wilk(normal)[0] > 0.99 > shapiro_wilk(np.exp(normal))[0])
    True
    """
    from scipy.stats import shapiro

    values = np.asarray(check_floating("samples", samples), dtype=float)
    size = values.shape[0] if values.ndim else 0
    if not 3 <= size <= 5000:
        fail("samples", "3 to 5000 along the first axis", f"shape {values.shape}", "Pass prediction.sample(1000).")
    if constant := int(np.sum(np.ptp(values, axis=0) == 0)):
        fail("samples", "not all equal", f"{constant} constant columns", "Leave them out.")
    statistic: np.ndarray = np.apply_along_axis(lambda column: shapiro(column).statistic, 0, values)
    return statistic
