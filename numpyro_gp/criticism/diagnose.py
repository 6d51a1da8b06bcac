"""Whether to trust a fit: importance weights of a variational one, and simulation-based calibration of a model."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.infer import MCMC, NUTS
from numpyro.infer.util import log_density

from numpyro_gp.arrays import Array, ArrayLike, Merge, split_arrays
from numpyro_gp.beliefs.base import AbstractBelief
from numpyro_gp.beliefs.basis import AbstractBasis
from numpyro_gp.checks import check_count, check_key, fail, known
from numpyro_gp.criticism import arviz, metrics
from numpyro_gp.posterior.draws import PointsAt, are_whitened, belief_trace, is_hyperparameter
from numpyro_gp.posterior.posterior import Posterior
from numpyro_gp.rows.call import call_of
from numpyro_gp.sites import Site, unwrap

__all__ = ["Calibration", "Weights", "importance_weights", "sbc", "whitened_normal"]


GOOD, POOR = 0.5, 0.7
THINNING = 5


class Weights(NamedTuple):
    """What `importance_weights` returns: log weights of draws from a fit, and the shape ``k`` of their tail.

    ``k < 0.5``: the approximation is good in the parts that matter; up to 0.7 it is usable, with
    importance sampling; beyond, it misses mass of the posterior (Yao et al. 2018). A small ``k`` says
    nothing about parts of the posterior that no draw reached.

    Attributes
    ----------
    log_weights : numpy.ndarray (S,)
    pareto_k : float

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> ngp.diagnose.Weights(np.zeros(100), 0.3).verdict
    'good'
    """

    log_weights: np.ndarray
    pareto_k: float

    @property
    def verdict(self) -> str:
        """One word for ``k``."""
        return "good" if self.pareto_k < GOOD else "usable" if self.pareto_k < POOR else "poor"

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
    if getattr(posterior, "guide", None) is None:
        cure = "For Markov chains look at R-hat and effective sample size: numpyro.diagnostics.summary."
        got = f"one from {posterior.kind!r}" if isinstance(posterior, Posterior) else f"a {type(posterior).__name__}"
        fail("posterior", "of a variational fit", got, cure, TypeError)
    keys = jax.random.split(check_key("key", key), check_count("num_samples", num_samples, 25))
    call = call_of(posterior.model, args, kwargs)
    bound = call.at(call.arrays)

    first = jax.jit(lambda key: are_whitened(belief_trace(posterior, (key, jnp.zeros((), int)), bound)))
    for name, is_whitened in first(keys[0]).items():
        if not is_whitened:
            _refuse(name)

    def log_weight(key: Array) -> Array:
        key_guide, key_points = jax.random.split(key)
        guide = handlers.substitute(handlers.seed(posterior.guide, key_guide), data=posterior.params)
        with handlers.block():
            trace = handlers.trace(guide).get_trace(*args, **kwargs)
        latent = {n: s for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}
        points = {name: s["value"] for name, s in latent.items() if not isinstance(s["value"], AbstractBelief)}
        drawn = _WeighedPoints({name: s["value"] for name, s in latent.items()}, key_points, set(latent) - set(points))
        model = handlers.substitute(posterior.fitted_model, substitute_fn=drawn)
        with handlers.block():
            log_model = log_density(model, args, kwargs, points)[0]
        log_guide = sum(jnp.sum(latent[name]["fn"].log_prob(x)) for name, x in points.items())
        weight: Array = log_model - drawn.log_prob - log_guide
        return weight

    found = np.asarray(jax.jit(lambda keys: jax.lax.map(log_weight, keys))(keys))
    return Weights(found, arviz.pareto_k(found))


class _WeighedPoints(PointsAt):
    """Points drawn from beliefs, with the sum of their log densities."""

    log_prob: ArrayLike = 0.0

    def draw(self, belief: AbstractBelief, key: Array, site: Site) -> Array:
        value = super().draw(belief, key, site)
        normal = whitened_normal(site["name"], belief, unwrap(site["fn"]).basis_of(belief))
        self.log_prob = self.log_prob + jnp.sum(normal.log_prob(value))
        return value


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
        _refuse(name)
    found = belief.whitened(basis)
    return dist.MultivariateNormal(found.mean, scale_tril=found.scale_tril)


def _refuse(name: str) -> NoReturn:
    got = "one whose KL divergence is another: it says more about the function"
    cure = "Compare its predictions with those of NUTS instead: ngp.compare."
    fail(f"the belief at site {name!r}", "a normal distribution of the whitened values", got, cure, TypeError)


class Calibration(NamedTuple):
    """What `sbc` returns: ranks of true values among the draws, uniform if model and inference are right.

    Attributes
    ----------
    ranks : dict
        ``(R,)`` for each hyper-parameter, between 0 and ``num_draws``.
    p_values : dict
        Of their Kolmogorov-Smirnov distance from the uniform distribution.
    num_draws : int

    Examples
    --------
    >>> import numpy as np, numpyro_gp as ngp
    >>> ngp.diagnose.Calibration({"noise": np.arange(64)}, {"noise": 0.9}, 63).passed()
    True
    """

    ranks: dict[str, np.ndarray]
    p_values: dict[str, float]
    num_draws: int

    def passed(self, level: float = 0.01) -> bool:
        """Whether no p-value is below ``level`` divided by their number."""
        return min(self.p_values.values()) >= level / len(self.p_values)

    def __str__(self) -> str:
        width = max(map(len, self.ranks))
        count = len(next(iter(self.ranks.values())))
        lines = [f"Simulation-based calibration, {count} data sets, {self.num_draws} draws each"]
        for name, ranks in self.ranks.items():
            place = (ranks.mean() + 0.5) / (self.num_draws + 1)
            spread = ranks.std() / (self.num_draws + 1) * math.sqrt(12)
            end = f"spread {spread:.2f} (1.00)  p = {self.p_values[name]:.3f}"
            lines.append(f"{name:<{width}}  mean {place:.2f} (0.50)  {end}")
        return "\n".join([*lines, "passed" if self.passed() else "FAILED: ranks are not uniform"])


def sbc(
    key: Array,
    model: Callable[..., object],
    *args: object,
    data: Mapping[str, str] | None = None,
    fit: Callable[..., Mapping[str, Array]] | None = None,
    truth: Callable[..., object] | None = None,
    num_simulations: int = 100,
    num_draws: int = 63,
    thinning: int = THINNING,
    sites: Sequence[str] | None = None,
    **kwargs: object,
) -> Calibration:
    """Whether inference finds the values that made the data: simulation-based calibration (Talts et al. 2018).

    Draws hyper-parameters and data from the model, infers, and ranks the true values among the posterior
    draws. Inference of sparse models is approximate, and many data sets show it: with ``inducing``
    inputs at all data it is not.

    Parameters
    ----------
    key : PRNG key
    model : callable
    *args, **kwargs
        Arguments of the model without its data.
    data : dict, optional
        Observed site to the argument of the model that takes its data; ``{"y": "y"}`` by default.
    fit : callable, optional
        ``fit(key, model, *args, **kwargs) -> draws by site``, draws first; NUTS by default.
    truth : callable, optional
        Model that simulates the data, where it is not ``model``: shows what a wrong model looks like.
    num_simulations, num_draws : int
        Data sets, and draws for each of them that ranks count.
    thinning : int
        NUTS steps for each draw that counts: ranks take draws for independent. Where a sampler mixes slowly (whitened
        values under small noise), ranks with too little thinning pile up at both ends.
    sites : sequence of names, optional
        Sites to rank; all hyper-parameters by default.

    Returns
    -------
    Calibration

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist, numpyro_gp as ngp
    >>> def model(y=None):
    ...     mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    ...     numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)
    >>> def exact(key, model, y):
    ...     return {"mean": 0.5 * y + jax.random.normal(key, (31,)) / jnp.sqrt(2.0)}
    >>> found = ngp.diagnose.sbc(jax.random.key(0), model, fit=exact, num_simulations=20, num_draws=31)
    >>> found.ranks["mean"].shape, found.passed()
    ((20,), True)
    """
    check_count("num_simulations", num_simulations, 10)
    check_count("num_draws", num_draws, 7)
    data = {"y": "y"} if data is None else dict(data)
    simulate = _simulator(model if truth is None else truth, args, kwargs, data)
    run = _nuts(num_draws, check_count("thinning", thinning)) if fit is None else fit
    found: dict[str, list[int]] = {}
    for number, key_both in enumerate(jax.random.split(check_key("key", key), num_simulations)):
        key_data, key_fit = jax.random.split(key_both)
        ties = np.random.default_rng(number)
        values, observed = simulate(key_data)
        draws = run(key_fit, model, *args, **{**kwargs, **observed})
        names = [name for name in (values if sites is None else sites) if name in draws]
        if not names or (sites is not None and len(names) < len(sites)):
            got = f"{sorted(values)} simulated, {sorted(draws)} inferred"
            cure = "Check the spelling, or leave sites out for all hyper-parameters."
            fail("sites", f"sites that are simulated and inferred: {sites or 'any'}", got, cure)
        for name in names:
            for label, rank in _ranks(name, np.asarray(values[name]), np.asarray(draws[name]), num_draws, ties):
                found.setdefault(label, []).append(rank)
    ranks = {label: np.asarray(each) for label, each in found.items()}
    p_values = {label: float(_uniformity(each, num_draws, n)) for n, (label, each) in enumerate(ranks.items())}
    return Calibration(ranks, p_values, num_draws)


def _simulator(
    model: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object], data: Mapping[str, str]
) -> Callable[[Array], tuple[dict[str, Array], dict[str, Array]]]:
    """Hyper-parameters and data from the prior of a model; GP sites are drawn as points."""

    def simulate(key: Array) -> tuple[dict[str, Array], dict[str, Array]]:
        with handlers.block(), handlers.seed(rng_seed=key):
            trace = handlers.trace(model).get_trace(*args, **kwargs)
        if missing := sorted(set(data) - {name for name, site in trace.items() if site["type"] == "sample"}):
            fail("data", f"sites of the model: {sorted(trace)}", f"{missing}", 'Pass data={"y": "y"}.')
        truths = {name: site["value"] for name, site in trace.items() if is_hyperparameter(site) and name not in data}
        return truths, {argument: trace[name]["value"] for name, argument in data.items()}

    return jax.jit(simulate)


def _nuts(num_draws: int, thinning: int) -> Callable[..., Mapping[str, Array]]:
    """NUTS as one program for all data sets; thinned, because ranks take draws for independent."""
    sizes = {"num_warmup": 300, "num_samples": num_draws * thinning, "thinning": thinning}

    def sampled(model: Callable[..., object], merge: Merge, key: Array, arrays: list[Array]) -> Mapping[str, Array]:
        args, kwargs = merge(arrays)
        mcmc = MCMC(NUTS(model), progress_bar=False, **sizes)
        mcmc.run(key, *args, **kwargs)
        samples: Mapping[str, Array] = mcmc.get_samples()
        return samples

    programs: list[Callable[..., Mapping[str, Array]]] = []

    def run(key: Array, model: Callable[..., object], *args: object, **kwargs: object) -> Mapping[str, Array]:
        arrays, merge = split_arrays((args, kwargs))
        if not programs:  # all data sets are of one model and one form
            programs.append(jax.jit(partial(sampled, model, merge)))
        return programs[0](key, arrays)

    return run


def _ranks(
    name: str, value: np.ndarray, draws: np.ndarray, num_draws: int, ties: np.random.Generator
) -> list[tuple[str, int]]:
    """Rank of each entry of a value among its draws, anywhere among those that equal it."""
    if draws.shape[1:] != value.shape or len(draws) < num_draws:
        need = f"at least {num_draws} draws of shape {value.shape}"
        cure = "Return at least as many draws as num_draws, on the first axis of each array."
        fail(f"what fit returned for {name!r}", need, f"shape {draws.shape}", cure)
    thinned = draws[np.round(np.linspace(0, len(draws) - 1, num_draws)).astype(int)]
    below = (thinned < value).sum(axis=0) + ties.integers((thinned == value).sum(axis=0) + 1)
    return [(name if not at else f"{name}{list(at)}", int(below[at])) for at in np.ndindex(value.shape)]


def _uniformity(ranks: np.ndarray, num_draws: int, seed: int) -> Array:
    """p-value of ranks, spread uniformly within their steps so that they are continuous."""
    within = np.random.default_rng(seed).uniform(size=ranks.size)
    return metrics.pit_uniformity(jnp.asarray((ranks + within) / (num_draws + 1))).p_value
