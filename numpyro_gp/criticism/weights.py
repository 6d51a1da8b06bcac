"""Importance weights of the draws of a variational fit: whether to trust it, and draws that are nearer to NUTS."""

import warnings
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.infer.util import log_density

from numpyro_gp.arrays import Array
from numpyro_gp.beliefs.base import AbstractBelief
from numpyro_gp.beliefs.basis import AbstractBasis
from numpyro_gp.checks import check_count, check_key, fail, known
from numpyro_gp.criticism.leave_one_out import pareto_k, smoothed
from numpyro_gp.posterior.draws import PointsAt, check_full, is_hyperparameter, whitened_sites
from numpyro_gp.posterior.posterior import Posterior
from numpyro_gp.posterior.sources import stored
from numpyro_gp.primitives.opening import Plates, basis_under
from numpyro_gp.programs.compiled import run_quickly
from numpyro_gp.rows.call import call_of
from numpyro_gp.rows.model_trace import look
from numpyro_gp.sites import Site, is_latent, unwrap

GOOD, POOR = 0.5, 0.7


class Weights(NamedTuple):
    """What `importance_weights` returns: log weights of draws from a fit, and the shape ``k`` of their tail.

    ``k < 0.5``: the approximation is good in the parts that matter; up to 0.7 it is usable, with
    importance sampling; beyond, it misses mass of the posterior (Yao et al. 2018). A small ``k`` says
    nothing about parts of the posterior that no draw reached.

    Attributes
    ----------
    log_weights : numpy.ndarray (S,)
    pareto_k : float
    draws : dict
        The draws that are weighed, of the sites outside every plate that are not GP sites.

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> ngp.diagnose.Weights(np.zeros(100), 0.3).verdict
    'good'
    """

    log_weights: np.ndarray
    pareto_k: float
    draws: Mapping[str, Array] = MappingProxyType({})

    @property
    def verdict(self) -> str:
        """One word for ``k``."""
        return "good" if self.pareto_k < GOOD else "usable" if self.pareto_k < POOR else "poor"

    def smoothed(self) -> np.ndarray:
        """Weights ``(S,)`` that sum to one, the largest smoothed (Vehtari et al. 2024)."""
        return np.exp(smoothed(self.log_weights[:, None]).log_weights[:, 0])

    def __str__(self) -> str:
        return f"Pareto k = {self.pareto_k:.2f} from {self.log_weights.size} draws: {self.verdict}"


def importance_weights(
    posterior: Posterior, key: Array, *args: object, num_samples: int = 1000, **kwargs: object
) -> Weights:
    """Whether to trust a variational fit: the importance weights of its draws.

    They are ``p(y, theta, v) / q(theta, v)`` at the data of the fit.

    The target is the one that NUTS samples, with each datum's term ``E_{p(f_n | v)} log p(y_n | f_n)``
    (mathematics.md section 8): the best posterior over ``v`` is proportional to it, so the weights judge the shape of
    ``q`` and not the choice of inducing points. Sites with a point estimate (`AutoDelta`) are taken as known.

    Parameters
    ----------
    posterior : Posterior
        From `Posterior.from_svi`.
    key : PRNG key
    *args, **kwargs
        Arguments of the model as in the fit, data included and without minibatches.
    num_samples : int

    Returns
    -------
    Weights

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, optax, numpyro_gp as ngp
    >>> def model(X, y=None):
    ...     f = ngp.gp("f", ngp.kernels.RBF(1.0, 1.0), X[:2])
    ...     with numpyro.plate("data", len(X)):
    ...         ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.5), obs=y)
    >>> X, y, guide = jnp.linspace(0.0, 1.0, 6)[:, None], jnp.zeros(6), ngp.AutoGP(model)
    >>> svi = numpyro.infer.SVI(model, guide, optax.adam(0.05), numpyro.infer.Trace_ELBO())
    >>> params = ngp.fit(jax.random.key(0), svi, 5, X, y, progress=False).params
    >>> posterior = ngp.Posterior.from_svi(model, guide, params)
    >>> ngp.diagnose.importance_weights(posterior, jax.random.key(1), X, y, num_samples=50).log_weights.shape
    (50,)
    """
    return _weighed(posterior, key, "num_samples", num_samples, is_hyperparameter, args, kwargs)


