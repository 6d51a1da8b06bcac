"""Densities of models with latent inputs: ``p(y | x)`` of new data and on a grid, the posterior of ``w``, normality.

The importance-weighted bound fits an implicit posterior of ``w``, not ``q(w)``: it is seen by resampling. Densities of
new data take their values of ``w`` from the guide, too (mathematics.md section 10.4). It is for who needs the whole
distribution of ``y``, of several modes or skewed, where `Posterior.predict` says its moments.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.infer.autoguide import AutoGuide

from numpyro_gp.arrays import Array, ArrayLike, Model, on_devices
from numpyro_gp.checks import check_count, check_floating, check_key, fail
from numpyro_gp.guides.auto import AutoGP
from numpyro_gp.objectives import weighted_samples
from numpyro_gp.posterior.draws import check_full, data_sites, draws_at_data, log_likelihood
from numpyro_gp.posterior.posterior import Posterior
from numpyro_gp.posterior.prediction import Prediction
from numpyro_gp.posterior.tracing import Draw, Fitted, SiteValues, at_each_draw, run_model
from numpyro_gp.rows.call import call_of, check_not_empty
from numpyro_gp.rows.model_trace import look
from numpyro_gp.sites import local_sites

__all__ = ["LatentPosterior", "density_on_grid", "latent_posterior", "log_density", "shapiro_wilk"]


class LatentPosterior(NamedTuple):
    """What `latent_posterior` returns: draws of local sites, and how many samples stand behind each.

    Attributes
    ----------
    values : dict
        One array ``(num_draws, N, ...)`` for each local site, resampled with the same weights.
    effective_sample_size : Array (num_draws, N)
        ``1 / sum_k w_nk^2`` of the K samples behind each draw, between 1 and K. Low values mean that ``q(w)``
        misses mass: use more samples, or a richer guide.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> found = ngp.conditional_density.LatentPosterior({"w": jnp.zeros((1, 5, 1))}, jnp.full((1, 5), 80.0))
    >>> found.values["w"].shape
    (1, 5, 1)
    """

    values: dict[str, Array]
    effective_sample_size: Array


def latent_posterior(
    key: Array,
    model: Model,
    guide: Callable[..., object],
    params: Mapping[str, object],
    *args: object,
    num_samples: int = 100,
    num_draws: int = 1,
    plate: str = "data",
    **kwargs: object,
) -> LatentPosterior:
    """What the data say about their latent inputs: draws from the posterior of ``w`` (mathematics.md section 10.4).

    Each draw takes K = ``num_samples`` values from the guide with one joint draw of all functions, and keeps one of
    them with probability ``softmax_k log r_nk``.

    Parameters
    ----------
    key : PRNG key
    model, guide, params
        As fitted.
    *args, **kwargs
        Arguments of the model, with its data.
    num_samples : int
        Number K of samples behind each draw.
    num_draws : int
    plate : str
        Name of the data plate.

    Returns
    -------
    LatentPosterior
        ``values`` are ``(num_draws, N, ...)`` for each local site.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, optax, numpyro_gp as ngp
    >>> def model(X, y=None):
    ...     f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), jnp.eye(2))
    ...     with numpyro.plate("data", len(X)):
    ...         ngp.observe("y", f(ngp.latent_inputs("w", X)), ngp.likelihoods.Gaussian(0.1), obs=y)
    >>> X, y, guide = jnp.zeros((4, 1)), jnp.ones(4), ngp.AutoGP(model)
    >>> svi = numpyro.infer.SVI(model, guide, optax.adam(0.01), ngp.ImportanceWeightedELBO(5))
    >>> params = ngp.fit(jax.random.key(0), svi, 2, X, y, progress=False).params
    >>> found = ngp.conditional_density.latent_posterior(jax.random.key(1), model, guide, params, X, y)
    >>> found.values["w"].shape
    (1, 4, 1)
    """
    check_key("key", key)
    check_count("num_samples", num_samples)
    check_count("num_draws", num_draws)
    check_not_empty(call_of(model, args, kwargs))
    # Models index their data by the traced rows of a minibatch, which NumPy arrays refuse.
    args, kwargs = on_devices((args, kwargs))

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


def log_density(
    key: Array, posterior: Posterior, *data: object, num_samples: int = 500, plate: str = "data", **kwargs: object
) -> Array:
    """``log p(y_n | x_n)`` of new data under a model with latent inputs, by draws that know where ``y_n`` is.

    Half of the values of ``w`` are drawn from the guide at ``(x_n, y_n)`` and half from the prior, and each counts by
    ``p(w) / (q(w) / 2 + p(w) / 2)``, at most 2 (mathematics.md section 10.4). `Prediction.log_density` draws all of
    them from the prior: where the noise is small few come near to ``y_n``, and it is low by many nats.

    Parameters
    ----------
    key : PRNG key
    posterior : Posterior
        Of a guide that maps rows to latent inputs (`guides.amortised`, or one of your own).
    *data, **kwargs
        Arguments of the model with new data, ``y`` included.
    num_samples : int
    plate : str
        Name of the data plate.

    Returns
    -------
    Array (N,)

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, optax, numpyro_gp as ngp
    >>> def model(X, y=None):
    ...     f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), jnp.eye(2))
    ...     with numpyro.plate("data", len(X)):
    ...         ngp.observe("y", f(ngp.latent_inputs("w", X)), ngp.likelihoods.Gaussian(0.1), obs=y)
    >>> X, y, guide = jnp.zeros((4, 1)), jnp.ones(4), ngp.AutoGP(model, {"w": ngp.guides.amortised()})
    >>> svi = numpyro.infer.SVI(model, guide, optax.adam(0.01), ngp.ImportanceWeightedELBO(5))
    >>> params = ngp.fit(jax.random.key(0), svi, 2, X, y, progress=False).params
    >>> posterior = ngp.Posterior.from_svi(model, guide, params)
    >>> ngp.conditional_density.log_density(jax.random.key(1), posterior, X[:3], y[:3]).shape
    (3,)
    """
    check_key("key", key)
    count = check_count("num_samples", num_samples)
    own = posterior.guide if isinstance(posterior, Posterior) else None
    if own is None or (isinstance(own, AutoGuide) and not isinstance(own, AutoGP)):
        got = f"a {type(posterior if own is None else own).__name__}"
        cure = "Build it by Posterior.from_svi(model, guide, result.params)."
        fail("posterior", "of a fit by SVI with ngp.AutoGP, or a guide of your own", got, cure, TypeError)
    call = call_of(posterior.model, data, kwargs)
    check_not_empty(call)
    sites = look(posterior.fitted_model, call).sites
    check_full(sites)
    if not (local := tuple(local_sites(sites, plate))):
        cure = "Call posterior.predict(...).log_density, or name the data plate: plate=."
        fail("the model", f"one with latent inputs in plate {plate!r}", "none", cure)
    rows = call.at(call.arrays)
    try:
        jax.eval_shape(lambda key: posterior.source.training_values(key, jnp.asarray(0), rows), jax.random.key(0))
    except ValueError as error:  # it knows nothing of other rows
        required, got = "one that maps rows to latent inputs", "one with parameters for each row of the fit"
        cure = f"Fit ngp.AutoGP(model, {{{local[0]!r}: ngp.guides.amortised()}}). ({error})"
        fail("the guide", required, got, cure)
    share = (count + 1) // 2 / count  # of the guide's draws

    def weighted(own: Fitted, draw: Draw, arrays: list[Array]) -> Array:
        """``log p(y_n | x_n, w_n) + log p(w_n) - log (share q(w_n) + (1 - share) p(w_n))`` at one draw, ``(N,)``."""
        bound, model = call.at(arrays), own.fitted_model
        key_guide, key_prior, key_model = jax.random.split(draw[0], 3)
        given = own.source.training_values(key_guide, draw[1], bound)
        rest = {name: value for name, value in given.items() if name not in local}
        prior = run_model(model, SiteValues(rest), key_prior, bound)
        values = {name: jnp.where(draw[1] % 2 == 1, prior[name]["value"], given[name]) for name in local}
        trace = run_model(model, SiteValues(rest | values), key_model, bound)
        known = dict(own.source.params) | values
        with handlers.block(), handlers.seed(rng_seed=key_guide), handlers.substitute(data=known):
            proposal = handlers.trace(own.guide).get_trace(*bound.args, **bound.kwargs)
        terms = ([found[name]["fn"].log_prob(values[name]) for name in local] for found in (trace, proposal))
        log_p, log_q = (jnp.sum(jnp.stack(each), axis=0) for each in terms)
        total: Array = log_p - jnp.logaddexp(log_q + jnp.log(share), log_p + jnp.log1p(-share))
        for site in data_sites(trace).values():
            term = log_likelihood(site["fn"], site["value"])
            if term.shape != total.shape:
                required = f"of shape {total.shape}, as the latent inputs"
                cure = "Put data and latent inputs in one plate."
                fail("the log likelihood of a row", required, f"{term.shape}", cure)
            total = total + term
        return total

    found: Array = at_each_draw(weighted, posterior, draws_at_data(posterior, key, call, count), call.arrays)
    return jax.nn.logsumexp(found, axis=0) - jnp.log(count)


def density_on_grid(prediction: Prediction, grid: ArrayLike) -> Array:
    """Draw the whole predictive density, with its modes: ``p(y | x_n)`` at each point of a grid.

    It is the mixture itself, without a kernel density estimate.

    Parameters
    ----------
    prediction : Prediction
        Of a model with one observed number for each row, with as many draws as the picture needs (500 or more).
    grid : array (G,)
        Values of y.

    Returns
    -------
    Array (G, N)

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist, numpyro_gp as ngp
    >>> def model(X, y=None):
    ...     f = ngp.gp("f", ngp.kernels.RBF(1.0, numpyro.sample("lengthscale", dist.LogNormal(0.0, 1.0))), X[:2])
    ...     with numpyro.plate("data", len(X)):
    ...         ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.1), obs=y)
    >>> posterior = ngp.Posterior.from_mcmc(model, {"lengthscale": jnp.ones(4), "f": jnp.zeros((4, 2))})
    >>> X, y = jnp.linspace(0.0, 1.0, 6)[:, None], jnp.zeros(6)
    >>> prediction = posterior.predict(jax.random.key(0), X)
    >>> ngp.conditional_density.density_on_grid(prediction, jnp.linspace(-2.0, 2.0, 9)).shape
    (9, 6)
    """
    points = check_floating("grid", grid)
    if points.ndim != 1:
        fail("grid", "of shape (G,)", f"shape {points.shape}", "Pass jnp.linspace(low, high, 100).")
    if prediction.mean.ndim != 1:
        fail("prediction", "of one number for each row", f"of shape {prediction.mean.shape}", "Choose it: site='y'.")
    rows = [prediction.log_density(jnp.full(prediction.mean.shape, point, prediction.mean.dtype)) for point in points]
    return jnp.exp(jnp.stack(rows))


def shapiro_wilk(samples: ArrayLike) -> np.ndarray:
    """How far from Gaussian samples are: the Shapiro-Wilk statistic ``W`` along the first axis. 1 is Gaussian.

    ``W = (sum_i a_i x_(i))^2 / sum_i (x_i - mean)^2`` with Royston's approximation of the weights, for 3 to 5000
    samples. Applied to ``prediction.sample(1000)`` it says for each datum how far from Gaussian its
    predictive distribution is.

    Parameters
    ----------
    samples : array (S, ...)
        3 to 5000 of them along the first axis.

    Returns
    -------
    numpy.ndarray (...)

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> normal = np.random.default_rng(0).normal(size=500)
    >>> of_both = ngp.conditional_density.shapiro_wilk(np.stack([normal, np.exp(normal)], axis=1))
    >>> bool(of_both[0] > 0.99 > of_both[1])
    True
    """
    from scipy.stats import shapiro

    values = np.asarray(check_floating("samples", samples), dtype=float)
    if constant := int(np.sum(np.ptp(values, axis=0) == 0)):
        fail("samples", "not all equal", f"{constant} constant columns", "Leave the constant columns out.")
    return np.apply_along_axis(lambda column: shapiro(column).statistic, 0, values)
