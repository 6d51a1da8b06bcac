"""Whether to trust a fit: a verdict, importance weights, and simulation-based calibration of a model."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.infer import MCMC, NUTS

from numpyro_gp.arrays import Array, Merge, Model, split_arrays
from numpyro_gp.checks import check_count, check_key, fail
from numpyro_gp.criticism import fit_checks, metrics, posterior_checks
from numpyro_gp.criticism.evidence import gather
from numpyro_gp.criticism.fit_checks import Case, Finding
from numpyro_gp.criticism.weights import Weights, importance_resample, importance_weights, whitened_normal
from numpyro_gp.posterior.draws import is_hyperparameter
from numpyro_gp.posterior.posterior import Posterior
from numpyro_gp.programs.handler_lock import alone
from numpyro_gp.rows.call import call_of

# --------------------------------------------------------------------------------------
# A verdict on a fit: what is wrong with it, the gravest first, each with the next thing to try.
#
# Findings are looked for in one order, that of how much they spoil: chains that disagree, then noise and functions
# that are wrong for a reason that is known, then data that do not look as predicted, then posteriors of the wrong
# shape.


MOST_FINDINGS = 10
JUDGED_DRAWS = 200
# In the order of how much they spoil.
LOOKS: tuple[Callable[[Case], Iterator[Finding]], ...] = (
    fit_checks.r_hat,
    fit_checks.divergences,
    fit_checks.stranded,
    fit_checks.no_numbers,
    fit_checks.narrow,
    fit_checks.effective_draws,
    fit_checks.noise,
    fit_checks.inducing,
    posterior_checks.more_neighbours,
    posterior_checks.repeated_rows,
    fit_checks.long_lengthscale,
    fit_checks.not_normal,
    fit_checks.follow,
    fit_checks.miscalibrated,
    posterior_checks.fits_differ,
    posterior_checks.pareto,
    posterior_checks.parameters_differ,
    posterior_checks.at_prior,
)


class Findings(tuple[Finding, ...]):
    """What `verdict` has printed, a tuple of `Finding`; to print it names them, and does not say them twice."""

    __slots__ = ()

    def __repr__(self) -> str:
        named = f"{len(self)} finding{'s' * (len(self) > 1)}: {', '.join(one.fault for one in self)}"
        return named if self else "no findings"


def verdict(
    posterior: Posterior,
    *data: object,
    key: Array | None = None,
    other: Posterior | None = None,
    num_samples: int = JUDGED_DRAWS,
    **kwargs: object,
) -> tuple[Finding, ...]:
    """What is wrong with a fit: at most ten sentences, the gravest first, each with the next thing to try.

    They are printed and returned as values; a fit without faults is said to be one, and the tuple is empty. It looks at
    what the model has numbers for: inducing inputs, lengthscales and noise of `gp` and `gp_regression`, chains of NUTS,
    the shape of a variational fit, and any observed site with draws. Data are judged with each of them left out, by
    importance weights, at 2000 rows at most. No finding is no proof: held-out data are better (`compare`), and
    `sbc` is better still.

    Parameters
    ----------
    posterior : Posterior
    *data, **kwargs
        Arguments of the model as in the fit, data included and without minibatches.
    key : PRNG key, optional
    other : Posterior, optional
        A second fit of the same model and data, as by NUTS: do their parameters and their functions agree?
    num_samples : int
        Draws of the posterior to look at. R-hat and effective sample sizes take all that are stored.

    Returns
    -------
    tuple of Finding
        Printed once: to print what is returned gives their names.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro, numpyro_gp as ngp
    >>> def model(X, y=None):
    ...     f = ngp.gp("f", ngp.kernels.RBF(1.0, 0.1), X[::8])
    ...     with numpyro.plate("data", len(X)):
    ...         ngp.observe("y", f(X), ngp.likelihoods.Gaussian(0.5), obs=y)
    >>> X = jnp.linspace(0.0, 1.0, 24)[:, None]
    >>> y = 0.5 * jax.random.normal(jax.random.key(1), (24,))
    >>> posterior = ngp.Posterior.from_mcmc(model, {"f": 0.3 * jax.random.normal(jax.random.key(0), (200, 3))})
    >>> [finding.fault for finding in ngp.diagnose.verdict(posterior, X, y)]
    1. The 3 inducing inputs of f leave 55 % of its prior variance at the data unexplained, and 5 % is little (the log
    evidence may be ... nats per datum higher): take as many as ngp.inducing.enough(kernel, X) says.
    ['inducing inputs']
    """
    key = jax.random.key(0) if key is None else check_key("key", key)
    count, call = check_count("num_samples", num_samples), call_of(posterior.model, data, kwargs)
    second = None if other is None else gather(other, key, call_of(other.model, data, kwargs), count)
    case = Case(gather(posterior, key, call, count), posterior, call, key, second)
    all_faults = findings(case)
    for number, finding in enumerate(all_faults, 1):
        print(f"{number}. {finding}")
    if not all_faults:
        chains = "the chains, " if posterior.kind == "mcmc" else ""
        if any(seen.z.size for seen in case.evidence.sites.values()):
            print(f"No fault was found in {chains}inducing inputs, lengthscales, noise, residuals and calibration.")
        else:
            print(f"No fault was found in {chains}inducing inputs and lengthscales. Such data are not judged.")
    return Findings(all_faults)


def findings(case: Case) -> tuple[Finding, ...]:
    """At most ten, the gravest first."""
    each = (list(look(case)) for look in LOOKS)

    def distance(finding: Finding) -> float:
        """Return how far a number is from its threshold, on either side: of several processes the worst is told."""
        return abs(np.log(max(finding.number, 1e-300) / finding.threshold)) if finding.threshold else finding.number

    return tuple(max(same, key=distance) for same in each if same)[:MOST_FINDINGS]


__all__ = [
    "Calibration",
    "Finding",
    "Weights",
    "importance_resample",
    "importance_weights",
    "sbc",
    "verdict",
    "whitened_normal",
]

THINNING = 5


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
    model: Model,
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

    @jax.jit
    @alone
    def simulate(key: Array) -> tuple[dict[str, Array], dict[str, Array]]:
        """Hyper-parameters and data from the prior; GP sites are drawn as points."""
        with handlers.block(), handlers.seed(rng_seed=key):
            trace = handlers.trace(model if truth is None else truth).get_trace(*args, **kwargs)
        if missing := sorted(set(data) - {name for name, site in trace.items() if site["type"] == "sample"}):
            fail("data", f"sites of the model: {sorted(trace)}", f"{missing}", 'Pass data={"y": "y"}.')
        truths = {name: site["value"] for name, site in trace.items() if is_hyperparameter(site) and name not in data}
        return truths, {argument: trace[name]["value"] for name, argument in data.items()}

    run = _nuts(num_draws, check_count("thinning", thinning)) if fit is None else fit
    rank_lists: dict[str, list[int]] = {}
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
                rank_lists.setdefault(label, []).append(rank)
    ranks = {label: np.asarray(each) for label, each in rank_lists.items()}
    p_values = {}
    for number, (label, each) in enumerate(ranks.items()):  # spread uniformly within their steps, so continuous
        within = np.random.default_rng(number).uniform(size=each.size)
        p_values[label] = float(metrics.pit_uniformity(jnp.asarray((each + within) / (num_draws + 1))).p_value)
    return Calibration(ranks, p_values, num_draws)


def _nuts(num_draws: int, thinning: int) -> Callable[..., Mapping[str, Array]]:
    """NUTS as one program for all data sets; thinned, because ranks take draws for independent."""
    sizes = {"num_warmup": 300, "num_samples": num_draws * thinning, "thinning": thinning}

    def sampled(model: Model, merge: Merge, key: Array, arrays: list[Array]) -> Mapping[str, Array]:
        args, kwargs = merge(arrays)
        mcmc = MCMC(NUTS(model), progress_bar=False, **sizes)
        mcmc.run(key, *args, **kwargs)
        return mcmc.get_samples()

    programs: list[Callable[..., Mapping[str, Array]]] = []

    def run(key: Array, model: Model, *args: object, **kwargs: object) -> Mapping[str, Array]:
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
