"""``observe``: data seen through a likelihood, as one observed site with one term for each datum."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from numpyro_gp.arrays import Array, ArrayLike
from numpyro_gp.checks import fail, known
from numpyro_gp.likelihoods import Likelihood, as_likelihood
from numpyro_gp.primitives.gp import check_name
from numpyro_gp.sites import Observation

__all__ = ["check_data", "observe"]


def observe(name: str, f: Any, likelihood: Any, obs: ArrayLike | None = None) -> Array:
    """Observe data ``y`` whose distribution given ``f`` is the likelihood.

    The site's ``log_prob`` is ``E_q(f_n) log p(y_n | f_n)`` for each datum; under the prior or after
    fitting (``obs=None``) the site draws ``y`` from its predictive distribution.

    Parameters
    ----------
    name : str
        Name of the site.
    f : Normal, Normal.to_event(1), tuple of Normals, or MultivariateNormal
        Marginals of the latent function(s) at the data: ``f(X)`` of a `gp`.
    likelihood : Likelihood or callable ``f -> numpyro Distribution``
    obs : array or None
        Data with the batch shape of ``f``.

    Returns
    -------
    Array
        The data, or the draw.
    """
    observation = Observation(f, likelihood_of(f, likelihood))
    if obs is not None:
        obs = check_data(name, obs, observation)
        observation.likelihood.check_targets(obs)
    return numpyro.sample(check_name("name", name), observation, obs=obs)


def likelihood_of(f: Any, likelihood: Any) -> Likelihood:
    """The likelihood, where a callable is told how many latent functions ``f`` gives it.

    Over several outputs (``Normal.to_event(1)``) a callable either works on all of them at once, like
    ``lambda f: dist.Categorical(logits=f)``, or on each alone, like ``lambda f: dist.Poisson(jnp.exp(f))``:
    the batch shape of what it returns says which.
    """
    if isinstance(likelihood, Likelihood):
        return likelihood
    if isinstance(f, (tuple, list)):
        return as_likelihood(likelihood, len(f))
    if isinstance(f, dist.MultivariateNormal):
        return as_likelihood(likelihood, f.event_shape[0])
    if isinstance(f, dist.Independent):
        alone = as_likelihood(likelihood)
        if alone.num_latent == 1 and alone.conditional(f.mean).batch_shape == f.mean.shape:
            return alone
        return as_likelihood(likelihood, f.event_shape[0])
    return as_likelihood(likelihood)


def check_data(name: str, obs: ArrayLike, observation: Any) -> Array:
    """Refuse data that would broadcast against the latent function instead of lying beside it."""
    data = jnp.asarray(obs)
    wanted = observation.batch_shape + observation.event_shape
    tail = wanted[len(wanted) - data.ndim :] if data.ndim <= len(wanted) else None
    if tail != data.shape or (wanted and data.ndim == 0):
        fail(
            f"obs of site {name!r}",
            f"of the shape of f, {wanted}",
            f"shape {data.shape}",
            "Pass one value for each row of X: y[:, 0] for a column, y[idx] inside a subsampled plate.",
        )
    concrete = known(data)
    if concrete is not None and concrete.dtype.kind == "f" and np.isnan(concrete).any():
        fail(
            f"obs of site {name!r}",
            "free of NaN",
            f"{np.isnan(concrete).sum()} NaN of {data.size}",
            "Leave missing data out, or replace them and hide their terms with numpyro.handlers.mask.",
        )
    return data