def importance_resample(
    posterior: Posterior,
    key: Array,
    *args: object,
    num_samples: int = 1000,
    num_weighed: int = 10_000,
    **kwargs: object,
) -> Posterior:
    """Draws of a variational fit, each as often as its importance weight says: near to those of NUTS.

    A normal guide is too narrow where a posterior is skewed, as that of a standard deviation of groups. Its draws and
    their weights say where the posterior is, as long as the guide reaches all of it: `importance_weights` has the
    target, and the weights are smoothed (Vehtari et al. 2024). A warning says where they cannot be relied on.

    Parameters
    ----------
    posterior : Posterior
        From `Posterior.from_svi`.
    key : PRNG key
    *args, **kwargs
        Arguments of the model as in the fit, data included and without minibatches.
    num_samples : int
        Draws of the posterior that is returned.
    num_weighed : int
        Draws of the guide that are weighed, from which these are drawn with replacement.

    Returns
    -------
    Posterior
        With stored draws, for all that a posterior answers. ``extra_fields`` has ``pareto_k`` beside each.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist, optax, numpyro_gp as ngp
    >>> def model(X, y=None):
    ...     noise = numpyro.sample("noise", dist.LogNormal(-1.0, 0.5))
    ...     ngp.gp_regression("y", ngp.kernels.RBF(1.0, 1.0), X, noise**2, obs=y)
    >>> X = jnp.linspace(0.0, 3.0, 8)[:, None]
    >>> guide = ngp.AutoGP(model, rest=numpyro.infer.autoguide.AutoNormal)
    >>> svi = numpyro.infer.SVI(model, guide, optax.adam(0.05), numpyro.infer.Trace_ELBO())
    >>> posterior = ngp.fit(jax.random.key(0), svi, 100, X, jnp.sin(X[:, 0]), progress=False).posterior()
    >>> ngp.diagnose.importance_resample(posterior, jax.random.key(1), X, jnp.sin(X[:, 0])).num_draws
    1000
    """
    places = np.arange(check_count("num_samples", num_samples))
    found = _weighed(posterior, key, "num_weighed", num_weighed, is_latent, args, kwargs)
    if found.pareto_k > POOR:
        text = f"Pareto k of the importance weights is {found.pareto_k:.2f}, above {POOR}: a few draws stand for all "
        text += "others, and what they say is no posterior. Train longer, by natural steps, or sample by NUTS."
        warnings.warn(text, stacklevel=2)
    # One offset for all: a draw is taken as often as its weight says, but for one.
    ends = np.cumsum(found.smoothed())
    offset = float(jax.random.uniform(jax.random.fold_in(key, 1)))
    index = np.searchsorted(ends[:-1] / ends[-1], (places + offset) / num_samples, side="right")
    sites = look(posterior.model, call_of(posterior.model, args, kwargs)).sites
    own = {name: x for name, x in posterior.params.items() if name in sites}  # and none of the guide
    source = stored({name: x[index] for name, x in found.draws.items()}, own)
    record = {"pareto_k": np.full(index.shape, found.pareto_k)}
    return Posterior(posterior.model, "resampled", source, extra_fields=record)


def _weighed(
    posterior: Posterior,
    key: Array,
    argument: str,
    count: int,
    is_kept: Callable[[Site], bool],
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> Weights:
    """So many draws of a guide, as the argument says, with the values of the sites that are kept."""
    if posterior.guide is None:
        cure = "For Markov chains look at R-hat and effective sample size: numpyro.diagnostics.summary."
        fail("posterior", "of a variational fit", f"one from {posterior.kind!r}", cure, TypeError)
    keys = jax.random.split(check_key("key", key), check_count(argument, count, 25))
    call = call_of(posterior.model, args, kwargs)
    check_full(look(posterior.fitted_model, call).sites)
    for name, is_whitened in whitened_sites(posterior, (keys[0], jnp.zeros((), int)), call).items():
        if not is_whitened:
            _refuse_belief(name)

    def weighted_draw(key: Array) -> tuple[Array, Mapping[str, Array]]:
        key_guide, key_points = jax.random.split(key)
        guide = handlers.substitute(handlers.seed(posterior.guide, key_guide), data=posterior.params)
        with handlers.block():
            trace = handlers.trace(guide).get_trace(*args, **kwargs)
        latent = {n: s for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}
        values = {name: s["value"] for name, s in latent.items()}
        beliefs = {name: value for name, value in values.items() if isinstance(value, AbstractBelief)}
        points = {name: value for name, value in values.items() if name not in beliefs}
        model = handlers.substitute(posterior.fitted_model, substitute_fn=PointsAt(values, key_points, beliefs))
        with handlers.block():
            log_model, found = log_density(model, args, kwargs, points)
        log_guide = sum(jnp.sum(latent[name]["fn"].log_prob(x)) for name, x in points.items())
        for name, belief in beliefs.items():
            site = found[name]
            basis = basis_under(belief, unwrap(site["fn"]), Plates.of(site["cond_indep_stack"]))
            log_guide = log_guide + jnp.sum(whitened_normal(name, belief, basis).log_prob(site["value"]))
        return log_model - log_guide, {name: site["value"] for name, site in found.items() if is_kept(site)}

    log_weights, draws = run_quickly(lambda keys: jax.lax.map(weighted_draw, keys), keys)
    return Weights(np.asarray(log_weights), pareto_k(log_weights), draws)


def whitened_normal(name: str, belief: AbstractBelief, basis: AbstractBasis) -> dist.MultivariateNormal:
    """The normal distribution of whitened values that a belief is, for diagnostics of your own.

    Parameters
    ----------
    name : str
        Site, for messages.
    belief : AbstractBelief
    basis : AbstractBasis

    Returns
    -------
    numpyro.distributions.MultivariateNormal
        Event shape ``(M,)``.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro_gp as ngp
    >>> basis = ngp.beliefs.Basis.build(ngp.kernels.RBF(1.0, 0.5), jnp.array([[0.0], [1.0]]))
    >>> ngp.diagnose.whitened_normal("f", ngp.beliefs.MeanField(jnp.zeros(2), jnp.ones(2)), basis).event_shape
    (2,)
    """
    is_whitened = known(belief.is_whitened(basis))
    if is_whitened is not None and not is_whitened:
        _refuse_belief(name)
    found = belief.whitened(basis)
    return dist.MultivariateNormal(found.mean, scale_tril=found.scale_tril)


def _refuse_belief(name: str) -> NoReturn:
    got = "one whose KL divergence is another: it says more about the function"
    cure = "Compare its predictions with those of NUTS instead: ngp.compare."
    fail(f"the belief at site {name!r}", "a normal distribution of the whitened values", got, cure, TypeError)
